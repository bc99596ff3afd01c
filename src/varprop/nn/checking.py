"""Whether a layer's analytic form agrees with its sampling form: `check`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, PRNGKeyArray
from scipy.special import ndtri

from varprop.moments.gaussian import Gaussian, JointGaussian, as_gaussian
from varprop.nn.contract import AbstractLayer
from varprop.nn.layers import Sequential
from varprop.nn.propagation import PROPAGATIONS

_MOST_UNITS = 256


@dataclasses.dataclass(frozen=True)
class CheckReport:
    """What `check` found.

    Attributes
    ----------
    n_samples
        How many plain networks were drawn.
    mean_z, var_z
        Distance of the propagated from the sampled value in standard errors, shape of the output.
    cov_z
        The same for the covariances between outputs, shape (..., d, d), or None.
    threshold
        The largest ``|z|`` that sampling error alone exceeds with probability `false_alarm` in the
        whole check (Bonferroni-corrected over all compared numbers).
    false_alarm
        That probability.
    std_ratio
        Propagated over sampled standard deviation, shape of the output.
    other_ratios
        The same for other ways of propagating than the network's own, by name. Where second order
        is right and the network's is not, it is what units share; where it is not either, it is the
        shape of the units' distributions.
    """

    n_samples: int
    mean_z: np.ndarray
    var_z: np.ndarray
    cov_z: np.ndarray | None
    threshold: float
    false_alarm: float
    std_ratio: np.ndarray
    other_ratios: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)

    @property
    def worst(self) -> float:
        """The largest ``|z|`` of all."""
        parts = [self.mean_z, self.var_z] + ([] if self.cov_z is None else [self.cov_z])
        # np.max, not max: a NaN must come out as NaN, which is no agreement.
        return float(np.max([np.abs(part).max(initial=0.0) for part in parts]))

    @property
    def passed(self) -> bool:
        """Whether the two forms agree up to sampling error."""
        return self.worst <= self.threshold

    def __str__(self) -> str:
        """Render a few lines to read."""
        rows = [("mean", self.mean_z), ("variance", self.var_z), ("covariance", self.cov_z)]
        lines = [
            f"{'agrees' if self.passed else 'DISAGREES'} with {self.n_samples:,} sampled networks "
            f"(|z| up to {self.threshold:.2f} is sampling error, false-alarm rate "
            f"{self.false_alarm:g})"
        ]
        for name, z in rows:
            if z is not None:
                lines.append(f"  {name:<10} worst |z| {np.abs(z).max(initial=0.0):8.2f}")
        ratios = {"propagated / sampled standard deviation": self.std_ratio}
        ratios |= {f"... {name}": ratio for name, ratio in self.other_ratios.items()}
        for name, ratio in ratios.items():
            low, high = ratio.min(initial=np.inf), ratio.max(initial=-np.inf)
            lines.append(f"  {name:<39} {low:.4f} to {high:.4f}")
        return "\n".join(lines)


def sample_outputs(
    layer: AbstractLayer, x: Any, key: PRNGKeyArray, n_samples: int, *, batch_size: int = 1000
) -> Float[np.ndarray, "n ..."]:
    """Return outputs of `n_samples` independently drawn plain networks, each with its own x.

    Parameters
    ----------
    layer
        Any layer or network.
    x
        Gaussian or array of shape (..., n_inputs).
    key
        Random key.
    n_samples
        Number of draws.
    batch_size
        Draws made at a time, which bounds the memory.

    Returns
    -------
    numpy array of shape (n_samples, ..., n_outputs), float64
    """
    keys = jax.random.split(key, n_samples)
    return np.asarray(_run(layer, as_gaussian(x), keys, batch_size), np.float64)


@eqx.filter_jit  # at module level, so that a second check of the same structure compiles nothing
def _run(layer, x, keys, batch_size):
    def one(key):
        if x.var is None:
            return layer.sample(key)(x.mean)
        layer_key, input_key = jax.random.split(key)
        return layer.sample(layer_key)(x.sample(input_key))

    return jax.lax.map(one, keys, batch_size=batch_size)


def check(
    layer: AbstractLayer,
    x: Any,
    key: PRNGKeyArray,
    *,
    n_samples: int = 100_000,
    false_alarm: float = 1e-6,
    mean_slack: float | np.ndarray = 0.0,
    var_slack: float | np.ndarray = 0.0,
) -> CheckReport:
    """Compare a layer's or network's propagated moments with sampled plain networks.

    Parameters
    ----------
    layer
        Anything with `moments(Gaussian)` and `sample(key)`, your own layers included.
    x
        Inputs: a Gaussian or an array of shape (..., n_inputs). An uncertain input is sampled too.
    key
        Random key.
    n_samples
        Number of networks to draw; the standard error of a mean is std / sqrt(n_samples).
    false_alarm
        Probability that a correct layer fails the check.
    mean_slack, var_slack
        Known absolute error of an approximation, forgiven before the comparison; 0 for exact rules.
        Arrays broadcast against the outputs.

    Returns
    -------
    CheckReport
        Its `passed` says whether the two agree; print it for a summary.

    Notes
    -----
    Draws cannot judge a variance that comes from events rarer than about 100 / n_samples, such as
    that of a rectifier five standard deviations below zero: no draw may see them, and the
    ``|z|`` of the variance is then infinite. Give `var_slack` the size below which a variance does
    not matter.

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> from varprop.nn import mlp
    >>> net = mlp(3, 1, key=jax.random.key(0))
    >>> check(net, jnp.ones((2, 3)), jax.random.key(1), n_samples=2000).passed
    True
    """
    if n_samples < 100:
        raise ValueError(f"n_samples must be at least 100, but is {n_samples}.")
    x = as_gaussian(x)
    out = layer.moments(x)
    joint = isinstance(out, JointGaussian)
    marginals: Gaussian = out.marginals() if isinstance(out, JointGaussian) else out
    mean = np.asarray(marginals.mean, np.float64)
    var = np.asarray(marginals.variances(), np.float64)

    draws = sample_outputs(layer, x, key, n_samples)
    centre = draws.mean(axis=0)
    deviations = draws - centre
    squares = deviations**2
    sampled_var = squares.mean(axis=0) * n_samples / (n_samples - 1)
    # Rounding of the draws themselves: what a comparison cannot see below.
    rounding = 8 * np.finfo(jnp.dtype(marginals.dtype)).eps
    resolution = rounding * (np.abs(centre) + np.sqrt(sampled_var))

    # The larger variance: where no draw saw a rare event, the sampled one would claim certainty.
    mean_error = np.sqrt(np.maximum(sampled_var, var) / n_samples)
    mean_z = _z(mean - centre, mean_error, mean_slack + resolution)
    var_error = squares.std(axis=0) / np.sqrt(n_samples)
    var_resolution = resolution * (2 * np.sqrt(sampled_var) + resolution)
    var_z = _z(var - sampled_var, var_error, var_slack + var_resolution)

    cov_z, n_compared = None, mean_z.size + var_z.size
    if joint:
        assert isinstance(out, JointGaussian)
        cov = np.asarray(out.dense_cov(), np.float64)
        cov_z = np.zeros(cov.shape)
        d = cov.shape[-1]
        spread = np.sqrt(np.broadcast_to(var_slack, var.shape))
        for i in range(d):
            for j in range(i):
                product = deviations[..., i] * deviations[..., j]
                error = product.std(axis=0) / np.sqrt(n_samples)
                forgiven = spread[..., i] * spread[..., j]
                forgiven += np.sqrt(var_resolution[..., i] * var_resolution[..., j])
                cov_z[..., i, j] = _z(
                    cov[..., i, j] - product.sum(axis=0) / (n_samples - 1), error, forgiven
                )
        cov_z += np.swapaxes(cov_z, -1, -2)
        n_compared += cov_z.size // 2

    def ratio(var: np.ndarray) -> np.ndarray:
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(sampled_var == var, 1.0, np.sqrt(var / sampled_var))

    return CheckReport(
        n_samples=n_samples,
        mean_z=mean_z,
        var_z=var_z,
        cov_z=cov_z,
        threshold=float(-ndtri(false_alarm / (2 * max(n_compared, 1)))),
        false_alarm=false_alarm,
        std_ratio=ratio(var),
        other_ratios={name: ratio(other) for name, other in _otherwise(layer, x)},
    )


def _otherwise(layer: AbstractLayer, x: Gaussian) -> Iterator[tuple[str, np.ndarray]]:
    """Yield variances by the ways of propagating that are not the network's own."""
    if not isinstance(layer, Sequential) or len(layer.layers) < 2:
        return
    units = max(max(np.shape(leaf), default=0) for leaf in jax.tree.leaves(layer))
    for name in PROPAGATIONS:
        # Second order is for small networks: it holds the square of the units for every row.
        if name != layer.propagation and (name != "second-order" or units <= _MOST_UNITS):
            out: Any = _moments(Sequential(layer.layers, name), x)
            yield name, np.asarray(out.variances(), np.float64)


@eqx.filter_jit
def _moments(layer, x):
    return layer.moments(x)


def _z(difference: np.ndarray, error: np.ndarray, slack: Any) -> np.ndarray:
    excess = np.sign(difference) * np.maximum(np.abs(difference) - slack, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(excess == 0, 0.0, excess / error)
