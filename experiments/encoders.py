"""Other autoencoders than milrec's under MIL, tried out: python -m experiments.encoders SPLIT --out FILE.

SPLIT is a split folder (`milrec split`). Each variant starts as milrec's default does, in the plain PyTorch loop of
`experiments.polynomials`, with 100 factors, and is fitted with several settings and seed 0. Only validation is looked
at: the study says which ideas are worth a setting. FILE is rewritten after each fit, and a restart resumes from it.
--table prints FILE as a table and fits nothing.
"""

import argparse
import math
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from experiments.polynomials import (
    LOSSES,
    MIL,
    Autoencoder,
    Data,
    Setting,
    fit,
    measured,
)
from experiments.study import Study, plain, rounded, say
from torch import Tensor, nn
from torch.nn.functional import normalize

from milrec.data.splits import Split

MINUTES = 1  # of a fit, about, on one core
RATES: tuple[Setting, ...] = ((5e-3, 5e-6), (2e-3, 5e-6), (5e-3, 1e-4))
Build = Callable[[Data], Autoencoder]


class ItemPath(Autoencoder):
    """Adds v·B to the logits, B from item to item with an empty diagonal: EASE's model, learnt under the same loss."""

    def __init__(self, data: Data, pace: float) -> None:
        super().__init__(data.start)
        self.pace = pace  # Adam moves all weights alike; those of B, most of which are 0, should move less
        self.items = nn.Parameter(torch.zeros(len(self.bias), len(self.bias)))

    def forward(self, inputs: Tensor) -> Tensor:
        own = inputs * torch.diagonal(self.items)
        return super().forward(inputs) + self.pace * (inputs @ self.items - own)

    def decay(self) -> Tensor:
        return super().decay() + self.items.square().sum()


class TwoLayers(Autoencoder):
    """Adds U·tanh(V·v) to the latents; U starts at 0."""

    def __init__(self, data: Data, n_hidden: int) -> None:
        super().__init__(data.start)
        self.first = nn.Parameter(torch.randn(len(self.bias), n_hidden) / math.sqrt(n_hidden))
        self.second = nn.Parameter(torch.zeros(n_hidden, len(self.latent_bias)))

    def forward(self, inputs: Tensor) -> Tensor:
        latent = inputs @ self.encoder + self.latent_bias + torch.tanh(inputs @ self.first) @ self.second
        return latent @ self.decoder.T + self.bias

    def decay(self) -> Tensor:
        return super().decay() + self.first.square().sum() + self.second.square().sum()


class Gated(Autoencoder):
    """Multiplies the latents by 2·sigmoid(G·v), which starts at 1."""

    def __init__(self, data: Data) -> None:
        super().__init__(data.start)
        self.gate = nn.Parameter(torch.zeros_like(self.encoder))

    def forward(self, inputs: Tensor) -> Tensor:
        latent = (inputs @ self.encoder + self.latent_bias) * 2 * torch.sigmoid(inputs @ self.gate)
        return latent @ self.decoder.T + self.bias

    def decay(self) -> Tensor:
        return super().decay() + self.gate.square().sum()


class Cosine(Autoencoder):
    """logits = T·cos(latents, W'_i) + b', with a fixed temperature T."""

    def __init__(self, data: Data, temperature: float) -> None:
        super().__init__(data.start)
        self.temperature = temperature

    def forward(self, inputs: Tensor) -> Tensor:
        latent = normalize(inputs @ self.encoder + self.latent_bias, dim=1)
        return self.temperature * latent @ normalize(self.decoder, dim=1).T + self.bias


class OutputScale(Autoencoder):
    """Each row of the decoder enters times (popularity/mean)^-α; the logits start where they would without."""

    def __init__(self, data: Data, exponent: float) -> None:
        popularity = (data.known > 0).sum(dim=0).clamp(min=1).float()
        scale = (popularity / popularity.mean()).pow(-exponent)[:, None]
        super().__init__((data.start[0], data.start[1] / scale))
        self.register_buffer("scale", scale)

    def forward(self, inputs: Tensor) -> Tensor:
        latent = inputs @ self.encoder + self.latent_bias
        return latent @ (self.decoder * self.scale).T + self.bias


class PopularDecay(Autoencoder):
    """Rows of the encoder, of the decoder or of both decay by their items' shares of all adopted pairs."""

    def __init__(self, data: Data, encoder: float, decoder: float) -> None:
        super().__init__(data.start)
        popularity = (data.known > 0).sum(dim=0).float()
        self.register_buffer("share", (popularity / popularity.sum())[:, None])
        self.of_encoder, self.of_decoder = encoder, decoder

    def decay(self) -> Tensor:
        """The loop multiplies it by λ, here 1. A weight that does not decay by popularity has the plain 5e-6."""
        return self._decayed(self.encoder, self.of_encoder) + self._decayed(self.decoder, self.of_decoder)

    def _decayed(self, weight: Tensor, by_share: float) -> Tensor:
        return (by_share * self.share * weight.square() if by_share else 5e-6 * weight.square()).sum()


def _plainly(build: Build) -> list[tuple[str, Build, Setting]]:
    """A variant with each of the rates and decays."""
    return [(f"rate {plain(rate)}, λ {plain(decay)}", build, (rate, decay)) for rate, decay in RATES]


VARIANTS: dict[str, list[tuple[str, Build, Setting]]] = {
    "linear encoder (the default)": _plainly(lambda data: Autoencoder(data.start)),
    "item-to-item path beside it": [
        (f"pace {pace}, λ {plain(decay)}", partial(ItemPath, pace=pace), (5e-3, decay))
        for pace, decay in ((0.2, 5e-6), (0.02, 5e-6), (0.2, 1e-4))
    ],
    "two layers": _plainly(partial(TwoLayers, n_hidden=200)),
    "gated": _plainly(Gated),
    "cosine": [
        (f"temperature {temperature}", partial(Cosine, temperature=temperature), (5e-3, 5e-6))
        for temperature in (5, 10, 20)
    ],
    "output exponent": [
        (f"α = {exponent}", partial(OutputScale, exponent=exponent), (5e-3, 5e-6)) for exponent in (-0.25, 0.25, 0.5)
    ],
    "popular decay": [("λ .35", partial(PopularDecay, encoder=0.35, decoder=0.35), (5e-3, 1.0))],
    "popular decay of the encoder alone": [("λ .35", partial(PopularDecay, encoder=0.35, decoder=0), (5e-3, 1.0))],
    "popular decay of the decoder alone": [("λ .35", partial(PopularDecay, encoder=0, decoder=0.35), (5e-3, 1.0))],
}


def run(study: Study, data: Data, variant: str, place: int) -> None:
    """One fit, unless it is finished."""
    named, build, setting = VARIANTS[variant][place]
    wanted = {"variant": variant, "setting": named}
    if study.has(wanted):
        return
    started = time.monotonic()
    model, validation, step = fit(data, LOSSES[MIL], setting, 0, build)
    lists = measured(model, data, data.split.validation)
    one: dict[str, Any] = wanted | {"validation": validation, "step": step, "long_share": lists["long_share"].mean()}
    study.found["fits"].append(rounded(one | {"seconds": time.monotonic() - started}))
    study.write()
    say(f"{variant}, {named}: validation {validation:.4f} at step {step}, {time.monotonic() - started:.0f} s")


def table(found: dict[str, Any]) -> str:
    """Markdown: each variant with the setting that is best on validation."""
    lines = ["| | best setting | step | validation NDCG@100 | long % of the top 200 |", "|---" * 5 + "|"]
    for variant in VARIANTS:
        fits = [one for one in found["fits"] if one["variant"] == variant]
        if fits:
            best = max(fits, key=lambda one: one["validation"])
            measures = f"{best['validation']:.4f} | {best['long_share']:.1f}"
            lines.append(f"| {variant} | {best['setting']}, of {len(fits)} | {best['step']} | {measures} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="Other autoencoders than milrec's under MIL, tried out.")
    parser.add_argument("split", type=Path, help="a split folder")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="JSON of all finished fits")
    parser.add_argument("--only", choices=VARIANTS, action="append", help="only this variant; may be repeated")
    parser.add_argument("--table", action="store_true", help="print the table of FILE and fit nothing")
    options = parser.parse_args()
    study = Study.at(options.out)
    if not options.table:
        torch.set_num_threads(1)
        wanted = options.only or list(VARIANTS)
        n_fits = sum(len(VARIANTS[variant]) for variant in wanted)
        say(f"{n_fits} fits × {MINUTES} minutes; {len(study.found['fits'])} are finished")
        split = Split.load(options.split)
        data = Data.of(split)
        study.found["data"] = split.facts()
        for variant in wanted:
            for place in range(len(VARIANTS[variant])):
                run(study, data, variant, place)
    say(table(study.found))


if __name__ == "__main__":
    main()
