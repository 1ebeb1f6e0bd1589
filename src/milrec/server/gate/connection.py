"""One connection: uvicorn parses requests and sends answers; what it would let pass for ever ends here.

A connection is closed when it sends too much before anything is checked, or too slowly, or does not read its answer.
When there is too much to do, its requests are refused here, before any work is done for them.
"""

from __future__ import annotations

import socket
import struct
import sys
from typing import Any, cast

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from milrec.server.gate.admission import BUSY
from milrec.server.gate.connections import Connections, Phase
from milrec.server.gate.desk import LISTS
from milrec.server.gate.wire import BUSY_ANSWER, WholeAnswer, list_answer, refusal

_READ_BYTES = 65_536  # of a connection at a time
_PIPELINED = 32  # requests that wait for the answers before theirs; further ones are not parsed yet
_LISTS = LISTS.encode()
_UPGRADING = (b"upgrade", b"connection", b"http2-settings")
_UNWANTED_BYTES = 16_000_000  # of the body of a request that was refused
_FORGET = struct.pack("ii", 1, 0)  # SO_LINGER: a reset instead of further attempts to send
_PIECE = 4_096  # bytes that are parsed at a time


class Connection(HttpToolsProtocol):
    """uvicorn's connection, which is closed when it sends too much or too slowly, or does not read its answer."""

    def __init__(self, connections: Connections, **given: Any) -> None:
        super().__init__(**given)
        self._all = connections
        self.phase = Phase.OPEN
        self.body_bytes = 0  # of a body that is not complete
        self._part = Phase.IDLE  # what is arriving: headers, a body, or nothing
        self._n_messages = self._n_parsed = 0  # requests that have begun; parts that the parser has recognised
        self._named_bytes = 0  # of the address and the headers that are complete
        self._unnamed_bytes = 0  # that arrived since the parser last made anything of them
        self._shed = False  # the request that is arriving has been refused already
        self._unwanted_bytes = 0  # of a body whose request has been answered: some clients listen only when all is sent
        self.unread_since: float | None = None
        self._held = self._piece = b""  # what has arrived and is not parsed; what was parsed last
        self._holding = self._deaf = False  # it waits for answers that come first; it never will be
        self._parked: bytes | None = None  # the body of a request of which uvicorn does not know yet

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        transport.max_size = _READ_BYTES
        self._all.add(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._all.desk.give_back(self)
        super().connection_lost(error)
        self._forget_body()
        self._all.remove(self)

    def data_received(self, data: bytes) -> None:
        if not self._deaf and self.phase is not Phase.ENDING:
            self._held = self._held + data if self._held else data
            self._parse_held()

    def _parse_held(self) -> None:
        """Parse what has arrived, a little at a time; if too many requests wait for their turn, the rest waits too."""
        n_messages = self._n_messages
        while self._held and not self._deaf and len(self.pipeline) < _PIPELINED and self.phase is not Phase.ENDING:
            piece, self._held = self._held[:_PIECE], self._held[_PIECE:]
            self._parse(piece)
        if self._held and not self._deaf:
            self.transport.pause_reading()
            self.flow.read_paused = False  # so that only we resume it
            self._holding = True
        elif self._holding:
            self._holding = False
            self.transport.resume_reading()
        self._settle(begun=self._n_messages > n_messages)

    def _parse(self, data: bytes) -> None:
        n_parsed, self._piece = self._n_parsed, data
        super().data_received(data)
        if self._parked is not None and self._part is not Phase.IDLE:
            self.go_the_usual_way()  # it has not arrived completely
        if self._n_parsed == n_parsed:
            self._unnamed_bytes += len(data)
            if self._unnamed_bytes > self._all.limits.max_headers:
                self._refuse_headers()

    def on_message_begin(self) -> None:
        self._leave_desk()  # so that answers come in the order of their requests
        super().on_message_begin()
        self._n_messages += 1
        self._part = Phase.HEADERS
        self._named_bytes = self._unnamed_bytes = self._unwanted_bytes = 0

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        self._named_bytes += len(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, or what comes after the last chunk of a body: that is counted and otherwise ignored."""
        self._note_parsed()
        self._named_bytes += len(name) + len(value) + 4
        if self.phase is Phase.ENDING:
            return
        if self._named_bytes > self._all.limits.max_headers:
            self._refuse_headers()
        elif self._part is Phase.HEADERS:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._note_parsed()
        if self.phase is Phase.ENDING:
            return
        if self._named_bytes > self._all.limits.max_headers:
            return self._refuse_headers()
        if self.parser.should_upgrade():
            return
        if self._is_too_much():
            self._shed_request()
        elif self._may_be_plain():
            self._parked = b""
        else:
            self._begin()
        self._part = Phase.BODY

    def _begin(self) -> None:
        """Let uvicorn answer the request whose headers have arrived."""
        super().on_headers_complete()
        if self.scope["method"] != "HEAD":
            self.cycle.transport = cast(Any, WholeAnswer(self.transport))  # its task has not begun yet

    def _may_be_plain(self) -> bool:
        """Whether the request that is arriving may be one for the desk."""
        return (
            self.url == _LISTS
            and self.parser.get_method() == b"POST"
            and (self.cycle is None or self.cycle.response_complete)
            and not self.expect_100_continue
            and not self.flow.write_paused
            and self.parser.get_http_version() == "1.1"
            and self.parser.should_keep_alive()
        )

    def go_the_usual_way(self) -> None:
        """Let uvicorn answer the request of which it does not know yet."""
        body, self._parked = self._parked or b"", None
        self._begin()
        if body:
            self._count(body)
            super().on_body(body)
        if self._part is Phase.IDLE:
            self._complete()

    def reply(self, request_id: bytes, content: bytes) -> None:
        """Answer the request of which uvicorn does not know."""
        self._parked = None
        self.server_state.total_requests += 1
        dated = b"".join([b"%s: %s\r\n" % pair for pair in self.server_state.default_headers])
        self.transport.write(list_answer(dated, request_id, content))
        self._settle()

    def on_body(self, body: bytes) -> None:
        self._note_parsed()
        if self.phase is Phase.ENDING:
            return
        if self._parked is not None:
            self._parked += body
            return
        if not self._shed and not self.cycle.response_complete:
            self._count(body)
            return super().on_body(body)
        self._unwanted_bytes += len(body)
        if self._unwanted_bytes > _UNWANTED_BYTES:
            self.drop(Phase.ENDING.value)

    def _count(self, body: bytes) -> None:
        self.body_bytes += len(body)
        self._all.arriving += len(body)

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade():
            return
        self._note_parsed()
        self._part = Phase.IDLE
        if self._parked is not None:
            if not self._all.desk.take(self, dict(self.headers), self._parked):
                self.go_the_usual_way()
        elif not self._shed and self.phase is not Phase.ENDING:
            self._complete()
        self._shed = False

    def _complete(self) -> None:
        super().on_message_complete()
        if not self._all.capacity.arrived:
            self.loop.call_soon(self._all.capacity.forget_arrived)
        self._all.capacity.arrived += self._is_work()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._holding:
            self._parse_held()
        else:
            self._settle()

    def send_400_response(self, message: str) -> None:
        self.refuse(400, "this is not a request in HTTP/1.1")

    def _unsupported_upgrade_warning(self) -> None:
        """There is nothing to upgrade to, as a client may ask for with any request: it is read again without that.

        The parser stopped where it believed the other protocol to begin, which may be in front of the body.
        """
        method, stopped_at = self.parser.get_method(), cast(Any, sys.exception()).args[0]
        if method == b"CONNECT":
            return self.refuse(400, "this server is not a proxy")
        kept = [b"%s: %s\r\n" % (name, value) for name, value in self.headers if name not in _UPGRADING]
        closing = b"" if self.parser.should_keep_alive() else b"connection: close\r\n"
        head = b"%s %s HTTP/1.1\r\n%s%s\r\n" % (method, self.url, b"".join(kept), closing)
        self.parser = httptools.HttpRequestParser(self)
        self._held = head + self._piece[stopped_at:] + self._held

    def refuse(self, status: int, sentence: str) -> None:
        """Say why, and close the connection; if it is not the turn of such an answer, only close it."""
        self._leave_desk()
        if not self._is_turn():
            return self._say_nothing_more()
        if self.cycle is not None:
            self.cycle.disconnected = True  # for the app, the client has gone
            self.cycle.message_event.set()
        self._all.metrics.requests.labels("none", "other", str(status)).inc()
        self._all.count(Phase.ENDING.value)
        self._forget_body()
        self._all.move(self, Phase.ENDING)
        self.transport.write(refusal(status, sentence, keep=False))
        if self.transport.can_write_eof():
            self.transport.write_eof()

    def _say_nothing_more(self) -> None:
        """Finish the answers that are under way, then close the connection; what else arrives is not read."""
        if self.cycle is None or self.cycle.response_complete:
            return self.drop(Phase.ENDING.value)
        self._deaf = True
        self.cycle.keep_alive = False

    def _is_turn(self) -> bool:
        """Whether the next answer is the one to what is arriving now, and has not begun."""
        if self.cycle is None or self.cycle.response_complete:
            return self._part is not Phase.BODY
        return self._part is Phase.BODY and not self.cycle.response_started and not self.pipeline

    def shutdown(self) -> None:
        self._leave_desk()
        super().shutdown()

    def _leave_desk(self) -> None:
        self._all.desk.give_back(self)
        if self._parked is not None:
            self.go_the_usual_way()

    def drop(self, reason: str) -> None:
        """Close the connection at once, whatever has not been read."""
        self._all.desk.give_back(self)
        self._all.count(reason)
        self._all.remove(self)
        self.phase = Phase.ENDING
        self._forget_body()
        if self.transport.get_write_buffer_size():  # the system forgets at once what will not be read
            self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _FORGET)
        self.transport.abort()

    def expire(self) -> None:
        """The connection has been in its phase for too long."""
        if self.phase is Phase.HEADERS:
            self.refuse(408, "the headers of the request took too long")
        else:
            self.drop(self.phase.value)

    def check_reader(self, now: float) -> None:
        """A client that does not read its answer in time is given up."""
        if not self.transport.get_write_buffer_size():
            self.unread_since = None
        elif self.unread_since is None:
            self.unread_since = now
        elif now - self.unread_since > self._all.limits.timeout:
            self.drop(Phase.ANSWER.value)

    def _note_parsed(self) -> None:
        self._n_parsed += 1
        self._unnamed_bytes = 0

    def _refuse_headers(self) -> None:
        self.refuse(431, f"the address and the headers are larger than {self._all.limits.max_headers:,} bytes")

    def _is_work(self) -> bool:
        return self.url.startswith(b"/v1/") and not self.url.endswith(b"/reload")

    def _is_too_much(self) -> bool:
        """Whether a request is refused at once; one that waits for an answer before its own is left to the app."""
        if not self._is_work() or self.parser.get_method() not in (b"GET", b"POST"):
            return False
        capacity = self._all.capacity
        return (self.cycle is None or self.cycle.response_complete) and capacity.full(capacity.arrived)

    def _shed_request(self) -> None:
        method = self.parser.get_method().decode()
        if self.flow.write_paused:  # it sends requests and does not read the answers
            return self.drop(Phase.ANSWER.value)
        if self.parser.get_http_version() == "1.0" or not self.parser.should_keep_alive():
            return self.refuse(503, BUSY)
        self._all.metrics.requests.labels("none", method, "503").inc()
        self._shed = True
        self.transport.write(BUSY_ANSWER)

    def _settle(self, begun: bool = False) -> None:
        """Note what the connection is doing now; a request that has begun starts the clock again."""
        if self.phase is Phase.ENDING or self.transport.is_closing():
            return
        complete = self.cycle is not None and not self.cycle.response_complete and not self.cycle.more_body
        if self.pipeline or complete or self._parked is not None:
            phase = Phase.ANSWER
        elif self._part is Phase.IDLE and not self._n_messages:
            phase = Phase.OPEN
        else:
            phase = self._part
        if phase is not self.phase or begun:
            self._all.move(self, phase)
        if phase is Phase.BODY:
            self._all.limit_bodies()
        else:
            self._forget_body()

    def _forget_body(self) -> None:
        self._all.arriving -= self.body_bytes
        self.body_bytes = 0
