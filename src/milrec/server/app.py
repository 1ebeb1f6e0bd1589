"""The server: one thin function per route over `Service`. Every mistake is answered with {"error": one sentence}."""

from __future__ import annotations

import asyncio
import json
import mimetypes
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from importlib import resources
from importlib.metadata import version
from typing import Annotated, Any

from fastapi import Body, FastAPI, Path, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from milrec.errors import BusyError, FolderError, MilrecError, UnknownIdError
from milrec.server.answers import (
    BatchAnswer,
    Curve,
    Error,
    ItemFacts,
    Items,
    ModelFacts,
    Models,
    RecommendAnswer,
    SimilarItems,
    UserFacts,
    Users,
    answer_json,
)
from milrec.server.docs_page import reference_page
from milrec.server.keys import Keys
from milrec.server.middleware import App, Gate, Room, log
from milrec.server.model import Served
from milrec.server.registry import Service
from milrec.server.requests import (
    Limits,
    RawBatchBody,
    RawRecommendBody,
    RecommendBody,
    check_total,
    read_batch,
    read_request,
    sentence_of,
    within,
)
from milrec.server.telemetry import Measured

_READY_SECONDS = 1.0  # a server whose scoring thread has no moment for so long is not ready
_LARGE = 250  # an answer of this size is spelt out by another thread, so that nobody else waits for it
_ENCODER = json.JSONEncoder(allow_nan=False, separators=(",", ":"))
_DESCRIPTION = (
    "Lists for known users and for tastes, with rules for the popularity tail, reasons, similar items and search. "
    "Ids are accepted as text or whole numbers, and given out as text. Whatever is wrong is answered with "
    '{"error": "one sentence"}.'
)
_ERRORS: dict[int | str, dict[str, Any]] = {
    401: {"model": Error, "description": "A key is needed, or is not known"},
    413: {"model": Error, "description": "The body is too large"},
    422: {"model": Error, "description": "The request cannot be answered as it is"},
    503: {"model": Error, "description": "Busy, or no answer in time; try again"},
}
_BODY_ERRORS = {**_ERRORS, 400: {"model": Error, "description": "The body cannot be read"}}
_NOT_FOUND: dict[int | str, dict[str, Any]] = {404: {"model": Error, "description": "There is no such thing"}}

Name = Annotated[str, Path(description="name of a model")]
Item = Annotated[str, Path(description="id of an item")]
N = Annotated[int, Query(ge=1, description="how many at most")]
Search = Annotated[str, Query(max_length=200, description="text to search for")]


@dataclass(frozen=True)
class Server:
    """What the routes work with."""

    service: Service
    limits: Limits = field(default_factory=Limits)
    keys: Keys = field(default_factory=Keys)
    measured: Measured = field(default_factory=Measured)
    open_metrics: bool = False
    hosts: frozenset[str] | None = None  # names that the server may be asked by; None: any
    room: Room = field(default_factory=Room)

    async def call(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """Work for the scoring thread."""
        return await asyncio.wrap_future(self.service.scorer.call(partial(work, *arguments)))

    async def answer(self, body: RecommendBody) -> str:
        """An answer, as JSON."""
        served = self.service.model(body.model)
        answer = await asyncio.wrap_future(self.service.scorer.answer(served, body.query()))
        if body.size < _LARGE:
            return _ENCODER.encode(answer_json(served, answer))
        return await asyncio.to_thread(lambda: _ENCODER.encode(answer_json(served, answer)))

    async def answer_or_error(self, body: RecommendBody | MilrecError) -> str:
        """An answer of a batch: what is wrong with one of the requests does not harm the others."""
        try:
            if isinstance(body, MilrecError):
                raise body
            return await self.answer(body)
        except BusyError:
            raise
        except MilrecError as error:
            return _ENCODER.encode({"error": str(error)})

    def checked(self, raw: Any) -> RecommendBody | MilrecError:
        try:
            return read_request(raw, self.limits)
        except MilrecError as error:
            return error

    async def reload(self, name: str, wait: bool = False) -> Served:
        """Read a model's folder again; the old one serves on meanwhile. Goes on, and is told, whoever asked for it."""
        self.service.model(name)
        return await asyncio.shield(self._reload(name, wait))

    async def _reload(self, name: str, wait: bool) -> Served:
        try:
            served = await asyncio.to_thread(self.service.reload, name, wait)
        except Exception as error:
            self.measured.reloads.labels(name, "refused").inc()
            log.warning("reload refused", extra={"facts": {"model": name, "error": str(error)}})
            raise
        self.measured.reloads.labels(name, "done").inc()
        log.info("reloaded", extra={"facts": {"model": name, "fingerprint": served.fingerprint}})
        return served


def create_app(server: Server) -> App:
    """The whole server as one ASGI app."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(server.service.stop)

    server.measured.watch(lambda: server.service.models)
    app = FastAPI(
        title="milrec",
        version=version("milrec"),
        description=_DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
    )
    _recommending(app, server)
    _looking_up(app, server)
    _operating(app, server)
    _pages(app)
    _mistakes(app)
    return Gate(app, server.keys, server.limits, server.measured, server.open_metrics, server.hosts, server.room)


def _recommending(app: FastAPI, server: Server) -> None:
    @app.post("/v1/recommend", tags=["lists"], response_model=RecommendAnswer, responses=_BODY_ERRORS)
    async def recommend(body: Annotated[RawRecommendBody, Body()]) -> Response:
        """A list for a known user, or for a taste: items that somebody adopted and rejected."""
        return _text(await server.answer(read_request(body, server.limits)))

    @app.post("/v1/recommend/batch", tags=["lists"], response_model=BatchAnswer, responses=_BODY_ERRORS)
    async def batch(body: Annotated[RawBatchBody, Body()]) -> Response:
        """Several lists; what is wrong with one of the requests does not harm the others."""
        bodies = [server.checked(one) for one in read_batch(body, server.limits)]
        check_total((one for one in bodies if isinstance(one, RecommendBody)), server.limits)
        with server.room.take(len(bodies) - 1):  # the gate counted one
            server.room.check(server.limits.max_running)
            answers = await asyncio.gather(*(server.answer_or_error(one) for one in bodies))
        return _text(f'{{"answers":[{",".join(answers)}]}}')


def _looking_up(app: FastAPI, server: Server) -> None:
    service = server.service
    found = {**_ERRORS, **_NOT_FOUND}

    @app.get("/v1/models", tags=["models"], response_model=Models, responses=_ERRORS)
    async def models() -> Response:
        """The models being served, with the data that they were fitted on."""
        return _json({"models": [served.facts() for served in service.models], "default": service.default})

    @app.get("/v1/models/{name}", tags=["models"], response_model=ModelFacts, responses=found)
    async def model(name: Name) -> Response:
        """One model."""
        return _json(service.model(name).facts())

    @app.get("/v1/models/{name}/popularity", tags=["models"], response_model=Curve, responses=found)
    async def popularity(name: Name, points: Annotated[int, Query(ge=2, le=2_000)] = 200) -> Response:
        """The popularity curve of the catalogue, at so many ranks at most."""
        return _json(await server.call(service.model(name).popularity_curve, points))

    @app.get("/v1/models/{name}/items", tags=["items"], response_model=Items, responses=found)
    async def items(name: Name, search: Search = "", n: N = 10) -> Response:
        """Items whose title has all these words, or words that begin so; without a text, the most popular ones."""
        within("n", n, server.limits.max_list)
        return _json({"items": await server.call(service.model(name).find_items, search, n)})

    @app.get(
        "/v1/models/{name}/items/{item:path}/similar", tags=["items"], response_model=SimilarItems, responses=found
    )
    async def similar(name: Name, item: Item, n: N = 10) -> Response:
        """The items that the model finds most like an item."""
        within("n", n, server.limits.max_list)
        return _json(await server.call(service.model(name).similar, item, n))

    @app.get("/v1/models/{name}/items/{item:path}", tags=["items"], response_model=ItemFacts, responses=found)
    async def one_item(name: Name, item: Item) -> Response:
        """One item."""
        return _json(service.model(name).item(item))

    @app.get("/v1/models/{name}/users", tags=["users"], response_model=Users, responses=found)
    async def users(name: Name, search: Search = "", n: N = 10) -> Response:
        """Known users whose id begins with this text."""
        within("n", n, server.limits.max_list)
        return _json({"users": await server.call(service.model(name).find_users, search, n)})

    @app.get("/v1/models/{name}/users/{user:path}", tags=["users"], response_model=UserFacts, responses=found)
    async def user(name: Name, user: Annotated[str, Path(description="id of a user")]) -> Response:
        """What a known user adopted and rejected."""
        return _json(await server.call(service.model(name).user, user))


def _operating(app: FastAPI, server: Server) -> None:
    refused = {"model": Error, "description": "The folder cannot be used; the old model serves on"}
    reloading = {**_ERRORS, **_NOT_FOUND, 409: refused}

    @app.post("/v1/models/{name}/reload", tags=["operation"], response_model=ModelFacts, responses=reloading)
    async def reload(name: Name) -> Response:
        """Read the model's folder again; no request is dropped, and a folder that is not whole is refused."""
        try:
            return _json((await server.reload(name)).facts())
        except FolderError as error:
            return _json({"error": str(error)}, 409)

    @app.get("/healthz", tags=["operation"])
    async def healthz() -> dict[str, str]:
        """The process is alive."""
        return {"status": "alive"}

    busy = {"model": Error, "description": "Requests wait for longer than a second"}

    @app.get("/readyz", tags=["operation"], responses={503: busy})
    async def readyz() -> Response:
        """Models are loaded and requests are answered: the thread that makes lists has a moment within a second."""
        try:
            await asyncio.wait_for(server.call(lambda: None), _READY_SECONDS)
        except TimeoutError:
            raise BusyError("the server is busy: requests wait for longer than a second") from None
        return _json({"status": "ready"})

    @app.get("/metrics", tags=["operation"], response_class=Response, responses={200: {"content": {"text/plain": {}}}})
    async def metrics() -> Response:
        """Figures for Prometheus: requests, times, errors, and the tail share and coverage of what is listed."""
        return Response(server.measured.text(), media_type="text/plain; version=0.0.4; charset=utf-8")


def _pages(app: FastAPI) -> None:
    files, style = _files_of("web"), resources.files("milrec.server").joinpath("docs_page.css").read_bytes()
    reference = cache(lambda: reference_page(app.openapi()))

    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        return _file(files, "index.html")

    @app.get("/web/{name:path}", include_in_schema=False)
    async def web(name: str) -> Response:
        return _file(files, name)

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return Response(reference(), media_type="text/html")

    @app.get("/docs.css", include_in_schema=False)
    async def docs_style() -> Response:
        return Response(style, media_type="text/css")


def _mistakes(app: FastAPI) -> None:
    @app.exception_handler(UnknownIdError)
    async def not_there(request: Request, error: UnknownIdError) -> Response:
        return _json(
            {"error": str(error)}, 422 if request.method == "POST" and "reload" not in request.url.path else 404
        )

    @app.exception_handler(MilrecError)
    async def not_so(request: Request, error: MilrecError) -> Response:
        return _json({"error": str(error)}, 422)

    @app.exception_handler(BusyError)
    async def not_now(request: Request, error: BusyError) -> Response:
        return _json({"error": str(error)}, 503, {"retry-after": "1"})

    @app.exception_handler(RequestValidationError)
    async def not_understood(request: Request, error: RequestValidationError) -> Response:
        return _json({"error": sentence_of(error.errors())}, 422)

    @app.exception_handler(HTTPException)
    async def not_found(request: Request, error: HTTPException) -> Response:
        sentences = {
            404: "there is no such page; see /docs",
            405: f"{request.method[:20]} does not go with this address; see /docs",
            400: "the body is not readable JSON",
        }
        return _json({"error": sentences.get(error.status_code, str(error.detail))}, error.status_code, error.headers)

    @app.exception_handler(Exception)
    async def failed(request: Request, error: Exception) -> Response:
        return _json({"error": "the server failed to answer; its log says why, under the request's X-Request-ID"}, 500)


def _json(value: Any, status: int = 200, headers: Any = None) -> Response:
    """JSON in ASCII: an id with half a character in it can be given back."""
    return _text(_ENCODER.encode(value), status, headers)


def _text(text: str, status: int = 200, headers: Any = None) -> Response:
    return Response(text, status, headers, media_type="application/json")


def _files_of(folder: str) -> dict[str, bytes]:
    """The files of a folder of this package, by their path in it: nothing else can be asked for."""
    root = resources.files("milrec.server") / folder
    with resources.as_file(root) as place:
        files = [file for file in place.rglob("*") if file.is_file()] if place.is_dir() else []
        return {file.relative_to(place).as_posix(): file.read_bytes() for file in files}


def _file(files: dict[str, bytes], name: str) -> Response:
    if name not in files:
        raise HTTPException(404)
    kind = {"js": "text/javascript", "md": "text/plain"}.get(name.rpartition(".")[2]) or mimetypes.guess_type(name)[0]
    return Response(files[name], media_type=kind or "application/octet-stream")
