"""Section 4.1 of the paper: which models rank better than which."""

from __future__ import annotations

from milrec.report import paper
from milrec.report.checks.evidence import Check, Finding, Run, Undecided, all_of, doubted, plain, within
from milrec.report.paper import CE, CE_SIG, MIL, MIL_SIG, MULTI, PAIR, PAIR_SIG

LEVEL = 2 * paper.UNCERTAINTY  # two figures that differ by no more agree within the paper's errors


def ranks(*pairs: tuple[str, str], measures: tuple[str, ...] = ("ndcg@100",)) -> Check:
    """The first model of each pair is above the second, by every measure."""
    return lambda run: all_of(
        *(run.above(run.entry(high), run.entry(low), measure) for high, low in pairs for measure in measures)
    )


def level(run: Run) -> Finding:
    """MIL and point-wise cross-entropy."""
    return _level(run, MIL, CE)


def encoders(run: Run) -> Finding:
    """A linear and a sigmoid encoder."""
    pairs = [pair for pair in ((CE, CE_SIG), (MIL, MIL_SIG)) if run.has(*pair)]
    if not pairs:
        raise Undecided("this run has no model with both encoders")
    return all_of(*(_level(run, *pair) for pair in pairs))


def _level(run: Run, one: str, other: str) -> Finding:
    """Is NDCG@100 the same within the paper's errors? If the models were compared, their whole interval must be."""
    first, second = run.entry(one), run.entry(other)
    values = [run.value(entry, "ndcg@100") for entry in (first, second)]
    difference, paired = values[0] - values[1], run.compared("ndcg@100", first, second)
    evidence = f"NDCG@100: {first.name} {values[0]:.3f}, {second.name} {values[1]:.3f} ({difference:+.4f}"
    if paired is None:
        return within(LEVEL, difference), f"{evidence})."
    evidence += f", 95 % interval {paired.low:+.4f} to {paired.high:+.4f})."
    verdict = within(LEVEL, difference, (paired.low, paired.high))
    return doubted(verdict, evidence, f"The interval goes beyond {LEVEL:g}.")


def best_first_place(run: Run) -> Finding:
    """MIL, with either encoder, against the best of the paper's other models."""
    ours = [run.entry(model) for model in (MIL, MIL_SIG) if run.has(model)]
    keys = {paper.key(model) for model in (MIL, MIL_SIG)}
    rivals = [
        one
        for one in run.entries
        if paper.key(one.name) in paper.known_models() - keys and one.mean("recall@1") is not None
    ]
    if not ours or not rivals:
        raise Undecided("this run does not have both MIL and another model of the paper")
    best, rival = (max(some, key=lambda one: run.value(one, "recall@1")) for some in (ours, rivals))
    return run.above(best, rival, "recall@1")


def recovers(run: Run) -> Finding:
    multi, ce = run.entry(MULTI), run.entry(CE)
    gaps = [100 * (run.value(multi, name) / (run.value(ce, name) or 1.0) - 1) for name in ("recall@1", "ndcg@100")]
    evidence = f"{multi.name} against {ce.name}: {gaps[0]:+.1f} % at Recall@1, {gaps[1]:+.1f} % at NDCG@100."
    return plain(gaps[0] < gaps[1], evidence)


def point_over_pair(run: Run) -> Finding:
    pairs = [pair for pair in ((CE, PAIR), (CE_SIG, PAIR_SIG)) if run.has(*pair)]
    if not pairs:
        raise Undecided("this run does not have both a point-wise and a pair-wise model with the same encoder")
    return ranks(*pairs, measures=("recall@1", "ndcg@100"))(run)


def held_out(run: Run) -> Finding:
    if run.results.split.protocol != "users":
        raise Undecided("this run holds out pairs, not users")
    return ranks((CE, MULTI), (MIL, MULTI), measures=("recall@1", "ndcg@20"))(run)
