"""What a model file keeps of how well its promises held when it was fitted."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

from varprop.data.sketch import Sketch

#: Of intervals that are looked at.
LEVELS = (0.5, 0.9, 0.99)
#: What is counted of rows, and the share of them it is said to be; None if each row has its own.
COUNTED: dict[str, float | None] = {f"{100 * level:g} %": level for level in LEVELS}
COUNTED |= {"below": 0.5, "right": None}


@dataclasses.dataclass(frozen=True)
class Past:
    """How well promises held when a model was fitted, on rows it had not seen.

    Attributes
    ----------
    n
        Rows.
    mean_loss, std_loss, losses
        Of their negative log densities.
    pits
        Sketches of the PIT of each target.
    counts
        In how many rows something was true, by the names of `COUNTED`, for each target.
    """

    n: int
    mean_loss: float
    std_loss: float
    losses: Sketch
    pits: tuple[Sketch, ...]
    counts: Mapping[str, tuple[int, ...]]

    def is_sound(self, n_targets: int) -> bool:
        """Whether it can be one, of so many targets: a file may say anything."""
        sketches = (self.losses, *self.pits)
        numbers = (self.mean_loss, self.std_loss)
        counts = [count for each in self.counts.values() for count in each]
        sizes = {len(each) for each in self.counts.values()}
        return (
            type(self.n) is int
            and all(type(v) is float and math.isfinite(v) for v in numbers)
            and self.std_loss >= 0
            and all(sketch.is_sound and sketch.n == self.n for sketch in sketches)
            and len(self.pits) in (0, n_targets)
            and sizes <= {n_targets}
            and set(self.counts) <= set(COUNTED)
            and all(type(count) is int and 0 <= count <= self.n for count in counts)
        )
