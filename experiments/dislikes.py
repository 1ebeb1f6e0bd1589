"""Hits against dislikes: python -m experiments.dislikes SPLIT --out FILE [--cutoff 100].

SPLIT is a split folder with rejections. For each seed two models are fitted: one of adoptions, with rejections taken
for missing (read by the encoder with --read), and one of rejections (`milrec.fit_dislikes`). Their lists are judged on
validation and on test for several costs of a dislike, beside three ways without a second model: rejections taken for
missing, MIL's own term at full weight and at .3. FILE is rewritten after each seed; --table prints it as Markdown.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import milrec
from milrec.data.splits import Split
from milrec.evaluation.evaluation import Evaluation

COSTS = (0, 0.1, 0.2, 0.3, 0.5, 1, 2, 4)
SEEDS = (0, 1, 2)
PLAIN: dict[str, dict[str, Any]] = {
    "rejections taken for missing": {"rejected_as": "missing"},
    "MIL's term": {"rejected_as": "rejected"},
    "MIL's term, weight .3": {"rejected_as": "rejected", "rejected_weight": 0.3},
}


def judged(model: milrec.Recommender, split: Split, **wishes: Any) -> dict[str, dict[str, float]]:
    """The measures of both held-out parts."""
    found: dict[str, Evaluation] = {
        "validation": model.evaluate(split, "validation", **wishes),
        "test": model.evaluate(split, "test", **wishes),
    }
    return {part: {name: round(value, 5) for name, value in one.measures.items()} for part, one in found.items()}


def of_seed(split: Split, seed: int, read: bool) -> dict[str, Any]:
    found: dict[str, Any] = {
        name: judged(milrec.fit(split, seed=seed, **values), split) for name, values in PLAIN.items()
    }
    liked = milrec.fit(split, seed=seed, rejected_as="missing", reads_rejected=read)
    disliked = milrec.fit_dislikes(split, seed=seed)
    for cost in COSTS:
        found[f"cost {cost}"] = judged(liked, split, dislikes=disliked.at_cost(cost))
    return found


def table(found: dict[str, Any], cutoff: int) -> str:
    """Means over seeds; beside shares of dislikes on test, how many fewer than with rejections taken for missing."""
    headings = [f"validation NDCG@{cutoff}", f"NDCG@{cutoff}"] + ["NDCG@20"] * (cutoff != 20)
    headings += [f"dislikes in the first {places}" for places in (5, 20)]
    lines = ["| | " + " | ".join(headings) + " |", "|---" * (len(headings) + 1) + "|"]
    seeds = list(found["seeds"].values())

    def mean(way: str, name: str, part: str = "test") -> float:
        return float(sum(one[way][part][name] for one in seeds) / len(seeds))

    for way in seeds[0]:
        cells = [f"{mean(way, f'ndcg@{cutoff}', 'validation'):.4f}", f"{mean(way, f'ndcg@{cutoff}'):.4f}"]
        cells += [f"{mean(way, 'ndcg@20'):.4f}"] * (cutoff != 20)
        for places in (5, 20):
            share, usual = (mean(one, f"rejected_share@{places}") for one in (way, next(iter(PLAIN))))
            fewer = round(100 * (1 - share / usual))
            cells.append(f"{100 * share:.2f} %" + (f" ({fewer} % fewer)" if fewer > 0 else ""))
        lines.append(f"| {way} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="Hits against dislikes, for several costs of a dislike.")
    parser.add_argument("split", type=Path, help="a split folder with rejections")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="JSON of all measures")
    parser.add_argument("--read", action="store_true", help="the model of adoptions reads rejections, too")
    parser.add_argument("--cutoff", type=int, default=100, help="of NDCG in the table: 10, 20 or 100")
    parser.add_argument("--table", action="store_true", help="print the table of FILE and fit nothing")
    options = parser.parse_args()
    found: dict[str, Any] = {"seeds": {}}
    if options.out.exists():
        found = json.loads(options.out.read_text(encoding="utf-8"))
    if not options.table:
        split = Split.load(options.split)
        found["data"] = split.facts()
        for seed in SEEDS:
            if str(seed) not in found["seeds"]:
                found["seeds"][str(seed)] = of_seed(split, seed, options.read)
                options.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(table(found, options.cutoff))  # noqa: T201


if __name__ == "__main__":
    main()
