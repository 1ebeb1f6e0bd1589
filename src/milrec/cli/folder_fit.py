"""`milrec fit`: from a split folder to a model folder, with a checkpoint next to the model until it is done."""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from milrec.cli.output import note, say
from milrec.cli.progress import FitDisplay
from milrec.data.roles import of_rejections
from milrec.data.splits import Split
from milrec.disk.files import make_folders, remove_empty, sweep
from milrec.disk.locks import only_writer
from milrec.errors import FolderError, SettingsError
from milrec.storage import alone_at, open_folder, open_manifest, refuse_if_in_the_way, remove_file
from milrec.training.sections import Shape
from milrec.training.settings import FitSettings

if TYPE_CHECKING:
    from milrec.cluster.fitting import FitOrder
    from milrec.cluster.session import Cluster
    from milrec.recommender import Recommender
    from milrec.training.progress import History, Progress


def _resuming() -> str:
    """The command that was given, with --resume if it has that option."""
    given = [one for one in sys.argv[1:] if one != "--resume"]
    command = next((one for one in given if not one.startswith("-")), None)
    return shlex.join(["milrec", *given, *(["--resume"] if command == "fit" else [])])


@dataclass(frozen=True)
class SharedFit:
    """A cluster whose machines share the steps of a fit."""

    address: str
    classes: list[str]  # of encoders that are not milrec's

    @contextmanager
    def opened(self, settings: FitSettings) -> Iterator[Cluster]:
        from milrec.cluster.session import joined

        if settings.training is None:
            name = settings.model.model
            raise SettingsError(f"model '{name}' cannot be fitted on several machines; leave --cluster out")
        if settings.training.slices == 1:
            note("slices is 1, so one process does all the work; to share it, set slices (docs/scale.md)")
        with joined(self.address) as cluster:
            note(str(cluster))
            yield cluster

    def order(self, cluster: Cluster, folder_fit: FolderFit, settings: FitSettings, refit: bool) -> FitOrder:
        """A fit, or a refit, as the cluster gets it."""
        from milrec.cluster.fitting import FitOrder
        from milrec.cluster.places import shared_place

        checkpoint = folder_fit.refit_checkpoint if refit else folder_fit.checkpoint
        return FitOrder(
            split=shared_place(str(folder_fit.split)),
            split_hash=open_manifest(folder_fit.split, "split").fingerprint(),
            copied=cluster.copies,
            joined=refit,
            settings=settings.model_dump(mode="json"),
            seed=folder_fit.seed,
            checkpoint=str(checkpoint.resolve()),
            classes=self.classes,
            folder=str(Path.cwd()),
        )


@dataclass(frozen=True)
class FolderFit:
    """A split, a model folder to write, settings, a seed; whether to refit, and what to predict."""

    split: Path
    out: Path
    settings: FitSettings
    seed: int
    refit: bool = False
    without_users: bool = False
    of_rejections: bool = False
    shared: SharedFit | None = None  # None: on this machine

    @property
    def partial(self) -> Path:
        out = self.out if self.out.name not in ("", "..") else self.out.resolve()
        return out.parent / f"{out.name}.partial"

    @property
    def checkpoint(self) -> Path:
        return self.partial / "checkpoint.safetensors"

    @property
    def refit_checkpoint(self) -> Path:
        return self.partial / "refit.safetensors"

    @property
    def interrupted(self) -> bool:
        return self.checkpoint.exists() or self.refit_checkpoint.exists()

    def run(self, resume: bool, force: bool) -> None:
        """Fit and save; resume from a checkpoint only if asked to, and never overwrite something else."""
        self._refuse_strange_partial()
        with alone_at(self.out, "model"), only_writer(self.partial):
            sweep(self.partial)  # what a killed fit on a cluster left
            self._run(resume, force)

    def _run(self, resume: bool, force: bool) -> None:
        if resume and self.out.exists() and not self.interrupted:
            if self._is_finished():
                say(f"'{self.out}' is already fitted; there is nothing to resume")
                return
            if not force:  # which was killed before its first checkpoint if a fit replaces another model
                raise FolderError(f"'{self.out}' was fitted with other data, settings or seed; choose another place")
        refuse_if_in_the_way(self.out, "model", force)
        if self.interrupted and not resume and not force:
            raise FolderError(
                f"'{self.partial}' holds an interrupted fit; resume it with --resume, or start over with --force"
            )
        if resume and not self.interrupted:
            note(f"there is no checkpoint in '{self.partial}'; the fit starts from the beginning")
        open_folder(self.split, "split")  # all of it, before a checkpoint is removed
        if self.of_rejections:
            self._split()
        if not resume:
            remove_file(self.checkpoint)
            remove_file(self.refit_checkpoint)
        self._fit(force)

    def _split(self) -> Split:
        split = Split.load(self.split)
        return of_rejections(split) if self.of_rejections else split

    def _is_finished(self) -> bool:
        """Whether the model that is there has these data, settings and seed."""
        finished = open_folder(self.out, "model")
        facts = finished.facts
        split = self._split()
        train = split.joined().train if self.refit else split.train
        settings = self.settings.for_data(Shape.of(split.train)).model_dump(mode="json")
        found = facts.get("settings")
        if self.refit and settings["training"] and isinstance(found, dict) and isinstance(found.get("training"), dict):
            settings["training"]["until"] = found["training"].get("until")  # chosen by validation
        asked = (settings, self.seed, train.fingerprint(), self.refit, self.without_users)
        has = (found, facts.get("seed"), facts.get("train_fingerprint"), facts.get("refitted", False))
        return (*has, "users.arrow" not in finished.hashes) == asked

    def _fit(self, force: bool) -> None:
        from milrec.training.artifact import refuse_without_users

        split = self._split()
        if self.refit:
            split.joined()  # if that is refused, then now, and not after the fit
        if self.without_users:
            refuse_without_users(self.settings.model)
        make_folders(self.partial)
        self._say_skipped(split)
        started = time.monotonic()
        try:
            recommender = self._fitted(split)
            (recommender.without_users() if self.without_users else recommender).save(self.out, replace=force)
        except (KeyboardInterrupt, OSError) as error:
            how = "Interrupted" if isinstance(error, KeyboardInterrupt) else "Stopped"
            say(f"{how}; {f'to resume: {_resuming()}' if self.interrupted else 'nothing was kept'}")
            raise
        finally:
            if not self.interrupted:
                self._remove_partial()
        self._remove_partial()
        say(f"Fitted in {time.monotonic() - started:.1f} s → {self.out}")

    def _fitted(self, split: Split) -> Recommender:
        from milrec.fits import fit, refit, refit_settings

        with FitDisplay() as display, self._steps_elsewhere() as take:
            started = time.monotonic()
            take(self.settings, False, display.report)
            recommender = fit(split, self.settings, seed=self.seed, checkpoint=self.checkpoint, report=display.report)
            recommender.fitted.facts["fit_seconds"] = round(time.monotonic() - started, 2)  # wherever it was fitted
        self._say_kept(recommender.fitted.history)
        if self.refit:
            with FitDisplay("Refitting") as display, self._steps_elsewhere() as take:
                take(refit_settings(recommender), True, display.report)
                recommender = refit(split, recommender, self.refit_checkpoint, display.report)
        return recommender

    @contextmanager
    def _steps_elsewhere(self) -> Iterator[Callable[[FitSettings, bool, Callable[[Progress], None]], None]]:
        """Where there is a cluster, the steps of a fit are taken there: what is left is a checkpoint of its end."""
        if self.shared is None:
            yield lambda settings, refit, report: None
            return
        from milrec.cluster.fitting import advance_on

        shared = self.shared
        with shared.opened(self.settings) as cluster:
            yield lambda settings, refit, report: advance_on(
                cluster, shared.order(cluster, self, settings, refit), report
            )

    def _refuse_strange_partial(self) -> None:
        """Checkpoints get a folder to themselves: what somebody else put there stays."""
        if not os.path.lexists(self.partial):
            return
        ours = (self.checkpoint.name, self.refit_checkpoint.name)
        if not self.partial.is_dir() or any(
            one.name not in ours and not one.name.startswith(tuple(f".{name}." for name in ours))
            for one in self.partial.iterdir()
        ):
            raise FolderError(
                f"'{self.partial}' should hold checkpoints, but it holds other files; move it, or choose another place"
            )

    def _remove_partial(self) -> None:
        for file in (self.checkpoint, self.refit_checkpoint):
            remove_file(file)
        remove_empty([self.partial])

    def _say_skipped(self, split: Split) -> None:
        shape = Shape.of(split.train)
        training = self.settings.for_data(shape).training
        if training is not None and training.skip_singles and shape.n_singles:
            n_users = f"{shape.n_singles:,} of {shape.n_users:,} users"
            say(
                f"{n_users} have fewer than two items in the training part and are left out of the steps (skip_singles)"
            )

    def _say_kept(self, history: History | None) -> None:
        if history is not None and history.kept is not None:
            stopped = ", stopped early" if history.stopped_early else ""
            best = "" if history.kept == history.best else f" (best {history.best:.4f})"
            measure = f"{self.settings.measure} {history.kept:.4f}{best}"
            say(f"Kept the weights of step {history.kept_iteration}: validation {measure}{stopped}")
