"""The verdict on a run: a few sentences in plain words, made from the figures and from how sure they are.

It says who lists fewer popular items and at what accuracy, who leads by each headline measure, where simulated truth or
groups of users disagree, and what it all rests on. `contrast` decides what may be said of two models; whatever it
calls "not clear" is called so here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from milrec.report import wording
from milrec.report.contrast import Contrast, apart, contrast, corrected
from milrec.report.headlines import Headline, Role, headlines
from milrec.report.paper import CE, MIL, key
from milrec.report.summary import Entry, entries_of
from milrec.report.wording import listed, sentence
from milrec.results import Results, UserGroup

_SAID_IN_DOUBT: tuple[Role, ...] = ("accuracy", "truth", "dislikes")  # by the others, no leader is no news
_NOTHING = "This run cannot tell its models apart: it has no intervals and no comparisons user by user."
_WHY_REVERSED = (
    "Held-out pairs hold only what users were shown, so they reward a model for listing what is shown often."
)


def verdict(results: Results) -> list[str]:
    """A few sentences, the most important first; empty if no model has finished."""
    entries = entries_of(results)
    if not entries:
        return []
    scene = Scene(results, entries)
    if len(entries) == 1:
        return [_alone(scene, entries[0]), *_footing(scene)]
    said = [*_pair(scene), *_leaders(scene), *_groups(scene)]
    return [*(said or [_NOTHING]), *_footing(scene)]


class Scene:
    """A run as a verdict looks at it: its models, its headline measures, and how many families of comparisons."""

    def __init__(self, results: Results, entries: Sequence[Entry]) -> None:
        self.results, self.entries = results, entries
        self.headlines = headlines(results, entries)
        compared = [one for one in self.headlines if results.comparisons.get(one.measure)]
        self.families = max(1, len(compared) + len(results.groups))
        self.pair = self._pair() if len(entries) > 1 else None

    def headline(self, *roles: Role) -> Headline | None:
        return next((one for one in self.headlines if one.role in roles), None)

    def contrast(self, headline: Headline | None, first: Entry, second: Entry) -> Contrast | None:
        return None if headline is None else contrast(self.results, headline, first, second, self.families)

    def ranked(self, headline: Headline | None) -> list[Entry]:
        """The models with the measure, best first."""
        if headline is None:
            return []
        sign = 1 if headline.better == "high" else -1
        known = [(sign * value, one) for one in self.entries if (value := one.mean(headline.measure)) is not None]
        return [one for _, one in sorted(known, key=lambda pair: -pair[0])]

    def in_front(self, headline: Headline) -> list[Entry]:
        """The best model by a measure, and those that are level with it or not clearly behind."""
        leader, *others = self.ranked(headline)
        return [leader, *(one for one in others if not self.behind(headline, leader, one))]

    def behind(self, headline: Headline, leader: Entry, other: Entry) -> bool:
        found = self.contrast(headline, leader, other)
        return found is not None and found.outcome == ("above" if headline.better == "high" else "below")

    def _pair(self) -> tuple[Entry, Entry]:
        """MIL and cross-entropy, else MIL and the best of the others, else the two that are best by a measure each.

        Of several models with a loss, the one by milrec's own name is taken, or the first of the recipe: not the best,
        which would be chosen on the test part.
        """
        accurate = self.ranked(self.headline("accuracy")) or list(self.entries)
        ours, rivals = self._with_loss("mil", MIL), self._with_loss("pointwise", CE)
        others = [one for one in accurate if _loss(one) != "mil"]
        if ours and (rivals or others):
            alike = [one for one in rivals if _kind(one) == _kind(ours[0])]
            return ours[0], (alike or rivals or others)[0]
        reaching = self.ranked(self.headline("reach"))
        if reaching and reaching[0] is not accurate[0]:
            return reaching[0], accurate[0]
        return accurate[0], next(one for one in (*accurate, *self.entries) if one is not accurate[0])

    def _with_loss(self, loss: str, model: str) -> list[Entry]:
        """The models with a loss, the one that stands for a model of the paper first."""
        found = [one for one in self.entries if _loss(one) == loss]
        return sorted(found, key=lambda one: key(one.name) != key(model))


def _loss(entry: Entry) -> str | None:
    return (entry.runs[0].settings.loss or {}).get("loss")


def _kind(entry: Entry) -> str | None:
    return entry.runs[0].settings.model.get("model")


def _alone(scene: Scene, entry: Entry) -> str:
    head = scene.headline("accuracy")
    value = None if head is None else entry.mean(head.measure)
    figure = "" if head is None or value is None else f": {head.technical} {head.text(value)}"
    if head is not None and (interval := entry.interval(head.measure)):
        figure += f" (95 % interval {head.text(interval[0])} to {head.text(interval[1])})"
    return sentence(f"only {entry.plain.spoken} was fitted, so there is nothing to compare it with{figure}")


def _pair(scene: Scene) -> Iterator[str]:
    """What the two models of interest do differently, then what the truth says of them if it is known."""
    if scene.pair is None:
        return
    first, second = scene.pair
    reach = scene.contrast(scene.headline("reach"), first, second)
    accuracy = scene.contrast(scene.headline("accuracy"), first, second)
    truth = scene.contrast(scene.headline("truth"), first, second)
    where = _where(scene, scene.headline("accuracy"))
    if said := wording.traded(first.plain.spoken, second.plain.spoken, reach, accuracy, where):
        yield said
    if truth is not None:
        yield wording.by_the_truth(first.plain.spoken, second.plain.spoken, truth, accuracy)
        if wording.reversed_by(truth, accuracy):
            yield _WHY_REVERSED


def _leaders(scene: Scene) -> Iterator[str]:
    """Who is best by the headline measures, those with the same leaders together; not said of two models alone."""
    if len(scene.entries) < 3:
        return
    led: dict[tuple[str, ...], list[str]] = {}
    for headline in scene.headlines:
        leader, *near = scene.in_front(headline)
        found = {one.plain.spoken: scene.contrast(headline, leader, one) for one in near}
        doubtful = [name for name, one in found.items() if one is None or one.outcome != "level"]
        if len(scene.ranked(headline)) < 2:
            continue
        if not doubtful:
            front = tuple(one.plain.spoken for one in (leader, *near))
            led.setdefault(front, []).append(_lead(scene, headline, leader, len(near) + 1))
        elif headline.role in _SAID_IN_DOUBT and any(one is not None for one in found.values()):
            yield _doubt(scene, headline, leader, doubtful)
    for place, (front, parts) in enumerate(led.items()):
        among = f"of the {wording.number(len(scene.entries))} models, " if place == 0 else ""
        yield sentence(f"{among}{listed(front)} {listed(parts)}")


def _lead(scene: Scene, headline: Headline, leader: Entry, count: int) -> str:
    value = headline.text(leader.mean(headline.measure) or 0.0)
    figure = f"{value} of the list places" if headline.role == "reach" else f"{headline.technical} {value}"
    return f"{wording.LEADS[headline.role][count > 1]}{_where(scene, headline)} ({figure})"


def _where(scene: Scene, headline: Headline | None) -> str:
    """Where accuracy was measured, to be said if the truth is known too."""
    accurate = headline is not None and headline.role == "accuracy"
    return " on held-out pairs" if accurate and scene.headline("truth") is not None else ""


def _doubt(scene: Scene, headline: Headline, leader: Entry, others: Sequence[str]) -> str:
    value = headline.text(leader.mean(headline.measure) or 0.0)
    question = f"{wording.LEADS[headline.role][0]}{_where(scene, headline)}"
    best = f"{leader.plain.spoken} has the best figure ({headline.technical} {value})"
    return sentence(f"which model {question} is not clear: {best}, but is not clearly ahead of {listed(others)}")


def _groups(scene: Scene) -> Iterator[str]:
    """Users with few or with many items for whom two models change places."""
    head = scene.headline("accuracy")
    if head is None:
        return
    for group in scene.results.groups:
        if group.measure == head.measure and (said := _group(scene, head, group)):
            yield said


def _group(scene: Scene, head: Headline, group: UserGroup) -> str:
    known = [one for one in scene.entries if one.name in group.means]
    if len(known) < 2:
        return ""
    best = max(known, key=lambda one: group.means[one.name])
    rivals = [scene.ranked(head)[0], *(scene.pair or ())]
    for rival in rivals:
        overall = None if rival is best else scene.contrast(head, best, rival)
        paired = group.comparison(best.name, rival.name)
        if overall is None or overall.outcome == "above" or paired is None or rival.name not in group.means:
            continue
        means = group.means[best.name], group.means[rival.name]
        seeds_apart = _seeds_apart(group, best, rival)
        here = Contrast(head, *means, paired.low, paired.high, corrected(paired, scene.families), seeds_apart)
        if here.outcome == "above":
            return sentence(
                f"for users with {group.name} items ({wording.span(group.least, group.most, group.name)}), "
                f"{best.plain.spoken} is more accurate than {rival.plain.spoken} ({here.figures})"
            )
    return ""


def _seeds_apart(group: UserGroup, first: Entry, second: Entry) -> bool:
    """Whether no seed of one model is on the other's side; not known for several seeds if their means were not kept."""
    seeds = [group.seed_means.get(one.name, ()) for one in (first, second)]
    if not all(seeds):
        return len(first.runs) == len(second.runs) == 1
    return apart(*seeds)


def _footing(scene: Scene) -> Iterator[str]:
    """What the figures rest on: seeds, and what failed."""
    seeds = max(len(one.runs) for one in scene.entries)
    drawn = any(run.settings.training for run in scene.results.models)
    if seeds > 1:
        yield f"Figures are means over {wording.number(seeds)} seeds."
    elif drawn:
        yield "Each model was fitted once: another seed can move these figures."
    if failed := [failure.name for failure in scene.results.failures]:
        yield f"Failed, and not in these figures: {listed([f'“{name}”' for name in failed])}."
