"""The tables and code of docs/peers.md, from the results that are kept: python -m experiments.peers.page [--check].

After `<!-- lists NAME -->` goes what lists are worth by docs/results/peers/NAME.json, after `<!-- properties NAME -->`
what the libraries can do, after `<!-- failures NAME -->` which could not be tried, and why, after
`<!-- code LIBRARY -->` the task as it is written in a library.
"""

import json
import re
import sys
from collections.abc import Callable
from typing import Any

from experiments.peers.environments import ROOT, name_of
from experiments.peers.snippets import task_source

PAGE = ROOT / "docs" / "peers.md"
RESULTS = ROOT / "docs" / "results" / "peers"
NAMES = {"lenskit": "LensKit", "rectools": "RecTools", "recbole": "RecBole", "recbole-older": "RecBole, older packages",
         "warprec": "WarpRec"}  # fmt: skip
_BLOCK = re.compile(r"(<!-- (lists|properties|failures|code) (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)


def main() -> None:
    text = PAGE.read_text(encoding="utf-8")
    filled = filled_in(text)
    if "--check" in sys.argv:
        sys.exit(0 if filled == text else f"'{PAGE}' is not up to date; run python -m experiments.peers.page")
    PAGE.write_text(filled, encoding="utf-8")


def filled_in(text: str) -> str:
    return _BLOCK.sub(lambda found: found[1] + block(found[2], found[3]) + found[4], text)


def block(kind: str, name: str) -> str:
    if kind == "code":
        return f"```python\n{task_source(name)}```\n"
    results = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    tables: dict[str, Callable[[dict[str, Any]], str]] = {
        "lists": lists_table,
        "properties": properties_table,
        "failures": failures_table,
    }
    return tables[kind](results)


def lists_table(results: dict[str, Any]) -> str:
    """Best first, by NDCG@100."""
    head = ["", "model", "recall@20", "NDCG@20", "NDCG@100", "long tail, %"]
    models = [(library, model, facts) for library, model, facts in models_in(results) if "error" not in facts]
    rows = []
    for library, model, facts in sorted(models, key=lambda one: -one[2]["ndcg@100"]):
        measures = [decimal(facts[name], 4) for name in ("recall@20", "ndcg@20", "ndcg@100")]
        rows.append([title(library), model, *measures, f"{100 * facts['long_share@20']:.1f}"])
    return table(head, rows)


def properties_table(results: dict[str, Any]) -> str:
    """A row for each library; where its models differ, all are named."""
    head = ["", "version", "packages", "MB", "lines of code", "20 items, 5 allowed", "20 items, all but 5 excluded",
            "a new user", "model file", "same lists again"]  # fmt: skip
    rows = []
    for library, found in results["libraries"].items():
        models = {model: facts["checks"] for model, facts in found.get("models", {}).items() if "checks" in facts}
        if not models:
            continue
        cells = [per_model(models, name, say) for name, say in SAYINGS.items()]
        size = [found["version"], str(found["packages"]), f"{found['megabytes']:,}", str(found["lines"])]
        again = {model: "yes" if checks["same_again"] else "no" for model, checks in models.items()}
        rows.append([title(library), *size, *cells, together(again)])
    return table(head, rows)


def failures_table(results: dict[str, Any]) -> str:
    rows = []
    for library, found in results["libraries"].items():
        errors = [found["error"]] if "error" in found else []
        errors += [facts["error"] for facts in found.get("models", {}).values() if "error" in facts]
        rows += [[title(library), error.replace("|", "\\|")] for error in dict.fromkeys(errors)]
    return table(["", "why not"], rows)


def list_words(check: dict[str, Any]) -> str:
    listed, wrong = check["listed"], check["forbidden"]
    return f"{listed}" if wrong == 0 else f"{listed}, of which {wrong} should not be there"


def newcomer_words(check: dict[str, Any]) -> str:
    return "yes" if check["already_theirs"] == 0 else f"yes, with {check['already_theirs']} of their own items"


SAYINGS: dict[str, Callable[[dict[str, Any]], str]] = {
    "allowed": list_words,
    "excluded": list_words,
    "newcomer": newcomer_words,
    "saved": lambda check: ", ".join(check["formats"]),
}


def per_model(models: dict[str, Any], name: str, say: Callable[[dict[str, Any]], str]) -> str:
    def words(check: dict[str, Any]) -> str:
        if not check["offered"]:
            return "not offered"
        return "no" if "error" in check else say(check)

    return together({model: words(checks[name]) for model, checks in models.items()})


def together(said: dict[str, str]) -> str:
    """One word for all models, or each with its own."""
    if len(set(said.values())) == 1:
        return next(iter(said.values()))
    return "; ".join(f"{model}: {words}" for model, words in said.items())


def models_in(results: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    found = results["libraries"].items()
    return [(library, model, facts) for library, one in found for model, facts in one.get("models", {}).items()]


def title(library: str) -> str:
    return NAMES.get(library, name_of(library))


def decimal(value: float, digits: int) -> str:
    return f"{value:.{digits}f}".removeprefix("0")


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(cells) + " |\n" for cells in lines)


if __name__ == "__main__":
    main()
