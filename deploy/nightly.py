"""Fit tonight's model and publish it, unless it is worse than the one that is live.

    python nightly.py plays.csv models/live --server http://127.0.0.1:8000

Ends with code 0 if the model was published, and with code 1 and one sentence if the old one stays.
"""

import argparse
import http.client
import json
import math
import os
import sys
import urllib.parse
import urllib.request
from pathlib import Path

import milrec

MEASURE = "ndcg@20"
FEWEST_USERS = 0.9  # of last night's: below that, something is wrong with the table


class Refused(Exception):
    """Why tonight's model is not published."""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("table", help="the interactions: CSV, Parquet, or anything else that milrec reads")
    parser.add_argument("live", type=Path, help="the model folder that is being served")
    parser.add_argument("--server", help="where it is served; the environment variable MILREC_KEY holds its key")
    options = parser.parse_args()
    try:
        tonight = publish(options.table, options.live)
    except (Refused, milrec.MilrecError, OSError) as reason:
        sys.exit(f"not published: {reason}")
    if options.server:
        try:
            reload(options.server.rstrip("/"), options.live.name)
        except (OSError, ValueError, http.client.HTTPException) as reason:
            sys.exit(f"the new model is in '{options.live}', but the server did not take it: {reason}")
    sys.stdout.write(f"published: {MEASURE} {tonight['mean']:.4f}, {tonight['users']:,} users\n")


def publish(table: str, live: Path) -> dict[str, float]:
    """Replace the live model by one that is fitted to this table; the old one stays if that is refused."""
    kept = live.with_name(f"{live.name}.json")  # beside the folder: a model folder holds nothing but the model
    before = kept_measures(live, kept)
    data = milrec.read(table)
    if before is not None and data.n_users < FEWEST_USERS * before["users"]:
        raise Refused(f"the table has {data.n_users:,} users, the live model has {before['users']:,.0f}")
    split = milrec.split_interactions(data, seed=0)
    model = milrec.refit(split, milrec.fit(split, seed=0))
    tonight = {**measured(model, split), "users": data.n_users}
    popular = measured(milrec.fit(split, "popularity"), split)
    for name, other in (("popularity", popular), ("the live model", before)):
        if other is not None and tonight["mean"] < other["mean"] - chance(tonight, other):
            raise Refused(f"{MEASURE} is {tonight['mean']:.4f}, and {other['mean']:.4f} for {name}")
    model.save(live, replace=True)  # by a rename: readers find the old model or the new one
    keep(kept, tonight, before)
    return tonight


def kept_measures(live: Path, kept: Path) -> dict[str, float] | None:
    """What tonight's model is compared with; nothing if there is no live model yet."""
    if not live.exists():
        return None
    try:
        found = json.loads(kept.read_text())
        measures = {name: float(found[name]) for name in ("mean", "give", "users")}
    except (OSError, ValueError, TypeError, KeyError):
        measures = {}
    if not measures or not all(map(math.isfinite, measures.values())):
        raise Refused(f"'{kept}' cannot be read, so nothing is known about the live model; move '{live}' away")
    return measures


def keep(kept: Path, tonight: dict[str, float], before: dict[str, float] | None) -> None:
    """Tonight's measures or, if they are higher, those of before: a model may not get a little worse every night."""
    best = before if before is not None and before["mean"] > tonight["mean"] else tonight
    draft = kept.with_suffix(".tmp")
    draft.write_text(json.dumps({**best, "users": tonight["users"]}))
    draft.replace(kept)


def measured(model: milrec.Recommender, split: milrec.Split) -> dict[str, float]:
    """The measure on the test part, and half the width of its 95 % interval."""
    evaluation = model.evaluate(split)
    low, high = evaluation.intervals[MEASURE]
    return {"mean": evaluation.measures[MEASURE], "give": (high - low) / 2}


def chance(one: dict[str, float], other: dict[str, float]) -> float:
    """How far apart two measures may be by chance, as both are means over users who differ from night to night."""
    return math.hypot(one["give"], other["give"])


def reload(server: str, model: str) -> None:
    """Let the server read the folder again; a refusal raises, and the server keeps its old model."""
    address = f"{server}/v1/models/{urllib.parse.quote(model, safe='')}/reload"
    request = urllib.request.Request(address, method="POST")
    if key := os.environ.get("MILREC_KEY"):
        request.add_header("Authorization", f"Bearer {key}")
    urllib.request.urlopen(request, timeout=600).close()


if __name__ == "__main__":
    main()
