"""What the regressor's constructor arguments mean: names to objects, epochs to steps.

The constructor only stores; everything is checked here, when `fit` is called.
"""

from __future__ import annotations

import dataclasses
import numbers
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray
from sklearn.utils._param_validation import Interval, StrOptions

from varprop.learning import priors
from varprop.learning.likelihoods import AbstractLikelihood
from varprop.learning.model import Model, regression_model
from varprop.learning.objectives import AbstractObjective, SampledVI
from varprop.nn.activations import AbstractActivation
from varprop.nn.noise import DropConnect, Dropout, GaussianWeightNoise
from varprop.nn.propagation import PROPAGATIONS
from varprop.nn.registry import chosen
from varprop.nn.weights import AbstractWeights
from varprop.training.recipe import Recipe, StopRule, weight_of_kl

_COUNT = Interval(numbers.Integral, 1, None, closed="left")
_AMOUNT = Interval(numbers.Real, 0, None, closed="left")
_SHARE = Interval(numbers.Real, 0, 1, closed="left")

#: What scikit-learn checks for us; names of classes are looked up where they are used.
CONSTRAINTS: dict[str, list[Any]] = {
    "hidden_layer_sizes": ["array-like", _COUNT],
    "activation": [str, AbstractActivation],
    "objective": [str, AbstractObjective],
    "likelihood": [str, type, AbstractLikelihood],
    "weights": [str],
    "output_covariance": ["boolean"],
    "propagation": [StrOptions(set(PROPAGATIONS))],
    "row_covariance": [StrOptions({"weights", "gauss-newton"})],
    "prior": [StrOptions({"learned", "per-layer", "fixed", "ard"}), priors.AbstractPrior],
    "kl_weight": [_AMOUNT, None],
    "kl_warmup": [StrOptions({"auto"}), Interval(numbers.Integral, 0, None, closed="left")],
    "dropout": [_SHARE],
    "drop_connect": [_SHARE],
    "input_noise": [_AMOUNT],
    "n_restarts": [_COUNT],
    "n_members": [_COUNT],
    "validation": [StrOptions({"check", "bag"}), None],
    "batch_size": [StrOptions({"auto"}), _COUNT, None],
    "learning_rate_init": [_AMOUNT, None],
    "max_iter": [_COUNT, None],
    "tol": [_AMOUNT, None],
    "n_iter_no_change": [_COUNT, None],
    "recipe": [Recipe, None],
    "warm_start": ["boolean"],
    "random_state": ["random_state"],
    "dtype": [StrOptions({"float32", "float64"})],
    "verbose": ["verbose"],
    "devices": [StrOptions({"all"}), None],
    "n_jobs": [numbers.Integral, None],
}


def layer_sizes(value: Any) -> tuple[int, ...]:
    """Return `hidden_layer_sizes` as a tuple; one number is one layer, as in scikit-learn.

    Examples
    --------
    >>> layer_sizes(20), layer_sizes([10, 5])
    ((20,), (10, 5))
    """
    sizes = (value,) if isinstance(value, numbers.Integral) else tuple(value)
    for size in sizes:
        if not isinstance(size, numbers.Integral) or isinstance(size, bool) or size < 1:
            raise ValueError(
                f"hidden_layer_sizes must be whole numbers of at least 1, but one is {size!r}."
            )
    return tuple(map(int, sizes))


def likelihood_class(options: Mapping[str, Any]) -> type[AbstractLikelihood]:
    """Return the kind of likelihood that is chosen.

    Examples
    --------
    >>> likelihood_class({"likelihood": "gaussian"}).__name__
    'GaussianLikelihood'
    """
    found = chosen(AbstractLikelihood, options["likelihood"], "likelihood")
    return found if isinstance(found, type) else type(found)


def make_objective(options: Mapping[str, Any]) -> AbstractObjective:
    """Return what to minimize.

    Examples
    --------
    >>> type(make_objective({"objective": "vi", "weights": "gaussian"})).__name__
    'VI'
    """
    objective = chosen(AbstractObjective, options["objective"], "objective")
    objective = objective() if isinstance(objective, type) else objective
    if options["weights"] == "bernoulli" and isinstance(objective, SampledVI):
        raise ValueError(
            "objective='sampled-vi' cannot train weights='bernoulli', whose draws have no "
            "gradient: take 'vi' or 'ropd'."
        )
    return objective


def make_recipe(options: Mapping[str, Any], n_rows: int) -> Recipe:
    """Translate scikit-learn's names, which count epochs, to a recipe, which counts steps.

    What is None or "auto" is `recipe`'s, or `Recipe`'s default; warm-up and cool-down shrink with
    `max_iter` in proportion, so that a short training has all its phases.

    Parameters
    ----------
    options
        Constructor arguments.
    n_rows
        Distinct training rows.

    Examples
    --------
    >>> from varprop import FAWNRegressor
    >>> recipe = make_recipe(FAWNRegressor(max_iter=10, batch_size=32).get_params(), 64)
    >>> recipe.max_steps, recipe.batch_size
    (20, 32)
    """
    base = Recipe() if options["recipe"] is None else options["recipe"]
    batch = base.batch_size if options["batch_size"] == "auto" else options["batch_size"]
    if batch is None or n_rows <= batch:
        batch = None  # one full batch: nothing to shuffle
    per_epoch = 1 if batch is None else -(-n_rows // batch)
    max_steps = base.max_steps
    if options["max_iter"] is not None:
        max_steps = options["max_iter"] * per_epoch
    share = min(1.0, max_steps / base.max_steps)
    warmup, stop = options["kl_warmup"], base.stop
    own = ("max_iter", "n_iter_no_change", "tol")
    if stop is None and any(options[name] is not None for name in own):
        stop = StopRule()  # a plan that was changed is none: has the loss converged?
    if options["n_iter_no_change"] is not None:
        assert stop is not None
        patience = min(stop.patience, options["n_iter_no_change"])
        window = round(options["n_iter_no_change"] / patience) * per_epoch
        stop = dataclasses.replace(stop, patience=patience, window=window)
    if options["tol"] is not None:
        assert stop is not None
        stop = dataclasses.replace(stop, tol=float(options["tol"]))
    rate = options["learning_rate_init"]
    return base.replace(
        learning_rate=base.learning_rate if rate is None else float(rate),
        kl_weight=weight_of_kl(options["kl_weight"], base),
        kl_warmup=round(base.kl_warmup * share) if warmup == "auto" else warmup * per_epoch,
        cooldown=round(base.cooldown * share),
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


def make_model(
    options: Mapping[str, Any],
    n_features: int,
    n_targets: int,
    key: PRNGKeyArray,
    *,
    y: np.ndarray | None = None,
) -> Model:
    """Return a fresh model, in JAX's float type of the moment; y as in `regression_model`.

    Examples
    --------
    >>> from varprop import FAWNRegressor
    >>> make_model(FAWNRegressor().get_params(), 3, 2, jax.random.key(0)).likelihood.n_outputs
    2
    """
    sizes = layer_sizes(options["hidden_layer_sizes"])
    activation = chosen(AbstractActivation, options["activation"], "activation")
    weights = chosen(AbstractWeights, options["weights"], "weights")
    prior, bernoulli = options["prior"], options["weights"] == "bernoulli"
    if prior in ("per-layer", "ard") and bernoulli:
        raise ValueError(f"prior={prior!r} is for weights='gaussian' only.")
    if isinstance(prior, str):
        prior = {
            "learned": lambda: None,  # the one that fits the weights
            "per-layer": lambda: priors.LearnedGaussianPerLayer(len(sizes) + 1),
            "fixed": priors.FixedBernoulli if bernoulli else priors.FixedGaussian,
            "ard": priors.AutomaticRelevance,
        }[prior]()
    elif isinstance(prior, priors.LearnedGaussianPerLayer) and len(prior.mean) != len(sizes) + 1:
        raise ValueError(
            f"prior has {len(prior.mean)} layers, but the network has {len(sizes) + 1}."
        )
    dropout, connect, jitter = (
        options[name] for name in ("dropout", "drop_connect", "input_noise")
    )
    likelihood = chosen(AbstractLikelihood, options["likelihood"], "likelihood")
    given = (activation() if isinstance(activation, type) else activation, prior, likelihood)
    # Objects made elsewhere, perhaps in the other precision, get JAX's float type of now.
    activation, prior, likelihood = jax.tree.map(
        lambda leaf: (
            jnp.asarray(leaf, jnp.result_type(float))
            if isinstance(leaf, jax.Array | np.ndarray) and jnp.issubdtype(leaf.dtype, jnp.floating)
            else leaf
        ),
        given,
    )
    return regression_model(
        n_features,
        n_targets,
        key=key,
        likelihood=likelihood,
        y=y,
        hidden_layer_sizes=sizes,
        activation=activation,
        weights=weights.init,
        prior=prior,
        joint=bool(options["output_covariance"]),
        propagation=options["propagation"],
        hidden_noise=Dropout(dropout) if dropout else None,
        weight_noise=DropConnect(connect, rescale=True) if connect else None,
        input_noise=GaussianWeightNoise(jitter) if jitter else None,
    )
