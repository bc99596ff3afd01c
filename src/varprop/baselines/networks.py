"""Ordinary networks with uncertainty, on this library's own engine: MC dropout, deep ensembles."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key, PRNGKeyArray

from varprop import nn
from varprop.baselines.rows import one_target
from varprop.data.source import Data
from varprop.learning.likelihoods import HeteroscedasticGaussian
from varprop.learning.model import Model, regression_model
from varprop.learning.objectives import AbstractObjective, MaximumLikelihood, SampledVI
from varprop.learning.priors import FixedGaussian
from varprop.predictive.distribution import Predictive
from varprop.training.engine import fit_many
from varprop.training.preparation import Lane
from varprop.training.recipe import Recipe, StopRule


class AbstractNetworks(ABC):
    """So many epochs of Adam at a constant rate, as these methods were published; one target."""

    objective: ClassVar[AbstractObjective]
    n_epochs: int
    batch_size: int
    learning_rate: float
    random_state: int
    n_threads: int = 1

    @abstractmethod
    def _keys(self) -> Any:
        """Return a random key per network."""

    @abstractmethod
    def _start(self, n_inputs: int, key: PRNGKeyArray) -> Model:
        """Return a new network."""

    @abstractmethod
    def predict_dist(self, X: Any) -> Predictive:
        """Return the predictive distribution of every row."""

    def fit(self, X: Any, y: Any) -> AbstractNetworks:
        """Fit to inputs (rows, features) and targets (rows,)."""
        data = Data(*one_target(self, X, y))
        recipe = Recipe(
            learning_rate=self.learning_rate,
            kl_warmup=0,
            cooldown=0,
            max_steps=self.n_epochs * -(-data.n_rows // self.batch_size),
            batch_size=self.batch_size,
            stop=StopRule(tol=0.0),
        )
        lanes = []
        for key in self._keys():
            model_key, run_key = jax.random.split(key)
            model = self._start(data.x.shape[1], model_key)
            lanes.append(Lane(model=model, key=run_key, recipe=recipe))
        self.fits_ = fit_many(lanes, data, self.objective, n_threads=self.n_threads)
        self.outcome_ = ", ".join(sorted({fit.outcome.value for fit in self.fits_}))
        self.n_iter_ = max(fit.n_epochs for fit in self.fits_)
        self.n_steps_ = sum(fit.n_steps for fit in self.fits_)
        self.loss_ = float(np.mean([fit.loss for fit in self.fits_]))
        return self


@dataclasses.dataclass(eq=False, kw_only=True)
class DeepEnsemble(AbstractNetworks):
    """Networks that predict mean and variance, from different starts, mixed (one target).

    After Lakshminarayanan et al. (2017), without their adversarial training: 5 networks, 40 epochs
    of Adam in batches of 100. Their rate of 0.1 diverges here; 0.03 was the best of 0.1, 0.03 and
    0.01 on rows set aside from the training rows of Boston, Concrete and Yacht.

    Parameters
    ----------
    n_members, n_epochs, batch_size, learning_rate
        As above.
    random_state : int, default=0
        Seed.
    n_threads : int, default=1
        Members trained at a time.

    Examples
    --------
    >>> x = np.linspace(-1, 1, 100)[:, None]
    >>> model = DeepEnsemble(n_members=2, n_epochs=2).fit(x, x[:, 0])
    >>> model.predict_dist(x).n_members
    2
    """

    objective: ClassVar[AbstractObjective] = MaximumLikelihood()
    n_members: int = 5
    n_epochs: int = 40
    batch_size: int = 100
    learning_rate: float = 0.03
    random_state: int = 0
    n_threads: int = 1

    def _keys(self) -> Any:
        return jax.random.split(jax.random.key(self.random_state), self.n_members)

    def _start(self, n_inputs: int, key: PRNGKeyArray) -> Model:
        network = nn.mlp(n_inputs, 2, key=key, weights=_point_weights)
        # The floor is the 1e-6 of the paper's code: it keeps the density bounded.
        likelihood = HeteroscedasticGaussian(np.ones(1, np.float32), floor=1e-3)
        return Model(network, likelihood, FixedGaussian())

    def predict_dist(self, X: Any) -> Predictive:
        """Return the mixture of the members' Gaussians."""
        parts = [fit.predictive(np.asarray(X)).marginal(0) for fit in self.fits_]
        return Predictive.mixture(parts)


@dataclasses.dataclass(eq=False, kw_only=True)
class MCDropout(AbstractNetworks):
    """A network trained with dropout, its masks drawn at prediction too (one target).

    After Gal & Ghahramani (2016), 400 epochs in batches of 32; the noise level is learned with the
    weights instead of searched for on held-out rows.

    Parameters
    ----------
    dropout, n_epochs, batch_size, learning_rate
        Rate of dropping a hidden unit; training.
    n_samples : int, default=100
        Masks drawn for a prediction.
    random_state : int, default=0
        Seed.

    Examples
    --------
    >>> x = np.linspace(-1, 1, 100)[:, None]
    >>> model = MCDropout(n_epochs=2, n_samples=5).fit(x, x[:, 0])
    >>> model.predict_dist(x).n_members
    5
    """

    objective: ClassVar[AbstractObjective] = SampledVI()
    dropout: float = 0.05
    n_epochs: int = 400
    batch_size: int = 32
    learning_rate: float = 1e-3
    n_samples: int = 100
    random_state: int = 0

    def _keys(self) -> Any:
        return [jax.random.key(self.random_state)]

    def _start(self, n_inputs: int, key: PRNGKeyArray) -> Model:
        noise = nn.Dropout(self.dropout)
        return regression_model(n_inputs, 1, key=key, weights=_point_weights, hidden_noise=noise)

    def predict_dist(self, X: Any) -> Predictive:
        """Return the mixture over drawn masks."""
        (fit,) = self.fits_
        x, _ = fit.scaling.inputs(np.asarray(X), None, np.float32)
        keys = jax.random.split(jax.random.key(self.random_state + 1), self.n_samples)
        draws = np.asarray(_sampled(fit.model, x, keys), np.float64)[..., 0]
        noise = fit.predictive(np.asarray(X)).noise_var[:, 0]
        means = draws * fit.scaling.y_scale + fit.scaling.y_shift
        return Predictive.mixture(
            [Predictive.gaussian(mean, np.zeros(len(mean)), noise) for mean in means]
        )


def _point_weights(key: PRNGKeyArray, shape: tuple[int, ...]) -> nn.PointWeights:
    """He's start for rectifiers: standard deviation sqrt(2 / inputs); biases at 0."""
    if len(shape) == 1:
        return nn.PointWeights(jnp.zeros(shape))
    return nn.PointWeights.init(key, shape, scale=(2 / shape[1]) ** 0.5)


@eqx.filter_jit
def _sampled(model: Model, x: Float[Array, "n m"], keys: Key[Array, " s"]) -> Array:
    # A mask per draw and row, as dropout has it: the network is drawn anew for every row.
    def one(key: PRNGKeyArray) -> Float[Array, "n 1"]:
        row_keys = jax.random.split(key, x.shape[0])
        return jax.vmap(lambda k, row: model.network.sample(k)(row))(row_keys, x)

    return jax.lax.map(one, keys)
