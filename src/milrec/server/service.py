"""What the routes work with: the models, the limits, who may ask, and the whole server that this process is part of."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from milrec.errors import BusyError, MilrecError
from milrec.server.answers import in_json
from milrec.server.gate.access import Access
from milrec.server.gate.admission import Capacity
from milrec.server.gate.keys import Keys
from milrec.server.gate.middleware import Ledger, RequestIds
from milrec.server.limits import Limits
from milrec.server.model import Served
from milrec.server.processes.figures import metrics_page
from milrec.server.registry import Registry
from milrec.server.requests import RecommendBody, read_request
from milrec.server.telemetry import Metrics, note_reload


class Whole(Protocol):
    """The whole server, of which this process may be a part."""

    async def reload(self, name: str, wait: bool) -> None:
        """Let every process serve what a model's folder holds now, or none; `wait` for a reload that is running."""

    async def page(self) -> bytes:
        """The metrics of all processes together."""


@dataclass(frozen=True)
class Alone:
    """A server of one process."""

    registry: Registry
    metrics: Metrics

    async def reload(self, name: str, wait: bool) -> None:
        with note_reload(self.metrics, name) as done:
            done((await asyncio.to_thread(self.registry.reload, name, wait)).fingerprint)

    async def page(self) -> bytes:
        return metrics_page([self.metrics.snapshot()])


@dataclass(frozen=True)
class Server:
    """Everything that the routes work with."""

    registry: Registry
    limits: Limits = field(default_factory=Limits)
    keys: Keys = field(default_factory=Keys)
    metrics: Metrics = field(default_factory=Metrics)
    open_metrics: bool = False
    hosts: frozenset[str] | None = None  # host names that the server answers to; None: any
    part_of: Whole | None = None  # None: this process is all there is
    capacity: Capacity = field(init=False)
    whole: Whole = field(init=False)
    access: Access = field(init=False)
    ledger: Ledger = field(init=False)
    ids: RequestIds = field(default_factory=RequestIds, init=False)

    def __post_init__(self) -> None:
        batcher = self.registry.batcher
        capacity = Capacity(self.limits, lambda: batcher.portion_seconds)
        object.__setattr__(self, "capacity", capacity)
        object.__setattr__(self, "whole", self.part_of or Alone(self.registry, self.metrics))
        object.__setattr__(self, "access", Access(self.hosts, self.keys, self.open_metrics))
        object.__setattr__(self, "ledger", Ledger(self.metrics))
        self.metrics.under_way.set_function(lambda: capacity.used)
        self.metrics.allowed.set_function(lambda: min(capacity.limit, self.limits.max_running))
        self.metrics.watch(lambda: self.registry.models)

    async def call(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """The result of some work, done by the scoring thread."""
        return await asyncio.wrap_future(self.registry.batcher.call(partial(work, *arguments)))

    async def answer(self, body: RecommendBody) -> str:
        """An answer, as JSON."""
        return await self.registry.batcher.answer(self.registry.model(body.model), body.query)

    async def answer_or_error(self, body: RecommendBody | MilrecError) -> str:
        """An answer in a batch: an error in one request does not affect the others."""
        try:
            if isinstance(body, MilrecError):
                raise body
            return await self.answer(body)
        except BusyError:
            raise
        except MilrecError as error:
            return in_json({"error": str(error)})

    def checked(self, raw: Any) -> RecommendBody | MilrecError:
        try:
            return read_request(raw, self.limits)
        except MilrecError as error:
            return error

    async def reload(self, name: str, wait: bool = False) -> Served:
        """Read a model's folder again while the old model keeps serving.

        A reload is finished, logged and counted even if the client that asked for it goes away.
        """
        self.registry.model(name)
        await asyncio.shield(self.whole.reload(name, wait))
        return self.registry.model(name)
