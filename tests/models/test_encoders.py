"""Somebody else's encoder: plain PyTorch in, everything that milrec does out."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import milrec
import own_encoders
from milrec.errors import FitError, FolderError, SettingsError
from milrec.kernels.sparse import Rows, Transposed
from milrec.losses import LOSSES
from milrec.models.checks import check_encoder
from milrec.models.encoders import encoder_settings, import_encoder
from milrec.models.inputs import Users
from milrec.models.known import build_model
from milrec.training.presets import settings_for
from milrec.training.steps.adam import Adam, RowGradient
from own_encoders import Centred, Gated, Liar, Plays

DRAWS = ("per_user", "shared", "expectation", "all")
QUICK = {"n_factors": 6, "iterations": 12, "validate_every": 4, "batch_size": 50}
COMBINATIONS = [
    (encoder, loss, draw)
    for encoder in (Gated, Plays)
    for loss in LOSSES
    for draw in ((None,) if loss == "multinomial" else DRAWS)
]


@pytest.fixture(scope="module")
def split(small_catalogue):
    return milrec.split_interactions(small_catalogue, seed=0)


@pytest.fixture(scope="module")
def gated(split):
    return milrec.fit(split, Gated, **QUICK)


@pytest.fixture(scope="module")
def plays(split):
    return milrec.fit(split, Plays, **QUICK)


def tensors(recommender) -> dict[str, bytes]:
    return {name: value.numpy().tobytes() for name, value in recommender.fitted.model.tensors().items()}


@pytest.mark.parametrize(("encoder", "loss", "draw"), COMBINATIONS)
def test_an_encoder_is_fitted_with_every_loss_and_target_set(split, encoder, loss, draw):
    values = {} if draw is None else {"target_set": draw, "target_factor": 2}
    first, again, other = (milrec.fit(split, encoder, loss, seed=seed, **QUICK, **values) for seed in (0, 0, 1))
    assert np.isfinite(first.fitted.history.losses).all() and len(first.fitted.history.measures) == 3
    assert tensors(first) == tensors(again) != tensors(other)
    assert np.isfinite(first.evaluate(split).measures["ndcg@100"])


@pytest.mark.parametrize("encoder", [Gated, Plays])
@pytest.mark.parametrize("draw", ["shared", "expectation"])
def test_the_fast_step_of_an_encoder_is_the_readable_one(split, encoder, draw):
    values = {**QUICK, "iterations": 5, "target_set": draw, "target_factor": 1, "averaging": 0}
    fast, readable = (milrec.fit(split, encoder, engine=engine, **values) for engine in ("fast", "readable"))
    for name, value in fast.fitted.model.tensors().items():
        other = readable.fitted.model.tensors()[name].double().numpy()
        assert value.double().numpy() == pytest.approx(other, rel=1e-3, abs=2e-4), name


@pytest.mark.parametrize("encoder", [Gated, Plays])
def test_a_fit_is_the_same_with_any_number_of_threads(split, encoder):
    one, two = (milrec.fit(split, encoder, threads=threads, **QUICK) for threads in (1, 2))
    assert tensors(one) == tensors(two)


@pytest.mark.parametrize("encoder", [Gated, Plays])
@pytest.mark.parametrize("step", [1, 6, 11])
def test_an_interrupted_fit_of_an_encoder_resumes_to_exactly_the_same_weights(split, tmp_path, encoder, step):
    """Dropout is drawn from the seed and the step; BatchNorm's buffers are part of the checkpoint."""

    def interrupt(progress):
        if progress.iteration == step:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        milrec.fit(split, encoder, checkpoint=tmp_path / "state", report=interrupt, **QUICK)
    resumed = milrec.fit(split, encoder, checkpoint=tmp_path / "state", **QUICK)
    unbroken = milrec.fit(split, encoder, **QUICK)
    assert tensors(resumed) == tensors(unbroken)
    assert resumed.fitted.history.measures == unbroken.fitted.history.measures


def test_dropout_hides_something_in_a_fit_and_nothing_in_a_list(split, gated):
    without = milrec.fit(split, Gated, dropout=0.0, **QUICK)
    assert tensors(without) != tensors(gated)
    assert not gated.fitted.model.training
    first, second = (gated.recommend(gated.user_ids, n=5) for _ in range(2))
    assert first.equals(second)


def test_a_fit_leaves_torchs_own_generator_alone(split):
    torch.manual_seed(11)
    before = torch.get_rng_state()
    milrec.fit(split, Gated, **QUICK)
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("encoder", [Gated, Plays, Centred])
def test_the_list_of_a_user_does_not_depend_on_who_else_is_asked_for(split, encoder):
    model = milrec.fit(split, encoder, **QUICK)
    users = model.user_ids
    together = model.recommend(users[:70], n=8).to_pylist()
    for place in (0, 1, 63, 64, 69):
        assert model.recommend([users[place]], n=8).to_pylist() == together[8 * place : 8 * (place + 1)]


def test_an_encoder_gets_one_user_at_a_time_unless_its_rows_are_independent(gated, plays, monkeypatch):
    for model, sizes in ((gated, {64}), (plays, {1})):
        seen: list[int] = []
        encoder = model.fitted.model.encoder
        handle = encoder.register_forward_hook(lambda module, inputs, latent, seen=seen: seen.append(len(inputs[0])))
        model.recommend(model.user_ids[:5], n=3)
        handle.remove()
        assert set(seen) == sizes


def test_play_counts_are_read_as_they_are():
    plays = [("u1", "a", 4), ("u1", "b", 1), ("u2", "a", 2), ("u2", "c", 9), ("u3", "b", 3), ("u3", "c", 1)]
    columns = {name: [row[place] for row in plays] for place, name in enumerate(("user", "item", "plays"))}
    data = milrec.read(columns, value="plays")
    split = milrec.split_interactions(data, seed=0, held_out=0)
    model = milrec.fit(split, Plays, n_factors=2, iterations=2)
    seen = []
    model.fitted.model.encoder.register_forward_hook(lambda module, inputs, latent: seen.append(inputs[0][0].tolist()))
    model.recommend(["u1"], n=1)
    assert seen == [[4.0, 1.0, 0.0]]


def test_a_new_user_gets_a_list_with_reasons(gated, plays):
    for model in (gated, plays):
        items = model.item_ids
        rows = model.recommend_new(items[:4], rejected=items[5:6], n=6, reasons=4).to_pylist()
        assert len(rows) == 6 and not {row["item"] for row in rows} & {*items[:4], items[5]}
        assert any(row["reasons"] for row in rows)


def test_reasons_are_what_the_logit_loses_without_the_item(gated):
    items = gated.item_ids
    (row,) = gated.recommend_new(items[:3], n=1, reasons=3).to_pylist()
    answer = gated.answer([gated.ask(milrec.Query(adopted=items[:3], n=1, reasons=3))])[0].items[0]
    for reason in answer.reasons:
        rest = [one for one in items[:3] if one != reason.item]
        table = gated.recommend_new(rest, n=len(items)).to_pylist()
        score = next(other["score"] for other in table if other["item"] == row["item"])
        assert reason.weight == pytest.approx(row["score"] - score, abs=1e-5)


def test_a_folder_holds_weights_and_buffers_and_is_opened_only_with_the_named_class(split, plays, tmp_path):
    plays.save(tmp_path / "model")
    with pytest.raises(FolderError, match=r"holds a model 'play_counts' \(own_encoders:Plays\) that is not one of"):
        milrec.load(tmp_path / "model")
    with pytest.raises(FolderError, match="not one of milrec's"):
        milrec.load(tmp_path / "model", models=[Gated])
    loaded = milrec.load(tmp_path / "model", models=[Gated, Plays])
    assert tensors(loaded) == tensors(plays)
    assert any("running_mean" in name for name in tensors(loaded))
    users = plays.user_ids
    assert loaded.recommend(users, n=5).equals(plays.recommend(users, n=5))
    assert loaded.evaluate(split).as_json() == plays.evaluate(split).as_json()


def test_opening_a_folder_imports_no_module_that_the_caller_did_not_name(gated, tmp_path):
    gated.save(tmp_path / "model")
    code = (
        "import sys, milrec\n"
        f"sys.path.insert(0, {str(Path(own_encoders.__file__).parent)!r})\n"
        "try:\n    milrec.load(sys.argv[1])\n"
        "except milrec.MilrecError:\n    sys.exit('own_encoders' in sys.modules)\nsys.exit(2)\n"
    )
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path / "model")], check=False).returncode == 0


def test_an_installed_encoder_is_found_by_its_name(split, tmp_path, monkeypatch):
    package = tmp_path / "site"
    info = package / "offered-1.0.dist-info"
    info.mkdir(parents=True)
    (package / "offered.py").write_text(
        "from own_encoders import Gated\n\n\nclass Offered(Gated):\n    name = 'offered'\n"
    )
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: offered\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[milrec.models]\noffered = offered:Offered\n")
    monkeypatch.syspath_prepend(str(package))
    model = milrec.fit(split, "offered", "pointwise", **QUICK)
    model.save(tmp_path / "model")
    assert milrec.load(tmp_path / "model").recommend(model.user_ids, n=3).equals(model.recommend(model.user_ids, n=3))


def test_constructor_arguments_are_settings():
    settings = settings_for(Gated, "mil", {"n_hidden": "20", "dropout": "0.5", "n_factors": "4"})
    assert (settings.model.n_hidden, settings.model.dropout, settings.model.n_factors) == (20, 0.5, 4)
    assert settings_for(Gated).model.n_factors == 8, "the constructor's own default"
    assert settings_for(Plays).model.n_factors == 200
    with pytest.raises(SettingsError, match=r"unknown setting 'hidden' for gated with mil.*known settings: .*n_hidden"):
        settings_for(Gated, "mil", {"hidden": 3})
    with pytest.raises(SettingsError, match="'n_hidden'"):
        settings_for(Gated, "mil", {"n_hidden": "many"})


def encoder_with(**parts) -> type[nn.Module]:
    return type("Odd", (nn.Module,), parts)


@pytest.mark.parametrize(
    ("encoder", "sentence"),
    [
        (dict, "is not a class of torch.nn.Module"),
        (encoder_with(__init__=lambda self, n_factors: None), "takes no 'n_items'"),
        (encoder_with(__init__=lambda self, n_items: None), "takes no 'n_factors'"),
        (encoder_with(__init__=lambda self, n_items, n_factors, *more: None), "name each argument"),
        (
            encoder_with(__init__=lambda self, n_items, n_factors, corruption=1: None),
            "a name that every model already uses; rename it",
        ),
        (
            encoder_with(__init__=lambda self, n_items, n_factors, arguments=1: None),
            "a name that every model already uses; rename it",
        ),
        (encoder_with(__init__=lambda self, n_items, n_factors, act=torch.tanh: None), "JSON cannot hold"),
        (encoder_with(rows_independent="yes"), "say True or False"),
        (encoder_with(name="dae"), "cannot be called 'dae'"),
        (encoder_with(name="a b"), "cannot be called 'a b'"),
        (encoder_with(input_weights="plays"), "known: binary, counts, log"),
    ],
)
def test_a_class_that_is_no_encoder_is_refused_with_a_sentence(encoder, sentence):
    with pytest.raises(SettingsError, match=sentence):
        encoder_settings(encoder)


def test_an_encoder_of_the_wrong_shape_is_refused_in_its_first_step(split):
    class Wide(Gated):
        def forward(self, inputs):
            return inputs

    with pytest.raises(FitError, match=r"returned \(50, \d+\) for 50 users; a tensor of shape \(50, 6\) is needed"):
        milrec.fit(split, Wide, **QUICK)


def test_a_class_is_imported_by_the_name_that_the_caller_gives():
    assert import_encoder("own_encoders:Gated") is Gated
    for path, sentence in (
        ("own_encoders", "write module:Class"),
        ("no_such_module:Gated", "cannot be imported"),
        ("own_encoders:Missing", "has no class 'Missing'"),
        ("json:dumps", "is not a class of torch.nn.Module"),
    ):
        with pytest.raises(SettingsError, match=sentence):
            import_encoder(path)


@pytest.mark.parametrize("encoder", [Gated, Plays, Centred])
def test_honest_encoders_pass_the_check(encoder):
    check_encoder(encoder)


def test_the_check_finds_rows_that_are_not_independent():
    with pytest.raises(FitError, match="'liar' says that its rows are independent"):
        check_encoder(Liar)


def test_the_check_finds_an_encoder_that_draws_in_eval_mode_or_passes_no_gradient_on():
    class Drawing(Centred):
        def forward(self, inputs):
            return super().forward(inputs) + torch.rand(len(inputs), 1)

    class Constant(Centred):
        def forward(self, inputs):
            return inputs.new_zeros(len(inputs), self.layer.out_features)

    with pytest.raises(FitError, match="different latents when called twice"):
        check_encoder(Drawing)
    with pytest.raises(FitError, match="no gradient"):
        check_encoder(Constant)


class Keeping(Centred):
    """Keeps what it works on between two lines, as many encoders do."""

    def forward(self, inputs):
        self.kept = self.layer(inputs)
        for _ in range(3):
            self.kept = torch.tanh(self.kept) + 0.1 * self.layer(inputs)
        return self.kept


def test_an_encoder_that_keeps_something_is_called_by_one_thread_at_a_time(split):
    model = milrec.fit(split, Keeping, threads=2, **QUICK)
    users = model.user_ids
    together = model.recommend(users, n=4).to_pylist()
    alone = [row for user in users for row in model.recommend([user], n=4).to_pylist()]
    assert together == alone


@pytest.mark.parametrize(("n_items", "n_hidden", "n_factors"), [(50, 3, 3), (50, 17, 3), (200, 17, 3)])
def test_rows_that_a_library_rounds_by_their_place_are_encoded_one_by_one(n_items, n_hidden, n_factors):
    """Independent rows may still be rounded differently in some shapes: then the encoder gets one user per call."""
    check_encoder(Gated, n_items, n_hidden=n_hidden, n_factors=n_factors)
    settings = settings_for(Gated, "mil", {"n_hidden": n_hidden, "n_factors": n_factors})
    model = build_model(settings.model, 0, n_items).eval()
    users = some_users(n_items)
    latents = model.latents(users)
    for first in (1, 17, 63):
        part = Users(users.adopted.cut(first, 64), users.rejected.cut(first, 64), None)
        assert torch.equal(model.latents(part)[: 64 - first], latents[first:64])


def some_users(n_items: int) -> Users:
    random = np.random.default_rng(3)
    items = [np.sort(random.choice(n_items, 1 + user % 7, replace=False)).astype(np.int32) for user in range(64)]
    return Users(Rows.stacked(items), Rows.none(64), None)


def test_a_last_batch_of_one_user_joins_the_one_before(small_catalogue):
    split = milrec.split_interactions(small_catalogue, seed=0)
    batch = split.train.n_users - 1
    model = milrec.fit(split, Plays, n_factors=4, batch_size=batch, epochs=2)
    assert model.fitted.history.iterations[-1] == 2


class Drawn(Gated):
    """A buffer that is drawn in the constructor and not kept in a file."""

    def __init__(self, n_items: int, n_factors: int = 8) -> None:
        super().__init__(n_items, n_factors)
        self.register_buffer("order", torch.randperm(n_items), persistent=False)

    def forward(self, inputs):
        return super().forward(inputs[:, self.order])


def test_what_a_constructor_draws_is_drawn_again_when_a_folder_is_opened(split, tmp_path):
    model = milrec.fit(split, Drawn, seed=5, **QUICK)
    model.save(tmp_path / "model")
    loaded = milrec.load(tmp_path / "model", models=[Drawn])
    assert loaded.recommend(model.user_ids, n=5).equals(model.recommend(model.user_ids, n=5))


class Tied(nn.Module):
    """Two layers that share a weight."""

    def __init__(self, n_items: int, n_factors: int) -> None:
        super().__init__()
        self.first, self.second, self.third = nn.Linear(n_items, n_factors), *(nn.Linear(n_factors, n_factors),) * 2

    def forward(self, inputs):
        return self.third(torch.tanh(self.second(torch.tanh(self.first(inputs)))))


def test_tied_weights_are_saved_and_resumed(split, tmp_path):
    def interrupt(progress):
        if progress.iteration == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        milrec.fit(split, Tied, checkpoint=tmp_path / "state", report=interrupt, **QUICK)
    resumed = milrec.fit(split, Tied, checkpoint=tmp_path / "state", **QUICK)
    assert tensors(resumed) == tensors(milrec.fit(split, Tied, **QUICK))
    resumed.save(tmp_path / "model")
    assert tensors(milrec.load(tmp_path / "model", models=[Tied])) == tensors(resumed)


class Frozen(Gated):
    def __init__(self, n_items: int, n_factors: int = 8) -> None:
        super().__init__(n_items, n_factors)
        self.requires_grad_(False)


@pytest.mark.parametrize("engine", ["fast", "readable"])
def test_a_frozen_encoder_has_its_decoder_fitted_alone(split, engine):
    first, second = (milrec.fit(split, Frozen, engine=engine, **{**QUICK, "iterations": n}) for n in (2, 12))
    one, other = first.fitted.model, second.fitted.model
    assert torch.equal(one.encoder.first.weight, other.encoder.first.weight)
    assert not torch.equal(one.decoder_weight, other.decoder_weight)


class Needed(Gated):
    def __init__(self, n_items: int, n_factors: int, n_hidden: int) -> None:
        super().__init__(n_items, n_factors, n_hidden)


def test_an_argument_without_a_default_has_to_be_given(split):
    assert milrec.fit(split, Needed, n_hidden=5, **QUICK).fitted.settings.model.n_hidden == 5
    with pytest.raises(SettingsError, match="setting 'n_hidden' is missing"):
        milrec.fit(split, Needed, **QUICK)


def test_an_argument_that_every_fit_has_is_refused():
    class Warm(Gated):
        def __init__(self, n_items: int, n_factors: int = 8, warmup: int = 3) -> None:
            super().__init__(n_items, n_factors)

    with pytest.raises(SettingsError, match="'warmup', which is a setting of every fit"):
        settings_for(Warm)


def test_an_encoder_that_raises_is_named_in_one_sentence(split):
    class Broken(Gated):
        def forward(self, inputs):
            raise RuntimeError("no such luck")

    class Unbuilt(Gated):
        def __init__(self, n_items: int, n_factors: int = 8) -> None:
            raise ValueError("not today")

    with pytest.raises(FitError, match=r"encoder 'broken' failed \(RuntimeError: no such luck\)"):
        milrec.fit(split, Broken, **QUICK)
    with pytest.raises(FitError, match=r"encoder 'unbuilt' cannot be built \(ValueError: not today\)"):
        milrec.fit(split, Unbuilt, **QUICK)


def test_classes_are_asked_for_as_classes(split, gated, tmp_path):
    with pytest.raises(SettingsError, match="give the class of your encoder, not an instance"):
        milrec.fit(split, Gated(40))
    gated.save(tmp_path / "model")
    with pytest.raises(SettingsError, match="`models` must be a list of classes"):
        milrec.load(tmp_path / "model", models=Gated)
    with pytest.raises(SettingsError, match=r"is not a class of torch\.nn\.Module"):
        milrec.load(tmp_path / "model", models=["own_encoders:Gated"])  # type: ignore[list-item]
    with pytest.raises(SettingsError, match="leave `loss` out"):
        milrec.fit(split, settings_for("dae"), loss="mil")


def test_a_weight_with_very_many_columns_is_stepped_row_by_row():
    optimiser = Adam({"wide": torch.zeros(2, 250_000)})
    values = np.ones((2, 250_000), dtype=np.float32)
    rows = np.arange(2, dtype=np.int32)
    nothing = Transposed(rows, np.zeros(3, dtype=np.int64), rows[:0], values[0, :0])
    optimiser.step = 1
    for task in optimiser.row_tasks("wide", RowGradient(nothing, values[:0], values), 0.1, 0.0):
        task(0)
    assert np.allclose(optimiser.parameters["wide"].numpy(), -0.1)
