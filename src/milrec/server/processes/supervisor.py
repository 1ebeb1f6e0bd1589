"""The process that starts those that serve, replaces one that ends, and stops them all.

It loads no model: it holds the socket and the private copies, from which every process reads the same, also one that
is started later. What concerns all processes goes through it: reloads, figures and the end.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Coroutine
from contextlib import suppress
from functools import partial
from math import ceil
from typing import Any

from milrec.errors import FolderError, MilrecError, SettingsError
from milrec.server.copies import RELOADING, Folders, Source
from milrec.server.process import Started, address_of, write_log
from milrec.server.processes.channel import GoneError, Message
from milrec.server.processes.figures import added, lasting
from milrec.server.processes.member import Member
from milrec.server.processes.plan import Plan
from milrec.server.telemetry import Metrics, Snapshot, log, note_reload

_ENDING = (signal.SIGINT, signal.SIGTERM)
_FIGURES_SECONDS = 1.0  # for a process to say what it has counted; else what it said before counts
_LOOK_SECONDS = 5.0  # between two looks at what processes have counted, in case one is killed
_LONG_LIFE = 60.0  # seconds after which the end of a process is no sign that the next will end too
_LONGEST_PAUSE = 30.0  # seconds before a process is replaced that keeps ending
_GRACE = 30.0  # seconds for a process to end, after the time that it may take for its last requests


def serve_together(number: int, plan: Plan, folders: Folders, taken: socket.socket, started: Started) -> None:
    """Serve with so many processes, until a signal ends them all."""
    if not hasattr(socket, "AF_UNIX") or os.name != "posix":
        raise SettingsError("several processes can share a socket on Linux and macOS only; leave `processes` at 1")
    sources: dict[str, Source] = {}
    before = {one: signal.getsignal(one) for one in _ENDING}
    try:
        for name in folders.names:
            sources[name] = folders.take(name)
        write_log()
        supervisor = Supervisor(plan, folders, sources, taken, started)
        asyncio.run(supervisor.run(number))
    finally:
        for source in sources.values():
            source.release()
        for one, handler in before.items():
            signal.signal(one, handler)
    supervisor.pass_on_early_signal()
    log.info("stopped")


class Supervisor:
    """The processes of a server, and what they share."""

    def __init__(
        self, plan: Plan, folders: Folders, sources: dict[str, Source], taken: socket.socket, started: Started
    ) -> None:
        self._plan, self._folders, self._sources, self._taken, self._started = plan, folders, sources, taken, started
        self._metrics = Metrics()
        self._members: dict[int, Member] = {}  # those that serve
        self._all: set[Member] = set()  # and those that are about to, or about to end
        self._ended: list[Snapshot] = []  # what remains of those that have ended, added up
        self._changing, self._reloading = asyncio.Lock(), asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._stop, self._reload_wanted = asyncio.Event(), asyncio.Event()
        self._signal: int | None = None  # the first that asked for the end
        self._is_serving = False

    async def run(self, number: int) -> None:
        loop = asyncio.get_running_loop()
        for one in _ENDING:
            loop.add_signal_handler(one, self._hear, one)
        loop.add_signal_handler(signal.SIGHUP, self._reload_wanted.set)
        try:
            if await self._unless_stopped(self._open_all(number)):
                self._is_serving = True
                self._say_that_it_serves(number)
                await self._unless_stopped(self._keep_all(number))
        finally:
            await self._stop_all()

    def pass_on_early_signal(self) -> None:
        """A signal that came before anything was served ends the process as it would have without us."""
        if self._signal is not None and not self._is_serving:
            signal.raise_signal(self._signal)

    def _hear(self, number: int) -> None:
        """End everything; when it is ending already, tell the processes how impatient somebody is."""
        if self._signal is None:
            self._signal = number
            self._stop.set()
        else:
            for member in self._all:
                member.signal(number)

    async def _unless_stopped(self, work: Coroutine[Any, Any, None]) -> bool:
        """Whether some work was done before the end was asked for."""
        doing, stopping = asyncio.create_task(work), asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait([doing, stopping], return_when=asyncio.FIRST_COMPLETED)
            if stopping.done():
                return False
            await doing
            return True
        finally:
            for task in (doing, stopping):
                task.cancel()
            await asyncio.gather(doing, stopping, return_exceptions=True)

    def _say_that_it_serves(self, number: int) -> None:
        url, keys = address_of(self._taken), bool(self._plan.keys)
        facts = {"address": url, "models": self._folders.names, "keys": keys, "processes": number}
        log.info("serving", extra={"facts": facts})
        self._started(url)

    async def _open_all(self, number: int) -> None:
        """Start all processes; when every one has loaded its models, let them listen."""
        for member in await _all_of(*(self._start(which, number) for which in range(1, number + 1))):
            await self._open(member)

    async def _start(self, which: int, number: int) -> Member:
        """A process that has loaded what the server serves at the moment."""
        member = await Member.start(which, self._taken, number, self._answer)
        self._all.add(member)
        sources = {name: source.as_json() for name, source in self._sources.items()}
        try:
            await member.channel.ask("begin", process=which, plan=self._plan.model_dump(mode="json"), sources=sources)
        except GoneError:
            how = await member.how_it_ended()
            raise FolderError(f"a server process stopped before it was ready ({how})") from None
        return member

    async def _open(self, member: Member) -> None:
        with suppress(GoneError):  # it will be replaced
            await member.channel.ask("open")
        self._members[member.number] = member
        log.info("process serving", extra={"facts": {"process": member.number, "pid": member.process.pid}})

    async def _keep_all(self, number: int) -> None:
        keeping = [self._keep(which, number) for which in range(1, number + 1)]
        await _all_of(*keeping, self._reload_when_wanted(), self._look())

    async def _keep(self, which: int, number: int) -> None:
        """Replace a process whenever it ends; one that keeps ending, after longer and longer pauses."""
        loop, pause = asyncio.get_running_loop(), 0.0
        while True:
            begun = loop.time()
            await self._note_end_of(self._members[which])
            pause = 0.0 if loop.time() - begun > _LONG_LIFE else pause
            while which not in self._members:
                await asyncio.sleep(pause)
                pause = min(max(2 * pause, 1.0), _LONGEST_PAUSE)
                async with self._changing:
                    await self._replace(which, number)

    async def _note_end_of(self, member: Member) -> None:
        how = await member.how_it_ended()
        del self._members[member.number]
        self._all.discard(member)
        self._remember(member)
        log.warning("process ended", extra={"facts": {"process": member.number, "pid": member.process.pid, "how": how}})

    async def _replace(self, which: int, number: int) -> None:
        try:
            await self._open(await self._start(which, number))
            self._metrics.replaced.inc()
        except MilrecError as error:
            log.error("process cannot start", extra={"facts": {"process": which, "error": str(error)}})
            if not self._members:
                raise FolderError(f"no server process is left, and none can be started: {error}") from None

    async def _stop_all(self) -> None:
        """End the processes that serve when they have answered what they have begun to, and the others at once."""
        self._taken.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for member in self._all:
            if self._members.get(member.number) is member:
                member.signal(self._signal or signal.SIGTERM)
            else:
                member.process.kill()
        patience = ceil(self._plan.limits.timeout) + _GRACE
        await asyncio.gather(*(member.end_within(patience) for member in self._all))

    async def _answer(self, what: str, values: Message) -> Message:
        """What a process asks for that concerns all."""
        if what == "figures of all":
            return await self._figures()
        if what == "reload":
            await self.reload(values["name"], values["wait"])
            return {}
        raise ValueError(f"unknown message '{what}'")

    async def _reload_when_wanted(self) -> None:
        while await self._reload_wanted.wait():
            self._reload_wanted.clear()
            for name in self._folders.names:
                with suppress(Exception):  # the log has it
                    await self.reload(name, wait=True)

    async def reload(self, name: str, wait: bool) -> None:
        """Let all processes serve what a model's folder holds now, or none; once begun, it is finished."""
        task = asyncio.create_task(self._reload(name, wait))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        await asyncio.shield(task)

    async def _reload(self, name: str, wait: bool) -> None:
        with note_reload(self._metrics, name) as done:
            if self._reloading.locked() and not wait:
                raise FolderError(RELOADING)
            async with self._reloading, self._changing:
                source = await self._taken_now(name)
                try:
                    await self._prepare(name, source)
                except BaseException:
                    source.release()
                    raise
                old, self._sources[name] = self._sources[name], source  # also for a process that is started from now on
                await self._switch(name)
                old.release()
            done(source.model.fingerprint)

    async def _taken_now(self, name: str) -> Source:
        taking = asyncio.create_task(asyncio.to_thread(self._folders.take, name))
        try:
            return await asyncio.shield(taking)
        except asyncio.CancelledError:  # a thread cannot be stopped
            with suppress(MilrecError):
                (await taking).release()
            raise

    async def _prepare(self, name: str, source: Source) -> None:
        """Let every process read the new model and try it out; if one cannot, none keeps it."""
        ask = partial(self._ask_all, name=name)
        failed = [one for one in await ask("prepare", source=source.as_json()) if isinstance(one, BaseException)]
        if not failed:
            return
        await ask("forget")
        if isinstance(failed[0], GoneError):
            raise FolderError("a server process stopped while reading the folder; the old model keeps serving")
        raise failed[0]

    async def _switch(self, name: str) -> None:
        """Let every process serve what it has prepared; one that cannot is ended, and replaced by one that does."""
        members = list(self._members.values())
        for member, outcome in zip(members, await self._ask_all("serve", name=name), strict=True):
            if isinstance(outcome, BaseException):
                member.process.kill()

    async def _ask_all(self, what: str, **values: Any) -> list[Message | BaseException]:
        asked = [member.channel.ask(what, **values) for member in self._members.values()]
        return await asyncio.gather(*asked, return_exceptions=True)

    async def _figures(self) -> Message:
        """What each process has counted, and what those had that have ended."""
        await asyncio.gather(*(self._look_at(member) for member in list(self._members.values())))
        living = [member.counted for member in self._members.values() if member.counted is not None]
        return {"living": [*living, self._metrics.snapshot()], "ended": self._ended}

    async def _look(self) -> None:
        """What a process has counted is remembered from time to time, in case it is killed."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            await self._figures()

    async def _look_at(self, member: Member) -> None:
        with suppress(GoneError, TimeoutError):
            member.counted = await asyncio.wait_for(member.channel.ask("figures"), _FIGURES_SECONDS)

    def _remember(self, member: Member) -> None:
        if member.counted is not None:
            self._ended = [added([*self._ended, lasting(member.counted)])]


async def _all_of(*work: Coroutine[Any, Any, Any]) -> list[Any]:
    """What all of this comes to; if one part of it fails, the others are given up, and its error is raised."""
    tasks = [asyncio.create_task(one) for one in work]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
