"""What a fit returns: outcome is data, never a silent NaN."""

from __future__ import annotations

import dataclasses
import enum

import numpy as np

from varprop.data.arrays import Scaling
from varprop.learning.model import Model
from varprop.training.recipe import Recipe


class Outcome(enum.Enum):
    """How a lane ended, with a sentence to show.

    Examples
    --------
    >>> Outcome.CONVERGED.sentence
    'the training loss converged'
    """

    CONVERGED = "converged"
    MAX_STEPS = "max_steps"
    NONFINITE = "nonfinite"
    INTERRUPTED = "interrupted"
    TIME_LIMIT = "time_limit"

    @property
    def sentence(self) -> str:
        """What happened, in words."""
        return {
            Outcome.CONVERGED: "the training loss converged",
            Outcome.MAX_STEPS: "the limit of steps was reached before the loss had converged",
            Outcome.NONFINITE: "the loss or its gradient became infinite or NaN, and the last "
            "finite parameters were kept: lower the learning rate",
            Outcome.INTERRUPTED: "training was interrupted, and what there was is returned",
            Outcome.TIME_LIMIT: "the time limit was reached",
        }[self]


@dataclasses.dataclass(frozen=True)
class Fit:
    """A trained model and how it came about.

    Attributes
    ----------
    model
        The trained model, in scaled units.
    history
        Training loss of every epoch (per row, with the KL weight of the moment), shape (epochs,).
        All finite: a lane that turned non-finite has those of the epochs before.
    loss
        The objective per row over all training rows at the end, with the full KL weight. This is
        what restarts are chosen by. NaN if it is not finite.
    outcome
        How it ended.
    n_steps
        Optimization steps done.
    seconds
        Wall-clock time of the lane, compilation included where it waited for it.
    scaling
        Shift and scale of the training rows.
    recipe
        How it was trained.
    restart_losses
        With restarts: the final `loss` of every lane, this one's among them.
    """

    model: Model
    history: np.ndarray
    loss: float
    outcome: Outcome
    n_steps: int
    seconds: float
    scaling: Scaling
    recipe: Recipe
    restart_losses: tuple[float, ...] = ()

    @property
    def n_epochs(self) -> int:
        """Passes over the training rows."""
        return len(self.history)
