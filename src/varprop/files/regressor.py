"""A fitted FAWNRegressor or FAWNClassifier as a file: members as any model, its own header."""

from __future__ import annotations

import dataclasses
import os
from typing import Any

import jax
import numpy as np

from varprop.data.statistics import Scaling
from varprop.estimators.classifier import FAWNClassifier
from varprop.estimators.members import member_dtype
from varprop.estimators.options import layer_sizes, likelihood_class, make_model
from varprop.estimators.regressor import FAWNRegressor
from varprop.files.container import ArraySpec, ModelFileError, read_model_file, write_model_file
from varprop.files.header import (
    build_scaling,
    check_finite,
    check_network,
    check_nothing_left,
    check_one,
)
from varprop.files.model import build, check_model, class_of, describe, shapes
from varprop.files.seen import build_seen, describe_seen
from varprop.learning.likelihoods import AbstractClasses, AbstractLikelihood
from varprop.learning.objectives import AbstractObjective
from varprop.nn.registry import chosen, registered
from varprop.training.recipe import Recipe

# Far more than anyone uses; a file must not be able to ask for work or memory without end.
# What a file from before there were these arguments was trained with.
_BEFORE = {"validation": None, "propagation": "independent"}
_MAX_LAYERS = 256

Network = FAWNRegressor | FAWNClassifier
#: Estimators of networks, by the name that files have for them.
NETWORKS: dict[str, Any] = {kind.__name__: kind for kind in (FAWNRegressor, FAWNClassifier)}
# Labels of classes are of one kind, which JSON keeps.
_LABELS: dict[str, Any] = {"b": bool, "i": int, "u": int, "f": float, "U": str, "O": str}


def save_regressor(model: Network, path: str | os.PathLike[str]) -> None:
    """Write a fitted regressor to one .safetensors file; see `FAWNRegressor.save`."""
    header, arrays = describe_regressor(model, "")
    more, kept = describe_seen(model)
    write_model_file(path, {**header, **more, "libraries": libraries()}, {**arrays, **kept})


def libraries() -> dict[str, str]:
    """Return the versions that wrote a file."""
    # Imported late: the package's own names are not there yet while it is being imported.
    from varprop import __version__

    return {"varprop": __version__, "jax": jax.__version__, "numpy": np.__version__}


def describe_regressor(model: Network, prefix: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return a fitted regressor as JSON and arrays, whose names begin with a prefix."""
    arrays: dict[str, Any] = {}
    params: dict[str, Any] = {}
    for name, value in model.get_params(deep=False).items():
        if isinstance(value, Recipe):
            recipe = dataclasses.asdict(value)
            stop = recipe.pop("stop")
            stop = stop and {part: describe(v, part).tree for part, v in stop.items()}
            recipe = {part: describe(v, part).tree for part, v in recipe.items()}
            params[name] = {"recipe": recipe | {"stop": stop}}
        elif name == "hidden_layer_sizes" and isinstance(value, np.ndarray):
            params[name] = {"tuple": list(layer_sizes(value))}
        elif isinstance(value, dict):  # weights of classes
            pairs = zip(labels_of(np.array(list(value))), map(float, value.values()), strict=True)
            params[name] = {"pairs": [list(pair) for pair in pairs]}
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
        "class": type(model).__name__,
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
    if isinstance(model, FAWNClassifier):
        header["classes"] = labels_of(model.classes_)
    for field in dataclasses.fields(Scaling):
        arrays[f"{prefix}scaling.{field.name}"] = getattr(model.scaling_, field.name)
    arrays[f"{prefix}shares"] = model.shares_
    if len(model.constant_numbers_):
        arrays[f"{prefix}constant"] = model.constant_numbers_
    arrays[f"{prefix}training.loss_curve"] = np.asarray(model.loss_curve_, np.float64)
    arrays[f"{prefix}training.restart_losses"] = np.asarray(model.restart_losses_, np.float64)
    return header, {name: np.asarray(array) for name, array in arrays.items()}


def labels_of(classes: np.ndarray) -> list[Any]:
    """Return labels as JSON: texts, whole numbers, numbers or truth values."""
    kind, found = _LABELS.get(classes.dtype.kind), classes.tolist()
    if kind is None or not all(isinstance(label, kind) for label in found):
        raise ModelFileError(
            f"classes are {classes.dtype}, which a model file cannot hold: make them text or "
            "numbers."
        )
    return found


def load_regressor(path: str | os.PathLike[str]) -> Network:
    """Read a network that `save_regressor` wrote; what a table added to it is left out."""
    header, arrays = read_model_file(path, check_alone)
    return build_alone(header, arrays)


def check_alone(header: dict[str, Any], table: dict[str, ArraySpec]) -> None:
    """Check a file that holds one regressor, and perhaps what older versions kept of its table."""
    left = shapes(table)
    check_one(header, left, check_regressor)
    check_nothing_left(left)


def build_alone(header: dict[str, Any], arrays: dict[str, np.ndarray]) -> Network:
    """Return the estimator of a checked file."""
    check_finite(arrays)
    model = build_regressor(header, arrays, "")
    build_seen(model, header, arrays)
    return model


def build_regressor(header: dict[str, Any], arrays: dict[str, np.ndarray], prefix: str) -> Network:
    """Put together what `describe_regressor` took apart and `check_regressor` has checked."""
    scaling = build_scaling(arrays, prefix)
    model: Network = NETWORKS[header["class"]](**_params(header, arrays))
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
    model.constant_numbers_ = arrays.get(f"{prefix}constant", np.empty(0))
    if isinstance(model, FAWNClassifier):
        likelihood: Any = model.members_[0].likelihood
        model.classes_, model._start = np.array(header["classes"]), likelihood
    return model


def check_regressor(header: dict[str, Any], left: dict[str, Any], prefix: str) -> None:
    """Raise ModelFileError unless the header is complete and the arrays are what it calls for.

    Arrays that belong to it are taken out of `left`.
    """
    scaled = left.get(f"{prefix}scaling.y_shift")
    check_network(header, left, prefix)
    blocks = 1 if "classes" in header else len(_likelihood(header).column_scaling)
    if scaled is None or scaled.shape != (blocks * header["n_outputs"],):
        raise ModelFileError("the scaling does not fit the likelihood.")
    _params(header, left)
    trees = _members(header)
    if len(trees) != header["n_members"]:
        raise ModelFileError("there are more or fewer members than the header says.")
    n, d = header["n_features"], header["n_outputs"]
    for tree in trees:
        member = check_model(build(tree, left), n)
        if member.likelihood.n_targets != d or str(member_dtype(member)) != header["dtype"]:
            raise ModelFileError("a member has other targets or another dtype than the header.")
        if isinstance(member.likelihood, AbstractClasses) != ("classes" in header):
            raise ModelFileError("a member has another kind of target than the header.")
        if "classes" in header:
            _check_classes(header["classes"], member.likelihood)


def _check_classes(classes: list[Any], likelihood: Any) -> None:
    """Raise ModelFileError unless there is one label, all of one kind, for every class."""
    kinds = {type(label) for label in classes}
    same = len(kinds) == 1 and kinds <= set(_LABELS.values()) and len({*classes}) == len(classes)
    if not same:
        raise ModelFileError("the classes in the header are damaged.")
    if likelihood.n_classes != len(classes):
        raise ModelFileError("a member has other classes than the header.")


def _likelihood(header: dict[str, Any]) -> type[AbstractLikelihood]:
    """Return the kind of likelihood among the constructor's arguments."""
    value = header["params"].get("likelihood", "gaussian")
    try:
        if isinstance(value, dict):  # a class, or an object of one
            return likelihood_class({"likelihood": class_of(value.get("type", value.get("class")))})
        return likelihood_class({"likelihood": value})
    except (ValueError, TypeError) as error:
        raise ModelFileError(f"the argument likelihood: {error}") from error


def _params(header: dict[str, Any], arrays: dict[str, Any]) -> dict[str, Any]:
    """Return the constructor's arguments, checked; arrays (or shapes) they use are taken out."""
    decoded: dict[str, Any] = {}
    for name, value in header["params"].items():
        tagged = value if isinstance(value, dict) else {}
        try:
            if set(tagged) == {"type"}:
                decoded[name] = class_of(tagged["type"])
            elif set(tagged) == {"pairs"}:
                decoded[name] = _pairs(tagged["pairs"])
            elif set(tagged) == {"recipe"}:
                decoded[name] = _recipe(tagged["recipe"])
            else:  # an object of format 1 has "static"
                value = _of_format_1(name, value) if "static" in tagged else value
                decoded[name] = build(value, arrays)
        except ModelFileError as error:
            raise ModelFileError(f"the argument {name[:80]}: {error}") from error
    try:
        decoded = _BEFORE | decoded
        model = NETWORKS[header["class"]](**decoded)
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


def _pairs(value: Any) -> dict[Any, float]:
    plain = isinstance(value, list) and all(isinstance(pair, list) for pair in value)
    if not plain or not all(
        len(pair) == 2 and type(pair[0]) in _LABELS.values() and type(pair[1]) is float
        for pair in value
    ):
        raise ModelFileError("its description is damaged.")
    return dict(value)


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
