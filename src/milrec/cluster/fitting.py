"""`fit` on a cluster: Ray Train starts a group of processes that share the slices of every step.

The steps are taken there, and what they leave is the checkpoint of a fit that has come to its end: the command then
finishes as if it had taken them itself. If a process or a node is lost, Ray Train starts a new group, perhaps a smaller
one, which goes on from the last checkpoint.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, cast

from milrec.cluster.lists import named_encoders
from milrec.cluster.places import local_folder
from milrec.cluster.session import Cluster, Node
from milrec.data.splits import Split
from milrec.disk.files import draft_folder
from milrec.errors import ClusterError, FitError, MilrecError, SettingsError, first_line, system_sentence
from milrec.training.progress import Progress, Watch
from milrec.training.settings import GradientFit, fit_settings

_NOTE = "fit"
_POLL = 0.25  # seconds
_LOSSES = 20  # of processes or nodes that a fit survives
_PATIENCE = 60.0  # seconds that an interrupted fit has to write its checkpoint


@dataclass(frozen=True)
class FitOrder:
    """A fit in plain values."""

    split: str  # place
    split_hash: str
    copied: bool
    joined: bool  # whether validation is part of what is fitted (a refit)
    settings: dict[str, Any]
    seed: int
    checkpoint: str  # a path that all nodes share
    classes: list[str] = field(default_factory=list)
    folder: str = ""


def advance_on(cluster: Cluster, order: FitOrder, report: Callable[[Progress], None]) -> None:
    """Take all steps of a fit; afterwards its checkpoint holds the end of it."""
    refuse_unshared(cluster, order)
    cluster.check([Path(order.checkpoint).parent.parent], [order.split])
    storage = draft_folder(Path(order.checkpoint).parent)
    failure: list[BaseException] = []
    trainer = _trainer(cluster, order, storage)

    def run() -> None:
        try:
            trainer.fit()
        except BaseException as error:
            failure.append(error)

    group = threading.Thread(target=run, daemon=True)  # Ray Train would take over Ctrl-C in the main thread
    try:
        group.start()
        while group.is_alive():
            group.join(_POLL)
            _report(cluster, report)
        _refuse_unfinished(cluster, failure, Path(order.checkpoint))
    except KeyboardInterrupt:
        _interrupt(cluster, group)
        raise
    finally:
        shutil.rmtree(storage, ignore_errors=True)


def refuse_unshared(cluster: Cluster, order: FitOrder) -> None:
    """Refuse a fit that is not taken in steps, or a driver that Ray Train cannot work with."""
    if order.settings.get("training") is None:
        name = order.settings["model"]["model"]
        raise SettingsError(f"model '{name}' cannot be fitted on several machines; leave `cluster` out")
    if cluster.remote_driver:
        raise SettingsError("Ray Train does not work through ray://; fit on a node of the cluster, or submit a job")


def n_workers(nodes: list[Node], n_slices: int) -> tuple[int, int]:
    """How many processes share the slices, and how many CPUs each of them gets: as many as all of them can have."""
    number = min(n_slices, sum(node.n_cpus for node in nodes))
    most = max(node.n_cpus for node in nodes)
    return number, next(k for k in range(most, 0, -1) if sum(node.n_cpus // k for node in nodes) >= number)


def _trainer(cluster: Cluster, order: FitOrder, storage: Path) -> Any:
    os.environ.setdefault("RAY_TRAIN_METRICS_ENABLED", "0")
    os.environ.setdefault("RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S", "30")  # a lost node is believed to be there a while
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    number, n_cpus = n_workers(cluster.nodes(), int(order.settings["training"].get("slices", 1)))
    return TorchTrainer(
        take_part,
        train_loop_config={"order": json.dumps(asdict(order)), "notebook": cluster.notebook, "n_cpus": n_cpus},
        torch_config=TorchConfig(backend="gloo"),
        scaling_config=ScalingConfig(
            num_workers=number if number == 1 else (1, number),  # elastic: fewer, if nodes are lost
            resources_per_worker={"CPU": n_cpus},
        ),
        run_config=RunConfig(name="fit", storage_path=str(storage), failure_config=FailureConfig(max_failures=_LOSSES)),
    )


def _report(cluster: Cluster, report: Callable[[Progress], None]) -> None:
    noted = cluster.notes().get(_NOTE)
    if noted is not None and "iteration" in noted:
        report(Progress(**{name: value for name, value in noted.items() if name != "finished"}))


def _refuse_unfinished(cluster: Cluster, failure: list[BaseException], checkpoint: Path) -> None:
    """Go on only with a checkpoint of the end of a fit."""
    noted = cluster.notes().get(_NOTE) or {}
    if "error" in noted:
        raise FitError(noted["error"])
    if failure:
        raise ClusterError(f"Ray Train gave up on the fit ({first_line(failure[0])}); to continue, add `resume=True`")
    if not noted.get("finished") or not checkpoint.exists():
        raise ClusterError(f"Ray Train ended the fit early; what was done is in '{checkpoint}'")


def _interrupt(cluster: Cluster, group: threading.Thread) -> None:
    """Let the first process write a checkpoint."""
    cluster.pages.put.remote("stop", True)
    until = time.monotonic() + _PATIENCE
    while group.is_alive() and time.monotonic() < until and "stopped" not in (cluster.notes().get(_NOTE) or {}):
        group.join(_POLL)


# ---- on the nodes ----


def take_part(given: dict[str, Any]) -> None:
    """One of the processes of a fit; what is wrong with it is noted, and ends the others."""
    import ray
    import torch
    import torch.distributed as dist

    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = str(given["n_cpus"])
    torch.set_num_threads(given["n_cpus"])
    pages, first = ray.get_actor(given["notebook"]), dist.get_rank() == 0
    if (ray.get(pages.read.remote()).get(_NOTE) or {}).keys() & {"error", "stopped"}:
        return  # this group is a new one, for which there is nothing to do
    try:
        _advance(json.loads(given["order"]), _Reports(ray, pages) if first else None)
    except MilrecError as error:
        _end(ray, pages, {"error": str(error)})
    except OSError as error:
        _end(ray, pages, {"error": f"{system_sentence(error)} (on node {socket.gethostname()})"})
    except KeyboardInterrupt:
        _end(ray, pages, {"stopped": True})


def _end(ray: Any, pages: Any, note: dict[str, Any]) -> None:
    ray.get(pages.put.remote(_NOTE, note))
    raise RuntimeError(str(note))


def _advance(plain: dict[str, Any], reports: _Reports | None) -> None:
    from milrec.cluster.exchange import Shared, measured_once
    from milrec.evaluation.validation import validation_measure
    from milrec.training.loop import advance
    from milrec.training.sections import Shape

    order = FitOrder(**plain)
    settings = cast(GradientFit, fit_settings(order.settings, named_encoders(order.classes, order.folder)))
    split = Split.load(local_folder(order.split, "split", order.split_hash, order.copied))
    split = split.joined() if order.joined else split
    train = split.train
    settings = settings.for_data(Shape.of(train))
    model = settings.new_model(train.n_users, train.n_items, order.seed)
    validate = None
    if split.validation.targets.nnz:
        own = None
        if reports is not None:
            own = validation_measure(settings.measure, settings, train, split.validation)
        validate = measured_once(own)
    checkpoint = Path(order.checkpoint)
    watch = Watch(validate, checkpoint, reports, writes=reports is not None)
    weights = {name: value for name, value in model.named_parameters() if value.requires_grad}
    state = advance(model, train, settings, order.seed, watch, Shared(weights))  # type: ignore[arg-type]
    if reports is not None:
        state.write(checkpoint)
        reports.finish()


class _Reports:
    """Notes how far a fit has come, and stops it if that is asked for."""

    def __init__(self, ray: Any, pages: Any) -> None:
        self.ray, self.pages, self.noted_at = ray, pages, 0.0
        self.last: dict[str, Any] = {}

    def __call__(self, progress: Progress) -> None:
        now = time.monotonic()
        self.last = {name: value for name, value in vars(progress).items() if name != "history"}
        if now - self.noted_at < _POLL and progress.iteration != progress.total:
            return
        self.noted_at = now
        self.pages.put.remote(_NOTE, self.last)
        if self.ray.get(self.pages.read.remote()).get("stop"):
            raise KeyboardInterrupt

    def finish(self) -> None:
        """All steps are taken, and the checkpoint says so."""
        self.ray.get(self.pages.put.remote(_NOTE, {**self.last, "finished": True}))
