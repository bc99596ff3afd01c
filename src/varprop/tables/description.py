"""What a model file holds of the table it was fitted on, as JSON; read without JAX."""

from __future__ import annotations

import dataclasses
import math
import os
from typing import Any

import numpy as np

from varprop.data.sketch import Sketch
from varprop.files.container import ModelFileError, read_model_header
from varprop.tables.columns import CategoryColumn, NumberColumn, Preprocessing
from varprop.tables.kinds import READ_AS
from varprop.tables.outcomes import LIKELIHOODS, Outcome
from varprop.tables.text import Dialect

#: Version of the JSON that describes a table.
VERSION = 1
_KINDS: dict[str, type] = {"number": NumberColumn, "category": CategoryColumn}


def read_description(path: str | os.PathLike[str]) -> Preprocessing | None:
    """Read what a model file says of its table; None if it says nothing.

    Raises
    ------
    ModelFileError
        If it is no model file, or its description is damaged.
    """
    content = read_model_header(path).get("table")
    return None if content is None else from_json(content)


def to_json(preprocessing: Preprocessing) -> dict[str, Any]:
    """Return what a model file holds of a table.

    Examples
    --------
    >>> pre = Preprocessing((NumberColumn("size", 0.5, 0.1),), ("price",), (), (), "error")
    >>> from_json(to_json(pre)) == pre
    True
    """
    inputs = []
    for column in preprocessing.inputs:
        kind = next(kind for kind, known in _KINDS.items() if isinstance(column, known))
        inputs.append({"kind": kind, **_said(column)})
    roles = {role: list(getattr(preprocessing, role)) for role in ("targets", "ids", "dropped")}
    found = {"version": VERSION, "inputs": inputs, **roles, "missing": preprocessing.missing}
    later = {
        "text": _said(preprocessing.text),
        "target_units": list(preprocessing.target_units),
        "outcome": _said(preprocessing.outcome),
    }
    return found | {name: part for name, part in later.items() if part}


def _said(value: Any) -> dict[str, Any]:
    """Return the fields that are not as by default: earlier files lack those that came later."""
    found = {}
    for field in dataclasses.fields(value):
        part = getattr(value, field.name)
        if part != field.default:
            part = _said(part) if dataclasses.is_dataclass(part) else part
            found[field.name] = list(part) if isinstance(part, tuple) else part
    return found


def _tuples(entry: Any) -> dict[str, Any]:
    return {key: tuple(part) if isinstance(part, list) else part for key, part in entry.items()}


def from_json(content: Any) -> Preprocessing:
    """Read what `to_json` wrote, and trust nothing of it; the record of a fit is left alone."""
    if isinstance(content, dict):
        content = {key: part for key, part in content.items() if key != "record"}
    if isinstance(content, dict) and content.get("version", VERSION) != VERSION:
        raise ModelFileError(
            "the model file describes its table in a way this version does not know: load it "
            "with the varprop that wrote it."
        )
    try:
        inputs: list[Any] = []
        for entry in content["inputs"]:
            fields = _tuples(entry)
            if "sketch" in fields:
                fields["sketch"] = Sketch(**_tuples(fields["sketch"]))
            inputs.append(_KINDS[fields.pop("kind")](**fields))
        targets, ids, dropped = (tuple(content[role]) for role in ("targets", "ids", "dropped"))
        text = Dialect(**_tuples(content.get("text", {})))
        units = tuple(content.get("target_units", ()))
        outcome = Outcome(**_tuples(content.get("outcome", {})))
        roles = (tuple(inputs), targets, ids, dropped, content["missing"])
        found = Preprocessing(*roles, text, units, outcome)
        sound = to_json(found) == content and _is_sound(found)
    except (KeyError, TypeError, AttributeError):
        sound = False
    if not sound:
        raise ModelFileError("the model file's description of its table is damaged.")
    return found


def _is_sound(found: Preprocessing) -> bool:
    """Whether what the JSON holds may stand there; that it has our shape is known."""
    names = [column.name for column in found.inputs]
    names += [*found.targets, *found.ids, *found.dropped]
    sound = all(isinstance(name, str) for name in names) and len(set(names)) == len(names)
    for column in found.inputs:
        if isinstance(column, NumberColumn):
            sound &= type(column.mean) is type(column.var) is float
            sound &= math.isfinite(column.mean) and 0 <= column.var < math.inf
            sound &= isinstance(column.unit, str)
            sound &= column.sketch is None or column.sketch.is_sound
        else:
            levels, counts = column.levels, column.counts
            sound &= column.values in ("text", "boolean")
            sound &= all(level is None or isinstance(level, str) for level in levels)
            sound &= all(type(count) is int and 0 < count < 2**53 for count in counts)
            sound &= 0 < len(levels) == len(counts) == len(set(levels))
    text = found.text
    marks = (text.delimiter, text.decimal, text.thousands, text.encoding)
    sound &= all(mark is None or isinstance(mark, str) for mark in marks)
    sound &= isinstance(text.missing, tuple) and all(isinstance(m, str) for m in text.missing)
    units = found.target_units
    sound &= all(isinstance(u, str) for u in units) and len(units) in (0, len(found.targets))
    sound &= _is_sound_outcome(found)
    missing = found.missing in ("error", "drop", "impute")
    return sound and missing and bool(found.inputs) and bool(found.targets) and not text.problem()


def _is_sound_outcome(found: Preprocessing) -> bool:
    outcome = found.outcome
    classes = outcome.classes
    known = LIKELIHOODS | {"auto": "classes"}
    sound = outcome.kind == known.get(outcome.likelihood) and outcome.values in READ_AS
    sound &= isinstance(classes, tuple) and all(isinstance(name, str) for name in classes)
    sound &= len(set(classes)) == len(classes) and (len(classes) > 1) == (outcome.kind == "classes")
    more = (outcome.exposure, outcome.censoring, outcome.upper)
    sound &= all(name is None or isinstance(name, str) for name in more)
    return sound and (outcome.kind in ("numbers", "counts") or len(found.targets) == 1)


def from_names(regressor: Any, path: str | os.PathLike[str]) -> Preprocessing:
    """Take every named feature of a model saved from Python as a column of numbers."""
    names = getattr(regressor, "feature_names_in_", None)
    if names is None:
        raise ModelFileError(
            f"{os.path.basename(path)} was saved from Python without column names: fit with a data "
            "frame, or with `varprop fit`."
        )
    # From here on columns are found by name: scikit-learn's check would only warn of bare arrays.
    if hasattr(regressor, "__sklearn_tags__"):
        del regressor.feature_names_in_
    scaling = regressor.scaling_
    inputs = tuple(
        NumberColumn(str(name), float(mean), float(scale) ** 2)
        for name, mean, scale in zip(names, scaling.x_shift, scaling.x_scale, strict=True)
    )
    targets = regressor.target_names_
    if targets is None:
        count = regressor.n_outputs_
        targets = ["target"] if count == 1 else [f"target{i}" for i in range(1, count + 1)]
    outcome, labels = Outcome(), np.asarray(getattr(regressor, "classes_", ()))
    if len(labels):
        values = {"b": "boolean", "U": "text", "T": "text"}.get(labels.dtype.kind, "number")
        names = [str(label) for label in labels.tolist()]
        names = [name.lower() for name in names] if values == "boolean" else names
        outcome = Outcome("classes", "auto", values, tuple(names))
    return Preprocessing(inputs, tuple(targets), (), (), "error", outcome=outcome)
