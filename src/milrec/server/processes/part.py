"""A process that is part of a server: it reads the models that it is told to, and serves them with the others."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from typing import Any

from milrec.errors import BusyError, MilrecError
from milrec.server.batcher import STOPPING
from milrec.server.copies import Source
from milrec.server.listener import Listener
from milrec.server.model import Served
from milrec.server.process import set_up
from milrec.server.processes.channel import Channel, GoneError, Message, hear, refusal, tell
from milrec.server.processes.figures import metrics_page
from milrec.server.processes.plan import Plan
from milrec.server.registry import Registry
from milrec.server.service import Server
from milrec.server.telemetry import Metrics

Models = Sequence[type[Any]]  # encoders that are not milrec's own

_ACCEPTED = 1  # connections at a time: another process may have less to do


class Given:
    """The sources of the models, as the supervisor names them; it is the supervisor that holds the private copies."""

    def __init__(self, sources: dict[str, Any]) -> None:
        self._sources = {name: Source.from_json(said) for name, said in sources.items()}

    @property
    def names(self) -> list[str]:
        return list(self._sources)

    def take(self, name: str) -> Source:
        return self._sources[name]

    def change(self, name: str, said: Message) -> None:
        self._sources[name] = Source.from_json(said)


class Part:
    """One of several processes; the supervisor is asked for what concerns them all."""

    def __init__(self, registry: Registry, given: Given, metrics: Metrics) -> None:
        self._registry, self._given, self._metrics = registry, given, metrics
        self._prepared: dict[str, Served] = {}
        self._channel: Channel | None = None
        self.opened = asyncio.Event()  # the socket may be listened on
        self.serving = asyncio.Event()

    async def connect(self, link: socket.socket) -> Channel:
        self._channel = await Channel.over(link, self._answer)
        return self._channel

    async def reload(self, name: str, wait: bool) -> None:
        await self._ask("reload", name=name, wait=wait)

    async def page(self) -> bytes:
        found = await self._ask("figures of all")
        return metrics_page(found["living"], found["ended"])

    async def _ask(self, what: str, **values: Any) -> Message:
        assert self._channel is not None
        try:
            return await self._channel.ask(what, **values)
        except GoneError:
            raise BusyError(STOPPING) from None

    async def _answer(self, what: str, values: Message) -> Message:
        """What the supervisor asks."""
        if what == "open":
            self.opened.set()
            await self.serving.wait()
        elif what == "figures":
            return self._metrics.snapshot()
        elif what == "prepare":
            self._given.change(values["name"], values["source"])
            self._prepared[values["name"]] = await asyncio.to_thread(self._registry.prepared, values["name"])
        elif what == "forget":
            self._prepared.pop(values["name"], None)
        elif what == "serve":
            await asyncio.to_thread(self._registry.replace, self._prepared.pop(values["name"]))
        else:
            raise ValueError(f"unknown message '{what}'")
        return {}


class _PartListener(Listener):
    """Listens when all processes are ready, and stops when the supervisor is gone."""

    accepted_at_once = _ACCEPTED

    def __init__(self, server: Server, taken: socket.socket, part: Part, link: socket.socket) -> None:
        super().__init__(server, taken, lambda _: part.serving.set())
        self._part, self._link = part, link

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        channel = await self._part.connect(self._link)
        self._watching = asyncio.create_task(self._stop_after(channel))
        await asyncio.wait(
            [asyncio.create_task(self._part.opened.wait()), self._watching], return_when=asyncio.FIRST_COMPLETED
        )
        await super().startup(sockets)

    async def _stop_after(self, channel: Channel) -> None:
        await channel.ended()
        self.should_exit = True


def serve_part(taken: socket.socket, link: socket.socket, classes_of: Callable[[list[str]], Models]) -> None:
    """Serve until the supervisor, or a signal, ends it; `classes_of` finds encoders by their names."""
    try:
        asked = hear(link)
    except GoneError:
        return
    values, number = asked["values"], asked["number"]
    plan, given, metrics = Plan.model_validate(values["plan"]), Given(values["sources"]), Metrics()
    try:
        registry = Registry(given, plan.together, metrics.together.observe, classes_of(plan.model_classes))
    except MilrecError as error:
        return tell(link, refusal(number, error))
    part = Part(registry, given, metrics)
    server = Server(registry, plan.limits, plan.keys, metrics, plan.open_metrics, plan.known_hosts, part)
    set_up(registry, values["process"])
    tell(link, {"number": number, "values": {}})
    _PartListener(server, taken, part, link).run([taken])
