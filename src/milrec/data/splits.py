"""Splits: which interactions a model learns from, and which are kept back to judge it.

The catalogue of a split is the items with at least one training interaction; held-out pairs of other items are dropped
and counted (decision D6). A split depends only on the seed and on the set of interactions, never on the order of rows.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from milrec.data.draws import Hidden, Rounding, divide, drawn_like, drawn_share, hidden_share, some_of_each_row
from milrec.data.interactions import Interactions, generator, numbers_in, renumbered
from milrec.data.pairs import added, empty_pairs, item_counts, pairs_where, read_pairs, take, without, write_pairs
from milrec.data.sample_size import held_out_faults, or_over_interactions
from milrec.errors import DataError, FolderError, SettingsError, SmallDataWarning, counted, unknown
from milrec.storage import Manifest, check_files, new_folder, opened_folder

Part = Literal["validation", "test"]
Protocol = Literal["interactions", "users", "given"]
PROTOCOLS: tuple[Protocol, ...] = ("interactions", "users", "given")
Labels = tuple[csr_array, csr_array]  # adopted and rejected pairs
Kept = tuple[dict[str, csr_array], int]  # targets and rejected targets, and how many targets were dropped
_HELD_OUT_FILES = ("adopted", "targets", "rejected", "rejected_targets")
_LEFT_OUT = ("test_unknown_users", "test_pairs_of_unknown_users", "test_pairs_in_data")


@dataclass(frozen=True, eq=False)
class Audience:
    """The users that lists are made for: what the model may know about them, and what must not be listed."""

    adopted: csr_array  # (n_users, n_items) what the encoder sees
    rejected: csr_array  # (n_users, n_items) known rejections: never listed
    removed: csr_array  # (n_users, n_items) never listed: what they already have
    rows: npt.NDArray[np.int64] | None  # their rows in the training part; None for users who are not in it

    @property
    def n_users(self) -> int:
        return int(self.adopted.shape[0])

    def part(self, users: npt.NDArray[np.int64] | slice) -> Audience:
        rows = None if self.rows is None else self.rows[users]
        return Audience(
            csr_array(self.adopted[users]),
            csr_array(self.rejected[users]),
            csr_array(self.removed[users]),
            rows,
        )


@dataclass(frozen=True, eq=False)
class HeldOut:
    """What is held out: an audience, the held-out adopted items, and rejected items that should not be listed."""

    audience: Audience
    targets: csr_array  # (n_users, n_items)
    rejected_targets: csr_array  # (n_users, n_items)
    dropped_targets: int  # pairs whose item has no training interaction


@dataclass(frozen=True, eq=False)
class Split:
    """The training part, and two held-out parts."""

    train: Interactions
    validation: HeldOut
    test: HeldOut
    protocol: Protocol
    seed: int
    left_out: dict[str, int] = field(default_factory=dict)  # parts of a given test part that cannot be used
    like_test: bool = False  # the validation part has the popularity profile of the test part
    of_rejections: bool = False  # adopted and rejected pairs are exchanged (see `roles`)

    def __repr__(self) -> str:
        kind = "Split with a given test part" if self.protocol == "given" else f"Split over {self.protocol}"
        return f"<{kind}, seed {self.seed}: {counted(self.train.adopted.nnz, 'pair')} to learn from>"

    def part(self, name: Part) -> HeldOut:
        if name not in ("validation", "test"):
            raise SettingsError(unknown("part", name, ("validation", "test")))
        return self.validation if name == "validation" else self.test

    def joined(self) -> Split:
        """The same with the validation part added to training: for a last fit, once everything has been chosen."""
        if self.protocol == "users":
            raise DataError("a split over users holds out users for validation, not pairs to refit on")
        if self.validation.targets.nnz + self.validation.rejected_targets.nnz == 0:
            raise DataError(
                "the split has no validation part to refit on; the model has already learned from everything"
            )
        train = replace(
            self.train,
            adopted=added(self.train.adopted, self.validation.targets),
            rejected=added(self.train.rejected, self.validation.rejected_targets),
        )
        nothing = {"targets": empty_pairs(train.adopted.shape), "rejected_targets": empty_pairs(train.adopted.shape)}
        judged = {"targets": self.test.targets, "rejected_targets": self.test.rejected_targets}
        validation, test = _known_users(train, (nothing, 0), (judged, self.test.dropped_targets))
        return replace(self, train=train, validation=validation, test=test)

    def facts(self) -> dict[str, Any]:
        return {
            "protocol": self.protocol,
            "seed": self.seed,
            **self.train.facts(),
            **{
                f"{name}_{what}": count
                for name in ("validation", "test")
                for what, count in _held_out_facts(self.part(name)).items()
            },
            **self.left_out,
            **({"validation_like_test": True} if self.like_test else {}),
        }

    def save(self, path: str | Path, facts: dict[str, Any] | None = None, replace: bool = False) -> None:
        """Write a split folder; it appears whole or not at all."""
        if self.of_rejections:
            raise DataError("save the split itself; milrec.fit_dislikes exchanges the roles of its pairs")
        with new_folder(Path(path), "split", replace) as draft:
            self.train.write_into(draft)
            for name, part in (("validation", self.validation), ("test", self.test)):
                audience = part.audience
                write_pairs(draft.path / f"{name}_targets.arrow", part.targets)
                write_pairs(draft.path / f"{name}_rejected_targets.arrow", part.rejected_targets)
                if self.protocol == "users":
                    write_pairs(draft.path / f"{name}_adopted.arrow", audience.adopted)
                    write_pairs(draft.path / f"{name}_rejected.arrow", audience.rejected)
            draft.facts.update({**(facts or {}), **self.facts()})

    @classmethod
    def load(cls, path: str | Path) -> Split:
        with opened_folder(Path(path), "split") as manifest:
            protocol, seed = manifest.facts.get("protocol"), _count(manifest, "seed", 2**63 - 1)
            if protocol not in PROTOCOLS:
                raise FolderError(f"'{manifest.path}' is damaged: protocol {protocol!r:.40} is not known")
            train = Interactions.read_from(manifest)
            first, second = (_read_part(manifest, name, protocol, train) for name in ("validation", "test"))
            if protocol == "users":
                validation, test = (_strangers(**read, dropped_targets=dropped) for read, dropped in (first, second))
            else:
                validation, test = _known_users(train, first, second)
            left_out = {fact: _count(manifest, fact) for fact in _LEFT_OUT} if protocol == "given" else {}
            return cls(train, validation, test, protocol, seed, left_out, "validation_like_test" in manifest.facts)


def _read_part(manifest: Manifest, name: str, protocol: str, train: Interactions) -> Kept:
    """The matrices of a held-out part, and how many of its targets were dropped."""
    files = _HELD_OUT_FILES if protocol == "users" else ("targets", "rejected_targets")
    paths = {file: manifest.path / f"{name}_{file}.arrow" for file in files}
    check_files(manifest, [path.name for path in paths.values()])
    n_users = _count(manifest, f"{name}_users_in_part")
    plenty = 1_000_000 + sum(path.stat().st_size for path in paths.values())  # one for each byte, many with no pair
    if n_users > plenty or (protocol != "users" and n_users != train.n_users):
        raise FolderError(f"'{manifest.path}' is damaged: {n_users} users in the {name} part are not its users")
    matrices = {file: read_pairs(path, (n_users, train.n_items)) for file, path in paths.items()}
    return matrices, _count(manifest, f"{name}_dropped_targets")


def _refuse_other(*given: object) -> None:
    for one in given:
        if not isinstance(one, Interactions):
            raise DataError(f"a split is made of interactions, not of {type(one).__name__}: milrec.read(table)")


def split_interactions(data: Interactions, seed: int, held_out: float = 0.1) -> Split:
    """80/10/10 at random over interactions: the paper's protocol. Rejected entries are divided in the same way."""
    _refuse_other(data)
    if not 0 <= held_out <= 0.5:
        raise SettingsError(
            f"`held_out` must be between 0 and 0.5 (it is used twice, for validation and test), not {held_out:g}"
        )
    random = generator(seed, 1)
    train, validation, test = divide(data.adopted, held_out, random)
    rejected, rejected_validation, rejected_test = divide(data.rejected, held_out, random)
    held = (validation, rejected_validation), (test, rejected_test)
    kept, parts = _in_catalogue(data, (train, rejected), held)
    split = Split(kept, *_known_users(kept, *parts), protocol="interactions", seed=seed)
    if held_out:
        _warn_of_few_users(split, "use more data, or hold out more of it (`held_out`)")
    return split


def split_given(
    data: Interactions, test: Interactions, seed: int, held_out: float = 0.1, *, like_test: bool = False
) -> Split:
    """A test part that comes with the data: later in time, or chosen by the publisher.

    Users and items are matched by id. A random share of `data`, `held_out`, is for validation (0: none), the rest is to
    learn from. Pairs of `test` with a user who is not in `data`, pairs that are in `data` too, and pairs whose item has
    no training interaction are dropped and counted, in this order. With `like_test`, popular and rare items have as
    much weight in validation as in the test part: what is then chosen on validation knows a little of the test part.
    """
    _refuse_other(data, test)
    if not 0 <= held_out < 1:
        raise SettingsError(f"`held_out` must be a share from 0 up to, but not including, 1, not {held_out:g}")
    random = generator(seed, 6)
    known, found = added(data.adopted, data.rejected), renumbered(test.adopted, test, data)
    if like_test:
        train, validation = drawn_like(data.adopted, without(found, known), held_out, random)
    else:
        train, validation = drawn_share(data.adopted, held_out, random)
    rejected, rejected_validation = drawn_share(data.rejected, held_out, random)
    targets, rejected_targets = without(found, known), without(renumbered(test.rejected, test, data), known)
    held = (validation, rejected_validation), (targets, rejected_targets)
    kept, (first, (second, _)) = _in_catalogue(data, (train, rejected), held)
    strange = numbers_in(test.users["id"], data.users["id"], "user") < 0
    left_out = int(strange.sum()), int(np.diff(test.adopted.indptr)[strange].sum()), int(found.nnz - targets.nnz)
    dropped = int(test.adopted.nnz - left_out[1] - left_out[2] - second["targets"].nnz)
    if second["targets"].nnz == 0:
        raise DataError(
            f"no adopted pair is left in the test part: of {test.adopted.nnz}, {left_out[1]} have users "
            f"who are not in the data, {left_out[2]} are in the data too, {dropped} have items outside its catalogue"
        )
    parts = _known_users(kept, first, (second, dropped))
    counts = dict(zip(_LEFT_OUT, left_out, strict=True))
    split = Split(kept, *parts, protocol="given", seed=seed, left_out=counts, like_test=like_test)
    _warn_of_few_users(split, "use a larger test part" if held_out == 0 else "use more data")
    return split


def split_users(
    data: Interactions,
    seed: int,
    held_out: int | None = None,
    given: float = 0.8,
    *,
    rounding: Rounding = "nearest",
    told: float | None = None,
) -> Split:
    """Held-out users (strong generalisation): the model is given most of their items and has to find the rest.

    `held_out` users are for validation and as many for test; by default a tenth of the users, 10,000 at most, as in the
    paper for ML-20M. `given` is the share of a user's items that the model is given; it was called `told` in 0.1.0.
    The rest is rounded, to at least one item, or cut off (`rounding="down"`) as in the code of Liang et al. 2018.
    """
    _refuse_other(data)
    if told is not None:
        warnings.warn("told is now called given; milrec 0.4.0 removes the old name", DeprecationWarning, stacklevel=2)
        given = told
    if not 0 <= given <= 1:
        raise SettingsError(f"given must be a share between 0 and 1, not {given:g}")
    n_held_out = min(data.n_users // 10, 10_000) if held_out is None else held_out
    if n_held_out < 1 or data.n_users - 2 * n_held_out < 1:
        raise DataError(
            f"{data.n_users} users are too few to hold out {max(n_held_out, 1)} for validation and as many for test"
        )
    random = generator(seed, 2)
    order = random.permutation(data.n_users)
    *held, learning = (np.sort(group) for group in np.split(order, [n_held_out, 2 * n_held_out]))
    everything = np.arange(data.n_items)
    in_catalogue = item_counts(take(data.adopted, learning, everything)) > 0
    train = data.subset(np.isin(np.arange(data.n_users), learning), in_catalogue)
    hidden = hidden_share(given, rounding)
    validation, test = (_held_out_users(data, group, np.flatnonzero(in_catalogue), hidden, random) for group in held)
    split = Split(train, validation, test, protocol="users", seed=seed)
    judged, n_adopted = _held_out_facts(split.test)["users"], np.diff(data.adopted.indptr)
    _warn_of_few_users(split, f"use more data{or_over_interactions(judged, n_adopted)}")
    return split


def _warn_of_few_users(split: Split, cure: str) -> None:
    """Now, and not after a long fit: about the test part, and about validation, if there is any."""
    test, validation = _held_out_facts(split.test), _held_out_facts(split.validation)
    unwanted = split.protocol == "given" and not validation["targets"] + validation["dropped_targets"]
    if faults := held_out_faults(test, None if unwanted else validation):
        warnings.warn("; ".join([*faults, cure]), SmallDataWarning, stacklevel=3)


def _held_out_users(
    data: Interactions,
    users: npt.NDArray[np.int64],
    catalogue: npt.NDArray[np.int64],
    hidden: Hidden,
    random: np.random.Generator,
) -> HeldOut:
    """Some users: the model is given a share of their items in the catalogue and has to find the rest."""
    adopted = csr_array(data.adopted[users])
    known = take(adopted, np.arange(len(users)), catalogue)
    to_find = some_of_each_row(known, hidden, random)
    return _strangers(
        adopted=pairs_where(known, ~to_find),
        targets=pairs_where(known, to_find),
        rejected=take(csr_array(data.rejected[users]), np.arange(len(users)), catalogue),
        rejected_targets=empty_pairs(known.shape),
        dropped_targets=int(adopted.nnz - known.nnz),
    )


def _in_catalogue(
    data: Interactions, learned: Labels, held: tuple[Labels, Labels]
) -> tuple[Interactions, tuple[Kept, Kept]]:
    """The training part with the items that it has, and the held-out pairs of these items."""
    in_catalogue = item_counts(learned[0]) > 0
    if not in_catalogue.any():
        raise DataError(f"{data.adopted.nnz} adopted pairs are too few to split: none would be left to learn from")
    everyone, catalogue = np.arange(data.n_users), np.flatnonzero(in_catalogue)
    whole = Interactions(*learned, data.users, data.items, data.truth)
    parts = []
    for targets, rejections in held:
        found = take(targets, everyone, catalogue)
        read = {"targets": found, "rejected_targets": take(rejections, everyone, catalogue)}
        parts.append((read, int(targets.nnz - found.nnz)))
    return whole.subset(np.ones(data.n_users, dtype=bool), in_catalogue), (parts[0], parts[1])


def _known_users(train: Interactions, validation: Kept, test: Kept) -> tuple[HeldOut, HeldOut]:
    """Validation lists leave out training items; test lists leave out training and validation items (section 3.2).

    Rejected items of the validation part are left out of test lists too.
    """
    rows = np.arange(train.n_users)
    seen = added(train.adopted, validation[0]["targets"], validation[0]["rejected_targets"])
    first = Audience(train.adopted, train.rejected, train.adopted, rows)
    second = Audience(train.adopted, train.rejected, seen, rows)
    return (
        HeldOut(first, **validation[0], dropped_targets=validation[1]),
        HeldOut(second, **test[0], dropped_targets=test[1]),
    )


def _strangers(
    adopted: csr_array,
    targets: csr_array,
    rejected: csr_array,
    rejected_targets: csr_array,
    dropped_targets: int,
) -> HeldOut:
    return HeldOut(Audience(adopted, rejected, adopted, None), targets, rejected_targets, dropped_targets)


def _count(manifest: Manifest, fact: str, most: int = 2**53) -> int:
    count = manifest.facts.get(fact)
    if type(count) is not int or not 0 <= count <= most:  # a bool is an int too
        raise FolderError(f"'{manifest.path}' is damaged: '{fact}' is {count!r:.40}, not a count")
    return count


def _held_out_facts(part: HeldOut) -> dict[str, int]:
    return {
        "users_in_part": part.audience.n_users,
        "users": int((np.diff(part.targets.indptr) > 0).sum()),
        "targets": int(part.targets.nnz),
        "dropped_targets": part.dropped_targets,
    }
