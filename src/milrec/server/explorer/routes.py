"""The routes that the explorer page has for itself; what they answer is made when it is first asked for, and kept."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Annotated, Any
from weakref import WeakKeyDictionary

from fastapi import APIRouter, Path, Query, Response
from pydantic import BaseModel, Field

from milrec.server.answers import Error, ItemFacts, json_response
from milrec.server.explorer.company import Company, company
from milrec.server.explorer.portions import Gradual
from milrec.server.explorer.story import Story, comparable, story
from milrec.server.model import Served
from milrec.server.requests import within
from milrec.server.service import Server

_Key = tuple[tuple[str, str], ...]  # the name and the fingerprint of each model


class StoryAnswer(BaseModel):
    """An example to open with: a taste for which two models differ in a telling way."""

    adopted: list[ItemFacts]
    models: list[str] = Field(description="two models to compare, the one with more hits first; one if it is alone")


class Companion(ItemFacts):
    """An item that is listed together with another."""

    rank: int
    lists: int = Field(description="how many of the sampled lists have both")


class CompanyAnswer(BaseModel):
    """The items that a model lists together with another most often, in its lists for a sample of tastes."""

    items: list[Companion]
    listed: int = Field(description="how many of the sampled lists have the item")
    n_lists: int = Field(description="how many lists were sampled; each is for a taste of one liked item")


class Kept:
    """What has been made for the models that are being served now."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._companies: WeakKeyDictionary[Served, Gradual[Company]] = WeakKeyDictionary()
        self._story: tuple[_Key, Gradual[Story]] | None = None

    async def company(self, served: Served) -> Company:
        (own,) = _key([served])
        if served not in self._companies:
            self._companies[served] = Gradual(lambda: own in _key(self._server.registry.models))
        return await self._companies[served].outcome(self._server, partial(company, served.recommender))

    async def story(self, models: list[Served]) -> Story:
        own = _key(models)
        if self._story is None or self._story[0] != own:
            self._story = own, Gradual(lambda: own == _key(self._server.registry.models))
        return await self._story[1].outcome(self._server, partial(story, models))


def _key(models: Iterable[Served]) -> _Key:
    return tuple((served.name, served.fingerprint) for served in models)


def add_explorer_routes(app: APIRouter, server: Server, errors: dict[int | str, dict[str, Any]]) -> None:
    registry, kept = server.registry, Kept(server)
    found = {**errors, 404: {"model": Error, "description": "It does not exist"}}

    @app.get("/v1/story", tags=["lists"], response_model=StoryAnswer, responses=errors)
    async def example() -> Response:
        """A small taste of similar items to begin with, and the two models whose lists differ the most on average."""
        models = registry.models
        told = await kept.story(models)
        liked = [comparable(models)[0].numbered(item) for item in told.liked]
        return json_response({"adopted": liked, "models": told.models})

    @app.get("/v1/models/{name}/listed-with", tags=["items"], response_model=CompanyAnswer, responses=found)
    async def listed_with(
        name: Annotated[str, Path(description="name of a model")],
        item: Annotated[str, Query(description="id of an item")],
        n: Annotated[int, Query(ge=1, description="the most to return")] = 10,
    ) -> Response:
        """The items that the model lists together with an item most often, over lists for a sample of tastes."""
        within("n", n, server.limits.max_list)
        served = registry.model(name)
        number = int((await server.call(served.recommender.catalogue.item_numbers, [item]))[0])
        sample = await kept.company(served)
        return json_response(_company_facts(served, sample.of(number, n)))


def _company_facts(served: Served, facts: dict[str, Any]) -> dict[str, Any]:
    counts = facts.pop("counts").tolist()
    rows = enumerate(zip(facts["items"].tolist(), counts, strict=True), start=1)
    return {**facts, "items": [{"rank": rank, **served.numbered(item), "lists": lists} for rank, (item, lists) in rows]}
