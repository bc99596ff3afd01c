"""What is observed, given the network's output: a likelihood goes with a model to the end.

It says how many outputs of the network it needs for its targets, which columns of y it looks at and
which of them are standardized, where its noise starts and what it cannot fall below, and what
distribution comes out. The two objectives of the paper differ in one call: VI takes
`expected_log_prob`, ROPD `log_predictive`.

One of your own has `AbstractPointwise` do the integrals, from log p(y | f) alone; see
docs/how-to/your-own.md.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from varprop.data.statistics import Scaling
from varprop.learning.likelihoods.given import NUMBERS, Given
from varprop.moments.gaussian import Gaussian, JointGaussian
from varprop.moments.numerics import hermite_nodes, square_root
from varprop.predictive.contract import AbstractPredictive
from varprop.predictive.distribution import Predictive
from varprop.predictive.kernels import AbstractRowKernel
from varprop.predictive.simple import constant_gaussian, in_units

Output = Gaussian | JointGaussian


class Component(NamedTuple):
    """One Gaussian of a target's predictive distribution, in its two parts.

    Attributes
    ----------
    weight
        Of the component; those of a distribution sum to 1.
    model
        The target without noise, shape (..., d): what the model is unsure of.
    noise_var
        Variance of the noise, shape (..., d) or (d,).
    """

    weight: Any
    model: Output
    noise_var: Float[Array, "..."]

    @property
    def total(self) -> Output:
        """Both parts together."""
        return self.model + Gaussian(jnp.zeros_like(self.noise_var), self.noise_var)


class AbstractLikelihood(eqx.Module):
    """The distribution of d targets given the network's (uncertain) output.

    A row of training data has d targets and, block by block, as many columns more as there are
    things to be known of each: a count's exposure, what is censored.
    """

    #: For every block of d columns of y, whether it has the targets' shift and scale, or is raw.
    column_scaling: eqx.AbstractClassVar[tuple[bool, ...]]
    #: Whether it wants the covariance between the network's outputs.
    wants_joint: eqx.AbstractClassVar[bool]
    #: What users hand over for their targets.
    given: ClassVar[Given] = NUMBERS
    #: Whether columns in the targets' units are trained on as logarithms.
    logged: ClassVar[bool] = False

    @classmethod
    @abstractmethod
    def start(
        cls, n_targets: int, *, noise_std: float = 0.5, y: np.ndarray | None = None
    ) -> AbstractLikelihood:
        """Return where learning starts.

        Parameters
        ----------
        n_targets
            Number of targets d.
        noise_std
            Of the noise, in units of the targets' own spread.
        y
            Targets to start from, as training sees them: shape (rows, columns).
        """

    @classmethod
    def worth_trying(cls, y: np.ndarray, weight: np.ndarray | None) -> bool:
        """Return whether targets look as if it could suit them better than plain noise.

        A stack does not train networks of which this says no.

        Parameters
        ----------
        y
            Targets as training sees them, shape (rows, columns).
        weight
            Shape (rows,), or None.
        """
        return True

    @property
    @abstractmethod
    def n_targets(self) -> int:
        """Number of targets d."""

    @property
    @abstractmethod
    def n_outputs(self) -> int:
        """Number of outputs the network needs for them."""

    @property
    @abstractmethod
    def noise_var(self) -> Float[Array, " d"] | None:
        """Variance of the noise of each target; None if it is not one number for all rows."""

    @abstractmethod
    def floored(self, floor: np.ndarray | None) -> AbstractLikelihood:
        """Return the same, with noise that cannot fall below a standard deviation, shape (d,).

        None releases the floor: what is kept after training has as much noise, by its parameters.
        """

    @abstractmethod
    def expected_log_prob(self, f: Output, y: Float[Array, "*batch c"]) -> Float[Array, "*batch"]:
        """Return E[log p(y | f)] over the distribution of f, per row."""

    @abstractmethod
    def log_predictive(self, f: Output, y: Float[Array, "*batch c"]) -> Float[Array, "*batch"]:
        """Return log E[p(y | f)] over the (Gaussian) distribution of f, per row."""

    @abstractmethod
    def predictive(self, f: Output) -> tuple[Any, ...]:
        """Return what `distribution` needs to know: named tuples of arrays and Gaussians.

        Arrays of more than one axis have a row for each of f's. Those of `Component` are a mixture
        of Gaussians.
        """

    @abstractmethod
    def distribution(
        self,
        parts: Sequence[Any],
        scaling: Scaling,
        *,
        squeeze: bool,
        between: AbstractRowKernel | None = None,
    ) -> AbstractPredictive:
        """Return the distribution of the targets, in their units.

        Parameters
        ----------
        parts
            What `predictive` gave, as NumPy arrays; a Gaussian has become the pair of its mean and
            its variances, (rows, d), or its covariance, (rows, d, d).
        scaling
            Of the d targets.
        squeeze
            Whether a single target comes without an axis of its own.
        between
            What rows have in common.
        """

    @classmethod
    @abstractmethod
    def constant_numbers(cls, y: np.ndarray, weight: np.ndarray | None) -> np.ndarray:
        """Return what the simplest model, which looks at no input, keeps of the training rows.

        Parameters
        ----------
        y
            Targets in their units, shape (rows, columns).
        weight
            Shape (rows,), or None.

        Returns
        -------
        ndarray of one axis
            Empty if the targets' mean and spread, which the scaling has, are all of it.
        """

    @classmethod
    @abstractmethod
    def constant(
        cls, numbers: np.ndarray, scaling: Scaling, *, n_seen: int | None, squeeze: bool
    ) -> AbstractPredictive:
        """Return the simplest model's distribution, of one row.

        Parameters
        ----------
        numbers
            Of `constant_numbers`.
        scaling
            Of the d targets.
        n_seen
            Different training rows; as many as it takes if None.
        squeeze
            Whether a single target comes without an axis of its own.
        """

    @classmethod
    @abstractmethod
    def as_observed(
        cls, prediction: AbstractPredictive, y: np.ndarray
    ) -> tuple[AbstractPredictive, np.ndarray]:
        """Return what to judge a prediction by: the distribution of what was observed of each row.

        Parameters
        ----------
        prediction
            Of the targets.
        y
            All columns, in their units, shape (rows, columns).

        Returns
        -------
        prediction, y
            With what the other columns say (an exposure, say) taken into account, and the targets
            alone, shape (rows, d).
        """


class AbstractGaussianMixture(AbstractLikelihood):
    """What likelihoods share whose `predictive` is a mixture of Gaussians, of `Component`s."""

    column_scaling: ClassVar[tuple[bool, ...]] = (True,)

    def distribution(
        self,
        parts: Sequence[Any],
        scaling: Scaling,
        *,
        squeeze: bool,
        between: AbstractRowKernel | None = None,
    ) -> AbstractPredictive:
        """Return the mixture in the targets' units."""
        return gaussians(parts, scaling, squeeze=squeeze, between=between)

    @classmethod
    def constant_numbers(cls, y: np.ndarray, weight: np.ndarray | None) -> np.ndarray:
        """Return mean and spread, if the scaling does not have them."""
        if cls.column_scaling[0]:
            return np.empty(0)
        mean = np.average(y, axis=0, weights=weight)
        return np.concatenate([mean, np.sqrt(np.average((y - mean) ** 2, axis=0, weights=weight))])

    @classmethod
    def constant(
        cls, numbers: np.ndarray, scaling: Scaling, *, n_seen: int | None, squeeze: bool
    ) -> AbstractPredictive:
        """Return the Gaussian of the training targets' mean and standard deviation."""
        if len(numbers):
            mean, std = np.split(numbers, 2)
            scaling = replace(scaling, y_shift=mean, y_scale=np.where(std > 0, std, 1.0))
        return constant_gaussian(scaling, 1, n_seen=n_seen, squeeze=squeeze)

    @classmethod
    def as_observed(
        cls, prediction: AbstractPredictive, y: np.ndarray
    ) -> tuple[AbstractPredictive, np.ndarray]:
        """Return both as they are: all columns are targets."""
        return prediction, y


class AbstractPointwise(AbstractGaussianMixture):
    """One output for each target, which depends on it alone; authors give `log_prob`.

    Both objectives are integrals over one output, taken by Gauss-Hermite quadrature with 32 nodes:
    spectrally accurate for densities that are smooth over the output's standard deviation, and off
    by a few hundredths of a nat where the noise is a tenth of it.
    """

    wants_joint: ClassVar[bool] = False

    @abstractmethod
    def log_prob(
        self, f: Float[Array, "*batch d"], y: Float[Array, "*batch d"]
    ) -> Float[Array, "*batch d"]:
        """Return log p(y | f) for every target by itself."""

    @property
    def n_outputs(self) -> int:
        """As many as there are targets."""
        return self.n_targets

    @property
    def noise_var(self) -> None:
        """Not known here."""
        return None

    def floored(self, floor: np.ndarray | None) -> AbstractPointwise:
        """Return the same: this noise knows no floor."""
        return self

    def expected_log_prob(self, f: Output, y: Float[Array, "*batch d"]) -> Float[Array, "*batch"]:
        """Average log p(y | f) over the nodes."""
        values, weights = at_nodes(self, f, y)
        return jnp.sum(jnp.tensordot(weights, values, 1), axis=-1)

    def log_predictive(self, f: Output, y: Float[Array, "*batch d"]) -> Float[Array, "*batch"]:
        """Average p(y | f) over the nodes."""
        values, weights = at_nodes(self, f, y)
        log_weights = jnp.log(weights).reshape(-1, *[1] * (values.ndim - 1))
        return jnp.sum(jax.nn.logsumexp(values + log_weights, axis=0), axis=-1)


def at_nodes(likelihood: Any, f: Output, y: Array, n_nodes: int = 32) -> tuple[Array, Array]:
    """Return a likelihood's `log_prob` at nodes of Gauss-Hermite quadrature, and their weights.

    Parameters
    ----------
    likelihood
        With `log_prob(f, y)`, of shape (..., d) for f of shape (..., d).
    f
        The network's outputs, each by itself.
    y
        Shape (..., columns).
    n_nodes
        Of the quadrature.

    Returns
    -------
    values, weights
        Shapes (nodes, ..., d) and (nodes,).
    """
    check_sizes(likelihood, f, y)
    if isinstance(f, JointGaussian):
        raise TypeError(
            f"{type(likelihood).__name__} takes every target by itself: leave out the covariance "
            "between outputs."
        )
    z, w = (jnp.asarray(part, f.dtype) for part in hermite_nodes(n_nodes))
    spread = square_root(f.variances())
    nodes = z.reshape(-1, *[1] * f.mean.ndim)
    return jax.vmap(likelihood.log_prob, in_axes=(0, None))(f.mean + nodes * spread, y), w


def gaussians(
    parts: Sequence[Any],
    scaling: Scaling,
    *,
    squeeze: bool,
    between: AbstractRowKernel | None = None,
) -> Predictive:
    """Return the mixture of `Component`s, their model a pair of arrays, in the targets' units."""
    kernels = None if between is None else (between,)
    found = []
    for part in parts:
        mean, var = part.model
        one = in_units(mean, var, part.noise_var, scaling, squeeze=squeeze)
        found.append(replace(one, between=kernels))
    if len(found) == 1:
        return found[0]
    return Predictive.mixture(found, [float(part.weight) for part in parts])


def check_sizes(likelihood: AbstractLikelihood, f: Output, y: Array) -> None:
    """Raise ValueError unless outputs and columns of y are as many as the likelihood says."""
    outputs, targets = likelihood.n_outputs, likelihood.n_targets
    columns = targets * len(likelihood.column_scaling)
    if f.shape[-1] != outputs or y.shape[-1] != columns:
        more = "" if columns == targets else f" in {columns} columns"
        raise ValueError(
            f"the likelihood has {targets} targets{more} and needs {outputs} outputs of the "
            f"network, but the network gives {f.shape[-1]} and the targets are {y.shape[-1]}."
        )
