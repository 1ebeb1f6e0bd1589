"""What the server is asked and what it answers, in JSON; the descriptions are those of the OpenAPI schema.

A `Raw…` body has the schema of a body, but is read by `checking`, which says at once what is wrong with a large one.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, StrictInt, StrictStr

from milrec.asking import Answer, Query
from milrec.rules import Rule
from milrec.scorer import size_of
from milrec.served import Served

Id = Annotated[StrictStr | StrictInt, Field(description="an id, as text or as a whole number")]
Ids = Annotated[list[Id], Field(fail_fast=True)]  # a list of a thousand mistakes is one mistake
MOST_RULES = 20
Tail = Literal["short", "medium", "long"]


class Body(BaseModel):
    """A body of a request: unknown keys are refused, nothing is converted."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, strict=True)


class RecommendBody(Body):
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
    adopted: Ids | None = Field(None, description="items that somebody the model has not met has or likes")
    rejected: Ids | None = Field(None, description="items that they do not like; never listed")
    n: StrictInt = Field(20, ge=1, description="length of the list")
    allow: Ids | None = Field(None, description="the only items that may be listed")
    exclude: Ids | None = Field(None, description="items that may not be listed")
    dial: float = Field(0.0, description="rank by score - dial × ln(popularity): above 0 lists rarer items")
    rules: list[Rule] = Field(
        [], max_length=MOST_RULES, description="shares or numbers of items from an interval of the tail"
    )
    reasons: StrictInt = Field(0, ge=0, description="so many adopted items that speak for each listed one")

    @property
    def size(self) -> int:
        return size_of(self.n, self.reasons, len(self.rules))

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


def _as_it_is(value: Any) -> Any:
    return value


RawRecommendBody = Annotated[Any, PlainValidator(_as_it_is, json_schema_input_type=RecommendBody)]


class BatchBody(Body):
    """Several requests at once; each is answered as if it had come alone."""

    requests: list[RawRecommendBody] = Field(min_length=1, description="the requests, answered in this order")


RawBatchBody = Annotated[Any, PlainValidator(_as_it_is, json_schema_input_type=BatchBody)]


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


class ListedFacts(ItemFacts):
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
    items: list[ListedFacts]
    unmet: list[str] = Field(description="rules and reasons that could not be met, a sentence for each")
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
