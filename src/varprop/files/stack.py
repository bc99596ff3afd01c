"""A fitted stack as a file, with what is known of the table it was fitted on."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np
from sklearn.base import clone

from varprop.data.statistics import Scaling
from varprop.estimators.base import AbstractEstimator
from varprop.estimators.classifier import FAWNClassifier
from varprop.estimators.regressor import FAWNRegressor
from varprop.estimators.stack import StackedRegressor
from varprop.estimators.stack_classes import StackedClassifier
from varprop.estimators.stacking import AbstractStack
from varprop.files.container import ArraySpec, ModelFileError, read_model_file, write_model_file
from varprop.files.header import (
    LINE,
    build_scaling,
    check_finite,
    check_nothing_left,
    check_one,
    check_stack,
)
from varprop.files.model import class_of, shapes
from varprop.files.regressor import (
    NETWORKS,
    build_alone,
    build_regressor,
    check_regressor,
    describe_regressor,
    labels_of,
    libraries,
    load_regressor,
    save_regressor,
)
from varprop.files.seen import build_seen, describe_seen
from varprop.learning.likelihoods import AbstractLikelihood, GaussianLikelihood
from varprop.nn.registry import registered
from varprop.predictive.simple import CONSTANT, LINEAR, LinearModel

R = TypeVar("R", bound=AbstractEstimator)
_STACKS: dict[str, Any] = {kind.__name__: kind for kind in (StackedRegressor, StackedClassifier)}


def save_estimator(model: AbstractEstimator, path: str | os.PathLike[str]) -> None:
    """Write any fitted estimator to one .safetensors file; see `AbstractEstimator.save`."""
    if isinstance(model, AbstractStack):
        save_stack(model, path)
    else:
        assert isinstance(model, FAWNRegressor | FAWNClassifier)
        save_regressor(model, path)


def load_estimator(kind: type[R], path: str | os.PathLike[str]) -> R:
    """Read an estimator of a kind; a single network may be read as a stack of one."""
    found = load_stack(path)[0] if issubclass(kind, AbstractStack) else load_regressor(path)
    if not isinstance(found, kind):
        raise ModelFileError(f"the file holds a {type(found).__name__}, not a {kind.__name__}.")
    return found


def save_stack(
    model: AbstractStack,
    path: str | os.PathLike[str],
    *,
    table: Mapping[str, Any] | None = None,
) -> None:
    """Write a fitted stack to one .safetensors file; see `AbstractEstimator.save`.

    Parameters
    ----------
    model, path
        As there.
    table
        What is known of the table it was fitted on, as JSON; see `varprop.tables.model`.
    """
    networks: list[Any] = []
    arrays: dict[str, Any] = {}
    for number, (name, network) in enumerate(model.estimators_):
        header, parts = describe_regressor(network, f"network.{number}.")
        networks.append({"name": name, "regressor": header})
        arrays |= parts
    names = getattr(model, "feature_names_in_", None)
    seen, kept = describe_seen(model)
    header = {
        "class": type(model).__name__,
        "feature_names": None if names is None else [str(name) for name in names],
        "libraries": libraries(),
        "n_features": int(model.n_features_in_),
        "n_outputs": int(model.n_outputs_),
        "networks": networks,
        "out_of_fold_nll": [[name, _finite(nll)] for name, nll in model.out_of_fold_nll_.items()],
        "target_names": model.target_names_,
        "weights": [[name, float(weight)] for name, weight in model.weights_.items()],
        "y_ndim": model._y_ndim,
        **seen,
    }
    if isinstance(model, StackedClassifier):
        header["classes"] = labels_of(model.classes_)
    if model._kind is not GaussianLikelihood:
        if registered(model._kind.__name__) is not model._kind:
            raise ModelFileError(
                f"the likelihood {model._kind.__name__} is not registered: a file cannot name it."
            )
        header["likelihood"] = model._kind.__name__
        arrays["constant"] = model.constant_numbers_
    if table is not None:
        header["table"] = dict(table)
    arrays |= kept
    for name in ("x_shift", "x_scale", "y_shift", "y_scale"):
        arrays[f"scaling.{name}"] = getattr(model.scaling_, name)
    if model.linear_ is not None:
        arrays |= {f"linear.{name}": getattr(model.linear_, name) for name in LINE}
    write_model_file(path, header, {name: np.asarray(array) for name, array in arrays.items()})


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None


def load_stack(path: str | os.PathLike[str]) -> tuple[Any, dict[str, Any] | None]:
    """Read a stack, and what is known of its table: JSON, not checked, or None.

    A file that holds a single network is read as a stack of this one alone.
    """
    header, arrays = read_model_file(path, _check)
    check_finite(arrays)
    if header["class"] in NETWORKS:
        return _of_network(header, arrays), header.get("table")
    model: Any = _STACKS[header["class"]]()
    if "classes" in header:
        model.classes_ = np.array(header["classes"])
    model.n_features_in_, model.n_outputs_ = header["n_features"], header["n_outputs"]
    if header["feature_names"] is not None:
        model.feature_names_in_ = np.array(header["feature_names"], dtype=object)
    model.target_names_, model._y_ndim = header["target_names"], header["y_ndim"]
    model.scaling_ = build_scaling(arrays, "")
    build_seen(model, header, arrays)
    model._likelihood = _likelihood(header)
    model.constant_numbers_ = arrays.get("constant", np.empty(0))
    model.estimators_ = [
        (entry["name"], build_regressor(entry["regressor"], arrays, f"network.{number}."))
        for number, entry in enumerate(header["networks"])
    ]
    model.estimators = [(name, clone(network)) for name, network in model.estimators_]
    model.weights_ = dict(header["weights"])
    model.out_of_fold_nll_ = {
        name: np.inf if nll is None else nll for name, nll in header["out_of_fold_nll"]
    }
    model.linear_ = None
    if LINEAR in model.weights_ and LINEAR not in dict(model.estimators_):
        model.linear_ = LinearModel(model.scaling_, *(arrays[f"linear.{name}"] for name in LINE))
    model._describe_training()
    return model, header.get("table")


def _of_network(header: dict[str, Any], arrays: dict[str, np.ndarray]) -> Any:
    """Return a stack of the one network in a file, with the linear model that older files have."""
    old = {name: arrays.pop(name) for name in list(arrays) if name.startswith("linear.")}
    network = build_alone(header, arrays)
    kind = StackedClassifier if "classes" in header else StackedRegressor
    model: Any = kind([("network", clone(network))])
    if "classes" in header:
        model.classes_ = network.classes_
    for name in ("n_features_in_", "n_outputs_", "_y_ndim", "target_names_", "scaling_"):
        setattr(model, name, getattr(network, name))
    if hasattr(network, "feature_names_in_"):
        model.feature_names_in_ = network.feature_names_in_
    model.domain_, model.fingerprints_ = network.domain_, network.fingerprints_
    model.n_seen_, model._likelihood = network.n_seen_, network._kind
    model.constant_numbers_ = network.constant_numbers_
    model.estimators_, model.linear_, model.out_of_fold_nll_ = [("network", network)], None, {}
    trust = 1.0 if network.trust_ is None else network.trust_
    model.weights_ = {"network": trust, CONSTANT: 1 - trust}
    if old:
        d = network.n_outputs_
        # It was in the targets' units, and its center was its shift.
        scaling = Scaling(old["linear.center"], old["linear.scale"], np.zeros(d), np.ones(d))
        old["linear.center"] = np.zeros_like(old["linear.center"])
        model.linear_ = LinearModel(scaling, *(old[f"linear.{name}"] for name in LINE))
        model.weights_ = {"network": trust, LINEAR: 0.0, CONSTANT: 1 - trust}
    model._describe_training()
    return model


def _check(header: dict[str, Any], table: dict[str, ArraySpec]) -> None:
    """Raise ModelFileError unless the header is complete and the arrays are what it calls for."""
    left = shapes(table)
    if header.get("class") in NETWORKS:
        check_one(header, left, check_regressor)
    else:
        check_stack(header, left, check_regressor)
    check_nothing_left(left)


def _likelihood(header: dict[str, Any]) -> type[AbstractLikelihood]:
    """Return the likelihood of the constant model; older files have the Gaussian's."""
    if "likelihood" not in header:
        return GaussianLikelihood
    kind = class_of(header["likelihood"])
    if not issubclass(kind, AbstractLikelihood):
        raise ModelFileError("the likelihood in the header is none.")
    return kind
