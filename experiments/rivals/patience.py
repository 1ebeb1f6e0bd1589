"""Early stopping: the copy of the scores that was best on validation."""

from dataclasses import dataclass, field

from experiments.judged import Scores, Validation


@dataclass
class Patience:
    """`stop` is true once `most` validations in a row were no better than the best."""

    validation: Validation
    most: int
    best: float = -1.0
    epoch: int = 0
    scores: Scores | None = field(default=None, repr=False)
    waited: int = 0

    def see(self, epoch: int, scores: Scores) -> None:
        """Keeps `scores` if they are the best so far; they must not change afterwards."""
        measure = self.validation(scores)
        if measure > self.best:
            self.best, self.epoch, self.scores, self.waited = measure, epoch, scores, 0
        else:
            self.waited += 1

    @property
    def stop(self) -> bool:
        return self.waited >= self.most
