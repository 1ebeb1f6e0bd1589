"""Are similar items alike?  python -m experiments.similar FILE WORK NAME=DATA …

For each data folder, or each table that `milrec.read` reads, all built-in models are fitted with their default settings
on the split with seed 0, and their lists of 20 similar items are judged on the test part (see docs/evaluation.md):
as `milrec similar` makes them (blend), by the model alone (own, for models saved without their users), and as it made
them in 0.1.0 (before: by the cosine of factors, or by weight). The bar is the cosine of co-occurrence, shrunk by
c / (c + shrink), the shrink chosen on validation. Besides 1/√n and 1 (plain), a pair may count 1/n (inverse). WORK
keeps splits and models, FILE (JSON) the figures; what either holds is not done again.
"""

import json
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from experiments.similar_table import RATE, N, similar_table

import milrec
from milrec.data.splits import HeldOut
from milrec.evaluation.similar import Similar, judge_similar
from milrec.lists.nearness import CoAdoption, Nearness
from milrec.models.item_to_item import ItemToItem, SparseItemToItem
from milrec.storage import write_json

MODELS: dict[str, dict[str, str]] = {
    "mil": {},
    "pointwise": {"loss": "pointwise"},
    "multinomial": {"loss": "multinomial"},
    "mf": {"model": "mf"},
    "wmf": {"model": "wmf"},
    "ease": {"model": "ease"},
    "ease-sparse": {"model": "ease-sparse"},
    "slim": {"model": "slim"},
    "vae": {"model": "vae"},
    "cdae": {"model": "cdae"},
}
SHRINKS = (1, 3, 10, 30, 100, 300, 1000)

Values = Callable[[int], npt.NDArray[np.floating[Any]]]


def main() -> None:
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    file, work = Path(sys.argv[1]), Path(sys.argv[2])
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    for argument in sys.argv[3:]:
        name, _, place = argument.partition("=")
        split = split_of(work / f"{name}-split", place)
        rows = found.setdefault(name, {})
        if "bar" not in rows:
            rows.update(baselines(split))
            write_json(file, found)
        for model, settings in MODELS.items():
            if model not in rows:
                rows[model] = judged(fitted(work / f"{name}-{model}", split, settings), split)
                write_json(file, found)
        sys.stdout.write(similar_table(name, file))


def split_of(folder: Path, place: str) -> milrec.Split:
    if not folder.exists():
        kept = Path(place, "milrec.json").exists()
        data = milrec.Interactions.load(place) if kept else milrec.read(place)
        milrec.split_interactions(data, seed=0).save(folder)
    return milrec.Split.load(folder)


def fitted(folder: Path, split: milrec.Split, settings: dict[str, str]) -> milrec.Recommender:
    if not folder.exists():
        milrec.fit(split, **settings).save(folder)
    return milrec.load(folder)


def baselines(split: milrec.Split) -> dict[str, Any]:
    """The same best sellers for every item, and co-occurrence with the shrink that is best on validation."""
    popularity = split.train.popularity()
    together = CoAdoption(split.train.adopted)

    def cosine(shrink: float) -> Values:
        def values(item: int) -> npt.NDArray[np.float64]:
            counts = together.with_item(item).counts.astype(np.float64)
            return counts / np.sqrt(popularity) * counts / np.maximum(counts + shrink, 1)

        return values

    rates = {shrink: rates_of(largest(cosine(shrink)), split, split.validation)[RATE] for shrink in SHRINKS}
    best = max(rates, key=lambda shrink: rates[shrink])
    return {
        "popular": rates_of(largest(lambda item: popularity.astype(np.float64)), split, split.test),
        "bar": {"shrink": best, **rates_of(largest(cosine(best)), split, split.test)},
    }


def judged(recommender: milrec.Recommender, split: milrec.Split) -> dict[str, Any]:
    likeness = recommender.fitted.model.likeness()
    assert likeness is not None
    own = Nearness(likeness, split.train.popularity(), None)
    blend = Nearness(likeness, split.train.popularity(), CoAdoption(split.train.adopted))
    return {
        "blend": rates_of(lambda item: blend.nearest(item, N).items, split, split.test),
        "own": rates_of(lambda item: own.nearest(item, N).items, split, split.test),
        "before": rates_of(largest(before(recommender, likeness)), split, split.test),
    }


def before(recommender: milrec.Recommender, likeness: Values) -> Values:
    """Cosines of factors, or weights, as in 0.1.0."""
    model = recommender.fitted.model
    if isinstance(model, ItemToItem | SparseItemToItem):
        return model.weights
    assert model.latent_form is not None
    lengths = np.maximum(model.latent_form.decoder_weight.detach().double().norm(dim=1).numpy(), 1e-30)
    return lambda item: likeness(item) / lengths


def largest(values: Values) -> Similar:
    """The 20 items with the largest values above 0, equals in item order."""

    def best(item: int) -> npt.NDArray[np.int64]:
        own = np.array(values(item), dtype=np.float64)
        own[item] = 0
        first = np.argsort(-own, kind="stable")[:N]
        return first[own[first] > 0]

    return best


def rates_of(similar: Similar, split: milrec.Split, part: HeldOut) -> dict[str, Any]:
    """Hit rates with five digits: pairs count 1/√n, 1 (plain) and 1/n (inverse)."""
    lists, popularity = cache(similar), split.train.popularity()
    found = judge_similar(lists, part, popularity, N).as_json()
    found[f"similar_inverse_hit_rate@{N}"] = judge_similar(lists, part, popularity**2, N).measures[RATE]  # 1/√n²
    return dict(json.loads(json.dumps(found), parse_float=lambda text: float(f"{float(text):.5g}")))


if __name__ == "__main__":
    main()
