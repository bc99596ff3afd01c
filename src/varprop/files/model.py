"""Any model in a file: its tree as JSON, its arrays by the path that leads to them.

A class is named, never imported: only those that were registered (`varprop.register`) can be read.
"""

from __future__ import annotations

import dataclasses
import math
import os
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from varprop.files.container import ArraySpec, ModelFileError, read_model_file, write_model_file
from varprop.learning.model import Model
from varprop.moments.gaussian import Gaussian
from varprop.nn.registry import registered

_PLAIN = bool | int | float | str | None
# Of a class's own whole numbers, such as nodes of a quadrature: a file must not be able to ask for
# work or memory without end.
_MAX_WHOLE = 1024


class Described(NamedTuple):
    """A tree as a file holds it: JSON, and arrays (or their shapes) by name."""

    tree: Any
    arrays: dict[str, Any]


def describe(thing: Any, prefix: str) -> Described:
    """Take a tree of registered classes, sequences, arrays and plain values apart.

    Parameters
    ----------
    thing
        A model, or a part of one.
    prefix
        Of the arrays' names.

    Examples
    --------
    >>> from varprop import nn
    >>> describe(nn.LeakyReLU(0.5), "a").tree
    {'class': 'LeakyReLU', 'fields': {'negative_slope': {'array': 'a.negative_slope'}}}
    """
    if isinstance(thing, np.generic) and not isinstance(thing, np.ndarray):
        thing = thing.item()
    if isinstance(thing, float) and not math.isfinite(thing):
        raise ModelFileError(f"{prefix} is {thing}, which a model file cannot hold.")
    if isinstance(thing, _PLAIN):
        return Described(thing, {})
    if hasattr(thing, "shape") and hasattr(thing, "dtype"):
        if np.dtype(thing.dtype) not in (np.float32, np.float64):
            raise ModelFileError(
                f"{prefix} holds {thing.dtype}, but a model file holds arrays of floats only."
            )
        return Described({"array": prefix}, {prefix: thing})
    arrays: dict[str, Any] = {}
    if isinstance(thing, tuple | list):
        parts = [describe(part, f"{prefix}.{i}") for i, part in enumerate(thing)]
        for part in parts:
            arrays |= part.arrays
        kind_name = "tuple" if isinstance(thing, tuple) else "list"
        return Described({kind_name: [part.tree for part in parts]}, arrays)
    name = type(thing).__name__
    if registered(name) is not type(thing):
        what = "a Python function" if name in ("function", "PjitFunction") else f"a {name}"
        raise ModelFileError(
            f"{prefix} is {what}, which a model file cannot hold: only classes registered by "
            "varprop.register can be written."
        )
    fields: dict[str, Any] = {}
    kind: Any = type(thing)
    for field in dataclasses.fields(kind):
        part = describe(getattr(thing, field.name), f"{prefix}.{field.name}")
        _check_whole(part.tree, field.name, name)
        fields[field.name] = part.tree
        arrays |= part.arrays
    return Described({"class": name, "fields": fields}, arrays)


def build(tree: Any, arrays: dict[str, Any]) -> Any:
    """Put together what `describe` took apart, trusting nothing.

    Parameters
    ----------
    tree
        JSON.
    arrays
        Arrays by name, or their shapes and dtypes; each is used once, and taken out.

    Raises
    ------
    ModelFileError
        If it names a class that is not registered, or has other fields than the class.
    """
    if tree is None or isinstance(tree, bool | int | float | str):
        return tree
    if not isinstance(tree, dict):
        raise ModelFileError("the description of the model is damaged.")
    if set(tree) == {"array"}:
        name = tree["array"]
        if not isinstance(name, str) or name not in arrays:
            raise ModelFileError(f"array {str(name)[:80]} is missing.")
        return arrays.pop(name)
    for container in (tuple, list):
        if set(tree) == {container.__name__} and isinstance(tree[container.__name__], list):
            return container(build(part, arrays) for part in tree[container.__name__])
    kind: Any = class_of(tree.get("class"))
    fields = tree.get("fields")
    known = [field.name for field in dataclasses.fields(kind)]
    if isinstance(fields, dict):  # what is younger than the file is as it was before
        older = {
            f.name: f.metadata["before"] for f in dataclasses.fields(kind) if "before" in f.metadata
        }
        fields = older | fields
    if set(tree) != {"class", "fields"} or not isinstance(fields, dict) or set(fields) != {*known}:
        raise ModelFileError(f"{kind.__name__} has other fields than the file describes.")
    for name, value in fields.items():
        _check_whole(value, name, kind.__name__)
    # As JAX puts trees together: the fields are set, and no constructor changes their bits.
    thing: Any = object.__new__(kind)
    for name in known:
        object.__setattr__(thing, name, build(fields[name], arrays))
    return thing


def _check_whole(value: Any, field: str, kind: str) -> None:
    if type(value) is int and not -_MAX_WHOLE <= value <= _MAX_WHOLE:
        raise ModelFileError(f"{field} of {kind} is out of range.")


def class_of(name: Any) -> type:
    """Return the registered class of this name, or raise ModelFileError."""
    kind = registered(name) if isinstance(name, str) else None
    if kind is None:
        raise ModelFileError(
            f"the file names the class {str(name)[:80]!r}, which is not known here: register it by "
            "varprop.register before loading."
        )
    return kind


def check_model(model: Any, n_inputs: int | None = None) -> Model:
    """Raise ModelFileError unless a model of shapes and dtypes can see a row; nothing is computed.

    Parameters
    ----------
    model
        With `jax.ShapeDtypeStruct` in place of arrays.
    n_inputs
        Inputs it must take; those of its first weights unless given.
    """
    try:
        leaves = [leaf for leaf in jax.tree.leaves(model) if hasattr(leaf, "dtype")]
        if not isinstance(model, Model) or not leaves:
            raise ModelFileError("the file holds no model.")
        dtype = leaves[0].dtype
        if any(leaf.dtype != dtype for leaf in leaves):
            raise ModelFileError("the arrays of the model have different dtypes.")
        if n_inputs is None:  # what its first layer says, or those of the first matrix of weights
            sizes: list[Any] = [getattr(a, "shape", ()) for a in jax.tree.leaves(model.network)]
            first = next(iter(getattr(model.network, "flat", (model.network,))), None)
            found = next(size[1] for size in sizes if len(size) == 2)
            n_inputs = getattr(first, "n_inputs", found)
        with jax.enable_x64(dtype == np.float64):
            row = jax.ShapeDtypeStruct((2, n_inputs), dtype)
            out = eqx.filter_eval_shape(lambda tree, x: tree.network.moments(x).mean, model, row)
            likelihood = model.likelihood
            parts = eqx.filter_eval_shape(lambda tree, x: tree.predictive(x), model, row)
            targets = (2, likelihood.n_targets)
            means = [part.model.mean for part in parts if hasattr(part, "model")]
            if out.shape != (2, likelihood.n_outputs) or any(m.shape != targets for m in means):
                raise ModelFileError("the network's outputs do not fit the likelihood.")
            eqx.filter_eval_shape(lambda tree: tree.prior.kl(tree.network), model)
            if model.weight_root is not None:
                eqx.filter_eval_shape(lambda tree, x: tree.shared(Gaussian(x)), model, row)
    except ModelFileError:
        raise
    except Exception as error:  # sizes no network can have fail deep inside JAX, in many ways
        raise ModelFileError("no network of this description can be built.") from error
    return model


def shapes(table: dict[str, ArraySpec]) -> dict[str, Any]:
    """Return shapes and dtypes as JAX takes them in place of arrays."""
    return {name: jax.ShapeDtypeStruct(spec.shape, spec.dtype) for name, spec in table.items()}


def save_model(model: Model, path: str | os.PathLike[str]) -> None:
    """Write a model to one ``.safetensors`` file: arrays and JSON, no code.

    Parameters
    ----------
    model
        Of registered classes.
    path
        Where to; written whole or not at all.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from varprop import regression_model
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "model.safetensors"
    >>> save_model(regression_model(3, 2, key=jax.random.key(0)), path)
    >>> load_model(path).likelihood.n_targets
    2
    """
    found = describe(model, "model")
    header = {"class": "Model", "model": found.tree}
    write_model_file(path, header, {name: np.asarray(a) for name, a in found.arrays.items()})


def load_model(path: str | os.PathLike[str]) -> Model:
    """Read a model that `save_model` wrote; a damaged or foreign file is a `ModelFileError`.

    Parameters
    ----------
    path
        The file. Reading it runs no code, whoever made it. A float64 model needs
        `jax.enable_x64` to keep its digits.
    """

    def check(header: dict[str, Any], table: dict[str, ArraySpec]) -> None:
        if set(header) != {"class", "model"} or header["class"] != "Model":
            raise ModelFileError(
                f"the file holds no bare model, but {str(header.get('class'))[:80]!r}."
            )
        left = shapes(table)
        check_model(build(header["model"], left))
        if left:
            raise ModelFileError(f"array {min(left)[:80]!r} is unknown.")

    header, arrays = read_model_file(path, check)
    for name, array in arrays.items():
        if not np.isfinite(array).all():
            raise ModelFileError(f"array {name} is not finite.")
    return jax.tree.map(
        lambda leaf: jnp.asarray(leaf) if isinstance(leaf, np.ndarray) else leaf,
        build(header["model"], arrays),
    )
