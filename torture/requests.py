"""Requests to a real server: right ones, whose answers are known from the library, and all others.

A trial is a server and a few phases, one after another. However they go, no answer is a 5xx (but 503 with Retry-After
under overload), nothing hangs, the log has no traceback, and right requests get right answers to the end.
"""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path
from urllib.parse import quote

from torture.bases import Bases
from torture.cases import Case
from torture.damage import changed_json, damaged, json_bytes, odd_text, odd_value
from torture.phases import PHASES
from torture.served import LIMIT, MODELS, Client, Served, get, post, send_raw
from torture.talk import Right, Talk, ask_right, right_answers, together
from torture.verdicts import Outcome


def make_requests(chance: random.Random, bases: Bases) -> Case:
    phases = ["right", "changed", "raw", *chance.sample(list(PHASES), 2), "changed", "right"]
    return Case("requests", "phases", {"phases": phases, "seed": chance.randrange(2**32), "size": 400})


def run_requests(case: Case, place: Path, bases: Bases) -> list[Outcome]:
    """All phases of a trial, or single requests that an earlier one has found, with one server."""
    chance = random.Random(case.facts.get("seed"))
    talk = Talk(Served(place, bases), chance, right_answers(bases, chance))
    phases = {"right": ask_right, "changed": _changed, "raw": _raw, **PHASES}
    try:
        for phase in case.facts.get("phases", ()):
            try:
                asyncio.run(phases[phase](talk, case.facts["size"]))
            except TimeoutError:
                talk.fail("hang", f"no answer after {LIMIT:g} s in phase '{phase}'")
            except ConnectionError as error:
                talk.fail("crash", f"no connection in phase '{phase}': {error}")
            if talk.served.process.poll() is not None:
                break
        for raw in case.files.values():
            talk.judge(raw, asyncio.run(send_raw(talk.served.port, raw)))
        _end(talk)
    finally:
        talk.served.kill()
    return [*(Outcome(kind, trials=count) for kind, count in talk.counts.items()), *talk.wrong]


def _end(talk: Talk) -> None:
    """The server must still be there, end when it is asked to, and have nothing to be ashamed of in its log."""
    code, said = talk.served.process.poll(), talk.served.said()
    if code is not None:
        return talk.fail("crash", f"{said[-1500:]}\nthe server ended with {code}")
    if (code := talk.served.ended()) != 0:
        talk.fail("wrong exit code" if code is not None else "hang", f"the server ended with {code}: {said[-1000:]}")
    said = talk.served.said()
    if "Traceback" in said:
        talk.fail("traceback", said[said.index("Traceback") :][:4000])
    for line in said.splitlines():
        if not line.startswith(("{", "note: ")):
            return talk.fail("not one sentence", f"a line of the log is not JSON: {line[:300]!r}")
    return None


async def _changed(talk: Talk, size: int) -> None:
    async def ask(client: Client) -> None:
        raw = changed_request(talk.right, talk.chance)
        talk.judge(raw, await client.ask(raw))

    await together(2 * size, ask, talk.served.port)


def changed_request(right: Right, chance: random.Random) -> bytes:
    """A request that is well-formed HTTP, with a body, a path or headers that nobody expects."""
    body = json.loads(chance.choice(right)[0].partition(b"\r\n\r\n")[2])
    pick = chance.randrange(7)
    path = chance.choice(("/v1/recommend", "/v1/recommend", "/v1/recommend/batch"))
    if pick < 3:
        value = {"requests": [body, body]} if path.endswith("batch") else body
        return post(path, json_bytes(changed_json(value, chance)))
    if pick == 3:
        return post(path, damaged(json_bytes(body), chance))
    if pick == 4:
        return post(
            path, json_bytes(odd_value(chance)), f"X-Odd: {odd_text(chance)[:500]!r}", "Origin: http://evil.example"
        )
    name, text = chance.choice((*MODELS, "nobody")), quote(odd_text(chance)[:200].replace("\ud800", "?"), safe="/")
    number = chance.choice(("1", "0", "-1", "1e9", "99999999999999999999", "x", ""))
    paths = (
        f"/v1/models/{name}/items?search={text}&n={number}", f"/v1/models/{name}/items/{text}/similar?n={number}",
        f"/v1/models/{name}/items/{text}", f"/v1/models/{name}/users/{text}", f"/v1/models/{name}/users?search={text}",
        f"/v1/models/{text}", f"/v1/models/{name}/popularity?points={number}", f"/web/../../{text}", f"/{text}",
        f"/v1/models/{name}/items/i01/similar", "/metrics", "/readyz", "/openapi.json", "/docs",
    )  # fmt: skip
    return get(chance.choice(paths), chance.choice(("GET", "GET", "GET", "HEAD", "OPTIONS", "DELETE", "PUT")))


async def _raw(talk: Talk, size: int) -> None:
    """Bytes that are often no HTTP at all, each on a connection of its own."""

    async def ask(_: Client) -> None:
        raw = raw_request(talk.right, talk.chance)
        talk.judge(raw, await send_raw(talk.served.port, raw))

    await together(size, ask, talk.served.port)


def raw_request(right: Right, chance: random.Random) -> bytes:
    raw = chance.choice(right)[0]
    pick = chance.randrange(8)
    if pick < 3:
        return damaged(raw, chance)
    head, _, body = raw.partition(b"\r\n\r\n")
    if pick == 3:
        wrong = chance.choice((b"0", b"-1", b"7", b"99999", b"9" * 40, b"x", b"1,2"))
        return head.rpartition(b": ")[0] + b": " + wrong + b"\r\n\r\n" + body
    if pick == 4:
        sizes = chance.choice((b"%x" % len(body), b"-1", b"ffffffffffffffff", b"zz", b"5"))
        chunked = head.rpartition(b"\r\n")[0] + b"\r\nTransfer-Encoding: chunked\r\n\r\n"
        return chunked + sizes + b"\r\n" + body + b"\r\n" + chance.choice((b"0\r\n\r\n", b""))
    if pick == 5:
        size = chance.choice((100, 10_000, 1_000_000))
        return head + b"\r\nX-Long: " + b"a" * size + chance.choice((b"\r\n\r\n", b"")) + body
    if pick == 6:
        return b"".join(chance.choice(right)[0] for _ in range(5))  # one after another, without waiting
    return chance.choice((b"GET /\r\n\r\n", b"\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
                          b"\x16\x03\x01\x02\x00\x01\x00",
                          b"GET http://x/ HTTP/1.1\r\n\r\n", chance.randbytes(300)))  # fmt: skip
