"""From a table to a fitted, scored model: what `varprop fit` does, for Python users as well."""

from __future__ import annotations

import dataclasses
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from varprop.data.source import AbstractSource, Rows
from varprop.data.splitting import gather
from varprop.estimators.regressor import FAWNRegressor
from varprop.predictive.scorecard import LinearModel
from varprop.tables.columns import to_floats
from varprop.tables.errors import TableError
from varprop.tables.model import MAX_LINEAR_FEATURES, Scored, TableModel
from varprop.tables.preprocessing import Preprocessing, join_rows
from varprop.tables.reading import Blocks
from varprop.tables.source import Source
from varprop.tables.survey import Roles, Survey, survey

#: Scores of fewer rows than this say nothing.
MIN_HOLDOUT = 10
#: Held-out rows at most: they are kept in memory, and more say no more.
MOST_HOLDOUT = 100_000
#: Training rows, drawn at random, of the linear model the network is compared with.
LINEAR_ROWS = 50_000


@dataclasses.dataclass(frozen=True)
class Fitted:
    """A fitted model and how it came about.

    Attributes
    ----------
    model
        What is saved.
    holdout
        None if no rows were held out.
    n_train
        Rows the saved model was fitted on.
    seconds
        Spent in training.
    notes
        Sentences the user should see.
    """

    model: TableModel
    holdout: Scored | None
    n_train: int
    seconds: float
    notes: tuple[str, ...]


class EncodedSource(AbstractSource):
    """Some rows of a table as numbers, encoded whenever a block is read.

    Parameters
    ----------
    table
        What is known of the table.
    preprocessing
        Learned from the rows to train on.
    chosen
        For each block, which of its rows.
    """

    def __init__(self, table: Survey, preprocessing: Preprocessing, chosen: tuple[np.ndarray, ...]):
        self._table, self.preprocessing, self._chosen = table, preprocessing, chosen
        self.features = tuple(preprocessing.feature_names)
        self.targets, self.weight_name = preprocessing.targets, None
        self.uncertain = table.holes
        self._first = np.concatenate([[0], np.cumsum(table.blocks.block_rows)])

    @property
    def block_rows(self) -> tuple[int, ...]:
        """Number of chosen rows in every block."""
        return tuple(int(mask.sum()) for mask in self._chosen)

    def where(self, block: int, row: int) -> str:
        """As the table says it."""
        place = self._first[block] + np.flatnonzero(self._chosen[block])[row]
        return self._table.blocks.where(int(place))

    def batches(self, block: int) -> Iterator[tuple[np.ndarray, pa.RecordBatch]]:
        """Yield the chosen rows of a block as they are, with their numbers in the table."""
        pre, start = self.preprocessing, 0
        names = [*(column.name for column in pre.inputs), *pre.targets, *pre.ids]
        for batch in self._table.blocks.read(block, names):
            numbers = start + np.flatnonzero(self._chosen[block][start : start + batch.num_rows])
            if len(numbers):
                yield self._first[block] + numbers, batch.take(pa.array(numbers - start))
            start += batch.num_rows

    def read(self, block: int) -> Iterator[Rows]:
        """Yield the chosen rows of a block, encoded."""
        for numbers, batch in self.batches(block):

            def where(row: int, numbers: np.ndarray = numbers) -> str:
                return self._table.blocks.where(int(numbers[row]))

            rows = self.preprocessing.encode(batch, where)
            y = np.stack([to_floats(batch.column(name)) for name in self.targets], axis=1)
            std = rows.X_std
            if self.uncertain and std is None:
                std = np.zeros_like(rows.X)  # a block whose inputs are all known
            yield Rows(rows.X, y, None, None if std is None else std**2)


def fit_table(
    source: Source,
    roles: Roles,
    options: Mapping[str, Any] | None = None,
    *,
    holdout: float = 0.1,
    refit: bool = False,
    seed: int = 0,
    progress: bool = False,
    on_notes: Callable[[tuple[str, ...]], None] = lambda notes: None,
) -> Fitted:
    r"""Read a table of any size, hold rows out, fit, and score the fit on them.

    Parameters
    ----------
    source
        From `varprop.tables.open_source`: a file, or a folder of Parquet files, which are read in
        parts and may be larger than memory.
    roles
        What its columns are.
    options
        Of `FAWNRegressor`.
    holdout
        Part of the rows to hold out; 0 for none.
    refit
        Whether to fit once more, on all rows, after scoring.
    seed
        Of the split and of training.
    progress
        Whether to show a bar.
    on_notes
        Called with remarks on the table before training begins.

    Raises
    ------
    TableError
        One sentence that names the column and the row that cannot be used.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from varprop.tables.source import open_source
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "data.csv"
    >>> rows = [f"{i % 7},{'ab'[i % 2]},{i % 7 + i % 2}" for i in range(60)]
    >>> _ = path.write_text("\n".join(["size,kind,price", *rows]))
    >>> fitted = fit_table(open_source(str(path)), Roles(("price",)), {"max_iter": 5}, holdout=0.2)
    >>> fitted.n_train, len(fitted.holdout.y), list(fitted.holdout.card)[0]
    (48, 12, 'this model')
    """
    table = survey(Blocks(source, text=(*roles.ids, *roles.categories)), roles)
    notes = list(table.notes)
    n = sum(int(mask.sum()) for mask in table.keep)
    n_held = min(round(holdout * n), MOST_HOLDOUT)
    if holdout > 0 and n_held < MIN_HOLDOUT:
        notes.append(
            f"{n} rows are too few to hold out {holdout:.0%} of them: there is no scorecard (try "
            f"--holdout {min(0.5, max(holdout * 2, 0.3)):g})."
        )
        n_held = 0
    on_notes(tuple(notes))
    train, held = _split(table.keep, n_held, seed)
    begin = time.perf_counter()
    model = _fit(table, train, options or {}, seed=seed, progress=progress)
    seconds = time.perf_counter() - begin
    scored = _score(model, table, held) if n_held else None
    if refit and n_held:
        train = table.keep
        begin = time.perf_counter()
        model = _fit(table, train, options or {}, seed=seed, progress=progress)
        seconds += time.perf_counter() - begin
    return Fitted(model, scored, sum(int(m.sum()) for m in train), seconds, tuple(notes))


def _split(
    keep: tuple[np.ndarray, ...], n_held: int, seed: int
) -> tuple[tuple[np.ndarray, ...], tuple[np.ndarray, ...]]:
    """Draw rows to hold out of those that are used; return masks of the rest and of them."""
    used = np.concatenate(keep)
    rows = np.flatnonzero(used)
    held = np.zeros(len(used), bool)
    held[np.random.default_rng(seed).choice(rows, n_held, replace=False)] = True
    ends = np.cumsum([len(mask) for mask in keep])[:-1]
    return tuple(np.split(used & ~held, ends)), tuple(np.split(held, ends))


def _fit(
    table: Survey,
    chosen: tuple[np.ndarray, ...],
    options: Mapping[str, Any],
    *,
    seed: int,
    progress: bool,
) -> TableModel:
    source = EncodedSource(table, table.learn(chosen), chosen)
    # Members and restarts on all cores: the machine is the caller's while it runs.
    regressor = FAWNRegressor(**options, random_state=seed, verbose=progress, n_jobs=-1)
    try:
        with warnings.catch_warnings():
            # The only one there is says that training was interrupted, which is dealt with below.
            warnings.simplefilter("ignore", UserWarning)
            regressor.fit(source)
    except ValueError as error:  # the library's own sentence: training became infinite, and so on
        raise TableError(str(error)) from error
    if regressor.outcome_ == "interrupted":
        raise KeyboardInterrupt
    regressor.verbose, regressor.n_jobs = False, None  # how it was made, not what it is
    # Columns are found by name: scikit-learn's check would only warn of bare arrays.
    del regressor.feature_names_in_
    linear = None
    if len(source.features) <= MAX_LINEAR_FEATURES:
        rows = gather(source, most=LINEAR_ROWS, seed=seed)
        linear = LinearModel.fit(rows.x, rows.y)
    return TableModel(regressor, source.preprocessing, linear)


def _score(model: TableModel, table: Survey, held: tuple[np.ndarray, ...]) -> Scored:
    source = EncodedSource(table, model.preprocessing, held)
    numbers, batches = [], []
    for block in range(len(held)):
        for places, batch in source.batches(block):
            numbers.append(places)
            batches.append(batch)
    raw, rows = pa.Table.from_batches(batches), np.concatenate(numbers)
    encoded = model.preprocessing.encode(
        raw, lambda row: table.blocks.where(int(rows[row])), unseen="average"
    )
    y = np.stack([to_floats(raw.column(name)) for name in source.targets], axis=1)
    return model.score(raw, rows, join_rows([encoded]), y)
