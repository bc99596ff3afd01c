"""How to train: learning rate, schedules, batch size, and the rule that says when to stop."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np


@dataclasses.dataclass(frozen=True, kw_only=True)
class StopRule:
    """When the training loss counts as converged.

    The loss of every epoch is averaged over windows of `window` steps. A window is *flat* if its
    mean lies less than `tol * max(1, |best|)` below the best mean of the windows before it.
    `patience` flat windows in a row are convergence. Nothing counts before the KL weight has
    reached its final value.

    The patience is long because this objective has long plateaus: while the KL prunes unused
    weights the loss may stand still for ten thousand steps before a unit finds its use.

    Parameters
    ----------
    window
        Steps per window (rounded to whole epochs, at least one).
    tol
        Relative tolerance per window; 0 never stops early.
    patience
        Flat windows in a row that mean convergence.

    Examples
    --------
    >>> rule = StopRule(tol=0.01, patience=2)
    >>> rule.is_converged([3.0, 2.0, 2.0, 1.999]), rule.is_converged([3.0, 2.0, 1.5])
    (True, False)
    """

    window: int = 1000
    tol: float = 1e-3
    patience: int = 10

    def __post_init__(self):
        if self.window < 1 or self.patience < 1:
            raise ValueError(
                "window and patience must be at least 1, but are "
                f"{self.window} and {self.patience}."
            )
        if not self.tol >= 0:
            raise ValueError(f"tol must not be negative, but is {self.tol}.")

    def is_converged(self, windows: list[float]) -> bool:
        """Whether the last `patience` of these window means were flat."""
        if self.tol == 0 or len(windows) <= self.patience:
            return False
        best = np.minimum.accumulate(windows)
        before, now = best[-self.patience - 1 : -1], np.asarray(windows[-self.patience :])
        return bool(np.all(now > before - self.tol * np.maximum(1.0, np.abs(before))))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recipe:
    """How a lane is trained.

    Lengths are in optimization steps, not epochs: what a data set of any size needs is a number of
    steps. The numbers are traced by the compiled program, so changing them compiles nothing, except
    `batch_size`. The defaults were chosen by the study in docs/training.md.

    Parameters
    ----------
    learning_rate
        Of Adam.
    kl_weight
        Factor of the KL divergence, >= 0; 1 is the paper's objective.
    kl_warmup
        Steps over which the KL weight rises linearly from 0 (0: full weight from the start).
    cooldown
        Steps over which the learning rate falls linearly to 0 once the loss has converged, or such
        that it ends with `max_steps`; 0 keeps it constant.
    max_steps
        Limit of steps, cool-down included, rounded up to whole epochs.
    batch_size
        Rows per step; None takes all rows in every step (deterministic gradient descent).
    alternate
        Whether every other restart trains without warm-up: which of the two ends lower depends on
        the data, and the training objective says so without any held-out row.
    noise_floor
        Whether the noise of targets that repeat (whole numbers, say) is kept above a tenth of the
        step between them; see `varprop.data.Statistics`. It is an estimator that knows the targets.
    stop
        When the loss counts as converged; None for a plan of fixed length, which ends as it is
        planned, whether or not the loss has: for networks that other rows judge.

    Examples
    --------
    >>> Recipe.paper().learning_rate, Recipe.paper().kl_warmup
    (0.001, 0)
    """

    learning_rate: float = 1e-2
    kl_weight: float = 1.0
    kl_warmup: int = 10_000
    cooldown: int = 5_000
    max_steps: int = 40_000
    batch_size: int | None = 128
    alternate: bool = True
    noise_floor: bool = True
    stop: StopRule | None = dataclasses.field(default_factory=StopRule)

    def __post_init__(self):
        for name in ("learning_rate", "kl_weight"):
            value = getattr(self, name)
            if not (value >= 0 and math.isfinite(value)):
                raise ValueError(f"{name} must be finite and not negative, but is {value}.")
        for name in ("kl_warmup", "cooldown"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative, but is {getattr(self, name)}.")
        if self.max_steps < 1:
            raise ValueError(f"max_steps must be at least 1, but is {self.max_steps}.")
        if self.batch_size is not None and self.batch_size < 1:
            raise ValueError(f"batch_size must be at least 1 or None, but is {self.batch_size}.")

    @classmethod
    def paper(cls) -> Recipe:
        """Return the paper's protocol: Adam at 1e-3, batches of 128, full KL from the start.

        It trains to convergence. The paper does not say when a loss has converged; the rule and the
        limit are ours.
        """
        return cls(
            learning_rate=1e-3,
            kl_weight=1.0,
            kl_warmup=0,
            cooldown=0,
            max_steps=300_000,
            batch_size=128,
            alternate=True,
            noise_floor=False,
            stop=StopRule(window=1000, tol=1e-3, patience=10),
        )

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Recipe:
        """Return the recipe that `dataclasses.asdict` made numbers of."""
        stop = values["stop"]
        return cls(**{**values, "stop": None if stop is None else StopRule(**stop)})

    def replace(self, **changes: Any) -> Recipe:
        """Return a copy with some fields changed."""
        return dataclasses.replace(self, **changes)


def weight_of_kl(kl_weight: float | int | None, recipe: Recipe | None) -> float:
    """Return how much the KL divergence counts: an argument goes before the recipe it came with.

    Examples
    --------
    >>> weight_of_kl(None, None), weight_of_kl(None, Recipe(kl_weight=0.1)), weight_of_kl(2, None)
    (1.0, 0.1, 2.0)
    """
    if kl_weight is not None:
        return float(kl_weight)
    return 1.0 if recipe is None else recipe.kl_weight
