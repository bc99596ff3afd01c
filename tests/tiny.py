"""Small models and data for the tests of training, in few shapes: each shape compiles once."""

import jax
import jax.numpy as jnp
import numpy as np

from varprop import Data, Model, Recipe, StopRule, regression_model
from varprop.parameters import take_apart

NEVER = StopRule(tol=0.0)


def recipe(**changes) -> Recipe:
    """A plain recipe: constant rates, no early stop, as many steps as are said."""
    plain = Recipe(
        learning_rate=1e-2, kl_warmup=0, cooldown=0, max_steps=12, batch_size=32, stop=NEVER
    )
    return plain.replace(**changes)


def arrays(n_rows: int, *, n_inputs: int = 2, n_outputs: int = 1, seed: int = 0):
    """Inputs and targets with a nonlinear signal and some noise."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n_rows, n_inputs))
    weight = rng.normal(size=(n_inputs, n_outputs))
    return x, np.sin(x @ weight) + 0.3 * rng.normal(size=(n_rows, n_outputs))


def data(n_rows: int, **options) -> Data:
    """`arrays` as Data."""
    return Data(*arrays(n_rows, **options))


def model(seed: int = 0, *, n_inputs: int = 2, n_outputs: int = 1, **options) -> Model:
    """One hidden layer of four units unless told otherwise."""
    options.setdefault("hidden_layer_sizes", (4,))
    return regression_model(n_inputs, n_outputs, key=jax.random.key(seed), **options)


def params(fitted: Model) -> np.ndarray:
    """All learned numbers of a model as one vector."""
    return np.asarray(take_apart(fitted)[1])


def same_fit(a, b) -> bool:
    """Whether two fits agree to the bit in all that training decides."""
    return (
        np.array_equal(params(a.model), params(b.model))
        and np.array_equal(a.history, b.history)
        and (a.loss == b.loss or (np.isnan(a.loss) and np.isnan(b.loss)))
        and (a.outcome, a.n_steps) == (b.outcome, b.n_steps)
    )


def finite_differences(function, at, step: float) -> np.ndarray:
    """Central differences of a scalar function of a vector, float64."""
    at = np.asarray(at, np.float64)
    out = np.empty_like(at)
    for i in range(at.size):
        shift = np.zeros_like(at)
        shift[i] = step
        up, down = function(jnp.asarray(at + shift)), function(jnp.asarray(at - shift))
        out[i] = (float(up) - float(down)) / (2 * step)
    return out
