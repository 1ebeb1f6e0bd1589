"""python -m benchmarks.messages --out FOLDER: when a fit on a cluster pays, by arithmetic.

Measured here: how long a step of the default fit takes as a whole, how long the slopes of one of its slices take, how
long the weights take to move, and how many bytes a slice's slopes have. From them follows the time of a step on as many
machines of this size as there are slices, if every slice is sent to all of them: compute one slice, receive the others
over a network of so many Gbit/s, move.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

from benchmarks.clock import machine
from benchmarks.growth import made
from milrec.data.splits import Split
from milrec.kernels.threads import thread_pool
from milrec.models.known import build_model
from milrec.storage import write_json
from milrec.training.batches import Sliced, batches
from milrec.training.presets import settings_for
from milrec.training.sections import Shape
from milrec.training.steps.adam import Adam
from milrec.training.steps.fast import FastStep
from milrec.training.steps.slopes import Slopes, sum_in_order

_SHAPES: tuple[tuple[str, int, dict[str, Any]], ...] = (
    ("20,000 items", 20_000, {}),
    ("20,000 items, 5,000 users in a step", 20_000, {"batch_size": 5_000}),
    ("200,000 items", 200_000, {}),
    ("200,000 items, 5,000 users in a step", 200_000, {"batch_size": 5_000}),
)
_MACHINES = (2, 4, 8)
_NETWORKS = (10, 100)  # Gbit/s
_STEPS = 6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for the data and the result")
    out: Path = parser.parse_args().out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    found: dict[str, Any] = {"machine": machine(), "shapes": {}}
    for name, n_items, values in _SHAPES:
        split = Split.load(made(out / f"items-{n_items}", 20_000, n_items, 50))
        found["shapes"][name] = {f"{n} machines": measured(split, values, n) for n in _MACHINES}
        print(json.dumps({name: found["shapes"][name]}, indent=1), flush=True)  # noqa: T201
    write_json(out / "messages.json", found)


def measured(split: Split, values: dict[str, Any], n_slices: int) -> dict[str, float]:
    train = split.train
    settings = settings_for("dae", "mil", {**values, "slices": n_slices, "start": "glorot"}).for_data(Shape.of(train))
    whole = settings.with_values({"slices": 1})
    model = build_model(settings.model, train.n_users, train.n_items)
    model.initialise(0)
    with thread_pool() as pool:
        step = FastStep(model, settings, Adam(dict(model.named_parameters())), pool)
        at_once = [_whole(step, one) for one in batches(train, model, whole, 0, range(_STEPS))]
        in_slices = [_in_slices(step, one) for one in batches(train, model, settings, 0, range(_STEPS))]
    slices = [seconds for own, _, _ in in_slices for seconds in own]
    moves, size = [move for _, move, _ in in_slices], max(size for _, _, size in in_slices)
    one_step, one_slice, move = (statistics.median(times[1:]) for times in (at_once, slices, moves))
    result = {"step_ms": 1e3 * one_step, "slice_ms": 1e3 * one_slice, "move_ms": 1e3 * move, "message_mb": size / 1e6}
    for network in _NETWORKS:
        sent = (n_slices - 1) * size * 8 / (network * 1e9)
        result[f"speed_up_at_{network}_gbit"] = one_step / (one_slice + sent + move)
    return {key: round(value, 2) for key, value in result.items()}


def _whole(step: FastStep, one: Sliced) -> float:
    started = time.perf_counter()
    step(one.slices[0], 1e-3)
    return time.perf_counter() - started


def _in_slices(step: FastStep, one: Sliced) -> tuple[list[float], float, int]:
    """Seconds of each slice, seconds of the move, and the bytes of the largest slice."""
    parts, spent = list[Slopes](), list[float]()
    for batch in one.slices:
        started = time.perf_counter()
        parts.append(step.slopes(batch).times(batch.share))
        spent.append(time.perf_counter() - started)
    size = max(sum(part.values.nbytes for part in own.by_weight.values()) for own in parts)
    started = time.perf_counter()
    step.move(sum_in_order(parts), 1e-3)
    return spent, time.perf_counter() - started, size


if __name__ == "__main__":
    main()
