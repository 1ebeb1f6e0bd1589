"""Recommender: ids in, ids out; the one object that the command line, and later the server, holds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import torch
from scipy.sparse import csr_array

from milrec.answering import answer
from milrec.artifacts import Fitted
from milrec.asking import Answer, Asked, Query, ask, list_length
from milrec.baselines import check_memory, fit_baseline
from milrec.catalogue import TAIL_NAMES, Catalogue, several
from milrec.errors import DataError, SettingsError, UnknownIdError
from milrec.evaluation import Evaluation, evaluate, validation_measure
from milrec.interactions import Interactions, numbers_of, pairs_matrix, renumbered
from milrec.models import Factors, ItemToItem, Popularity, build_model
from milrec.presets import FitSettings, settings_for
from milrec.sampling import n_missing_drawn
from milrec.scoring import dial_shift, lists_for, top_items
from milrec.splitting import Audience, Part, Split
from milrec.training import Report
from milrec.training import fit as fit_factors


def fit(
    split: Split,
    model: str | FitSettings | None = None,
    loss: str | None = None,
    seed: int = 0,
    checkpoint: str | Path | None = None,
    report: Report | None = None,
    **values: Any,
) -> Recommender:
    """Fit a model by name (or by settings) to a split; further settings by their own names, as `epochs=30`.

    Without a name: the denoising autoencoder with the missing information loss, stopping early on validation.
    """
    if not isinstance(split, Split):
        raise DataError("a fit needs a split: milrec.split_interactions(data, seed=0)")
    settings = model.with_values(values) if isinstance(model, FitSettings) else settings_for(model, loss, values)
    train = split.train
    settings = settings.for_data(train.n_users, train.n_items)
    check_memory(settings.model, train.n_items)
    fitted = build_model(settings.model, train.n_users, train.n_items)
    started = time.monotonic()
    history = None
    if not isinstance(fitted, Factors):
        fit_baseline(fitted, train, seed, report)
    else:
        assert settings.training is not None
        validate = None
        if split.validation.targets.nnz:
            validate = validation_measure(settings.training.measure, settings, train, split.validation)
        history = fit_factors(fitted, train, settings, seed, validate, _path(checkpoint), report)
    facts = {
        "train_fingerprint": train.fingerprint(),
        "protocol": split.protocol,
        "split_seed": split.seed,
        "fit_seconds": round(time.monotonic() - started, 2),
    }
    removed = train.adopted if split.protocol == "users" else split.test.audience.removed
    return Recommender(Fitted(fitted, settings, train, removed, seed, history, facts))


def refit(
    split: Split, recommender: Recommender, checkpoint: str | Path | None = None, report: Report | None = None
) -> Recommender:
    """The same model fitted anew on training and validation together: same settings, same seed, and as many steps as
    validation chose. Nothing is left to choose by, so that it can be judged on test alone.
    """
    fitted = recommender.fitted
    if fitted.facts.get("refitted"):
        raise DataError("the model is refitted already: it has learned from validation too")
    if split.train.fingerprint() != fitted.facts["train_fingerprint"]:
        raise DataError("the model was fitted on another split; refit it on its own")
    settings, history = fitted.settings, fitted.history
    if history is not None:
        settings = settings.with_values({"until": history.kept_iteration or history.iterations[-1]})
    again = fit(split.joined(), settings, seed=fitted.seed, checkpoint=checkpoint, report=report).fitted
    return Recommender(replace(again, facts={**again.facts, "refitted": True}))


class Recommender:
    """A fitted model that speaks ids."""

    def __init__(self, fitted: Fitted) -> None:
        self.fitted = fitted
        train = fitted.train
        self.catalogue = Catalogue(train)
        factor = fitted.settings.target_set.target_factor if fitted.settings.target_set else 1.0
        self._n_drawn = n_missing_drawn(train.adopted, factor)

    @classmethod
    def load(cls, path: str | Path) -> Recommender:
        return cls(Fitted.load(path))

    def save(self, path: str | Path, replace: bool = False) -> None:
        self.fitted.save(path, replace)

    def __repr__(self) -> str:
        settings, train = self.fitted.settings, self.fitted.train
        loss = f" with {settings.loss.loss}" if settings.loss else ""
        return f"<Recommender: {settings.model.model}{loss}, {train.n_users:,} users, {train.n_items:,} items>"

    def leaving_out(self, data: Interactions) -> Recommender:
        """The same, with everything that users adopted or rejected in `data` never listed: for lists that go live.

        Without it, lists leave out the training and validation part alone, so that they can be judged on test.
        """
        more = renumbered(csr_array(data.adopted + data.rejected), data, self.fitted.train)
        return Recommender(replace(self.fitted, removed=csr_array(self.fitted.removed + more)))

    @property
    def user_ids(self) -> list[Any]:
        ids: list[Any] = self.fitted.train.users["id"].to_pylist()
        return ids

    @property
    def item_ids(self) -> list[Any]:
        ids: list[Any] = self.fitted.train.items["id"].to_pylist()
        return ids

    def evaluate(
        self,
        split: Split,
        on: Part = "test",
        report: Callable[[int, int], None] | None = None,
        dial: float = 0.0,
    ) -> Evaluation:
        """Judge the lists, re-ranked by `dial`, on a held-out part of the split that the model was fitted on.

        A refitted model sees the validation items of users too. What is popular, novel and in the tail is told by the
        training part in any case, so that a model and its refit can be compared.
        """
        own = split
        if self.fitted.facts.get("refitted"):
            if on == "validation":
                raise DataError("the model has learned from validation too (it is refitted); judge it on test")
            own = split.joined()
        if own.train.fingerprint() != self.fitted.facts["train_fingerprint"]:
            raise DataError("the model was fitted on another split; evaluate it on its own, or fit it anew on this one")
        return evaluate(self.fitted.model, self.fitted.settings, split.train, own.part(on), report, dial)

    def recommend(
        self,
        users: Sequence[Any],
        n: int = 20,
        allow: Iterable[Any] | None = None,
        exclude: Iterable[Any] | None = None,
        dial: float = 0.0,
    ) -> pa.Table:
        """Lists for known users, best first: user, rank, item, title (where known), score, popularity, tail.

        Items are ranked by logit - dial × ln(popularity): a dial above 0 lists rarer items, below 0 more popular ones.
        """
        try:
            rows = numbers_of(self.fitted.train.users["id"], several(users), "user")
        except UnknownIdError as error:
            raise UnknownIdError(f"{error}; for a user the model has not met, give adopted items") from None
        batches = list(self._listed(rows, n, self._allowed(allow, exclude), dial))
        return pa.Table.from_batches(batches, schema=self._schema())

    def recommend_all(
        self,
        n: int = 20,
        allow: Iterable[Any] | None = None,
        exclude: Iterable[Any] | None = None,
        dial: float = 0.0,
    ) -> Iterator[pa.RecordBatch]:
        """Lists for every known user, a batch of users at a time."""
        yield from self._listed(np.arange(self.fitted.train.n_users), n, self._allowed(allow, exclude), dial)

    def recommend_new(
        self,
        adopted: Sequence[Any],
        rejected: Sequence[Any] = (),
        n: int = 20,
        allow: Iterable[Any] | None = None,
        exclude: Iterable[Any] | None = None,
        dial: float = 0.0,
    ) -> pa.Table:
        """A list for a user the model has not met, from adopted (and rejected) items alone; nothing is refitted."""
        items = self.fitted.train.items["id"]
        own, refused = numbers_of(items, several(adopted), "item"), numbers_of(items, several(rejected), "item")
        if both := set(own.tolist()) & set(refused.tolist()):
            raise DataError(f"item '{items[min(both)].as_py()}' is both adopted and rejected")
        known, no = self._row(own), self._row(refused)
        audience = Audience(adopted=known, rejected=no, removed=known, rows=None)
        batches = list(self._lists(audience, None, n, self._allowed(allow, exclude), dial))
        return pa.Table.from_batches(batches, schema=self._schema(users=False))

    def ask(self, query: Query) -> Asked:
        """A query, checked and with its ids looked up; what is wrong with it is an error that says so."""
        return ask(self.fitted, self.catalogue, query)

    def answer(self, asked: Sequence[Asked]) -> list[Answer]:
        """The lists that were asked for; all are scored together, and none depends on the others."""
        return answer(self.fitted, self.catalogue, self._n_drawn, asked)

    def similar_items(self, item: Any, n: int = 20) -> pa.Table:
        """The items whose factors point in the most similar direction: item, title, cosine.

        For EASE and SLIM, those to which the item gives the largest weights above 0: item, title, weight.
        """
        model = self.fitted.model
        if isinstance(model, Popularity):
            raise SettingsError("a popularity model has no item factors to compare")
        number = int(numbers_of(self.fitted.train.items["id"], [item], "item")[0])
        if isinstance(model, ItemToItem):
            name, likeness = "weight", model.item_weight[number].numpy().copy()  # (n_items,)
            likeness[likeness <= 0] = -np.inf
        else:
            factors = torch.nn.functional.normalize(model.decoder_weight.detach(), dim=1)
            name, likeness = "cosine", (factors @ factors[number]).numpy()  # (n_items,)
        likeness[number] = -np.inf
        items = top_items(likeness[None, :], list_length(n))[0]
        items = items[items >= 0]
        columns = {"rank": pa.array(np.arange(1, len(items) + 1, dtype=np.int32)), **self._described(items)}
        return pa.table({**columns, name: pa.array(likeness[items])})

    def outside_catalogue(self, ids: Iterable[Any]) -> int:
        """How many of these item ids the model does not know."""
        wanted = pa.array([str(one) for one in several(ids)], type=pa.large_string())
        known = self.fitted.train.items["id"].cast(pa.large_string()).combine_chunks()
        return int(pc.index_in(wanted, value_set=known).null_count)

    def _allowed(self, allow: Iterable[Any] | None, exclude: Iterable[Any] | None) -> npt.NDArray[np.bool_] | None:
        """A mask over the catalogue; ids outside of it can never be listed and are passed over."""
        if allow is None and exclude is None:
            return None
        known = self.fitted.train.items["id"].cast(pa.large_string())
        mask = np.ones(len(known), dtype=bool)
        for ids, sign in ((allow, True), (exclude, False)):
            if ids is not None:
                wanted = pa.array([str(one) for one in several(ids)], type=pa.large_string())
                mask &= pc.is_in(known, value_set=wanted).to_numpy() == sign
        return mask

    def _listed(
        self, rows: npt.NDArray[np.int64], n: int, allowed: npt.NDArray[np.bool_] | None, dial: float
    ) -> Iterator[pa.RecordBatch]:
        train = self.fitted.train
        everyone = Audience(train.adopted, train.rejected, self.fitted.removed, np.arange(train.n_users))
        yield from self._lists(everyone.part(rows), rows, n, allowed, dial)

    def _lists(
        self,
        audience: Audience,
        rows: npt.NDArray[np.int64] | None,
        n: int,
        allowed: npt.NDArray[np.bool_] | None,
        dial: float,
    ) -> Iterator[pa.RecordBatch]:
        length, shift = list_length(n), dial_shift(dial, self.catalogue.popularity)
        parts = (self.fitted.model, self.fitted.settings, audience, self._n_drawn, length, allowed)
        for lists in lists_for(*parts, shift=shift):
            users, places = np.nonzero(lists.items >= 0)
            items = lists.items[users, places]
            columns: dict[str, Any] = {}
            if rows is not None:
                columns["user"] = (
                    self.fitted.train.users["id"].take(pa.array(rows[lists.users][users])).combine_chunks()
                )
            columns["rank"] = pa.array((places + 1).astype(np.int32))
            columns |= self._described(items)
            columns["score"] = pa.array(lists.scores[users, places])
            columns["popularity"] = pa.array(self.catalogue.popularity[items].astype(np.int32))
            columns["tail"] = pa.array(TAIL_NAMES).take(pa.array(self.catalogue.intervals[items]))
            yield pa.RecordBatch.from_pydict(columns, schema=self._schema(users=rows is not None))

    def _described(self, items: npt.NDArray[np.int64]) -> dict[str, pa.Array]:
        table = self.fitted.train.items.take(pa.array(items))
        described = {"item": table["id"].combine_chunks()}
        if "title" in table.column_names:
            described["title"] = table["title"].combine_chunks()
        return described

    def _schema(self, users: bool = True) -> pa.Schema:
        train = self.fitted.train
        fields = [("user", train.users["id"].type)] if users else []
        fields += [("rank", pa.int32()), ("item", train.items["id"].type)]
        if "title" in train.items.column_names:
            fields.append(("title", train.items["title"].type))
        return pa.schema([*fields, ("score", pa.float32()), ("popularity", pa.int32()), ("tail", pa.string())])

    def _row(self, items: npt.NDArray[np.int64]) -> Any:
        distinct = np.unique(items)
        users = np.zeros(len(distinct), dtype=np.int64)
        return pairs_matrix(users, distinct, np.ones(len(distinct)), (1, self.fitted.train.n_items))


def _path(path: str | Path | None) -> Path | None:
    return None if path is None else Path(path)
