"""Who may use the server: by which host names, from which web pages, with which keys.

Each class is an ASGI layer that either refuses a request or hands it on.
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Sequence

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from milrec.server.gate.keys import Keys

KEY_OWNER = "milrec.key_owner"  # where a request's scope says whose key it came with
_PROBES = ("/healthz", "/readyz")  # called by address, whatever the server's name is
_THIS_MACHINE = frozenset({"127.0.0.1", "::1", "localhost"})


async def refuse(scope: Scope, receive: Receive, send: Send, status: int, sentence: str, **headers: str) -> None:
    """Answer with a status and one sentence; headers are written with underscores."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    answer = Response(json.dumps({"error": sentence}), status, named, media_type="application/json")
    await answer(scope, receive, send)


def header(scope: Scope, name: bytes) -> bytes:
    """A header of a request; the last one counts, and none is the same as an empty one."""
    found = b""
    for key, value in scope["headers"]:
        if key == name:
            found = value
    return found


def known_hosts(address: str, keys: bool, more: Sequence[str]) -> frozenset[str] | None:
    """The host names that the server answers to; None means any.

    Without keys, anyone who can reach the port may use the server. On a loopback address that is this machine alone,
    unless a web page somewhere makes its own host name point here; such a name is refused.
    """
    if not more and (keys or not ipaddress.ip_address(address).is_loopback):
        return None
    return _THIS_MACHINE | {address} | {name.lower() for name in more}


class KnownHosts:
    """Refuses requests to a host name that is not the server's own."""

    def __init__(self, app: ASGIApp, hosts: frozenset[str] | None) -> None:
        self._app, self._hosts = app, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._hosts is not None and scope["path"] not in _PROBES:
            host = _without_port(header(scope, b"host").decode("latin-1"))
            if host not in self._hosts:
                sentence = f"this server does not answer to '{host[:100]}'; start it with --allow-host NAME"
                return await refuse(scope, receive, send, 421, sentence)
        await self._app(scope, receive, send)


class OwnPagesOnly:
    """Refuses API requests that a browser makes for a page of another site.

    Browsers say where a request comes from (Sec-Fetch-Site), but not to a server without TLS on another machine; there,
    and in old browsers, the Origin must be the name that the request was sent to, or one of the server's own.
    """

    def __init__(self, app: ASGIApp, hosts: frozenset[str] | None) -> None:
        self._app, self._names = app, (hosts or frozenset()) - _THIS_MACHINE  # another port here is another site

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"].startswith("/v1/") and self._is_foreign(scope):
            return await refuse(scope, receive, send, 403, "pages of other sites may not use this server")
        await self._app(scope, receive, send)

    def _is_foreign(self, scope: Scope) -> bool:
        site, origin = header(scope, b"sec-fetch-site"), header(scope, b"origin")
        if site:
            return site.lower() not in (b"same-origin", b"none")
        if not origin:
            return False
        _, slashes, place = origin.decode("latin-1").lower().partition("://")
        own = header(scope, b"host").decode("latin-1").lower()
        return not slashes or place not in {own, *self._names}


class RequiredKeys:
    """Refuses API requests without a key that the server knows, if it knows any; notes whose key it was."""

    def __init__(self, app: ASGIApp, keys: Keys, open_metrics: bool) -> None:
        self._app, self._keys, self._open_metrics = app, keys, open_metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._keys and self._guarded(scope["path"]):
            key = _key(scope)
            if key is None:
                sentence = "this server needs a key: send it as 'Authorization: Bearer KEY' or 'X-API-Key: KEY'"
                return await refuse(scope, receive, send, 401, sentence, www_authenticate="Bearer")
            owner = self._keys.owner(key)
            if owner is None:
                sentence = "the server does not know this key"
                return await refuse(scope, receive, send, 401, sentence, www_authenticate="Bearer")
            scope[KEY_OWNER] = owner
        await self._app(scope, receive, send)

    def _guarded(self, path: str) -> bool:
        return path.startswith("/v1/") or path == "/v1" or (path == "/metrics" and not self._open_metrics)


def _without_port(host: str) -> str:
    """The name in a Host header."""
    name, bracket, _ = host.lower().partition("]")
    return name.removeprefix("[") if bracket else name.partition(":")[0]


def _key(scope: Scope) -> str | None:
    scheme, _, token = header(scope, b"authorization").partition(b" ")
    key = token if scheme.lower() == b"bearer" else header(scope, b"x-api-key")
    return key.strip().decode("latin-1") or None
