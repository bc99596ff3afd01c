"""What the regressor's constructor arguments mean: names to objects, epochs to steps.

The constructor only stores; everything is checked here, when `fit` is called.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import numbers
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from varprop import nn
from varprop.learning import priors
from varprop.learning.model import Model, regression_model
from varprop.learning.objectives import ROPD, VI, AbstractObjective, SampledVI
from varprop.training.recipe import Recipe, StopRule

ACTIVATIONS: dict[str, Callable[[], nn.AbstractActivation]] = {
    "relu": nn.ReLU,
    "leaky_relu": nn.LeakyReLU,
    "identity": nn.Identity,
    "logistic": nn.Sigmoid,
    "tanh": nn.Tanh,
    "erf": nn.Erf,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "softplus": nn.Softplus,
}
OBJECTIVES: dict[str, Callable[[], AbstractObjective]] = {
    "ropd": ROPD,
    "vi": VI,
    "sampled-vi": SampledVI,
}
WEIGHTS: dict[str, Any] = {
    "gaussian": nn.GaussianWeights.init,
    "bernoulli": nn.BernoulliWeights.init,
}
PRIORS = ("learned", "per-layer", "fixed")
DTYPES = ("float32", "float64")


def _one_of(value: Any, name: str, names: Any) -> None:
    if not isinstance(value, str) or value not in names:
        known = ", ".join(repr(known) for known in names)
        raise ValueError(f"{name} must be one of {known}, but is {value!r}.")


def _whole(value: Any, name: str, least: int = 1) -> int:
    if not isinstance(value, numbers.Integral) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, but is {value!r}.")
    return int(value)


def _real(value: Any, name: str, least: float = 0.0, below: float = math.inf) -> float:
    good = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not (good and least <= value < below):
        limit = "" if below == math.inf else f" and below {below:g}"
        raise ValueError(f"{name} must be at least {least:g}{limit}, but is {value!r}.")
    return float(value)


def _flag(value: Any, name: str) -> bool:
    if not isinstance(value, bool | np.bool_):
        raise ValueError(f"{name} must be True or False, but is {value!r}.")
    return bool(value)


def hidden_sizes(value: Any) -> tuple[int, ...]:
    """Return `hidden_layer_sizes` as a tuple; one number is one layer, as in scikit-learn.

    Examples
    --------
    >>> hidden_sizes(20), hidden_sizes([10, 5])
    ((20,), (10, 5))
    """
    sizes = [value] if isinstance(value, numbers.Integral) else value
    try:
        return tuple(_whole(size, "hidden_layer_sizes") for size in sizes)
    except TypeError:
        raise ValueError(
            f"hidden_layer_sizes must be a whole number or a sequence of them, but is {value!r}."
        ) from None


def make_objective(objective: Any) -> AbstractObjective:
    """Return the objective of this name, or the given one.

    Examples
    --------
    >>> type(make_objective("vi")).__name__
    'VI'
    """
    if isinstance(objective, AbstractObjective):
        return objective
    _one_of(objective, "objective", OBJECTIVES)
    return OBJECTIVES[objective]()


def check_options(options: Mapping[str, Any]) -> None:
    """Raise ValueError with one sentence if a constructor argument cannot be used.

    Examples
    --------
    >>> from varprop import FAWNRegressor
    >>> check_options(FAWNRegressor().get_params())
    """
    n_layers = len(hidden_sizes(options["hidden_layer_sizes"])) + 1
    if not isinstance(options["activation"], nn.AbstractActivation):
        _one_of(options["activation"], "activation", ACTIVATIONS)
    objective = make_objective(options["objective"])
    _one_of(options["weights"], "weights", WEIGHTS)
    if options["weights"] == "bernoulli" and isinstance(objective, SampledVI):
        raise ValueError(
            "objective='sampled-vi' cannot train weights='bernoulli', whose draws have no "
            "gradient: take 'vi' or 'ropd'."
        )
    if isinstance(options["prior"], priors.LearnedGaussianPerLayer):
        if len(options["prior"].mean) != n_layers:
            raise ValueError(
                f"prior has {len(options['prior'].mean)} layers, but the network has {n_layers}."
            )
    elif not isinstance(options["prior"], priors.AbstractPrior):
        _one_of(options["prior"], "prior", PRIORS)
        if options["prior"] == "per-layer" and options["weights"] == "bernoulli":
            raise ValueError("prior='per-layer' is for weights='gaussian' only.")
    _flag(options["output_covariance"], "output_covariance")
    _flag(options["warm_start"], "warm_start")
    _real(options["kl_weight"], "kl_weight")
    _real(options["dropout"], "dropout", below=1.0)
    _real(options["drop_connect"], "drop_connect", below=1.0)
    _real(options["input_noise"], "input_noise")
    for name in ("n_restarts", "n_members"):
        _whole(options[name], name)
    for name in ("max_iter", "n_iter_no_change"):
        if options[name] is not None:
            _whole(options[name], name)
    for name in ("tol", "learning_rate_init"):
        if options[name] is not None:
            _real(options[name], name)
    if options["kl_warmup"] != "auto":
        _whole(options["kl_warmup"], "kl_warmup", least=0)
    if options["batch_size"] is not None and options["batch_size"] != "auto":
        _whole(options["batch_size"], "batch_size")
    _one_of(options["dtype"], "dtype", DTYPES)


def make_recipe(options: Mapping[str, Any], n_rows: int) -> Recipe:
    """Translate scikit-learn's names, which count epochs, to a recipe, which counts steps.

    What is None or "auto" is `Recipe`'s default; warm-up and cool-down shrink with `max_iter` in
    proportion, so that a short training has all its phases.

    Parameters
    ----------
    options
        Constructor arguments that `check_options` has passed.
    n_rows
        Distinct training rows.

    Examples
    --------
    >>> from varprop import FAWNRegressor
    >>> recipe = make_recipe(FAWNRegressor(max_iter=10, batch_size=32).get_params(), 64)
    >>> recipe.max_steps, recipe.batch_size
    (20, 32)
    """
    default = Recipe()
    batch = default.batch_size if options["batch_size"] == "auto" else options["batch_size"]
    if batch is None or n_rows <= batch:
        batch = None  # one full batch: nothing to shuffle
    per_epoch = 1 if batch is None else -(-n_rows // batch)
    max_steps = default.max_steps
    if options["max_iter"] is not None:
        max_steps = options["max_iter"] * per_epoch
    share = min(1.0, max_steps / default.max_steps)
    warmup = options["kl_warmup"]
    stop = default.stop
    if options["n_iter_no_change"] is not None:
        patience = min(stop.patience, options["n_iter_no_change"])
        window = round(options["n_iter_no_change"] / patience) * per_epoch
        stop = dataclasses.replace(stop, patience=patience, window=window)
    if options["tol"] is not None:
        stop = dataclasses.replace(stop, tol=float(options["tol"]))
    rate = options["learning_rate_init"]
    return default.replace(
        learning_rate=default.learning_rate if rate is None else float(rate),
        kl_weight=float(options["kl_weight"]),
        kl_warmup=round(default.kl_warmup * share) if warmup == "auto" else warmup * per_epoch,
        cooldown=round(default.cooldown * share),
        max_steps=max_steps,
        batch_size=batch,
        stop=stop,
    )


def epoch_recipe(options: Mapping[str, Any], n_rows: int, *, warm_up: bool) -> Recipe:
    """Return the recipe of `partial_fit`: single epochs at a constant rate, no end of its own.

    An "auto" warm-up would need to know how long training will last, so only a number counts here.

    Examples
    --------
    >>> from varprop import FAWNRegressor
    >>> epoch_recipe(FAWNRegressor().get_params(), 50, warm_up=True).cooldown
    0
    """
    warm_up = warm_up and options["kl_warmup"] != "auto"
    recipe = make_recipe(options, n_rows)
    return recipe.replace(
        kl_warmup=recipe.kl_warmup if warm_up else 0,
        cooldown=0,
        max_steps=2**31 - 1,
        stop=StopRule(window=1, tol=0.0),
    )


def model_factory(
    options: Mapping[str, Any], n_features: int, n_outputs: int
) -> Callable[[PRNGKeyArray], Model]:
    """Return a function from a random key to a fresh model, in JAX's float type of the moment.

    Examples
    --------
    >>> from varprop import FAWNRegressor
    >>> init = model_factory(FAWNRegressor().get_params(), 3, 2)
    >>> init(jax.random.key(0)).likelihood.log_std.shape
    (2,)
    """
    sizes = hidden_sizes(options["hidden_layer_sizes"])
    activation = options["activation"]
    if isinstance(activation, str):
        activation = ACTIVATIONS[activation]()
    dropout, connect, jitter = (
        options[name] for name in ("dropout", "drop_connect", "input_noise")
    )
    # One factory call serves many keys, but its arrays must be made in the caller's float type.
    return functools.partial(
        _init_model,
        n_features,
        n_outputs,
        hidden_layer_sizes=sizes,
        activation=_in_default_float(activation),
        weights=WEIGHTS[options["weights"]],
        prior=_make_prior(options["prior"], options["weights"], len(sizes) + 1),
        joint=bool(options["output_covariance"]),
        hidden_noise=nn.Dropout(dropout) if dropout else None,
        weight_noise=nn.DropConnect(connect, rescale=True) if connect else None,
        input_noise=nn.GaussianWeightNoise(jitter) if jitter else None,
    )


def _init_model(n_features: int, n_outputs: int, key: PRNGKeyArray, **settings: Any) -> Model:
    return regression_model(n_features, n_outputs, key=key, **settings)


def _make_prior(prior: Any, weights: str, n_layers: int) -> priors.AbstractPrior | None:
    if isinstance(prior, priors.AbstractPrior):
        return _in_default_float(prior)
    if prior == "per-layer":
        return priors.LearnedGaussianPerLayer(n_layers)
    if prior == "fixed":
        return priors.FixedGaussian() if weights == "gaussian" else priors.FixedBernoulli()
    return None  # the learned one that fits the weights


def _in_default_float(tree: Any) -> Any:
    """Give an object made elsewhere, perhaps in the other precision, JAX's float type of now."""
    dtype = jnp.result_type(float)

    def convert(leaf: Any) -> Any:
        if isinstance(leaf, jax.Array | np.ndarray) and jnp.issubdtype(leaf.dtype, jnp.floating):
            return jnp.asarray(leaf, dtype)
        return leaf

    return jax.tree.map(convert, tree)
