"""Every model, with every loss and every target set: it fits, saves, loads and recommends as it should.

And every model as it is built, with weights of any size: it keeps the contract that the rest of milrec relies on.
"""

import itertools

import numpy as np
import pyarrow as pa
import pytest
import torch
from scipy.sparse import csr_array

import milrec
from milrec.errors import SettingsError
from milrec.kernels.sparse import Rows
from milrec.lists.scores import Scorer, logits_of
from milrec.losses import LOSSES
from milrec.models.contract import ROWS, GradientModel, LatentModel
from milrec.models.inputs import Users
from milrec.models.item_to_item import SparseItemToItem
from milrec.models.known import build_model
from milrec.models.settings import MODELS
from milrec.training.artifact import Fitted
from milrec.training.presets import settings_for
from milrec.training.sections import TargetSettings
from random_rows import random_rows

TARGET_SETS = TargetSettings.model_fields["target_set"].annotation.__args__
DRAWS = [target_set for target_set in TARGET_SETS if target_set != "auto"]  # auto becomes one of the others
WITHOUT_LOSS = [model for model, kind in MODELS.items() if not kind.needs_loss]
COMBINATIONS = [
    (model, loss, target_set)
    for model, loss in [*itertools.product(("dae", "cdae", "mf"), LOSSES), ("vae", "multinomial")]
    for target_set in ((None,) if loss == "multinomial" else DRAWS)
]
PAIRS = pytest.mark.parametrize(("model", "loss"), dict.fromkeys((model, loss) for model, loss, _ in COMBINATIONS))


@pytest.fixture(scope="module")
def split(small_catalogue):
    return milrec.split_interactions(small_catalogue, seed=0)


def fitted(split, model, loss, target_set, seed=0):
    values = {} if target_set is None else {"target_set": target_set, "target_factor": 2}
    return milrec.fit(split, model, loss, seed=seed, n_factors=4, epochs=2, **values, **small(model))


def small(model):
    return {"n_hidden": 5} if model == "vae" else {}


def weights(recommender) -> dict[str, bytes]:
    return {name: value.numpy().tobytes() for name, value in recommender.fitted.model.tensors().items()}


def test_every_combination_is_here():
    assert set(LOSSES) == {"square", "pointwise", "pairwise", "multinomial", "mil"}
    assert set(TARGET_SETS) == {"per_user", "shared", "expectation", "all", "auto"}
    assert set(DRAWS) == {"per_user", "shared", "expectation", "all"}
    assert len(COMBINATIONS) == 3 * (4 * 4 + 1) + 1
    assert set(WITHOUT_LOSS) == {"ease", "ease-sparse", "slim", "wmf", "popularity"}


@pytest.mark.parametrize(("model", "loss", "target_set"), COMBINATIONS)
def test_a_model_keeps_its_contract(split, tmp_path, model, loss, target_set):
    recommender = fitted(split, model, loss, target_set)
    history = recommender.fitted.history
    assert history.iterations == [6] and np.isfinite(history.losses).all()
    assert all(np.isfinite(value.detach().numpy()).all() for value in recommender.fitted.model.parameters())
    assert weights(fitted(split, model, loss, target_set)) == weights(recommender)
    assert weights(fitted(split, model, loss, target_set, seed=1)) != weights(recommender)
    saves_loads_and_lists(recommender, split, tmp_path)


@pytest.mark.parametrize("model", WITHOUT_LOSS)
def test_a_model_without_a_loss_keeps_the_same_contract(split, tmp_path, model):
    recommender = milrec.fit(split, model)
    assert recommender.fitted.history is None
    assert all(np.isfinite(value.numpy()).all() for value in recommender.fitted.model.parameters())
    assert weights(milrec.fit(split, model)) == weights(recommender)
    assert (weights(milrec.fit(split, model, seed=1)) != weights(recommender)) == recommender.fitted.settings.seeded
    saves_loads_and_lists(recommender, split, tmp_path)


def saves_loads_and_lists(recommender, split, tmp_path):
    recommender.save(tmp_path / "model")
    loaded = milrec.load(tmp_path / "model")
    assert loaded.fitted.settings == recommender.fitted.settings and weights(loaded) == weights(recommender)

    table = loaded.recommend(loaded.user_ids, n=200)
    assert table.equals(recommender.recommend(recommender.user_ids, n=200))
    users = np.searchsorted(loaded.user_ids, table["user"].to_pylist())
    items = np.searchsorted(loaded.item_ids, table["item"].to_pylist())
    validation = split.validation.targets + split.validation.rejected_targets
    known = (split.train.adopted + split.train.rejected + validation).toarray() > 0
    assert not known[users, items].any(), "an adopted or rejected item is listed"
    assert len(table) == (~known).sum(), "an item that could be listed is not"
    assert np.isfinite(table["score"].to_numpy()).all()


@pytest.mark.parametrize("model", ["dae", "cdae", "mf"])
@pytest.mark.parametrize("loss", [loss for loss in LOSSES if loss != "multinomial"])
def test_auto_is_the_expectation_on_a_small_catalogue(split, model, loss):
    auto, expectation = (fitted(split, model, loss, target_set) for target_set in ("auto", "expectation"))
    assert auto.fitted.settings == expectation.fitted.settings
    assert auto.fitted.settings.target_set.target_set == "expectation"
    assert weights(auto) == weights(expectation)


@PAIRS
def test_a_model_of_a_loss_recommends_to_a_new_user(split, model, loss):
    recommender = fitted(split, model, loss, None if loss == "multinomial" else "shared")
    adopted, rejected = recommender.item_ids[:5], recommender.item_ids[5:8]
    table = recommender.recommend_new(adopted, rejected, n=1000)
    assert sorted(table["item"].to_pylist()) == recommender.item_ids[8:]
    assert np.isfinite(table["score"].to_numpy()).all()


@pytest.mark.parametrize("model", WITHOUT_LOSS)
def test_a_model_without_a_loss_recommends_to_a_new_user(split, model):
    recommender = milrec.fit(split, model)
    adopted, rejected = recommender.item_ids[:5], recommender.item_ids[5:8]
    table = recommender.recommend_new(adopted, rejected, n=1000)
    assert sorted(table["item"].to_pylist()) == recommender.item_ids[8:]
    assert np.isfinite(table["score"].to_numpy()).all()
    assert recommender.recommend_new([], n=1000).num_rows == len(recommender.item_ids)


@pytest.mark.parametrize("model", WITHOUT_LOSS)
def test_a_model_without_a_loss_is_judged_on_held_out_users(small_catalogue, model):
    split = milrec.split_users(small_catalogue, seed=0)
    assert np.isfinite(milrec.fit(split, model).evaluate(split).measures["ndcg@100"])


@pytest.mark.parametrize("model", ["dae", "cdae", "mf"])
@pytest.mark.parametrize("target_set", TARGET_SETS)
def test_the_multinomial_loss_takes_no_target_set(split, model, target_set):
    with pytest.raises(SettingsError, match="unknown setting 'target_set'"):
        milrec.fit(split, model, "multinomial", target_set=target_set)


@pytest.mark.parametrize("model", ["dae", "cdae", "mf"])
@pytest.mark.parametrize("loss", ["square", "pointwise"])
def test_a_model_with_a_confidence_in_adopted_items_is_another_model(split, model, loss):
    plain, confident = (
        milrec.fit(split, model, loss, n_factors=4, epochs=2, target_set="all", **values)
        for values in ({}, {"confidence": 4})
    )
    assert weights(plain) != weights(confident)
    assert confident.fitted.history.losses[0] != plain.fitted.history.losses[0]


@PAIRS
def test_the_loss_falls_where_a_model_is_given_time(split, model, loss):
    values = {} if loss == "multinomial" else {"target_set": "per_user", "target_factor": 2}
    length = {"epochs": 20, "validate_every": 15, "learning_rate": 2e-2, "patience": 0}
    losses = milrec.fit(split, model, loss, n_factors=4, **length, **values, **small(model)).fitted.history.losses
    assert losses[-1] < losses[0]


def split_with_an_empty_user() -> milrec.Split:
    data = milrec.read({"user": [0, 0, 1, 1, 2, 2, 3], "item": [0, 1, 1, 2, 0, 2, 1]})
    adopted = data.adopted.copy()
    adopted.data[-1] = 0
    adopted.eliminate_zeros()
    whole = milrec.split_interactions(data, seed=0, held_out=0.0)
    train = milrec.Interactions(adopted, data.rejected, data.users, data.items)
    return milrec.Split(train, whole.validation, whole.test, "interactions", 0)


@PAIRS
def test_a_user_without_training_items_does_no_harm(model, loss):
    """A split may keep back the only item of a user."""
    values = {} if loss == "multinomial" else {"target_set": "per_user", "target_factor": 1}
    values |= {"n_factors": 2, "epochs": 3, "batch_size": 2, **small(model)}
    recommender = milrec.fit(split_with_an_empty_user(), model, loss, **values)
    assert all(value.isfinite().all() for value in recommender.fitted.model.parameters())
    assert recommender.recommend([3], n=3).num_rows == 2


@pytest.mark.parametrize("model", WITHOUT_LOSS)
def test_a_user_without_training_items_does_no_harm_to_a_model_without_a_loss(model):
    recommender = milrec.fit(split_with_an_empty_user(), model)
    assert all(value.isfinite().all() for value in recommender.fitted.model.parameters())
    assert recommender.recommend([3], n=3).num_rows == 2


@PAIRS
def test_one_user_and_one_item_are_enough(model, loss):
    split = milrec.split_interactions(milrec.read({"user": ["a"], "item": ["x"]}), seed=0, held_out=0.0)
    recommender = milrec.fit(split, model, loss, n_factors=1, epochs=2)
    assert recommender.recommend(["a"]).num_rows == 0
    assert recommender.recommend_new([], n=5)["item"].to_pylist() == ["x"]


@pytest.mark.parametrize("model", WITHOUT_LOSS)
def test_one_user_and_one_item_are_enough_for_a_model_without_a_loss(model):
    split = milrec.split_interactions(milrec.read({"user": ["a"], "item": ["x"]}), seed=0, held_out=0.0)
    recommender = milrec.fit(split, model)
    assert recommender.recommend(["a"]).num_rows == 0
    assert recommender.recommend_new([], n=5)["item"].to_pylist() == ["x"]


N_USERS, N_ITEMS = 100, 1037  # more items than one matrix product takes
BUILT = {
    "dae": {"n_factors": 13},
    "dae sigmoid": {"n_factors": 13, "encoder": "sigmoid"},
    "dae relu": {"n_factors": 13, "encoder": "relu", "input_weights": "log"},
    "cdae": {"n_factors": 13},
    "cdae linear": {"n_factors": 13, "encoder": "linear", "input_weights": "counts"},
    "vae": {"n_factors": 5, "n_hidden": 13},
    "mf": {"n_factors": 13},
    "mf tanh": {"n_factors": 13, "encoder": "tanh"},
    "wmf": {"n_factors": 13},
    "ease": {},
    "ease-sparse": {},
    "slim": {},
    "popularity": {},
}
ITEM_TO_ITEM = ("ease", "ease-sparse", "slim")
EVERY_MODEL = pytest.mark.parametrize("name", BUILT)
LATENT = pytest.mark.parametrize("name", [name for name in BUILT if name not in (*ITEM_TO_ITEM, "popularity")])
GRADIENT = pytest.mark.parametrize("name", [name for name in BUILT if name.split()[0] not in WITHOUT_LOSS])


@pytest.fixture(scope="module")
def train() -> milrec.Interactions:
    random = np.random.default_rng(0)
    kinds = random.choice(3, (N_USERS, N_ITEMS), p=[0.97, 0.02, 0.01])
    kinds[3] = 0  # a user of whom nothing is known
    adopted, rejected = (csr_array((kinds == kind).astype(np.float32)) for kind in (1, 2))
    adopted.data[:] = random.integers(1, 6, adopted.nnz)
    ids = (pa.table({"id": np.arange(number)}) for number in (N_USERS, N_ITEMS))
    return milrec.Interactions(adopted, rejected, *ids)


def settings_named(name):
    return settings_for(name.split()[0], values=BUILT[name])


def with_random_weights(name):
    model = build_model(settings_named(name).model, N_USERS, N_ITEMS)
    if isinstance(model, SparseItemToItem):
        model.take(random_rows(N_ITEMS))
        return model.eval()
    generator = torch.Generator().manual_seed(1)
    for value in model.tensors().values():
        value.copy_(torch.randn(value.shape, generator=generator) / 3)
    return model.eval()


def scorer_of(name, train) -> Scorer:
    return Scorer(with_random_weights(name), settings_named(name), train)


def users_of(train, numbers, known=True) -> Users:
    numbers = np.array(numbers)
    return Users(Rows.of(train.adopted, numbers), Rows.of(train.rejected, numbers), numbers if known else None)


def test_every_model_of_milrec_is_built_here():
    assert {name.split()[0] for name in BUILT} == set(MODELS)


@EVERY_MODEL
def test_a_model_is_built_by_its_settings(name):
    settings = settings_named(name)
    model = settings.new_model(N_USERS, N_ITEMS, 0)
    assert f"{type(model).__module__}:{type(model).__name__}" == settings.model.class_path
    assert model.settings == settings.model
    assert model.n_items == N_ITEMS
    assert isinstance(model, GradientModel) == settings.model.needs_loss


@EVERY_MODEL
def test_a_folder_holds_the_tensors_of_a_model_and_gives_them_back(train, tmp_path, name):
    model, settings = with_random_weights(name), settings_named(name)
    Fitted(model, settings, train, train.adopted, 0).save(tmp_path / "model")
    loaded = Fitted.load(tmp_path / "model").model
    before, after = ({key: value.numpy() for key, value in one.tensors().items()} for one in (model, loaded))
    assert before.keys() == after.keys() >= dict(model.named_parameters()).keys()
    assert all(value.shape == after[key].shape for key, value in before.items())
    assert all(value.tobytes() == after[key].tobytes() for key, value in before.items())
    users = users_of(train, range(ROWS))
    first, second = (logits_of(Scorer(one, settings, train), users) for one in (model, loaded))
    assert first.tobytes() == second.tobytes()


@LATENT
@pytest.mark.parametrize("known", [True, False])
def test_the_latents_of_a_user_do_not_depend_on_neighbours_or_place(train, name, known):
    scorer = scorer_of(name, train)
    model = scorer.model
    assert isinstance(model, LatentModel)

    def latents(numbers):
        """Those of the model's own encoder, or of fold-in where it has none for new users."""
        users = users_of(train, numbers, known)
        if known or scorer.encode_new is None:
            found = model.latents(users)
            assert found.shape == (ROWS, model.width)
        else:
            found = scorer.encode_new(users)
        assert found.isfinite().all() and not found.requires_grad
        return found[: len(numbers)].numpy()

    together = latents(range(ROWS))
    for user in (0, 3, 17, 63):
        assert latents([user])[0].tobytes() == together[user].tobytes()
    for numbers in (range(ROWS)[::-1], np.random.default_rng(2).permutation(ROWS)[:41], [*range(70, 80), 5, 5, 5]):
        for number, found in zip(numbers, latents(numbers), strict=True):
            if number < ROWS:
                assert found.tobytes() == together[number].tobytes()


@EVERY_MODEL
@pytest.mark.parametrize("known", [True, False])
def test_the_logits_of_a_user_do_not_depend_on_neighbours_or_place(train, name, known):
    scorer = scorer_of(name, train)
    together = logits_of(scorer, users_of(train, range(ROWS), known))
    assert together.shape == (ROWS, N_ITEMS) and together.dtype == np.float32 and np.isfinite(together).all()
    turned = logits_of(scorer, users_of(train, range(ROWS)[::-1], known))
    assert turned[::-1].tobytes() == together.tobytes()
    for user in (0, 3, 63):
        assert logits_of(scorer, users_of(train, [user], known))[0].tobytes() == together[user].tobytes()


@LATENT
def test_logits_are_what_the_decoder_makes_of_the_latents(train, name):
    model, users = with_random_weights(name), users_of(train, range(20, 60))
    logits = torch.full((ROWS, N_ITEMS), np.nan)
    model.write_logits(users, logits)
    decoded = torch.full((ROWS, N_ITEMS), np.nan)
    model.write_decoded(model.latents(users), decoded)
    assert logits.numpy()[:40].tobytes() == decoded.numpy()[:40].tobytes()
    expected = model.latents(users)[:40].double() @ model.decoder_weight.detach().double().T
    if model.decoder_bias is not None:
        expected += model.decoder_bias.detach().double()
    assert logits[:40].double().numpy() == pytest.approx(expected.numpy(), abs=1e-5)


@GRADIENT
@torch.no_grad()
def test_a_fit_sees_the_latents_that_lists_are_made_of(train, name):
    """But for what is random about a step: without it nothing is added to the loss at the first one."""
    model, users = with_random_weights(name), users_of(train, range(30))
    entering = model.enter(model.reader.inputs(users))
    latent, penalty = model.fitting_latent(entering, None, 0)
    assert float(penalty) == 0
    assert latent.numpy() == pytest.approx(model.latents(users)[:30].numpy(), abs=1e-5)
    assert model.latent(entering).numpy() == pytest.approx(latent.numpy(), abs=1e-5)
    logits = torch.empty(ROWS, N_ITEMS)
    model.write_logits(users, logits)
    assert model.decode(latent).numpy() == pytest.approx(logits[:30].numpy(), abs=1e-4)
    later = float(model.fitting_latent(entering, None, 10**6)[1])
    assert (later != 0) == (model.noise(1, np.random.default_rng(0)) is not None) == (name == "vae")


@GRADIENT
def test_what_a_model_says_of_its_weights_is_so(name):
    model = build_model(settings_named(name).model, N_USERS, N_ITEMS)
    assert isinstance(model, GradientModel) and model.first_layer is not None
    parameters = dict(model.named_parameters())
    assert {"decoder_weight", "encoder_weight"} == set(model.decayed())
    assert len(parameters[model.first_layer]) == model.reader.n_columns
    assert parameters["decoder_weight"].shape == (N_ITEMS, model.width)
    assert all(value.requires_grad and value.dtype == torch.float32 for value in parameters.values())
    starts = []
    for seed in (1, 1, 2):
        model.initialise(seed)
        starts.append({key: value.numpy().tobytes() for key, value in model.tensors().items()})
    assert starts[0] == starts[1] and all(starts[0][key] != starts[2][key] for key in parameters)


@EVERY_MODEL
@pytest.mark.parametrize("known", [True, False])
def test_parts_are_a_row_for_each_adopted_item_and_a_column_for_each_listed_one(train, name, known):
    scorer, items = scorer_of(name, train), np.array([5, 1036, 0, 77])
    for user in (1, 8):
        own = users_of(train, [user], known)
        parts = scorer.model.parts(own, items, scorer.encode_new)
        assert parts.shape == (len(own.adopted.items), 4) and parts.dtype == np.float64
        assert np.isfinite(parts).all() and parts.any() == (name != "popularity")
        assert np.array_equal(scorer.model.parts(own, items[1:3], scorer.encode_new), parts[:, 1:3])


@EVERY_MODEL
def test_all_models_but_popularity_say_which_items_are_alike(name):
    likeness = with_random_weights(name).likeness()
    assert (likeness is None) == (name == "popularity")
    if likeness is not None:
        found = likeness(1030)
        assert (
            found.shape == (N_ITEMS,) and found.dtype == np.float32 and np.isfinite(found).all() and (found > 0).any()
        )


@EVERY_MODEL
def test_a_known_user_is_more_than_adopted_items_only_where_the_model_says_so(train, name):
    scorer = scorer_of(name, train)
    known, new = (logits_of(scorer, users_of(train, range(10), known)) for known in (True, False))
    own = users_of(train, range(10))
    others = logits_of(scorer, Users(own.adopted, own.rejected, np.arange(50, 60)))
    if scorer.model.knows_users:
        assert not np.isclose(known, others).all(axis=1).any() and not np.isclose(known, new).all(axis=1).any()
    else:
        assert known.tobytes() == others.tobytes() == new.tobytes()


@EVERY_MODEL
def test_new_users_are_folded_in_where_the_model_cannot_read_what_they_adopted(train, name):
    scorer, new = scorer_of(name, train), users_of(train, range(10, 20), known=False)
    assert (scorer.encode_new is not None) == scorer.model.folds_in
    by_itself = torch.empty(ROWS, N_ITEMS)
    scorer.model.write_logits(new, by_itself)
    tells_users_apart = not np.isclose(by_itself[0], by_itself[1:10]).all(axis=1).any()
    assert tells_users_apart != (scorer.model.folds_in or name == "popularity")
    logits = logits_of(scorer, new)
    assert np.isclose(logits[0], logits[1:]).all(axis=1).any() == (name == "popularity")
    assert (logits.tobytes() != by_itself.numpy()[:10].tobytes()) == scorer.model.folds_in
