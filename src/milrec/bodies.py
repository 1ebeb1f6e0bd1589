"""What the server is asked and what it answers, as checked JSON; the descriptions are those of the OpenAPI schema."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictInt, StrictStr

from milrec.asking import Answer, Query
from milrec.rules import Rule
from milrec.service import Served

Id = Annotated[StrictStr | StrictInt, Field(description="an id, as text or as a whole number")]
Tail = Literal["short", "medium", "long"]


class Asked(BaseModel):
    """A body of a request: unknown keys are refused, nothing is converted."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, strict=True)


class RecommendBody(Asked):
    """Who the list is for, a known user or a taste, and what it shall be like."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"adopted": ["12", "40"], "rejected": ["7"], "n": 10, "dial": 0.5},
                {"user": "u0001", "n": 10, "rules": [{"tail": "long", "at_least": "30%"}], "reasons": 2},
            ]
        }
    )

    model: StrictStr | None = Field(None, description="name of a model; unset: the first one served")
    user: Id | None = Field(None, description="a known user; instead of adopted and rejected")
    adopted: list[Id] | None = Field(None, description="items that somebody the model has not met has or likes")
    rejected: list[Id] | None = Field(None, description="items that they do not like; never listed")
    n: StrictInt = Field(20, ge=1, description="length of the list")
    allow: list[Id] | None = Field(None, description="the only items that may be listed")
    exclude: list[Id] | None = Field(None, description="items that may not be listed")
    dial: float = Field(0.0, description="rank by score - dial × ln(popularity): above 0 lists rarer items")
    rules: list[Rule] = Field([], max_length=20, description="shares or numbers of items from an interval of the tail")
    reasons: StrictInt = Field(0, ge=0, description="so many adopted items that speak for each listed one")

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
        )


class BatchBody(Asked):
    """Several requests at once; each is answered as if it had come alone."""

    requests: list[RecommendBody] = Field(min_length=1, description="the requests, answered in this order")


class Error(BaseModel):
    """What is wrong, in one sentence."""

    error: str


class ItemFacts(BaseModel):
    """An item of the catalogue."""

    item: str
    title: str | None
    popularity: int = Field(description="how many users adopted it")
    tail: Tail
    place: int = Field(description="its rank by popularity, 1 for the most popular item")


class ReasonFacts(BaseModel):
    """An adopted item that speaks for a listed one."""

    item: str
    title: str | None
    weight: float


class Listed(ItemFacts):
    """An item of a list."""

    rank: int
    score: float
    reasons: list[ReasonFacts]


class Shares(BaseModel):
    """Shares of a list by interval of the popularity tail; 0 for an empty list."""

    short: float
    medium: float
    long: float


class RecommendAnswer(BaseModel):
    """A list, best item first."""

    model: str
    items: list[Listed]
    unmet: list[str] = Field(description="rules that could not be met, a sentence for each")
    shares: Shares
    mean_popularity: float | None = Field(description="of the listed items; null for an empty list")


class BatchAnswer(BaseModel):
    """An answer, or what is wrong, for each request."""

    answers: list[RecommendAnswer | Error]


class Counts(BaseModel):
    """A number for each interval of the tail."""

    short: int
    medium: int
    long: int


class ModelFacts(BaseModel):
    """A model, and the data that it was fitted on."""

    name: str
    model: str
    loss: str | None
    n_users: int
    n_items: int
    n_interactions: int
    intervals: Counts
    settings: dict[str, Any]
    fitted: dict[str, Any]
    loaded_at: str


class Models(BaseModel):
    """All models being served."""

    models: list[ModelFacts]
    default: str


class Items(BaseModel):
    """Items found."""

    items: list[ItemFacts]


class SimilarItem(ItemFacts):
    """An item like another."""

    rank: int
    likeness: float


class SimilarItems(BaseModel):
    """The items most like another."""

    items: list[SimilarItem]
    measure: Literal["cosine", "weight"]


class Users(BaseModel):
    """Ids of users found."""

    users: list[str]


class UserFacts(BaseModel):
    """What a known user adopted and rejected."""

    user: str
    adopted: list[ItemFacts]
    rejected: list[ItemFacts]


class Cuts(BaseModel):
    """How many of the most popular items end the short and the medium interval."""

    short: int
    medium: int


class Curve(BaseModel):
    """The popularity curve of the catalogue at some of its ranks."""

    n_items: int
    ranks: list[int]
    popularity: list[int]
    cuts: Cuts


def answer_json(served: Served, answer: Answer) -> dict[str, Any]:
    """An answer of the library as the server gives it out: ids as text, each item with its place by popularity."""
    catalogue = served.recommender.catalogue
    places = catalogue.places[catalogue.item_numbers([one.item for one in answer.items])].tolist()
    items = [
        {
            "rank": one.rank,
            "item": str(one.item),
            "title": one.title,
            "score": one.score,
            "popularity": one.popularity,
            "tail": one.tail,
            "place": place,
            "reasons": [{"item": str(r.item), "title": r.title, "weight": r.weight} for r in one.reasons],
        }
        for one, place in zip(answer.items, places, strict=True)
    ]
    return {
        "model": served.name,
        "items": items,
        "unmet": list(answer.unmet),
        "shares": answer.shares,
        "mean_popularity": answer.mean_popularity,
    }


def sentence_of(errors: Sequence[Any], batch: bool) -> str:
    """The first mistake of a request in one sentence; a misspelt key before what is missing because of it."""
    first = min(errors, key=lambda one: one["type"] != "extra_forbidden")
    where = [str(part) for part in first["loc"] if part not in ("body", "query", "path")]
    key, shown = ".".join(where), repr(first["input"])
    if first["type"] == "json_invalid":
        return f"the body is not readable JSON ({first['ctx']['error']} at character {first['loc'][-1]})"
    if first["type"] == "extra_forbidden":
        return f"unknown key '{key}'; known keys: {', '.join(_known_keys(where, batch))}"
    if isinstance(first["input"], bytes):
        return "send the body as JSON, with the header Content-Type: application/json"
    if first["type"] == "missing":
        return f"'{key}' is missing" if key else "the request needs a body, in JSON"
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "value_error":
        return f"'{key}': {message}" if key else message
    value = shown if len(shown) <= 80 else shown[:79] + "…"
    return f"'{key or 'body'}' is {value}: {message[0].lower()}{message[1:]}"


def _known_keys(where: Sequence[str], batch: bool) -> list[str]:
    if "rules" in where[:-1]:
        return list(Rule.model_fields)
    return list((BatchBody if batch and len(where) == 1 else RecommendBody).model_fields)
