"""Recommender: ids in, ids out; the one object that the command line and the server hold."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import pyarrow as pa
from torch import nn

from milrec.data.interactions import Interactions, checked_seed, renumbered
from milrec.data.pairs import added
from milrec.data.splits import Part, Split
from milrec.errors import DataError, SettingsError
from milrec.evaluation.calibration import calibrate
from milrec.evaluation.evaluation import Evaluation
from milrec.evaluation.judging import Judge, Judged
from milrec.evaluation.validation import validation_measure
from milrec.lists.answer import Listed, answer_of, lists_asked
from milrec.lists.catalogue import Catalogue, several
from milrec.lists.export import item_columns, list_batch, list_schema
from milrec.lists.nearness import Nearest, Nearness
from milrec.lists.query import Adopted, Answer, Asked, Query, Wanted, Wishes, ask, known_user, list_length, wanted
from milrec.lists.scores import Scorer
from milrec.probability.aims import Aims, Price, aim_of
from milrec.training.artifact import Fitted
from milrec.training.presets import settings_for
from milrec.training.progress import Report, Watch
from milrec.training.sections import Shape
from milrec.training.settings import FitSettings

_USERS_AT_ONCE = 2048
OnUnmet = Callable[[Any, str], None]  # a user (None: a new one), and what their list could not meet


def fit(
    split: Split,
    model: str | type[nn.Module] | FitSettings | None = None,
    loss: str | None = None,
    seed: int = 0,
    checkpoint: str | Path | None = None,
    report: Report | None = None,
    **values: Any,
) -> Recommender:
    """Fit a model by name (or by settings) to a split; further settings by name, e.g. `epochs=30`.

    Without a name: the denoising autoencoder with the missing information loss, stopping early on validation.
    """
    if not isinstance(split, Split):
        raise DataError("a fit needs a split: milrec.split_interactions(data, seed=0)")
    if model is None or isinstance(model, str | type):
        settings = settings_for(model, loss, values)
    elif isinstance(model, nn.Module):
        name = type(model).__name__
        raise SettingsError(f"give the class of your encoder, not an instance: milrec.fit(split, {name})")
    elif loss is not None:
        raise SettingsError("settings already name a loss; leave `loss` out")
    else:
        settings = model.with_values(values)
    train, seed = split.train, checked_seed(seed)
    settings = settings.for_data(Shape.of(train))
    fitted = settings.new_model(train.n_users, train.n_items, seed)
    started = time.monotonic()
    validate = None
    if settings.measure is not None and split.validation.targets.nnz:
        validate = validation_measure(settings.measure, settings, train, split.validation)
    history = settings.fit(
        fitted, train, seed, Watch(validate, None if checkpoint is None else Path(checkpoint), report)
    )
    facts = {
        "train_fingerprint": train.fingerprint(),
        "protocol": split.protocol,
        "split_seed": split.seed,
        "fit_seconds": round(time.monotonic() - started, 2),
    }
    removed = train.adopted if split.protocol == "users" else split.test.audience.removed
    calibration = calibrate(fitted, settings, split)
    return Recommender(Fitted(fitted, settings, train, removed, seed, history, facts, calibration))


def refit(
    split: Split, recommender: Recommender, checkpoint: str | Path | None = None, report: Report | None = None
) -> Recommender:
    """The same model fitted from scratch on training and validation together: same settings, same seed, and as many
    steps as validation chose. No validation part is left, so it can only be judged on test, and its probabilities and
    the prices of the tail are those of the fit before it.
    """
    fitted = recommender.fitted
    if fitted.facts.get("refitted"):
        raise DataError("the model is already refitted: it has learned from validation too")
    if split.train.fingerprint() != fitted.facts["train_fingerprint"]:
        raise DataError("the model was fitted on another split; refit it on that one")
    settings = refit_settings(recommender)
    again = fit(split.joined(), settings, seed=fitted.seed, checkpoint=checkpoint, report=report).fitted
    facts = {**again.facts, "refitted": True}
    return Recommender(replace(again, facts=facts, calibration=fitted.calibration))


def refit_settings(recommender: Recommender) -> FitSettings:
    """Those of a model, ending with the step that validation chose."""
    settings, history = recommender.fitted.settings, recommender.fitted.history
    return settings if history is None else settings.ending_at(history.last_step)


class Recommender:
    """A fitted model that speaks ids."""

    def __init__(self, fitted: Fitted) -> None:
        self.fitted = fitted
        train = fitted.train
        self.catalogue = Catalogue(train)
        self._scorer = Scorer(fitted.model, fitted.settings, train, fitted.calibration)

    @classmethod
    def load(cls, path: str | Path, models: Sequence[type[nn.Module]] = ()) -> Recommender:
        """Open a model folder, checked; `models` are the encoders, other than milrec's, that it may hold."""
        return cls(Fitted.load(path, models))

    def save(self, path: str | Path, replace: bool = False) -> None:
        self.fitted.save(path, replace)

    def without_users(self) -> Recommender:
        """The same without its users: saved, it holds items, their popularity and weights, and lists for new users.

        Models that have weights for each user (mf, wmf, cdae) are refused.
        """
        return Recommender(self.fitted.without_users())

    def __repr__(self) -> str:
        train = self.fitted.train
        users = f"{train.n_users:,} users" if train.has_users else "without users"
        return f"<Recommender: {self.fitted.settings}, {users}, {train.n_items:,} items>"

    def leaving_out(self, data: Interactions) -> Recommender:
        """The same, but never listing anything that users adopted or rejected in `data`: for lists that go live.

        Without it, lists only leave out the training and validation parts, so that they can be judged on test.
        """
        if not self.fitted.train.has_users:
            raise DataError("the model was saved without its users, so nothing of theirs can be left out; omit `known`")
        more = renumbered(added(data.adopted, data.rejected), data, self.fitted.train)
        return Recommender(replace(self.fitted, removed=added(self.fitted.removed, more)))

    @property
    def folds_in(self) -> bool:
        """Whether a list for a new user takes long, because a row of factors has to be fitted first."""
        return self.fitted.model.folds_in

    @property
    def weight_bytes(self) -> int:
        """The memory that its weights take up; unless users are folded in, a list reads each of them once at most."""
        return sum(value.nbytes for value in self.fitted.model.tensors().values())

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
        **aims: Unpack[Aims],
    ) -> Evaluation:
        """Judge the lists on a held-out part of the split that the model was fitted on.

        `long_share=0.3` judges lists with 30 % of their first 20 places in the long tail, on average over users; see
        `recommend` for what else they can aim at.

        A refitted model sees the validation items of users too. The training part still decides
        what is popular, novel and in the tail, so that a model and its refit can be compared.
        """
        _warn_of_the_old_dial(dial)
        return self.judge(split, on, dial, **aims).evaluation(report)

    def judge(self, split: Split, on: Part = "test", dial: float = 0.0, **aims: Unpack[Aims]) -> Judge:
        """What `evaluate` goes by: it judges a shard of users at a time, here or elsewhere."""
        if not isinstance(split, Split):
            raise DataError("a model is judged on a split: milrec.split_interactions(data, seed=0)")
        own = split
        if self.fitted.facts.get("refitted"):
            if on == "validation":
                raise DataError("the model is refitted and has learned from validation too; judge it on test")
            own = split.joined()
        if own.train.fingerprint() != self.fitted.facts["train_fingerprint"]:
            raise DataError("the model was fitted on another split; evaluate it on that one, or fit it on this one")
        judged = Judged(self._scorer.chances, aim_of(aims), dial)
        return Judge(self.fitted.model, self.fitted.settings, split.train, own.part(on), judged)

    def recommend(
        self,
        users: Sequence[Any],
        n: int = 20,
        on_unmet: OnUnmet | None = None,
        **wishes: Unpack[Wishes],
    ) -> pa.Table:
        """Lists for known users, best first: user, rank, item, title, score, probability, popularity, tail.

        Only items in `allow` are listed, where it is given, and none in `exclude`.
        `long_share=0.3`: 30 % of the listed items are from the long tail, on average over users, at the least cost in
        expected hits; `medium_share`, `short_share`, `mean_popularity` (at most) and `long_bonus` (λ) likewise.
        `dial` is the old dial, kept for a while: items are ranked by logit - dial × ln(popularity).
        Rules, e.g. `long >= 30%`, add a column `unmet` that says which ones could not be met. `reasons` adds a column
        with this many of the adopted items that speak for an item, each with its part of the logit. `on_unmet` is
        called for each list that could not be all that was asked for, since an empty list has no row to say so.
        """
        _warn_of_the_old_dial(wishes.get("dial"))
        rows = self.catalogue.user_numbers(several(users)).tolist()
        wish = wanted(self.catalogue, Query(n=n, **wishes), self.fitted.prices)
        schema = self._schema(wish)
        return pa.Table.from_batches(self._known(rows, wish, on_unmet), schema)

    def recommend_all(
        self,
        n: int = 20,
        on_unmet: OnUnmet | None = None,
        users: range | None = None,
        **wishes: Unpack[Wishes],
    ) -> Iterator[pa.RecordBatch]:
        """Lists for every known user, or for those with these numbers, a batch of users at a time."""
        _warn_of_the_old_dial(wishes.get("dial"))
        self.catalogue.refuse_without_users()
        wish = wanted(self.catalogue, Query(n=n, **wishes), self.fitted.prices)
        yield from self._known(range(self.fitted.train.n_users) if users is None else users, wish, on_unmet)

    def list_schema(self, n: int = 20, **wishes: Unpack[Wishes]) -> pa.Schema:
        """The columns of the tables that `recommend` and `recommend_all` make."""
        return self._schema(wanted(self.catalogue, Query(n=n, **wishes), self.fitted.prices))

    def recommend_new(
        self,
        adopted: Adopted,
        rejected: Sequence[Any] = (),
        n: int = 20,
        on_unmet: OnUnmet | None = None,
        **wishes: Unpack[Wishes],
    ) -> pa.Table:
        """A list for a user the model has not met, from adopted (and rejected) items only; nothing is refitted.

        `adopted` may say how often: `{item: plays}`. A model reads this if it was fitted with `input_weights`.
        """
        _warn_of_the_old_dial(wishes.get("dial"))
        asked = self.ask(Query(None, adopted, rejected, n, **wishes))
        schema = self._schema(asked.wanted, users=False)
        return pa.Table.from_batches([self._batch([asked], schema, on_unmet)], schema)

    def price(self, n: int = 20, **wishes: Unpack[Wishes]) -> Price | None:
        """What lists with these wishes cost in expected hits, on validation; None if they do not ask for a tail."""
        return wanted(self.catalogue, Query(n=n, **wishes), self.fitted.prices).price

    def ask(self, query: Query) -> Asked:
        """A query, checked and with its ids looked up; a wrong one raises an error that says why."""
        return ask(self.fitted, self.catalogue, query)

    def answer(self, asked: Sequence[Asked]) -> list[Answer]:
        """The lists that were asked for; all are scored together, and none depends on the others."""
        lists = self.listed(asked)
        return [answer_of(self.catalogue, one, listed) for one, listed in zip(asked, lists, strict=True)]

    def listed(self, asked: Sequence[Asked]) -> list[Listed]:
        """The same lists in numbers, for those who write them down themselves."""
        return lists_asked(self._scorer, self.catalogue, asked)

    def find_items(self, text: str, n: int = 20) -> pa.Table:
        """Items by title, or by id: item, title, popularity, tail.

        All words must occur, each as the beginning of a word, ignoring case and accents. The item with exactly this id
        comes first, then titles that begin with the text; among these, more popular ones.
        """
        items = self.catalogue.find_items(text, list_length(n))
        return pa.table(item_columns(self.catalogue, items))

    def find_users(self, text: str, n: int = 20) -> list[Any]:
        """Users whose id begins with a text."""
        return self.catalogue.find_users(text, list_length(n))

    def user_items(self, user: Any) -> pa.Table:
        """What the model knows about a user: entry (adopted or rejected), item, title, popularity, tail."""
        asked = self.ask(Query(user))
        items = np.concatenate([asked.adopted, asked.rejected]).astype(np.int64)
        entries = ["adopted"] * len(asked.adopted) + ["rejected"] * len(asked.rejected)
        columns = item_columns(self.catalogue, items)
        return pa.table({"entry": pa.array(entries, type=pa.string()), **columns})

    def similar_items(self, item: Any, n: int = 20) -> pa.Table:
        """The items whose factors point in the most similar direction: rank, item, title, popularity, tail, cosine.

        For EASE and SLIM, those to which the item gives the largest weights above 0, with a column `weight`.
        """
        found = self.nearest_items(item, n)
        columns = {"rank": pa.array(np.arange(1, len(found.items) + 1, dtype=np.int32))}
        columns |= item_columns(self.catalogue, found.items)
        return pa.table({**columns, found.measure: pa.array(found.likeness)})

    def nearest_items(self, item: Any, n: int) -> Nearest:
        """The same by item number."""
        if self._nearness is None:
            raise SettingsError(f"a {self.fitted.settings.model.model} model has no item factors to compare")
        number = int(self.catalogue.item_numbers([item])[0])
        return self._nearness.nearest(number, list_length(n))

    @cached_property
    def _nearness(self) -> Nearness | None:
        likeness = self.fitted.model.likeness()
        return None if likeness is None else Nearness(likeness)

    def outside_catalogue(self, ids: Iterable[Any]) -> int:
        """How many of these item ids the model does not know."""
        given = several(ids)
        return len(given) - len(self.catalogue.items_among(given))

    def _schema(self, wish: Wanted, users: bool = True) -> pa.Schema:
        return list_schema(self.catalogue, wish, users, self._scorer.chances is not None)

    def _known(self, rows: Sequence[int], wish: Wanted, on_unmet: OnUnmet | None) -> Iterator[pa.RecordBatch]:
        schema = self._schema(wish)
        for first in range(0, len(rows), _USERS_AT_ONCE):
            asked = [known_user(self.fitted, row, wish) for row in rows[first : first + _USERS_AT_ONCE]]
            yield self._batch(asked, schema, on_unmet)

    def _batch(self, asked: Sequence[Asked], schema: pa.Schema, on_unmet: OnUnmet | None) -> pa.RecordBatch:
        lists = lists_asked(self._scorer, self.catalogue, asked)
        for one, listed in zip(asked, lists, strict=True):
            if on_unmet is not None and listed.unmet:
                user = None if one.row is None else self.catalogue.users[one.row].as_py()
                on_unmet(user, "; ".join(listed.unmet))
        return list_batch(self.catalogue, asked, lists, schema)


def _warn_of_the_old_dial(dial: float | None) -> None:
    if dial:
        warnings.warn(
            "dial is deprecated: its scale differs from model to model; use long_share; milrec 0.4.0 removes it",
            DeprecationWarning,
            stacklevel=3,
        )
