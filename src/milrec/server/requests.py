"""JSON → checked bodies, within the limits. The first mistake is an error of one sentence; no others are looked for.

A `Raw…` body has the schema of a body, but is only parsed: the functions here check it, and quickly, however large.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    PlainValidator,
    StrictInt,
    StrictStr,
    ValidationError,
    ValidatorFunctionWrapHandler,
)
from pydantic_core import CoreSchema, core_schema
from starlette.requests import Request

from milrec.errors import SettingsError, cut
from milrec.lists.query import HEAVIEST, LIGHTEST, WEIGHTS, Query, is_weight
from milrec.lists.rules import Rule
from milrec.server.limits import Limits, work_in
from milrec.settings import sentence_of, shown

_ID_LISTS = ("adopted", "rejected", "allow", "exclude")
_RULE = '{"tail": "long", "at_least": "30%"}'


def read_request(raw: Any, limits: Limits) -> RecommendBody:
    """A request for one list."""
    _check_keys(raw, RecommendBody, 'a request is an object, for example {"user": "u1"}')
    for name in _ID_LISTS:
        if isinstance(raw.get(name), list | dict) and len(raw[name]) > limits.max_ids:
            raise SettingsError(f"'{name}' has more than {limits.max_ids:,} ids, the most that this server accepts")
    rules = raw.get("rules")
    if isinstance(rules, list):
        for place, rule in enumerate(rules[:MOST_RULES]):
            _check_keys(rule, Rule, f"'rules.{place}': a rule is an object, for example {_RULE}", f"rules.{place}.")
    try:
        body = RecommendBody.model_validate(raw)
    except ValidationError as error:
        raise SettingsError(_sentence(error.errors(include_url=False), RecommendBody)) from None
    within("n", body.n, limits.max_list)
    within("reasons", body.reasons, limits.max_reasons)
    check_total([body], limits)
    return body


def read_batch(raw: Any, limits: Limits) -> list[Any]:
    """The requests of a batch, not yet checked."""
    _check_keys(raw, BatchBody, 'a batch is an object, for example {"requests": [{"user": "u1"}]}')
    if "requests" not in raw:
        raise SettingsError("'requests' is missing")
    requests, most = raw["requests"], min(limits.max_batch, limits.max_running)
    if not isinstance(requests, list) or not requests:
        raise SettingsError("'requests' must be a list of at least one request")
    if len(requests) > most:
        raise SettingsError(f"a batch has at most {most:,} requests, not {len(requests):,}")
    return requests


def check_total(bodies: Iterable[RecommendBody], limits: Limits) -> None:
    """Refuse a request that would keep all others waiting, however it is divided into lists."""
    total = sum(body.size for body in bodies)
    if total > limits.max_total:
        raise SettingsError(
            f"n × (1 + reasons + rules) comes to {total:,} over all lists; this server accepts at most "
            f"{limits.max_total:,} in a request"
        )


def within(name: str, value: int, limit: int) -> None:
    if value > limit:
        raise SettingsError(f"'{name}' is {shown(value)}; this server gives at most {limit:,}")


def invalid_request(errors: Sequence[Any]) -> str:
    """What is wrong with a request before its body is looked at: its path, its query, or JSON that cannot be read."""
    first = errors[0]
    if first["type"] == "json_invalid":
        return f"the body is not readable JSON (the mistake is at character {first['loc'][-1] + 1})"
    if first["type"] == "missing" and first["loc"] == ("body",):
        return "the request needs a body, in JSON"
    return _sentence([{**one, "loc": one["loc"][1:]} for one in errors], BaseModel)


def refuse_unknown_keys(request: Request) -> None:
    """Refuse a query with a key that its route does not take."""
    known = [field.alias for field in request.scope["route"].dependant.query_params]
    unknown = next((key for key in request.query_params if key not in known), None)
    if unknown is not None:
        raise SettingsError(_unknown_key(unknown, known))


def _unknown_key(unknown: str, known: Iterable[str]) -> str:
    return f"unknown key '{cut(unknown)}'; known keys: {', '.join(known) or 'none'}"


def _sentence(errors: Sequence[Any], form: type[BaseModel]) -> str:
    return sentence_of(errors, form, noun="key").removeprefix("key ")


def _check_keys(raw: Any, form: type[BaseModel], otherwise: str, before: str = "") -> None:
    if isinstance(raw, bytes):
        raise SettingsError("send the body as JSON, with the header Content-Type: application/json")
    if not isinstance(raw, dict):
        raise SettingsError(f"{otherwise}, not {shown(raw)}")
    unknown = next((key for key in raw if key not in form.model_fields), None)
    if unknown is not None:
        raise SettingsError(_unknown_key(f"{before}{cut(unknown)}", form.model_fields))


class _OneMistake:
    """Makes pydantic report a wrong id as one mistake, not as one for each kind of id."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        schema: Any = handler(source)
        return {**schema, "custom_error_type": "id", "custom_error_message": "an id is text or a whole number"}


Id = Annotated[StrictStr | StrictInt, _OneMistake(), Field(description="an id, as text or as a whole number")]
Ids = Annotated[list[Id], Field(fail_fast=True)]  # a thousand wrong ids are reported as one
MOST_RULES = 20


class _OrWeights:
    """Lets an object {id: weight} stand for a list of ids; it is checked here, up to its first mistake."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_wrap_validator_function(_ids_or_weights, handler.generate_schema(Ids))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        weight = {"type": "number", "minimum": LIGHTEST, "maximum": HEAVIEST}
        return {"anyOf": [handler(schema), {"type": "object", "additionalProperties": weight}]}


def _ids_or_weights(value: Any, ids: ValidatorFunctionWrapHandler) -> Any:
    if not isinstance(value, dict):
        return ids(value)
    for item, weight in value.items():
        if not is_weight(weight):
            raise SettingsError(f"the weight of item '{cut(item)}' must be a number {WEIGHTS}, not {shown(weight)}")
    return value


IdsOrWeights = Annotated[list[Id] | dict[str, float], _OrWeights()]


Share = Annotated[float | None, Field(ge=0, le=1)]


class Body(BaseModel):
    """The body of a request: unknown keys are refused, and no value is converted."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, strict=True)


class RecommendBody(Body):
    """Who the list is for (a known user, a taste, or both) and what it should be like."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"adopted": ["12", "40"], "rejected": ["7"], "n": 10, "long_share": 0.3},
                {"user": "u0001", "n": 10, "rules": [{"tail": "long", "at_least": "30%"}], "reasons": 2},
            ]
        }
    )

    model: StrictStr | None = Field(None, description="name of a model; by default the first one that is served")
    user: Id | None = Field(
        None, description="a known user; adopted and rejected are then what came after the model was fitted"
    )
    adopted: IdsOrWeights | None = Field(
        None,
        description='items that the user has or likes; or an object with how often, such as {"12": 3, "40": 1}, '
        "which matters to a model that was fitted with input_weights",
    )
    rejected: Ids | None = Field(None, description="items that the user does not like; they are never listed")
    n: StrictInt = Field(20, ge=1, description="length of the list")
    allow: Ids | None = Field(None, description="the only items that may be listed; by default all")
    exclude: Ids | None = Field(None, description="items that may not be listed")
    long_share: Share = Field(
        None,
        description="share of the list from the long tail, on average over users, for the fewest adoptions lost; "
        "at most one of long_share, medium_share, short_share, mean_popularity and long_bonus",
    )
    medium_share: Share = Field(None, description="the same for the medium tail")
    short_share: Share = Field(None, description="the same for the short tail")
    mean_popularity: float | None = Field(
        None, gt=0, description="adopters per listed item at most, on average over users"
    )
    long_bonus: float | None = Field(
        None, ge=-1, le=1, description="λ itself: rank by probability + λ, where λ is for long-tail items alone"
    )
    dial: float = Field(
        0.0,
        description="deprecated, use long_share: rank by score - dial × ln(popularity)",
        json_schema_extra={"deprecated": True},  # pydantic's own mark would warn whenever the server looks at it
    )
    rules: list[Rule] = Field(
        default_factory=list,
        max_length=MOST_RULES,
        description="shares or numbers of items from an interval of the popularity tail",
    )
    reasons: StrictInt = Field(0, ge=0, description="how many adopted items to name as reasons for each listed one")
    strict: bool = Field(
        True,
        description="whether an unknown item in adopted or rejected is an error; if false, it is skipped and named "
        "in the answer's skipped, as long as another adopted item, or the user, is known",
    )

    @property
    def size(self) -> int:
        return work_in(self.query)

    @property
    def n_ids(self) -> int:
        return sum(len(ids) for ids in (self.adopted, self.rejected, self.allow, self.exclude) if ids)

    @cached_property
    def query(self) -> Query:
        return Query(
            user=self.user,
            adopted=self.adopted,
            rejected=self.rejected or (),
            n=self.n,
            allow=self.allow,
            exclude=self.exclude,
            dial=self.dial,
            rules=self.rules,
            reasons=self.reasons,
            long_share=self.long_share,
            medium_share=self.medium_share,
            short_share=self.short_share,
            mean_popularity=self.mean_popularity,
            long_bonus=self.long_bonus,
            strict=self.strict,
        )


def _as_it_is(value: Any) -> Any:
    return value


RawRecommendBody = Annotated[Any, PlainValidator(_as_it_is, json_schema_input_type=RecommendBody)]


class BatchBody(Body):
    """Several requests at once; each is answered as if it were alone."""

    requests: list[RawRecommendBody] = Field(min_length=1, description="the requests, answered in this order")


RawBatchBody = Annotated[Any, PlainValidator(_as_it_is, json_schema_input_type=BatchBody)]
