"""Other missing terms than MIL's, tried out: python -m experiments.polynomials SPLIT --out FILE.

SPLIT is a split folder (`milrec split`). Each missing term of docs/theory.md is fitted in a plain PyTorch loop: a
denoising autoencoder as milrec's default, but with 100 factors. All polynomials tell the same probabilities apart (see
`Polynomial`). Learning rate and weight decay are chosen on validation with seed 0; seeds 1, 2 and 3 are then fitted
with them, and only these are judged on the test part, once. FILE is rewritten after each fit, and a restart resumes
from it; what each user got is kept beside it, in FILE.users, for paired comparisons with MIL. --table prints FILE as a
table and fits nothing.
"""

import argparse
import copy
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from experiments.judged import judged
from experiments.study import Study, p_text, plain, rounded, say
from scipy.sparse.linalg import svds
from torch import Tensor, nn
from torch.nn.functional import dropout, softplus

from milrec.data.splits import HeldOut, Split
from milrec.metrics.comparison import compare, holm
from milrec.torch import expected_weight, n_missing_drawn

CAP = 20 * 1e6 * 0.5**19  # odds over w that MIL's default takes to q = 1: 38.1
SETTINGS = ((5e-3, 5e-6), (2e-3, 5e-6), (5e-3, 1e-4))  # peak of the learning rate, and λ
SEARCH_SEED, SEEDS = 0, (1, 2, 3)
N_FACTORS, TARGET_FACTOR, CORRUPTION = 100, 50, 0.5
BATCH, WARMUP, AVERAGING, AVERAGE_EVERY = 100, 200, 0.15, 10
VALIDATE_EVERY, PATIENCE, LAST, VALIDATION_USERS = 50, 3, 2000, 2500
MINUTES = 0.5  # of a fit, about, on one core

Setting = tuple[float, float]
Terms = tuple[Tensor, Tensor]  # the loss of each item if it is adopted, and if it is missing


@dataclass(frozen=True)
class Polynomial:
    """Adopted 1-q; missing A·|q-c|^n, or one-sided A·max(0, q-c)^n.

    At rest odds = n·w·A·(q-c)^(n-1), which reaches q = 1 at n·w·A·(1-c)^(n-1). A is such that this is CAP·w, whatever
    the centre and the exponent.
    """

    centre: float
    exponent: int
    one_sided: bool = False

    def __call__(self, logits: Tensor) -> Terms:
        q, width = torch.sigmoid(logits), 1 - self.centre
        distance = (q - self.centre) / width
        distance = distance.relu() if self.one_sided else distance.abs()
        return 1 - q, CAP * width / self.exponent * distance.pow(self.exponent)

    @property
    def weight(self) -> float:
        """A"""
        return CAP / (self.exponent * (1 - self.centre) ** (self.exponent - 1))


@dataclass(frozen=True)
class Exponential:
    """Adopted 1-q; missing (CAP/rate)·e^(rate·(q-1)): q is linear in ln(odds), the limit of steep polynomials."""

    rate: float

    def __call__(self, logits: Tensor) -> Terms:
        q = torch.sigmoid(logits)
        return 1 - q, CAP / self.rate * torch.exp(self.rate * (q - 1))


def linear_logistic(logits: Tensor) -> Terms:
    """Adopted 1-q, as in MIL; missing -ln(1-q)-q, which gives cross-entropy's link, odds = w·q/(1-q)."""
    q = torch.sigmoid(logits)
    return 1 - q, softplus(logits) - q


def cross_entropy(logits: Tensor) -> Terms:
    """Adopted -ln q; missing -ln(1-q)."""
    return softplus(-logits), softplus(logits)


LOSSES: dict[str, Callable[[Tensor], Terms]] = {
    "MIL: c = ½, n = 20": Polynomial(0.5, 20),
    "c = ½, n = 20, one-sided": Polynomial(0.5, 20, one_sided=True),
    "c = .4, n = 20": Polynomial(0.4, 20),
    "c = .3, n = 20": Polynomial(0.3, 20),
    "c = ½, n = 4": Polynomial(0.5, 4),
    "c = ½, n = 5, one-sided": Polynomial(0.5, 5, one_sided=True),
    "exponential, rate 20": Exponential(20),
    "1-q and -ln(1-q)-q": linear_logistic,
    "cross-entropy": cross_entropy,
}
MIL = "MIL: c = ½, n = 20"


class Autoencoder(nn.Module):
    """logits = W'·(W·v + b) + b', v the user's adopted items scaled to length 1 and, in a fit, half of them hidden."""

    def __init__(self, start: tuple[Tensor, Tensor]) -> None:
        super().__init__()
        self.encoder, self.decoder = (nn.Parameter(weight.clone()) for weight in start)  # (n_items, n_factors) each
        self.latent_bias = nn.Parameter(torch.zeros(self.encoder.shape[1]))
        self.bias = nn.Parameter(torch.zeros(len(self.encoder)))

    def forward(self, inputs: Tensor) -> Tensor:
        return (inputs @ self.encoder + self.latent_bias) @ self.decoder.T + self.bias  # (n_users, n_items)

    def decay(self) -> Tensor:
        return self.encoder.square().sum() + self.decoder.square().sum()


@dataclass(frozen=True)
class Data:
    """A split, spelled out."""

    split: Split
    known: Tensor  # (n_users, n_items) 1 where adopted
    inputs: Tensor  # (n_users, n_items) rows of length 1
    n_drawn: int  # missing items of a user's target set
    start: tuple[Tensor, Tensor] = field(repr=False)  # encoder and decoder

    @classmethod
    def of(cls, split: Split) -> "Data":
        known = torch.from_numpy((split.train.adopted.toarray() > 0).astype(np.int8))
        n_adopted = known.sum(dim=1)
        inputs = known / n_adopted.clamp(min=1).sqrt()[:, None]
        return cls(split, known, inputs, n_missing_drawn(n_adopted, TARGET_FACTOR), directions(inputs))


def directions(inputs: Tensor) -> tuple[Tensor, Tensor]:
    """Weights that list as a truncated SVD does, scaled so that adopted items have a mean logit of 0.05.

    The start of milrec's own fits (`milrec.training.initial`).
    """
    root = (inputs > 0).sum(dim=0).clamp(min=1).sqrt()  # (n_items,)
    _, strengths, vectors = svds((inputs / root).numpy().astype(np.float64), k=N_FACTORS, v0=np.ones(len(root)))
    basis = torch.from_numpy(vectors.T.copy()).float()  # (n_items, n_factors)
    encoder, decoder = basis * torch.from_numpy(strengths.copy()).float() / root[:, None], basis * root[:, None]
    logits = (inputs @ encoder @ decoder.T)[inputs > 0]
    scale, balance = (0.05 / logits.mean()).sqrt(), (decoder.norm() / encoder.norm()).sqrt()
    return encoder * scale * balance, decoder * scale / balance


def fit(
    data: Data,
    loss: Callable[[Tensor], Terms],
    setting: Setting,
    seed: int,
    build: Callable[[Data], Autoencoder] = lambda data: Autoencoder(data.start),
) -> tuple[Autoencoder, float, int]:
    """The weights with the best NDCG@100 on validation, that measure, and their step."""
    peak, decay = setting
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)  # of dropout, which takes no generator
    model = build(data)
    averaged, best = copy.deepcopy(model), (copy.deepcopy(model), -1.0, 0)
    optimiser = torch.optim.Adam(model.parameters())
    learners = (data.known.sum(dim=1) > 1).nonzero()[:, 0]
    waiting = torch.empty(0, dtype=torch.int64)
    for step in range(1, LAST + 1):
        if len(waiting) < BATCH:
            waiting = learners[torch.randperm(len(learners), generator=generator)]
        users, waiting = waiting[:BATCH], waiting[BATCH:]
        optimiser.param_groups[0]["lr"] = peak * min(step / WARMUP, math.sqrt(WARMUP / step))
        known = data.known[users]
        adopted, missing = loss(model(dropout(data.inputs[users], CORRUPTION)))
        terms = torch.where(known > 0, adopted, expected_weight(known, data.n_drawn) * missing)
        value = terms.sum() / len(users) + decay * model.decay()
        optimiser.zero_grad()
        value.backward()
        optimiser.step()
        if step % AVERAGE_EVERY == 0:
            share = min(1.0, AVERAGE_EVERY / (AVERAGING * step))
            for mean, own in zip(averaged.parameters(), model.parameters(), strict=True):
                mean.data.lerp_(own.data, share)
        if step % VALIDATE_EVERY == 0:
            measure = float(measured(averaged, data, data.split.validation, VALIDATION_USERS)["ndcg@100"].mean())
            if measure > best[1]:
                best = copy.deepcopy(averaged), measure, step
            elif step - max(best[2], WARMUP) >= PATIENCE * VALIDATE_EVERY:
                break
    return best


def measured(model: Autoencoder, data: Data, part: HeldOut, most: int | None = None) -> dict[str, np.ndarray]:
    """NDCG@100, recall@1 and the percentage of the list in the long tail, for each user with held-out items."""
    found = judged(lambda users: model(data.inputs[torch.from_numpy(users)]), data.split, part, most)
    return {"ndcg@100": found["ndcg@100"], "recall@1": found["recall@1"], "long_share": found["long_share@200"]}


@torch.no_grad()
def spread(model: Autoencoder, data: Data, centre: float) -> dict[str, float]:
    """Where predicted preferences lie, for a sample of users: quantiles, and the share below `centre`."""
    users = torch.randperm(len(data.inputs), generator=torch.Generator().manual_seed(0))[:500]
    q = torch.sigmoid(model(data.inputs[users])).numpy()
    low, middle, high = np.quantile(q, [0.01, 0.5, 0.99])
    return {"q1": float(low), "q50": float(middle), "q99": float(high), "below_centre": float((q < centre).mean())}


class PolynomialStudy(Study):
    def users_of(self, loss: str, seed: int) -> Path:
        return Path(f"{self.path}.users") / f"{list(LOSSES).index(loss)}-{seed}.npz"

    def run(self, data: Data, loss: str, setting: Setting, seed: int) -> None:
        """One fit, unless it is finished; with a seed that is judged, also on the test part."""
        wanted: dict[str, Any] = {"loss": loss, "rate": setting[0], "decay": setting[1], "seed": seed}
        if self.has(wanted):
            return
        started = time.monotonic()
        model, validation, step = fit(data, LOSSES[loss], setting, seed)
        one = wanted | {"validation": validation, "step": step}
        if seed in SEEDS:
            per_user = measured(model, data, data.split.test)
            self.users_of(loss, seed).parent.mkdir(exist_ok=True)
            np.savez_compressed(self.users_of(loss, seed), **per_user)
            centre = getattr(LOSSES[loss], "centre", 0.5)
            one |= {name: float(np.nanmean(values)) for name, values in per_user.items()} | spread(model, data, centre)
        seconds = round(time.monotonic() - started, 1)
        self.found["fits"].append(rounded(one) | {"seconds": seconds})
        self.write()
        say(f"{loss}, {setting}, seed {seed}: validation {validation:.4f} at step {step}, {seconds} s")

    def chosen(self, loss: str) -> Setting:
        """By validation."""
        fits = [one for one in self.found["fits"] if one["loss"] == loss and one["seed"] == SEARCH_SEED]
        best = max(fits, key=lambda one: one["validation"])
        return best["rate"], best["decay"]

    def compare(self) -> None:
        """Each loss against MIL over the same users, each user's value the mean over the seeds."""
        for measure in ("ndcg@100", "recall@1", "long_share"):
            means = {
                loss: np.mean([np.load(self.users_of(loss, seed))[measure] for seed in SEEDS], axis=0)
                for loss in LOSSES
            }
            pairs = [compare({loss: means[loss], MIL: means[MIL]})[0] for loss in LOSSES if loss != MIL]
            self.found[f"less MIL, {measure}"] = [
                rounded({"loss": one.first, "difference": one.difference, "low": one.low, "high": one.high, "p": p})
                for one, p in zip(pairs, holm([one.p for one in pairs]), strict=True)
            ]
        self.write()


def table(found: dict[str, Any]) -> str:
    """Markdown: the mean over the seeds and its standard deviation, and the difference from MIL."""
    lines = ["| | A | rate | λ | step | NDCG@100 | recall@1 | long tail, % | less MIL, NDCG@100 |", "|---" * 9 + "|"]
    less = {one["loss"]: one for one in found["less MIL, ndcg@100"]}
    for name, loss in LOSSES.items():
        fits = [one for one in found["fits"] if one["loss"] == name and one["seed"] in SEEDS]
        weight = plain(loss.weight) if isinstance(loss, Polynomial) else "–"
        steps = round(float(np.mean([one["step"] for one in fits])))
        cells = [name, weight, plain(fits[0]["rate"]), plain(fits[0]["decay"]), str(steps)]
        for measure, digits in (("ndcg@100", 4), ("recall@1", 4), ("long_share", 1)):
            values = [one[measure] for one in fits]
            cells.append(f"{np.mean(values):.{digits}f} ± {np.std(values, ddof=1):.{digits}f}")
        cells.append(f"{less[name]['difference']:+.4f}, {p_text(less[name]['p'])}" if name in less else "–")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="Other missing terms than MIL's, tried out.")
    parser.add_argument("split", type=Path, help="a split folder")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="JSON of all finished fits")
    parser.add_argument("--table", action="store_true", help="print the table of FILE and fit nothing")
    options = parser.parse_args()
    study = PolynomialStudy.at(options.out)
    if not options.table:
        torch.set_num_threads(1)
        n_fits = len(LOSSES) * (len(SETTINGS) + len(SEEDS))
        say(f"{n_fits} fits × {MINUTES:g} minutes; {len(study.found['fits'])} are finished")
        split = Split.load(options.split)
        data = Data.of(split)
        study.found |= {"data": split.facts(), "n_drawn": data.n_drawn}
        for loss in LOSSES:
            for setting in SETTINGS:
                study.run(data, loss, setting, SEARCH_SEED)
            for seed in SEEDS:
                study.run(data, loss, study.chosen(loss), seed)
        study.compare()
    say(table(study.found))


if __name__ == "__main__":
    main()
