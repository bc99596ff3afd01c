"""A fitted FAWNRegressor as a file: its members as any model, and a header of its own."""

from __future__ import annotations

import dataclasses
import os
from typing import Any

import jax
import numpy as np

from varprop.data.statistics import Scaling
from varprop.estimators.members import member_dtype
from varprop.estimators.options import layer_sizes, make_model
from varprop.estimators.regressor import FAWNRegressor
from varprop.files.container import ArraySpec, ModelFileError, read_model_file, write_model_file
from varprop.files.model import build, check_model, class_of, describe, shapes
from varprop.files.seen import build_seen, check_seen, describe_seen
from varprop.learning.objectives import AbstractObjective
from varprop.nn.registry import chosen, registered
from varprop.training.recipe import Recipe
from varprop.training.schedule import Outcome

# Far more than anyone uses; a file must not be able to ask for work or memory without end.
# What a file from before there were these arguments was trained with.
_BEFORE = {"validation": None, "propagation": "independent"}
_MAX_LAYERS = 256

_KEYS: dict[str, Any] = {
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


def save_regressor(model: FAWNRegressor, path: str | os.PathLike[str]) -> None:
    """Write a fitted regressor to one .safetensors file; see `FAWNRegressor.save`."""
    header, arrays = describe_regressor(model, "")
    more, kept = describe_seen(model)
    write_model_file(path, {**header, **more, "libraries": libraries()}, {**arrays, **kept})


def libraries() -> dict[str, str]:
    """Return the versions that wrote a file."""
    # Imported late: the package's own names are not there yet while it is being imported.
    from varprop import __version__

    return {"varprop": __version__, "jax": jax.__version__, "numpy": np.__version__}


def describe_regressor(
    model: FAWNRegressor, prefix: str
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return a fitted regressor as JSON and arrays, whose names begin with a prefix."""
    arrays: dict[str, Any] = {}
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
            found = describe(value, f"{prefix}params.{name}")
            params[name] = found.tree
            arrays |= found.arrays
    members = [describe(m, f"{prefix}member.{i}") for i, m in enumerate(model.members_)]
    for member in members:
        arrays |= member.arrays
    names = getattr(model, "feature_names_in_", None)
    header = {
        "class": "FAWNRegressor",
        "dtype": member_dtype(model.members_[0]).name,
        "feature_names": None if names is None else [str(name) for name in names],
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
        "trust": model.trust_,
        "y_ndim": model._y_ndim,
    }
    for field in dataclasses.fields(Scaling):
        arrays[f"{prefix}scaling.{field.name}"] = getattr(model.scaling_, field.name)
    arrays[f"{prefix}shares"] = model.shares_
    arrays[f"{prefix}training.loss_curve"] = np.asarray(model.loss_curve_, np.float64)
    arrays[f"{prefix}training.restart_losses"] = np.asarray(model.restart_losses_, np.float64)
    return header, {name: np.asarray(array) for name, array in arrays.items()}


def load_regressor(path: str | os.PathLike[str]) -> FAWNRegressor:
    """Read a regressor that `save_regressor` wrote; what a table added to it is left out."""
    header, arrays = read_model_file(path, check_alone)
    return build_alone(header, arrays)


def check_alone(header: dict[str, Any], table: dict[str, ArraySpec]) -> None:
    """Check a file that holds one regressor, and perhaps what older versions kept of its table."""
    left = {name: spec for name, spec in shapes(table).items() if not name.startswith("linear.")}
    around = ("libraries", "table", "domain", "seen", "n_seen")
    check_regressor({k: v for k, v in header.items() if k not in around}, left, "")
    libraries_of(header)
    check_seen(dict(header), left)
    if left:
        raise ModelFileError(f"array {min(left)[:80]!r} is unknown.")


def build_alone(header: dict[str, Any], arrays: dict[str, np.ndarray]) -> FAWNRegressor:
    """Return the regressor of a checked file."""
    check_finite(arrays)
    model = build_regressor(header, arrays, "")
    build_seen(model, header, arrays)
    return model


def libraries_of(header: dict[str, Any]) -> None:
    """Raise ModelFileError unless a header says which versions wrote it."""
    if not isinstance(header.get("libraries"), dict):
        raise ModelFileError("the header lacks an entry or has one too many.")


def check_finite(arrays: dict[str, np.ndarray]) -> None:
    """Raise ModelFileError if an array, other than of losses, holds what is no number."""
    for name, array in arrays.items():
        if not name.endswith("training.restart_losses") and not np.isfinite(array).all():
            raise ModelFileError(f"array {name} is not finite.")


def build_regressor(
    header: dict[str, Any], arrays: dict[str, np.ndarray], prefix: str
) -> FAWNRegressor:
    """Put together what `describe_regressor` took apart and `check_regressor` has checked."""
    scaling = build_scaling(arrays, prefix)
    model = FAWNRegressor(**_params(header, arrays))
    model.members_ = [build(tree, arrays) for tree in _members(header)]
    n_members = len(model.members_)
    model.shares_ = arrays.get(f"{prefix}shares", np.full(n_members, 1 / n_members))
    if (model.shares_ < 0).any() or not 0.999 < model.shares_.sum() < 1.001:
        raise ModelFileError("the shares of the members are not those of a mixture.")
    model.n_features_in_ = header["n_features"]
    if header["feature_names"] is not None:
        model.feature_names_in_ = np.array(header["feature_names"], dtype=object)
    model.n_outputs_, model._y_ndim = header["n_outputs"], header["y_ndim"]
    model.target_names_ = header["target_names"]
    model.scaling_, model.outcome_, model.loss_ = scaling, header["outcome"], header["loss"]
    model.loss_curve_ = arrays[f"{prefix}training.loss_curve"]
    model.restart_losses_ = arrays[f"{prefix}training.restart_losses"]
    # Format 1 did not count steps.
    model.n_iter_, model.n_steps_ = header["n_iter"], header.get("n_steps", header["n_iter"])
    model.trust_, model._epochs, model._held = header.get("trust"), None, None
    model._aside_seed, model.n_seen_ = 0, None
    return model


def build_scaling(arrays: dict[str, np.ndarray], prefix: str) -> Scaling:
    """Return the scaling in a file."""
    names = [f"{prefix}scaling.{field.name}" for field in dataclasses.fields(Scaling)]
    scaling = Scaling(*(arrays[name] for name in names))
    if not (scaling.x_scale > 0).all() or not (scaling.y_scale > 0).all():
        raise ModelFileError("a scale is not positive.")
    return scaling


def check_regressor(header: dict[str, Any], left: dict[str, Any], prefix: str) -> None:
    """Raise ModelFileError unless the header is complete and the arrays are what it calls for.

    Arrays that belong to it are taken out of `left`.
    """
    if header.get("class") != "FAWNRegressor":
        raise ModelFileError(f"the file holds no FAWNRegressor: {str(header.get('class'))[:80]!r}.")
    # Which earlier versions may not have.
    later = {"members": list, "n_steps": int, "trust": (float, type(None))}
    if set(header) - set(later) != set(_KEYS):
        raise ModelFileError("the header lacks an entry or has one too many.")
    for name, kind in (_KEYS | later).items():
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
        **scaling_shapes(n, d),
    }
    if f"{prefix}shares" in left:  # members of older files count the same
        expected["shares"] = (header["n_members"],)
    take_out(left, {f"{prefix}{name}": shape for name, shape in expected.items()})
    _params(header, left)
    trees = _members(header)
    if len(trees) != header["n_members"]:
        raise ModelFileError("there are more or fewer members than the header says.")
    for tree in trees:
        member = check_model(build(tree, left), n)
        if member.likelihood.n_targets != d or str(member_dtype(member)) != header["dtype"]:
            raise ModelFileError("a member has other targets or another dtype than the header.")


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
        decoded = _BEFORE | decoded
        model = FAWNRegressor(**decoded)
        model._validate_params()
        chosen(AbstractObjective, model.objective, "objective")
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
    params = FAWNRegressor().get_params(deep=False) | _BEFORE
    params |= {name: _of_shapes(name, value) for name, value in header["params"].items()}
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
