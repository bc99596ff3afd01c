"""What the header of a regressor's file must be; read without JAX, for models and for plans."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from varprop.data.statistics import Scaling
from varprop.files.container import ModelFileError
from varprop.files.seen import check_seen
from varprop.predictive.simple import CONSTANT, LINEAR
from varprop.training.schedule import Outcome

CheckNetwork = Callable[[dict[str, Any], dict[str, Any], str], None]
NETWORK_KEYS: dict[str, Any] = {
    "class": str,
    "dtype": str,
    "feature_names": (list, type(None)),
    "loss": float,
    "n_features": int,
    "n_iter": int,
    "n_members": int,
    "n_outputs": int,
    "outcome": str,
    "params": dict,
    "target_names": (list, type(None)),
    "y_ndim": int,
}
STACK_KEYS = {
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
#: What a file may hold around its regressor.
AROUND = ("libraries", "table", "domain", "seen", "n_seen", "likelihood")
#: Arrays of a linear model.
LINE = ("center", "coef", "intercept", "noise_var", "cov")


def check_network(header: dict[str, Any], left: dict[str, Any], prefix: str) -> None:
    """Raise ModelFileError unless a network's header is complete; arrays are taken out of `left`.

    Its arguments and its members, and their arrays, are not looked at.
    """
    network = header.get("class")
    if network not in ("FAWNRegressor", "FAWNClassifier"):
        raise ModelFileError(f"the file holds no FAWNRegressor: {str(network)[:80]!r}.")
    # Which earlier versions may not have.
    later = {"members": list, "n_steps": int, "trust": (float, type(None))}
    keys = NETWORK_KEYS | ({"classes": list} if network == "FAWNClassifier" else {})
    if set(header) - set(later) != set(keys):
        raise ModelFileError("the header lacks an entry or has one too many.")
    for name, kind in (keys | later).items():
        if name not in header and name in later:
            continue
        if not isinstance(header[name], kind) or isinstance(header[name], bool):
            raise ModelFileError(f"{name} in the header has the wrong type.")
    if not 0 <= (header.get("trust") or 0) <= 1:
        raise ModelFileError("trust in the header is out of range.")
    for name in ("n_features", "n_outputs", "n_iter", "n_members"):
        if not 1 <= header[name] < 2**31:
            raise ModelFileError(f"{name} in the header is out of range.")
    if header["n_members"] > len(left):
        raise ModelFileError("there are fewer arrays than members.")
    known = {outcome.value for outcome in Outcome}
    if header["dtype"] not in ("float32", "float64") or header["outcome"] not in known:
        raise ModelFileError("dtype or outcome in the header is unknown.")
    check_names(header)
    n, d = header["n_features"], header["n_outputs"]
    curves = left.get(f"{prefix}training.restart_losses")
    if curves is None or len(curves.shape) != 2 or curves.shape[0] != header["n_members"]:
        raise ModelFileError("the losses of the restarts are damaged.")
    expected: dict[str, tuple[int, ...]] = {
        "training.loss_curve": (header["n_iter"],),
        "training.restart_losses": (header["n_members"], max(1, curves.shape[1])),
        **scaling_shapes(n, _n_columns(left, prefix, d)),
    }
    if f"{prefix}shares" in left:  # members of older files count the same
        expected["shares"] = (header["n_members"],)
    take_out(left, {f"{prefix}{name}": shape for name, shape in expected.items()})
    _take_constant(left, prefix)


def check_stack(header: dict[str, Any], left: dict[str, Any], check: CheckNetwork) -> None:
    """Raise ModelFileError unless a stack's header is complete and fits the arrays.

    Parameters
    ----------
    header
        Of the file.
    left
        Arrays, or their shapes and dtypes, by name; those that belong to it are taken out.
    check
        Does the same for each of its networks, whose arrays' names begin with a prefix.
    """
    networks = {"StackedRegressor": "FAWNRegressor", "StackedClassifier": "FAWNClassifier"}
    if (stack := header.get("class")) not in networks:
        raise ModelFileError(f"the file holds no regressor: {str(stack)[:80]!r}.")
    libraries_of(header)
    rest = {name: value for name, value in header.items() if name not in AROUND}
    if set(rest) != STACK_KEYS | ({"classes"} if stack == "StackedClassifier" else set()):
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
        if regressor.get("class") != networks[stack]:
            raise ModelFileError(f"a network of the stack is no {networks[stack]}.")
        check(regressor, left, f"network.{number}.")
        if (regressor["n_features"], regressor["n_outputs"]) != (n, d):
            raise ModelFileError("a network has other inputs or targets than the header says.")
        if regressor.get("classes") != rest.get("classes"):
            raise ModelFileError("a network has other classes than the header says.")
        names.append(entry["name"])
    weights, scores = _pairs(rest["weights"]), _pairs(rest["out_of_fold_nll"], none=True)
    if not set(names) <= set(weights) <= {*names, LINEAR, CONSTANT} or CONSTANT not in weights:
        raise ModelFileError("the weights do not belong to the models.")
    total = sum(weights.values())
    if min(weights.values()) < 0 or not 0.999 < total < 1.001 or len(set(names)) < len(names):
        raise ModelFileError("the weights are not those of a mixture.")
    if not set(scores) <= {*weights, "stack"}:
        raise ModelFileError("the scores do not belong to the models.")
    take_out(left, scaling_shapes(n, _n_columns(left, "", d)))
    _take_constant(left, "")
    if LINEAR in weights and LINEAR not in names:  # of classes it is a network
        take_out(left, _line_shapes(n, d))


def check_nothing_left(left: dict[str, Any]) -> None:
    """Raise ModelFileError if there are arrays that nothing has asked for."""
    if left:
        raise ModelFileError(f"array {min(left)[:80]!r} is unknown.")


def check_one(header: dict[str, Any], left: dict[str, Any], check: CheckNetwork) -> None:
    """Do what `check_stack` does for a file that holds one network.

    It may hold what older versions kept of its table.
    """
    if header.get("class") in ("FAWNRegressor", "FAWNClassifier"):
        _take_old_line(header, left)
    check({k: v for k, v in header.items() if k not in AROUND}, left, "")
    libraries_of(header)
    check_seen(dict(header), left)


def _take_old_line(header: dict[str, Any], left: dict[str, Any]) -> None:
    """Take the linear model out that older versions kept beside a network and its table."""
    lines = {name: left.pop(name) for name in list(left) if name.startswith("linear.")}
    n, d = header.get("n_features"), header.get("n_outputs")
    if lines and "table" in header and type(n) is type(d) is int:
        take_out(lines, {"linear.scale": (n,), **_line_shapes(n, d)})
    if lines:
        raise ModelFileError(f"array {min(lines)[:80]!r} is unknown.")


def _take_constant(left: dict[str, Any], prefix: str) -> None:
    """Take out what the constant model keeps, if it keeps anything."""
    numbers = left.get(f"{prefix}constant")
    if numbers is not None:
        if len(numbers.shape) != 1:
            raise ModelFileError("the numbers of the constant model are damaged.")
        take_out(left, {f"{prefix}constant": numbers.shape})


def _n_columns(left: dict[str, Any], prefix: str, d: int) -> int:
    """Return how many columns y had: of each target one, or as many as its likelihood looks at."""
    found = left.get(f"{prefix}scaling.y_shift")
    whole = found is not None and len(found.shape) == 1 and found.shape[0] % d == 0
    return found.shape[0] if whole and found is not None and found.shape[0] else d


def _line_shapes(n: int, d: int) -> dict[str, tuple[int, ...]]:
    sizes = zip(LINE, ((n,), (d, n), (d,), (d,), (d, n, n)), strict=True)
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


def check_names(header: dict[str, Any]) -> None:
    """Raise ModelFileError unless features and targets are as many as the header says."""
    if header["y_ndim"] not in (1, 2) or (header["y_ndim"] == 1 and header["n_outputs"] != 1):
        raise ModelFileError("y_ndim in the header is out of range.")
    for name, length in (("feature_names", "n_features"), ("target_names", "n_outputs")):
        names = header[name]
        if names is not None and (
            len(names) != header[length] or not all(isinstance(part, str) for part in names)
        ):
            raise ModelFileError(f"{name} in the header are damaged.")


def scaling_shapes(n: int, d: int) -> dict[str, tuple[int, ...]]:
    """Return the arrays of a scaling, by name."""
    sizes = {"x": (n,), "y": (d,)}
    return {f"scaling.{s}_{part}": size for s, size in sizes.items() for part in ("shift", "scale")}


def take_out(left: dict[str, Any], expected: dict[str, tuple[int, ...]]) -> None:
    """Take arrays out of those of a file; one that is not as expected is a ModelFileError."""
    for name, shape in expected.items():
        if name not in left:
            raise ModelFileError(f"array {name} is missing.")
        found = left.pop(name)
        if found.shape != shape or found.dtype != np.float64:
            raise ModelFileError(
                f"array {name} has shape {found.shape} and dtype {found.dtype}, but {shape} and "
                "float64 are needed."
            )


def libraries_of(header: dict[str, Any]) -> None:
    """Raise ModelFileError unless a header says which versions wrote it."""
    if not isinstance(header.get("libraries"), dict):
        raise ModelFileError("the header lacks an entry or has one too many.")


def check_finite(arrays: dict[str, np.ndarray]) -> None:
    """Raise ModelFileError if an array, other than of losses, holds what is no number."""
    for name, array in arrays.items():
        if not name.endswith("training.restart_losses") and not np.isfinite(array).all():
            raise ModelFileError(f"array {name} is not finite.")


def build_scaling(arrays: dict[str, np.ndarray], prefix: str) -> Scaling:
    """Return the scaling in a file."""
    names = [f"{prefix}scaling.{field.name}" for field in dataclasses.fields(Scaling)]
    scaling = Scaling(*(arrays[name] for name in names))
    if not (scaling.x_scale > 0).all() or not (scaling.y_scale > 0).all():
        raise ModelFileError("a scale is not positive.")
    return scaling
