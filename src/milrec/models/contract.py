"""The contract: what a model must do. Steps, lists, reasons, folders and the server rely on nothing else.

    Model             users → logits; which items are alike; what speaks for a listed item
    └── LatentModel   users → latents, and the decoder that all of these share: logits = W'·h + b'
        └── GradientModel   latents as a fit computes them, so that the fused loss can drive the decoder

A model of your own is a GradientModel around your encoder: see `milrec.models.encoders` and docs/own-encoder.md.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from milrec.kernels.products import steady_product
from milrec.kernels.ranking import add_bias, row_products
from milrec.kernels.sparse import Rows
from milrec.models.formula import Formula
from milrec.models.inputs import Reader, Users
from milrec.models.settings import GradientModelSettings, ModelSettings

ROWS = 64  # users whose logits are computed together; fewer are padded, so that every product has one shape
_COLUMNS = 1024  # items per matrix product
_SHORTEST = 1e-30  # factors of this length are as good as 0

Parts = npt.NDArray[np.float64]  # (n_adopted, n_listed) what each adopted item adds to the logit of each listed one
Latents = npt.NDArray[np.float32]  # (1 + n_adopted, width)
Encode = Callable[[Users], Tensor]  # users → their latents, (n_users, width)
Likeness = Callable[[int], npt.NDArray[np.float32]]  # an item → how alike all items are, (n_items,); 0 or less: not

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "linear": lambda values: values,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "relu": torch.relu,
}


class Model(nn.Module):
    """Anything that computes logits for users."""

    settings: ModelSettings
    knows_users: ClassVar[bool] = False  # whether it knows more about known users than the items they adopted
    fixes_users: ClassVar[bool] = False  # whether what it knows about a known user ignores the items given with them
    folds_in: ClassVar[bool] = False  # whether latents of new users are found by minimising the fit's own loss
    needs_adopted: ClassVar[bool] = False  # whether all items have the same logit for a user who adopted nothing
    most_explained: ClassVar[int | None] = None  # for more adopted items than this, reasons would take minutes

    @classmethod
    @abstractmethod
    def build(cls, settings: Any, n_users: int, n_items: int) -> Self:
        """A model of the right shape; its weights do not mean anything yet."""

    @property
    @abstractmethod
    def n_items(self) -> int: ...

    @abstractmethod
    def write_logits(self, users: Users, out: Tensor) -> None:
        """Write the logits of at most `ROWS` users into the first rows of `out`, no row of which depends on another."""

    @abstractmethod
    def parts(self, user: Users, items: npt.NDArray[np.int64], encode: Encode | None = None) -> Parts:
        """What each adopted item of one user adds to the logit of each of these items.

        `encode` replaces the model's own encoder when new users are folded in.
        """

    @property
    def latent_form(self) -> LatentModel | None:
        """Itself, if its logits are a product of latents and weights."""
        return None

    def meet(self, popularity: npt.NDArray[np.int64]) -> None:
        """How many users adopted each item: known before the first step of a fit, and once a folder has been read."""

    def likeness(self) -> Likeness | None:
        """How alike its items are; None if it cannot say."""
        return None

    def formula(self) -> Formula | None:
        """Its logits as a few plain steps, for other tools; None if it has no such form."""
        return None

    def tensors(self) -> dict[str, Tensor]:
        """Everything that a folder must hold, by name: weights, and buffers if there are any."""
        return {name: value.detach() for name, value in self.state_dict().items()}

    def saved_tensors(self) -> dict[str, Tensor]:
        """The same for a file: on the CPU, each in memory of its own (weights may be tied)."""
        kept: dict[str, Tensor] = {}
        places: set[int] = set()
        for name, value in self.tensors().items():
            plain = value.cpu().contiguous()
            kept[name] = plain.clone() if plain.data_ptr() in places else plain
            places.add(plain.data_ptr())
        return kept

    def make_room(self, found: Mapping[str, Tensor]) -> None:
        """Before tensors are read from a file: those whose size a fit decides get the size that they have there."""

    def flaw(self) -> str | None:
        """What is impossible about its tensors, if anything: they may have been read from a forged file."""
        return None


class LatentModel(Model):
    """A model whose logits are a product of latents and the decoder's weights."""

    decoder_weight: nn.Parameter  # (n_items, width)
    decoder_bias: nn.Parameter | None  # (n_items,)

    @property
    def latent_form(self) -> LatentModel:
        return self

    @property
    def n_items(self) -> int:
        return len(self.decoder_weight)

    @property
    def width(self) -> int:
        return self.decoder_weight.shape[1]

    @abstractmethod
    def latents(self, users: Users) -> Tensor:
        """The latents of at most `ROWS` users, padded to (ROWS, width); no row depends on its neighbours."""

    def parts(self, user: Users, items: npt.NDArray[np.int64], encode: Encode | None = None) -> Parts:
        """What the logit of each of these items loses without each adopted item."""
        latents = self.latents_without_each(user, encode or self._encode)
        weight = taken(self.decoder_weight, items)  # (n_listed, width)
        parts: Parts = (latents[0] - latents[1:]).astype(np.float64) @ weight.T
        return parts

    def latents_without_each(self, user: Users, encode: Encode) -> Latents:
        """Latents of one user, and then without each adopted item, as of a user the model has not met."""
        return np.concatenate([encode(users).cpu().numpy() for users in user.without_each(ROWS)])

    def _encode(self, users: Users) -> Tensor:
        return self.latents(users)[: users.n_users]

    def write_logits(self, users: Users, out: Tensor) -> None:
        self.write_decoded(self.latents(users), out)

    def write_decoded(self, latents: Tensor, out: Tensor) -> None:
        """logits = W'·h + b' for a block of latents (n, width): products in which no row depends on its place."""
        weight = self.decoder_weight.detach()
        for start in range(0, len(weight), _COLUMNS):
            part = weight[start : start + _COLUMNS]
            steady_product(latents, part.T, out=out[:, start : start + len(part)])
        if self.decoder_bias is not None:
            add_bias(out.numpy(), self.decoder_bias.detach().cpu().numpy())

    def likeness(self) -> Likeness | None:
        """Products of the items' factors: long ones have more adopters behind them, which a cosine would not see."""
        weight = self.decoder_weight.detach().cpu().double()
        longest = weight.norm(dim=1).max().clamp(min=_SHORTEST)
        factors = (weight / longest).float().numpy()  # (n_items, width)

        def products(item: int) -> npt.NDArray[np.float32]:
            values = np.empty((1, len(factors)), dtype=np.float32)
            row_products(factors[item : item + 1], factors, values)
            row: npt.NDArray[np.float32] = values[0]
            return row

        return products


class GradientModel(LatentModel):
    """A model that is fitted by gradient descent: an encoder in front of the shared decoder."""

    settings: GradientModelSettings
    reader: Reader
    first_layer: ClassVar[str | None] = None  # the weight that has a row for each column that the encoder reads
    draws: ClassVar[bool] = False  # whether it draws from torch's own generator in a step, e.g. for dropout
    smallest_batch: ClassVar[int] = 1  # users that a step needs at least
    decoder_bias: nn.Parameter
    popularity: npt.NDArray[np.int64]  # (n_items,) how many users adopted each item, once it has met them

    def meet(self, popularity: npt.NDArray[np.int64]) -> None:
        self.popularity = popularity

    @abstractmethod
    def enter(self, inputs: Rows) -> Tensor:
        """What enters the encoder, as autograd sees it: W·v where there is a first layer, else v itself."""

    @abstractmethod
    def latent(self, entering: Tensor) -> Tensor:
        """h, (n_users, width)."""

    def fitting_latent(self, entering: Tensor, noise: Tensor | None, iteration: int) -> tuple[Tensor, Tensor | float]:
        """h in a step of a fit, and what it adds to the loss."""
        return self.latent(entering), 0.0

    def noise(self, n_users: int, random: np.random.Generator) -> npt.NDArray[np.float32] | None:
        """Further random numbers that a step needs."""
        return None

    def decode(self, latent: Tensor) -> Tensor:
        """The logits, as autograd sees them."""
        return latent @ self.decoder_weight.T + self.decoder_bias  # (n_users, n_items)

    def preference(self, logits: Tensor) -> Tensor:
        return ACTIVATIONS[self.settings.decoder](logits)

    def decayed(self) -> list[str]:
        """The weights that decay."""
        return ["decoder_weight"]

    def initialise(self, seed: int) -> None:
        """Glorot-uniform weights; biases truncated normal with σ = 1e-3 (section 3.3)."""
        _initialise(dict(self.named_parameters()), seed)


def _initialise(parameters: dict[str, nn.Parameter], seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in (value for value in parameters.values() if value.dim() == 2):
            nn.init.xavier_uniform_(weight, generator=generator)
        for bias in (value for value in parameters.values() if value.dim() == 1):
            nn.init.trunc_normal_(bias, std=1e-3, a=-2e-3, b=2e-3, generator=generator)


def taken(weight: Tensor, rows: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.float64]:
    """Some rows of a weight, in double precision."""
    found = weight.detach()[torch.from_numpy(rows.astype(np.int64)).to(weight.device)]
    return found.double().cpu().numpy()
