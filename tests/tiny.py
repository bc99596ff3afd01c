"""Small models and data for the tests of training, in few shapes: each shape compiles once."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from varprop import Data, Gaussian, Model, Recipe, StopRule, regression_model
from varprop.learning.objectives import batch_loss
from varprop.nn.parameters import take_apart

NEVER = StopRule(tol=0.0)

# For what a test evaluates a few times: compiled four times as fast, at the price of slower code.
quick_jit = functools.partial(
    jax.jit,
    compiler_options={"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False},
)


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


@functools.partial(quick_jit, static_argnums=0)
def _loss_and_gradient(structure, params, constants, x, y, weight, key, scalars):
    def loss(params, key):
        model, objective = structure.build(params, constants)
        return batch_loss(objective, model, x, y, weight, key=key, **scalars)

    both = jax.value_and_grad(loss)
    return both(params, key) if key.ndim == 0 else jax.vmap(both, (None, 0))(params, key)


def loss_and_gradient(
    objective,
    model,
    x,
    y,
    weight,
    *,
    x_var=None,
    key=None,
    kl_weight=1.0,
    n_batches=1.0,
    total_weight=None,
):
    """`batch_loss` of NumPy rows, and its gradient by all parameters as one vector.

    An array of keys gives an array of each.
    """
    structure, params, constants = take_apart((model, objective))
    x, y, weight = (jnp.asarray(part, params.dtype) for part in (x, y, weight))
    x_var = None if x_var is None else jnp.asarray(x_var, params.dtype)
    total_weight = np.sum(weight) if total_weight is None else total_weight
    scalars = {"kl_weight": kl_weight, "n_batches": n_batches, "total_weight": total_weight}
    scalars = {name: jnp.asarray(value, params.dtype) for name, value in scalars.items()}
    key = jax.random.key(7) if key is None else key
    return _loss_and_gradient(
        structure, params, constants, Gaussian(x, x_var), y, weight, key, scalars
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
