"""Which rows come when, and when training warms up, cools down and ends: no JAX, no data.

Rows come in buffers: arrays in memory make one, more rows than memory holds make several an epoch.
A buffer is known by its number, counted from 0 through all epochs.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Sequence
from typing import Any

import numpy as np

from varprop.training.recipe import Recipe, StopRule

#: Passes over a buffer that the compiled program makes in one call, at most.
MAX_PASSES = 1024
# A buffer unless its rows are given: as many as shuffle well, and no more bytes than this.
_BUFFER_ROWS, _BUFFER_BYTES = 2**20, 2**27
# Rows beyond which a buffer is not padded: a copy to pad it costs memory, and compiling anew costs
# little beside training on it.
_PAD_ROWS = 2**16


class Outcome(enum.Enum):
    """How a lane ended, with a sentence to show.

    Examples
    --------
    >>> Outcome.CONVERGED.sentence
    'the training loss converged'
    """

    CONVERGED = "converged"
    COMPLETED = "completed"
    MAX_STEPS = "max_steps"
    NONFINITE = "nonfinite"
    INTERRUPTED = "interrupted"
    TIME_LIMIT = "time_limit"

    @property
    def sentence(self) -> str:
        """What happened, in words."""
        return {
            Outcome.CONVERGED: "the training loss converged",
            Outcome.COMPLETED: "training went as long as its plan says",
            Outcome.MAX_STEPS: "the limit of steps was reached before the loss had converged",
            Outcome.NONFINITE: "the loss or its gradient became infinite or NaN, and the last "
            "finite parameters were kept: lower the learning rate",
            Outcome.INTERRUPTED: "training was interrupted, and what there was is returned",
            Outcome.TIME_LIMIT: "the time limit was reached",
        }[self]


def bucket_size(n: int) -> int:
    """Round a row count up to one of few sizes, so that similar counts share a compiled program.

    Eight sizes per octave: at most 12.5 % of padding.

    Examples
    --------
    >>> [bucket_size(n) for n in (1, 20, 404, 405, 1_000_000)]
    [32, 32, 416, 416, 1048576]
    """
    step = max(32, 2 ** (max(n - 1, 1).bit_length() - 1) // 8)
    return -(-n // step) * step


def warmth(step: Any, warmup: Any, xp: Any = np) -> Any:
    """Return the KL's share at a step: it rises linearly from 0 to 1, or is 1 throughout.

    Examples
    --------
    >>> [float(warmth(step, 4)) for step in (0, 1, 4, 9)], float(warmth(0, 0))
    ([0.0, 0.25, 1.0, 1.0], 1.0)
    """
    return xp.where(warmup > 0, xp.minimum(1.0, step / xp.maximum(warmup, 1)), 1.0)


def cooled(step: Any, start: Any, length: Any, xp: Any = np) -> Any:
    """Return the learning rate's share at a step: it falls linearly to 0 from a step on.

    Examples
    --------
    >>> [float(cooled(step, 10, 4)) for step in (0, 10, 13, 14, 20)]
    [1.0, 1.0, 0.25, 0.0, 0.0]
    """
    return xp.clip(1.0 - (step - start) / length, 0.0, 1.0)


@dataclasses.dataclass(frozen=True)
class Plan:
    """Epochs of buffers.

    All buffers of an epoch are full but the last, and where there are several a full one is a whole
    number of batches. So an epoch has as many steps as it has in memory, and only its very last
    batch may be partial.

    Attributes
    ----------
    block_rows
        Rows of every block of the source.
    batch_size
        Rows per step.
    buffer_rows
        Rows that a buffer has room for.
    shuffle
        Whether rows are shuffled; not where a step takes all.
    seed
        Of the order of blocks.
    n_rows, n_buffers, steps_per_epoch
        What an epoch has.

    Examples
    --------
    >>> plan = Plan((40, 40, 25), batch_size=10, buffer_rows=50, shuffle=True, seed=(0,))
    >>> plan.n_buffers, plan.steps_per_epoch, [plan.rows_of(g) for g in range(4)]
    (3, 11, [50, 50, 5, 50])
    >>> [plan.steps_before(g) for g in range(5)]
    [0, 5, 10, 11, 16]
    """

    block_rows: tuple[int, ...]
    batch_size: int
    buffer_rows: int
    shuffle: bool
    seed: tuple[int, ...]
    n_rows: int = dataclasses.field(init=False)
    n_buffers: int = dataclasses.field(init=False)
    steps_per_epoch: int = dataclasses.field(init=False)

    @classmethod
    def of(
        cls,
        block_rows: tuple[int, ...],
        recipe: Recipe,
        *,
        row_bytes: int,
        buffer_rows: int | None = None,
        room: int = 0,
        seed: tuple[int, ...] = (),
    ) -> Plan:
        """Return the plan for these rows.

        Parameters
        ----------
        block_rows, seed
            As above.
        recipe
            Says how many rows a step takes.
        row_bytes
            Bytes of a row.
        buffer_rows
            Rows a buffer may have; as many as make 128 MiB, but at most 1,048,576, unless given.
        room
            Rows to have room for in a single buffer, so that lanes share a compiled program.

        Examples
        --------
        >>> Plan.of((300,), Recipe(), row_bytes=40).buffer_rows
        320
        """
        n_rows = sum(block_rows)
        if buffer_rows is not None and buffer_rows < 1:
            raise ValueError(f"buffer_rows must be at least 1, but is {buffer_rows}.")
        # This depends on the lane alone, not on its companions: sums of another length round
        # differently.
        padded = bucket_size(n_rows)
        batch, shuffle = padded, False
        if recipe.batch_size is not None and recipe.batch_size < padded:
            batch, shuffle = recipe.batch_size, True
        most = max(batch, min(_BUFFER_ROWS, _BUFFER_BYTES // row_bytes))
        most = most if buffer_rows is None else buffer_rows
        if n_rows <= most:
            # A step that takes all rows takes the padding too.
            large = n_rows > _PAD_ROWS and shuffle
            rows = n_rows if large else max(padded, bucket_size(max(room, 1)))
            return cls(block_rows, batch, rows, shuffle, seed)
        if recipe.batch_size is None:
            raise ValueError(
                f"batch_size=None takes all {n_rows} rows in one step, but a buffer has {most}: "
                "give a batch size."
            )
        if most < batch:
            raise ValueError(
                f"a buffer must hold a batch of {batch} rows, but buffer_rows is {buffer_rows}."
            )
        return cls(block_rows, batch, most // batch * batch, shuffle, seed)

    def __post_init__(self):
        n_rows = sum(self.block_rows)
        object.__setattr__(self, "n_rows", n_rows)
        object.__setattr__(self, "n_buffers", -(-n_rows // self.buffer_rows))
        object.__setattr__(self, "steps_per_epoch", -(-n_rows // self.batch_size))

    def rows_of(self, number: int) -> int:
        """Return the rows in a buffer."""
        return min(self.buffer_rows, self.n_rows - number % self.n_buffers * self.buffer_rows)

    def steps_of(self, number: int) -> int:
        """Return the steps in a buffer."""
        return -(-self.rows_of(number) // self.batch_size)

    def steps_before(self, number: int) -> int:
        """Return the steps in all buffers before this one."""
        epoch, place = divmod(number, self.n_buffers)
        return epoch * self.steps_per_epoch + place * self.steps_of(0)

    def after(self, number: int, steps: int) -> int:
        """Return the first buffer that has at least so many steps between it and another one.

        Examples
        --------
        >>> plan = Plan((40, 40, 25), batch_size=10, buffer_rows=50, shuffle=True, seed=(0,))
        >>> [plan.after(0, steps) for steps in (0, 1, 5, 6, 11, 12)]
        [0, 1, 1, 2, 3, 4]
        """
        epoch, rest = divmod(self.steps_before(number) + steps, self.steps_per_epoch)
        return epoch * self.n_buffers - (-rest // self.steps_of(0))

    def before(self, number: int, steps: int) -> int:
        """Return the last buffer that has at least so many steps between it and another one.

        Examples
        --------
        >>> plan = Plan((40, 40, 25), batch_size=10, buffer_rows=50, shuffle=True, seed=(0,))
        >>> [plan.before(3, steps) for steps in (0, 1, 2, 6, 7, 11, 12)]
        [3, 2, 1, 1, 0, 0, 0]
        """
        epoch, rest = divmod(max(0, self.steps_before(number) - steps), self.steps_per_epoch)
        return epoch * self.n_buffers + rest // self.steps_of(0)

    def order(self, epoch: int) -> np.ndarray:
        """Return the blocks in the order of an epoch; where all fit one buffer, as they are."""
        n_blocks = len(self.block_rows)
        if self.n_buffers == 1:
            return np.arange(n_blocks)
        return np.random.default_rng([*self.seed, epoch]).permutation(n_blocks)


@dataclasses.dataclass
class Schedule:
    """Where a lane stands, and what comes next: how long it trains, when it cools down and ends.

    Lengths are given in steps and kept in whole buffers, never shorter than asked for. The stop
    rule compares windows of whole epochs: parts of an epoch have different rows, and their losses
    cannot be compared.

    Attributes
    ----------
    recipe, plan
        How to train, and on what.
    position
        Buffers trained on.
    losses
        Of whole epochs.
    epoch_total
        Sum of the batches' losses since the epoch began.
    window_means
        What the stop rule looks at.
    cooling
        The first buffer of the cool-down, and the one after its last; None before it.
    converged
        Whether the stop rule said so.

    Examples
    --------
    >>> plan = Plan.of((100,), Recipe(), row_bytes=8)
    >>> schedule = Schedule(Recipe(max_steps=3, cooldown=1), plan)
    >>> schedule.passes(), schedule.saw([2.0, 1.0], finite=True)
    (2, None)
    >>> schedule.passes(), schedule.cooling, schedule.saw([0.5], finite=True).value
    (1, (2, 3), 'max_steps')
    """

    recipe: Recipe
    plan: Plan
    position: int = 0
    losses: list[float] = dataclasses.field(default_factory=list)
    epoch_total: float = 0.0
    window_means: list[float] = dataclasses.field(default_factory=list)
    cooling: tuple[int, int] | None = None
    converged: bool = False

    def __post_init__(self):
        steps = self.plan.steps_per_epoch
        self.last = self.plan.after(0, self.recipe.max_steps)
        self._warm_epochs = -(-self.recipe.kl_warmup // steps)
        # Without a rule too, training comes back from time to time, for progress and interrupts.
        self._window = max(1, round((self.recipe.stop or StopRule()).window / steps))
        self._cooling_start = self.plan.before(self.last, self.recipe.cooldown)

    @property
    def max_steps(self) -> int:
        """Steps in all buffers."""
        return self.plan.steps_before(self.last)

    def passes(self) -> int:
        """Return how many passes over the next buffer come before anything is to be decided."""
        if self.cooling is None and self.recipe.cooldown and self.position >= self._cooling_start:
            self.cooling = (self.position, self.last)
        if self.plan.n_buffers > 1:
            return 1
        end = self._cooling_start if self.recipe.cooldown else self.last
        end = end if self.cooling is None else self.cooling[1]
        to_window = self._window - self.position % self._window
        return min(to_window, end - self.position, MAX_PASSES)

    def cooldown_steps(self) -> tuple[float, float]:
        """Return the step at which the learning rate begins to fall, and over how many it does."""
        if self.cooling is None:
            return 1e30, 1.0  # never
        start, stop = map(self.plan.steps_before, self.cooling)
        return float(start), float(stop - start)

    def saw(self, losses: Sequence[float], *, finite: bool) -> Outcome | None:
        """Take in the losses of the last passes; return how the lane has ended, or None.

        Parameters
        ----------
        losses
            Mean loss of the batches of every pass, all finite.
        finite
            Whether the loss still is; if not, nothing was trained from there on.
        """
        several = self.plan.n_buffers > 1
        for loss in losses:
            self.epoch_total += loss * self.plan.steps_of(self.position) if several else loss
            self.position += 1
            if self.position % self.plan.n_buffers == 0:
                steps = self.plan.steps_per_epoch if several else 1
                self.losses.append(self.epoch_total / steps)
                self.epoch_total = 0.0
        if not finite:
            return Outcome.NONFINITE
        epoch, cooldown = len(self.losses), self.recipe.cooldown
        stop = self.recipe.stop
        if (
            stop is not None
            and self.cooling is None
            and self.position % self.plan.n_buffers == 0
            and epoch % self._window == 0
            # Losses with different KL weights cannot be compared.
            and epoch - self._window >= self._warm_epochs
        ):
            self.window_means.append(float(np.mean(self.losses[-self._window :])))
            self.converged = stop.is_converged(self.window_means)
            if self.converged and not cooldown:
                return Outcome.CONVERGED
            if self.converged:
                end = self.plan.after(self.position, cooldown)
                self.cooling = (self.position, min(self.last, end))
        if self.position < (self.last if self.cooling is None else self.cooling[1]):
            return None
        if stop is None:
            return Outcome.COMPLETED
        return Outcome.CONVERGED if self.converged else Outcome.MAX_STEPS

    def history(self, outcome: Outcome) -> np.ndarray:
        """Return the losses of all epochs, the last perhaps only begun; shape (epochs,)."""
        begun = self.position % self.plan.n_buffers
        if not begun or outcome is Outcome.NONFINITE:
            return np.asarray(self.losses)
        first = self.plan.steps_before(self.position - begun)
        steps = self.plan.steps_before(self.position) - first
        return np.asarray([*self.losses, self.epoch_total / steps])

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint needs: all that changes."""
        names = [field.name for field in dataclasses.fields(self)]
        changing = {name: getattr(self, name) for name in names if name not in ("recipe", "plan")}
        return {**changing, "losses": list(self.losses), "window_means": list(self.window_means)}

    def restore(self, state: dict[str, Any]) -> None:
        """Take up where a checkpoint left off."""
        for name, value in state.items():
            setattr(self, name, tuple(value) if name == "cooling" and value else value)
