"""The server: one thin function per route. Whatever is wrong is answered with {"error": "one sentence"}."""

from __future__ import annotations

import asyncio
import mimetypes
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from importlib import resources
from importlib.metadata import version
from typing import Annotated, Any, cast

from fastapi import APIRouter, Body, Depends, FastAPI, Path, Query, Response
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.types import ASGIApp, Receive, Scope, Send

from milrec.errors import BusyError, FolderError
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
    add_error_answers,
    error_response,
    json_response,
    text_response,
)
from milrec.server.docs_page import reference_page
from milrec.server.explorer.routes import add_explorer_routes
from milrec.server.gate.access import Visitors
from milrec.server.gate.admission import Admission
from milrec.server.gate.middleware import AnswerHeaders, Patience, RequestLog
from milrec.server.requests import (
    RawBatchBody,
    RawRecommendBody,
    RecommendBody,
    check_total,
    read_batch,
    read_request,
    refuse_unknown_keys,
    within,
)
from milrec.server.service import Server

_READY_SECONDS = 1.0  # a server whose scoring thread is busy for longer is not ready
_DESCRIPTION = (
    "Recommendation lists for known users and for tastes, with rules for the popularity tail, reasons, similar items "
    "and search. Ids may be sent as text or as whole numbers; answers have them as text. Whatever is wrong with a "
    'request, the answer is {"error": "one sentence"}.'
)
_ERRORS: dict[int | str, dict[str, Any]] = {
    401: {"model": Error, "description": "There is no key, or the server does not know it"},
    413: {"model": Error, "description": "The body is too large"},
    422: {"model": Error, "description": "Something is wrong with the request"},
    503: {"model": Error, "description": "The server is busy, or did not answer in time; try again"},
}
_BODY_ERRORS = {**_ERRORS, 400: {"model": Error, "description": "The body is not text in UTF-8"}}
_NOT_FOUND: dict[int | str, dict[str, Any]] = {404: {"model": Error, "description": "It does not exist"}}

Name = Annotated[str, Path(description="name of a model")]
Item = Annotated[str, Path(description="id of an item")]
N = Annotated[int, Query(ge=1, description="the most to return")]
Search = Annotated[str, Query(max_length=200, description="text to search for")]


def create_app(server: Server) -> ASGIApp:
    """The whole server as one ASGI app."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(server.registry.stop)

    app = FastAPI(
        title="milrec",
        version=version("milrec"),
        description=_DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
    )
    _add_list_routes(app, server)
    looked_up = APIRouter(dependencies=[Depends(refuse_unknown_keys)])
    add_explorer_routes(looked_up, server, _ERRORS)
    _add_lookup_routes(looked_up, server)
    app.include_router(looked_up)
    _add_operation_routes(app, server)
    _add_pages(app)
    add_error_answers(app)
    return _layered(app, server)


def _layered(app: FastAPI, server: Server) -> ASGIApp:
    """The app inside the layers that every request passes through, from the outermost to the innermost.

    Who may ask is settled before what may be asked; whatever happens, the answer has its headers and a log line.
    """
    limits, whole = server.limits, cast(ASGIApp, app)
    layers: list[Middleware] = [
        Middleware(AnswerHeaders, server.ids),
        Middleware(RequestLog, server.ledger),
        Middleware(Patience, limits.timeout),
        Middleware(Visitors, server.access),
        Middleware(Admission, server.capacity, limits.max_body),
    ]
    for layer in reversed(layers):
        whole = layer.cls(whole, *layer.args, **layer.kwargs)

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        """The start and the end of the server concern the app alone; there are no web sockets."""
        if scope["type"] in ("http", "lifespan"):
            await (whole if scope["type"] == "http" else app)(scope, receive, send)

    return serve


def _add_list_routes(app: FastAPI, server: Server) -> None:
    @app.post("/v1/recommend", tags=["lists"], response_model=RecommendAnswer, responses=_BODY_ERRORS)
    async def recommend(body: Annotated[RawRecommendBody, Body()]) -> Response:
        """A list for a known user, for a taste (items that somebody adopted and rejected), or for a known user who has
        adopted and rejected these items since the model was fitted."""
        return text_response(await server.answer(read_request(body, server.limits)))

    @app.post("/v1/recommend/batch", tags=["lists"], response_model=BatchAnswer, responses=_BODY_ERRORS)
    async def batch(body: Annotated[RawBatchBody, Body()]) -> Response:
        """Several lists at once; an error in one request does not affect the others."""
        bodies = [server.checked(one) for one in read_batch(body, server.limits)]
        check_total((one for one in bodies if isinstance(one, RecommendBody)), server.limits)
        more = len(bodies) - 1  # one is counted already
        server.capacity.check(more, own=1)
        with server.capacity.take(more):
            answers = await asyncio.gather(*(server.answer_or_error(one) for one in bodies))
        return text_response(f'{{"answers":[{",".join(answers)}]}}')


def _add_lookup_routes(app: APIRouter, server: Server) -> None:
    registry = server.registry
    found = {**_ERRORS, **_NOT_FOUND}

    @app.get("/v1/models", tags=["models"], response_model=Models, responses=_ERRORS)
    async def models() -> Response:
        """All models, each with facts about the data that it was fitted on."""
        return json_response({"models": [served.facts() for served in registry.models], "default": registry.default})

    @app.get("/v1/models/{name}", tags=["models"], response_model=ModelFacts, responses=found)
    async def model(name: Name) -> Response:
        """One model."""
        return json_response(registry.model(name).facts())

    @app.get("/v1/models/{name}/popularity", tags=["models"], response_model=Curve, responses=found)
    async def popularity(name: Name, points: Annotated[int, Query(ge=2, le=2_000)] = 200) -> Response:
        """The popularity curve of the catalogue, at no more than so many ranks."""
        return json_response(await server.call(registry.model(name).popularity_curve, points))

    @app.get("/v1/models/{name}/items", tags=["items"], response_model=Items, responses=found)
    async def items(name: Name, search: Search = "", n: N = 10) -> Response:
        """Items whose title contains all the words, or words that start with them; the most popular without a text."""
        within("n", n, server.limits.max_list)
        return json_response({"items": await server.call(registry.model(name).find_items, search, n)})

    @app.get(
        "/v1/models/{name}/items/{item:path}/similar", tags=["items"], response_model=SimilarItems, responses=found
    )
    async def similar(name: Name, item: Item, n: N = 10) -> Response:
        """The items that are most like an item, according to the model."""
        within("n", n, server.limits.max_list)
        return json_response(await server.call(registry.model(name).similar, item, n))

    @app.get("/v1/models/{name}/items/{item:path}", tags=["items"], response_model=ItemFacts, responses=found)
    async def one_item(name: Name, item: Item) -> Response:
        """One item."""
        return json_response(await server.call(registry.model(name).item, item))

    @app.get("/v1/models/{name}/users", tags=["users"], response_model=Users, responses=found)
    async def users(name: Name, search: Search = "", n: N = 10) -> Response:
        """Known users whose id starts with this text."""
        within("n", n, server.limits.max_list)
        return json_response({"users": await server.call(registry.model(name).find_users, search, n)})

    @app.get("/v1/models/{name}/users/{user:path}", tags=["users"], response_model=UserFacts, responses=found)
    async def user(name: Name, user: Annotated[str, Path(description="id of a user")]) -> Response:
        """What a known user adopted and rejected."""
        return json_response(await server.call(registry.model(name).user, user))


def _add_operation_routes(app: FastAPI, server: Server) -> None:
    refused = {"model": Error, "description": "The folder cannot be used; the old model keeps serving"}
    reloading = {**_ERRORS, **_NOT_FOUND, 409: refused}

    @app.post("/v1/models/{name}/reload", tags=["operation"], response_model=ModelFacts, responses=reloading)
    async def reload(name: Name) -> Response:
        """Read the model's folder again; no request is dropped, and a damaged folder is refused."""
        try:
            return json_response((await server.reload(name)).facts())
        except FolderError as error:
            return error_response(str(error), 409)

    @app.get("/healthz", tags=["operation"])
    async def healthz() -> dict[str, str]:
        """The process is alive."""
        return {"status": "alive"}

    busy = {"model": Error, "description": "Requests have to wait for more than a second"}

    @app.get("/readyz", tags=["operation"], responses={503: busy})
    async def readyz() -> Response:
        """The models are loaded, and requests are answered without waiting for more than a second."""
        try:
            await asyncio.wait_for(server.call(lambda: None), _READY_SECONDS)
        except TimeoutError:
            raise BusyError("the server is busy: requests have to wait for more than a second") from None
        return json_response({"status": "ready"})

    @app.get("/metrics", tags=["operation"], response_class=Response, responses={200: {"content": {"text/plain": {}}}})
    async def metrics() -> Response:
        """Metrics for Prometheus: requests, times, errors, and the tail shares and coverage of recent lists."""
        return Response(await server.whole.page(), media_type="text/plain; version=0.0.4; charset=utf-8")


def _add_pages(app: FastAPI) -> None:
    files, own = _files_of("web"), resources.files("milrec.server")
    style, script = (own.joinpath(name).read_bytes() for name in ("docs_page.css", "docs_page.js"))
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

    @app.get("/docs.js", include_in_schema=False)
    async def docs_script() -> Response:
        return Response(script, media_type="text/javascript")


def _files_of(folder: str) -> dict[str, bytes]:
    """The files in a folder of this package, by their path in it; no other file can be requested."""
    root = resources.files("milrec.server") / folder
    with resources.as_file(root) as place:
        files = [file for file in place.rglob("*") if file.is_file()] if place.is_dir() else []
        return {file.relative_to(place).as_posix(): file.read_bytes() for file in files}


def _file(files: dict[str, bytes], name: str) -> Response:
    if name not in files:
        raise HTTPException(404)
    kind = {"js": "text/javascript", "md": "text/plain"}.get(name.rpartition(".")[2]) or mimetypes.guess_type(name)[0]
    return Response(files[name], media_type=kind or "application/octet-stream")
