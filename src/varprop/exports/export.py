"""The one way from a fitted model to a file that runs without Python."""

from __future__ import annotations

import os
import pathlib
from typing import TYPE_CHECKING, Any

from varprop.atomic import replacing
from varprop.errors import InputError
from varprop.exports.columns import Columns
from varprop.plans.plan import Plan
from varprop.plans.steps import PlanError

if TYPE_CHECKING:
    from varprop.estimators.base import AbstractEstimator
    from varprop.tables.model import TableModel

#: What a model can be exported to.
FORMATS = ("c", "js", "onnx", "page")


class ExportError(InputError):
    """A model that cannot be exported; the message says which part of it."""


def export(
    model: AbstractEstimator | TableModel | str | os.PathLike[str],
    path: str | os.PathLike[str],
    *,
    to: str,
    dtype: str = "float64",
    name: str | None = None,
) -> None:
    r"""Write a fitted model as a file that predicts where no Python is.

    What is written is the model's plan, with all that goes before it: the scaling, and of a model
    of a table its categories and what is done where a number is missing. The file takes what the
    table has: a number for each column, and of a category its code (in JavaScript its name).

    Parameters
    ----------
    model
        A fitted estimator, a `varprop.tables.TableModel`, or the path of a model file.
    path
        Where to.
    to
        "c" for a C99 header that allocates nothing, "js" for an ES module in plain JavaScript:
        mean, standard deviation, distribution function, quantiles and intervals of each target
        (of mixtures too), or probabilities of classes. "onnx" (needs ``varprop[onnx]``) for a
        graph that takes ``X``, double of shape (rows, columns), and gives ``mean`` and ``std``,
        (rows, targets), and ``cov``, (rows, targets, targets), where the covariance between
        targets is modeled; of classes ``probabilities``, (rows, classes), and ``aleatoric``,
        (rows, 1): what of their entropy is chance. "page" for a page that contains the model.
    dtype
        "float64" or "float32": of C what it computes in, of JavaScript what weights are kept in.
    name
        Of the model, with which the names of a C header begin and which a page has as its title;
        the file's unless given.

    Raises
    ------
    ExportError
        If a part of the model cannot be exported: the message says which.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import numpy as np
    >>> from varprop import StackedRegressor
    >>> X = np.linspace(0, 1, 30)[:, None]
    >>> model = StackedRegressor([]).fit(X, X[:, 0])
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "line.h"
    >>> export(model, path, to="c")
    >>> path.read_text().split("\n")[0]
    '/* The model line of y.'
    """
    if to not in FORMATS:
        raise ExportError(f"to must be {', '.join(map(repr, FORMATS))}, not {to!r}.")
    if dtype not in ("float64", "float32"):
        raise ExportError(f"dtype must be 'float64' or 'float32', not {dtype!r}.")
    if to in ("onnx", "page") and dtype != "float64":
        raise ExportError("only C and JavaScript can be float32: leave dtype out.")
    plan, columns = opened(model)
    name = pathlib.PurePath(path).stem if name is None else name
    if to == "page":
        from varprop.exports.page import write_what_if

        return write_what_if(plan, columns, path, title=name)
    if to == "onnx":
        try:
            from varprop.exports.onnx import to_onnx
        except ImportError as error:
            raise ExportError(
                "ONNX export needs the package onnx: pip install varprop[onnx]."
            ) from error
        content = to_onnx(plan, columns).SerializeToString()
    elif to == "c":
        from varprop.exports.c import to_c

        content = to_c(plan, columns, name=name, dtype=dtype).encode()
    else:
        from varprop.exports.javascript import to_javascript

        content = to_javascript(plan, columns, name=name, dtype=dtype).encode()
    with replacing(path) as file:
        file.write(content)


def opened(model: Any) -> tuple[Plan, Columns]:
    """Return the plan of a model and the columns it takes.

    Raises
    ------
    ExportError
        If there is no plan of it.
    """
    try:
        if isinstance(model, str | os.PathLike):
            return _from_file(model)
        if hasattr(model, "preprocessing"):
            regressor = model.regressor
            plan = regressor if isinstance(regressor, Plan) else _planned(regressor)
            return plan, Columns.of_table(model.preprocessing)
        plan = model if isinstance(model, Plan) else _planned(model)
        return plan, Columns.of_plan(plan)
    except PlanError as error:
        raise ExportError(str(error)) from error


def _planned(model: Any) -> Plan:
    from sklearn.utils.validation import check_is_fitted

    from varprop.files.planning import plan_of

    check_is_fitted(model)
    return plan_of(model)


def _from_file(path: str | os.PathLike[str]) -> tuple[Plan, Columns]:
    from varprop.files.plan import load_plan
    from varprop.tables.model import TableModel

    plan, table = load_plan(path)
    if table is None:
        return plan, Columns.of_plan(plan)
    return plan, Columns.of_table(TableModel._of(plan, table, path).preprocessing)
