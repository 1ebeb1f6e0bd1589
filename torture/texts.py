"""What people type: settings, conditions, ids, rules, seeds and thresholds; and the small files: recipes, keys, ids."""

from __future__ import annotations

import os
import random
import re
from pathlib import Path

from torture.bases import RECIPE, Bases
from torture.cases import Case
from torture.commands import command_here, verdict
from torture.damage import NUMBERS, damaged, odd_text, utf8
from torture.reading import refusal
from torture.tables import as_argument
from torture.verdicts import Outcome, accepted

_SETTINGS = (
    "epochs=3", "iterations=5", "n_factors=8", "learning_rate=0.01", "missing_weight=1e6", "weight_decay=0",
    "batch_size=16", "target_set=all", "schedule=cosine", "validate_every=none", "encoder=tanh", "regularization=10",
    "neighbours=5", "measure=ndcg@100",
    "patience=0", "threads=1", "device=cpu", "checkpoint_seconds=1", "averaging=0.5", "start=svd", "until=3",
)  # fmt: skip
_MODELS = (
    None,
    "dae",
    "mf",
    "ease",
    "ease-sparse",
    "slim",
    "wmf",
    "vae",
    "cdae",
    "popularity",
    "mil-lin-sig",
    "mf-square",
)
_RULES = ("long >= 30%", "short <= 2 in 10", "medium >= 1", "long ≥ 100%", "short <= 0.5%", "long >= 3 in 2")
_AIMS = ("--long-share", "--medium-share", "--short-share", "--mean-popularity", "--long-bonus")
_KEYS = "# keys\nshop sha256:" + "a1" * 32 + "\n\nother.shop@x  sha256:" + "0" * 64 + "\n"


def changed_text(text: str, chance: random.Random) -> str:
    """A text with one to three changes."""
    for _ in range(chance.choice((0, 1, 1, 1, 2, 3))):
        place = chance.randrange(len(text) + 1)
        pick = chance.randrange(6)
        if pick == 0:
            text = text[:place] + odd_text(chance)[:2000] + text[place:]
        elif pick == 1:
            text = text[:place] + text[place + chance.choice((1, 3, 100)) :]
        elif pick == 2:
            text = re.sub(
                r"[0-9.]+", lambda _: str(chance.choice((*NUMBERS, 0.5, 1e308, "1e999", "nan", "-0"))), text, count=1
            )
        elif pick == 3:
            text = text[:place] + text[: chance.randrange(len(text) + 1)]
        elif pick == 4:
            text = chance.choice(
                (text.upper(), text.swapcase(), text.replace(" ", ""), text.replace("=", "=="), text[::-1])
            )
        else:
            text = odd_text(chance)[:2000]
    return text


def make_text(chance: random.Random) -> Case:
    """One of the kinds below."""
    return chance.choice((_settings, _settings, _recipe, _recipe, _keys, _lists, _lists, _options))(chance)


def _settings(chance: random.Random) -> Case:
    texts = [changed_text(text, chance) for text in chance.sample(_SETTINGS, chance.choice((0, 1, 1, 2, 4)))]
    model = chance.choice(_MODELS)
    loss = chance.choice(
        (None, None, "mil", "square", "multinomial", "pointwise", "pairwise", changed_text("mil", chance))
    )
    if model is not None and chance.random() < 0.2:
        model = changed_text(model, chance)
    if chance.random() < 0.2:  # by the command line, which checks settings before it looks for the split
        given = [text for one in texts for text in ("--set", one)]
        given += ["--loss", loss] if loss is not None else []
        return Case("inputs", "command", {"command": ["fit", "nowhere", "--out", "made", *given]})
    return Case("inputs", "settings", {"model": model, "loss": loss, "set": texts})


def _recipe(chance: random.Random) -> Case:
    if chance.random() < 0.4:
        return Case("inputs", "recipe", {}, {"recipe.toml": damaged(RECIPE.encode(), chance)})
    lines = RECIPE.splitlines()
    for _ in range(chance.choice((1, 1, 2, 3))):
        place = chance.randrange(len(lines))
        lines[place] = changed_text(lines[place], chance)
        if chance.random() < 0.2:
            lines.insert(
                place,
                chance.choice(
                    ('name = "x"', "[search]", "dials = [nan, inf]", "seed = inf", "seeds = [1e400]", "x" * 9000)
                ),
            )
    return Case("inputs", "recipe", {}, {"recipe.toml": utf8("\n".join(lines))})


def _keys(chance: random.Random) -> Case:
    text = changed_text(_KEYS, chance)
    content = damaged(text.encode("utf-8", "replace"), chance) if chance.random() < 0.5 else utf8(text)
    variable = None if chance.random() < 0.5 else changed_text(_KEYS.replace("\n", ","), chance)
    return Case("inputs", "keys", {"variable": variable}, {"keys.txt": content})


def _lists(chance: random.Random) -> Case:
    """Options of `recommend`, `similar` and `items`."""
    items = ",".join(f"i{number:02}" for number in chance.sample(range(1, 26), chance.choice((0, 1, 5))))
    pick = chance.randrange(6)
    if pick == 0:
        return Case(
            "inputs", "command", {"command": ["similar", "MODEL", changed_text("i01", chance), "-n", _number(chance)]}
        )
    if pick == 1:
        return Case(
            "inputs", "command", {"command": ["items", "MODEL", "--search", changed_text("The Title i01", chance)]}
        )
    who = ["--user", changed_text("u01", chance)] if pick == 2 else ["--adopted", changed_text(items, chance)]
    more = {
        "--rejected": lambda: changed_text("i07,i08", chance),
        "--rule": lambda: changed_text(chance.choice(_RULES), chance),
        "--dial": lambda: changed_text("0.5", chance),
        chance.choice(_AIMS): lambda: changed_text("0.3", chance),
        "-n": lambda: _number(chance),
        "--reasons": lambda: _number(chance),
        "--allow": lambda: "ids.txt",
        "--exclude": lambda: "ids.txt",
        "--out": lambda: chance.choice(
            ("lists.csv", "lists.tsv", "lists.jsonl", "lists.parquet", "lists", changed_text("x.csv", chance)[:50])
        ),
    }
    given = [text for name in chance.sample(list(more), chance.choice((0, 1, 2, 4))) for text in (name, more[name]())]
    ids = damaged(items.replace(",", "\n").encode() + b"\n", chance)
    return Case("inputs", "command", {"command": ["recommend", "MODEL", *who, *given]}, {"ids.txt": ids})


def _options(chance: random.Random) -> Case:
    """Options of `prepare` and `split`."""
    if chance.random() < 0.4:
        options = {
            "--seed": _number(chance),
            "--held-out": changed_text("0.1", chance),
            "--protocol": changed_text("users", chance),
        }
        given = [text for name in chance.sample(list(options), chance.choice((1, 2))) for text in (name, options[name])]
        return Case("inputs", "command", {"command": ["split", "DATA", "--out", "made", *given]})
    options = {
        "--adopt-min": changed_text("4", chance),
        "--reject-max": changed_text("2", chance),
        "--min-per-user": _number(chance),
        "--min-per-item": _number(chance),
        "--where": changed_text("test=0", chance),
        "--value": changed_text("rating", chance),
        "--user": changed_text("user", chance),
        "--format": changed_text("csv", chance),
    }
    given = [text for name in chance.sample(list(options), chance.choice((1, 2, 3))) for text in (name, options[name])]
    rows = "".join(f"u{number % 5},i{number % 7},{number % 5 + 1},{number % 2}\n" for number in range(40))
    files = {"t.csv": b"user,item,rating,test\n" + rows.encode()}
    return Case("inputs", "command", {"command": ["prepare", "t.csv", "--out", "made", *given]}, files)


def _number(chance: random.Random) -> str:
    return changed_text(chance.choice(("0", "1", "5", "20", str(chance.choice(NUMBERS)))), chance)


def run_text(case: Case, place: Path, bases: Bases) -> Outcome:
    import milrec

    case.write_files(place)
    try:
        if case.kind == "command":
            return _run_command(case, place, bases)
        if case.kind == "keys":
            return _run_keys(case, place)
        {"settings": _run_settings, "recipe": _run_recipe}[case.kind](case, place)
        return accepted
    except milrec.MilrecError as error:
        return refusal(error)


def _run_settings(case: Case, place: Path) -> None:
    import milrec
    from milrec.settings import parse_assignments
    from milrec.training.sections import Shape

    facts = case.facts
    settings = milrec.settings_for(facts["model"], facts["loss"], parse_assignments(facts["set"]))
    settings.for_data(Shape(40, 25, 200))
    settings.for_data(Shape(4_000, 2_500, 2_000))
    str(settings)


def _run_recipe(case: Case, place: Path) -> None:
    from milrec.experiments.recipe import read_recipe

    read_recipe(place / "recipe.toml")


def _run_keys(case: Case, place: Path) -> Outcome:
    """A server reads its keys before it looks for its model, and here there is none."""
    before = dict(os.environ)
    if case.facts["variable"] is not None:
        os.environ["MILREC_KEYS"] = as_argument(case.facts["variable"])
    try:
        return verdict(command_here(["serve", "nowhere", "--keys", "keys.txt"], place))
    finally:
        os.environ.clear()
        os.environ.update(before)


def _run_command(case: Case, place: Path, bases: Bases) -> Outcome:
    folders = {"MODEL": bases.model("dae"), "DATA": bases.data}
    end = command_here([folders.get(text, as_argument(text)) for text in case.facts["command"]], place)
    try:
        end.out.encode()
    except UnicodeEncodeError:
        return Outcome("traceback", "what is printed is not Unicode text, and a terminal cannot show it")
    return verdict(end)
