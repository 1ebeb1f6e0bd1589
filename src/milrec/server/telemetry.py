"""What can be seen from outside: a log, and metrics for Prometheus.

The metrics are about requests, their times and errors, and about what is being listed: live tail shares and coverage.
"""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily

from milrec.server.model import Served

log = logging.getLogger("milrec.server.app")

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_MESSAGES_REMEMBERED = 100
_TOGETHER = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """The metrics of one server, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        own = self.registry
        labels = ["route", "method", "status"]
        self.requests = Counter("milrec_requests", "Requests answered", labels, registry=own)
        self.seconds = Histogram(
            "milrec_request_seconds", "Time to the end of an answer", ["route"], buckets=_SECONDS, registry=own
        )
        self.running = Gauge("milrec_requests_running", "Requests being answered now", registry=own)
        self.under_way = Gauge("milrec_lists_running", "Lists, or other work, under way now", registry=own)
        self.allowed = Gauge(
            "milrec_lists_allowed", "How many may be under way before further ones are refused", registry=own
        )
        self.connections = Gauge("milrec_connections", "Open connections", registry=own)
        self.arriving = Gauge("milrec_arriving_bytes", "Bytes of bodies that are not complete", registry=own)
        self.closed = Counter(
            "milrec_connections_closed", "Connections that the server closed", ["reason"], registry=own
        )
        self.together = Histogram("milrec_scored_together", "Requests scored together", buckets=_TOGETHER, registry=own)
        self.reloads = Counter("milrec_reloads", "Reloads of a model", ["model", "outcome"], registry=own)

    def watch(self, models: Callable[[], Iterable[Served]]) -> None:
        """Add what these models list, worked out whenever the metrics are read."""
        self.registry.register(_Lists(models))

    def text(self) -> bytes:
        return generate_latest(self.registry)


class _Lists:
    """The live metrics of each model, over its last lists."""

    def __init__(self, models: Callable[[], Iterable[Served]]) -> None:
        self._models = models

    def collect(self) -> Iterator[GaugeMetricFamily]:
        info = GaugeMetricFamily("milrec_model_info", "A model", labels=["model", "kind", "loss", "fingerprint"])
        lists = GaugeMetricFamily("milrec_live_lists", "Lists that the live metrics are taken over", labels=["model"])
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


class Seldom(logging.Filter):
    """Lets the same message of another package through once in ten seconds: one bad client must not fill a disk."""

    def __init__(self, seconds: float = 10.0) -> None:
        super().__init__()
        self._seconds = seconds
        self._seen: dict[tuple[str, str], tuple[float, int]] = {}  # when it was let through, and how many were not

    def filter(self, record: logging.LogRecord) -> bool:
        if record.name == log.name:
            return True
        which, now = (record.name, str(record.msg)), time.monotonic()
        since, left_out = self._seen.get(which, (-math.inf, 0))
        if now - since < self._seconds:
            self._seen[which] = (since, left_out + 1)
            return False
        if len(self._seen) > _MESSAGES_REMEMBERED:
            self._seen.clear()
        self._seen[which] = (now, 0)
        if left_out:
            record.facts = {"left_out": left_out}
        return True


class JsonLines(logging.Formatter):
    """Each log record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **getattr(record, "facts", {}),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)
