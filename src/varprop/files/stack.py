"""A fitted StackedRegressor as a file, with what is known of the table it was fitted on."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np
from sklearn.base import clone

from varprop.data.statistics import Scaling
from varprop.estimators.base import AbstractRegressor
from varprop.estimators.regressor import FAWNRegressor
from varprop.estimators.stack import CONSTANT, LINEAR, StackedRegressor
from varprop.files.container import ArraySpec, ModelFileError, read_model_file, write_model_file
from varprop.files.model import shapes
from varprop.files.regressor import (
    build_alone,
    build_regressor,
    build_scaling,
    check_alone,
    check_finite,
    check_names,
    check_regressor,
    describe_regressor,
    libraries,
    libraries_of,
    load_regressor,
    save_regressor,
    scaling_shapes,
    take_out,
)
from varprop.files.seen import build_seen, check_seen, describe_seen
from varprop.predictive.simple import LinearModel

R = TypeVar("R", bound=AbstractRegressor)
_KEYS = {
    "class",
    "feature_names",
    "n_features",
    "n_outputs",
    "networks",
    "out_of_fold_nll",
    "target_names",
    "weights",
    "y_ndim",
}
_LINE = ("center", "coef", "intercept", "noise_var", "cov")


def save_estimator(model: AbstractRegressor, path: str | os.PathLike[str]) -> None:
    """Write any fitted estimator to one .safetensors file; see `AbstractRegressor.save`."""
    if isinstance(model, StackedRegressor):
        save_stack(model, path)
    else:
        assert isinstance(model, FAWNRegressor)
        save_regressor(model, path)


def load_estimator(kind: type[R], path: str | os.PathLike[str]) -> R:
    """Read an estimator of a kind; a single network may be read as a stack of one."""
    found = load_stack(path)[0] if issubclass(kind, StackedRegressor) else load_regressor(path)
    assert isinstance(found, kind)
    return found


def save_stack(
    model: StackedRegressor,
    path: str | os.PathLike[str],
    *,
    table: Mapping[str, Any] | None = None,
) -> None:
    """Write a fitted stack to one .safetensors file; see `AbstractRegressor.save`.

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
        "class": "StackedRegressor",
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
    if table is not None:
        header["table"] = dict(table)
    arrays |= kept
    for name in ("x_shift", "x_scale", "y_shift", "y_scale"):
        arrays[f"scaling.{name}"] = getattr(model.scaling_, name)
    if model.linear_ is not None:
        arrays |= {f"linear.{name}": getattr(model.linear_, name) for name in _LINE}
    write_model_file(path, header, {name: np.asarray(array) for name, array in arrays.items()})


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None


def load_stack(path: str | os.PathLike[str]) -> tuple[StackedRegressor, dict[str, Any] | None]:
    """Read a stack, and what is known of its table: JSON, not checked, or None.

    A file that holds a single `FAWNRegressor` is read as a stack of this network alone.
    """
    header, arrays = read_model_file(path, _check)
    check_finite(arrays)
    if header["class"] == "FAWNRegressor":
        return _of_network(header, arrays), header.get("table")
    model = StackedRegressor()
    model.n_features_in_, model.n_outputs_ = header["n_features"], header["n_outputs"]
    if header["feature_names"] is not None:
        model.feature_names_in_ = np.array(header["feature_names"], dtype=object)
    model.target_names_, model._y_ndim = header["target_names"], header["y_ndim"]
    model.scaling_ = build_scaling(arrays, "")
    build_seen(model, header, arrays)
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
    if LINEAR in model.weights_:
        model.linear_ = LinearModel(model.scaling_, *(arrays[f"linear.{name}"] for name in _LINE))
    model._describe_training()
    return model, header.get("table")


def _of_network(header: dict[str, Any], arrays: dict[str, np.ndarray]) -> StackedRegressor:
    """Return a stack of the one network in a file, with the linear model that older files have."""
    old = {name: arrays.pop(name) for name in list(arrays) if name.startswith("linear.")}
    network = build_alone(header, arrays)
    model = StackedRegressor([("network", clone(network))])
    for name in ("n_features_in_", "n_outputs_", "_y_ndim", "target_names_", "scaling_"):
        setattr(model, name, getattr(network, name))
    if hasattr(network, "feature_names_in_"):
        model.feature_names_in_ = network.feature_names_in_
    model.domain_, model.fingerprints_ = network.domain_, network.fingerprints_
    model.n_seen_ = network.n_seen_
    model.estimators_, model.linear_, model.out_of_fold_nll_ = [("network", network)], None, {}
    trust = 1.0 if network.trust_ is None else network.trust_
    model.weights_ = {"network": trust, CONSTANT: 1 - trust}
    if old:
        d = network.n_outputs_
        # It was in the targets' units, and its center was its shift.
        scaling = Scaling(old["linear.center"], old["linear.scale"], np.zeros(d), np.ones(d))
        old["linear.center"] = np.zeros_like(old["linear.center"])
        model.linear_ = LinearModel(scaling, *(old[f"linear.{name}"] for name in _LINE))
        model.weights_ = {"network": trust, LINEAR: 0.0, CONSTANT: 1 - trust}
    model._describe_training()
    return model


def _check(header: dict[str, Any], table: dict[str, ArraySpec]) -> None:
    """Raise ModelFileError unless the header is complete and the arrays are what it calls for."""
    left = shapes(table)
    if header.get("class") == "FAWNRegressor":
        _check_old_line(header, left)
        check_alone(header, table)
        return
    if header.get("class") != "StackedRegressor":
        raise ModelFileError(f"the file holds no regressor: {str(header.get('class'))[:80]!r}.")
    libraries_of(header)
    around = ("libraries", "table", "domain", "seen", "n_seen")
    rest = {name: value for name, value in header.items() if name not in around}
    if set(rest) != _KEYS:
        raise ModelFileError("the header lacks an entry or has one too many.")
    n, d = rest["n_features"], rest["n_outputs"]
    if any(type(size) is not int or not 1 <= size < 2**31 for size in (n, d)):
        raise ModelFileError("n_features or n_outputs in the header is out of range.")
    check_seen(dict(header), left)
    if type(header.get("table", {})) is not dict:
        raise ModelFileError("the description of the table is damaged.")
    check_names(rest)
    names = []
    for number, entry in enumerate(_list(rest["networks"])):
        if not isinstance(entry, dict) or set(entry) != {"name", "regressor"}:
            raise ModelFileError("the description of a network is damaged.")
        regressor = entry["regressor"]
        if not isinstance(entry["name"], str) or not isinstance(regressor, dict):
            raise ModelFileError("the description of a network is damaged.")
        check_regressor(regressor, left, f"network.{number}.")
        if (regressor["n_features"], regressor["n_outputs"]) != (n, d):
            raise ModelFileError("a network has other inputs or targets than the header says.")
        names.append(entry["name"])
    weights, scores = _pairs(rest["weights"]), _pairs(rest["out_of_fold_nll"], none=True)
    if not set(names) <= set(weights) <= {*names, LINEAR, CONSTANT} or CONSTANT not in weights:
        raise ModelFileError("the weights do not belong to the models.")
    total = sum(weights.values())
    if min(weights.values()) < 0 or not 0.999 < total < 1.001 or len(set(names)) < len(names):
        raise ModelFileError("the weights are not those of a mixture.")
    if not set(scores) <= {*weights, "stack"}:
        raise ModelFileError("the scores do not belong to the models.")
    take_out(left, scaling_shapes(n, d))
    if LINEAR in weights:
        take_out(left, _line_shapes(n, d))
    if left:
        raise ModelFileError(f"array {min(left)[:80]!r} is unknown.")


def _check_old_line(header: dict[str, Any], left: dict[str, Any]) -> None:
    lines = {name: left[name] for name in left if name.startswith("linear.")}
    n, d = header.get("n_features"), header.get("n_outputs")
    if lines and "table" in header and type(n) is type(d) is int:
        take_out(lines, {"linear.scale": (n,), **_line_shapes(n, d)})
    if lines:
        raise ModelFileError(f"array {min(lines)[:80]!r} is unknown.")


def _line_shapes(n: int, d: int) -> dict[str, tuple[int, ...]]:
    sizes = zip(_LINE, ((n,), (d, n), (d,), (d,), (d, n, n)), strict=True)
    return {f"linear.{name}": size for name, size in sizes}


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ModelFileError("the description of the model is damaged.")
    return value


def _pairs(value: Any, *, none: bool = False) -> dict[str, Any]:
    """Return names with numbers, which JSON holds as a list to keep their order."""
    found = {}
    for pair in _list(value):
        if not isinstance(pair, list) or len(pair) != 2 or not isinstance(pair[0], str):
            raise ModelFileError("the description of the model is damaged.")
        if type(pair[1]) is not float and not (none and pair[1] is None):
            raise ModelFileError("the description of the model is damaged.")
        found[pair[0]] = pair[1]
    return found
