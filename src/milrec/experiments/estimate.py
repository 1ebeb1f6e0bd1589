"""How large a run is before it begins: models, trials and fits, what is finished already, and the time that is left.

Processes like those of the jobs time a few steps of each model on the run's own data (probe.py): as many at once as
jobs will run at once, with as many threads each. A whole fit is its number of steps times that. A fit that stops early
takes less, and so does a trial that is given up: the time is then an upper bound.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from milrec.experiments.probes import Timing, Untimed, timings
from milrec.experiments.protocol import Done, GivenUp, jobs_of
from milrec.experiments.recipe import ModelEntry, Range, Recipe, setting_names
from milrec.kernels.threads import available

_COSTLY = ("n_factors", "n_hidden", "target_factor", "epochs", "iterations", "neighbours")  # more of it takes longer
_TRIAL = re.compile(r"(.*)-trial-[0-9a-f]{10}")
_FIT = re.compile(r"(.*)-seed\d+")


@dataclass(frozen=True)
class Jobs:
    """Trials of a search, and fits that are judged on the test part."""

    trials: int = 0
    fits: int = 0

    def __bool__(self) -> bool:
        return bool(self.trials or self.fits)

    def __add__(self, other: Jobs) -> Jobs:
        return Jobs(self.trials + other.trials, self.fits + other.fits)

    def __sub__(self, other: Jobs) -> Jobs:
        return Jobs(self.trials - other.trials, self.fits - other.fits)

    def words(self, at_most: str = "") -> str:
        """A search may need fewer trials than it is allowed."""
        trials = [f"{at_most}{number_of(self.trials, 'trial')}"] if self.trials else []
        return " and ".join([*trials, number_of(self.fits, "fit")] if self.fits or not trials else trials)


@dataclass(frozen=True)
class Part:
    """A model of a run: all its jobs, those that are finished, and what one of them takes."""

    name: str
    all: Jobs
    done: Jobs
    timing: Timing | Untimed | None = None  # None: nothing is left to do
    fits_per_job: int = 1  # 2 with a refit
    evaluations: int = 1  # more with dials and long-tail shares

    @property
    def left(self) -> Jobs:
        return self.all - self.done

    @property
    def trial_seconds(self) -> float:
        return self.timing.fit_seconds if isinstance(self.timing, Timing) else 0.0

    @property
    def final_seconds(self) -> float:
        """A fit that is judged on the test part."""
        if not isinstance(self.timing, Timing):
            return 0.0
        return self.fits_per_job * self.timing.fit_seconds + self.evaluations * self.timing.judge_seconds

    @property
    def seconds(self) -> float:
        """All that is left, one job after another."""
        return self.left.trials * self.trial_seconds + self.left.fits * self.final_seconds


@dataclass(frozen=True)
class Estimate:
    """A run that is about to begin, or to be resumed."""

    parts: tuple[Part, ...]
    at_once: int  # jobs
    round: int  # trials that are chosen together

    @property
    def all(self) -> Jobs:
        return sum((part.all for part in self.parts), Jobs())

    @property
    def done(self) -> Jobs:
        return sum((part.done for part in self.parts), Jobs())

    @property
    def left(self) -> Jobs:
        return self.all - self.done

    @property
    def timed(self) -> list[Timing]:
        return [part.timing for part in self.parts if isinstance(part.timing, Timing)]

    @property
    def at_most(self) -> bool:
        """Whether it may take less: a trial may be given up, and a fit may stop early."""
        return bool(self.left.trials) or any(timing.at_most for timing in self.timed)

    @property
    def seconds(self) -> float:
        """With as many jobs at once as there are processes, which take a while to begin; the rounds of a search follow
        one another.
        """
        longest = max(
            math.ceil(part.left.trials / self.round) * part.trial_seconds + bool(part.left.fits) * part.final_seconds
            for part in self.parts
        )
        start = max((timing.start_seconds for timing in self.timed), default=0.0)
        return start + max(longest, sum(part.seconds for part in self.parts) / self.at_once)

    def sentences(self) -> list[str]:
        """The size of the run, what is finished, and the time that is left."""
        search = "" if self.all.trials else ", no search"
        said = [f"{number_of(len(self.parts), 'model')}: {self.all.words('at most ')}{search}."]
        if self.done:
            said.append(f"Already finished: {self.done.words()}.")
        if not self.left:
            return [*said, "Nothing is left to fit."]
        if self.timed:
            said.append(
                f"Time{' left' if self.done else ''}: {'at most' if self.at_most else 'about'} "
                f"{duration(self.seconds)}, {self._how()}."
            )
        if self.timed and self.at_most:
            said.append(f"It takes less if fits stop early{' or trials are given up' if self.left.trials else ''}.")
        untimed = [(part.name, part.timing.error) for part in self.parts if isinstance(part.timing, Untimed)]
        return said + [f"The time of {name} is not known: {why}." for name, why in untimed]

    def _how(self) -> str:
        jobs = "one job at a time" if self.at_once == 1 else f"{self.at_once} jobs at a time"
        return f"{jobs}, judging by a few steps of each model on this machine and these data"


def number_of(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def duration(seconds: float) -> str:
    """As a person would say it, rounded up."""
    if seconds < 60:
        return number_of(max(math.ceil(seconds), 1), "second")
    minutes = math.ceil(seconds / 60)
    if minutes < 60:
        return number_of(minutes, "minute")
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    days, hours = divmod(hours + bool(minutes), 24)
    return f"{number_of(days, 'day')} {hours} h" if hours else number_of(days, "day")


def estimated(recipe: Recipe, out: Path, stage: Callable[[str], None], at_once: int | None = None) -> Estimate:
    """The size of a run whose split is made; models with something left to do are timed."""
    n_processes = at_once or available()
    done = _finished(out)
    parts = [_part(entry, recipe, *done.get(entry.slug, (Jobs(), False))) for entry in recipe.models]
    left = [place for place, part in enumerate(parts) if part.left]
    if left:
        stage("Timing a few steps of each model")
        settings = [_settings(recipe.models[place], recipe.search.measure) for place in left]
        for place, timing in zip(left, timings(settings, out / "split", n_processes), strict=True):
            parts[place] = replace(parts[place], timing=timing)
    return Estimate(tuple(parts), n_processes, recipe.search.round)


def _part(entry: ModelEntry, recipe: Recipe, finished: Jobs, chosen: bool) -> Part:
    wanted = Jobs(recipe.n_trials(entry), len(entry.seeds(recipe.seeds)))
    return Part(
        name=entry.name,
        all=wanted,
        done=Jobs(
            wanted.trials if chosen else min(finished.trials, wanted.trials),  # values that come again are tried once
            min(finished.fits, wanted.fits),
        ),
        fits_per_job=1 + recipe.refit,
        evaluations=1 + len(entry.dials) + len(recipe.long_shares),
    )


def _finished(out: Path) -> dict[str, tuple[Jobs, bool]]:
    """What each model has finished, and whether its search is over, since a fit with its values has begun."""
    found: dict[str, tuple[Jobs, bool]] = {}
    for job, outcome in jobs_of(out):
        if (name := (_FIT if job.judged else _TRIAL).fullmatch(job.name)) is not None:
            finished, chosen = found.get(name[1], (Jobs(), False))
            if isinstance(outcome, Done | GivenUp):
                finished += Jobs(fits=1) if job.judged else Jobs(trials=1)
            found[name[1]] = finished, chosen or job.judged
    return found


def _settings(entry: ModelEntry, measure: str) -> dict[str, Any]:
    """With the values that are known or, of a search, those that take longest."""
    searched = entry.values({key: _costliest(key, choices) for key, choices in entry.search.items()})
    return entry.chosen({**entry.tuned, **searched}, measure).model_dump()


def _costliest(key: str, choices: list[Any] | Range) -> Any:
    """A place in a list, or a number in a range."""
    names = setting_names(key)
    if isinstance(choices, Range):
        return choices.high if names[0] in _COSTLY else choices.low

    def cost(place: int) -> list[float]:
        values = choices[place] if len(names) > 1 else [choices[place]]
        pairs = zip(names, values, strict=True)
        return [value for name, value in pairs if name in _COSTLY and isinstance(value, int | float)]

    return max(range(len(choices)), key=cost)
