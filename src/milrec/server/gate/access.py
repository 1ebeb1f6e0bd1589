"""Who may use the server: by which host names, from which web pages, with which keys."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from milrec.server.gate.keys import Keys

Headers = Mapping[bytes, bytes]  # in small letters

KEY_OWNER = "milrec.key_owner"  # where a request's scope says whose key it came with
_HEADERS = "milrec.headers"  # where its scope has them by name
_PROBES = ("/healthz", "/readyz")  # called by address, whatever the server's name is
_THIS_MACHINE = frozenset({"127.0.0.1", "::1", "localhost"})


async def refuse(scope: Scope, receive: Receive, send: Send, refusal: Refusal) -> None:
    """Answer with a status and one sentence."""
    content = json.dumps({"error": refusal.sentence})
    await Response(content, refusal.status, refusal.headers, media_type="application/json")(scope, receive, send)


def headers_of(scope: Scope) -> Headers:
    """The headers of a request by name; where one is repeated, the last counts."""
    found: Headers | None = scope.get(_HEADERS)
    if found is None:
        found = scope[_HEADERS] = dict(scope["headers"])
    return found


def known_hosts(address: str, keys: bool, more: Sequence[str]) -> frozenset[str] | None:
    """The host names that the server answers to; None means any.

    Without keys, anyone who can reach the port may use the server. On a loopback address that is this machine alone,
    unless a web page somewhere makes its own host name point here; such a name is refused.
    """
    if not more and (keys or not ipaddress.ip_address(address).is_loopback):
        return None
    return _THIS_MACHINE | {address} | {name.lower() for name in more}


class Refusal(NamedTuple):
    """Why a request is refused."""

    status: int
    sentence: str
    headers: dict[str, str] = {}  # noqa: RUF012 - nobody changes it


class Visitor(NamedTuple):
    """Somebody who may ask, and whose key they have, if one is needed."""

    owner: str | None


_NO_KEY = "this server needs a key: send it as 'Authorization: Bearer KEY' or 'X-API-Key: KEY'"
_UNKNOWN_KEY = "the server does not know this key"


@dataclass(frozen=True)
class Access:
    """Who may ask for what."""

    hosts: frozenset[str] | None = None  # names that the server answers to; None: any
    keys: Keys = field(default_factory=Keys)
    open_metrics: bool = False

    def visitor(self, path: str, headers: Headers) -> Visitor | Refusal:
        """Who asks; or the first reason to refuse them: the host name, then the page, then the key."""
        if self.hosts is not None and path not in _PROBES:
            host = _without_port(headers.get(b"host", b"").decode("latin-1"))
            if host not in self.hosts:
                sentence = f"this server does not answer to '{host[:100]}'; start it with --allow-host NAME"
                return Refusal(421, sentence)
        if path.startswith("/v1/") and self._is_foreign(headers):
            return Refusal(403, "pages of other sites may not use this server")
        if not self.keys or not self._is_guarded(path):
            return Visitor(None)
        key = _key(headers)
        if key is None:
            return Refusal(401, _NO_KEY, {"www-authenticate": "Bearer"})
        owner = self.keys.owner(key)
        return Refusal(401, _UNKNOWN_KEY, {"www-authenticate": "Bearer"}) if owner is None else Visitor(owner)

    def _is_foreign(self, headers: Headers) -> bool:
        """Whether a browser asks for a page of another site.

        Browsers say where a request comes from (Sec-Fetch-Site), but not to a server without TLS on another machine;
        there, and in old browsers, the Origin must be the name that the request was sent to, or one of the server's
        own. Another port of this machine is another site.
        """
        site, origin = headers.get(b"sec-fetch-site", b""), headers.get(b"origin", b"")
        if site:
            return site.lower() not in (b"same-origin", b"none")
        if not origin:
            return False
        _, slashes, place = origin.decode("latin-1").lower().partition("://")
        own = headers.get(b"host", b"").decode("latin-1").lower()
        return not slashes or place not in {own, *((self.hosts or frozenset()) - _THIS_MACHINE)}

    def _is_guarded(self, path: str) -> bool:
        return path.startswith("/v1/") or path == "/v1" or (path == "/metrics" and not self.open_metrics)


class Visitors:
    """The ASGI layer that refuses those who may not ask, and notes whose key the others have."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app, self._access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = self._access.visitor(scope["path"], headers_of(scope))
        if isinstance(found, Refusal):
            return await refuse(scope, receive, send, found)
        scope[KEY_OWNER] = found.owner
        await self._app(scope, receive, send)


def _without_port(host: str) -> str:
    """The name in a Host header."""
    name, bracket, _ = host.lower().partition("]")
    return name.removeprefix("[") if bracket else name.partition(":")[0]


def _key(headers: Headers) -> str | None:
    scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
    key = token if scheme.lower() == b"bearer" else headers.get(b"x-api-key", b"")
    return key.strip().decode("latin-1") or None
