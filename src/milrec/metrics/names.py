"""The names of the ranking measures, and the length of the lists that they judge."""

from __future__ import annotations

from milrec.errors import cut

MEASURES = ("recall", "ndcg", "novelty_ndcg")  # ranking measures that may choose the weights to keep
LIST_LENGTH = 200  # items in the lists that are judged: the paper's top-200


def known_measure(name: str) -> str:
    """The name of a ranking measure, or an error that lists them."""
    measure, _, cutoff = name.partition("@")
    if measure not in MEASURES or not cutoff.isdecimal() or len(cutoff) > 9 or not 1 <= int(cutoff) <= LIST_LENGTH:
        known = ", ".join(f"{measure}@N" for measure in MEASURES)
        raise ValueError(f"unknown measure '{cut(name)}'; known measures: {known}, with N from 1 to {LIST_LENGTH}")
    return name
