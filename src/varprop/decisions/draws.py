"""Looking into the networks of a regressor: one that is drawn, and all of them linearized."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from varprop.data.statistics import Scaling
from varprop.estimators.inputs import rows_to_predict
from varprop.estimators.members import member_dtype, to_jax
from varprop.estimators.regressor import FAWNRegressor
from varprop.estimators.stack import StackedRegressor
from varprop.learning.model import Model
from varprop.learning.priors import weights_by_layer
from varprop.nn.parameters import take_apart
from varprop.nn.weights import AbstractWeights, GaussianWeights, PointWeights
from varprop.predictive.simple import LINEAR, LinearModel
from varprop.training.kernel import as_input, padded
from varprop.training.result import propagate

Function = Callable[[Any], np.ndarray]
_BLOCK = 256


def draw_function(model: Any, random_state: Any = None) -> Function:
    """Draw one function that a regressor holds possible: Thompson sampling's step.

    A network whose weights are drawn once is a plain network: the same function for all rows, at
    the price of a plain forward pass. Of several members, and of the parts of a stack, one is drawn
    first, by its weight. With ``row_covariance="gauss-newton"`` it is drawn from the network's
    linearization, which is what that covariance is of.

    Parameters
    ----------
    model : FAWNRegressor or StackedRegressor
        Fitted. Where the objective does not tell the model's doubt from noise, as ROPD, some of the
        noise is among the weights, and functions differ by more than they should.
    random_state : int, RandomState or None

    Returns
    -------
    callable
        Takes rows X, and returns what the target is on the average if that function is the true
        one, of the shape of `predict`.

    Examples
    --------
    >>> from varprop import FAWNRegressor
    >>> X = np.linspace(-1, 1, 20)[:, None]
    >>> model = FAWNRegressor(5, objective="vi", max_iter=10, random_state=0, validation=None)
    >>> f = draw_function(model.fit(X, X[:, 0]), random_state=0)
    >>> f(X).shape, bool(np.allclose(f(X)[:3], f(X[:3]), rtol=1e-4))
    ((20,), True)
    """
    _check(model)
    rng = check_random_state(random_state)
    parts: list[tuple[float, Any]]
    if isinstance(model, StackedRegressor):
        networks = dict(model.estimators_) | {LINEAR: model.linear_}
        parts = [(weight, networks.get(name)) for name, weight in model.weights_.items()]
    else:
        trust = 1.0 if model.trust_ is None else model.trust_
        parts = [(trust, model), (1.0 - trust, None)]
    part = parts[_choice(rng, [weight for weight, _ in parts])][1]
    squeeze = model._y_ndim == 1
    if isinstance(part, LinearModel):
        drawn = _drawn_line(part, rng)
        function: Function = lambda X: drawn.predict_dist(X, squeeze=squeeze).mean  # noqa: E731
    elif part is None:
        constant = model._constant().mean
        function = lambda X: np.repeat(constant, len(X), axis=0)  # noqa: E731
    else:
        member = part.members_[_choice(rng, part.shares_)]
        function = _drawn_network(member, part.scaling_, rng, squeeze=squeeze)
    return lambda X: function(rows_to_predict(model, X, None, None)[0])


def linear_features(model: Any, X: Any) -> np.ndarray:
    """Return rows in the space in which a network's doubt is a sum of squares.

    With slopes J of the mean by the weights and R the root of the weights' covariance (their
    standard deviations, or all of it with ``row_covariance="gauss-newton"``) these are J R, in the
    target's units: the inner product of two rows is, to first order in the weights, the covariance
    of what the model is unsure of. Several members are put side by side, by the root of their
    shares, with the distance of their means; of a stack its networks, by their weights.

    Parameters
    ----------
    model : FAWNRegressor or StackedRegressor
        Fitted on one target.
    X : array-like of shape (n, features)

    Returns
    -------
    ndarray of shape (n, p)

    Examples
    --------
    >>> from varprop import FAWNRegressor
    >>> X = np.linspace(-1, 1, 20)[:, None]
    >>> model = FAWNRegressor(5, objective="vi", max_iter=10, random_state=0, validation=None)
    >>> linear_features(model.fit(X, X[:, 0]), X).shape
    (20, 16)
    """
    _check(model)
    if model.n_outputs_ != 1:
        raise ValueError(f"features are those of one target, but the model has {model.n_outputs_}.")
    X, _ = rows_to_predict(model, X, None, None)
    networks: list[tuple[float, Any]] = [(1.0, model)]
    if isinstance(model, StackedRegressor):
        weights = model.weights_
        networks = [(weights[name], part) for name, part in model.estimators_ if weights[name] > 0]
    if not networks:
        raise ValueError("the model has no network that counts: there is nothing to linearize.")
    shares = np.concatenate([weight * part.shares_ for weight, part in networks])
    shares = shares / shares.sum()
    found, means = [], []
    for (_, part), member in ((pair, m) for pair in networks for m in pair[1].members_):
        with jax.enable_x64(member_dtype(member) == np.float64):
            mean, slopes = _linearized(to_jax(member), part.scaling_, X)
        scale, shift = part.scaling_.y_scale[0], part.scaling_.y_shift[0]
        found.append(scale * slopes)
        means.append(shift + scale * mean)
    apart = np.stack(means, axis=1) - (np.stack(means) * shares[:, None]).sum(axis=0)[:, None]
    root = np.sqrt(shares)
    whole = [share * part for share, part in zip(root, found, strict=True)]
    return np.concatenate([*whole, apart * root] if len(found) > 1 else whole, axis=1)


def _drawn_network(
    member: Model, scaling: Scaling, rng: np.random.RandomState, *, squeeze: bool
) -> Function:
    """Return a drawn network as a function of rows in the user's units."""
    with jax.enable_x64(member_dtype(member) == np.float64):
        member = to_jax(member)
        if member.weight_root is not None:
            z = rng.standard_normal(member.weight_root.shape[1])
            targets = scaling.of_targets(member.likelihood.n_targets)

            def linear(X: np.ndarray) -> np.ndarray:
                with jax.enable_x64(member_dtype(member) == np.float64):
                    mean, slopes = _linearized(member, scaling, X, whole=True)
                f = targets.y_shift + targets.y_scale * (mean + slopes @ z)
                return f[:, 0] if squeeze else f

            return linear
        key = jax.random.key(rng.randint(np.iinfo(np.int32).max))
        plain = dataclasses.replace(member, network=_with_drawn_weights(member.network, key))

    def function(X: np.ndarray) -> np.ndarray:
        with jax.enable_x64(member_dtype(plain) == np.float64):
            return propagate(plain, X, scaling=scaling, squeeze=squeeze).mean

    return function


def _with_drawn_weights(network: Any, key: Any) -> Any:
    """Return the network with every weight known: what is drawn of it."""
    is_weights = lambda node: isinstance(node, AbstractWeights)  # noqa: E731
    leaves, tree = jax.tree.flatten(network, is_leaf=is_weights)
    keys = jax.random.split(key, len(leaves))
    drawn = [
        PointWeights(leaf.sample(own)) if is_weights(leaf) else leaf
        for leaf, own in zip(leaves, keys, strict=True)
    ]
    return jax.tree.unflatten(tree, drawn)


def _drawn_line(line: LinearModel, rng: np.random.RandomState) -> LinearModel:
    """Return a linear model with drawn coefficients, which turn about the center."""
    drawn = np.stack(
        [rng.multivariate_normal(coef, cov) for coef, cov in zip(line.coef, line.cov, strict=True)]
    )
    shift = line.intercept + (line.coef - drawn) @ line.center
    return dataclasses.replace(line, coef=drawn, intercept=shift, cov=np.zeros_like(line.cov))


def _linearized(
    member: Model, scaling: Scaling, X: np.ndarray, *, whole: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Return means and slopes times the root of the weights' covariance, standardized.

    Shapes (n,) and (n, p) for the first target, (n, d) and (n, d, p) for the `whole`.
    """
    structure, params, constants = take_apart(member)
    found = []
    for start in range(0, max(len(X), 1), _BLOCK):
        rows = X[start : start + _BLOCK]
        x, _ = padded(scaling.inputs(rows, None, params.dtype), _BLOCK)
        out = _linearized_block(structure, params, constants, x)
        found.append([np.asarray(part, np.float64)[: len(rows)] for part in out])
    mean, slopes = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return (mean, slopes) if whole else (mean[:, 0], slopes[:, 0])


@functools.partial(jax.jit, static_argnums=0)
def _linearized_block(structure: Any, params: Any, constants: Any, x: Any) -> Any:
    model: Model = structure.build(params, constants)
    rows = as_input(x, None)
    mean = model.predictive(rows)[0].model.mean
    if model.weight_root is not None:
        return mean, model.shared(rows)
    std = [
        jnp.exp(part.log_std).ravel()
        for layer in weights_by_layer(model.network)
        for part in layer
        if isinstance(part, GaussianWeights)
    ]
    if not std:
        raise TypeError("only networks with Gaussian weights have features.")
    return mean, model.slopes(rows) * jnp.concatenate(std)


def _choice(rng: np.random.RandomState, weights: Any) -> int:
    share = np.asarray(weights, np.float64)
    return int(rng.choice(len(share), p=share / share.sum()))


def _check(model: Any) -> None:
    if not isinstance(model, FAWNRegressor | StackedRegressor):
        raise TypeError(
            "functions and features are those of FAWNRegressor and StackedRegressor, not of "
            f"{type(model).__name__}."
        )
    check_is_fitted(model)
