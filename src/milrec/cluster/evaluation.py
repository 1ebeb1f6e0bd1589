"""`evaluate` on a cluster: shards of users are judged anywhere, and their sums are added up in order."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from typing import Any

from milrec.cluster.lists import named_encoders
from milrec.cluster.places import local_folder
from milrec.cluster.session import Cluster, Told
from milrec.cluster.tasks import Note
from milrec.data.splits import Split
from milrec.evaluation.evaluation import Evaluation
from milrec.evaluation.judging import Judge
from milrec.evaluation.tally import Sums
from milrec.lists.shards import shards
from milrec.recommender import Recommender


@dataclass(frozen=True)
class JudgeOrder:
    """What is judged, in plain values."""

    model: str  # places
    model_hash: str
    split: str
    split_hash: str
    copied: bool
    on: str
    dial: float
    aims: dict[str, Any]
    classes: list[str] = field(default_factory=list)
    folder: str = ""

    @property
    def text(self) -> str:
        return json.dumps(asdict(self))


def evaluate(cluster: Cluster, order: JudgeOrder, told: Told) -> Evaluation:
    """The same as on one machine, bit for bit."""
    cluster.check([], [order.model, order.split])
    text = order.text
    judge = _judge(text)
    groups = shards(judge.n_users)
    calls = [(text, users.start, users.stop) for users in groups]
    return judge.result(cluster.in_shards("judge", calls, [len(users) for users in groups], told))


def judge_shard(note: Note, text: str, first: int, last: int) -> Sums:
    """On a node: what the lists of a shard add to the sums."""
    return _judge(text).sums(range(first, last), note)


@lru_cache(maxsize=1)
def _judge(text: str) -> Judge:
    """A process keeps its model and its split for the next shard."""
    order = JudgeOrder(**json.loads(text))
    encoders = named_encoders(order.classes, order.folder)
    recommender = Recommender.load(local_folder(order.model, "model", order.model_hash, order.copied), encoders)
    split = Split.load(local_folder(order.split, "split", order.split_hash, order.copied))
    return recommender.judge(split, order.on, order.dial, **order.aims)  # type: ignore[arg-type]
