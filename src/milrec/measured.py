"""What was measured of a model's lists, as results.json holds it."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from milrec.records import ByTail, Count, Number, Record

AIMED = "ndcg@20"  # by which lists that aim at the same share are compared


class Measured(Record):
    """Means over users by the name of the measure, stored alongside the fields of the record; null if undefined."""

    __pydantic_extra__: dict[str, Number | None] = Field(init=False)

    @property
    def measures(self) -> dict[str, float | None]:
        return self.__pydantic_extra__

    def mean(self, measure: str) -> float | None:
        return self.measures.get(measure)

    @model_serializer(mode="wrap")
    def _measures_first(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        plain = handler(self)
        return {**{name: plain[name] for name in self.measures}, **plain}


class Reliability(Record):
    """Pairs with about the same predicted probability, and the share of them that was held out."""

    pairs: Count
    held_out: Count
    predicted: Number
    observed: Number


class Evaluated(Measured):
    """What a model's lists are worth on the test part, and what they are made of."""

    n_users: Count = 0
    dropped_targets: Count = 0
    top_200_share: ByTail[Number] | None = None  # percent
    interval_cuts: tuple[Count, Count] | None = None
    preference_distribution: Annotated[tuple[Number, ...], Field(min_length=6, max_length=6)] | None = None  # if any
    rank_evolution: ByTail[tuple[Number, ...]] | None = None  # share of users at each place of the list
    intervals: dict[str, tuple[Number | None, Number | None]] = Field(default_factory=dict)  # 95 %, over users
    undefined: dict[str, Count] = Field(default_factory=dict)  # users without a value
    reliability: tuple[Reliability, ...] = ()  # of the probabilities
    link_reliability: tuple[Reliability, ...] = ()  # of those by the loss's link and one factor


class DialPoint(Measured):
    """The measures of a model whose lists were re-ranked with a popularity dial."""

    dial: Number
    n_users: Count = 0
    dropped_targets: Count = 0

    @model_serializer(mode="wrap")
    def _dial_first(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        plain = handler(self)
        return {"dial": self.dial, **{name: plain[name] for name in self.measures}, **plain}


class AimPoint(Measured):
    """The measures of a model whose lists aim at a long-tail share of their first 20 places."""

    long_share: Number
    bonus: Number = 0.0  # λ
    n_users: Count = 0
    dropped_targets: Count = 0

    @model_serializer(mode="wrap")
    def _share_first(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        plain = handler(self)
        return {"long_share": self.long_share, **{name: plain[name] for name in self.measures}, **plain}


def aimed_measure(long_share: float) -> str:
    """What the accuracy of lists that aim at a share is called in comparisons."""
    return f"{AIMED} at {100 * long_share:g} % long tail"
