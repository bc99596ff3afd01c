"""A Model is what training trains: a network, its likelihood and its prior, in one pytree."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from varprop.learning.likelihoods import AbstractLikelihood, GaussianLikelihood
from varprop.learning.priors import AbstractPrior, default_prior, weights_by_layer
from varprop.moments.gaussian import Gaussian, JointGaussian
from varprop.nn.contract import AbstractLayer
from varprop.nn.layers import mlp
from varprop.nn.parameters import constant
from varprop.nn.registry import register
from varprop.nn.weights import GaussianWeights


@register()
class Model(eqx.Module):
    """A network with a likelihood on its output and a prior on its weights.

    Parameters
    ----------
    network
        Any layer, usually a `Sequential`.
    likelihood
        What is observed given the output.
    prior
        What the weights are compared with.
    weight_root
        R, if the covariance R R' of all Gaussian weights is known, which learns them as independent
        (`varprop.training.posterior`): what rows have in common follows from it then.

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> model = regression_model(3, 2, key=jax.random.key(0))
    >>> model.predictive(jnp.ones((5, 3)))[0].total.var.shape
    (5, 2)
    """

    network: AbstractLayer
    likelihood: AbstractLikelihood
    prior: AbstractPrior
    weight_root: Float[Array, "p p"] | None = constant(default=None, metadata={"before": None})

    def predictive(self, x: Any) -> tuple[Any, ...]:
        """Return what the likelihood makes of x (..., n_inputs), an array or a Gaussian."""
        return self.likelihood.predictive(self.network.moments(x))

    def slopes(self, x: Gaussian | JointGaussian) -> Float[Array, "rows d p"]:
        """Return the derivatives of the targets' means by those of all Gaussian weights.

        Parameters
        ----------
        x
            Shape (rows, inputs).
        """

        def targets(means: list[Array], row: Gaussian | JointGaussian) -> Array:
            return eqx.tree_at(_weight_means, self, means).predictive(row)[0].model.mean

        found = jax.vmap(jax.jacrev(targets), in_axes=(None, 0))(_weight_means(self), x)
        return jnp.concatenate([part.reshape(*part.shape[:2], -1) for part in found], axis=-1)

    def shared(self, x: Gaussian | JointGaussian) -> Float[Array, "rows d p"]:
        """Return what rows have in common, by `weight_root`: Z, of which Z Z' is the covariance."""
        assert self.weight_root is not None
        return self.slopes(x) @ self.weight_root


def _weight_means(model: Model) -> list[Any]:
    """Return the means of all weights that have a Gaussian distribution, in order."""
    layers = weights_by_layer(model.network)
    return [part.mean for layer in layers for part in layer if isinstance(part, GaussianWeights)]


def regression_model(
    n_inputs: int,
    n_targets: int,
    *,
    key: PRNGKeyArray,
    likelihood: type[AbstractLikelihood] | AbstractLikelihood = GaussianLikelihood,
    noise_std: float = 0.5,
    y: np.ndarray | None = None,
    prior: AbstractPrior | None = None,
    joint: bool = False,
    **network_options: Any,
) -> Model:
    """Build a model for standardized inputs and targets with the paper's defaults.

    Parameters
    ----------
    n_inputs, n_targets
        Sizes.
    key
        Random key for the start.
    likelihood
        What is observed given the output; it says how many outputs the network has. A class, or
        one to start from.
    noise_std
        Where the noise's standard deviation starts, in units of the target's.
    y
        Targets that a likelihood may start from, as training sees them: shape (rows, columns).
    prior
        The learned prior that fits the weights unless given.
    joint
        Model the covariance between outputs.
    **network_options
        Passed to `varprop.nn.mlp`.

    Examples
    --------
    >>> import jax
    >>> model = regression_model(3, 2, key=jax.random.key(0), joint=True)
    >>> type(model.network.layers[-1]).__name__
    'JointDense'
    """
    observed = (
        likelihood.start(n_targets, noise_std=noise_std, y=y)
        if isinstance(likelihood, type)
        else likelihood
    )
    network = mlp(
        n_inputs,
        observed.n_outputs,
        key=key,
        joint=joint or observed.wants_joint,
        **network_options,
    )
    return Model(network, observed, default_prior(network) if prior is None else prior)
