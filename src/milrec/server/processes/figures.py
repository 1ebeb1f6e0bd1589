"""Snapshots of the metrics of some processes → one page, as if a single process had done it all.

Counters and histograms are added up, also those of processes that have ended: a sum never falls. Of what is so now
(gauges, the last lists of each model), only processes that are there count.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.core import GaugeMetricFamily

from milrec.server.telemetry import Snapshot

_SINCE = "_created"  # when a sum began: the earliest counts
_LASTING = ("counter", "histogram")


def metrics_page(living: Sequence[Snapshot], ended: Sequence[Snapshot] = ()) -> bytes:
    """The figures of all processes, in the format of Prometheus; `ended` are what `lasting` and `added` gave."""
    families = [*added([*living, *ended])["families"], _number_of(living)]
    return generate_latest(cast(CollectorRegistry, _Page([*map(_metric, families), *_live(living)])))


def lasting(snapshot: Snapshot) -> Snapshot:
    """What remains of a process when it ends: what it has counted."""
    return {"families": [one for one in snapshot["families"] if one["type"] in _LASTING], "models": []}


def added(snapshots: Sequence[Snapshot]) -> Snapshot:
    """The same figures of several processes, added up; what their models list is left out."""
    families: dict[str, dict[str, Any]] = {}
    for snapshot in snapshots:
        for family in snapshot["families"]:
            sums = families.setdefault(family["name"], {**family, "samples": {}})["samples"]
            for name, labels, value in family["samples"]:
                sample = (name, tuple(labels.items()))
                if sample not in sums:
                    sums[sample] = value
                elif name.endswith(_SINCE):
                    sums[sample] = min(sums[sample], value)
                else:
                    sums[sample] += value
    return {"families": [{**one, "samples": _listed(one["samples"])} for one in families.values()], "models": []}


def _listed(sums: dict[tuple[str, tuple[tuple[str, str], ...]], float]) -> list[list[Any]]:
    return [[name, dict(labels), value] for (name, labels), value in sums.items()]


def _number_of(living: Sequence[Snapshot]) -> dict[str, Any]:
    samples = [["milrec_processes", {}, len([one for one in living if one["models"]])]]
    return {"name": "milrec_processes", "help": "Processes that are serving now", "type": "gauge", "samples": samples}


def _metric(family: dict[str, Any]) -> Metric:
    metric = Metric(family["name"], family["help"], family["type"])
    for name, labels, value in family["samples"]:
        metric.add_sample(name, labels, value)
    return metric


def _live(living: Sequence[Snapshot]) -> Iterator[Metric]:
    """What each model is and has listed recently, over the last lists of all processes."""
    info = GaugeMetricFamily("milrec_model_info", "A model", labels=["model", "kind", "loss", "fingerprint"])
    lists = GaugeMetricFamily("milrec_live_lists", "Lists that the live metrics are taken over", labels=["model"])
    share = GaugeMetricFamily(
        "milrec_live_tail_share", "Share of listed places, by interval of the tail", labels=["model", "tail"]
    )
    coverage = GaugeMetricFamily(
        "milrec_live_coverage", "Share of the catalogue that the last lists show", labels=["model"]
    )
    by_model: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for snapshot in living:
        for one in snapshot["models"]:
            by_model.setdefault((one["model"], one["fingerprint"]), []).append(one)
    shown: set[str] = set()
    for (name, fingerprint), members in by_model.items():
        info.add_metric([name, members[0]["kind"], members[0]["loss"], fingerprint], 1)
        if name in shown:
            continue  # it is being replaced at this moment; lists of two models do not mix
        shown.add(name)
        lists.add_metric([name], sum(one["lists"] for one in members))
        tails = {tail: sum(one["tails"][tail] for one in members) for tail in members[0]["tails"]}
        places = sum(tails.values())
        for tail, count in tails.items() if places else ():
            share.add_metric([name, tail], count / places)
        coverage.add_metric([name], _distinct(members) / members[0]["n_items"])
    yield from (info, lists, share, coverage)


def _distinct(members: Sequence[dict[str, Any]]) -> int:
    """How many different items the last lists of all these processes show."""
    bits = 0
    for one in members:
        bits |= int(one["shown"], 16)
    return bits.bit_count()


class _Page:
    """What prometheus_client writes a page from."""

    def __init__(self, metrics: Sequence[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Sequence[Metric]:
        return self._metrics
