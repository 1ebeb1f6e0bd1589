"""Conditions that rows have to meet: a value in a column, compared as a person would."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from milrec.data.reading.columns import column_of
from milrec.errors import DataError, cut

_NUMBER = re.compile(r"[+-]?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]{1,3})?")  # 007 is text
_SHOWN = 5  # values of a column, in an error


class Conditions:
    """Chooses rows of tables, one after another; each condition has to be met by a row of at least one of them."""

    def __init__(self, wanted: Mapping[str, Any], where: str) -> None:
        self.n_left_out = 0
        self._conditions: list[_Condition] = []
        for name, value in wanted.items():
            self._conditions.append(_Condition(name, value, where))
            where = f"{where} where {cut(name)}={cut(str(value))}"
        self.where = where

    def chosen(self, table: pa.Table) -> pa.Table:
        n_rows = table.num_rows
        for condition in self._conditions:
            table = condition.chosen(table)
        self.n_left_out += n_rows - table.num_rows
        return table

    def facts(self) -> dict[str, int]:
        """How many rows were left out, if any were to be; refused if a condition left out all."""
        for condition in self._conditions:
            condition.refuse_unmet()
        return {"rows_left_out_by_where": self.n_left_out} if self._conditions else {}

    def found(self) -> dict[str, Any]:
        """What has been found so far, as JSON holds it."""
        return {
            "n_left_out": self.n_left_out,
            "met": [one.met for one in self._conditions],
            "held": [list(one.held) for one in self._conditions],
        }

    def add(self, found: Mapping[str, Any]) -> None:
        """Take over what was found in the next tables by others."""
        self.n_left_out += found["n_left_out"]
        for one, met, held in zip(self._conditions, found["met"], found["held"], strict=True):
            one.met |= met
            one.hold(held)


def kept_rows(wanted: Mapping[str, Any], table: pa.Table) -> Sequence[int]:
    """The numbers, from 0, of the rows of a table that meet the conditions."""
    if not wanted:
        return range(table.num_rows)
    name = "row of " + " ".join(wanted)  # longer than the name of any column here
    numbered = table.select(list(wanted)).append_column(name, pa.array(range(table.num_rows), type=pa.int64()))
    kept: list[int] = Conditions(wanted, "the table").chosen(numbered)[name].to_pylist()
    return kept


class _Condition:
    """A value in a column; an empty field is not a value."""

    def __init__(self, name: str, wanted: Any, where: str) -> None:
        self.name, self.wanted, self.where = name, wanted, where
        self.met = False
        self.held: dict[str, None] = {}  # the first values that were found

    def chosen(self, table: pa.Table) -> pa.Table:
        column = table[self.name]
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        meant = _meaning(self.wanted)
        try:
            distinct = pc.unique(column).drop_null()
            values = _plain(distinct)
            equal = [_meaning(value) == meant for value in values]
            self.met |= any(equal)
            self.hold([str(value) for value in values[: _SHOWN + 1]])
            return table.filter(pc.is_in(column, value_set=distinct.filter(pa.array(equal, type=pa.bool_()))))
        except (pa.ArrowException, ValueError, KeyError, OverflowError):  # among these, times that Python cannot hold
            held = f"{column_of(self.name, self.where)} holds {column.type}"
            raise DataError(f"{held}, which cannot be compared") from None

    def hold(self, values: Sequence[str]) -> None:
        if len(self.held) <= _SHOWN:
            self.held.update(dict.fromkeys(values))

    def refuse_unmet(self) -> None:
        if self.met:
            return
        shown = [cut(value) for value in self.held]
        values = ", ".join(shown[:_SHOWN]) + (" and others" if len(shown) > _SHOWN else "")
        asked = f"{cut(self.name)}={cut(str(self.wanted))}"
        raise DataError(f"no row of {self.where} has {asked}; the column holds {values or 'nothing'}")


def _plain(values: pa.Array) -> list[Any]:
    """As Python has them; nanoseconds, which it does not have, are an error, whether pandas is there or not."""
    if pa.types.is_timestamp(values.type) and values.type.unit == "ns":
        values = values.cast(pa.timestamp("us", values.type.tz))
    plain: list[Any] = values.to_pylist()
    return plain


def _meaning(value: Any) -> Decimal | str:
    """How values are compared: true and false as 1 and 0, numbers by size, anything else as text."""
    text = str(value)
    if text.lower() in ("true", "false"):
        return Decimal(text.lower() == "true")
    return Decimal(text) if _NUMBER.fullmatch(text) else text
