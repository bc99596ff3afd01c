"""What every layer is: an analytic form and a sampling form of the same random function."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

import equinox as eqx
from jaxtyping import Array, Float, PRNGKeyArray

from varprop.moments.gaussian import Gaussian, JointGaussian

PlainLayer = Callable[[Float[Array, "*batch n"]], Float[Array, "*batch m"]]


class AbstractLayer(eqx.Module):
    """A random function of a vector, given twice (the twin rule).

    `moments` pushes mean and variance through in closed form; `sample` draws one plain
    deterministic function. `varprop.check(layer, x, key)` compares the two, for your own layers as
    well.
    """

    @abstractmethod
    def moments(self, x: Gaussian) -> Gaussian | JointGaussian:
        """Mean and variance of the output; x has shape (..., n)."""

    def moments_of_columns(self, x: Gaussian) -> Gaussian | JointGaussian:
        """Return the same for a batch with its rows as columns: (n, rows) to (outputs, rows).

        Networks run this way round, which is faster (see `Sequential`). This default turns the
        batch and calls `moments`; a layer that can do without turning overrides it. A covariance
        between outputs is given by rows either way.
        """
        out = self.moments(x.T)
        return out.T if isinstance(out, Gaussian) else out

    @abstractmethod
    def sample(self, key: PRNGKeyArray) -> PlainLayer:
        """Draw one deterministic function of arrays of shape (..., n)."""
