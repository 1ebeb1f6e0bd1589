"""A talk to a server: right requests with their answers, and what has come of all requests so far."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from torture.bases import Bases
from torture.cases import Case, text_of
from torture.served import MODELS, Answer, Client, Served, post
from torture.verdicts import ACCEPTED, REFUSED, Outcome

_MOST = 20_000  # bytes of an answer that refuses something
_CLIENTS = 8
_DIALS: tuple[dict[str, float], ...] = (
    {}, {"dial": 0.0}, {"dial": 0.5}, {"dial": -0.25}, {"long_share": 0.3}, {"medium_share": 1.0}, {"short_share": 0.0},
    {"mean_popularity": 4.5}, {"long_bonus": 0.01},
)  # fmt: skip
Right = list[tuple[bytes, list[dict[str, Any]]]]  # requests, and the lists that answer them


@dataclass
class Talk:
    """A server under test: the right answers, and what has come of the requests so far."""

    served: Served
    chance: random.Random
    right: Right
    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[Outcome] = field(default_factory=list)

    def fail(self, kind: str, what: str, raw: bytes = b"") -> None:
        case = text_of(Case("requests", "sent", {}, {"request": raw}), f"{kind}: {what}") if raw else ""
        sent = f"sent: {raw[:300]!r}\n" if raw else ""
        self.wrong.append(Outcome(kind, f"{sent}{what}", case=case))

    def judge(self, raw: bytes, answer: Answer, expected: list[dict[str, Any]] | None = None) -> None:
        """Count an answer, or say what is wrong with it."""
        status = answer.status
        if expected is not None and status == 200:
            if json.loads(answer.body)["items"] != expected:
                return self.fail("wrong answer", "another list than the library's", raw)
        elif status is not None and status >= 500 and not (status == 503 and "retry-after" in answer.headers):
            return self.fail("5xx", f"status {status}: {answer.body[:300]!r}", raw)
        elif expected is not None and status != 503:
            return self.fail("wrong answer", f"status {status} for a right request: {answer.body[:300]!r}", raw)
        elif status is not None and status >= 400 and (len(answer.body) > _MOST or not _sentence(answer)):
            return self.fail("not one sentence", f"{len(answer.body)} bytes: {answer.body[:300]!r}", raw)
        self.counts[ACCEPTED if status is not None and status < 400 else REFUSED] += 1
        return None


def _sentence(answer: Answer) -> bool:
    """Whether a refusal says what is wrong; below HTTP there is only a status."""
    if not answer.body or "json" not in answer.headers.get("content-type", ""):
        return True
    try:
        value = json.loads(answer.body)
    except ValueError:
        return False
    text = value.get("error") if isinstance(value, dict) else None
    return isinstance(text, str) and "\n" not in text and "Traceback" not in text


def right_answers(bases: Bases, chance: random.Random) -> Right:
    """Requests, and the lists that the library gives for them."""
    import milrec

    found = []
    for name in MODELS:
        model = milrec.load(bases.model(name))
        users, items = model.user_ids, [str(one) for one in model.item_ids]
        for _ in range(40):
            body: dict[str, Any] = {"n": chance.randrange(1, 30), **chance.choice(_DIALS)}
            if chance.random() < 0.5:
                body["user"] = str(chance.choice(users))
            else:
                adopted = chance.sample(items, chance.randrange(0, 6))
                body["adopted"] = chance.choice((adopted, {item: chance.choice((1, 7, 0.5)) for item in adopted}))
            if chance.random() < 0.3:
                body |= {"reasons": 2, "exclude": chance.sample(items, 3)}
            if chance.random() < 0.3:
                body["rules"] = [{"tail": "long", "at_least": "30%"}]
            answer = model.answer([model.ask(milrec.Query(**body))])[0]
            found.append((post("/v1/recommend", {**body, "model": name}), [_as_json(one) for one in answer.items]))
    return found


def _as_json(one: Any) -> dict[str, Any]:
    """A listed item as the server sends it."""
    plain = {name: value for name, value in one._asdict().items() if name != "number"}
    return {**plain, "item": str(one.item), "reasons": [{**r._asdict(), "item": str(r.item)} for r in one.reasons]}


async def together(size: int, ask: Callable[[Client], Awaitable[None]], port: int) -> None:
    """So many requests, shared by a few clients."""

    async def client() -> None:
        own = Client(port)
        for _ in range(size // _CLIENTS):
            await ask(own)
        await own.close()

    await all_of(*(client() for _ in range(_CLIENTS)))


async def all_of(*work: Awaitable[None]) -> None:
    """All at once; if one fails, the others are waited for all the same."""
    for found in await asyncio.gather(*work, return_exceptions=True):
        if isinstance(found, BaseException):
            raise found


async def ask_right(talk: Talk, size: int) -> None:
    async def ask(client: Client) -> None:
        raw, expected = talk.chance.choice(talk.right)
        talk.judge(raw, await client.ask(raw), expected)

    await together(size, ask, talk.served.port)
