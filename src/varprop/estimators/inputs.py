"""What users hand to the regressor: checked, named in errors by row and column, put in order."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator, is_classifier
from sklearn.utils.validation import validate_data

from varprop.data.neighbors import neighbors_alike
from varprop.data.source import AbstractSource, Data, Rows
from varprop.data.statistics import first_nonfinite, no_covariance, sound_rows
from varprop.data.targets import with_targets
from varprop.data.together import Together, check_together
from varprop.learning.likelihoods.given import NUMBERS, Given

#: Up to this many rows, equal rows are merged and the rest is put in a fixed order.
MERGE_ROWS = 10_000


class Training(NamedTuple):
    """What `fit` was given, checked.

    Attributes
    ----------
    source
        The rows.
    together
        What keeps rows together when some are set aside, besides that they are identical; or None.
    ordered
        The rows in the order given, with all copies.
    n_compared
        Targets of which neighbors can be compared.
    """

    source: AbstractSource
    together: Together | None
    ordered: AbstractSource
    n_compared: int

    def alike(self) -> bool:
        """Look whether rows are a trajectory, as it seems, of which nothing was said."""
        return self.together is None and neighbors_alike(self.ordered, n_targets=self.n_compared)


def check_inputs(estimator: BaseEstimator, X: Any, *, reset: bool, y: Any = "no_validation") -> Any:
    """Return X, or X and y, as arrays of floats; remember or compare the feature names.

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
    if not isinstance(y, str):
        # One row has no spread to learn from.
        options |= {"y": y, "multi_output": True, "y_numeric": True, "ensure_min_samples": 2}
    try:
        return validate_data(estimator, X, reset=reset, **options)
    except ValueError as error:
        text = _first_text(X)
        if text is None:
            raise
        raise ValueError(
            f"X holds the text {text[1]!r} in column {text[0]!r}: encode it as numbers first, for "
            "example with OneHotEncoder in a ColumnTransformer."
        ) from error


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


def check_input_errors(X_std: Any, X_cov: Any, X: np.ndarray) -> np.ndarray | None:
    """Return variances of the inputs' known errors, or covariances, or None if there are none.

    Parameters
    ----------
    X_std
        Standard deviations, >= 0, in the units of X: shape of X, or (features,) for all rows.
    X_cov
        Covariances, see `_check_cov`, where errors of a row are correlated.
    X
        Checked inputs.
    """
    if X_cov is not None:
        if X_std is not None:
            raise ValueError("X_std and X_cov say the same thing: give one of them.")
        return _check_cov(X_cov, X)
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
    bad = first_nonfinite(std)
    if bad is None and (std < 0).any():
        bad = np.argwhere(std < 0)[0]
    if bad is not None:
        raise ValueError(
            f"X_std must be finite and not negative, but is {std[tuple(bad)]:g} in row {bad[0]}, "
            f"column {bad[1]}."
        )
    return std**2


def _check_cov(X_cov: Any, X: np.ndarray) -> np.ndarray:
    """Return the covariances of the inputs' known errors, shape (rows, features, features).

    Parameters
    ----------
    X_cov
        Symmetric and positive semidefinite, in the units of X: one per row, or one for all rows.
    X
        Checked inputs.
    """
    try:
        cov = np.asarray(X_cov, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError("X_cov must hold numbers in a regular array.") from error
    n = X.shape[1]
    if cov.shape not in ((len(X), n, n), (n, n)):
        raise ValueError(
            f"X_cov has shape {cov.shape}, but X has shape {X.shape}: give one matrix of {n} by "
            f"{n} per row, ({len(X)}, {n}, {n}), or one for all, ({n}, {n})."
        )
    if not np.isfinite(cov).all():
        raise ValueError("X_cov must be finite.")
    bad = no_covariance(cov)
    if np.any(bad):
        where = f" in row {int(np.argmax(bad))}" if bad.ndim else ""
        raise ValueError(
            f"X_cov is no covariance{where}: it must be symmetric and positive semidefinite."
        )
    return np.broadcast_to(cov, (len(X), n, n))


def rows_to_predict(
    estimator: BaseEstimator, X: Any, X_std: Any, X_cov: Any = None
) -> tuple[np.ndarray, np.ndarray | None]:
    """Return inputs and the variances, or covariances, of their errors, all finite."""
    X = check_inputs(estimator, X, reset=False)
    bad = first_nonfinite(X)
    if bad is not None:
        names = getattr(estimator, "feature_names_in_", None)
        column = bad[1] if names is None else repr(str(names[bad[1]]))
        value = "NaN" if np.isnan(X[tuple(bad)]) else "an infinity (inf)"
        raise ValueError(
            f"X contains {value} in row {bad[0]}, column {column}: remove or impute it first."
        )
    return X, check_input_errors(X_std, X_cov, X)


def training_data(
    estimator: Any,
    X: Any,
    y: Any,
    sample_weight: Any,
    X_std: Any,
    X_cov: Any,
    *,
    reset: bool,
    given: Given = NUMBERS,
    exposure: Any = None,
    groups: Any = None,
    times: Any = None,
) -> Training:
    """Check the shapes of all that `fit` is given and return it as a source.

    The estimator is told the names of features and targets, and how many axes these have. Columns
    of y are what a likelihood makes of what is `given`.

    Rows of weight 0 are dropped. Up to `MERGE_ROWS` rows, equal rows become one row with the sum
    of their weights and the rows are sorted: then training on a row twice and on the row with
    weight 2, or on the rows in another order, is the same computation to the bit, and not only up
    to rounding. Groups and times follow the rows.
    """
    if isinstance(X, AbstractSource):
        if any(part is not None for part in (y, sample_weight, X_std, X_cov, exposure)):
            raise ValueError(
                "X is a source with targets and weights of its own: give it alone, or with groups "
                "or times."
            )
        if X.n_rows < 2:
            raise ValueError(f"the source has {X.n_rows} rows, but at least 2 are needed.")
        # Few rows are put in order, as arrays are: where they come from makes no difference then.
        data: AbstractSource = X
        names = list(X.features)
        targets: list[str] | None = list(X.targets)
        width = len(X.targets) - (X.exposure_name is not None)
        y_ndim = 1 if width == given.blocks else 2
        if reset:
            estimator.n_features_in_ = len(names)
            estimator.feature_names_in_ = np.array(names, object)
        elif names != list(getattr(estimator, "feature_names_in_", names)):
            raise ValueError("the source has other features than the model was fitted with.")
        n_targets = _n_targets(width, given)
        if given is not NUMBERS:
            names = _column_names(X.targets, n_targets, given)
            change = _with_exposure if X.exposure_name is not None else _without_exposure
            data = with_targets(X, functools.partial(change, given), names)
        ordered, together = data, check_together(groups, times, X.n_rows)
        if X.n_rows <= MERGE_ROWS:
            data, together = _in_order(data, together)
    else:
        X_checked, y_checked = _check_both(estimator, X, y, reset=reset, given=given)
        width = 1 if y_checked.ndim == 1 else y_checked.shape[1]
        n_targets = _n_targets(width, given)
        y_ndim = 1 if y_checked.ndim == 1 or width == given.blocks > 1 else 2
        named = getattr(estimator, "feature_names_in_", range(X_checked.shape[1]))
        names = [f"X[:, {name}]" if isinstance(name, int) else str(name) for name in named]
        targets = target_names(y)
        rows = Data(
            X_checked,
            np.asarray(y_checked, np.float64),
            check_weight(sample_weight, len(X_checked)),
            check_input_errors(X_std, X_cov, X_checked),
            names=names + (targets or [f"y[:, {i}]" for i in range(width)]),
            weight_name="sample_weight",
        )
        checked = check_exposure(exposure, len(X_checked), given)
        if given is not NUMBERS:
            names = _column_names(rows.targets, n_targets, given)
            changed = with_targets(rows, lambda y: given.columns(y, checked), names)
            assert isinstance(changed, Data)
            rows = changed
        ordered = rows
        data, together = _in_order(rows, check_together(groups, times, len(X_checked)))
    if not reset and n_targets != estimator.n_outputs_:
        raise ValueError(
            f"y has {n_targets} targets, but the model was fitted with {estimator.n_outputs_}."
        )
    if reset:
        estimator.n_outputs_, estimator._y_ndim = n_targets, y_ndim
        estimator.target_names_ = None if targets is None else targets[:n_targets]
    # Classes have numbers, too, but these are not near one another.
    compared = 0 if given is not NUMBERS or is_classifier(estimator) else n_targets
    return Training(data, together, ordered, compared)


def _with_exposure(given: Given, y: np.ndarray) -> np.ndarray:
    return given.columns(y[:, :-1], y[:, -1])


def _without_exposure(given: Given, y: np.ndarray) -> np.ndarray:
    return given.columns(y, None)


def _check_both(
    estimator: Any, X: Any, y: Any, *, reset: bool, given: Given
) -> tuple[np.ndarray, np.ndarray]:
    """Return both as arrays; scikit-learn knows nothing of bounds that are infinite."""
    if given.blocks == 1 or y is None:
        return check_inputs(estimator, X, y=y, reset=reset)
    try:
        bounds = np.asarray(y, np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError("y must hold numbers, a lower and an upper bound per target.") from error
    finite = np.where(np.isinf(bounds), 0.0, bounds)
    return check_inputs(estimator, X, y=finite, reset=reset)[0], bounds


def _n_targets(width: int, given: Given) -> int:
    if width % given.blocks:
        raise ValueError(
            f"y has {width} columns, but a lower and an upper bound are needed for every target: "
            "give the same number twice where it is known."
        )
    return width // given.blocks


def _column_names(names: Sequence[str], n_targets: int, given: Given) -> list[str]:
    own = list(names[:n_targets])
    return own + [f"{name} ({more})" for more in given.more for name in own]


def check_exposure(exposure: Any, n_rows: int, given: Given) -> np.ndarray | None:
    """Return exposures as float64 of shape (rows,), or None if there are none."""
    if exposure is None:
        return None
    if not given.exposure:
        raise ValueError(
            "exposure is for counts: choose likelihood='poisson' or 'negative-binomial'."
        )
    try:
        found = np.asarray(exposure, np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError("exposure must hold one number per row.") from error
    if found.ndim == 0:
        found = np.full(n_rows, found)
    if found.shape != (n_rows,):
        raise ValueError(f"exposure has shape {found.shape}, but there are {n_rows} rows.")
    return found


def target_names(y: Any) -> list[str] | None:
    """Return the names of a data frame's columns or of a named series; None if there are none."""
    if hasattr(y, "columns"):
        return [str(name) for name in y.columns]
    name = getattr(y, "name", None)
    return [name] if isinstance(name, str) else None


def check_weight(sample_weight: Any, n_rows: int) -> np.ndarray | None:
    """Return sample weights as float64 of shape (rows,), or None if there are none."""
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
    return weight


def _in_order(source: AbstractSource, together: Together | None) -> tuple[Data, Together | None]:
    # Looked at now, while rows stand where users know them.
    rows = Rows.joined(piece for _, _, piece in sound_rows(source))
    numbers = np.arange(len(rows.x))
    if rows.weight is not None and not rows.weight.all():
        numbers = np.flatnonzero(rows.weight)
        rows = rows.part(numbers)
        together = together and together.part(numbers)
    x, y, weight, x_var = rows
    if not len(x):
        raise ValueError(f"{source.weight_name} must not be zero in all rows.")
    n_before = len(x)
    if len(x) <= MERGE_ROWS:
        parts = [x, y] if x_var is None else [x, y, x_var.reshape(len(x), -1)]
        # Adding 0 turns -0 into 0: the two are equal and must stay so when sorted by bits.
        table = np.concatenate(parts, axis=1, dtype=np.float64) + 0.0
        table, first, where = np.unique(table, axis=0, return_index=True, return_inverse=True)
        numbers = numbers[first]
        together = together and together.merged(where.ravel(), len(table))
        weight = np.bincount(where.ravel(), weight).astype(np.float64)
        ends = np.cumsum([part.shape[1] for part in parts])[:-1]
        x, y, *rest = np.split(table, ends, axis=1)
        x_var = rest[0].reshape(len(x), *source.error_shape) if source.error_shape else None
    if weight is not None and (weight == 1).all():
        weight = None
    names = [*source.features, *source.targets]
    # A row of weight 2 is the row twice.
    whole = weight is not None and bool((weight == np.round(weight)).all())
    repeated = source.repeated or len(x) < n_before or whole
    return (
        Data(x, y, weight, x_var, names=names, numbers=numbers, sound=True, repeated=repeated),
        together,
    )
