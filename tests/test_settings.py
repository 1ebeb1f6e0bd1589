"""Settings are frozen values; what is wrong with them is one sentence that lists what is known."""

import math
from typing import Literal

import pytest
from pydantic import Field, ValidationError, field_validator

from milrec.errors import SettingsError
from milrec.models.settings import AutoencoderSettings
from milrec.settings import Settings, build, changed, parse_assignments, read_toml
from milrec.training.sections import TargetSettings, TrainingSettings


def test_settings_are_frozen():
    with pytest.raises(ValidationError):
        AutoencoderSettings().n_factors = 3  # type: ignore[misc]


def test_texts_become_the_numbers_of_their_fields():
    settings = build(TrainingSettings, {"epochs": "30", "learning_rate": "1e-2", "schedule": "cosine"})
    assert (settings.epochs, settings.learning_rate, settings.schedule) == (30, 0.01, "cosine")


def test_an_unknown_setting_is_an_error_that_lists_the_known():
    with pytest.raises(SettingsError) as error:
        build(TargetSettings, {"target_fator": 50})
    known = "known settings: target_set, target_factor, rejected_as"
    assert str(error.value) == f"unknown setting 'target_fator' (did you mean 'target_factor'?); {known}"


def test_the_place_of_a_wrong_setting_is_named():
    with pytest.raises(
        SettingsError,
        match=r"unknown setting 'n_factor' in the recipe \(did you mean 'n_factors'\?\); known settings: ",
    ):
        build(AutoencoderSettings, {"n_factor": 3}, where="the recipe")


@pytest.mark.parametrize(
    ("settings", "values"),
    [
        (AutoencoderSettings, {"n_factors": 0}),
        (AutoencoderSettings, {"n_factors": "many"}),
        (AutoencoderSettings, {"n_factors": 2.5}),
        (AutoencoderSettings, {"encoder": "softplus"}),
        (AutoencoderSettings, {"decoder": "tanh"}),
        (AutoencoderSettings, {"corruption": 1.0}),
        (AutoencoderSettings, {"corruption": -0.1}),
        (AutoencoderSettings, {"input_weights": "squared"}),
        (TargetSettings, {"target_factor": 0}),
        (TargetSettings, {"target_set": "none"}),
        (TrainingSettings, {"batch_size": 0}),
        (TrainingSettings, {"epochs": 0}),
        (TrainingSettings, {"iterations": 0}),
        (TrainingSettings, {"learning_rate": 0}),
        (TrainingSettings, {"learning_rate": math.nan}),
        (TrainingSettings, {"learning_rate": math.inf}),
        (TrainingSettings, {"weight_decay": -1}),
        (TrainingSettings, {"patience": -1}),
        (TrainingSettings, {"threads": 0}),
    ],
)
def test_a_value_out_of_range_is_refused_by_its_name(settings, values):
    with pytest.raises(SettingsError) as error:
        build(settings, values)
    (key,) = values
    assert str(error.value).startswith(f"setting '{key}' is {values[key]!r}; ")
    assert "\n" not in str(error.value)


def test_a_wrong_choice_is_answered_with_the_choices():
    with pytest.raises(SettingsError, match="'linear', 'sigmoid', 'tanh' or 'relu'"):
        build(AutoencoderSettings, {"encoder": "gelu"})


class Cat(Settings):
    kind: Literal["cat"] = "cat"
    lives: int = Field(9, ge=1)


class Dog(Settings):
    kind: Literal["dog"] = "dog"
    tricks: list[str] = Field([])

    @field_validator("tricks")
    @classmethod
    def _no_secrets(cls, tricks: list[str]) -> list[str]:
        if "secret" in tricks:
            raise ValueError("a trick cannot be secret")
        return tricks


class House(Settings):
    name: str
    pet: Cat | Dog = Field(Cat(), discriminator="kind")
    others: list[Cat] = Field([])


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({}, "setting 'name' in the street is missing"),
        ({"nam": "A"}, "unknown setting 'nam' in the street (did you mean 'name'?); known settings: name, pet, others"),
        ({"name": 3}, "setting 'name' in the street is 3; it must be text"),
        (
            {"name": "A", "pet": {"kind": "dog", "lives": 3}},
            "unknown setting 'pet.lives' in the street; known settings: kind, tricks",
        ),
        (
            {"name": "A", "pet": {"kind": "cat", "lives": 0}},
            "setting 'pet.lives' in the street is 0; it must be at least 1",
        ),
        (
            {"name": "A", "pet": {"kind": "dog", "tricks": ["secret"]}},
            "setting 'pet.tricks' in the street: a trick cannot be secret",
        ),
        (
            {"name": "A", "others": [{}, {"life": 3}]},
            "unknown setting 'others.1.life' in the street (did you mean 'lives'?); known settings: kind, lives",
        ),
    ],
)
def test_the_sentence_names_a_setting_as_it_was_written(values, sentence):
    with pytest.raises(SettingsError) as error:
        build(House, values, "the street")
    assert str(error.value) == sentence


def test_a_long_value_is_not_repeated_whole():
    with pytest.raises(SettingsError) as error:
        build(Cat, {"lives": "nine" * 1000})
    assert len(str(error.value)) < 200 and "'ninenine" in str(error.value)


def test_epochs_and_iterations_are_not_set_together():
    with pytest.raises(SettingsError, match=r"^epochs and iterations both say how long to fit: set only one of them$"):
        build(TrainingSettings, {"epochs": 3, "iterations": 5})


def test_changed_replaces_a_field_and_checks_it_again():
    first = AutoencoderSettings(n_factors=7)
    second = changed(first, {"encoder": "relu"})
    assert (first.encoder, second.encoder, second.n_factors) == ("linear", "relu", 7)
    with pytest.raises(SettingsError, match="setting 'corruption' is 2"):
        changed(first, {"corruption": 2})


def test_assignments_become_a_mapping():
    assert parse_assignments([]) == {}
    assert parse_assignments(["epochs=30", " measure = ndcg@20 ", "threads=none", "a=b=c"]) == {
        "epochs": "30",
        "measure": "ndcg@20",
        "threads": None,
        "a": "b=c",
    }


@pytest.mark.parametrize("text", ["epochs", "=3", " = 3", ""])
def test_what_is_no_assignment_is_refused(text):
    with pytest.raises(SettingsError, match="is not a setting; write KEY=VALUE"):
        parse_assignments([text])


def test_a_setting_given_twice_is_refused():
    with pytest.raises(SettingsError, match=r"^setting 'epochs' is given twice$"):
        parse_assignments(["epochs=3", "epochs=4"])


def test_toml_is_read(tmp_path):
    path = tmp_path / "recipe.toml"
    path.write_text('[training]\nepochs = 3\nschedule = "linear"\n', encoding="utf-8")
    assert read_toml(path) == {"training": {"epochs": 3, "schedule": "linear"}}


def test_a_file_that_is_absent_or_not_toml_is_an_error_that_names_it(tmp_path):
    path = tmp_path / "recipe.toml"
    with pytest.raises(SettingsError, match=r"there is no file '.*recipe\.toml'"):
        read_toml(path)
    path.write_bytes(b"epochs 3")
    with pytest.raises(SettingsError, match=r"'.*recipe\.toml' (is not valid|cannot be read as) TOML"):
        read_toml(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(SettingsError, match=r"'.*recipe\.toml' (is not valid|cannot be read as) TOML"):
        read_toml(path)
    with pytest.raises(SettingsError, match="cannot be read as TOML"):
        read_toml(tmp_path)
