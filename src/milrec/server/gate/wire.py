"""What is written to a connection: refusals for which no app is asked, and answers whose head waits for the body."""

from __future__ import annotations

import asyncio
import json

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from milrec.server.gate.admission import BUSY, RETRY_SECONDS
from milrec.server.gate.middleware import SAFE_HEADERS

_CONTINUE = b"HTTP/1.1 100 "  # not an answer yet
_OK = STATUS_LINE[200]
_LIST_HEADERS = b"".join(b"%s: %s\r\n" % pair for pair in [(b"content-type", b"application/json"), *SAFE_HEADERS])


class WholeAnswer:
    """What an answer with a body is written to: its head waits for the body, so that both are sent at once.

    uvicorn writes one after the other, and the client would be woken up twice.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._head: bytes | None = None
        self._begun = False
        self.is_closing = transport.is_closing

    def write(self, data: bytes) -> None:
        if self._head is not None:
            data, self._head = self._head + data, None
        elif not self._begun and not data.startswith(_CONTINUE):
            self._head, self._begun = data, True
            return
        self._transport.write(data)

    def close(self) -> None:
        if self._head is not None:  # something went wrong before the body came
            self._transport.write(self._head)
        self._transport.close()


def list_answer(dated: bytes, request_id: bytes, content: bytes) -> bytes:
    """A list as it is sent, with the headers that every answer of the app has; `dated` are those of uvicorn."""
    own = b"x-request-id: %s\r\ncache-control: no-store" % request_id
    return b"%s%scontent-length: %d\r\n%s%s\r\n\r\n%s" % (_OK, dated, len(content), _LIST_HEADERS, own, content)


def refusal(status: int, sentence: str, keep: bool) -> bytes:
    """A whole answer of one sentence, as the app would send it."""
    content = json.dumps({"error": sentence}).encode()
    headers = [
        (b"content-length", str(len(content)).encode()),
        (b"content-type", b"application/json"),
        *SAFE_HEADERS,
        (b"cache-control", b"no-store"),
    ]
    if status == 503:
        headers.append((b"retry-after", RETRY_SECONDS.encode()))
    if not keep:
        headers.append((b"connection", b"close"))
    return STATUS_LINE[status] + b"".join(b"%s: %s\r\n" % pair for pair in headers) + b"\r\n" + content


BUSY_ANSWER = refusal(503, BUSY, keep=True)
