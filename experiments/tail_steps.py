"""Does the dial do what it says, step by step?  python experiments/tail_steps.py FILE NAME=RUN …

For each model of a run (the first seed that it finds), lists at 12 values of λ, from 0 in equal steps up to the one
that was found on validation for 40 % long tail. Checked on the test part: the long-tail share of the first 20 places
never falls, NDCG@20 never rises by more than .001 from one step to the next, and places with items of one adopter grow
by at most one percentage point in all. The last step also has the long-tail share for five equally large groups of
users, from those with the fewest training items to those with the most. FILE, JSON, is written after every model, and
what it holds is not done again.
"""

import json
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import milrec
from milrec.storage import write_json

STEPS = 12
MEASURES = ("long_share@20", "ndcg@20", "single_adopter_share@20", "coverage@20", "mean_popularity@20",
            "exposure_gini@20", "novelty_ndcg@20")  # fmt: skip


def main() -> None:
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    file = Path(sys.argv[1])
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    for argument in sys.argv[2:]:
        name, _, run = argument.partition("=")
        split = None
        for folder in sorted(Path(run).glob("jobs/*-seed0/model")):
            key = f"{name}: {json.loads((folder.parent / 'job.json').read_text())['title'].split(', seed')[0]}"
            if key not in found:
                split = split or milrec.Split.load(Path(run) / "split")
                found[key] = steps_of(milrec.load(folder), split)
                write_json(file, found)
            say(key, found[key])


def steps_of(recommender: milrec.Recommender, split: milrec.Split) -> list[dict[str, Any]]:
    """The measures at each λ."""
    price = recommender.price(20, long_share=0.4)
    assert price is not None
    steps: list[dict[str, Any]] = []
    for bonus in np.linspace(0.0, max(price.bonus, 0.0), STEPS):
        found = recommender.evaluate(split, long_bonus=float(bonus))
        measures = {name: float(f"{found.measures[name]:.6g}") for name in MEASURES}
        steps.append({"bonus": float(f"{bonus:.6g}"), **measures})
    steps[-1]["long_share@20 by fifths of users"] = fifths(found.per_user["long_share@20"], split)
    return steps


def fifths(shares: npt.NDArray[np.float64], split: milrec.Split) -> list[float]:
    """The mean share of users, from those with the fewest items to those with the most."""
    judged = np.diff(split.test.targets.indptr) > 0
    n_items = np.diff(split.test.audience.adopted.indptr)[judged]
    groups = np.array_split(np.argsort(n_items, kind="stable"), 5)
    return [round(float(np.nanmean(shares[group])), 2) for group in groups]


def say(key: str, steps: list[dict[str, Any]]) -> None:
    falls = max(before["long_share@20"] - after["long_share@20"] for before, after in pairwise(steps))
    rises = max(after["ndcg@20"] - before["ndcg@20"] for before, after in pairwise(steps))
    singles = steps[-1]["single_adopter_share@20"] - steps[0]["single_adopter_share@20"]
    kept = falls <= 1e-9 and rises <= 0.001 and singles <= 1.0
    shares = f"{steps[0]['long_share@20']:.1f} → {steps[-1]['long_share@20']:.1f} % long tail"
    accuracy = f"NDCG@20 {steps[0]['ndcg@20']:.4f} → {steps[-1]['ndcg@20']:.4f}, largest rise {rises:+.4f}"
    mark = "ok  " if kept else "MISS"
    sys.stdout.write(f"{mark} {key}: {shares}, {accuracy}, one-adopter places {singles:+.2f} points\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
