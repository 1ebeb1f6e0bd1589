"""An example or two of every command, as one would type them; a test runs them."""

from __future__ import annotations

from rich.markup import escape

EXAMPLES: dict[str, tuple[str, ...]] = {
    "demo": ("milrec demo --out milrec-demo",),
    "download": ("milrec download ml-20m --out archives",),
    "simulate": ("milrec simulate --out data --users 500 --items 300",),
    "prepare": (
        "milrec prepare plays.csv --out plays",
        "milrec prepare ratings.csv --out ratings --value rating --adopt-min 4 --titles titles.csv",
    ),
    "split": (
        "milrec split data --out split",
        "milrec split data --out strangers --protocol users",
    ),
    "fit": (
        "milrec fit split --out model",
        "milrec fit split --out ease --model ease --set regularization=200",
        "milrec fit split --out small --loss multinomial --set n_factors=32 --set epochs=5",
        "milrec fit split --out dislikes --predict rejections",
    ),
    "evaluate": (
        "milrec evaluate model split",
        "milrec evaluate model split --long-share 0.3 --json measures.json",
    ),
    "recommend": (
        "milrec recommend model --user u001 --user u002 -n 10",
        "milrec recommend model --adopted i014,i016 --reasons 2",
        "milrec recommend model --all --long-share 0.3 --out lists.parquet",
        "milrec recommend model --user u001 --dislikes dislikes --dislike-cost 0.5",
    ),
    "similar": ("milrec similar model i014 -n 5",),
    "items": ("milrec items model --search 'golden gard'",),
    "export": ("milrec export model --out model.onnx",),
    "serve": (
        "milrec serve model",
        "milrec serve mil=model ease=ease --port 8080",
    ),
    "serve-demo": ("milrec serve-demo --port 8080",),
    "experiment": (
        "milrec experiment recipe.toml --out run --estimate",
        "milrec experiment recipe.toml --out run",
    ),
    "paper": ("milrec paper ml-20m --source ml-20m.zip --out paper-run --estimate",),
    "report": ("milrec report run --out report.html",),
    "models": ("milrec models",),
    "show": ("milrec show model",),
}


def epilog(command: str) -> str:
    """The examples of a command, as `--help` shows them."""
    lines = EXAMPLES[command]
    heading = "[bold]Example[/]" if len(lines) == 1 else "[bold]Examples[/]"
    return "\n".join([heading, *map(escape, lines)])
