"""A fit from folder to folder, as the command line does it: the checkpoint waits beside the model that is to be."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from milrec.cli.output import note, say
from milrec.cli.progress import FitDisplay
from milrec.data.splits import Split
from milrec.errors import FolderError
from milrec.storage import open_folder, refuse_if_in_the_way
from milrec.training.settings import FitSettings

if TYPE_CHECKING:
    from milrec.training.progress import History


@dataclass(frozen=True)
class FolderFit:
    """Which split, which model folder, which settings and which seed; and whether validation is learned from last."""

    split: Path
    out: Path
    settings: FitSettings
    seed: int
    refit: bool = False

    @property
    def partial(self) -> Path:
        return self.out.with_name(self.out.name + ".partial")

    @property
    def checkpoint(self) -> Path:
        return self.partial / "checkpoint.safetensors"

    @property
    def refit_checkpoint(self) -> Path:
        return self.partial / "refit.safetensors"

    @property
    def broken_off(self) -> bool:
        return self.checkpoint.exists() or self.refit_checkpoint.exists()

    def run(self, resume: bool, force: bool) -> None:
        """Fit and save; go on from a checkpoint only when asked to, and never over something else."""
        if resume and self.out.exists() and not self.broken_off:
            self._check_finished()
            say(f"'{self.out}' is already fitted; nothing to resume")
            return
        refuse_if_in_the_way(self.out, "model", force)
        if self.broken_off and not resume and not force:
            raise FolderError(
                f"'{self.partial}' holds a fit that was broken off; go on with --resume, or start over with --force"
            )
        if resume and not self.broken_off:
            note(f"there is no checkpoint in '{self.partial}'; the fit starts from its beginning")
        open_folder(self.split, "split")
        if not resume:
            self.checkpoint.unlink(missing_ok=True)
            self.refit_checkpoint.unlink(missing_ok=True)
        self._fit(force)

    def _check_finished(self) -> None:
        """A finished model is what `--resume` asks for only if its data, settings and seed are the same."""
        facts = open_folder(self.out, "model").facts
        split = Split.load(self.split)
        train = split.joined().train if self.refit else split.train
        settings = self.settings.for_data(train.n_users, train.n_items).model_dump(mode="json")
        found = facts.get("settings")
        if self.refit and settings["training"] and isinstance(found, dict) and found.get("training"):
            settings["training"]["until"] = found["training"].get("until")  # chosen by validation
        asked = (settings, self.seed, train.fingerprint(), self.refit)
        if (found, facts.get("seed"), facts.get("train_fingerprint"), facts.get("refitted", False)) != asked:
            raise FolderError(f"'{self.out}' was fitted with other data, settings or seed; choose another place")

    def _fit(self, force: bool) -> None:
        from milrec.recommender import fit, refit

        split = Split.load(self.split)
        if self.refit:
            split.joined()  # refused now, where it cannot be, and not after the fit
        self.partial.mkdir(parents=True, exist_ok=True)
        try:
            with FitDisplay() as display:
                recommender = fit(
                    split, self.settings, seed=self.seed, checkpoint=self.checkpoint, report=display.report
                )
            self._say_kept(recommender.fitted.history)
            seconds = recommender.fitted.facts["fit_seconds"]
            if self.refit:
                with FitDisplay("Refitting") as display:
                    recommender = refit(split, recommender, self.refit_checkpoint, display.report)
                seconds += recommender.fitted.facts["fit_seconds"]
        except KeyboardInterrupt:
            resume = f"go on with: milrec fit {self.split} --out {self.out} --resume and the same settings"
            say(f"Interrupted; {resume if self.broken_off else 'nothing was kept'}")
            raise
        finally:
            if not self.broken_off:
                shutil.rmtree(self.partial, ignore_errors=True)
        recommender.save(self.out, replace=force)
        shutil.rmtree(self.partial, ignore_errors=True)
        say(f"Fitted in {seconds:.1f} s → {self.out}")

    def _say_kept(self, history: History | None) -> None:
        if history is not None and history.kept is not None:
            stopped = ", stopped early" if history.stopped_early else ""
            best = "" if history.kept == history.best else f" (best {history.best:.4f})"
            measure = f"{self.settings.measure} {history.kept:.4f}{best}"
            say(f"Kept the weights of step {history.kept_iteration}: validation {measure}{stopped}")
