"""A Model is what training trains: a network, its likelihood and its prior, in one pytree."""

from __future__ import annotations

from typing import Any

import equinox as eqx
from jaxtyping import PRNGKeyArray

from varprop.learning.likelihoods import AbstractLikelihood, Component, GaussianLikelihood
from varprop.learning.priors import AbstractPrior, default_prior
from varprop.nn.contract import AbstractLayer
from varprop.nn.layers import mlp
from varprop.nn.registry import register


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

    def predictive(self, x: Any) -> tuple[Component, ...]:
        """Return the distribution of the targets at x (..., n_inputs), an array or a Gaussian."""
        return self.likelihood.predictive(self.network.moments(x))


def regression_model(
    n_inputs: int,
    n_targets: int,
    *,
    key: PRNGKeyArray,
    likelihood: type[AbstractLikelihood] = GaussianLikelihood,
    noise_std: float = 0.5,
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
        What is observed given the output; it says how many outputs the network has.
    noise_std
        Where the noise's standard deviation starts, in units of the target's.
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
    observed = likelihood.start(n_targets, noise_std=noise_std)
    network = mlp(
        n_inputs,
        observed.n_outputs,
        key=key,
        joint=joint or observed.wants_joint,
        **network_options,
    )
    return Model(network, observed, default_prior(network) if prior is None else prior)
