"""What rows have in common: the correlation between rows of what a model is unsure of."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar, final

import numpy as np
import numpy.typing as npt

from varprop.predictive.mixtures import Array

Indices = npt.NDArray[np.intp]
K = TypeVar("K", bound="AbstractRowKernel")
_OBSERVED = (
    "What rows have in common, and where their variance comes from, is not known once outputs were "
    "observed, by `conditional`: ask before."
)
#: Rows of a block; blocks bound the memory, whatever the number of rows.
BLOCK = 256


def blocks(n: int) -> list[slice]:
    """Return n rows as blocks.

    Examples
    --------
    >>> blocks(300)
    [slice(0, 256, None), slice(256, 300, None)]
    """
    return [slice(start, min(start + BLOCK, n)) for start in range(0, n, BLOCK)]


class Shares(NamedTuple):
    """Where the variance of a model part comes from, as shares that sum to 1, or all 0.

    Attributes
    ----------
    inputs
        From the error of each input, shape (features, n, d).
    layers
        From what is drawn in the model, by name, each of shape (n, d).
    """

    inputs: Array
    layers: dict[str, Array]


@dataclass(frozen=True, eq=False)
class AbstractRowKernel(ABC):
    """The rows one model was applied to; authors give `correlate` and `shares`.

    Attributes
    ----------
    x
        Inputs, shape (n, features).
    x_var
        Variances of their errors, (n, features), or covariances, (n, features, features), or None;
        errors are independent from row to row.
    outputs
        Which outputs, shape (d,); None for all.
    """

    x: Array
    x_var: Array | None
    outputs: Indices | None

    @abstractmethod
    def correlate(self, rows: slice, others: slice) -> Array:
        """Return the correlation of the model part between rows, shape (outputs, a, b).

        At most `BLOCK` rows are asked for at a time.
        """

    @abstractmethod
    def shares(self) -> Shares:
        """Return where the model part's variance comes from, for all outputs."""

    def chosen_shares(self) -> Shares:
        """Return `shares` for the outputs that were chosen."""
        found = self.shares()
        if self.outputs is None:
            return found
        layers = {name: part[:, self.outputs] for name, part in found.layers.items()}
        return Shares(found.inputs[..., self.outputs], layers)

    def correlation(self, rows: slice, others: slice) -> Array:
        """Return `correlate` for the outputs that were chosen; a row with itself has 1."""
        found = self.correlate(rows, others)
        found = found if self.outputs is None else found[self.outputs]
        i, j = (np.arange(part.start, part.stop) for part in (rows, others))
        return np.where(i[:, None] == j, 1.0, found)

    def take(self: K, rows: Indices | slice) -> K:
        """Return the kernel of some of the rows."""
        x_var = None if self.x_var is None else self.x_var[rows]
        return replace(self, x=self.x[rows], x_var=x_var)

    def marginal(self: K, outputs: Indices) -> K:
        """Return the kernel of some outputs."""
        known = self.outputs
        return replace(self, outputs=outputs if known is None else known[outputs])


@final
@dataclass(frozen=True, eq=False)
class UnknownKernel(AbstractRowKernel):
    """Of rows whose covariance is not known any more; `why` is the sentence that says so."""

    why: str = _OBSERVED

    def correlate(self, rows: slice, others: slice) -> Array:
        """Refuse."""
        raise ValueError(self.why)

    def shares(self) -> Shares:
        """Refuse."""
        raise ValueError(self.why)
