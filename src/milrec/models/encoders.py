"""Your own encoder: a plain `torch.nn.Module` that gets the shared decoder, all losses, folders and the server.

    class Mine(nn.Module):
        def __init__(self, n_items: int, n_factors: int, n_hidden: int = 100): ...   # further arguments are settings
        def forward(self, inputs): ...               # (n_users, n_items) → (n_users, n_factors)

Class attributes say more about it, each with a default: `name` (the class's name in lower case), `input_weights`
("binary", "counts" or "log"), `unit_length` (True: every row of inputs has length 1) and `rows_independent` (False:
when lists are made, it is called for one user at a time).
"""

from __future__ import annotations

import inspect
import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, ClassVar, Literal, Self, get_type_hints

import torch
from pydantic import ConfigDict, Field, PydanticUserError, create_model
from torch import Tensor, nn

from milrec.errors import FitError, MilrecError, SettingsError
from milrec.kernels.sparse import Rows
from milrec.kernels.threads import zeros
from milrec.models.contract import ROWS, GradientModel
from milrec.models.inputs import Reader, Users
from milrec.models.known import GROUP
from milrec.models.settings import (
    INPUT_WEIGHTS,
    LARGEST_WIDTH,
    MODELS,
    Corruption,
    GradientModelSettings,
    OutputActivation,
)

_GIVEN = ("n_items", "n_factors")  # arguments that every encoder takes
_TRIED = 512  # numbers that have to be equal in all rows: two orders of summation agree by chance in many of them


class EncoderSettings(GradientModelSettings):
    """Settings of an encoder that is not milrec's: those of every autoencoder, and the arguments of its constructor."""

    model_config = ConfigDict(protected_namespaces=())
    title: ClassVar[str] = "own encoder"
    class_path: ClassVar[str] = "milrec.models.encoders:EncoderModel"
    starts: ClassVar[tuple[str, ...]] = ("glorot",)
    default_rate: ClassVar[float | None] = 3e-3
    reads_items_only: ClassVar[bool] = True
    encoder_class: ClassVar[type[nn.Module]]
    model: str
    n_factors: int = Field(200, ge=1, le=LARGEST_WIDTH, description="D, the size of the latents")
    decoder: OutputActivation = "sigmoid"
    corruption: Corruption = 0.5

    def provenance(self) -> dict[str, str]:
        return {"model_class": f"{self.encoder_class.__module__}:{self.encoder_class.__qualname__}"}

    def arguments(self) -> dict[str, Any]:
        """What the encoder's constructor is called with, apart from n_items."""
        own = set(type(self).model_fields) - set(EncoderSettings.model_fields)
        return {name: getattr(self, name) for name in ("n_factors", *sorted(own))}


class EncoderModel(GradientModel):
    """An encoder in front of the shared decoder."""

    settings: EncoderSettings
    draws: ClassVar[bool] = True
    smallest_batch: ClassVar[int] = 2  # BatchNorm has nothing to go by with one user

    def __init__(self, settings: EncoderSettings, n_items: int) -> None:
        super().__init__()
        self.settings = settings
        kind = settings.encoder_class
        with _named(settings.model, "cannot be built"):
            self.encoder = kind(n_items=n_items, **settings.arguments())
        self.decoder_weight = nn.Parameter(zeros(n_items, settings.n_factors))
        self.decoder_bias = nn.Parameter(zeros(n_items))
        weights, unit_length = getattr(kind, "input_weights", "binary"), getattr(kind, "unit_length", True)
        self.reader = Reader(n_items, 0, weights, unit_length, settings.corruption)
        self.rows_independent: bool = getattr(kind, "rows_independent", False)
        self._turn = threading.Lock()  # an encoder may keep something between two lines: one call at a time
        self._steady: bool | None = None  # whether rows keep their bits wherever they stand; None: not tried yet

    @classmethod
    def build(cls, settings: EncoderSettings, n_users: int, n_items: int) -> Self:
        return cls(settings, n_items)

    def enter(self, inputs: Rows) -> Tensor:
        return torch.from_numpy(inputs.dense(self.n_items)).to(self.decoder_weight.device)  # (n_users, n_items)

    def latent(self, entering: Tensor) -> Tensor:
        with self._turn, _named(self.settings.model, "failed"):
            latent: Tensor = self.encoder(entering)
        wanted = (len(entering), self.settings.n_factors)
        if not isinstance(latent, Tensor) or latent.shape != wanted:
            found = tuple(latent.shape) if isinstance(latent, Tensor) else type(latent).__name__
            raise FitError(
                f"encoder '{self.settings.model}' returned {found} for {len(entering)} users; a tensor of shape "
                f"{wanted} is needed: a row of n_factors numbers for each user"
            )
        return latent.float()

    def latents(self, users: Users) -> Tensor:
        inputs = self.enter(self.reader.inputs(users).filled(ROWS))
        with torch.no_grad():
            if self.rows_independent and self._rows_are_steady():
                return self.latent(inputs).contiguous()
            latents = torch.zeros(ROWS, self.width, device=inputs.device)
            for user in range(users.n_users):
                row = inputs[user : user + 1].clone()  # in memory of its own: rounding may depend on where it begins
                latents[user] = self.latent(row)[0]
            return latents

    def _rows_are_steady(self) -> bool:
        """Whether, in this shape and on this CPU, no row depends on its place; a library may round some differently."""
        if self._steady is None:
            random = torch.Generator().manual_seed(0)
            self._steady = True
            for _ in range(2 + _TRIED // self.width):
                row = torch.rand(1, self.n_items, generator=random).to(self.decoder_weight.device)
                latents = self.latent(row.expand(ROWS, -1).contiguous())
                self._steady = self._steady and torch.equal(latents, latents[:1].expand_as(latents))
        return self._steady

    def decayed(self) -> list[str]:
        """The decoder's weights, and the matrices of the encoder."""
        return [name for name, value in self.named_parameters() if value.dim() > 1]

    def initialise(self, seed: int) -> None:
        """The decoder starts as in every model; the encoder keeps the weights from its constructor."""
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            nn.init.xavier_uniform_(self.decoder_weight, generator=generator)
            nn.init.trunc_normal_(self.decoder_bias, std=1e-3, a=-2e-3, b=2e-3, generator=generator)


def encoder_settings(encoder: type[nn.Module]) -> type[EncoderSettings]:
    """The settings type of an encoder, from its constructor; a class that cannot be used is refused at once."""
    known: Any = encoder
    return _settings_of(known)


@cache
def _settings_of(encoder: Any) -> type[EncoderSettings]:
    if not (inspect.isclass(encoder) and issubclass(encoder, nn.Module)):
        raise SettingsError(f"'{getattr(encoder, '__name__', encoder)!s:.80}' is not a class of torch.nn.Module")
    name = getattr(encoder, "name", encoder.__name__.lower())
    if not isinstance(name, str) or not name.isidentifier() or name in MODELS:
        raise SettingsError(f"an encoder cannot be called {name!r}; give its class another name, e.g. name = 'mine'")
    weights = getattr(encoder, "input_weights", "binary")
    if weights not in INPUT_WEIGHTS:
        raise SettingsError(f"encoder '{name}' has input_weights {weights!r}; known: {', '.join(INPUT_WEIGHTS)}")
    independent = getattr(encoder, "rows_independent", False)
    if not isinstance(independent, bool):
        raise SettingsError(f"encoder '{name}' has rows_independent {independent!r}; say True or False")
    fields: dict[str, Any] = {"model": (Literal[name], name), **_arguments(encoder, name)}
    try:
        settings = create_model(f"{encoder.__name__}Settings", __base__=EncoderSettings, **fields)
    except PydanticUserError as error:
        raise SettingsError(
            f"an argument of encoder '{name}' cannot be a setting ({str(error).splitlines()[0]})"
        ) from None
    settings.encoder_class = encoder
    settings.__doc__ = encoder.__doc__ or f"The encoder '{name}'."
    return settings


def _arguments(encoder: type[nn.Module], name: str) -> dict[str, Any]:
    """The constructor's own arguments as fields: type and default."""
    parameters = dict(inspect.signature(encoder).parameters)
    lacking = [one for one in _GIVEN if one not in parameters]
    if lacking:
        raise SettingsError(
            f"the constructor of encoder '{name}' takes no '{lacking[0]}'; it needs n_items and n_factors"
        )
    try:
        hints = get_type_hints(encoder.__init__)
    except NameError as error:
        raise SettingsError(f"an annotation of encoder '{name}' cannot be resolved ({error})") from None
    fields: dict[str, Any] = {}
    for key, parameter in parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise SettingsError(f"the constructor of encoder '{name}' takes '{parameter}'; name each argument instead")
        if hasattr(EncoderSettings, key) or (key in EncoderSettings.model_fields and key not in _GIVEN):
            raise SettingsError(
                f"the constructor of encoder '{name}' takes '{key}', a name that every model already uses; rename it"
            )
        default = ... if parameter.default is parameter.empty else parameter.default
        if key == "n_factors" and default is not ...:
            fields[key] = (int, Field(default, ge=1))
        elif key not in _GIVEN:
            fields[key] = (hints.get(key, Any), _plain(default, key, name))
    return fields


def _plain(default: Any, key: str, name: str) -> Any:
    """A default that a model folder can hold."""
    if default is not ...:
        try:
            json.dumps(default)
        except (TypeError, ValueError):
            raise SettingsError(f"argument '{key}' of encoder '{name}' has a default that JSON cannot hold") from None
    return default


@contextmanager
def _named(name: str, what: str) -> Iterator[None]:
    """Say which encoder an error comes from, in one sentence; its own traceback is the cause."""
    try:
        yield
    except MilrecError:
        raise
    except Exception as error:
        raise FitError(
            f"encoder '{name}' {what} ({type(error).__name__}: {str(error).splitlines()[0][:200]})"
        ) from error


def installed_encoder(name: str) -> type[nn.Module] | None:
    """The encoder that an installed package offers under this name; nothing else is imported."""
    for entry in entry_points(group=GROUP, name=name):
        encoder: type[nn.Module] = entry.load()
        return encoder
    return None


def encoder_named(name: str, encoders: Sequence[type[nn.Module]]) -> type[EncoderSettings] | None:
    """The settings type of an encoder that the caller gave, or that is installed, by its name."""
    for encoder in encoders:
        if encoder_settings(encoder).model_fields["model"].default == name:
            return encoder_settings(encoder)
    found = installed_encoder(name)
    return None if found is None else encoder_settings(found)


def import_encoder(path: str) -> type[nn.Module]:
    """The class that `module:Class` names: the one place where code is imported because somebody named it."""
    module, colon, name = path.partition(":")
    if not colon or not module or not name or module.startswith("."):
        raise SettingsError(f"'{path}' does not name a class; write module:Class, e.g. my_encoders:Gated")
    try:
        found: Any = import_module(module)
    except Exception as error:
        raise SettingsError(f"module '{module}' cannot be imported ({type(error).__name__}: {error})") from error
    for part in name.split("."):
        found = getattr(found, part, None)
        if found is None:
            raise SettingsError(f"module '{module}' has no class '{name}'")
    encoder_settings(found)
    encoder: type[nn.Module] = found
    return encoder
