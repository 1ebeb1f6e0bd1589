"""Which columns of a table are read: named by the caller, or recognised by their names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from milrec.errors import DataError, cut

USER_NAMES = (
    "user",
    "user_id",
    "userid",
    "customer",
    "customer_id",
    "customerid",
    "account_id",
    "visitor_id",
)
ITEM_NAMES = (
    "item", "item_id", "itemid", "movie", "movie_id", "movieid", "product", "product_id", "productid",
    "artist", "artist_id", "artistid", "track_id", "song_id", "article_id", "book_id", "game",
)  # fmt: skip
TITLE_NAMES = ("title", "name", "item_name", "product_name")
GENRE_NAMES = ("genres", "genre", "category")
VALUE_NAMES = ("rating", "value", "score", "stars", "plays", "count", "weight", "quantity", "qty", "hours")


@dataclass(frozen=True)
class Columns:
    """Names of the columns to read; user and item are recognised if they are not named."""

    user: str | None = None
    item: str | None = None
    value: str | None = None
    time: str | None = None
    where: Mapping[str, Any] = field(default_factory=dict)  # only rows with these values in these columns
    title: str | None = None  # of the item

    @property
    def wanted(self) -> list[str]:
        """The columns themselves, without those that only rows are chosen by."""
        return [name for name in (self.user, self.item, self.value, self.time) if name is not None]

    def facts(self) -> dict[str, str]:
        """Which column is read as what."""
        named = {"user": self.user, "item": self.item, "value": self.value, "time": self.time, "title": self.title}
        return {f"{what}_column": name for what, name in named.items() if name is not None}


@dataclass(frozen=True)
class TitleColumns:
    """The columns of a table of titles."""

    item: str
    title: str
    genres: str | None = None

    @property
    def wanted(self) -> list[str]:
        return [name for name in (self.item, self.title, self.genres) if name is not None]


def chosen_columns(columns: Columns, names: Sequence[str], where: str) -> Columns:
    """The same columns with those that were not named; each must be in the table, and once."""
    counts = Counter(names)
    title = [] if columns.title is None else [columns.title]
    for name in (*columns.wanted, *title, *columns.where):
        if name not in counts:
            raise DataError(f"{where} has no column '{cut(name)}'; its columns are {listed(names)}")
    user = _recognised(USER_NAMES, names, where, "user") if columns.user is None else columns.user
    item = _recognised(ITEM_NAMES, names, where, "item") if columns.item is None else columns.item
    chosen = replace(columns, user=user, item=item)
    for name in (*chosen.wanted, *title, *chosen.where):
        if counts[name] > 1:
            raise DataError(f"{where} has two columns named '{cut(name)}'")
    roles = [*chosen.wanted, *title]
    if len(set(roles)) != len(roles):
        raise DataError(f"the same column is named twice: {listed(roles)}")
    return chosen


def title_columns(item: str | None, names: Sequence[str], where: str) -> TitleColumns:
    """The columns of a table of titles; `item`: the item column of the interactions, which it may share."""
    id_column = item if item in set(names) else _only(_alike((*ITEM_NAMES, "id"), names), where, "choose one", "item")
    title = _only(_alike(TITLE_NAMES, names), where, "rename one of them")
    genres = _only(_alike(GENRE_NAMES, names), where, "rename one of them")
    if id_column is None or title is None:
        raise DataError(f"{where} needs an item column and a title column; its columns are {listed(names)}")
    return TitleColumns(id_column, title, genres)


def unused_value(columns: Columns, names: Sequence[str]) -> str | None:
    """A note on a column that looks like ratings or counts and is not read."""
    alike = _alike(VALUE_NAMES, names) if columns.value is None else []
    if not alike or alike[0] in (columns.user, columns.item, columns.time, *columns.where):
        return None
    name = cut(alike[0])
    return (
        f"column '{name}' is not used and every row counts as adopted; if it holds ratings, give "
        f"`value='{name}'` and `adopt_min=4`, if counts, `value='{name}'`"
    )


def unused_title(columns: Columns, names: Sequence[str]) -> str | None:
    """A note on a column that looks like titles of items and is not read."""
    taken = {*columns.wanted, *columns.where}
    alike = [name for name in _alike(TITLE_NAMES, names) if name not in taken] if columns.title is None else []
    if not alike:
        return None
    name = cut(alike[0])
    return f"column '{name}' looks like item titles; use it with `title='{name}'`"


def refuse_repeated(names: Iterable[str], where: str) -> None:
    """Two columns of one name: which of them is meant?"""
    counts = Counter(names)
    twice = [name for name, count in counts.items() if count > 1]
    if any(map(_is_number, twice)):
        raise _without_header(list(counts), where)
    if twice:
        raise DataError(f"{where} has two columns named '{cut(min(twice))}'")


def column_of(name: str | None, where: str) -> str:
    """A column as a sentence names it."""
    return f"column '{cut(name or '')}' of {where}"


def listed(names: Sequence[str], most: int = 20) -> str:
    """Names as they can stand in a sentence."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(cut(name) for name in names[:most]) + more


def _recognised(known: Sequence[str], names: Sequence[str], where: str, what: str) -> str:
    found = _only(_alike(known, names), where, "choose one", what)
    if found is None and any(_is_number(name) for name in names):
        raise _without_header(names, where)
    if found is None:
        raise DataError(
            f"no column of {where} is recognised as holding {what}s; name one of {listed(names)} with `{what}`"
        )
    return found


def _without_header(names: Sequence[str], where: str) -> DataError:
    called = f"its columns are called {listed(names)}"
    return DataError(f"{where} seems to have no header: {called}; give them names, like user,item,value")


def _is_number(name: str) -> bool:
    try:
        float(name)
    except ValueError:
        return False
    return True


def _alike(known: Sequence[str], names: Sequence[str]) -> list[str]:
    """The columns with the first of the known names that there is; spaces around it and case do not matter."""
    wanted = set(known)
    found: dict[str, list[str]] = {}
    for name in names:
        if (plain := name.lower().strip()) in wanted:
            found.setdefault(plain, []).append(name)
    return next((found[name] for name in known if name in found), [])


def _only(alike: list[str], where: str, cure: str, option: str | None = None) -> str | None:
    """The one column of a name; two that differ only in case or spaces are refused, not guessed between."""
    if len(alike) > 1 and alike[0] != alike[1]:
        by = f" with `{option}`" if option else ""
        raise DataError(f"'{cut(alike[0])}' and '{cut(alike[1])}' are both columns of {where}; {cure}{by}")
    return alike[0] if alike else None
