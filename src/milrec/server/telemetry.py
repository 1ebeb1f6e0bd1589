"""What Prometheus reads: requests, their times, errors; and what is being listed: live tail shares and coverage."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily

from milrec.server.model import Served

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_TOGETHER = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Measured:
    """The figures of one server, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        own = self.registry
        labels = ["route", "method", "status"]
        self.requests = Counter("milrec_requests", "Requests answered", labels, registry=own)
        self.seconds = Histogram(
            "milrec_request_seconds", "Time to the end of an answer", ["route"], buckets=_SECONDS, registry=own
        )
        self.running = Gauge("milrec_requests_running", "Requests being answered now", registry=own)
        self.together = Histogram("milrec_scored_together", "Requests scored together", buckets=_TOGETHER, registry=own)
        self.reloads = Counter("milrec_reloads", "Reloads of a model", ["model", "outcome"], registry=own)

    def watch(self, models: Callable[[], Iterable[Served]]) -> None:
        """Show what these models list, whenever somebody reads the figures."""
        self.registry.register(_Lists(models))

    def text(self) -> bytes:
        return generate_latest(self.registry)


class _Lists:
    """The live figures of each model, taken over its last lists when they are read."""

    def __init__(self, models: Callable[[], Iterable[Served]]) -> None:
        self._models = models

    def collect(self) -> Iterator[GaugeMetricFamily]:
        info = GaugeMetricFamily("milrec_model_info", "A model", labels=["model", "kind", "loss", "fingerprint"])
        lists = GaugeMetricFamily("milrec_live_lists", "Lists that the live figures are taken over", labels=["model"])
        share = GaugeMetricFamily(
            "milrec_live_tail_share", "Share of listed places, by interval of the tail", labels=["model", "tail"]
        )
        coverage = GaugeMetricFamily(
            "milrec_live_coverage", "Share of the catalogue that the last lists show", labels=["model"]
        )
        for served in self._models():
            settings = served.recommender.fitted.settings
            loss = settings.loss_name or ""
            info.add_metric([served.name, settings.model.model, loss, served.fingerprint], 1)
            number, tails, distinct = served.window.facts()
            lists.add_metric([served.name], number)
            places = sum(tails.values())
            for tail, count in tails.items():
                if places:
                    share.add_metric([served.name, tail], count / places)
            coverage.add_metric([served.name], distinct / len(served.recommender.catalogue.popularity))
        yield from (info, lists, share, coverage)
