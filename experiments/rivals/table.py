"""The study as a Markdown table."""

from typing import Any

import numpy as np
from experiments.study import p_text

MEASURES = ("recall@1", "ndcg@20", "ndcg@100", "short_share@200", "long_share@200")


def table(found: dict[str, Any]) -> str:
    """Markdown: the mean over the seeds and its standard deviation, and the difference from MIL."""
    headings = [*map(_heading, MEASURES), "less MIL, NDCG@100"]
    lines = ["| | " + " | ".join(headings) + " |", "|---" * (len(headings) + 1) + "|"]
    less = {one["model"]: one for one in found.get("less MIL, ndcg@100", [])}
    for model in dict.fromkeys(one["model"] for one in found["fits"] if "ndcg@100" in one):
        fits = [one for one in found["fits"] if one["model"] == model and "ndcg@100" in one]
        cells = [_shown(measure, [one[measure] for one in fits]) for measure in MEASURES]
        own = less.get(model)
        cells.append("–" if own is None else f"{own['difference']:+.4f}, {p_text(own['p'])}")
        lines.append(f"| {model} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _shown(measure: str, values: list[float]) -> str:
    digits = 1 if measure.endswith("@200") else 4
    spread = f" ± {np.std(values, ddof=1):.{digits}f}" if len(values) > 1 else ""
    return f"{np.mean(values):.{digits}f}{spread}"


def _heading(measure: str) -> str:
    shares = {"short_share@200": "short % of the top 200", "long_share@200": "long % of the top 200"}
    return shares.get(measure) or measure.replace("ndcg", "NDCG")
