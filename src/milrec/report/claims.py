"""The paper's claims checked against the figures of a run: each holds, does not hold, or cannot be decided.

A claim names the experiments that the paper makes it for. A run that repeats another of them does not check it; a run
on other data checks every claim. The direction of a difference and its size are claims of their own, and a size is
one-sided: more than the paper found is not against it. If a run has compared two models user by user, an order that
may be chance (p ≥ .05) cannot be decided, and a size holds only if the whole 95 % interval reaches it. Sections,
tables and figures are numbered as in the paper.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from milrec.report import paper
from milrec.report.checks import chosen, preferences, relevance, tails
from milrec.report.checks.evidence import (
    ABOUT,
    FAILS,
    HOLDS,
    NOT_CLAIMED,
    UNDECIDED,
    Check,
    Finding,
    Run,
    Undecided,
    p_text,
)
from milrec.report.paper import CE, MF_CE, MF_MIL, MF_SQUARE, MIL, MULTI, Experiment
from milrec.results import Results

__all__ = ["CLAIMS", "FAILS", "HOLDS", "NOT_CLAIMED", "UNDECIDED", "Claim", "Statement", "claims", "p_text"]

_ALL: tuple[Experiment, ...] = ("ml-20m", "netflix", "lastfm-360k")
_WITH_HELD_OUT: tuple[Experiment, ...] = (*_ALL, "ml-20m, held-out users")
_MOVIES: tuple[Experiment, ...] = ("ml-20m", "netflix")
_NETFLIX: tuple[Experiment, ...] = ("netflix",)
_HELD_OUT: tuple[Experiment, ...] = ("ml-20m, held-out users",)


@dataclass(frozen=True)
class Claim:
    """A claim of the paper: where it makes it and for which data, the verdict, and a sentence with our figures."""

    claim: str
    where: str
    verdict: str
    evidence: str

    @property
    def decided(self) -> bool:
        return self.verdict in (HOLDS, FAILS)


@dataclass(frozen=True)
class Statement:
    """What the paper says, where, and of which of its experiments; and how a run is asked about it."""

    claim: str
    where: str
    made_for: tuple[Experiment, ...]
    check: Check

    @property
    def data(self) -> str:
        """The experiments in words."""
        if set(_ALL) <= set(self.made_for):
            return "all data sets" + (" and held-out users" if set(_HELD_OUT) <= set(self.made_for) else "")
        return _listed([paper.EXPERIMENTS[one] for one in self.made_for])


def claims(results: Results) -> list[Claim]:
    """Every claim, checked."""
    run, experiment = Run(results), paper.experiment_of(results)
    return [Claim(one.claim, f"{one.where}: {one.data}", *_found(one, run, experiment)) for one in CLAIMS]


def _found(statement: Statement, run: Run, experiment: Experiment | None) -> Finding:
    if experiment is not None and experiment not in statement.made_for:
        here = paper.EXPERIMENTS[experiment]
        return NOT_CLAIMED, f"Not claimed for {here}; the paper makes this claim for {statement.data}."
    try:
        return statement.check(run)
    except Undecided as reason:
        evidence = f"{reason}."
        return UNDECIDED, evidence[:1].upper() + evidence[1:]


def _listed(names: Sequence[str]) -> str:
    """a, b and c"""
    return " and ".join(part for part in (", ".join(names[:-1]), names[-1]) if part)


def _at_place_100(users: int, other: str) -> str:
    """The claim about so many of Netflix's users."""
    share = tails.share_of_netflix(users)
    more = f"about {share:.1f} % of all users more than {other}"
    return (
        f"At place 100, MIL lists a long-tail item for {more} (at least {ABOUT * share:.1f} %; paper: {users:,} users)"
    )


CLAIMS = (
    Statement("MIL is level with point-wise cross-entropy: NDCG@100 within 0.006", "section 4.1, tables 2–5",
              _WITH_HELD_OUT, relevance.level),
    Statement("MIL has the best Recall@1 of the paper's models", "tables 2, 3, 5",
              (*_MOVIES, *_HELD_OUT), relevance.best_first_place),
    Statement("The multinomial is weak at Recall@1 beside CE point and MIL", "section 4.1, tables 2–5",
              _WITH_HELD_OUT, relevance.ranks((CE, MULTI), (MIL, MULTI), measures=("recall@1",))),
    Statement("The multinomial recovers at large k", "section 4.1, tables 2–5", _WITH_HELD_OUT, relevance.recovers),
    Statement("Point-wise cross-entropy is above pair-wise", "section 4.1, tables 2–4",
              _ALL, relevance.point_over_pair),
    Statement("Linear or sigmoid encoder matters little: NDCG@100 within 0.006", "section 4.1, tables 2–4",
              _ALL, relevance.encoders),
    Statement("MF-CE and MF-mil are above MF-square", "section 4.1, tables 2–4",
              _ALL, relevance.ranks((MF_CE, MF_SQUARE), (MF_MIL, MF_SQUARE))),
    Statement("MF-CE is above MF-mil", "section 4.1, tables 2–4", _ALL, relevance.ranks((MF_CE, MF_MIL))),
    Statement("Matrix factorization is below the autoencoder with the same loss", "section 4.1, tables 2–4",
              _ALL, relevance.ranks((CE, MF_CE), (MIL, MF_MIL))),
    Statement("On held-out users Multi-DAE is below CE point and MIL at the top", "section 4.1, table 5",
              _HELD_OUT, relevance.held_out),
    Statement("CE point pushes most preferences below .01", "section 4.2, table 6",
              _NETFLIX, preferences.ce_near_zero(50)),
    Statement("CE point pushes at least 85 % of preferences below .01", "section 4.2, table 6",
              _NETFLIX, preferences.ce_near_zero(85)),
    Statement("MIL leaves fewer preferences below .01 than CE point", "section 4.2, table 6",
              _NETFLIX, preferences.mil_further_from_zero),
    Statement("MIL leaves no preference below .01 (0.0 %)", "section 4.2, table 6",
              _NETFLIX, preferences.mil_none_near_zero),
    Statement("MIL gives most items a preference of .5 or more", "section 4.2, table 6",
              _NETFLIX, preferences.mil_high(50)),
    Statement("MIL gives at least 94 % of items a preference of .5 or more", "table 6",
              _NETFLIX, preferences.mil_high(94)),
    Statement("CE pair gives more items a preference of .9 or more than CE point", "section 4.2, table 6",
              _NETFLIX, preferences.pair_gives_more),
    Statement("CE pair gives about 5 times as many items a preference of .9 or more as CE point (at least 4.5)",
              "section 4.2, table 6", _NETFLIX, preferences.pair_gives_times(5)),
    Statement("With CE point, fewer than 100 items per user have a preference of .9 or more", "section 4.2, table 6",
              _NETFLIX, preferences.few_high),
    Statement("MIL lists less of the short tail than CE point", "section 4.3, table 8",
              _ALL, tails.lists_less("short", MIL, CE)),
    Statement("MIL lists at least 15 % less of the short tail than CE point", "section 4.3, table 8",
              _ALL, tails.lists_less_by(15, "short", MIL, CE)),
    Statement("MIL lists less of the short tail than the multinomial", "section 4.3, table 8",
              _ALL, tails.lists_less("short", MIL, MULTI)),
    Statement("CE point lists more of the short tail than the multinomial", "section 4.3, table 8",
              _ALL, tails.lists_more("short", CE, MULTI)),
    Statement("MIL lists more of the long tail than CE point", "section 4.3, table 8",
              _ALL, tails.lists_more("long", MIL, CE)),
    Statement("MIL lists about 50 % more of the long tail than CE point (at least 45 %)", "section 4.3, table 8",
              _MOVIES, tails.lists_more_by(45, "long", MIL, CE)),
    Statement("MIL lists more of the long tail than the multinomial", "table 8",
              _ALL, tails.lists_more("long", MIL, MULTI)),
    Statement("CE point lists mainly the short tail before place 100", "section 4.3, figure 2",
              _NETFLIX, tails.head_is_popular),
    Statement("MIL begins with the short tail and leaves it sooner than CE point", "section 4.3, figure 2",
              _NETFLIX, tails.leaves_popular),
    Statement("MIL's medium-tail share grows with the rank until place 100", "section 4.3, figure 2",
              _NETFLIX, tails.grows("medium")),
    Statement("After place 100, MIL's medium-tail share grows by at most a quarter of its growth before",
              "section 4.3, figure 2", _NETFLIX, tails.medium_stagnates),
    Statement("MIL's long-tail share grows with the rank", "section 4.3, figure 2", _NETFLIX, tails.grows("long")),
    Statement("At place 100, MIL lists a long-tail item for more users than CE point", "section 4.3, figure 2",
              _NETFLIX, tails.more_users(CE)),
    Statement(_at_place_100(40_000, "CE point"), "section 4.3, figure 2", _NETFLIX, tails.more_users_by(40_000, CE)),
    Statement("At place 100, MIL lists a long-tail item for more users than the multinomial", "section 4.3, figure 2",
              _NETFLIX, tails.more_users(MULTI)),
    Statement(_at_place_100(25_000, "the multinomial"), "section 4.3, figure 2",
              _NETFLIX, tails.more_users_by(25_000, MULTI)),
    Statement("Late in MIL's lists the long tail exceeds the short tail", "section 4.3, figure 2",
              _NETFLIX, tails.long_over_short),
    Statement("MIL autoencoders need less weight decay than those with cross-entropy or the multinomial",
              "section 3.3", _ALL, chosen.less_decay),
    Statement("MIL's best A and γ are 1e6 and 10", "section 3.4",
              _ALL, chosen.best({"missing_weight": 1e6, "missing_exponent": 10})),
    Statement("MIL's best γ₊ is 1", "section 3.4", _ALL, chosen.best({"adopted_exponent": 1})),
)  # fmt: skip
