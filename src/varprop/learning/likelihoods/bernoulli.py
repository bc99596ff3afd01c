"""Two classes: one output, and a link to the probability of the second."""

from __future__ import annotations

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.special import log_ndtr
from jaxtyping import Array, Float
from scipy.special import logit, ndtri

from varprop.learning.likelihoods.classes import (
    AbstractClasses,
    by_quadrature,
    by_trapezoid,
    checked_frequencies,
    entropy_of,
    in_float,
)
from varprop.learning.likelihoods.contract import Output, check_sizes
from varprop.moments.checks import as_float_array
from varprop.moments.logistic import (
    log_logistic_mean,
    logistic_mean,
    softplus_mean,
    surprise_mean,
)
from varprop.nn.registry import register

LINKS = ("logit", "probit")


@register()
class BernoulliLikelihood(AbstractClasses):
    """Two classes: P(y = 1 | f) = link(f + offset).

    With the probit link both directions are exact: P(y = 1) = Phi(m / sqrt(1 + v)) for f + offset
    ~ N(m, v). The logit link is taken as the mixture of five probits that differs from it by at
    most 9.2e-7, whose averages are in closed form: probabilities are off by as much, E log p by at
    most 3.3e-6, for any mean and variance. E log Phi is by quadrature with 16 nodes, off by less
    than 2e-4 (relative to its size, at least 1) for v <= 10.

    Parameters
    ----------
    offset
        Where the learned offset starts.
    link
        "logit" or "probit".

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from varprop.moments.gaussian import Gaussian
    >>> f = Gaussian(jnp.zeros((1, 1)), 3.0)
    >>> p = BernoulliLikelihood(1.0, link="probit").predictive(f)[0].probability
    >>> print(p.round(4))
    [[0.3085 0.6915]]
    """

    offset: Float[Array, ""]
    link: str = eqx.field(static=True)

    def __init__(self, offset: Any = 0.0, *, link: str = "logit"):
        if link not in LINKS:
            raise ValueError(f"link must be one of {', '.join(map(repr, LINKS))}, not {link!r}.")
        self.offset, self.link = jnp.asarray(as_float_array(offset, "offset")), link

    @classmethod
    def of_frequencies(cls, frequencies: Any, *, link: str = "logit") -> BernoulliLikelihood:
        """Return the start for two classes."""
        share = checked_frequencies(frequencies, 2)[1]
        return cls(in_float(ndtri(share) if link == "probit" else logit(share)), link=link)

    @property
    def n_classes(self) -> int:
        """Two."""
        return 2

    @property
    def n_outputs(self) -> int:
        """One."""
        return 1

    def log_predictive(self, f: Output, y: Float[Array, "*batch 1"]) -> Float[Array, "*batch"]:
        """Return log E[p(y | f)]."""
        mean, var = self._toward(f, y)
        if self._probit:
            return log_ndtr(mean * jax.lax.rsqrt(1 + var))
        return log_logistic_mean(mean, var)

    def expected_log_prob(self, f: Output, y: Float[Array, "*batch 1"]) -> Float[Array, "*batch"]:
        """Return E[log p(y | f)]."""
        mean, var = self._toward(f, y)
        if self._probit:
            return by_quadrature(log_ndtr, mean, var)
        return -softplus_mean(-mean, var)

    def probability(self, f: Output) -> Float[Array, "*batch 2"]:
        """Return both probabilities."""
        both, var = self._both(f)
        if self._probit:
            return 0.5 * jax.lax.erfc(both * (-math.sqrt(0.5) * jax.lax.rsqrt(1 + var)))
        return logistic_mean(both, var)

    def aleatoric(self, f: Output) -> Float[Array, "*batch"]:
        """Return the mean entropy."""
        both, var = self._both(f)
        if not self._probit:
            return jnp.sum(surprise_mean(-both, var), axis=-1)
        signs = jnp.array([-1.0, 1.0], both.dtype)
        return by_trapezoid(
            lambda a: entropy_of(log_ndtr(a[..., None] * signs)), both[..., 1], var[..., 1]
        )

    def _both(self, f: Output) -> tuple[Array, Array]:
        """Return moments of what speaks for either class, shape (..., 2)."""
        mean = f.mean + self.offset
        both = jnp.concatenate([-mean, mean], axis=-1)
        return both, jnp.broadcast_to(f.variances(), both.shape)

    @property
    def _probit(self) -> bool:
        if self.link not in LINKS:  # as a file may have it
            raise ValueError(f"the link {self.link!r} is unknown.")
        return self.link == "probit"

    def _toward(self, f: Output, y: Array) -> tuple[Array, Array]:
        """Return moments of the output, with the sign that makes the observed class the upper."""
        check_sizes(self, f, y)
        sign = 2 * y[..., 0] - 1
        return sign * (f.mean[..., 0] + self.offset), f.variances()[..., 0]
