"""A fit from folder to folder, as the command line does it: the checkpoint waits beside the model that is to be."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from milrec.bars import FitDisplay
from milrec.errors import FolderError
from milrec.folders import open_folder, refuse_if_in_the_way
from milrec.presets import FitSettings
from milrec.show import note, say
from milrec.splitting import Split


@dataclass(frozen=True)
class FolderFit:
    """Which split, which model folder, which settings and which seed."""

    split: Path
    out: Path
    settings: FitSettings
    seed: int

    @property
    def checkpoint(self) -> Path:
        return self.out.with_name(self.out.name + ".partial") / "checkpoint.safetensors"

    def run(self, resume: bool, force: bool) -> None:
        """Fit and save; go on from a checkpoint only when asked to, and never over something else."""
        broken_off = self.checkpoint.exists()
        if resume and self.out.exists() and not broken_off:
            self._check_finished()
            say(f"'{self.out}' is already fitted; nothing to resume")
            return
        refuse_if_in_the_way(self.out, "model", force)
        if broken_off and not resume and not force:
            raise FolderError(
                f"'{self.checkpoint.parent}' holds a fit that was broken off; go on with --resume, "
                "or start over with --force"
            )
        if resume and not broken_off:
            note(f"there is no checkpoint in '{self.checkpoint.parent}'; the fit starts from its beginning")
        open_folder(self.split, "split")
        if not resume:
            self.checkpoint.unlink(missing_ok=True)
        self._fit(force)

    def _check_finished(self) -> None:
        """A finished model is what `--resume` asks for only if its data, settings and seed are the same."""
        facts = open_folder(self.out, "model").facts
        train = Split.load(self.split).train
        settings = self.settings.for_data(train.n_users, train.n_items)
        asked = (settings.model_dump(mode="json"), self.seed, train.fingerprint())
        if (facts.get("settings"), facts.get("seed"), facts.get("train_fingerprint")) != asked:
            raise FolderError(f"'{self.out}' was fitted with other data, settings or seed; choose another place")

    def _fit(self, force: bool) -> None:
        from milrec.recommender import fit  # brings torch, which mistakes must not wait for

        split = Split.load(self.split)
        self.checkpoint.parent.mkdir(parents=True, exist_ok=True)
        try:
            with FitDisplay() as display:
                recommender = fit(
                    split, self.settings, seed=self.seed, checkpoint=self.checkpoint, report=display.report
                )
        except KeyboardInterrupt:
            if self.checkpoint.exists():
                say(f"Interrupted; go on with: milrec fit {self.split} --out {self.out} --resume and the same settings")
            raise
        finally:
            if not self.checkpoint.exists():
                shutil.rmtree(self.checkpoint.parent, ignore_errors=True)
        recommender.save(self.out, replace=force)
        shutil.rmtree(self.checkpoint.parent, ignore_errors=True)
        history = recommender.fitted.history
        if history is not None and history.kept is not None and self.settings.training is not None:
            stopped = ", stopped early" if history.stopped_early else ""
            best = "" if history.kept == history.best else f" (best {history.best:.4f})"
            measure = f"{self.settings.training.measure} {history.kept:.4f}{best}"
            say(f"Kept the weights of step {history.kept_iteration}: validation {measure}{stopped}")
        say(f"Fitted in {recommender.fitted.facts['fit_seconds']:.1f} s → {self.out}")
