"""A fitted FAWNRegressor as a JSON header and named arrays, and back: what its model file holds.

Classes are named, never imported by a path: only those in the registry below can be written or
read. The shapes and dtypes of all arrays follow from the constructor's arguments and are compared
with the file's before an array is read.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import numpy as np
from jax.tree_util import GetAttrKey, SequenceKey, tree_flatten_with_path

from varprop import nn
from varprop.data.arrays import Scaling
from varprop.estimators.members import member_dtype
from varprop.estimators.options import DTYPES, check_options, hidden_sizes, model_factory
from varprop.estimators.regressor import FAWNRegressor
from varprop.files.container import ArraySpec, ModelFileError, read_model_file, write_model_file
from varprop.learning import objectives, priors
from varprop.training.result import Outcome

_CLASSES: dict[str, tuple[Any, ...]] = {
    "activation": (
        nn.ReLU,
        nn.LeakyReLU,
        nn.Identity,
        nn.Sigmoid,
        nn.Tanh,
        nn.Erf,
        nn.Heaviside,
        nn.GELU,
        nn.SiLU,
        nn.Softplus,
    ),
    "objective": (
        objectives.ROPD,
        objectives.VI,
        objectives.SampledVI,
        objectives.MaximumLikelihood,
    ),
    "prior": (
        priors.LearnedGaussian,
        priors.LearnedGaussianPerLayer,
        priors.FixedGaussian,
        priors.LearnedBernoulli,
        priors.FixedBernoulli,
    ),
}
_REGISTRY = {option: {kind.__name__: kind for kind in kinds} for option, kinds in _CLASSES.items()}
# Far more than anyone uses; a file must not be able to ask for work or memory without end.
_MAX_LAYERS, _MAX_STATIC = 256, 1024

_KEYS = {
    "class": str,
    "dtype": str,
    "feature_names": (list, type(None)),
    "libraries": dict,
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


# ---- writing ------------------------------------------------------------------------------------


def save_regressor(model: FAWNRegressor, path: str | os.PathLike[str]) -> None:
    """Write a fitted regressor to one .safetensors file; see `FAWNRegressor.save`."""
    header, arrays = to_state(model)
    write_model_file(path, header, arrays)


def save_with_table(
    model: FAWNRegressor,
    path: str | os.PathLike[str],
    table: Mapping[str, Any],
    linear: Mapping[str, np.ndarray],
) -> None:
    """Write a fitted regressor and what is known of its table; see `varprop.tables.model`.

    Parameters
    ----------
    model, path
        As in `save_regressor`.
    table
        Columns and their encoding, as JSON.
    linear
        Arrays of the linear model it is compared with, or none.
    """
    header, arrays = to_state(model)
    header["table"] = dict(table)
    arrays |= {f"linear.{name}": array for name, array in linear.items()}
    write_model_file(path, header, arrays)


def to_state(model: FAWNRegressor) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the header and the arrays of a fitted regressor."""
    # Imported late: the package's own names are not there yet while it is being imported.
    from varprop import __version__

    arrays: dict[str, np.ndarray] = {}
    params = {
        name: _encode(name, value, arrays) for name, value in model.get_params(deep=False).items()
    }
    names = getattr(model, "feature_names_in_", None)
    header = {
        "class": "FAWNRegressor",
        "dtype": member_dtype(model.members_[0]).name,
        "feature_names": None if names is None else [str(name) for name in names],
        "libraries": {"varprop": __version__, "jax": jax.__version__, "numpy": np.__version__},
        "loss": float(model.loss_),
        "n_features": int(model.n_features_in_),
        "n_iter": int(model.n_iter_),
        "n_members": len(model.members_),
        "n_outputs": int(model.n_outputs_),
        "outcome": model.outcome_,
        "params": params,
        "target_names": model.target_names_,
        "y_ndim": model._y_ndim,
    }
    for field in dataclasses.fields(Scaling):
        arrays[f"scaling.{field.name}"] = getattr(model.scaling_, field.name)
    arrays["training.loss_curve"] = np.asarray(model.loss_curve_, np.float64)
    arrays["training.restart_losses"] = np.asarray(model.restart_losses_, np.float64)
    for number, member in enumerate(model.members_):
        for name, leaf in _named_leaves(member, f"member.{number}"):
            arrays[name] = np.asarray(leaf)
    expected = _expected_members(json.dumps(header, sort_keys=True))
    for name, spec in expected.items():
        if name not in arrays or ArraySpec(arrays[name].shape, arrays[name].dtype) != spec:
            raise ModelFileError(
                "the constructor's arguments were changed after fit: fit again before saving."
            )
    return header, arrays


def _encode(name: str, value: Any, arrays: dict[str, np.ndarray]) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if name == "hidden_layer_sizes":
        kind = "tuple" if isinstance(value, tuple) else "list"
        return {kind: [int(size) for size in value]}
    kinds = _REGISTRY.get(name, {})
    if kinds.get(type(value).__name__) is not type(value):
        raise ModelFileError(
            f"{name} is a {type(value).__name__}, which a model file cannot hold"
            + (f": it can hold {', '.join(kinds)} and plain names." if kinds else ".")
        )
    encoded: dict[str, Any] = {"class": type(value).__name__, "static": {}}
    for field in dataclasses.fields(value):
        content = getattr(value, field.name)
        if field.metadata.get("static", False):
            encoded["static"][field.name] = int(content)
        else:
            arrays[f"params.{name}.{field.name}"] = np.asarray(content)
    return encoded


def _named_leaves(tree: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    """Arrays of a model by the path of fields and positions that leads to them."""
    for path, leaf in tree_flatten_with_path(tree)[0]:
        parts = [prefix]
        for key in path:
            assert isinstance(key, GetAttrKey | SequenceKey)
            parts.append(key.name if isinstance(key, GetAttrKey) else str(key.idx))
        yield ".".join(parts), leaf


# ---- reading ------------------------------------------------------------------------------------


def load_regressor(path: str | os.PathLike[str]) -> FAWNRegressor:
    """Read a fitted regressor from its file; see `FAWNRegressor.load`."""
    return load_with_table(path)[0]


def load_with_table(
    path: str | os.PathLike[str],
) -> tuple[FAWNRegressor, dict[str, Any] | None, dict[str, np.ndarray]]:
    """Read a regressor, and what `save_with_table` added: JSON, not checked, and arrays.

    The JSON is None, and there are no arrays, if the file has none.
    """
    header, arrays = read_model_file(path, _check)
    linear = {
        name.removeprefix("linear."): array
        for name, array in arrays.items()
        if name.startswith("linear.")
    }
    return from_state(header, arrays), header.get("table"), linear


def from_state(header: dict[str, Any], arrays: dict[str, np.ndarray]) -> FAWNRegressor:
    """Build a regressor from a checked header and checked arrays."""
    for name, array in arrays.items():
        if name != "training.restart_losses" and not np.isfinite(array).all():
            raise ModelFileError(f"array {name} is not finite.")
    scaling = Scaling(*(arrays[f"scaling.{field.name}"] for field in dataclasses.fields(Scaling)))
    if not (scaling.x_scale > 0).all() or not (scaling.y_scale > 0).all():
        raise ModelFileError("a scale is not positive.")
    params = _decode_params(header["params"], arrays)
    model = FAWNRegressor(**params)
    skeleton = _skeleton(json.dumps(header, sort_keys=True))
    treedef = jax.tree.structure(skeleton)
    model.members_ = [
        jax.tree.unflatten(
            treedef, [arrays[name] for name, _ in _named_leaves(skeleton, f"member.{number}")]
        )
        for number in range(header["n_members"])
    ]
    model.n_features_in_ = header["n_features"]
    if header["feature_names"] is not None:
        model.feature_names_in_ = np.array(header["feature_names"], dtype=object)
    model.n_outputs_, model._y_ndim = header["n_outputs"], header["y_ndim"]
    model.target_names_ = header["target_names"]
    model.scaling_, model.outcome_, model.loss_ = scaling, header["outcome"], header["loss"]
    model.loss_curve_ = arrays["training.loss_curve"]
    model.restart_losses_ = arrays["training.restart_losses"]
    model.n_iter_ = header["n_iter"]
    model._epoch_state = None
    model._set_noise_std()
    return model


def _check(header: dict[str, Any], table: dict[str, ArraySpec]) -> None:
    """Raise ModelFileError unless the header is complete and the arrays are what it calls for."""
    if header.get("class") != "FAWNRegressor":
        raise ModelFileError(f"the file holds no FAWNRegressor: {str(header.get('class'))[:80]!r}.")
    if set(header) - {"table"} != set(_KEYS) or not isinstance(header.get("table", {}), dict):
        raise ModelFileError("the header lacks an entry or has one too many.")
    for name, kind in _KEYS.items():
        value = header[name]
        if not isinstance(value, kind) or isinstance(value, bool):  # type: ignore[arg-type]
            raise ModelFileError(f"{name} in the header has the wrong type.")
    _check_numbers(header, table)
    expected = _expected_members(json.dumps(header, sort_keys=True))
    n, d, f64 = header["n_features"], header["n_outputs"], np.dtype(np.float64)
    for side, length in (("x", n), ("y", d)):
        for part in ("shift", "scale"):
            expected[f"scaling.{side}_{part}"] = ArraySpec((length,), f64)
    expected["training.loss_curve"] = ArraySpec((header["n_iter"],), f64)
    restarts = table.get("training.restart_losses", ArraySpec((), f64)).shape
    if len(restarts) != 2 or restarts[0] != header["n_members"] or restarts[1] < 1:
        raise ModelFileError("the losses of the restarts are damaged.")
    expected["training.restart_losses"] = ArraySpec(restarts, f64)
    if "table" in header and any(name.startswith("linear.") for name in table):
        shapes = {"center": (n,), "scale": (n,), "coef": (d, n), "cov": (d, n, n)}
        shapes |= {"intercept": (d,), "noise_var": (d,)}
        expected |= {f"linear.{name}": ArraySpec(shape, f64) for name, shape in shapes.items()}
    for name in sorted(set(table) | set(expected)):
        if name.startswith("params."):
            continue  # checked where the object they belong to is decoded
        if name not in table:
            raise ModelFileError(f"array {name} is missing.")
        if name not in expected:
            raise ModelFileError(f"array {name[:80]!r} is unknown.")
        if table[name] != expected[name]:
            raise ModelFileError(
                f"array {name} has shape {table[name].shape} and dtype {table[name].dtype}, but "
                f"{expected[name].shape} and {expected[name].dtype} are needed."
            )
    _check_objects(header["params"], table)


def _check_numbers(header: dict[str, Any], table: dict[str, ArraySpec]) -> None:
    for name in ("n_features", "n_outputs", "n_iter", "n_members"):
        if not 1 <= header[name] < 2**31:
            raise ModelFileError(f"{name} in the header is out of range.")
    if header["n_members"] > len(table):
        raise ModelFileError("there are fewer arrays than members.")
    if header["y_ndim"] not in (1, 2) or (header["y_ndim"] == 1 and header["n_outputs"] != 1):
        raise ModelFileError("y_ndim in the header is out of range.")
    if header["dtype"] not in DTYPES or header["outcome"] not in {o.value for o in Outcome}:
        raise ModelFileError("dtype or outcome in the header is unknown.")
    for name, length in (("feature_names", "n_features"), ("target_names", "n_outputs")):
        names = header[name]
        if names is not None and (
            len(names) != header[length] or not all(isinstance(part, str) for part in names)
        ):
            raise ModelFileError(f"{name} in the header are damaged.")


def _check_objects(params: dict[str, Any], table: dict[str, ArraySpec]) -> None:
    """Check the arrays of objects among the arguments: as their classes have them, and short."""
    wanted = set()
    for name, value in params.items():
        if isinstance(value, dict) and "class" in value:
            kind = _REGISTRY[name][value["class"]]
            wanted |= {
                f"params.{name}.{field.name}"
                for field in dataclasses.fields(kind)
                if not field.metadata.get("static", False)
            }
    found = {name for name in table if name.startswith("params.")}
    if wanted != found:
        raise ModelFileError("the arrays of the constructor's arguments are damaged.")
    for name in found:
        shape = table[name].shape
        if len(shape) > 1 or (shape and not 1 <= shape[0] <= _MAX_LAYERS + 1):
            raise ModelFileError(f"array {name} has shape {shape}, which is out of range.")


def _decode_params(params: dict[str, Any], arrays: dict[str, np.ndarray] | None) -> dict[str, Any]:
    """Return constructor arguments; with no arrays the objects among them get zeros instead."""
    known = FAWNRegressor().get_params(deep=False)
    decoded = {}
    for name, value in params.items():
        if name not in known:
            raise ModelFileError(f"the constructor's argument {name[:80]!r} is unknown.")
        decoded[name] = _decode(name, value, arrays) if isinstance(value, dict) else value
        if isinstance(value, list):
            raise ModelFileError(f"the constructor's argument {name} is damaged.")
    decoded = known | decoded
    try:
        check_options(decoded)
    except (ValueError, TypeError, OverflowError) as error:
        raise ModelFileError(f"a constructor's argument cannot be: {error}") from error
    if len(hidden_sizes(decoded["hidden_layer_sizes"])) > _MAX_LAYERS:
        raise ModelFileError(f"there are more than {_MAX_LAYERS} layers.")
    return decoded


def _decode(name: str, value: dict[str, Any], arrays: dict[str, np.ndarray] | None) -> Any:
    if name == "hidden_layer_sizes" and len(value) == 1:
        ((container, sizes),) = value.items()
        if container in ("tuple", "list") and isinstance(sizes, list):
            return tuple(sizes) if container == "tuple" else sizes
    kind_name = value.get("class")
    kind = _REGISTRY.get(name, {}).get(kind_name) if isinstance(kind_name, str) else None
    if kind is None or set(value) != {"class", "static"} or not isinstance(value["static"], dict):
        raise ModelFileError(f"the constructor's argument {name} names a class that is unknown.")
    if arrays is None and kind is priors.LearnedGaussianPerLayer:
        return "per-layer"  # whose arrays are as long as the network is deep
    # As JAX puts trees together: the fields are set, and no constructor changes their bits.
    thing: Any = object.__new__(kind)
    static = dict(value["static"])
    for field in dataclasses.fields(kind):
        if field.metadata.get("static", False):
            content = static.pop(field.name, None)
            if type(content) is not int or not 1 <= content <= _MAX_STATIC:
                raise ModelFileError(f"{field.name} of the argument {name} is out of range.")
        else:
            content = np.zeros(()) if arrays is None else arrays[f"params.{name}.{field.name}"]
        object.__setattr__(thing, field.name, content)
    if static:
        raise ModelFileError(f"the constructor's argument {name} has unknown fields.")
    return thing


@functools.lru_cache(maxsize=64)
def _skeleton(header: str) -> Any:
    """Return a member with shapes and dtypes in place of arrays: nothing is allocated."""
    content = json.loads(header)
    options = _decode_params(content["params"], None)
    with jax.enable_x64(content["dtype"] == "float64"):
        try:
            init = model_factory(options, content["n_features"], content["n_outputs"])
            return jax.eval_shape(init, jax.random.key(0))
        except Exception as error:  # sizes no network can have fail deep inside JAX, in many ways
            raise ModelFileError("no network of this description can be built.") from error


def _expected_members(header: str) -> dict[str, ArraySpec]:
    skeleton = _skeleton(header)
    return {
        name: ArraySpec(tuple(leaf.shape), np.dtype(leaf.dtype))
        for number in range(json.loads(header)["n_members"])
        for name, leaf in _named_leaves(skeleton, f"member.{number}")
    }
