"""A plan from a model file, without JAX: what the classes in a file mean, in arrays.

A file is trusted no more than elsewhere: whatever does not fit is a `ModelFileError`. A file that
is sound but whose model has no plan, such as one of format 1, is a `PlanError`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from varprop.files.container import ArraySpec, ModelFileError, read_model_file
from varprop.files.header import (
    LINE,
    build_scaling,
    check_finite,
    check_network,
    check_nothing_left,
    check_one,
    check_stack,
)
from varprop.files.seen import build_seen
from varprop.plans.ends import CLASS_ENDS, ENDS
from varprop.plans.plan import Networks, Plan
from varprop.plans.propagation import check_steps
from varprop.plans.rules import RULES
from varprop.plans.steps import (
    Activation,
    Dense,
    Network,
    Noise,
    PlanError,
    Quadrature,
    Step,
    Traced,
)
from varprop.predictive.simple import CONSTANT, LINEAR, LinearModel
from varprop.training.recipe import Recipe, weight_of_kl

# Objectives that tell model and noise apart, or do not, as files name them.
_IDENTIFIED = {"vi": True, "VI": True, "sampled-vi": True, "SampledVI": True}
_IDENTIFIED |= {"ropd": False, "ROPD": False, "MaximumLikelihood": False}
_PROPAGATIONS = ("first-order", "second-order", "independent")
_MAX_NODES = 1024
# Estimators that are one part of a plan, not several.
_ALONE = ("FAWNRegressor", "FAWNClassifier")


class Node(NamedTuple):
    """An object of a model, by the name of its class and its fields."""

    kind: str
    fields: dict[str, Any]


class Moments(NamedTuple):
    """Mean and variance of an array of random numbers; None for no variance."""

    mean: np.ndarray
    var: np.ndarray | None


def load_plan(path: str | os.PathLike[str]) -> tuple[Plan, dict[str, Any] | None]:
    """Read the plan of a fitted estimator, and what is known of its table: JSON, not checked.

    Raises
    ------
    ModelFileError
        If the file is damaged, or holds no estimator.
    PlanError
        If its model has no plan; the message says which part.
    """
    header, arrays = read_model_file(path, _check)
    check_finite(arrays)
    try:
        with np.errstate(all="ignore"):  # what overflows is found out when it predicts
            return _plan(header, arrays), header.get("table")
    except (PlanError, ModelFileError):
        raise
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, RecursionError) as error:
        raise ModelFileError("no network of this description can be built.") from error


def _check(header: dict[str, Any], table: dict[str, ArraySpec]) -> None:
    """Check what can be without looking into the networks, whose arrays all have their prefix."""
    left: dict[str, Any] = dict(table)
    if header.get("class") in _ALONE:
        check_one(header, left, check_network)
    else:
        check_stack(header, left, check_network)
    inner = ("member.", "params.")
    check_nothing_left({n: a for n, a in left.items() if not any(part in n for part in inner)})


def _plan(header: dict[str, Any], arrays: dict[str, np.ndarray]) -> Plan:
    parts: dict[str, Any] = {}
    if header["class"] in _ALONE:
        trust = header.get("trust")
        trust = 1.0 if trust is None else trust
        parts = {"network": _networks(header, arrays, "")}
        weights = {"network": trust, CONSTANT: 1 - trust}
        if "linear.coef" in arrays:  # which older versions kept: too little is known of it here
            raise PlanError("the linear model of an older version has no plan.")
    else:
        for number, entry in enumerate(header["networks"]):
            parts[entry["name"]] = _networks(entry["regressor"], arrays, f"network.{number}.")
        weights = dict(header["weights"])
    scaling, seen = build_scaling(arrays, ""), SimpleNamespace()
    if LINEAR in weights and LINEAR not in parts:
        parts[LINEAR] = LinearModel(scaling, *(arrays[f"linear.{name}"] for name in LINE))
    build_seen(seen, header, arrays)
    names, targets = header["feature_names"], header["target_names"]
    classes = np.array(header.get("classes", ()))
    constant = arrays.get("constant", np.empty(0))
    if len(classes) and constant.shape != classes.shape:
        raise ModelFileError("the frequencies of the classes are damaged.")
    return Plan(
        scaling,
        {**parts, CONSTANT: None},
        weights,
        header["y_ndim"] == 1,
        n_seen_=seen.n_seen_,
        domain_=seen.domain_,
        feature_names_in_=None if names is None else tuple(names),
        target_names_=None if targets is None else tuple(targets),
        classes_=classes,
        constant_numbers_=constant,
    )


def _networks(header: dict[str, Any], arrays: dict[str, np.ndarray], prefix: str) -> Networks:
    if "members" not in header:
        raise PlanError("a network of format 1 has no plan.")
    objective = header["params"].get("objective", "vi" if "classes" in header else "ropd")
    if isinstance(objective, dict):
        objective = objective.get("type", objective.get("class"))
    if objective not in _IDENTIFIED:
        raise PlanError(f"the objective {str(objective)[:80]!r} has no plan.")
    trees = header["members"]
    if len(trees) != header["n_members"]:
        raise ModelFileError("there are more or fewer members than the header says.")
    shares = arrays.get(f"{prefix}shares", np.full(len(trees), 1 / len(trees)))
    if (shares < 0).any() or not 0.999 < shares.sum() < 1.001:
        raise ModelFileError("the shares of the members are not those of a mixture.")
    sizes = header["n_features"], header["n_outputs"]
    classes = len(header.get("classes", ()))
    members = [
        network_of(_node(tree, arrays), *sizes, float(share), n_classes=classes)
        for tree, share in zip(trees, shares, strict=True)
    ]
    return Networks(tuple(members), _IDENTIFIED[objective] and _counts_whole_kl(header["params"]))


def _counts_whole_kl(params: dict[str, Any]) -> bool:
    """Whether a network was trained with all of the KL divergence, or more."""
    try:
        recipe = params.get("recipe")
        known = None if recipe is None else Recipe.from_dict(recipe["recipe"])
        return weight_of_kl(params.get("kl_weight"), known) >= 1
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ModelFileError("the recipe or kl_weight of a network is damaged.") from error


def _node(tree: Any, arrays: dict[str, np.ndarray]) -> Any:
    """Return what a file describes: classes as nodes, sequences, arrays in float64, numbers."""
    if not isinstance(tree, dict):
        return tree
    if set(tree) == {"array"}:
        return np.asarray(arrays[tree["array"]], np.float64)
    for name in ("tuple", "list"):
        if set(tree) == {name}:
            return [_node(part, arrays) for part in tree[name]]
    if set(tree) != {"class", "fields"} or not isinstance(tree["class"], str):
        raise ModelFileError("the description of the model is damaged.")
    fields = {name: _node(part, arrays) for name, part in tree["fields"].items()}
    return Node(tree["class"], fields)


# ---- what classes mean --------------------------------------------------------------------------


def network_of(
    model: Node, n_inputs: int, n_targets: int, share: float = 1.0, *, n_classes: int = 0
) -> Network:
    """Return the plan of one model.

    Parameters
    ----------
    model
        Of the class `varprop.Model`.
    n_inputs, n_targets
        That it must have.
    share
        Of the network among others.
    n_classes
        That there must be; 0 where targets are numbers.

    Raises
    ------
    PlanError
        Naming the part that has no plan, or that does not fit.
    """
    if not isinstance(model, Node) or model.kind != "Model":
        raise ModelFileError("the file holds no model.")
    network, end = model.fields["network"], model.fields["likelihood"]
    if model.fields.get("weight_root") is not None:
        raise PlanError(
            "row_covariance='gauss-newton' has no plan, and so no export: fit without it."
        )
    propagation = "independent"
    if network.kind == "Sequential":
        propagation = network.fields.get("propagation", "independent")
    if propagation not in _PROPAGATIONS:
        raise ModelFileError(f"the propagation {str(propagation)[:80]!r} is unknown.")
    ends = CLASS_ENDS if n_classes else ENDS
    if end.kind not in ends:
        raise PlanError(
            f"the likelihood {end.kind} has no plan, and so it can be neither exported nor run "
            "without JAX."
        )
    steps = tuple(_steps(network))
    try:
        numbers, n_outputs = ends[end.kind].numbers(end.fields, n_classes or n_targets)
    except (KeyError, TypeError, ValueError) as error:
        raise ModelFileError("the numbers of the likelihood are damaged.") from error
    if not steps or check_steps(steps, n_inputs) != n_outputs:
        raise ModelFileError("the network's outputs do not fit the likelihood.")
    return Network(steps, propagation, end.kind, numbers, share)


def _steps(layer: Any) -> Iterator[Step]:
    if isinstance(layer, Traced | Quadrature):
        yield layer
        return
    kind, fields = layer
    if kind == "Sequential":
        for part in fields["layers"]:
            yield from _steps(part)
    elif kind in ("Dense", "JointDense"):
        weight = _corrupted(_weights(fields["weight"]), fields["weight_noise"])
        bias = Moments(None, None)  # type: ignore[arg-type]
        if fields["bias"] is not None:
            bias = _corrupted(_weights(fields["bias"]), fields["bias_noise"])
        yield Dense(*weight, *bias, joint=kind == "JointDense")
    elif kind in RULES:
        numbers = {name: float(value) for name, value in fields.items()}
        if not 1 <= numbers.get("n_nodes", 1) <= _MAX_NODES:
            raise ModelFileError(f"n_nodes of {kind} is out of range.")
        yield Activation(kind, numbers)
    else:
        yield _noise(layer)


def _weights(node: Any) -> Moments:
    """Return mean and variance of an array of weights."""
    if isinstance(node, Moments):
        return node
    kind, fields = node
    if kind == "GaussianWeights":
        return Moments(fields["mean"], np.exp(2 * fields["log_std"]))
    if kind == "BernoulliWeights":
        scale, half = np.exp(fields["log_scale"]), np.tanh(0.5 * fields["logit"])
        return Moments(0.5 * half * scale, 0.25 * (1 - half) * (1 + half) * np.square(scale))
    if kind == "PointWeights":
        return Moments(fields["value"], None)
    raise PlanError(f"weights of the class {kind} have no plan.")


def _variable(node: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and variance of a noise variable."""
    if isinstance(node, Moments):
        return node.mean, np.zeros(()) if node.var is None else node.var
    kind, fields = node
    if kind == "Normal":
        return fields["mean"], np.square(fields["std"])
    if kind == "Bernoulli":
        p, scale = fields["p"], fields["scale"]
        return p * scale, p * (1 - p) * np.square(scale)
    if kind == "Uniform":
        low, high = fields["low"], fields["high"]
        return 0.5 * (low + high), np.square(high - low) / 12
    raise PlanError(f"noise by the variable {kind} has no plan.")


def _noise(node: Node) -> Noise:
    zero = np.zeros(())
    if node.kind in ("AdditiveNoise", "GaussianWeightNoise"):
        return Noise(zero + 1, zero, *_variable(node.fields["eps"]))
    if node.kind in ("MultiplicativeNoise", "Dropout", "DropConnect"):
        mean, var = _variable(node.fields["eps"])
        return Noise(mean, var, zero, zero)
    raise PlanError(f"a layer of the class {node.kind} has no plan.")


def _corrupted(x: Moments, noise: Node | None) -> Moments:
    """Return the moments of weights with noise on top."""
    if noise is None:
        return x
    a, a_var, b, b_var = vars(_noise(noise)).values()
    var = np.square(x.mean) * a_var + b_var
    if x.var is not None:
        var = var + (np.square(a) + a_var) * x.var
    return Moments(x.mean * a + b, np.broadcast_to(var, x.mean.shape))
