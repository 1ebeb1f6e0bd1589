"""A run as it is kept in the repository: python experiments/keep.py RUN docs/results/NAME.

Writes NAME.json, the results with numbers of five digits and learning curves of at most 60 points, and NAME.html, the
report of exactly that.
"""

import json
import sys
from pathlib import Path
from typing import Any

from milrec.folders import new_file, read_json
from milrec.report import write_report

_POINTS = 60


def main() -> None:
    run, kept = Path(sys.argv[1]), Path(sys.argv[2])
    results = rounded(read_json(run / "results.json"))
    for model in results["models"]:
        if model["history"]:
            model["history"] = thinned(model["history"])
    kept.parent.mkdir(parents=True, exist_ok=True)
    with new_file(kept.with_suffix(".json")) as draft:
        draft.write_text(json.dumps(results, ensure_ascii=False) + "\n", encoding="utf-8")
    write_report(read_json(kept.with_suffix(".json")), kept.with_suffix(".html"))


def rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: rounded(one) for key, one in value.items()}
    if isinstance(value, list):
        return [rounded(one) for one in value]
    return float(f"{value:.5g}") if isinstance(value, float) else value


def thinned(history: dict[str, Any]) -> dict[str, Any]:
    """Every so many validations; how the fit ended stays."""
    lists = {key: value for key, value in history.items() if isinstance(value, list) and value}
    step = max(1, -(-max(map(len, lists.values()), default=1) // _POINTS))
    return {**history, **{key: value[::step] for key, value in lists.items()}}


if __name__ == "__main__":
    main()
