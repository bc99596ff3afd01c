"""Activations whose moments are known in closed form or by a good approximation.

`moments(Gaussian) -> Gaussian` integrates over each component on its own; a plain call applies the
function to an array. For any other scalar function see `varprop.nn.integrators`.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from varprop.moments.checks import as_float_array
from varprop.moments.constants import (
    INV_SQRT_2PI,
    LOGISTIC_NODES,
    LOGISTIC_P,
    LOGISTIC_S,
    hermite_nodes,
)
from varprop.moments.gaussian import Gaussian
from varprop.moments.numerics import (
    erf_moments,
    rectifier_line,
    rectifier_moments,
    square_root,
    step_probability,
)
from varprop.moments.pairs import (
    quadrature_coefficients,
    rectifier_coefficients,
    series_covariance,
    step_coefficients,
)
from varprop.nn.contract import AbstractElementwise, Partials
from varprop.nn.parameters import constant
from varprop.nn.registry import register


class AbstractActivation(AbstractElementwise):
    """A scalar function of each component. Authors give `__call__` and `uncertain_moments`.

    The same function for all components, whichever axis they lie along: inside a network a batch
    may come as (units, rows), so parameters must be scalars.
    """

    @abstractmethod
    def __call__(self, x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        """Apply the function to an array."""

    @abstractmethod
    def uncertain_moments(
        self, mean: Float[Array, "*shape"], var: Float[Array, "*shape"]
    ) -> tuple[Float[Array, "*shape"], Float[Array, "*shape"]]:
        """Mean and variance of f(a) for a ~ N(mean, var), elementwise."""

    def moments(self, x: Gaussian) -> Gaussian:
        """Mean and variance of every component; exactly known inputs stay exactly known."""
        if x.var is None:
            return Gaussian(self(x.mean))
        return Gaussian(*self.uncertain_moments(x.mean, x.var))

    def moments_of_columns(self, x: Gaussian) -> Gaussian:
        """Return the same: entry by entry, either way round will do."""
        return self.moments(x)

    def coefficients(self, a: Gaussian) -> tuple[list[Float[Array, "..."]], Float[Array, "..."]]:
        """Return the first coefficients of f in Hermite polynomials, and its variance.

        They are E[f^(k)(a)] std^k / sqrt(k!), here by quadrature; the first, whose square is what a
        line carries, from the line itself.
        """
        out, slope, *_ = self.partials(a)
        first = square_root(a.variances()) * slope
        others = quadrature_coefficients(self, a)[1:]
        # Their squares sum to at most the variance; where both are approximate they may not.
        found, left = sum(term * term for term in others), out.variances() - first * first
        shrink = square_root(jnp.clip(left / jnp.where(found > 0, found, 1.0), 0, 1))
        return [first, *(shrink * term for term in others)], out.variances()

    def covariance(self, a, b, cov, *, same):
        """Return Cov[f(a), f(b)] by the series in their correlation (`varprop.moments.pairs`)."""
        return series_covariance(self.coefficients, a, b, cov)

    def sample(self, key: PRNGKeyArray) -> AbstractActivation:
        """Return the function itself: there is nothing random in it."""
        return self


@register("identity")
class Identity(AbstractActivation):
    """f(a) = a.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> Identity().moments(Gaussian(jnp.ones(1), 2.0)).var.tolist()
    [2.0]
    """

    def __call__(self, x):
        """Return x."""
        return x

    def uncertain_moments(self, mean, var):
        """Return the moments unchanged."""
        return mean, var


@register("relu")
class ReLU(AbstractActivation):
    """The rectifier max(a, 0), in closed form with exact derivatives.

    In float32 the variance's relative error stays below 1e-4 from mean/std = -30 to 1e4 and for any
    variance up to 1e12, wherever the true value is a normal float32. See
    `varprop.moments.numerics.rectifier_moments`.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> out = ReLU().moments(Gaussian(jnp.zeros(1), 1.0))
    >>> print(f"{out.mean[0]:.4f} {out.var[0]:.4f}")
    0.3989 0.3408
    """

    def __call__(self, x):
        """Return max(x, 0)."""
        return jax.nn.relu(x)

    def uncertain_moments(self, mean, var):
        """Return the rectified Gaussian's moments."""
        return rectifier_moments(mean, var)

    def partials(self, x):
        """Return all from one evaluation of the tail."""
        mean, var, slope, bend = rectifier_line(x.mean, x.variances())
        tilt, gain = 2 * mean * (1 - slope), slope - 2 * mean * bend
        return Partials(Gaussian(mean, var), slope, bend, tilt, gain)

    def coefficients(self, a):
        """Return them in closed form."""
        return rectifier_coefficients(a)


@register("leaky_relu")
class LeakyReLU(AbstractActivation):
    """a for a > 0, slope * a otherwise, in closed form.

    Parameters
    ----------
    negative_slope
        Any real number; 0.01 by default, -1 gives the absolute value.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> LeakyReLU(1.0).moments(Gaussian(jnp.zeros(1), 1.0)).var.tolist()
    [1.0]
    """

    negative_slope: Float[Array, ""] = constant()

    def __init__(self, negative_slope: Any = 0.01):
        self.negative_slope = as_float_array(negative_slope, "negative_slope")

    def __call__(self, x):
        """Return x where positive and slope * x elsewhere."""
        return jnp.where(x > 0, x, self.negative_slope.astype(x.dtype) * x)

    def uncertain_moments(self, mean, var):
        """Combine the two rectified halves, of which one is always 0."""
        slope = self.negative_slope.astype(mean.dtype)
        up, up_var = rectifier_moments(mean, var)
        down, down_var = rectifier_moments(-mean, var)
        # f = max(a, 0) - slope max(-a, 0); the halves' product is 0, hence their covariance.
        cross = 2 * slope * up * down
        # For negative slopes the cross term is negative: rounding may go below 0 by an ulp.
        return up - slope * down, jnp.maximum(up_var + slope**2 * down_var + cross, 0)

    def coefficients(self, a):
        """Return them in closed form: f(a) = (1 - slope) max(a, 0) + slope a."""
        slope = self.negative_slope.astype(a.dtype)
        (first, *others), _ = rectifier_coefficients(a)
        first = (1 - slope) * first + slope * square_root(a.variances())
        var = self.uncertain_moments(a.mean, a.variances())[1]
        return [first, *((1 - slope) * term for term in others)], var


@register()
class Heaviside(AbstractActivation):
    """The step function, 1 for a > 0 and 0 otherwise, in closed form.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> Heaviside().moments(Gaussian(jnp.zeros(1), 1.0)).mean.tolist()
    [0.5]
    """

    def __call__(self, x):
        """Return 1 where x is positive and 0 elsewhere."""
        return (x > 0).astype(x.dtype)

    def uncertain_moments(self, mean, var):
        """Return the moments of a Bernoulli variable."""
        above, below = step_probability(mean, var)
        return above, above * below

    def coefficients(self, a):
        """Return them in closed form."""
        return step_coefficients(a)


@register("erf")
class Erf(AbstractActivation):
    """The error function erf(a), in closed form (the variance through Owen's T).

    Over means in [-50, 50] and standard deviations in [0, 100] the absolute error of mean and
    variance is at most 4e-7 in float32 and 2e-15 in float64.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> out = Erf().moments(Gaussian(jnp.zeros(1), 0.5))
    >>> print(f"{out.var[0]:.4f}")  # erf(a) is uniform on (-1, 1) here
    0.3333
    """

    def __call__(self, x):
        """Return erf(x)."""
        return jax.lax.erf(x)

    def uncertain_moments(self, mean, var):
        """Return the moments of erf(a)."""
        return erf_moments(mean, var)


def _logistic_moments(mean, var):
    """Mean and variance of the logistic sigmoid.

    For var < 1 by Gauss-Hermite quadrature, which is accurate there and gives variances that are
    non-negative sums of squares; above by the mixture of normal distribution functions, whose
    Gaussian mean is in closed form, and E[s^2] = E[s] - E[s'].
    """
    small = var < 1
    std = square_root(jnp.where(small, var, 0.0))
    z, w = hermite_nodes(LOGISTIC_NODES)
    plain = jax.nn.sigmoid(mean)
    # Differences from the plain value make a variance of 0 give exactly the plain function.
    changes = [jax.nn.sigmoid(mean + float(node) * std) - plain for node in z]
    change = sum(float(weight) * part for weight, part in zip(w, changes, strict=True))
    mean_small = plain + change
    var_small = sum(
        float(weight) * (part - change) ** 2 for weight, part in zip(w, changes, strict=True)
    )
    wide = jnp.where(small, 1.0, var)
    mean_wide, slope = jnp.zeros_like(mean), jnp.zeros_like(mean)
    for p, s in zip(LOGISTIC_P, LOGISTIC_S, strict=True):
        shrink = s * jax.lax.rsqrt(1 + s**2 * wide)
        r = mean * shrink
        mean_wide = mean_wide + p * 0.5 * (1 + jax.lax.erf(r / math.sqrt(2)))
        slope = slope + p * shrink * INV_SQRT_2PI * jnp.exp(-0.5 * r * r)
    var_wide = jnp.maximum(mean_wide * (1 - mean_wide) - slope, 0)
    return jnp.where(small, mean_small, mean_wide), jnp.where(small, var_small, var_wide)


@register("logistic")
class Sigmoid(AbstractActivation):
    """The logistic sigmoid 1 / (1 + exp(-a)), by an approximation.

    Over means in [-50, 50] and standard deviations in [0, 100] the mean is off by at most 8e-7 and
    the variance by at most 7e-7 (absolute, in float32 and float64). Exact at var = 0, where the
    gradient with respect to the variance is given as 0. The better known probit approximation of
    the mean, sigmoid(m / sqrt(1 + pi v / 8)), is off by 0.018.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> out = Sigmoid().moments(Gaussian(jnp.array([1.0]), 4.0))
    >>> print(f"{out.mean[0]:.4f} {out.var[0]:.4f}")
    0.6477 0.0877
    """

    def __call__(self, x):
        """Return 1 / (1 + exp(-x))."""
        return jax.nn.sigmoid(x)

    def uncertain_moments(self, mean, var):
        """Return the approximate moments."""
        return _logistic_moments(mean, var)


@register("tanh")
class Tanh(AbstractActivation):
    """The hyperbolic tangent, as 2 sigmoid(2 a) - 1.

    Over means in [-25, 25] and standard deviations in [0, 50] the mean is off by at most 1.6e-6 and
    the variance by at most 2.6e-6 (absolute, in float32 and float64). Exact at var = 0, where the
    gradient with respect to the variance is given as 0.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> out = Tanh().moments(Gaussian(jnp.array([0.5]), 1.0))
    >>> print(f"{out.mean[0]:.4f} {out.var[0]:.4f}")
    0.2955 0.3507
    """

    def __call__(self, x):
        """Return tanh(x)."""
        return jnp.tanh(x)

    def uncertain_moments(self, mean, var):
        """Scale the sigmoid's moments."""
        half, quarter_var = _logistic_moments(2 * mean, 4 * var)
        # 2 p - 1 loses nothing near 0 in absolute terms, which is what the bound above states.
        return 2 * half - 1, 4 * quarter_var
