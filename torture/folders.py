"""Data, split, model and run folders, damaged or forged: each is refused, or used without a crash.

A folder whose hashes were not computed again must be refused, unless everything that it gives is the same to the bit.
"""

from __future__ import annotations

import hashlib
import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torture.bases import CHECKPOINTED, MODELS, Bases
from torture.cases import Case
from torture.commands import command_here, verdict
from torture.damage import damaged, json_bytes
from torture.forged import MANIFEST, Files, forged, signed
from torture.reading import refusal
from torture.verdicts import Outcome, accepted
from torture.workers import OwnFault

_KINDS = (
    "data",
    "split",
    "strangers",
    *(f"model-{name}" for name in MODELS),
    "model-dae",
    "model-mf",
    "run",
    "run",
    "run",
)


def make_folder(chance: random.Random, bases: Bases) -> Case:
    """A folder with one or two changed files; half of them are signed, which makes the change a forgery."""
    kind = chance.choice(_KINDS)
    files = files_in(bases.place / kind)
    sign = chance.random() < 0.5
    changed: Files = {}
    gone: list[str] = []
    resumed = kind == "run" and chance.random() < 0.03
    for name in _worth_changing(files, chance, resumed):
        if chance.random() < 0.03:
            gone.append(name)
        else:
            changed[name] = forged(name, files[name], chance) if sign else damaged(files[name], chance)
    if chance.random() < 0.02:
        changed[chance.choice(("extra.arrow", "weights.safetensors", "results.json"))] = b"\0" * 10
    facts = {"signed": sign, "gone": gone}
    return Case("folders", kind, {**facts, "resumed": True} if resumed else facts, changed)


def files_in(folder: Path) -> Files:
    """All files of a folder, by their path in it."""
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def _worth_changing(files: Files, chance: random.Random, resumed: bool) -> list[str]:
    """One or two files: the manifest more often than the others, and of a run its results, unless it is resumed."""
    if "results.json" in files and not resumed:
        return [chance.choice(("results.json",) * 9 + (MANIFEST,))]
    names = [name for name in sorted(files) if not name.endswith((".lock", ".log", ".html"))]
    return sorted({chance.choice([*names, *[MANIFEST] * 2]) for _ in range(chance.choice((1, 1, 1, 2)))})


def run_folder(case: Case, place: Path, bases: Bases) -> Outcome:
    """Put the folder together, open it and use it."""
    folder = place / case.kind
    resumed = case.facts.get("resumed", False)
    own = ("jobs", "split", "tuning") if case.kind == "run" and not resumed else ()  # what only a resumed run reads
    shutil.copytree(bases.place / case.kind, folder, ignore=shutil.ignore_patterns(*own))
    case.write_files(folder)
    for name in case.facts["gone"]:
        (folder / name).unlink(missing_ok=True)
    if case.kind == "run":
        return _resume_run(folder, place, bases) if resumed else _use_run(folder, place)
    if case.facts["signed"]:
        _sign(folder, case.facts.get("set", {}))
    used = _used(_USES[case.kind.partition("-")[0]], folder, bases)
    if isinstance(used, Outcome):
        return used
    if not case.facts["signed"] and used != _untouched(case.kind, bases):
        return Outcome("wrong answer", "a damaged folder is accepted, and gives something else")
    return _shown(folder, place)


def _sign(folder: Path, facts: dict[str, Any]) -> None:
    """Give a folder a manifest with these facts, and with hashes that are right."""
    files = files_in(folder)
    if facts:
        manifest = json.loads(files[MANIFEST])
        manifest["facts"] |= facts
        files[MANIFEST] = json_bytes(manifest)
    if MANIFEST in files:
        (folder / MANIFEST).write_bytes(signed(files)[MANIFEST])


def _used(use: Callable[[Path, Bases], bytes], folder: Path, bases: Bases) -> str | Outcome:
    """A hash of all that a folder gives, or that it is refused."""
    import milrec

    try:
        return hashlib.sha256(use(folder, bases)).hexdigest()
    except milrec.MilrecError as error:
        return refusal(error)
    except MemoryError:
        return Outcome("refused", "there is not enough memory")


_KNOWN: dict[str, str] = {}


def _untouched(kind: str, bases: Bases) -> str:
    if kind not in _KNOWN:
        found = _used(_USES[kind.partition("-")[0]], bases.place / kind, bases)
        if isinstance(found, Outcome):
            raise RuntimeError(f"an untouched folder is refused: {found.what}")
        _KNOWN[kind] = found
    return _KNOWN[kind]


def _use_data(folder: Path, bases: Bases) -> bytes:
    import milrec

    data = milrec.Interactions.load(folder)
    split = milrec.split_interactions(data, seed=0)
    model = milrec.fit(split, "popularity")
    lists = model.recommend(model.user_ids[:3], n=4)
    return repr((data.facts(), data.fingerprint(), split.facts(), lists.to_pylist())).encode()


def _use_split(folder: Path, bases: Bases) -> bytes:
    import milrec

    split = milrec.Split.load(folder)
    model = milrec.fit(split, "ease")
    found = model.evaluate(split)
    return repr((split.facts(), found.measures, split.train.fingerprint())).encode()


def _use_model(folder: Path, bases: Bases) -> bytes:
    import milrec

    model = milrec.load(folder)
    users, items = model.user_ids[:3], model.item_ids
    gives: list[Any] = [
        model.recommend(users, n=5, reasons=2, rules=["long >= 30%"], dial=0.2).to_pylist(),
        model.recommend_new(items[:3], items[3:4], n=5).to_pylist(),
        model.find_items(str(items[0])).to_pylist(),
        model.user_items(users[0]).to_pylist() if users else None,
        [batch.to_pylist() for batch in model.recommend_all(n=3)],
    ]
    if model.fitted.settings.model.model != "popularity":
        gives.append(model.similar_items(items[0], n=5).to_pylist())
    return repr(gives).encode()


_USES = {"data": _use_data, "split": _use_split, "strangers": _use_split, "model": _use_model}


def _use_run(folder: Path, place: Path) -> Outcome:
    """A run has no hashes but those of the folders in it: it is refused, or reported."""
    outcome = verdict(command_here(["report", folder, "--out", "page.html"], place))
    if outcome.failed:
        return outcome
    shown = verdict(command_here(["show", folder], place))
    return shown if shown.failed else outcome


def _resume_run(folder: Path, place: Path, bases: Bases) -> Outcome:
    """Carry out the recipe of a finished run once more: what it finds is kept, or done again."""
    return verdict(command_here(["experiment", bases.recipe, "--out", folder, "--jobs", "1"], place))


def _shown(folder: Path, place: Path) -> Outcome:
    """What a person sees of an accepted folder."""
    commands: list[list[object]] = [["show", folder]]
    if folder.name.startswith("model"):
        commands.append(["items", folder, "-n", "3"])
    for command in commands:
        outcome = verdict(command_here(command, place))
        if outcome.failed:
            return outcome
    return accepted


def check_signatures(bases: Bases, place: Path) -> None:
    """An untouched folder that was signed again is accepted: otherwise no forgery would be looked at."""
    for kind in sorted({*_KINDS} - {"run"}):
        case = Case("folders", kind, {"signed": True, "gone": [], "set": {"note": "signed again"}})
        outcome = run_folder(case, place, bases)
        if outcome is not accepted:
            raise RuntimeError(f"the campaign's own signature of a {kind} folder is not accepted: {outcome.what}")
        shutil.rmtree(place / kind)


def make_checkpoint(chance: random.Random, bases: Bases) -> Case:
    """A checkpoint with other bytes; or one that a fit in another state would have written, hashes and all."""
    if chance.random() < 0.5:
        return Case(
            "folders", "checkpoint", {"state": None}, {"c.safetensors": damaged(bases.checkpoint.read_bytes(), chance)}
        )
    if chance.random() < 0.3:
        content = forged("c.safetensors", bases.checkpoint.read_bytes(), chance)
        return Case("folders", "checkpoint", {"state": None}, {"c.safetensors": content})
    odd: tuple[Any, ...] = (
        -1,
        0,
        5,
        11,
        12,
        10**6,
        2**31,
        2**63,
        2**70,
        1.5,
        float("inf"),
        float("nan"),
        "6",
        None,
        [],
        True,
    )
    name = chance.choice(("iteration", "loss_sum", "loss_count", "history"))
    if name == "history":
        name += "." + chance.choice(
            ("iterations", "measures", "epochs", "losses", "seconds", "kept_iteration", "stopped_early")
        )
    return Case("folders", "checkpoint", {"state": {name: chance.choice(odd)}}, {})


def run_checkpoint(case: Case, place: Path, bases: Bases) -> Outcome:
    """Resume from the checkpoint: refused, or, unless its state was forged, the weights of an unbroken fit."""
    import milrec

    checkpoint = place / "c.safetensors"
    split = milrec.Split.load(bases.split)
    if "replaced" in case.facts:
        old, new = (text.encode() for text in case.facts["replaced"])
        content = bases.checkpoint.read_bytes()
        if content.count(old) != 1:
            raise OwnFault(f"the checkpoint does not hold {old!r} once")
        checkpoint.write_bytes(content.replace(old, new))
    elif case.facts["state"] is None:
        case.write_files(place)
    elif (written := _write_state(split, checkpoint, case.facts["state"])) is not None:
        return written
    try:
        weights = _weights(milrec.fit(split, seed=0, checkpoint=checkpoint, **CHECKPOINTED))
    except milrec.MilrecError as error:
        return refusal(error)
    if case.facts["state"] is None and weights != _unbroken(split):
        return Outcome("wrong resume", "a damaged checkpoint is accepted, and ends with other weights")
    return accepted


def _write_state(split: Any, path: Path, state: dict[str, Any]) -> Outcome | None:
    """Have a fit write its checkpoint in a state that it was never in."""
    import milrec
    from milrec.training.checkpoints import FitState

    class Stopped(Exception):
        pass

    write = FitState.write

    def write_forged(self: FitState, to: Path) -> None:
        if self.iteration < 6:
            return
        for name, value in state.items():
            of_history = name.startswith("history.")
            setattr(self.history if of_history else self, name.removeprefix("history."), value)
        write(self, to)
        raise Stopped

    FitState.write = write_forged  # type: ignore[assignment, method-assign]
    try:
        milrec.fit(split, seed=0, checkpoint=path, **CHECKPOINTED)
    except (Stopped, ValueError, TypeError, AttributeError, OverflowError):
        pass  # some states cannot even be written
    finally:
        FitState.write = write  # type: ignore[method-assign]
    return None if path.exists() else Outcome("refused", "this state cannot be written")


def _weights(model: Any) -> str:
    digest = hashlib.sha256()
    for name, value in sorted(model.fitted.model.saved_tensors().items()):
        digest.update(name.encode() + value.contiguous().numpy().tobytes())
    history = model.fitted.history
    return digest.hexdigest() + repr((history.iterations, history.measures, history.losses))


def _unbroken(split: Any) -> str:
    import milrec

    if "checkpoint" not in _KNOWN:
        _KNOWN["checkpoint"] = _weights(milrec.fit(split, seed=0, **CHECKPOINTED))
    return _KNOWN["checkpoint"]
