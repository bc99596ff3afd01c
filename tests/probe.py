"""A model whose training can be read off: one number theta, a linear loss and a constant KL.

A row contributes theta * y, the KL is a given number whatever the parameters. So the data's part of
the gradient names the rows that were used, the KL's part of the loss shows the KL weight of the
moment, and the differences of theta show the learning rate of the moment.
"""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp

from varprop import Gaussian, GaussianLikelihood, Model
from varprop.learning.objectives import AbstractObjective
from varprop.learning.priors import AbstractPrior
from varprop.nn import Bernoulli
from varprop.nn.contract import AbstractLayer
from varprop.nn.parameters import constant


class Theta(AbstractLayer):
    """Gives theta for every row."""

    theta: jax.Array

    def moments(self, x):
        x = x if isinstance(x, Gaussian) else Gaussian(x)
        return Gaussian(self.theta + jnp.zeros_like(x.mean[..., :1]))

    def sample(self, key):
        raise NotImplementedError


class GivenKL(AbstractPrior):
    """A KL of this size, whatever the network."""

    value: jax.Array = constant()

    def distribution(self, layer, weights):
        return Bernoulli(0.5)

    def kl(self, network):
        return self.value


class Linear(AbstractObjective):
    """theta * y per row."""

    regularized: ClassVar[bool] = True
    sampled: ClassVar[bool] = False

    def log_likelihood(self, model, x, y, key):
        return model.network.moments(x).mean[..., 0] * y[..., 0]


class Cliff(AbstractObjective):
    """theta * y up to theta = 1, and infinite beyond: an objective that diverges."""

    regularized: ClassVar[bool] = False
    sampled: ClassVar[bool] = False
    scale: float = eqx.field(static=True, default=1.0)

    def log_likelihood(self, model, x, y, key):
        theta = model.network.moments(x).mean[..., 0]
        return jnp.where(theta < 1, theta * self.scale, jnp.inf) * y[..., 0]


class Broken(AbstractObjective):
    """An author's mistake."""

    regularized: ClassVar[bool] = False
    sampled: ClassVar[bool] = False

    def log_likelihood(self, model, x, y, key):
        raise RuntimeError("broken on purpose")


def model(kl: float = 0.0) -> Model:
    """Start at theta = 0."""
    dtype = jnp.result_type(float)
    return Model(
        Theta(jnp.zeros((), dtype)),
        GaussianLikelihood(jnp.ones(1, dtype)),
        GivenKL(jnp.asarray(kl, dtype)),
    )
