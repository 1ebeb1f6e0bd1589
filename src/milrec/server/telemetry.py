"""What can be seen from outside: a log, and metrics for Prometheus.

The metrics are about requests, their times and errors, and about what is being listed: live tail shares and coverage.
"""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

if TYPE_CHECKING:
    from milrec.server.model import Served

Snapshot = dict[str, Any]  # families of figures, and what each model has listed

log = logging.getLogger("milrec.server.app")

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_MESSAGES_REMEMBERED = 100
_LINE = json.JSONEncoder(ensure_ascii=False)
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
        self.replaced = Counter("milrec_processes_replaced", "Processes that ended and were replaced", registry=own)
        self._models: Callable[[], Iterable[Served]] = tuple

    def watch(self, models: Callable[[], Iterable[Served]]) -> None:
        """Add what these models list, worked out whenever the metrics are read."""
        self._models = models

    def snapshot(self) -> Snapshot:
        """All that is known now, in plain values that another process understands."""
        families = [
            {
                "name": family.name,
                "help": family.documentation,
                "type": family.type,
                "samples": [[one.name, one.labels, one.value] for one in family.samples],
            }
            for family in self.registry.collect()
        ]
        return {"families": families, "models": [_live(served) for served in self._models()]}


def _live(served: Served) -> dict[str, Any]:
    """What a model has listed recently; the items are bits, so that those of several processes can be united."""
    settings, catalogue = served.recommender.fitted.settings, served.recommender.catalogue
    n_lists, tails, shown = served.window.facts()
    return {
        "model": served.name,
        "kind": settings.model.model,
        "loss": settings.loss_name or "",
        "fingerprint": served.fingerprint,
        "lists": n_lists,
        "tails": tails,
        "shown": np.packbits(shown).tobytes().hex(),
        "n_items": len(catalogue.popularity),
    }


@contextmanager
def note_reload(metrics: Metrics, name: str) -> Iterator[Callable[[str], None]]:
    """Count and log a reload; what is yielded is called with the fingerprint of the model that serves from now on."""

    def done(fingerprint: str) -> None:
        metrics.reloads.labels(name, "done").inc()
        log.info("reloaded", extra={"facts": {"model": name, "fingerprint": fingerprint}})

    try:
        yield done
    except Exception as error:
        metrics.reloads.labels(name, "refused").inc()
        log.warning("reload refused", extra={"facts": {"model": name, "error": str(error)}})
        raise


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


class _RequestRecord(logging.LogRecord):
    """A record about a request. There are many: where in the code, and in which thread, is looked up for none."""

    def __init__(self, facts: dict[str, Any]) -> None:
        self.__dict__ = {**_REQUEST, "created": time.time(), "facts": facts}


_REQUEST = logging.LogRecord(log.name, logging.INFO, "", 0, "request", None, None).__dict__


def note_request(facts: dict[str, Any]) -> None:
    if log.isEnabledFor(logging.INFO):
        log.handle(_RequestRecord(facts))


class JsonLines(logging.Formatter):
    """Each log record as one line of JSON; of several processes, with the number of this one."""

    def __init__(self, process: int | None = None) -> None:
        super().__init__()
        self._process = {} if process is None else {"process": process}

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **self._process,
            **getattr(record, "facts", {}),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return _LINE.encode(line)
