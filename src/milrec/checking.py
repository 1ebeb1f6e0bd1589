"""JSON → checked bodies, within the limits. What is wrong is an error with one sentence, found without reading on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

from milrec.bodies import MOST_RULES, BatchBody, RecommendBody
from milrec.errors import SettingsError
from milrec.limits import Limits
from milrec.rules import Rule

_ID_LISTS = ("adopted", "rejected", "allow", "exclude")
_RULE = '{"tail": "long", "at_least": "30%"}'


def read_request(raw: Any, limits: Limits) -> RecommendBody:
    """A request for one list."""
    _check_keys(raw, RecommendBody, 'a request is an object, as {"user": "u1"}')
    for name in _ID_LISTS:
        if isinstance(raw.get(name), list) and len(raw[name]) > limits.max_ids:
            raise SettingsError(f"'{name}' has more than {limits.max_ids:,} ids, the most that are taken")
    rules = raw.get("rules")
    if isinstance(rules, list):
        for place, rule in enumerate(rules[:MOST_RULES]):
            _check_keys(rule, Rule, f"'rules.{place}': a rule is an object, as {_RULE}", f"rules.{place}.")
    try:
        body = RecommendBody.model_validate(raw)
    except ValidationError as error:
        raise SettingsError(sentence_of(error.errors(include_url=False))) from None
    within("n", body.n, limits.max_list)
    within("reasons", body.reasons, limits.max_reasons)
    check_total([body], limits)
    return body


def read_batch(raw: Any, limits: Limits) -> list[Any]:
    """The requests of a batch, each still to be checked by itself."""
    _check_keys(raw, BatchBody, 'a batch is an object, as {"requests": [{"user": "u1"}]}')
    if "requests" not in raw:
        raise SettingsError("'requests' is missing")
    requests, most = raw["requests"], min(limits.max_batch, limits.max_running)
    if not isinstance(requests, list) or not requests:
        raise SettingsError("'requests' is a list of at least one request")
    if len(requests) > most:
        raise SettingsError(f"a batch has at most {most:,} requests, not {len(requests):,}")
    return requests


def check_total(bodies: Iterable[RecommendBody], limits: Limits) -> None:
    """Refuse what would keep all others waiting, however it is cut into lists."""
    total = sum(body.size for body in bodies)
    if total > limits.max_total:
        raise SettingsError(
            f"n × (1 + reasons + rules) comes to {total:,} over all lists; this server takes at most "
            f"{limits.max_total:,} in a request"
        )


def within(name: str, value: int, limit: int) -> None:
    if value > limit:
        raise SettingsError(f"'{name}' is {value}; this server gives at most {limit:,}")


def sentence_of(errors: Sequence[Any]) -> str:
    """The first mistake in one sentence."""
    first = errors[0]
    where = [str(part) for part in first["loc"] if part not in ("body", "query", "path")]
    if first["type"] == "json_invalid":
        return f"the body is not readable JSON ({first['ctx']['error']} at character {first['loc'][-1]})"
    if where and where[0] in ("user", *_ID_LISTS) and where[-1] in ("str", "int"):  # the two kinds of an id
        return f"'{'.'.join(where[:-1])}' is {_shown(first['input'])}: an id is text or a whole number"
    key = ".".join(where)
    if first["type"] == "missing":
        return f"'{key}' is missing" if key else "the request needs a body, in JSON"
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "value_error":
        return f"'{key}': {message}"
    return f"'{key}' is {_shown(first['input'])}: {message[0].lower()}{message[1:]}"


def _check_keys(raw: Any, form: type[BaseModel], otherwise: str, before: str = "") -> None:
    if isinstance(raw, bytes):
        raise SettingsError("send the body as JSON, with the header Content-Type: application/json")
    if not isinstance(raw, dict):
        raise SettingsError(f"{otherwise}; not {_shown(raw)}")
    unknown = next((key for key in raw if key not in form.model_fields), None)
    if unknown is not None:
        raise SettingsError(f"unknown key '{before}{unknown[:80]}'; known keys: {', '.join(form.model_fields)}")


def _shown(value: Any) -> str:
    text = repr(value[:80] if isinstance(value, str | list) else value)
    return text if len(text) <= 80 else text[:79] + "…"
