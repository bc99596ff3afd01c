"""A fitted FAWNRegressor as a file: its members as any model, and a header of its own."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from varprop.data.statistics import Scaling
from varprop.estimators.members import member_dtype
from varprop.estimators.options import layer_sizes, make_model
from varprop.estimators.regressor import FAWNRegressor
from varprop.files.container import ArraySpec, ModelFileError, read_model_file, write_model_file
from varprop.files.model import build, check_model, class_of, describe, shapes
from varprop.nn.registry import registered
from varprop.training.recipe import Recipe
from varprop.training.schedule import Outcome

# Far more than anyone uses; a file must not be able to ask for work or memory without end.
_MAX_LAYERS = 256

_KEYS: dict[str, Any] = {
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


def save_regressor(
    model: FAWNRegressor,
    path: str | os.PathLike[str],
    *,
    table: Mapping[str, Any] | None = None,
    linear: Mapping[str, np.ndarray] | None = None,
) -> None:
    """Write a fitted regressor to one .safetensors file; see `FAWNRegressor.save`.

    Parameters
    ----------
    model, path
        As there.
    table
        What is known of the table it was fitted on, as JSON; see `varprop.tables.model`.
    linear
        Arrays of the linear model it is compared with.
    """
    # Imported late: the package's own names are not there yet while it is being imported.
    from varprop import __version__

    arrays: dict[str, np.ndarray] = {}
    params: dict[str, Any] = {}
    for name, value in model.get_params(deep=False).items():
        if isinstance(value, Recipe):
            recipe = dataclasses.asdict(value)
            stop = {part: describe(v, part).tree for part, v in recipe.pop("stop").items()}
            recipe = {part: describe(v, part).tree for part, v in recipe.items()}
            params[name] = {"recipe": recipe | {"stop": stop}}
        elif name == "hidden_layer_sizes" and isinstance(value, np.ndarray):
            params[name] = {"tuple": list(layer_sizes(value))}
        elif isinstance(value, type):
            if registered(value.__name__) is not value:
                raise ModelFileError(
                    f"{name} is the class {value.__name__}, which a model file cannot name: "
                    "register it by varprop.register."
                )
            params[name] = {"type": value.__name__}
        else:
            found = describe(value, f"params.{name}")
            params[name] = found.tree
            arrays |= found.arrays
    members = [describe(m, f"member.{i}") for i, m in enumerate(model.members_)]
    for member in members:
        arrays |= member.arrays
    names = getattr(model, "feature_names_in_", None)
    header = {
        "class": "FAWNRegressor",
        "dtype": member_dtype(model.members_[0]).name,
        "feature_names": None if names is None else [str(name) for name in names],
        "libraries": {"varprop": __version__, "jax": jax.__version__, "numpy": np.__version__},
        "loss": float(model.loss_),
        "members": [member.tree for member in members],
        "n_features": int(model.n_features_in_),
        "n_iter": int(model.n_iter_),
        "n_members": len(model.members_),
        "n_outputs": int(model.n_outputs_),
        "n_steps": int(model.n_steps_),
        "outcome": model.outcome_,
        "params": params,
        "target_names": model.target_names_,
        "y_ndim": model._y_ndim,
    }
    if table is not None:
        header["table"] = dict(table)
        arrays |= {f"linear.{name}": array for name, array in (linear or {}).items()}
    for field in dataclasses.fields(Scaling):
        arrays[f"scaling.{field.name}"] = getattr(model.scaling_, field.name)
    arrays["training.loss_curve"] = np.asarray(model.loss_curve_, np.float64)
    arrays["training.restart_losses"] = np.asarray(model.restart_losses_, np.float64)
    write_model_file(path, header, {name: np.asarray(array) for name, array in arrays.items()})


def load_regressor(
    path: str | os.PathLike[str],
) -> tuple[FAWNRegressor, dict[str, Any] | None, dict[str, np.ndarray]]:
    """Read a regressor, and what is known of its table: JSON, not checked, and arrays.

    The JSON is None, and there are no arrays, if the file has none.
    """
    header, arrays = read_model_file(path, _check)
    for name, array in arrays.items():
        if name != "training.restart_losses" and not np.isfinite(array).all():
            raise ModelFileError(f"array {name} is not finite.")
    scaling = Scaling(*(arrays[f"scaling.{field.name}"] for field in dataclasses.fields(Scaling)))
    if not (scaling.x_scale > 0).all() or not (scaling.y_scale > 0).all():
        raise ModelFileError("a scale is not positive.")
    model = FAWNRegressor(**_params(header, arrays))
    model.members_ = [build(tree, arrays) for tree in _members(header)]
    model.n_features_in_ = header["n_features"]
    if header["feature_names"] is not None:
        model.feature_names_in_ = np.array(header["feature_names"], dtype=object)
    model.n_outputs_, model._y_ndim = header["n_outputs"], header["y_ndim"]
    model.target_names_ = header["target_names"]
    model.scaling_, model.outcome_, model.loss_ = scaling, header["outcome"], header["loss"]
    model.loss_curve_ = arrays["training.loss_curve"]
    model.restart_losses_ = arrays["training.restart_losses"]
    # Format 1 did not count steps.
    model.n_iter_, model.n_steps_ = header["n_iter"], header.get("n_steps", header["n_iter"])
    model._epochs = None
    linear = {
        name.removeprefix("linear."): array
        for name, array in arrays.items()
        if name.startswith("linear.")
    }
    return model, header.get("table"), linear


def _check(header: dict[str, Any], table: dict[str, ArraySpec]) -> None:
    """Raise ModelFileError unless the header is complete and the arrays are what it calls for."""
    if header.get("class") != "FAWNRegressor":
        raise ModelFileError(f"the file holds no FAWNRegressor: {str(header.get('class'))[:80]!r}.")
    later = {"table": dict, "members": list, "n_steps": int}  # which format 1 may not have
    if set(header) - set(later) != set(_KEYS) or not all(
        type(header.get(name, kind())) is kind for name, kind in later.items()
    ):
        raise ModelFileError("the header lacks an entry or has one too many.")
    for name, kind in _KEYS.items():
        if not isinstance(header[name], kind) or isinstance(header[name], bool):
            raise ModelFileError(f"{name} in the header has the wrong type.")
    for name in ("n_features", "n_outputs", "n_iter", "n_members"):
        if not 1 <= header[name] < 2**31:
            raise ModelFileError(f"{name} in the header is out of range.")
    if header["n_members"] > len(table):
        raise ModelFileError("there are fewer arrays than members.")
    if header["y_ndim"] not in (1, 2) or (header["y_ndim"] == 1 and header["n_outputs"] != 1):
        raise ModelFileError("y_ndim in the header is out of range.")
    known = {outcome.value for outcome in Outcome}
    if header["dtype"] not in ("float32", "float64") or header["outcome"] not in known:
        raise ModelFileError("dtype or outcome in the header is unknown.")
    for name, length in (("feature_names", "n_features"), ("target_names", "n_outputs")):
        names = header[name]
        if names is not None and (
            len(names) != header[length] or not all(isinstance(part, str) for part in names)
        ):
            raise ModelFileError(f"{name} in the header are damaged.")
    n, d, left = header["n_features"], header["n_outputs"], shapes(table)
    curves = left.get("training.restart_losses")
    expected: dict[str, tuple[int, ...]] = {
        f"scaling.{side}_{part}": (length,)
        for side, length in (("x", n), ("y", d))
        for part in ("shift", "scale")
    }
    expected["training.loss_curve"] = (header["n_iter"],)
    if curves is None or len(curves.shape) != 2 or curves.shape[0] != header["n_members"]:
        raise ModelFileError("the losses of the restarts are damaged.")
    expected["training.restart_losses"] = (header["n_members"], max(1, curves.shape[1]))
    if "table" in header and any(name.startswith("linear.") for name in table):
        expected |= {"linear.center": (n,), "linear.scale": (n,), "linear.coef": (d, n)}
        expected |= {"linear.cov": (d, n, n), "linear.intercept": (d,), "linear.noise_var": (d,)}
    for name, shape in expected.items():
        if name not in left:
            raise ModelFileError(f"array {name} is missing.")
        found = left.pop(name)
        if found.shape != shape or found.dtype != np.float64:
            raise ModelFileError(
                f"array {name} has shape {found.shape} and dtype {found.dtype}, but {shape} and "
                "float64 are needed."
            )
    _params(header, left)
    trees = _members(header)
    if len(trees) != header["n_members"]:
        raise ModelFileError("there are more or fewer members than the header says.")
    for tree in trees:
        member = check_model(build(tree, left), n)
        if member.likelihood.n_targets != d or str(member_dtype(member)) != header["dtype"]:
            raise ModelFileError("a member has other targets or another dtype than the header.")
    if left:
        raise ModelFileError(f"array {min(left)[:80]!r} is unknown.")


def _params(header: dict[str, Any], arrays: dict[str, Any]) -> dict[str, Any]:
    """Return the constructor's arguments, checked; arrays (or shapes) they use are taken out."""
    decoded: dict[str, Any] = {}
    for name, value in header["params"].items():
        tagged = value if isinstance(value, dict) else {}
        try:
            if set(tagged) == {"type"}:
                decoded[name] = class_of(tagged["type"])
            elif set(tagged) == {"recipe"}:
                decoded[name] = _recipe(tagged["recipe"])
            else:  # an object of format 1 has "static"
                value = _of_format_1(name, value) if "static" in tagged else value
                decoded[name] = build(value, arrays)
        except ModelFileError as error:
            raise ModelFileError(f"the argument {name[:80]}: {error}") from error
    try:
        model = FAWNRegressor(**decoded)
        model._validate_params()
    except (ValueError, TypeError, OverflowError) as error:
        raise ModelFileError(f"a constructor's argument cannot be: {error}") from error
    sizes = model.hidden_layer_sizes
    if isinstance(sizes, tuple | list) and len(sizes) > _MAX_LAYERS:
        raise ModelFileError(f"there are more than {_MAX_LAYERS} layers.")
    return decoded


def _of_format_1(name: str, value: dict[str, Any]) -> dict[str, Any]:
    """Return the description of an argument, as it is written today."""
    kind, static = class_of(value.get("class")), value["static"]
    if not dataclasses.is_dataclass(kind) or not isinstance(static, dict):
        raise ModelFileError("its description is damaged.")
    arrays = {
        field.name: {"array": f"params.{name}.{field.name}"}
        for field in dataclasses.fields(kind)
        if not field.metadata.get("static", False)
    }
    return {"class": value["class"], "fields": static | arrays}


def _recipe(value: Any) -> Recipe:
    try:
        return Recipe.from_dict(value)
    except (TypeError, ValueError, KeyError) as error:
        raise ModelFileError("the recipe in the file is damaged.") from error


def _members(header: dict[str, Any]) -> list[Any]:
    """Return the description of every member; in format 1 it follows from the arguments."""
    if "members" in header:
        return header["members"]
    # Objects among the arguments have arrays, which are not looked at here: only shapes count.
    params = FAWNRegressor().get_params(deep=False) | {
        name: _of_shapes(name, value) for name, value in header["params"].items()
    }
    try:
        with jax.enable_x64(header["dtype"] == "float64"):
            skeleton = jax.eval_shape(
                lambda key: make_model(params, header["n_features"], header["n_outputs"], key),
                jax.random.key(0),
            )
    except Exception as error:  # sizes no network can have fail deep inside JAX, in many ways
        raise ModelFileError("no network of this description can be built.") from error
    return [describe(skeleton, f"member.{i}").tree for i in range(header["n_members"])]


def _of_shapes(name: str, value: Any) -> Any:
    if not isinstance(value, dict) or "static" not in value:
        return build(value, {})
    if value.get("class") == "LearnedGaussianPerLayer":
        return "per-layer"  # whose arrays are as long as the network is deep
    tree = _of_format_1(name, value)
    arrays = {
        part["array"]: np.zeros(()) for part in tree["fields"].values() if isinstance(part, dict)
    }
    return build(tree, arrays)
