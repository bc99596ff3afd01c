"""What training minimizes: VI, ROPD, sampled VI, maximum likelihood; the KL's scaling, once.

Every objective is minus a sum over the N training rows plus, if it is regularized, one KL
divergence:

    L = -sum_i w_i l_i + kl_weight * KL,        reported per row, L / W with W = sum_i w_i.

A minibatch b of an epoch with B batches estimates it by

    L_b / W = -(B / W) sum_{i in b} w_i l_i + kl_weight * KL / W,

so that the mean of the estimates over an epoch's batches is exactly L / W, however the last batch
is filled and whatever the sample weights: a weight of 2 is the row twice, a weight of 0 is no row.
"""

from __future__ import annotations

import itertools
from abc import abstractmethod
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from varprop.learning.model import Model
from varprop.learning.priors import weights_by_layer
from varprop.moments.gaussian import Gaussian, JointGaussian
from varprop.nn.registry import register
from varprop.nn.weights import BernoulliWeights


class AbstractObjective(eqx.Module):
    """The data's part of an objective; authors give `log_likelihood`."""

    regularized: eqx.AbstractClassVar[bool]
    #: Whether `log_likelihood` uses its key: the objective is then known up to sampling error.
    sampled: eqx.AbstractClassVar[bool]
    #: Whether it tells what the model is unsure of from noise; otherwise only their sum counts.
    identifies_noise: ClassVar[bool] = False

    @abstractmethod
    def log_likelihood(
        self, model: Model, x: Any, y: Float[Array, "n d"], key: PRNGKeyArray
    ) -> Float[Array, " n"]:
        """Return what each row contributes: x of shape (n, inputs), y of shape (n, d).

        x is a Gaussian, or a JointGaussian where errors of a row's inputs are correlated.
        """


@register("vi")
class VI(AbstractObjective):
    """Variational inference with the expected log-likelihood in closed form (FAWN-VI).

    Examples
    --------
    >>> VI().regularized
    True
    """

    regularized: ClassVar[bool] = True
    sampled: ClassVar[bool] = False
    identifies_noise: ClassVar[bool] = True

    def log_likelihood(
        self, model: Model, x: Any, y: Float[Array, "n d"], key: PRNGKeyArray
    ) -> Float[Array, " n"]:
        """E[log p(y | f)] with the propagated mean and variance of f."""
        return model.likelihood.expected_log_prob(model.network.moments(x), y)


class AbstractPredictiveDensity(AbstractObjective):
    """What `ROPD` and `MaximumLikelihood` share: they differ by the KL alone."""

    sampled: ClassVar[bool] = False

    def log_likelihood(
        self, model: Model, x: Any, y: Float[Array, "n d"], key: PRNGKeyArray
    ) -> Float[Array, " n"]:
        """Log-density of the propagated predictive distribution."""
        return model.likelihood.log_predictive(model.network.moments(x), y)


@register("ropd")
class ROPD(AbstractPredictiveDensity):
    """Regularized optimization of the predictive distribution (FAWN-ROPD).

    Examples
    --------
    >>> ROPD().regularized
    True
    """

    regularized: ClassVar[bool] = True


@register("sampled-vi")
class SampledVI(AbstractObjective):
    """Variational inference by sampling weights (Graves 2011, adaptive weight noise).

    Each step draws `n_samples` networks, shared by the rows of the batch, with the
    reparametrization of the Gaussian weights. Bernoulli weights are refused: a drawn bit has no
    derivative, so their probabilities would not be trained.

    Parameters
    ----------
    n_samples
        Networks drawn per step.

    Examples
    --------
    >>> SampledVI(n_samples=4).n_samples
    4
    """

    n_samples: int = eqx.field(static=True, default=1, kw_only=True)
    regularized: ClassVar[bool] = True
    sampled: ClassVar[bool] = True
    identifies_noise: ClassVar[bool] = True

    def __check_init__(self) -> None:
        if self.n_samples < 1:
            raise ValueError(f"n_samples must be at least 1, but is {self.n_samples}.")

    def log_likelihood(
        self, model: Model, x: Any, y: Float[Array, "n d"], key: PRNGKeyArray
    ) -> Float[Array, " n"]:
        """Average of log p(y | f) over sampled networks (and sampled inputs, if uncertain)."""
        weights = itertools.chain(*weights_by_layer(model.network))
        if any(isinstance(array, BernoulliWeights) for array in weights):
            raise TypeError("SampledVI cannot train Bernoulli weights: use VI or ROPD.")
        if isinstance(x, JointGaussian):
            raise TypeError("SampledVI draws input errors one by one: use VI or ROPD, or X_std.")

        def one(key: PRNGKeyArray) -> Float[Array, " n"]:
            network_key, input_key = jax.random.split(key)
            f = model.network.sample(network_key)(x.sample(input_key))
            return model.likelihood.expected_log_prob(Gaussian(f), y)

        return jnp.mean(jax.vmap(one)(jax.random.split(key, self.n_samples)), axis=0)


@register()
class MaximumLikelihood(AbstractPredictiveDensity):
    """Plain maximum likelihood of the predictive distribution: no prior, no KL; for reference.

    With `PointWeights` it trains an ordinary network with a learned noise level.

    Examples
    --------
    >>> MaximumLikelihood().regularized
    False
    """

    regularized: ClassVar[bool] = False


def batch_loss(
    objective: AbstractObjective,
    model: Model,
    x: Any,
    y: Float[Array, "n d"],
    weight: Float[Array, " n"],
    *,
    key: PRNGKeyArray,
    kl_weight: Float[Array, ""],
    n_batches: Float[Array, ""],
    total_weight: Float[Array, ""],
) -> Float[Array, ""]:
    """Estimate the objective per unit of weight from one batch (see the module's docstring).

    Parameters
    ----------
    objective, model
        What to evaluate.
    x, y, weight
        The batch: shapes (n, inputs), (n, d) and (n,). Rows of weight 0 are padding: any valid
        numbers.
    key
        For objectives that sample.
    kl_weight
        Factor of the KL divergence; 1 is the paper's.
    n_batches
        Batches per epoch.
    total_weight
        Sum of the weights of all training rows.
    """
    rows = objective.log_likelihood(model, x, y, key)
    # Padding may lie so far off that its term overflows; selecting drops it, a factor of 0 would
    # not. Its derivative is 0 times that of its term, hence the need for valid numbers.
    data = -jnp.sum(jnp.where(weight > 0, weight * rows, 0.0)) * (n_batches / total_weight)
    if not objective.regularized:
        return data
    return data + model.prior.kl(model.network) * (kl_weight / total_weight)
