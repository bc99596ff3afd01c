"""What predictions share that are made of others: moments in two parts, from few numbers."""

from __future__ import annotations

import functools
from abc import abstractmethod

import numpy as np

from varprop.predictive.contract import AbstractNumeric
from varprop.predictive.mixtures import Array, quiet
from varprop.predictive.warps import Moments


class AbstractComposed(AbstractNumeric):
    """A prediction whose moments come from `_moments`."""

    @abstractmethod
    def _moments(self) -> Moments:
        """Return mean, model and noise variance, shape (n, d).

        Where the parts are not told apart, their sum is the total all the same.
        """

    @functools.cached_property
    def _found(self) -> Moments:
        """What `_moments` found, once."""
        return self._moments()

    @property
    def mean(self) -> Array:
        """Mean, in the public shape."""
        return self._public(self._found[0])

    @property
    def var(self) -> Array:
        """Total variance, in the public shape."""
        _, model, noise = self._found
        return self._public(model + noise)

    @property
    def std(self) -> Array:
        """Total standard deviation, in the public shape."""
        return np.sqrt(self.var)

    @property
    def model_var(self) -> Array:
        """Variance of what the model is unsure of: of the target's mean given the weights."""
        return self._public(self._identified(self._found[1]))

    @property
    def noise_var(self) -> Array:
        """Variance of the noise: of the target given the weights, on the average."""
        return self._public(self._identified(self._found[2]))

    @property
    def model_std(self) -> Array:
        """Root of `model_var`."""
        return np.sqrt(self.model_var)

    @property
    def noise_std(self) -> Array:
        """Root of `noise_var`."""
        return np.sqrt(self.noise_var)

    def __repr__(self) -> str:
        """Return sizes, not values."""
        sizes = f"n_rows={self.n_rows}, n_outputs={self.n_outputs}"
        return f"{type(self).__name__}({sizes})"


def total_moments(weights: Array, parts: Moments) -> Moments:
    """Return the moments of a mixture: the distance of its members' means is the model's.

    Parameters
    ----------
    weights
        Shape (K, n) or (K, 1), sum to 1.
    parts
        Mean, model and noise variance, each (K, n, d).
    """
    weights = weights[..., None]
    mean, model, noise = parts
    if len(mean) == 1:
        return mean[0], model[0], noise[0]
    with quiet():
        # Averaging differences keeps a mixture of equal means exactly equal to them. A member
        # that weighs nothing has no say, whatever its moments.
        base = np.where(np.isfinite(mean[0]), mean[0], 0.0)
        middle = base + _average(weights, mean - base)
        apart = _average(weights, (mean - middle) ** 2)
        apart = np.where(np.isfinite(middle), apart, np.inf)
        return middle, _average(weights, model) + apart, _average(weights, noise)


def _average(weights: Array, values: Array) -> Array:
    average: Array = np.where(weights > 0, weights * values, 0.0).sum(axis=0)
    return average
