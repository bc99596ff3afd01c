"""A regressor together with the table it was fitted on: what `varprop fit` saves."""

from __future__ import annotations

import dataclasses
import os
from typing import Any

import numpy as np
import pyarrow as pa

from varprop.estimators.regressor import FAWNRegressor
from varprop.files.container import ModelFileError
from varprop.files.regressor import load_regressor, save_regressor
from varprop.predictive.distribution import Predictive
from varprop.predictive.scorecard import (
    CONSTANT,
    LINEAR,
    MODEL,
    LinearModel,
    Scorecard,
    constant_gaussian,
    scorecard,
    verdict,
)
from varprop.tables.columns import NumberColumn
from varprop.tables.errors import TableError
from varprop.tables.preprocessing import Encoded, Preprocessing

#: More features than this, and the linear model's covariance would outgrow the network.
MAX_LINEAR_FEATURES = 256


@dataclasses.dataclass(frozen=True)
class Scored:
    """Rows with observed targets and what was predicted for them.

    Attributes
    ----------
    table
        Raw cells.
    rows
        Where they stood in the table, from 0.
    encoded
        What the network took.
    y
        Observed, of the prediction's shape.
    prediction
        Of the model.
    card
        Scores, beside the simple models.
    verdict
        The same in one sentence.
    """

    table: pa.Table
    rows: np.ndarray
    encoded: Encoded
    y: np.ndarray
    prediction: Predictive
    card: Scorecard
    verdict: str


@dataclasses.dataclass(frozen=True)
class TableModel:
    """A fitted regressor that takes raw tables.

    Attributes
    ----------
    regressor
        Takes what `preprocessing` gives.
    preprocessing
        Of the table it was fitted on.
    linear
        The linear model of the same rows, for comparison, if there is one.

    Examples
    --------
    >>> import pyarrow as pa, tempfile
    >>> X = np.linspace(0, 1, 20)[:, None]
    >>> regressor = FAWNRegressor(4, max_iter=5, random_state=0).fit(X, X[:, 0])
    >>> pre = Preprocessing((NumberColumn("size", 0.5, 0.1),), ("price",), (), (), "error")
    >>> path = os.path.join(tempfile.mkdtemp(), "model.safetensors")
    >>> TableModel(regressor, pre).save(path)
    >>> model = TableModel.load(path)
    >>> rows = model.preprocessing.encode(pa.table({"size": [0.2, 0.4]}), str)
    >>> model.predict_dist(rows).mean.shape
    (2,)
    """

    regressor: FAWNRegressor
    preprocessing: Preprocessing
    linear: LinearModel | None = None

    def predict_dist(self, rows: Encoded) -> Predictive:
        """Return the predictive distribution of encoded rows."""
        return self.regressor.predict_dist(rows.X, rows.X_std)

    def constant(self, n_rows: int) -> Predictive:
        """Return the training targets' mean and standard deviation for every row."""
        scaling = self.regressor.scaling_
        return constant_gaussian(scaling.y_shift, scaling.y_scale, n_rows)

    def with_simple(self, rows: Encoded) -> dict[str, Predictive]:
        """Return this model's prediction and those of the simple models, for a scorecard."""
        found = {MODEL: self.predict_dist(rows)}
        if self.linear is not None:
            found[LINEAR] = self.linear.predict_dist(rows.X)
        found[CONSTANT] = self.constant(len(rows.X))
        return found

    def score(self, table: pa.Table, rows: np.ndarray, encoded: Encoded, y: np.ndarray) -> Scored:
        """Score the predictions of encoded rows, all complete; y has shape (rows, targets)."""
        y = y[:, 0] if self.regressor._y_ndim == 1 else y
        try:
            predictions = self.with_simple(encoded)
        except ValueError as error:  # a row too far out; the library's own sentence
            raise TableError(str(error)) from error
        prediction = next(iter(predictions.values()))
        card, said = scorecard(y, predictions), verdict(y, predictions)
        return Scored(table, rows, encoded, y, prediction, card, said)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one file that holds everything, whole or not at all."""
        linear = {} if self.linear is None else dataclasses.asdict(self.linear)
        save_regressor(self.regressor, path, table=self.preprocessing.to_json(), linear=linear)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> TableModel:
        """Read a model, also one that Python saved without a table but with column names."""
        regressor, content, linear = load_regressor(path)
        if content is None:
            return cls(regressor, _from_names(regressor, path))
        try:
            preprocessing = Preprocessing.from_json(content)
        except TableError as error:
            raise ModelFileError(str(error)) from error
        if (
            len(preprocessing.feature_names) != regressor.n_features_in_
            or len(preprocessing.targets) != regressor.n_outputs_
        ):
            raise ModelFileError("the description of the table does not fit the network.")
        return cls(regressor, preprocessing, LinearModel(**linear) if linear else None)


def _from_names(regressor: Any, path: str | os.PathLike[str]) -> Preprocessing:
    """Take every named feature of a model saved from Python as a column of numbers."""
    names = getattr(regressor, "feature_names_in_", None)
    if names is None:
        raise ModelFileError(
            f"{os.path.basename(path)} was saved from Python without column names: fit with a data "
            "frame, or with `varprop fit`."
        )
    # From here on columns are found by name: scikit-learn's check would only warn of bare arrays.
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
    return Preprocessing(inputs, tuple(targets), (), (), "error")
