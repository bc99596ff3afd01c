"""The one list of everything public that is random, each with its analytic and its sampling form.

`test_twins.py` compares the two forms of every case and checks that no public class is missing.
A case is made when it is asked for, so that the precision of the day applies.
"""

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from varprop import Gaussian, JointGaussian, nn
from varprop.moments.covariance import DiagonalPlusLowRank


@dataclasses.dataclass(frozen=True)
class Case:
    """One instance of a random thing.

    `mean_slack` and `var_slack` are the documented errors of rules that approximate, 0 for others.
    """

    kind: type
    label: str
    make: Callable[[], Any]
    x: Callable[[], Any] | None = None
    mean_slack: float = 0.0
    var_slack: float = 0.0

    def __str__(self) -> str:
        return f"{self.kind.__name__}: {self.label}"


def key(number: int = 0) -> jax.Array:
    return jax.random.key(number)


# Inputs: two rows of three, standard deviations from 0.4 to 1.5, means on both sides of zero
# and close enough for every draw to matter.
MEANS = np.array([[-1.5, 0.2, 1.0], [0.5, -0.3, 2.0]])
VARS = np.array([[0.5, 1.0, 0.2], [2.25, 0.3, 1.0]])


def known() -> Gaussian:
    return Gaussian(MEANS)


def uncertain() -> Gaussian:
    return Gaussian(MEANS, VARS)


# Starts from NumPy: drawing each shape with JAX would compile a program for it.
def gaussian(shape, number=0, *, scale=0.8, std=0.4):
    return nn.GaussianWeights(np.random.default_rng(number).normal(0.0, scale, shape), std)


def bernoulli(shape, *, per_weight=False):
    rng = np.random.default_rng(7)
    scale = rng.uniform(0.3, 1.5, shape) if per_weight else 1.2
    return nn.BernoulliWeights(rng.uniform(0.05, 0.95, shape), scale)


def starts(**options):
    """For `mlp(weights=...)`: a different start for each array."""
    numbers = itertools.count()
    return lambda _, shape: gaussian(shape, next(numbers), **options)


def layers() -> list[Case]:
    """Layers with weights, and networks of them."""
    cases = [
        Case(nn.Dense, "known input", lambda: nn.Dense(gaussian((2, 3)), gaussian((2,), 1)), known),
        Case(
            nn.Dense,
            "uncertain input",
            lambda: nn.Dense(gaussian((2, 3)), gaussian((2,), 1)),
            uncertain,
        ),
        Case(
            nn.Dense,
            "noise on weights and biases",
            lambda: nn.Dense(
                gaussian((2, 3)),
                nn.PointWeights(np.array([0.3, -0.2])),
                weight_noise=nn.DropConnect(0.3),
                bias_noise=nn.AdditiveNoise(nn.Uniform(-0.5, 1.0)),
            ),
            uncertain,
        ),
        Case(
            nn.Dense,
            "binary weights, no bias",
            lambda: nn.Dense(bernoulli((2, 3), per_weight=True)),
            uncertain,
        ),
        Case(nn.JointDense, "known input", lambda: nn.JointDense(gaussian((2, 3))), known),
        Case(
            nn.JointDense,
            "more outputs than inputs",
            lambda: nn.JointDense(gaussian((4, 3)), gaussian((4,), 1)),
            uncertain,
        ),
        Case(
            # From nothing, by one step: a product of independents, exact but for the quadrature.
            nn.Recurrent,
            "one step of a GRU",
            lambda: nn.rnn(
                3, 1, n_steps=1, units=2, key=key(2), weights=starts(scale=0.4, std=0.2)
            ).layers[0],
            known,
            mean_slack=1e-4,
            var_slack=1e-4,
        ),
        Case(
            nn.JointDense,
            "weight noise",
            lambda: nn.JointDense(bernoulli((2, 3)), weight_noise=nn.GaussianWeightNoise(0.3)),
            uncertain,
        ),
    ]
    return [*cases, *networks()]


def networks() -> list[Case]:
    """Gaussian weights, one hidden layer and a known input: exact, so no slack."""
    size = {"hidden_layer_sizes": (5,), "key": key(2)}
    return [
        Case(nn.Sequential, "Gaussian", lambda: nn.mlp(3, 2, weights=starts(), **size), known),
        Case(
            # Binary weights into a rectifier would not do: its input is not Gaussian then.
            nn.Sequential,
            "binary output layer",
            lambda: nn.Sequential(
                [nn.Dense(gaussian((5, 3))), nn.ReLU(), nn.JointDense(bernoulli((2, 5)))]
            ),
            known,
        ),
        Case(
            nn.Sequential,
            "joint, tanh",
            lambda: nn.mlp(3, 3, weights=starts(), joint=True, activation=nn.Tanh(), **size),
            known,
            # The activation's documented error, through five units.
            mean_slack=1e-5,
            var_slack=2e-5,
        ),
        Case(
            nn.Sequential,
            "noise everywhere but on the input",
            lambda: nn.mlp(
                3,
                2,
                weights=starts(),
                joint=True,
                hidden_noise=nn.Dropout(0.2),
                weight_noise=nn.GaussianWeightNoise(0.2),
                bias_noise=nn.AdditiveNoise(nn.Normal(0.3, 0.5)),
                **size,
            ),
            known,
        ),
    ]


def activations() -> list[Case]:
    """Everything applied to each component, compared on the uncertain input."""

    def monte_carlo():
        return nn.MonteCarlo(jnp.tanh, key=key(3), n_samples=100_000)

    return [
        Case(nn.Identity, "itself", nn.Identity),
        Case(nn.ReLU, "itself", nn.ReLU),
        Case(nn.LeakyReLU, "slope 0.1", lambda: nn.LeakyReLU(0.1)),
        Case(nn.LeakyReLU, "absolute value", lambda: nn.LeakyReLU(-1.0)),
        Case(nn.Heaviside, "itself", nn.Heaviside),
        Case(nn.Erf, "itself", nn.Erf),
        Case(nn.Sigmoid, "itself", nn.Sigmoid, mean_slack=8e-7, var_slack=7e-7),
        Case(nn.Tanh, "itself", nn.Tanh, mean_slack=1.6e-6, var_slack=2.6e-6),
        Case(nn.GELU, "itself", nn.GELU, mean_slack=1e-6, var_slack=1.2e-4),
        Case(nn.SiLU, "itself", nn.SiLU, mean_slack=5e-7, var_slack=7e-6),
        Case(nn.Softplus, "itself", nn.Softplus, mean_slack=3e-8, var_slack=2.2e-7),
        Case(nn.GaussHermite, "cosine", lambda: nn.GaussHermite(jnp.cos)),
        Case(nn.Unscented, "square", lambda: nn.Unscented(jnp.square)),
        Case(nn.Table, "tanh", lambda: nn.Table(jnp.tanh), mean_slack=2.6e-4, var_slack=2e-4),
        # Six standard errors of its own 100,000 draws; tanh is monotonic and bounded by 1.
        Case(nn.MonteCarlo, "tanh", monte_carlo, mean_slack=0.019, var_slack=0.019),
    ]


def noises() -> list[Case]:
    """Noise processes on units, compared on the uncertain input."""
    return [
        Case(
            nn.AdditiveNoise,
            "normal",
            lambda: nn.AdditiveNoise(nn.Normal(0.5, 0.7)),
        ),
        Case(nn.AdditiveNoise, "uniform", lambda: nn.AdditiveNoise(nn.Uniform(-1.0, 2.0))),
        Case(
            nn.MultiplicativeNoise,
            "Bernoulli",
            lambda: nn.MultiplicativeNoise(nn.Bernoulli(0.3, scale=2.0)),
        ),
        Case(
            nn.MultiplicativeNoise,
            "uniform",
            lambda: nn.MultiplicativeNoise(nn.Uniform(0.5, 2.0)),
        ),
        Case(nn.Dropout, "rescaled", lambda: nn.Dropout(0.4)),
        Case(nn.Dropout, "as published", lambda: nn.Dropout(0.4, rescale=False)),
        Case(nn.DropConnect, "itself", lambda: nn.DropConnect(0.25)),
        Case(nn.GaussianWeightNoise, "itself", lambda: nn.GaussianWeightNoise(0.6)),
    ]


def weights() -> list[Case]:
    """Distributions over arrays of weights."""
    return [
        Case(nn.GaussianWeights, "wide and narrow", lambda: nn.GaussianWeights(MEANS, VARS**0.5)),
        Case(nn.BernoulliWeights, "one scale", lambda: bernoulli((2, 3))),
        Case(nn.BernoulliWeights, "scale per weight", lambda: bernoulli((2, 3), per_weight=True)),
        Case(nn.PointWeights, "fixed", lambda: nn.PointWeights(MEANS)),
    ]


def variables() -> list[Case]:
    """Scalar noise variables."""
    return [
        Case(nn.Normal, "shifted", lambda: nn.Normal(1.0, 0.5)),
        Case(nn.Bernoulli, "scaled", lambda: nn.Bernoulli(0.2, scale=3.0)),
        Case(nn.Uniform, "shifted", lambda: nn.Uniform(-1.0, 3.0)),
    ]


def distributions() -> list[Case]:
    """What flows between layers."""

    def low_rank(n, d):
        rng = np.random.default_rng(n)
        cov = DiagonalPlusLowRank(
            rng.uniform(0.1, 1.0, d), rng.uniform(0.0, 1.0, n), rng.normal(size=(n, d))
        )
        return JointGaussian(np.arange(d) - 1.0, cov)

    def dense():
        joint = low_rank(4, 3)
        return JointGaussian(joint.mean, joint.dense_cov())

    return [
        Case(Gaussian, "independent", uncertain),
        Case(JointGaussian, "dense", dense),
        Case(JointGaussian, "more outputs than factors", lambda: low_rank(2, 4)),
        Case(JointGaussian, "more factors than outputs", lambda: low_rank(4, 2)),
    ]


def every() -> list[Case]:
    return [*layers(), *activations(), *noises(), *weights(), *variables(), *distributions()]
