"""A regressor together with the table it was fitted on: what `varprop fit` saves."""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from varprop.files.container import ModelFileError
from varprop.tables.columns import Encoded, Preprocessing
from varprop.tables.description import from_json, from_names, to_json
from varprop.tables.record import Record
from varprop.tables.rows import TableRows as TableRows
from varprop.tables.text import TableError
from varprop.tables.unknown import COMBINATIONS, in_parts, one_part, together

if TYPE_CHECKING:  # JAX and SciPy come with them, and what is wrong with a table is said before
    from varprop.estimators.stack import StackedRegressor
    from varprop.predictive.distribution import Predictive
    from varprop.predictive.scorecard import Scorecard

#: Standard deviations beyond which an input, and not the model, is to blame for a failure.
FAR = 1e6
#: Beyond so many a prediction may be larger than any number.
UNLIKE = 10.0
#: Combinations of unknown categories, over all rows predicted at once; and of a row, at least.
AT_ONCE, FEWEST = 2**21, 8


def most_combinations(n_rows: int) -> int:
    """Return how many combinations of levels a row has at most, of so many predicted at once."""
    return min(COMBINATIONS, max(FEWEST, AT_ONCE // max(n_rows, 1)))


@dataclasses.dataclass(frozen=True)
class Scored:
    """Rows with observed targets and what was predicted for them.

    Attributes
    ----------
    rows
        As they are and as the network took them.
    y
        Observed, of the prediction's shape.
    prediction
        Of the model.
    card
        Scores, beside the simple models.
    verdict
        The same in one sentence.
    share_seen
        Share of the rows that were trained on; None if it is not known.
    """

    rows: Encoded
    y: np.ndarray
    prediction: Predictive
    card: Scorecard
    verdict: str
    share_seen: float | None


@dataclasses.dataclass(frozen=True)
class TableModel:
    """A fitted regressor that takes raw tables.

    Attributes
    ----------
    regressor
        Takes what `preprocessing` gives: a `StackedRegressor` or, where rows are only predicted one
        by one, its `Plan`.
    preprocessing
        Of the table it was fitted on.
    choice
        The part of the regressor that predicts, by its name; all of it unless given.
    record
        What is known of the fit; None in files of before, and of models made in Python.

    Examples
    --------
    >>> import tempfile
    >>> import pyarrow as pa
    >>> from varprop.tables.columns import NumberColumn
    >>> from varprop import StackedRegressor
    >>> X = np.linspace(0, 1, 20)[:, None]
    >>> regressor = StackedRegressor([]).fit(X, X[:, 0])
    >>> pre = Preprocessing((NumberColumn("size", 0.5, 0.1),), ("price",), (), (), "error")
    >>> path = os.path.join(tempfile.mkdtemp(), "model.safetensors")
    >>> TableModel(regressor, pre).save(path)
    >>> model = TableModel.load(path)
    >>> rows = model.preprocessing.encode(pa.table({"size": [0.2, 0.4]}), str)
    >>> model.predict_dist(rows, str).mean.shape
    (2,)
    """

    regressor: StackedRegressor
    preprocessing: Preprocessing
    choice: str | None = None
    record: Record | None = None

    def predict_dist(self, rows: Encoded, where: Callable[[int], str]) -> Predictive:
        """Return the predictive distribution of encoded rows; `where` says where one stands.

        That of a row with unknown categories is the mixture of those with each combination of
        levels, weighted by the levels' shares of the training rows. There are at most 64 for a row
        (drawn if there would be more, see `tables.unknown.combinations`), and fewer where more than
        `AT_ONCE` / 64 rows are predicted at once, whose members would outgrow memory.
        """
        from varprop.predictive.distribution import Predictive

        most = most_combinations(len(rows.X))
        found = self.predict_parts(rows, where, most=most)
        index, first = next(found)
        if isinstance(first, Predictive) or len(index) == len(rows.X):
            return together(itertools.chain([(index, first)], found))
        whole = one_part(list(in_parts(rows, self.preprocessing, most=most)))
        return _exposed(whole.mixed(self._predict(whole.filled, where)), rows, whole.index)

    def predict_parts(
        self, rows: Encoded, where: Callable[[int], str], *, most: int = COMBINATIONS
    ) -> Iterator[tuple[np.ndarray, Predictive]]:
        """Yield the same for a part of the rows at a time, each with the numbers of its rows.

        Rows without unknown categories are one part, so that those with many members do not make
        all rows have as many.
        """
        for part in in_parts(rows, self.preprocessing, most=most):
            found = part.mixed(self._predict(part.filled, where))
            yield part.index, _exposed(found, rows, part.index)

    def _predict(self, rows: Encoded, where: Callable[[int], str]) -> Any:
        try:
            found: Any = self.regressor.predict_dist(rows.X, rows.X_std, model=self.choice)
            if classes := self.preprocessing.outcome.classes:
                found = found.labeled(classes)
            finite = _is_finite(found)
        except ValueError as error:
            scaling = self.regressor.scaling_
            distance = np.abs(rows.X - scaling.x_shift) / scaling.x_scale
            row, feature = divmod(int(distance.argmax()), distance.shape[1])
            if distance.max() > FAR:
                raise TableError(
                    f"column {self.preprocessing.feature_names[feature]!r} in "
                    f"{where(int(rows.numbers[row]))} lies {distance.max():.0e} standard "
                    "deviations from the training data, too far to predict: correct it."
                ) from error
            finite = np.zeros(len(rows.X), bool)
        if not finite.all():
            row = int(np.argmin(finite))
            why = "the model is damaged or was not fitted well, fit it again"
            scaling = self.regressor.scaling_
            distance = np.abs(rows.X[row] - scaling.x_shift) / scaling.x_scale
            if distance.max() > UNLIKE:
                name = self.preprocessing.feature_names[int(distance.argmax())]
                why = (
                    f"column {name!r} lies {distance.max():.0f} standard deviations from the "
                    "training data there, correct it or leave the row out"
                )
            raise TableError(
                f"the prediction for {where(int(rows.numbers[row]))} is no finite number: {why}."
            )
        return found

    def predict_gaussian(self, rows: Encoded, where: Callable[[int], str], what: str) -> Predictive:
        """Return the prediction of filled rows for what follows from covariances: totals, budgets.

        Targets behind a transform have those of the targets themselves.
        """
        from varprop.predictive.contract import AbstractContinuous

        found = self._predict(rows, where)
        kind = self.preprocessing.outcome.kind
        if kind != "numbers" or not isinstance(found, AbstractContinuous):
            kind = kind.replace("censored", "censored targets")
            raise TableError(f"{what} need predictions of numbers, but the model predicts {kind}.")
        return found.second_order()

    def with_simple(
        self, rows: Encoded, where: Callable[[int], str], *, out_of_fold: bool = False
    ) -> dict[str, Predictive]:
        """Return this model's prediction and those of the simple models, for a scorecard."""
        from varprop.predictive.scorecard import MODEL, simple_models

        def predicted(part: str | None) -> Predictive:
            if out_of_fold:
                return self._predict_unseen(rows, part)
            # A constant looks at no inputs: nothing unknown is to be filled in.
            given = dataclasses.replace(rows, X_std=None) if part == "constant" else rows
            return self.part(part or self.choice).predict_dist(given, where)

        found = {MODEL: predicted(None)}
        for part, name in simple_models(found[MODEL]).items():
            if part in self.regressor.weights_:
                found[name] = predicted(part)
        return found

    def _predict_unseen(self, rows: Encoded, part: str | None) -> Any:
        """Return what training rows are predicted to be by models that had not seen them."""
        regressor: Any = self.regressor
        y: Any = rows.y
        given = {} if rows.exposure is None else {"exposure": rows.exposure}
        if classes := self.preprocessing.outcome.classes:
            y = regressor.classes_[y[:, 0].astype(int)]
        found = regressor.predict_out_of_fold(rows.X, y, rows.X_std, model=part, **given)
        return found.labeled(classes) if classes else found

    def score(
        self, rows: Encoded, where: Callable[[int], str], *, out_of_fold: bool = False
    ) -> Scored:
        """Score the predictions of encoded rows, all complete and with targets.

        Parameters
        ----------
        rows, where
            As in `predict_dist`.
        out_of_fold
            Whether these are the training rows, of which each is to be predicted by models that
            have not seen it.
        """
        from varprop.predictive.scorecard import MODEL, scorecard, verdict

        assert rows.y is not None
        predictions: dict[str, Any] = dict(self.with_simple(rows, where, out_of_fold=out_of_fold))
        y, own = self.targets_of(rows), predictions[MODEL]
        predictions = {name: self.judged(found, y) for name, found in predictions.items()}
        card = scorecard(y, predictions, self.preprocessing.targets)
        said = verdict(y, predictions)
        seen = {} if rows.exposure is None else {"exposure": rows.exposure}
        share = 0.0 if out_of_fold else self.regressor.share_seen(rows.X, rows.y, **seen)
        return Scored(rows, y, own, card, said, share)

    def targets_of(self, rows: Encoded) -> np.ndarray:
        """Return observed targets, of the prediction's shape; of classes the names.

        Of what is censored these are the bounds, shape (rows, 2).
        """
        assert rows.y is not None
        y = rows.y[:, 0] if rows.y.shape[1] == 1 else rows.y
        classes = np.array(self.preprocessing.outcome.classes)
        return classes[y.astype(int)] if len(classes) else y

    def judged(self, prediction: Any, y: np.ndarray) -> Any:
        """Return a prediction as scores take it: of what is censored with the bounds `y`."""
        if self.preprocessing.outcome.kind != "censored":
            return prediction
        from varprop.predictive.bounds import Bounded

        return Bounded(prediction, y[:, :1], y[:, 1:])

    def part(self, name: str | None) -> TableModel:
        """Return the model that predicts by one of its parts alone; all of it for None."""
        if name is not None and name not in self.regressor.weights_:
            raise TableError(
                f"the model has no part {name!r}: it has "
                f"{', '.join(map(repr, self.regressor.weights_))}."
            )
        return dataclasses.replace(self, choice=name)

    @property
    def tells_apart(self) -> bool:
        """Whether all parts of this model tell their own doubt from noise."""
        return all(self.regressor.tells_apart.values())

    @property
    def how_to_tell_apart(self) -> str:
        """What to do where this model does not tell its own doubt from noise."""
        for name, does in self.regressor.tells_apart.items():
            if does:
                return f"--model {name} takes the part of it that does"
        return "fit with --objective vi"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one file that holds everything, whole or not at all."""
        from varprop.files.stack import save_stack

        record = {} if self.record is None else {"record": self.record.to_json()}
        save_stack(self.regressor, path, table=to_json(self.preprocessing) | record)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> TableModel:
        """Read a model, also one that Python saved without a table but with column names."""
        from varprop.files.stack import load_stack

        return cls._of(*load_stack(path), path)

    @classmethod
    def load_plan(cls, path: str | os.PathLike[str]) -> TableModel:
        """Read the plan of a model, which predicts rows without JAX; the model if it has none."""
        from varprop.files.plan import load_plan
        from varprop.plans.steps import PlanError

        try:
            return cls._of(*load_plan(path), path)
        except PlanError:
            return cls.load(path)

    @classmethod
    def _of(
        cls, regressor: Any, content: dict[str, Any] | None, path: str | os.PathLike[str]
    ) -> TableModel:
        """Return a regressor, or a plan, with what a file says of its table."""
        if content is None:
            return cls(regressor, from_names(regressor, path))
        preprocessing = from_json(content)
        if (
            len(preprocessing.feature_names) != regressor.n_features_in_
            or len(preprocessing.targets) != regressor.n_outputs_
            or len(preprocessing.outcome.classes) != len(getattr(regressor, "classes_", ()))
        ):
            raise ModelFileError("the description of the table does not fit the network.")
        record = Record.from_json(content.get("record"), len(preprocessing.targets))
        return cls(regressor, preprocessing, record=record)


def _is_finite(found: Any) -> np.ndarray:
    """Return which rows of a prediction of any kind are finite."""
    parts = [found.proba] if hasattr(found, "proba") else [found.mean, found.std]
    return np.logical_and.reduce([np.isfinite(a).reshape(len(a), -1).all(axis=1) for a in parts])


def _exposed(found: Any, rows: Encoded, index: np.ndarray) -> Any:
    """Return the prediction of some rows for their exposure, if they have one."""
    return found if rows.exposure is None else found.with_exposure(rows.exposure[index])
