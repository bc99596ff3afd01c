"""A Model is what training trains: a network, its likelihood and its prior, in one pytree."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from varprop.learning.likelihoods import AbstractLikelihood, GaussianLikelihood
from varprop.learning.priors import AbstractPrior, default_prior
from varprop.moments.gaussian import Gaussian, JointGaussian
from varprop.nn.contract import AbstractLayer
from varprop.nn.layers import mlp


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

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> model = regression_model(3, 2, key=jax.random.key(0))
    >>> model.predictive(jnp.ones((5, 3))).var.shape
    (5, 2)
    """

    network: AbstractLayer
    likelihood: AbstractLikelihood
    prior: AbstractPrior

    def predictive(self, x: Any) -> Gaussian | JointGaussian:
        """Return the distribution of the target at x (..., n_inputs), an array or a Gaussian."""
        return self.likelihood.predictive(self.network.moments(x))


def regression_model(
    n_inputs: int,
    n_outputs: int,
    *,
    key: PRNGKeyArray,
    noise_std: float = 0.5,
    noise_floor: Any = None,
    prior: AbstractPrior | None = None,
    **network_options: Any,
) -> Model:
    """Build a model for standardized inputs and targets with the paper's defaults.

    Parameters
    ----------
    n_inputs, n_outputs
        Sizes.
    key
        Random key for the start.
    noise_std
        Where the noise's standard deviation starts, in units of the target's.
    noise_floor
        Where it cannot fall below, likewise; from `varprop.data.noise_floor`.
    prior
        The learned prior that fits the weights unless given.
    **network_options
        Passed to `varprop.nn.mlp`.

    Examples
    --------
    >>> import jax
    >>> model = regression_model(3, 2, key=jax.random.key(0), joint=True)
    >>> type(model.network.layers[-1]).__name__
    'JointDense'
    """
    network = mlp(n_inputs, n_outputs, key=key, **network_options)
    if prior is None:
        prior = default_prior(network)
    start = jnp.result_type(float)
    likelihood = GaussianLikelihood(np.full(n_outputs, noise_std, start), floor=noise_floor)
    return Model(network, likelihood, prior)
