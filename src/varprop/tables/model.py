"""A regressor together with the table it was fitted on: what `varprop fit` saves."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from varprop.data.source import AbstractSource, Rows
from varprop.files.container import ModelFileError
from varprop.tables.columns import Encoded, NumberColumn, Preprocessing, count_rows, to_floats
from varprop.tables.description import from_json, to_json
from varprop.tables.kinds import READ_AS, kind_of
from varprop.tables.numbers import Reading
from varprop.tables.roles import no_column
from varprop.tables.source import Source
from varprop.tables.text import TableError
from varprop.tables.unknown import COMBINATIONS, in_parts, together

if TYPE_CHECKING:  # JAX and SciPy come with them, and what is wrong with a table is said before
    from varprop.estimators.stack import StackedRegressor
    from varprop.predictive.distribution import Predictive
    from varprop.predictive.scorecard import Scorecard

#: Standard deviations beyond which an input, and not the model, is to blame for a failure.
FAR = 1e6
#: Combinations of unknown categories, over all rows predicted at once; and of a row, at least.
AT_ONCE, FEWEST = 2**21, 8


class TableRows(AbstractSource):
    """Rows of a table as a model takes them, encoded whenever a block is read.

    Parameters
    ----------
    table
        Loaded if it is to be read by blocks.
    preprocessing
        Of the model.
    chosen
        Which rows, shape (rows,); all unless given.
    holes
        Whether inputs may be unknown, so that all rows come with an uncertainty.
    unseen
        "error", or "average" to take a category that training has not seen as unknown.
    targets
        Whether the targets' columns are read as well.
    carried
        Names of further columns whose cells are read; of text files as text.

    Attributes
    ----------
    block_rows
        Number of chosen rows in every block of a loaded table.
    new_columns
        Names of columns that the model does not know.
    n_rows_read, n_imputed, n_unseen, n_incomplete
        Rows that `encoded` has read, and how many of them had a missing value filled in, a category
        taken as unknown, or are left without a prediction.

    Raises
    ------
    TableError
        If the table lacks a column.
    """

    block_rows: tuple[int, ...] = ()

    def __init__(
        self,
        table: Source,
        preprocessing: Preprocessing,
        chosen: np.ndarray | None = None,
        *,
        holes: bool = False,
        unseen: str = "error",
        targets: bool = True,
        carried: Sequence[str] = (),
    ):
        pre = preprocessing
        if table.table is None:  # text is read with the signs that the training table had
            signs = {c.name: Reading(c.unit) for c in pre.inputs if isinstance(c, NumberColumn)}
            pairs = zip(pre.targets, pre.target_units, strict=False)  # there may be none
            signs |= {name: Reading(unit) for name, unit in pairs}
            table = dataclasses.replace(table, readings=signs)
        self.table, self.preprocessing, self._chosen, self._unseen = table, pre, chosen, unseen
        self.features, self.targets = tuple(pre.feature_names), pre.targets
        self.weight_name, self.uncertain = None, holes
        needed = [*(column.name for column in pre.inputs), *pre.ids]
        absent = [name for name in needed if name not in table.names]
        if absent:
            listed = ", ".join(map(repr, table.names[:10]))
            raise TableError(
                f"{table.label} has no column{'s' if len(absent) > 1 else ''} "
                f"{', '.join(map(repr, absent))}, which the model needs; it has {listed}"
                f"{', ...' if len(table.names) > 10 else ''}."
            )
        for name in carried:
            if name not in table.names:
                raise TableError(no_column(name, table.names, table.label))
        known = {*needed, *pre.targets, *pre.dropped, *carried}
        self.new_columns = [name for name in table.names if name not in known]
        self.n_rows_read = self.n_imputed = self.n_unseen = self.n_incomplete = 0
        self.n_outside, self._first_outside = 0, ""
        # Ids stay text, so that 007 comes out as it came in.
        self._columns = {c.name: READ_AS[c.values].text_type for c in pre.inputs}
        self._columns = dict.fromkeys((*pre.ids, *carried), pa.string()) | self._columns
        self._with_targets = targets
        if targets:
            absent = [name for name in pre.targets if name not in table.names]
            if absent:
                raise TableError(
                    f"{table.label} has no column {absent[0]!r}, the target: observed values are "
                    "needed to evaluate."
                )
            self._columns |= dict.fromkeys(pre.targets, pa.float64())
        if chosen is not None:
            masks = np.split(chosen, np.cumsum(table.block_rows)[:-1])
            self.block_rows = tuple(int(mask.sum()) for mask in masks)

    def where(self, block: int, row: int) -> str:
        """As the table says it."""
        assert self._chosen is not None  # only then are there blocks
        place = sum(self.block_rows[:block]) + row
        return self.table.where(int(np.flatnonzero(self._chosen)[place]))

    def encoded(self, block: int | None = None) -> Iterator[Encoded]:
        """Yield the chosen rows of a block, or of all, raw and as the network takes them."""
        first = 0 if block is None else sum(self.table.block_rows[:block])
        for batch in self.table.read(self._columns, block):
            numbers = np.arange(first, first + batch.num_rows)
            first += batch.num_rows
            if self._chosen is not None:
                batch = batch.filter(pa.array(self._chosen[numbers]))
                numbers = numbers[self._chosen[numbers]]
            if not len(numbers):
                continue

            def where(row: int, numbers: np.ndarray = numbers) -> str:
                return self.table.where(int(numbers[row]))

            rows = self.preprocessing.encode(batch, where, unseen=self._unseen)
            rows = dataclasses.replace(rows, numbers=numbers)
            if self._with_targets:
                observed = []
                for name in self.targets:
                    cells = batch.column(name)
                    if kind_of(cells.type) not in READ_AS["number"].kinds:
                        raise TableError(
                            f"target {name!r} has the type {cells.type} in {where(0)}: a target "
                            "must be a number."
                        )
                    observed.append(to_floats(cells, name, where))
                rows = dataclasses.replace(rows, y=np.stack(observed, axis=1))
            self.n_rows_read += len(numbers)
            self.n_imputed += rows.n_imputed
            self.n_unseen += rows.n_unseen
            self.n_incomplete += int((~rows.complete).sum())
            yield rows
        if not first:
            raise TableError(f"{self.table.label} has a header but no rows.")

    def saw_outside(self, numbers: np.ndarray, words: np.ndarray) -> None:
        """Count rows, given by their numbers, of which something is said to be outside."""
        said = np.flatnonzero(words != None)  # noqa: E711 - entry by entry
        if len(said) and not self.n_outside:
            self._first_outside = f"{self.table.where(int(numbers[said[0]]))}: {words[said[0]]}"
        self.n_outside += len(said)

    def notes(self) -> list[str]:
        """Return sentences the user should see, once all rows are read."""
        found = list(self.table.notes)
        if self.new_columns:
            names = ", ".join(map(repr, self.new_columns[:10]))
            found.append(f"the model does not know these columns and ignores them: {names}.")
        if self.n_imputed:
            which = count_rows(self.n_imputed)
            found.append(f"{which} had missing values, which were filled in as uncertain.")
        if self.n_unseen:
            which = count_rows(self.n_unseen)
            found.append(f"{which} had a category that the training data did not have.")
        if self.n_incomplete:
            found.append(f"no prediction for {count_rows(self.n_incomplete)} with missing values.")
        if self.n_outside:
            lie = "lies" if self.n_outside == 1 else "lie"
            found.append(
                f"{count_rows(self.n_outside)} {lie} outside of what training has seen, where a "
                f"prediction is a guess (the first is {self._first_outside})."
            )
        return found

    def read(self, block: int) -> Iterator[Rows]:
        """Yield the chosen rows of a block, to train on."""
        for rows in self.encoded(block):
            std = rows.X_std
            if self.uncertain and std is None:
                std = np.zeros_like(rows.X)  # a block whose inputs are all known
            yield Rows(rows.X, rows.y, None, None if std is None else std**2)


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
        Takes what `preprocessing` gives.
    preprocessing
        Of the table it was fitted on.
    choice
        The part of the regressor that predicts, by its name; all of it unless given.

    Examples
    --------
    >>> import tempfile
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

    def predict_dist(self, rows: Encoded, where: Callable[[int], str]) -> Predictive:
        """Return the predictive distribution of encoded rows; `where` says where one stands.

        That of a row with unknown categories is the mixture of those with each combination of
        levels, weighted by the levels' shares of the training rows. There are at most 64 for a row
        (drawn if there would be more, see `tables.unknown.combinations`), and fewer where more than
        `AT_ONCE` / 64 rows are predicted at once, whose members would outgrow memory.
        """
        return together(self.predict_parts(rows, where, most=most_combinations(len(rows.X))))

    def predict_parts(
        self, rows: Encoded, where: Callable[[int], str], *, most: int = COMBINATIONS
    ) -> Iterator[tuple[np.ndarray, Predictive]]:
        """Yield the same for a part of the rows at a time, each with the numbers of its rows.

        Rows without unknown categories are one part, so that those with many members do not make
        all rows have as many.
        """
        for part in in_parts(rows, self.preprocessing, most=most):
            yield part.index, part.mixed(self._predict(part.filled, where))

    def _predict(self, rows: Encoded, where: Callable[[int], str]) -> Predictive:
        try:
            found = self.regressor.predict_dist(rows.X, rows.X_std, model=self.choice)
            finite = np.isfinite(found.mean) & np.isfinite(found.std)
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
            row = int(np.argmin(finite.reshape(len(rows.X), -1).all(axis=1)))
            raise TableError(
                f"the prediction for {where(int(rows.numbers[row]))} is no finite number: the "
                "model is damaged or was not fitted well, fit it again."
            )
        return found

    def with_simple(self, rows: Encoded, where: Callable[[int], str]) -> dict[str, Predictive]:
        """Return this model's prediction and those of the simple models, for a scorecard."""
        from varprop.predictive.scorecard import CONSTANT, LINEAR, MODEL

        found = {MODEL: self.predict_dist(rows, where)}
        for name, part in ((LINEAR, "linear"), (CONSTANT, "constant")):
            if part in self.regressor.weights_:
                # A constant looks at no inputs: nothing unknown is to be filled in.
                given = dataclasses.replace(rows, X_std=None) if name == CONSTANT else rows
                found[name] = dataclasses.replace(self, choice=part).predict_dist(given, where)
        return found

    def score(self, rows: Encoded, where: Callable[[int], str]) -> Scored:
        """Score the predictions of encoded rows, all complete and with targets."""
        from varprop.predictive.scorecard import MODEL, scorecard, verdict

        assert rows.y is not None
        y = rows.y[:, 0] if self.regressor._y_ndim == 1 else rows.y
        predictions = self.with_simple(rows, where)
        card = scorecard(y, predictions, self.preprocessing.targets)
        said = verdict(y, predictions)
        share = self.regressor.share_seen(rows.X, rows.y)
        return Scored(rows, y, predictions[MODEL], card, said, share)

    def part(self, name: str | None) -> TableModel:
        """Return the model that predicts by one of its parts alone; all of it for None."""
        if name is not None and name not in self.regressor.weights_:
            raise TableError(
                f"the model has no part {name!r}: it has "
                f"{', '.join(map(repr, self.regressor.weights_))}."
            )
        return dataclasses.replace(self, choice=name)

    @property
    def how_to_tell_apart(self) -> str:
        """What to do where this model does not tell its own doubt from noise."""
        for name, network in self.regressor.estimators_:
            if network.objective == "vi":
                return f"--model {name} takes the part of it that does"
        return "fit with --objective vi"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one file that holds everything, whole or not at all."""
        from varprop.files.stack import save_stack

        save_stack(self.regressor, path, table=to_json(self.preprocessing))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> TableModel:
        """Read a model, also one that Python saved without a table but with column names."""
        from varprop.files.stack import load_stack

        regressor, content = load_stack(path)
        if content is None:
            return cls(regressor, _from_names(regressor, path))
        preprocessing = from_json(content)
        if (
            len(preprocessing.feature_names) != regressor.n_features_in_
            or len(preprocessing.targets) != regressor.n_outputs_
        ):
            raise ModelFileError("the description of the table does not fit the network.")
        return cls(regressor, preprocessing)


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
