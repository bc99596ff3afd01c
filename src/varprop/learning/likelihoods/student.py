"""Student's t as noise: heavy tails, as a mixture of Gaussians of many sizes."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from varprop.learning.likelihoods.contract import (
    AbstractGaussianMixture,
    Component,
    Output,
    check_sizes,
)
from varprop.learning.likelihoods.gaussian import released
from varprop.moments.checks import as_float_array, check_positive
from varprop.moments.gaussian import JointGaussian
from varprop.moments.numerics import LOG_2PI
from varprop.nn.parameters import constant
from varprop.nn.registry import register

# Nodes; their distance, as a share of the width of what is integrated; where they begin.
_N_NODES, _STEP, _FIRST = 20, 1.8, 2.0
# Where learning starts, and least and most degrees of freedom. With 200 it is a Gaussian.
_START, _LEAST, _MOST = 5.0, 2.0, 200.0


@register("student-t")
class StudentT(AbstractGaussianMixture):
    """y = f + scale_d t, where t has nu degrees of freedom, both learned: noise with heavy tails.

    t is a Gaussian whose precision is drawn from a gamma distribution. The integral over the
    precision is a sum over 20 values spaced geometrically (the trapezoidal rule in its logarithm,
    spectrally accurate), what lies beyond the smallest counted with it:

        t_nu(z) ~ sum_k w_k N(z | 0, 1 / lambda_k),
        log lambda_k = 2 / sqrt(nu / 2) - 1.8 k / sqrt((nu + 3) / 2),

    so that the prediction is an ordinary mixture of Gaussians, and both objectives are of just
    what is predicted. Its log-density is within 0.01 of that of t for z up to 7,000 (nu = 3),
    3,500 (5), 500 (15), 200 (30) and 60 (200); farther out it falls like the widest Gaussian.

    Targets of a row share the draw: a row that is far off may be so in all of them. nu, of more
    than 2 and less than 200, is one number for all.

        ROPD   log sum_k w_k N(y | E f, V f + scale^2 / lambda_k)
        VI     log sum_k w_k exp(E log N(y | f, scale^2 / lambda_k))

    The latter is the bound of variational inference in which a row's precision is inferred too,
    apart from f: below E[log p(y | f)] by up to 0.26 nats, far out, where V f is scale^2, and 0.042
    where it is a tenth of that.

    Parameters
    ----------
    log_scale
        Shape (d,).
    shape
        Where nu lies between 2 and 200: the logarithm of the odds.
    floor
        Below which the scale cannot fall; as in `GaussianLikelihood`.

    Examples
    --------
    >>> from varprop import Gaussian
    >>> likelihood = StudentT.of(jnp.ones(1))
    >>> f, y = Gaussian(jnp.zeros((1, 1)), 0.1), jnp.array([[10.0]])
    >>> len(likelihood.predictive(f)), bool(likelihood.log_predictive(f, y)[0] > -13)
    (20, True)
    """

    log_scale: Float[Array, " d"]
    shape: Float[Array, ""]
    floor: Float[Array, "..."] | None = constant(default=None)
    wants_joint: ClassVar[bool] = False

    @classmethod
    def of(cls, std: Any, *, nu: float = _START) -> StudentT:
        """Return noise of these standard deviations, shape (d,), and degrees of freedom."""
        std = as_float_array(std, "std")
        check_positive(std, "std")
        if not _LEAST < nu < _MOST:
            raise ValueError(f"nu must lie between {_LEAST:g} and {_MOST:g}, but is {nu}.")
        odds = math.log((nu - _LEAST) / (_MOST - nu))
        scale = jnp.log(jnp.asarray(std)) - 0.5 * math.log(nu / (nu - 2))
        return cls(scale, jnp.asarray(odds, scale.dtype))

    @classmethod
    def start(
        cls, n_targets: int, *, noise_std: float = 0.5, y: np.ndarray | None = None
    ) -> StudentT:
        """Return the same noise for all targets, with five degrees of freedom."""
        return cls.of(np.full(n_targets, noise_std, jnp.result_type(float)))

    @property
    def n_targets(self) -> int:
        """Number of targets."""
        return self.log_scale.shape[0]

    @property
    def n_outputs(self) -> int:
        """One for each target: its mean."""
        return self.n_targets

    @property
    def nu(self) -> Float[Array, ""]:
        """Degrees of freedom."""
        return _LEAST + (_MOST - _LEAST) * jax.nn.sigmoid(jnp.asarray(self.shape))

    @property
    def noise_var(self) -> Float[Array, " d"]:
        """Variance of the noise of each target, of the mixture: always finite."""
        log_weights, variances = self._nodes()
        return jnp.exp(log_weights) @ variances

    def floored(self, floor: np.ndarray | None) -> StudentT:
        """Return the same noise, as far as it can be, above a floor or with none."""
        scale, floor = released(self.log_scale, self.floor, floor)
        kept = None if floor is None else jnp.asarray(floor)
        return dataclasses.replace(self, log_scale=jnp.log(jnp.asarray(scale)), floor=kept)

    def _nodes(self) -> tuple[Float[Array, " k"], Float[Array, "k d"]]:
        """Return log weights and variances of the Gaussians."""
        half = 0.5 * self.nu
        step = _STEP * jax.lax.rsqrt(half + 1.5)
        places = jnp.arange(_N_NODES, dtype=half.dtype)
        log = _FIRST * jax.lax.rsqrt(half) - step * places
        precision = jnp.exp(log)
        # Beyond the last the density of log precision falls by exp(-half step) from node to node.
        rest = jnp.where(places == _N_NODES - 1, -jnp.log(-jnp.expm1(-half * step)), 0.0)
        log_weights = jax.nn.log_softmax(half * (log - precision) + rest)
        square = jnp.exp(2 * jnp.asarray(self.log_scale))
        if self.floor is not None:
            square = square + self.floor**2
        return log_weights, square / precision[:, None]

    def expected_log_prob(self, f: Output, y: Float[Array, "*batch d"]) -> Float[Array, "*batch"]:
        """Return the bound on E[log p(y | f)] of the class's docstring."""
        check_sizes(self, f, y)
        log_weights, var = self._nodes()
        spread = (y - f.mean) ** 2 + f.variances()
        each = -0.5 * (jnp.log(var).sum(-1) + spread @ (1 / var).T) + log_weights
        return jax.nn.logsumexp(each, axis=-1) - 0.5 * LOG_2PI * self.n_targets

    def log_predictive(self, f: Output, y: Float[Array, "*batch d"]) -> Float[Array, "*batch"]:
        """Log-density of the mixture of `predictive`, joint over outputs if f is."""
        check_sizes(self, f, y)
        log_weights, var = self._nodes()
        if isinstance(f, JointGaussian):
            each = jax.vmap(lambda noise: Component(1.0, f, noise).total.log_prob(y))(var)
            return jax.nn.logsumexp(jnp.moveaxis(each, 0, -1) + log_weights, axis=-1)
        total = f.variances()[..., None, :] + var
        error = (y - f.mean)[..., None, :]
        each = -0.5 * jnp.sum(LOG_2PI + jnp.log(total) + error * error / total, axis=-1)
        return jax.nn.logsumexp(each + log_weights, axis=-1)

    def predictive(self, f: Output) -> tuple[Component, ...]:
        """Return one Gaussian for each precision."""
        log_weights, variances = self._nodes()
        weights = jnp.exp(log_weights)
        return tuple(Component(w, f, v) for w, v in zip(weights, variances, strict=True))
