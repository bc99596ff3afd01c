"""Which rows come when: buffers counted through all epochs, and the steps before each of them."""

from __future__ import annotations

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True)
class Plan:
    """Epochs of buffers. A buffer is known by its number, counted from 0 through all epochs.

    All buffers of an epoch are full but the last, and a full one is a whole number of batches. So
    an epoch has as many steps as it has in memory, and only its very last batch may be partial.

    Attributes
    ----------
    block_rows
        Rows of every block of the source.
    batch_size
        Rows per step.
    buffer_rows
        Rows per buffer, a multiple of the batch size.
    seed
        Of the order of blocks.

    Examples
    --------
    >>> plan = Plan((40, 40, 25), batch_size=10, buffer_rows=50, seed=(0,))
    >>> plan.n_buffers, plan.steps_per_epoch, [plan.rows_of(g) for g in range(4)]
    (3, 11, [50, 50, 5, 50])
    >>> [plan.steps_before(g) for g in range(5)]
    [0, 5, 10, 11, 16]
    """

    block_rows: tuple[int, ...]
    batch_size: int
    buffer_rows: int
    seed: tuple[int, ...]

    @property
    def n_rows(self) -> int:
        """Rows per epoch."""
        return sum(self.block_rows)

    @property
    def n_buffers(self) -> int:
        """Buffers per epoch."""
        return -(-self.n_rows // self.buffer_rows)

    @property
    def steps_per_epoch(self) -> int:
        """Steps per epoch."""
        return -(-self.n_rows // self.batch_size)

    def rows_of(self, number: int) -> int:
        """Return the rows in a buffer."""
        return min(self.buffer_rows, self.n_rows - number % self.n_buffers * self.buffer_rows)

    def steps_of(self, number: int) -> int:
        """Return the steps in a buffer."""
        return -(-self.rows_of(number) // self.batch_size)

    def steps_before(self, number: int) -> int:
        """Return the steps in all buffers before this one."""
        epoch, place = divmod(number, self.n_buffers)
        return epoch * self.steps_per_epoch + place * (self.buffer_rows // self.batch_size)

    def after(self, number: int, steps: int) -> int:
        """Return the first buffer that has at least so many steps between it and another one.

        Examples
        --------
        >>> plan = Plan((40, 40, 25), batch_size=10, buffer_rows=50, seed=(0,))
        >>> [plan.after(0, steps) for steps in (0, 1, 5, 6, 11, 12)]
        [0, 1, 1, 2, 3, 4]
        """
        epoch, rest = divmod(self.steps_before(number) + steps, self.steps_per_epoch)
        return epoch * self.n_buffers - (-rest // (self.buffer_rows // self.batch_size))

    def before(self, number: int, steps: int) -> int:
        """Return the last buffer that has at least so many steps between it and another one.

        Examples
        --------
        >>> plan = Plan((40, 40, 25), batch_size=10, buffer_rows=50, seed=(0,))
        >>> [plan.before(3, steps) for steps in (0, 1, 2, 6, 7, 11, 12)]
        [3, 2, 1, 1, 0, 0, 0]
        """
        epoch, rest = divmod(max(0, self.steps_before(number) - steps), self.steps_per_epoch)
        return epoch * self.n_buffers + rest // (self.buffer_rows // self.batch_size)

    def order(self, epoch: int) -> np.ndarray:
        """Return the blocks in the order of an epoch; where all fit one buffer, as they are."""
        n_blocks = len(self.block_rows)
        if self.n_buffers == 1:
            return np.arange(n_blocks)
        return np.random.default_rng([*self.seed, epoch]).permutation(n_blocks)
