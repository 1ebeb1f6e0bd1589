"""The words of a verdict: sizes, lists of names, and sentences about two models. Pure text; `contrast` decides."""

from __future__ import annotations

from collections.abc import Sequence

from milrec.report.contrast import Contrast
from milrec.report.headlines import Role

LEADS: dict[Role, tuple[str, str]] = {  # what a model does that leads by a measure, and what several do
    "accuracy": ("is the most accurate", "are the most accurate"),
    "reach": ("lists the fewest popular items", "list the fewest popular items"),
    "truth": ("comes closest to what users truly like", "come closest to what users truly like"),
    "dislikes": ("is best at putting likes above dislikes", "are best at putting likes above dislikes"),
    "first": ("puts a right item first most often", "put a right item first most often"),
}
_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_SLIGHT, _MUCH = 0.03, 0.10  # of the other's accuracy
_SEVERAL = 4  # names in a list; of more, only their number is said


def number(count: int) -> str:
    return _NUMBERS[count] if count < len(_NUMBERS) else f"{count:,}"


def sentence(text: str) -> str:
    """Begins with a capital letter and ends with a full stop."""
    return f"{text[:1].upper()}{text[1:]}."


def listed(names: Sequence[str]) -> str:
    """a, b and c; a, b and 3 others if there are many."""
    if len(names) > _SEVERAL:
        names = [*names[:2], f"{number(len(names) - 2)} others"]
    return " and ".join(part for part in (", ".join(names[:-1]), names[-1]) if part)


def span(least: int, most: int, group: str) -> str:
    """How many items the users of a group have."""
    return f"at most {most:,}" if group == "few" else f"{least:,} or more"


def amount(contrast: Contrast) -> str:
    """How many fewer, or more, popular items: in percent of the second's, or times as many."""
    ours, theirs, more = contrast.first, contrast.second, contrast.first > contrast.second
    if more and theirs > 0 and ours / theirs >= 2:
        return f"{ours / theirs:.1f} times as many popular items as"
    size = f"{100 * abs(ours - theirs) / theirs:.0f} % " if theirs > 0 else ""
    return f"{size}{'more' if more else 'fewer'} popular items than"


def degree(contrast: Contrast) -> str:
    """How much more or less accurate."""
    part = abs(contrast.first - contrast.second) / max(contrast.second, 1e-9)
    size = "slightly " if part < _SLIGHT else "much " if part >= _MUCH else ""
    return f"{size}{'more' if contrast.first > contrast.second else 'less'} accurate"


def traded(first: str, second: str, reach: Contrast | None, accuracy: Contrast | None, where: str) -> str:
    """Popular items against accuracy, in one sentence if both are known; `where` accuracy was measured."""
    if reach is None or reach.outcome == "not clear":
        doubt = "" if reach is None else f" Which of them lists fewer popular items is not clear ({reach.figures})."
        return accuracy_alone(first, second, accuracy, where) + doubt
    if reach.outcome == "level":
        said = f"{first} and {second} list about as many popular items ({reach.both})"
    else:
        said = f"{first} lists {amount(reach)} {second} ({_places(reach)})"
    if accuracy is None:
        return sentence(said)
    return sentence(said + _and_accuracy(first, reach, accuracy, where))


def _places(reach: Contrast) -> str:
    return f"{reach.headline.text(reach.first)} of its list places against {reach.headline.text(reach.second)}"


def _and_accuracy(first: str, reach: Contrast, accuracy: Contrast, where: str) -> str:
    if accuracy.outcome == "level":
        return f" at equal accuracy{where} ({accuracy.figures})"
    if accuracy.outcome == "not clear":
        return f"; which of them is more accurate{where} is not clear ({accuracy.figures})"
    fewer, better = reach.outcome == "below", accuracy.outcome == "above"
    link = f", and {first} is" if reach.outcome == "level" else ", and is" if fewer == better else ", but is"
    return f"{link} {degree(accuracy)}{where} ({accuracy.figures})"


def accuracy_alone(first: str, second: str, accuracy: Contrast | None, where: str) -> str:
    if accuracy is None:
        return ""
    if accuracy.outcome == "level":
        return sentence(f"{first} and {second} are equally accurate{where} ({accuracy.figures})")
    if accuracy.outcome == "not clear":
        return sentence(f"which of {first} and {second} is more accurate{where} is not clear ({accuracy.figures})")
    return sentence(f"{first} is {degree(accuracy)} than {second}{where} ({accuracy.figures})")


def reversed_by(truth: Contrast, accuracy: Contrast | None) -> bool:
    """Does the truth say the opposite of held-out pairs?"""
    return accuracy is not None and {truth.outcome, accuracy.outcome} == {"above", "below"}


def by_the_truth(first: str, second: str, truth: Contrast, accuracy: Contrast | None) -> str:
    """What known true preferences say of two models, beside what held-out pairs say."""
    known = "what users truly like, which is known for simulated data,"
    if truth.outcome == "level":
        return sentence(f"by {known} the two are equally good ({truth.figures})")
    if truth.outcome == "not clear":
        return sentence(f"by {known} it is not clear which of them is better ({truth.figures})")
    better, worse = (first, second) if truth.outcome == "above" else (second, first)
    way = ""
    if reversed_by(truth, accuracy):
        way = "it is the other way round: "
    elif accuracy is not None and accuracy.outcome == truth.outcome:
        way = "the order is the same: "
    figures = truth.figures if truth.outcome == "above" else truth.reversed().figures
    return sentence(f"by {known} {way}the lists of {better} are better than those of {worse} ({figures})")
