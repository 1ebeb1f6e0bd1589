"""What the server answers, in JSON; the descriptions are those of the OpenAPI schema."""

from __future__ import annotations

import json
from typing import Any, Literal

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from milrec.errors import BusyError, MilrecError, UnknownIdError
from milrec.server.requests import invalid_request
from milrec.server.written import not_finite

_ENCODER = json.JSONEncoder(allow_nan=False, separators=(",", ":"))

_LONGEST_SENTENCE = 2_000

Tail = Literal["short", "medium", "long"]


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
    """An adopted item that is a reason for a listed one."""

    item: str
    title: str | None
    weight: float


class ListedFacts(ItemFacts):
    """An item of a list."""

    rank: int
    score: float
    probability: float | None = Field(
        description="chance that the user adopts it, if they go on to adopt as much as was held out for validation; "
        "null if the model has no probabilities"
    )
    reasons: list[ReasonFacts]


class Shares(BaseModel):
    """Share of a list in each interval of the popularity tail; 0 for an empty list."""

    short: float
    medium: float
    long: float


class PriceFacts(BaseModel):
    """What a share of the tail costs on average over users, as measured on validation."""

    bonus: float = Field(description="λ: the probability that is paid for one more place in the tail")
    amount: float = Field(description="the share, or the mean popularity, that it leads to")
    hits: float = Field(description="expected of a list with it")
    hits_without: float = Field(description="expected of a list without it")
    n: int = Field(description="how long the lists were that were looked at: about as long as this one, if possible")
    unmet: str | None = Field(description="a sentence, if the request could not be met in full")


class RecommendAnswer(BaseModel):
    """A list, best item first."""

    model: str
    items: list[ListedFacts]
    unmet: list[str] = Field(
        description="a sentence for each rule that could not be met, for missing reasons, and for a list ranked by "
        "popularity because no adopted items are known"
    )
    shares: Shares
    mean_popularity: float | None = Field(description="of the listed items; null for an empty list")
    expected_hits: float | None = Field(
        description="how many of the listed items the user is expected to adopt: the sum of their probabilities; "
        "null if the model has none"
    )
    price: PriceFacts | None = Field(
        description="null if the request set no share of the tail, mean popularity or bonus"
    )
    skipped: list[str] = Field(
        default_factory=list,
        description="items in adopted and rejected that the model does not know; only if strict is false",
    )


class BatchAnswer(BaseModel):
    """An answer or an error for each request, in their order."""

    answers: list[RecommendAnswer | Error]


class Counts(BaseModel):
    """A number for each interval of the tail."""

    short: int
    medium: int
    long: int


class ProbabilityFacts(BaseModel):
    """How a model's probabilities were found."""

    kind: str
    held_out: int = Field(description="validation pairs that they were fitted to")


class ModelFacts(BaseModel):
    """A model and the data that it was fitted on."""

    name: str
    model: str
    loss: str | None
    n_users: int
    n_items: int
    n_interactions: int
    intervals: Counts
    probability: ProbabilityFacts | None = Field(description="null if the model has no probabilities")
    tail_shares: Shares | None = Field(
        description="of lists of 20 as the model makes them, on average over validation users; "
        "null if it cannot make lists with a share of the tail"
    )
    settings: dict[str, Any]
    fitted: dict[str, Any]
    loaded_at: str


class Models(BaseModel):
    """All models that are being served."""

    models: list[ModelFacts]
    default: str


class Items(BaseModel):
    """The items that were found."""

    items: list[ItemFacts]


class SimilarItem(ItemFacts):
    """An item that is like another."""

    rank: int
    likeness: float = Field(
        description="1 is the nearest that this model finds for the item; not to be compared with others' values"
    )


class SimilarItems(BaseModel):
    """The items that are most like another."""

    items: list[SimilarItem]
    measure: Literal["blend", "own"]  # 0.1.0: cosine or weight


class Users(BaseModel):
    """The ids of the users that were found."""

    users: list[str]


class UserFacts(BaseModel):
    """What a known user adopted and rejected."""

    user: str
    adopted: list[ItemFacts]
    rejected: list[ItemFacts]


class Cuts(BaseModel):
    """The ranks, by popularity, at which the short and the medium interval end."""

    short: int
    medium: int


class Curve(BaseModel):
    """The popularity curve of the catalogue at some of its ranks."""

    n_items: int
    ranks: list[int]
    popularity: list[int]
    cuts: Cuts


def in_json(value: Any) -> str:
    """JSON in ASCII, so that even an id with half a character in it can be sent."""
    try:
        return _ENCODER.encode(value)
    except ValueError:
        raise not_finite() from None


def json_response(value: Any, status: int = 200, headers: Any = None) -> Response:
    return text_response(in_json(value), status, headers)


def text_response(text: str, status: int = 200, headers: Any = None) -> Response:
    return Response(text, status, headers, media_type="application/json")


def error_response(sentence: str, status: int, headers: Any = None) -> Response:
    """One sentence; its parts are short already, and no mistake of ours may send back all that was received."""
    return json_response({"error": sentence[:_LONGEST_SENTENCE]}, status, headers)


def add_error_answers(app: FastAPI) -> None:
    """Turn every exception into a status and one sentence."""

    @app.exception_handler(UnknownIdError)
    async def unknown_id(request: Request, error: UnknownIdError) -> Response:
        in_the_body = request.method == "POST" and not request.url.path.endswith("/reload")
        return error_response(str(error), 422 if in_the_body else 404)

    @app.exception_handler(MilrecError)
    async def wrong_request(request: Request, error: MilrecError) -> Response:
        return error_response(str(error), 422)

    @app.exception_handler(BusyError)
    async def busy(request: Request, error: BusyError) -> Response:
        return error_response(str(error), 503, {"retry-after": "1"})

    @app.exception_handler(RequestValidationError)
    async def unreadable_request(request: Request, error: RequestValidationError) -> Response:
        return error_response(invalid_request(error.errors()), 422)

    @app.exception_handler(HTTPException)
    async def http_error(request: Request, error: HTTPException) -> Response:
        sentences = {
            404: "there is nothing at this address; see /docs",
            405: f"this address does not take {request.method[:20]}; see /docs",
            400: "the body is not readable JSON",
        }
        return error_response(sentences.get(error.status_code, str(error.detail)), error.status_code, error.headers)

    @app.exception_handler(Exception)
    async def failure(request: Request, error: Exception) -> Response:
        sentence = "something went wrong in the server; its log has the details under this answer's X-Request-ID"
        return error_response(sentence, 500)
