"""Ready sets of settings by name: the paper's rows, and milrec's own pairs of model and loss."""

import pytest

from milrec.errors import SettingsError
from milrec.losses import LOSSES
from milrec.models.settings import (
    AutoencoderSettings,
    CollaborativeSettings,
    FactorizationSettings,
    VariationalSettings,
)
from milrec.training.presets import PAPER_MODELS, settings_for
from milrec.training.sections import Shape, TargetSettings, TrainingSettings
from milrec.training.settings import fit_settings

PAPER_TABLE = {  # name: model, encoder, decoder, loss, range of λ, factor
    "mf-square": ("mf", "linear", "linear", "square", (5, 10), 100),
    "mf-ce": ("mf", "linear", "sigmoid", "pointwise", (50, 500), 100),
    "mf-mil": ("mf", "linear", "sigmoid", "mil", (50, 500), 100),
    "ce-point-lin-sig": ("dae", "linear", "sigmoid", "pointwise", (2e-5, 2e-5), 50),
    "ce-point-sig-sig": ("dae", "sigmoid", "sigmoid", "pointwise", (2e-5, 2e-5), 50),
    "ce-pair-lin-sig": ("dae", "linear", "sigmoid", "pairwise", (2e-5, 2e-5), 100),
    "ce-pair-sig-sig": ("dae", "sigmoid", "sigmoid", "pairwise", (2e-5, 2e-5), 100),
    "multi-tanh-lin": ("dae", "tanh", "linear", "multinomial", (2e-5, 2e-5), None),
    "mil-lin-sig": ("dae", "linear", "sigmoid", "mil", (1e-6, 1e-5), 50),
    "mil-sig-sig": ("dae", "sigmoid", "sigmoid", "mil", (1e-6, 1e-5), 50),
}


def test_every_row_of_the_papers_table_has_a_name_and_no_other_has():
    assert set(PAPER_MODELS) == {*PAPER_TABLE, "multi-vae-pr"}


def test_the_variational_autoencoder_of_the_paper_has_the_settings_of_liangs_code():
    settings = settings_for("multi-vae-pr")
    model, training = settings.model, settings.training
    assert (model.n_hidden, model.n_factors, model.corruption) == (600, 200, 0.5)
    assert model.annealing_cap / model.annealing_steps == pytest.approx(1 / 200_000)
    assert (training.batch_size, training.epochs, training.learning_rate) == (500, 200, 1e-3)
    assert (training.schedule, training.weight_decay, training.averaging) == ("constant", 0, 0)
    assert settings == settings_for("multi-vae-pr", "multinomial")


def test_a_variational_autoencoder_takes_the_multinomial_loss_alone():
    assert settings_for("vae") == settings_for("vae", "multinomial")
    for loss in set(LOSSES) - {"multinomial"}:
        with pytest.raises(SettingsError) as error:
            settings_for("vae", loss)
        assert str(error.value) == f"model 'vae' can only be fitted with the multinomial loss, not with '{loss}'"


@pytest.mark.parametrize("name", ["vae", "multi-vae-pr"])
def test_a_variational_autoencoder_does_not_start_from_the_directions_of_the_data(name):
    with pytest.raises(SettingsError) as error:
        settings_for(name, values={"start": "svd"})
    assert str(error.value) == "start 'svd' is for models with one hidden layer; model 'vae' needs start=glorot"


@pytest.mark.parametrize("key", ["encoder", "decoder", "target_set"])
def test_what_a_variational_autoencoder_does_not_choose_is_no_setting_of_it(key):
    with pytest.raises(SettingsError, match=f"unknown setting '{key}' for vae with multinomial; known settings: "):
        settings_for("vae", values={key: "linear"})


def test_a_collaborative_autoencoder_is_fitted_with_the_logistic_loss_of_its_paper_by_default():
    settings = settings_for("cdae")
    assert settings == settings_for("cdae", "pointwise")
    assert (settings.model.encoder, settings.model.decoder) == ("sigmoid", "sigmoid")


@pytest.mark.parametrize("name", PAPER_TABLE)
def test_a_papers_row_has_the_papers_settings(name):
    model, encoder, decoder, loss, (least, most), factor = PAPER_TABLE[name]
    settings = settings_for(name)
    assert (settings.model.model, settings.model.encoder, settings.model.decoder) == (model, encoder, decoder)
    assert settings.loss.loss == loss
    assert least <= settings.training.weight_decay <= most
    assert settings.training.weight_decay_form == ("scaled" if model == "mf" else "plain")
    if factor is None:
        assert settings.target_set is None
    else:
        assert (settings.target_set.target_set, settings.target_set.target_factor) == ("per_user", factor)
    training = settings.training
    assert (training.batch_size, training.learning_rate, training.schedule) == (100, 1e-3, "constant")
    assert (training.iterations, training.epochs) == (180_000 if model == "mf" else 120_000, None)
    assert settings.model.n_factors == 200
    if model == "dae":
        assert (settings.model.corruption, settings.model.input_weights) == (0.5, "binary")


@pytest.mark.parametrize("name", ["mil-lin-sig", "mil-sig-sig", "mf-mil"])
def test_the_papers_best_missing_information_loss_is_the_default(name):
    loss = settings_for(name).loss
    assert (loss.missing_weight, loss.missing_exponent, loss.adopted_exponent) == (1e6, 10, 1)


def test_cross_entropy_keeps_preferences_a_hundred_thousandth_away_from_0_and_1():
    assert settings_for("ce-point-lin-sig").loss.epsilon == 1e-5
    assert settings_for("ce-pair-lin-sig").loss.pair_epsilon == 1e-5


def test_without_a_name_it_is_the_autoencoder_with_the_missing_information_loss():
    settings = settings_for()
    assert (settings.model.model, settings.loss.loss, settings.target_set.target_set) == ("dae", "mil", "auto")
    assert settings.training.epochs is None and settings.training.iterations is None
    assert settings == settings_for("dae") == settings_for("dae", "mil") == settings_for(None, "mil")


@pytest.mark.parametrize("model", ["dae", "cdae", "mf"])
@pytest.mark.parametrize("loss", LOSSES)
def test_every_model_has_settings_for_every_loss(model, loss):
    settings = settings_for(model, loss)
    assert (settings.model.model, settings.loss.loss) == (model, loss)
    assert settings.model.decoder in settings.loss.decoders
    assert (settings.target_set is None) == (loss == "multinomial")


@pytest.mark.parametrize("model", ["dae", "cdae", "mf"])
@pytest.mark.parametrize("loss", LOSSES)
def test_the_defaults_need_no_set_length(model, loss):
    settings = settings_for(model, loss)
    training = settings.training
    assert (training.epochs, training.iterations, training.batch_size) == (None, None, None)
    assert settings.for_data(Shape(100, 10, 500)).peak_rate == 5e-3
    assert (training.schedule, training.averaging) == ("inverse_sqrt", 0.15)
    assert (training.validate_every, training.patience, training.slack) == ("auto", 3, 0.002)


@pytest.mark.parametrize(
    ("n_users", "batch_size"), [(1, 100), (6_000, 100), (6_060, 101), (12_000, 200), (30_000, 500), (10**6, 500)]
)
def test_a_batch_is_a_60th_of_the_users_but_from_100_to_500(n_users, batch_size):
    dense = Shape(n_users, 10, 10**6)
    assert settings_for("dae", "mil").for_data(dense).training.batch_size == batch_size
    assert settings_for("dae", "mil", {"batch_size": 7}).for_data(dense).training.batch_size == 7


@pytest.mark.parametrize(
    ("n_users", "n_items", "batch_size"),
    [(30_000, 5_000, 500), (30_000, 41_000, 195), (30_000, 200_000, 100), (12_000, 5_000, 200)],
)
def test_batches_are_smaller_where_data_is_sparse_and_the_catalogue_wide(n_users, n_items, batch_size):
    sparse, dense = Shape(n_users, n_items, 20 * n_items), Shape(n_users, n_items, 60 * n_items)
    assert settings_for().for_data(sparse).training.batch_size == batch_size
    assert settings_for().for_data(dense).training.batch_size == min(n_users // 60, 500)


@pytest.mark.parametrize(("pairs_per_item", "start"), [(39.9, "rest"), (40, "zero"), (400, "zero")])
def test_a_fit_starts_with_biases_at_rest_where_items_have_few_adopters(pairs_per_item, start):
    shape = Shape(20_000, 10_000, int(pairs_per_item * 10_000))
    for loss in ("mil", "pointwise", "square"):
        assert settings_for("dae", loss).for_data(shape).training.start_bias == start
    for chosen in ("zero", "rest"):
        assert settings_for("dae", "mil", {"start_bias": chosen}).for_data(shape).training.start_bias == chosen


@pytest.mark.parametrize(("batch_size", "rate"), [(100, 5e-3), (400, 1e-2), (25, 2.5e-3)])
def test_from_biases_at_rest_the_learning_rate_grows_with_the_root_of_the_batch(batch_size, rate):
    sparse, dense = Shape(20_000, 10_000, 100_000), Shape(20_000, 10_000, 10**6)
    settings = settings_for(values={"batch_size": batch_size})
    assert settings.for_data(sparse).peak_rate == pytest.approx(rate)
    assert settings.for_data(dense).peak_rate == 5e-3
    assert settings_for(values={"learning_rate": 0.1}).for_data(sparse).peak_rate == 0.1
    assert settings_for("vae", values={"learning_rate": None}).for_data(sparse).peak_rate == 3e-3
    for users in (500, 10**6):  # the largest that was measured
        assert settings_for(values={"batch_size": users}).for_data(sparse).peak_rate == pytest.approx(5e-3 * 5**0.5)
    few = Shape(100, 10_000, 10)  # a step cannot have more than there are
    assert settings_for(values={"batch_size": 500}).for_data(few).peak_rate == 5e-3
    assert settings_for("mil-lin-sig").peak_rate == 1e-3


@pytest.mark.parametrize(
    ("shape", "steps"),
    [
        (Shape(1_892, 17_632, 74_268), 25),  # Last.fm-2K
        (Shape(5_551, 16_980, 160_000), 50),  # citeulike-a
        (Shape(12_393, 5_155, 100_000, 0, 6_000, 6_000), 25),  # like Steam: 6,393 users in batches of 206
        (Shape(12_393, 5_155, 100_000), 50),
        (Shape(1_892, 1_000, 74_268), 50),  # dense
    ],
)
def test_little_sparse_data_is_validated_more_often(shape, steps):
    assert settings_for().for_data(shape).training.validate_every == steps
    assert settings_for(values={"validate_every": 7}).for_data(shape).training.validate_every == 7
    assert settings_for("mf").for_data(shape).training.validate_every == 50
    assert settings_for(values={"target_set": "shared"}).for_data(shape).training.validate_every == 50
    assert settings_for("mil-lin-sig").for_data(shape).training.validate_every is None


@pytest.mark.parametrize("value", [0, -1, 2.5, "0", "soon", "2.5", "", True, [], "9" * 5_000])
def test_a_strange_number_of_steps_between_validations_is_one_sentence(value):
    with pytest.raises(SettingsError, match="'validate_every': it must be 'auto' or a whole number"):
        settings_for(values={"validate_every": value})


@pytest.mark.parametrize(("pairs_per_item", "warmup"), [(39.9, 100), (40, 200)])
def test_the_learning_rate_peaks_sooner_from_biases_at_rest(pairs_per_item, warmup):
    shape = Shape(20_000, 10_000, int(pairs_per_item * 10_000))
    assert settings_for().for_data(shape).training.warmup == warmup
    assert settings_for(values={"warmup": 7}).for_data(shape).training.warmup == 7
    assert settings_for("mf").for_data(shape).training.warmup == 200
    assert settings_for("mil-lin-sig").training.warmup == 200


@pytest.mark.parametrize(("n_singles", "skip"), [(0, False), (1, True), (499, True), (500, False), (1_000, False)])
def test_users_with_a_single_item_are_skipped_unless_they_have_half_of_the_pairs(n_singles, skip):
    shape = Shape(2_000, 100, 1_000, n_singles=n_singles, n_single_pairs=n_singles)
    for model in ("dae", "vae"):
        assert settings_for(model).for_data(shape).training.skip_singles is skip
    for model in ("mf", "cdae", "mil-lin-sig"):
        assert settings_for(model).for_data(shape).training.skip_singles is False
    assert settings_for(values={"skip_singles": not skip}).for_data(shape).training.skip_singles is not skip


def test_users_with_a_single_item_are_not_skipped_if_hardly_anybody_else_is_left():
    """One user with most of the pairs is not enough."""
    assert not Shape(4_001, 10_000, 14_000, 0, 4_000, 4_000).skip_singles()
    assert not Shape(199, 100, 1_000, 0, 100, 100).skip_singles()
    assert Shape(200, 100, 1_000, 0, 100, 100).skip_singles()


def test_users_with_a_single_item_are_not_skipped_by_a_model_that_learns_about_every_user():
    with pytest.raises(SettingsError, match="model 'mf' learns something about every user; set skip_singles=false"):
        settings_for("mf", values={"skip_singles": True})


def test_settings_by_what_users_adopted_are_not_for_models_that_learn_about_every_user():
    with pytest.raises(SettingsError, match="model 'mf' learns something about every user; set user_exponent=0"):
        settings_for("mf", "mil", {"user_exponent": 0.5})
    with pytest.raises(SettingsError, match="model 'cdae' has weights of users; weight_decay_form 'popularity' is for"):
        settings_for("cdae", "mil", {"weight_decay_form": "popularity"})


@pytest.mark.parametrize("loss", ["mil", "pointwise", "multinomial"])
def test_the_larger_autoencoder_is_the_default_one_with_other_values(loss):
    found = settings_for("dae-large", loss, {"n_factors": 300})
    larger = {"weight_decay_form": "popularity", "weight_decay": 0.35, "user_exponent": 0.25, "learning_rate": 3e-3}
    assert found == settings_for("dae", loss, {"n_factors": 300, **larger})
    assert settings_for("dae-large").model.n_factors == 400


def test_data_with_few_users_is_not_sparse_for_that_alone():
    """MovieLens-100K: 38 adopters for each item, but four in a hundred of all pairs."""
    assert not Shape(942, 1_447, 55_000).sparse
    assert Shape(1_892, 17_632, 74_268).sparse  # Last.fm-2K


@pytest.mark.parametrize("name", ["rejected_exponent", "rejected_weight"])
def test_a_setting_of_a_term_that_is_left_out_is_refused(name):
    with pytest.raises(SettingsError, match=f"^{name} does nothing with rejected_as=missing; set rejected_as=rejected"):
        settings_for("dae", "mil", {name: 2})
    chosen = settings_for("dae", "mil", {name: 2, "rejected_as": "rejected"})
    assert getattr(chosen.loss, name) == 2


def test_biases_start_at_zero_where_items_are_rejected_too():
    assert settings_for().for_data(Shape(1_892, 17_632, 74_268, 1)).training.start_bias == "zero"


def test_the_papers_rows_judge_as_many_validation_users_as_before():
    assert settings_for("mil-lin-sig").training.validation_users == 10_000
    assert settings_for().training.validation_users == 2_500


@pytest.mark.parametrize(("model", "loss"), [("dae", "multinomial"), ("dae", "pairwise"), ("mf", "mil"), ("vae", None)])
def test_biases_start_at_zero_where_a_loss_has_no_rest_or_nothing_was_measured(model, loss):
    assert settings_for(model, loss).for_data(Shape(5_000, 10_000, 100_000)).training.start_bias == "zero"


def test_biases_at_rest_are_refused_where_a_loss_has_no_rest():
    with pytest.raises(SettingsError, match=r"needs .* one of the losses square, pointwise, mil, not 'pairwise' with"):
        settings_for("dae", "pairwise", {"start_bias": "rest"})


@pytest.mark.parametrize(("n_items", "target_set"), [(1, "expectation"), (50_000, "expectation"), (50_001, "shared")])
def test_the_size_of_the_catalogue_decides_on_the_target_set_where_it_is_auto(n_items, target_set):
    assert settings_for("dae", "mil").for_data(Shape(10, n_items, 10)).target_set.target_set == target_set
    for chosen in ("per_user", "shared", "expectation", "all"):
        settings = settings_for("dae", "mil", {"target_set": chosen})
        assert settings.for_data(Shape(10, n_items, 10)).target_set.target_set == chosen


@pytest.mark.parametrize("name", [*PAPER_MODELS, "popularity"])
def test_the_size_of_the_data_decides_nothing_for_the_papers_rows_and_popularity(name):
    assert settings_for(name).for_data(Shape(10**6, 10**6, 10**6)) == settings_for(name)


def test_an_unknown_model_is_an_error_that_lists_the_known():
    with pytest.raises(SettingsError) as error:
        settings_for("gpt")
    others = [
        "multi-vae-pr",
        "dae",
        "dae-large",
        "cdae",
        "vae",
        "mf",
        "ease",
        "ease-sparse",
        "popularity",
        "slim",
        "wmf",
    ]
    known = ", ".join(sorted([*PAPER_TABLE, *others]))
    assert str(error.value) == f"unknown model 'gpt'; known models: {known}"


def test_an_unknown_loss_is_an_error_that_lists_the_known():
    with pytest.raises(SettingsError) as error:
        settings_for("dae", "mill")
    assert (
        str(error.value)
        == "unknown loss 'mill' (did you mean 'mil'?); known losses: mil, multinomial, pairwise, pointwise, square"
    )


def test_an_unknown_setting_is_an_error_that_lists_those_of_this_model_and_loss():
    with pytest.raises(SettingsError) as error:
        settings_for("mf", "square", {"missing_weight": 3})
    sentence = str(error.value)
    assert sentence.startswith("unknown setting 'missing_weight' for mf with square; known settings: ")
    listed = sentence.partition("known settings: ")[2].split(", ")
    assert listed == sorted(listed)
    assert {"n_factors", "confidence", "target_set", "target_factor", "epochs"} <= set(listed)
    assert "corruption" not in listed  # that one is the autoencoder's


@pytest.mark.parametrize(
    ("section", "values", "known"),
    [
        ("model", {"model": "dae", "n_factor": 5}, "n_factors"),
        ("loss", {"loss": "mil", "missing_wieght": 5}, "missing_weight"),
        ("target_set", {"target_fator": 5}, "target_factor"),
        ("training", {"epoch": 5}, "epochs"),
    ],
)
def test_an_unknown_setting_of_a_recipe_is_answered_with_those_of_its_section(section, values, known):
    sections = settings_for().model_dump()
    with pytest.raises(SettingsError) as error:
        fit_settings({**sections, section: values})
    listed = str(error.value).partition("known settings: ")[2].split(", ")
    assert known in listed


def test_an_unknown_loss_of_a_recipe_is_answered_with_the_known():
    sections = settings_for().model_dump()
    with pytest.raises(SettingsError) as error:
        fit_settings({**sections, "loss": {"loss": "mill"}})
    assert all(name in str(error.value) for name in LOSSES)


def test_a_loss_of_a_recipe_that_is_no_name_is_an_error_with_a_sentence():
    with pytest.raises(SettingsError, match="setting 'loss' is "):
        fit_settings({**settings_for().model_dump(), "loss": {"loss": ["mil"]}})


@pytest.mark.parametrize("sections", [{}, {"model": None}, {"model": 5}, {"model": {}}])
def test_a_recipe_without_a_model_is_an_error_with_a_sentence(sections):
    with pytest.raises(SettingsError, match="setting 'model' is missing"):
        fit_settings(sections)


@pytest.mark.parametrize("loss", LOSSES.values())
@pytest.mark.parametrize(
    "model", [AutoencoderSettings, CollaborativeSettings, VariationalSettings, FactorizationSettings]
)
def test_every_setting_name_is_unique_over_sections(model, loss):
    sections = [model, loss, TargetSettings, TrainingSettings]
    names = [name for section in sections for name in section.model_fields if name not in ("model", "loss")]
    assert len(names) == len(set(names))


def test_a_value_goes_to_the_section_that_has_its_name():
    settings = settings_for(
        "dae",
        "mil",
        {"n_factors": 7, "missing_weight": "5e5", "target_set": "all", "epochs": "30", "corruption": 0},
    )
    assert (settings.model.n_factors, settings.model.corruption) == (7, 0)
    assert settings.loss.missing_weight == 5e5
    assert settings.target_set.target_set == "all"
    assert settings.training.epochs == 30


def test_epochs_unset_iterations_and_the_other_way_round():
    by_epochs = settings_for("mil-lin-sig", values={"epochs": 3})
    assert (by_epochs.training.epochs, by_epochs.training.iterations) == (3, None)
    by_iterations = by_epochs.with_values({"iterations": 9})
    assert (by_iterations.training.epochs, by_iterations.training.iterations) == (None, 9)
    with pytest.raises(SettingsError, match="both say how long to fit"):
        settings_for("dae", values={"epochs": 3, "iterations": 9})


def test_iterations_can_be_unset_to_stop_on_validation_alone():
    settings = settings_for("mil-lin-sig", values={"iterations": None})
    assert (settings.training.epochs, settings.training.iterations) == (None, None)


def test_the_multinomial_loss_is_refused_with_a_target_set():
    with pytest.raises(SettingsError, match="unknown setting 'target_set' for dae with multinomial; known settings: "):
        settings_for("dae", "multinomial", {"target_set": "all"})
    sections = settings_for("dae", "multinomial").model_dump()
    with pytest.raises(SettingsError, match="the multinomial loss uses all items"):
        fit_settings({**sections, "target_set": {"target_set": "all"}})


def test_every_other_loss_is_refused_without_a_target_set():
    sections = settings_for("dae", "mil").model_dump()
    with pytest.raises(SettingsError, match="every other loss needs a target set"):
        fit_settings({**sections, "target_set": None})


@pytest.mark.parametrize(
    ("loss", "decoder", "needed"),
    [("mil", "linear", "sigmoid"), ("pointwise", "linear", "sigmoid"), ("multinomial", "sigmoid", "linear")],
)
def test_a_decoder_that_does_not_suit_the_loss_is_refused(loss, decoder, needed):
    with pytest.raises(SettingsError, match=f"^loss '{loss}' needs a {needed} decoder, not '{decoder}'$"):
        settings_for("dae", loss, {"decoder": decoder})


@pytest.mark.parametrize("loss", ["square", "pairwise"])
@pytest.mark.parametrize("decoder", ["linear", "sigmoid"])
def test_square_and_pairwise_losses_take_either_decoder(loss, decoder):
    assert settings_for("mf", loss, {"decoder": decoder}).model.decoder == decoder


@pytest.mark.parametrize("loss", ["square", "pointwise"])
def test_a_confidence_is_for_all_items_and_not_for_a_sample(loss):
    with pytest.raises(SettingsError, match="set target_set=all with it"):
        settings_for("dae", loss, {"confidence": 5})
    assert settings_for("dae", loss, {"confidence": 5, "target_set": "all"}).loss.confidence == 5
    with pytest.raises(SettingsError, match="setting 'confidence' is 1"):
        settings_for("dae", loss, {"confidence": 1, "target_set": "all"})


def test_a_papers_row_keeps_its_loss():
    assert settings_for("mil-lin-sig", "mil") == settings_for("mil-lin-sig")
    with pytest.raises(SettingsError, match="model 'mil-lin-sig' is one of the paper's models, with loss 'mil'"):
        settings_for("mil-lin-sig", "square")


def test_popularity_has_no_loss_and_no_settings():
    settings = settings_for("popularity")
    assert (settings.loss, settings.target_set, settings.training) == (None, None, None)
    with pytest.raises(SettingsError, match="model 'popularity' has no loss"):
        settings_for("popularity", "mil")
    with pytest.raises(SettingsError, match="unknown setting 'epochs' for popularity"):
        settings_for("popularity", values={"epochs": 3})


def test_a_fitted_model_needs_a_loss_and_training_settings():
    with pytest.raises(SettingsError, match="model 'dae' needs a loss and training settings"):
        fit_settings({"model": {"model": "dae"}})


@pytest.mark.parametrize("name", [*PAPER_MODELS, "popularity", "dae", "cdae", "vae", "mf"])
def test_settings_come_back_from_their_plain_values(name):
    settings = settings_for(name)
    assert fit_settings(settings.model_dump()) == settings
