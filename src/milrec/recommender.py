"""Recommender: ids in, ids out; the one object that the command line and the server hold."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import pyarrow as pa
from torch import nn

from milrec.data.interactions import Interactions, renumbered
from milrec.data.pairs import added
from milrec.data.splits import Part, Split
from milrec.errors import DataError, SettingsError, SkippedItemsWarning, counted
from milrec.evaluation.evaluation import Evaluation
from milrec.evaluation.judging import Judge, Judged, judge_of
from milrec.evaluation.similar import SimilarEvaluation, judge_similar
from milrec.exports.arrays import ListArrays, list_arrays
from milrec.exports.factors import IdFactors, item_factors, user_factors
from milrec.exports.onnx import write_onnx
from milrec.lists.answer import Listed, answer_of, lists_asked
from milrec.lists.catalogue import Catalogue, several
from milrec.lists.dislikes import Dislikes
from milrec.lists.export import item_columns, list_batch, list_schema, with_unmet
from milrec.lists.nearness import CoAdoption, Nearest, Nearness
from milrec.lists.query import Adopted, Answer, Asked, Query, Wanted, Wishes, ask, known_user, list_length, wanted
from milrec.lists.scores import Scorer, warn_of_the_old_dial
from milrec.models.contract import Likeness
from milrec.probability.aims import Aims, Price, aim_of
from milrec.training.artifact import Fitted

_USERS_AT_ONCE = 2048
OnUnmet = Callable[[Any, str], None]  # a user (None: a new one), and what their list could not meet


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
        users = counted(train.n_users, "user") if train.has_users else "without users"
        return f"<Recommender: {self.fitted.settings}, {users}, {counted(train.n_items, 'item')}>"

    def leaving_out(self, data: Interactions) -> Recommender:
        """The same, but never listing anything that users adopted or rejected in `data`: for lists that go live.

        Without it, lists only leave out the training and validation parts, so that they can be judged on test.
        """
        if not self.fitted.train.has_users:
            raise DataError(
                "the model was saved without its users, so their known items cannot be left out; omit `known`"
            )
        more = renumbered(added(data.adopted, data.rejected), data, self.fitted.train)
        return Recommender(replace(self.fitted, removed=added(self.fitted.removed, more)))

    def at_cost(self, cost: float) -> Dislikes:
        """A model of rejections, as another model's lists take it: a dislike costs them this many hits."""
        return Dislikes.of(self.fitted, self._scorer, cost)

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
        dislikes: Dislikes | None = None,
        **aims: Unpack[Aims],
    ) -> Evaluation:
        """Judge the lists on a held-out part of the split that the model was fitted on.

        `long_share=0.3` judges lists with 30 % of their first 20 places in the long tail, on average over users; see
        `recommend` for what else they can aim at, and for `dislikes`.

        A refitted model sees the validation items of users too. The training part still decides
        what is popular, novel and in the tail, so that a model and its refit can be compared.
        """
        warn_of_the_old_dial(dial)
        return self.judge(split, on, dial, dislikes, **aims).evaluation(report)

    def judge(
        self,
        split: Split,
        on: Part = "test",
        dial: float = 0.0,
        dislikes: Dislikes | None = None,
        **aims: Unpack[Aims],
    ) -> Judge:
        """What `evaluate` goes by: it judges a shard of users at a time, here or elsewhere."""
        return judge_of(self.fitted, split, on, Judged(self._scorer.chances, aim_of(aims), dial, dislikes))

    def recommend(
        self,
        users: Sequence[Any],
        n: int = 20,
        on_unmet: OnUnmet | None = None,
        **wishes: Unpack[Wishes],
    ) -> pa.Table:
        """Lists for known users, best first: user, position, item, title, score, probability, popularity, interval.

        Only items in `allow` are listed, where it is given, and none in `exclude`.
        `long_share=0.3`: 30 % of the listed items are from the long tail, on average over users, at the least cost in
        expected hits; `medium_share`, `short_share`, `mean_popularity` (at most) and `long_bonus` (λ) likewise.
        `dislikes=other.at_cost(0.5)`, with a model of what users reject (`milrec.fit_dislikes`): items are ranked by
        probability - 0.5 × the chance of a rejection, so that a dislike costs as much as half a hit.
        `dial` is the old dial, kept for a while: items are ranked by logit - dial × ln(popularity).
        Rules, e.g. `long >= 30%`, add a column `unmet` that says which ones could not be met. `reasons` adds a column
        with this many of the adopted items that speak for an item, each with its part of the logit. `on_unmet` is
        called for each list that could not be all that was asked for, since an empty list has no row to say so.
        """
        warn_of_the_old_dial(wishes.get("dial"))
        with self.catalogue.suggesting():
            rows = self.catalogue.user_numbers(several(users)).tolist()
        wish = wanted(self.catalogue, Query.wishing(n, wishes), self.fitted.prices)
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
        warn_of_the_old_dial(wishes.get("dial"))
        self.catalogue.refuse_without_users()
        wish = wanted(self.catalogue, Query.wishing(n, wishes), self.fitted.prices)
        yield from self._known(range(self.fitted.train.n_users) if users is None else users, wish, on_unmet)

    def recommend_arrays(self, users: Sequence[Any], n: int = 20, **wishes: Unpack[Wishes]) -> ListArrays:
        """The lists of `recommend` as two arrays of shape (n_users, n): `ids, scores = model.recommend_arrays(users)`.

        Where a list has fewer than n items, ids are -1 if they are whole numbers, else None, and scores are NaN.
        """
        warn_of_the_old_dial(wishes.get("dial"))
        with self.catalogue.suggesting():
            rows = self.catalogue.user_numbers(several(users)).tolist()
        wish = wanted(self.catalogue, Query.wishing(n, wishes), self.fitted.prices)
        blocks = (rows[first : first + _USERS_AT_ONCE] for first in range(0, len(rows), _USERS_AT_ONCE))
        asked = ([known_user(self.fitted, row, wish) for row in block] for block in blocks)
        return list_arrays(self.catalogue, [one for block in asked for one in self.listed(block)], list_length(n))

    def item_factors(self) -> IdFactors:
        """The items' factors with their ids: `ids, values = model.item_factors()`; models without factors refuse."""
        return item_factors(self.fitted)

    def user_factors(self) -> IdFactors:
        """The same for the known users: their row of factors, or what the encoder makes of what they adopted."""
        return user_factors(self.fitted)

    def to_onnx(self, path: str | Path) -> None:
        """Write the model as an ONNX file, which takes adopted items (or user numbers) and gives logits.

        See `milrec.exports.onnx` for inputs and outputs; needs `pip install 'milrec[onnx]'`.
        """
        write_onnx(self.fitted, Path(path))

    def list_schema(self, n: int = 20, **wishes: Unpack[Wishes]) -> pa.Schema:
        """The columns of the tables that `recommend` and `recommend_all` make."""
        return self._schema(wanted(self.catalogue, Query.wishing(n, wishes), self.fitted.prices))

    def recommend_new(
        self,
        adopted: Adopted,
        rejected: Sequence[Any] = (),
        n: int = 20,
        on_unmet: OnUnmet | None = None,
        *,
        user: Any | None = None,
        strict: bool = True,
        **wishes: Unpack[Wishes],
    ) -> pa.Table:
        """A list for a user the model has not met, from adopted (and rejected) items only; nothing is refitted.

        `adopted` may say how often: `{item: plays}`. A model reads this if it was fitted with `input_weights`.
        `user` is a known user whose new items these are: the list is for them and the training items together.
        With `strict=False` unknown items are skipped, if any adopted item or the user is known; `on_unmet` is told, or
        else a warning names them.
        """
        warn_of_the_old_dial(wishes.get("dial"))
        with self.catalogue.suggesting():
            asked = self.ask(Query(user, adopted, rejected, n, strict=strict, **wishes))
        if on_unmet is None and asked.skipped:
            warnings.warn(asked.said_of_skipped[0], SkippedItemsWarning, stacklevel=2)
        schema = self._schema(asked.wanted, users=user is not None)
        if self.fitted.model.needs_adopted and not len(asked.adopted):
            schema = with_unmet(schema)  # which says that the list goes by popularity
        return pa.Table.from_batches([self._batch([asked], schema, on_unmet)], schema)

    def price(self, n: int = 20, **wishes: Unpack[Wishes]) -> Price | None:
        """What lists with these wishes cost in expected hits, on validation; None if they do not ask for a tail."""
        return wanted(self.catalogue, Query.wishing(n, wishes), self.fitted.prices).price

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
        """Items by title, or by id: item, title, popularity, interval.

        All words must occur, each as the beginning of a word, ignoring case and accents. The item with exactly this id
        comes first, then titles that begin with the text; among these, more popular ones.
        """
        items = self.catalogue.find_items(text, list_length(n))
        return pa.table(item_columns(self.catalogue, items))

    def find_users(self, text: str, n: int = 20) -> list[Any]:
        """Users whose id begins with a text."""
        return self.catalogue.find_users(text, list_length(n))

    def user_items(self, user: Any) -> pa.Table:
        """What the model knows about a user: entry (adopted or rejected), item, title, popularity, interval."""
        with self.catalogue.suggesting():
            asked = self.ask(Query(user))
        items = np.concatenate([asked.adopted, asked.rejected]).astype(np.int64)
        entries = ["adopted"] * len(asked.adopted) + ["rejected"] * len(asked.rejected)
        columns = item_columns(self.catalogue, items)
        return pa.table({"entry": pa.array(entries, type=pa.string()), **columns})

    def similar_items(self, item: Any, n: int = 20) -> pa.Table:
        """The items most like an item, best first: position, item, title, popularity, interval, blend.

        The model and the users who adopted both items decide together, each as far as there is evidence; see
        `lists.nearness`. A model without its users decides alone, and the last column is `own`. In it, 1 is the nearest
        that this model finds for the item: values of different items are not comparable.
        """
        with self.catalogue.suggesting():
            found = self.nearest_items(item, n)
        columns = {"position": pa.array(np.arange(1, len(found.items) + 1, dtype=np.int32))}
        columns |= item_columns(self.catalogue, found.items)
        return pa.table({**columns, found.measure: pa.array(found.likeness)})

    def nearest_items(self, item: Any, n: int) -> Nearest:
        """The same by item number."""
        nearness = self._needed(self._nearness)
        number = int(self.catalogue.item_numbers([item])[0])
        return nearness.nearest(number, list_length(n))

    def nearest_by_model(self, item: int, n: int) -> Nearest:
        """The items that the model alone finds most like an item, going by its weights; all by number."""
        return self._needed(self._nearness_with(None)).nearest(item, n)

    def _needed(self, nearness: Nearness | None) -> Nearness:
        if nearness is None:
            raise SettingsError(f"a {self.fitted.settings.model.model} model has no item factors to compare")
        return nearness

    @cached_property
    def _nearness(self) -> Nearness | None:
        train = self.fitted.train
        return self._nearness_with(CoAdoption(train.adopted) if train.has_users else None)

    def _nearness_with(self, together: CoAdoption | None) -> Nearness | None:
        return None if self._likeness is None else Nearness(self._likeness, self.catalogue.popularity, together)

    @cached_property
    def _likeness(self) -> Likeness | None:
        return self.fitted.model.likeness()

    def evaluate_similar(self, split: Split, on: Part = "test", n: int = 20) -> SimilarEvaluation:
        """Judge `similar_items` on a held-out part: how many items that users adopted together it finds."""
        judge, length = self.judge(split, on), list_length(n)
        nearness = self._needed(self._nearness)
        return judge_similar(
            lambda item: nearness.nearest(item, length).items, judge.held_out, judge.popularity, length
        )

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
            sentences = [*listed.unmet, *one.said_of_skipped]
            if on_unmet is not None and sentences:
                user = None if one.row is None else self.catalogue.users[one.row].as_py()
                on_unmet(user, "; ".join(sentences))
        return list_batch(self.catalogue, asked, lists, schema)
