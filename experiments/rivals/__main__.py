"""LightGCN and RecVAE on our own splits, beside milrec's models: python -m experiments.rivals SPLIT --out FILE.

SPLIT is a split folder (`milrec split`). Each model here is written from its paper. It is fitted with every setting of
GRIDS and seed 0; the setting that is best on validation is fitted with seed 1, and only this fit is judged on the test
part, as a fit takes up to half an hour. milrec's own are fitted with their defaults and seeds 1, 2 and 3. FILE is
rewritten after each fit, and a restart goes on from it; what each user got is kept beside it, in FILE.users, for
paired comparisons with MIL. --table prints FILE as a table and fits nothing.
"""

import argparse
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from experiments.judged import MEASURES, PerUser, judged
from experiments.rivals import lightgcn, recvae
from experiments.rivals.patience import Patience
from experiments.rivals.table import table
from experiments.study import Study, rounded, say

import milrec
from milrec.data.splits import Split
from milrec.metrics.comparison import compare_with_first

SEARCH_SEED, SEEDS = 0, (1, 2, 3)
RIVAL_SEEDS = SEEDS[:1]
Fit = Callable[[Split, Any, int], Patience]
GRIDS: dict[str, tuple[Fit, tuple[Any, ...]]] = {
    "LightGCN": (
        lightgcn.fit,
        tuple(lightgcn.Setting(128, 2, decay) for decay in (1e-4, 1e-3, 1e-2)),
    ),
    "RecVAE": (recvae.fit, tuple(recvae.Setting(gamma) for gamma in (0.0035, 0.005, 0.01))),
}
OURS: dict[str, dict[str, Any]] = {
    "MIL": {"loss": "mil"},
    "CE_Point": {"loss": "pointwise"},
    "MIL, larger": {"model": "dae-large", "loss": "mil"},
    "EASE": {"model": "ease"},
}
COMPARED = ("ndcg@100", "recall@1")


class RivalStudy(Study):
    def add(self, fit: dict[str, Any], per_user: PerUser | None = None) -> None:
        if per_user is not None:
            self.users_of(fit["model"], fit["seed"]).parent.mkdir(exist_ok=True)
            np.savez_compressed(self.users_of(fit["model"], fit["seed"]), **per_user)
            fit |= {name: float(np.nanmean(per_user[name])) for name in MEASURES}
        self.found["fits"].append(rounded(fit))
        self.write()
        say(" ".join(f"{key} {value}" for key, value in rounded(fit).items()))

    def users_of(self, model: str, seed: int) -> Path:
        return Path(f"{self.path}.users") / f"{model}-{seed}.npz"

    def chosen(self, model: str) -> dict[str, Any]:
        """The setting that is best on validation."""
        fits = [one for one in self.found["fits"] if one["model"] == model and one["seed"] == SEARCH_SEED]
        return dict(max(fits, key=lambda one: float(one["validation"]))["setting"])

    def compare(self) -> None:
        """Every model less MIL over the same users, each user's value the mean over the seeds."""
        models = list(dict.fromkeys(one["model"] for one in self.found["fits"] if COMPARED[0] in one))
        if "MIL" not in models or len(models) == 1:
            return
        means = {
            measure: {model: self._mean(model, measure) for model in sorted(models, key=lambda one: one != "MIL")}
            for measure in COMPARED
        }
        for measure, pairs in compare_with_first(means).items():
            self.found[f"less MIL, {measure}"] = [
                rounded({"model": one.first, "difference": one.difference, "p": one.p}) for one in pairs
            ]
        self.write()

    def _mean(self, model: str, measure: str) -> np.ndarray[Any, Any]:
        kept = [self.users_of(model, seed) for seed in SEEDS]
        return np.asarray(np.mean([np.load(one)[measure] for one in kept if one.exists()], axis=0))


def fit_rival(study: RivalStudy, split: Split, model: str, setting: Any, seed: int) -> None:
    """One fit, unless it is finished; with a seed that is judged, also on the test part."""
    wanted = {"model": model, "setting": asdict(setting), "seed": seed}
    if study.has(wanted):
        return
    found = GRIDS[model][0](split, setting, seed)
    if found.scores is None:
        raise SystemExit(f"{model} was never better than nothing on validation")
    per_user = judged(found.scores, split, split.test) if seed in RIVAL_SEEDS else None
    study.add(wanted | {"validation": found.best, "epoch": found.epoch}, per_user)


def fit_ours(study: RivalStudy, split: Split, name: str, seed: int) -> None:
    if study.has({"model": name, "seed": seed}):
        return
    model = milrec.fit(split, seed=seed, **OURS[name])
    found = model.evaluate(split, "test")
    validation = model.evaluate(split, "validation").measures["ndcg@100"]
    per_user = {measure: found.per_user[measure] for measure in MEASURES if measure in found.per_user}
    shares = {measure: np.full(found.n_users, found.measures[measure]) for measure in MEASURES}
    one = {"model": name, "setting": {}, "seed": seed, "validation": validation}
    study.add(one, shares | per_user)


def main() -> None:
    parser = argparse.ArgumentParser(description="LightGCN and RecVAE on our own splits, beside milrec's models.")
    parser.add_argument("split", type=Path, help="a split folder")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="JSON of all finished fits")
    parser.add_argument("--only", choices=(*GRIDS, *OURS), action="append", help="only this model; may be repeated")
    parser.add_argument("--table", action="store_true", help="print the table of FILE and fit nothing")
    options = parser.parse_args()
    study = RivalStudy.at(options.out)
    if not options.table:
        torch.set_num_threads(1)
        split = Split.load(options.split)
        study.found["data"] = split.facts()
        wanted = options.only or [*OURS, *GRIDS]
        for name in (one for one in wanted if one in OURS):
            for seed in SEEDS if name != "EASE" else SEEDS[:1]:  # EASE has no chance in it
                fit_ours(study, split, name, seed)
        for name in (one for one in wanted if one in GRIDS):
            grid = GRIDS[name][1]
            for setting in grid:
                fit_rival(study, split, name, setting, SEARCH_SEED)
            best = study.chosen(name)
            for seed in RIVAL_SEEDS:
                fit_rival(study, split, name, next(one for one in grid if asdict(one) == best), seed)
        study.compare()
    say(table(study.found))


if __name__ == "__main__":
    main()
