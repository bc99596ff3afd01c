"""What users hand to the regressor: checked, named in errors by row and column, put in order."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data

from varprop.data.arrays import Data, Scaling, noise_floor
from varprop.training.prediction import Propagated

#: Up to this many rows, equal rows are merged and the rest is put in a fixed order.
MERGE_ROWS = 10_000


@dataclasses.dataclass(frozen=True)
class TrainingRows:
    """Checked training rows, float32 or float64 as they came.

    Attributes
    ----------
    X
        Shape (rows, features).
    y
        Shape (rows, outputs), float64.
    weight
        Shape (rows,), float64 and positive, or None if all are 1.
    X_std
        Shape of X, float64, or None.
    y_ndim
        1 if the targets came as a vector.
    """

    X: np.ndarray
    y: np.ndarray
    weight: np.ndarray | None
    X_std: np.ndarray | None
    y_ndim: int

    def scaling(self) -> Scaling:
        """Return shift and scale of these rows, in float64 whatever the model's precision."""
        return Scaling.of(Data(self.X, self.y, self.weight, dtype=np.float64))

    def noise_floor(self, scaling: Scaling) -> np.ndarray:
        """Return the noise's least standard deviation in units of the scaling, shape (outputs,)."""
        return noise_floor(self.y) / scaling.y_scale

    def standardized(self, scaling: Scaling, dtype: str) -> Data:
        """Return the rows scaled, in the model's precision.

        Subtracting the shift before rounding keeps the digits of columns far from zero, and makes
        training blind to affine changes of the targets.
        """
        x = ((self.X - scaling.x_shift) / scaling.x_scale).astype(dtype)
        y = ((self.y - scaling.y_shift) / scaling.y_scale).astype(dtype)
        x_var = None
        if self.X_std is not None:
            x_var = ((self.X_std / scaling.x_scale) ** 2).astype(dtype)
        return Data(x, y, self.weight, x_var, dtype=np.dtype(dtype))


def check_inputs(estimator: BaseEstimator, X: Any, *, reset: bool, y: Any = "no_validation") -> Any:
    """Return X, or X and y, as finite arrays of floats; remember or compare the feature names.

    Parameters
    ----------
    estimator
        Whose `n_features_in_` and `feature_names_in_` are set (`reset`) or compared with.
    X
        Shape (rows, features).
    reset
        Whether this is the first look at data.
    y
        Shape (rows,) or (rows, outputs); only X is checked and returned unless given.
    """
    options: dict[str, Any] = {"dtype": [np.float64, np.float32], "ensure_all_finite": False}
    both = not isinstance(y, str)
    if both:
        # One row has no spread to learn from.
        options |= {"y": y, "multi_output": True, "y_numeric": True, "ensure_min_samples": 2}
    try:
        checked = validate_data(estimator, X, reset=reset, **options)
    except ValueError as error:
        text = _first_text(X)
        if text is None:
            raise
        raise ValueError(
            f"X holds the text {text[1]!r} in column {text[0]!r}: encode it as numbers first, for "
            "example with OneHotEncoder in a ColumnTransformer."
        ) from error
    X = checked[0] if both else checked
    check_finite(X, "X", getattr(estimator, "feature_names_in_", None))
    if not both:
        return X
    y = np.asarray(checked[1], dtype=np.float64)
    check_finite(y, "y")
    return X, y


def check_finite(values: np.ndarray, name: str, columns: Any = None) -> None:
    """Raise ValueError that names the first NaN or infinity by row and column.

    Examples
    --------
    >>> check_finite(np.ones((2, 2)), "X")
    """
    # A sum is finite if all entries are, and needs no copy; it may overflow, so look closely then.
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(values.sum(dtype=np.float64)):
            return
    bad = np.argwhere(~np.isfinite(values))
    if not len(bad):
        return
    value = "NaN" if np.isnan(values[tuple(bad[0])]) else "an infinity (inf)"
    raise ValueError(
        f"{name} contains {value} in {_place(bad[0], columns)}: remove or impute it first."
    )


def _place(index: Any, columns: Any = None) -> str:
    where = f"row {index[0]}"
    if len(index) == 1:
        return where
    column = index[1] if columns is None else repr(str(columns[index[1]]))
    return f"{where}, column {column}"


def _first_text(X: Any) -> tuple[Any, str] | None:
    """Name of the first column that holds text, and the text."""
    if hasattr(X, "columns") and hasattr(X, "__getitem__"):
        named = [(name, np.asarray(X[name])) for name in X.columns]
    else:
        try:
            array = np.asarray(X)
        except ValueError:  # rows of different length
            return None
        if array.ndim != 2:
            return None
        named = list(enumerate(array.T))
    for name, column in named:
        if column.dtype.kind not in "OUST":
            continue
        for value in column:
            if isinstance(value, str):
                try:
                    float(value)
                except ValueError:
                    return name, str(value)
    return None


def check_input_std(X_std: Any, X: np.ndarray) -> np.ndarray | None:
    """Return the inputs' known errors as an array of the shape of X.

    Parameters
    ----------
    X_std
        Standard deviations, >= 0, in the units of X: shape of X, or (features,) for all rows.
    X
        Checked inputs.
    """
    if X_std is None:
        return None
    try:
        std = np.asarray(X_std, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError("X_std must hold numbers in a regular array.") from error
    if std.shape not in (X.shape, X.shape[1:]):
        raise ValueError(
            f"X_std has shape {std.shape}, but X has shape {X.shape}: give one number per entry of "
            "X or one per column."
        )
    std = np.broadcast_to(std, X.shape)
    check_finite(std, "X_std")
    if (std < 0).any():
        index = np.argwhere(std < 0)[0]
        raise ValueError(
            f"X_std must not be negative, but is {std[tuple(index)]:g} in {_place(index)}."
        )
    return std


def target_names(y: Any) -> list[str] | None:
    """Return the names of a data frame's columns or of a named series; None if there are none.

    Examples
    --------
    >>> target_names(np.ones(3)) is None
    True
    """
    if hasattr(y, "columns"):
        return [str(name) for name in y.columns]
    name = getattr(y, "name", None)
    return [name] if isinstance(name, str) else None


def check_predicted(out: Propagated) -> None:
    """Raise ValueError if a row lies so far out that the network's precision cannot hold it."""
    bad = ~(np.isfinite(out.mean) & np.isfinite(out.var)).all(axis=1)
    if bad.any():
        raise ValueError(
            f"The prediction of row {int(np.argmax(bad))} is not finite: the row lies too far from "
            "the training data for the model's precision."
        )


def check_weight(sample_weight: Any, n_rows: int) -> np.ndarray | None:
    """Return sample weights as float64 of shape (rows,), or None if there are none.

    Examples
    --------
    >>> check_weight(2, 3).tolist()
    [2.0, 2.0, 2.0]
    """
    if sample_weight is None:
        return None
    try:
        weight = np.asarray(sample_weight, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError("sample_weight must hold one number per row.") from error
    if weight.ndim == 0:
        weight = np.full(n_rows, weight)
    if weight.shape != (n_rows,):
        raise ValueError(f"sample_weight has shape {weight.shape}, but there are {n_rows} rows.")
    check_finite(weight, "sample_weight")
    if (weight < 0).any():
        row = int(np.argmax(weight < 0))
        raise ValueError(
            f"sample_weight must not be negative, but is {weight[row]:g} in row {row}."
        )
    if not weight.any():
        raise ValueError("sample_weight must not be zero in all rows.")
    return weight


def training_rows(
    estimator: BaseEstimator, X: Any, y: Any, sample_weight: Any, X_std: Any, *, reset: bool
) -> TrainingRows:
    """Check all that `fit` is given.

    Rows of weight 0 are dropped. Up to `MERGE_ROWS` rows, equal rows become one row with the sum
    of their weights and the rows are sorted: then training on a row twice and on the row with
    weight 2, or on the rows in another order, is the same computation to the bit, and not only up
    to rounding.
    """
    X, y = check_inputs(estimator, X, y=y, reset=reset)
    weight = check_weight(sample_weight, len(X))
    std = check_input_std(X_std, X)
    y_ndim = y.ndim
    y = y.reshape(len(y), -1)
    if weight is not None and not weight.all():
        used = weight > 0
        X, y, weight = X[used], y[used], weight[used]
        std = None if std is None else std[used]
    if len(X) <= MERGE_ROWS:
        parts = [X, y] if std is None else [X, y, std]
        # Adding 0 turns -0 into 0: the two are equal and must stay so when sorted by bits.
        table = np.concatenate(parts, axis=1, dtype=np.float64) + 0.0
        table, where = np.unique(table, axis=0, return_inverse=True)
        weight = np.bincount(where.ravel(), weight).astype(np.float64)
        ends = np.cumsum([part.shape[1] for part in parts])[:-1]
        X, y, *rest = np.split(table, ends, axis=1)
        std = rest[0] if rest else None
    if weight is not None and (weight == 1).all():
        weight = None
    return TrainingRows(X, y, weight, std, y_ndim)
