"""From a table to a fitted, scored model: what `varprop fit` does, for Python users as well."""

from __future__ import annotations

import dataclasses
import math
import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from varprop.tables.belonging import hold_out, how_held
from varprop.tables.columns import count_rows, join_rows
from varprop.tables.model import Scored, TableModel
from varprop.tables.outcomes import Outcome
from varprop.tables.rows import TableRows
from varprop.tables.source import Source
from varprop.tables.survey import Roles, Survey, survey
from varprop.tables.text import TableError

#: Scores of fewer rows than this say nothing.
MIN_HOLDOUT = 10
#: Held-out rows at most: they are kept in memory, and more say no more.
MOST_HOLDOUT = 100_000
#: What can be fitted: networks and simple models, one network beside the simple models, or the
#: simple models alone.
MODELS = ("stack", "network", "linear")


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


def fit_table(
    source: Source,
    roles: Roles,
    options: Mapping[str, Any] | None = None,
    *,
    model: str = "stack",
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
        Of `FAWNRegressor` or `FAWNClassifier`: of the networks. The ``likelihood`` says what the
        targets are; "auto", the default, goes by the targets, and a note says what was chosen.
    model
        "stack" for networks and simple models, weighted by rows they have not seen; "network" for
        one network beside the simple models; "linear" for the simple models alone.
    holdout
        Part of the rows to hold out; 0 for none. With a group among the roles these are whole
        groups, with a time the last rows in it.
    refit
        Whether to fit once more, on all rows, after scoring.
    seed
        Of the split and of training.
    progress
        Whether to show a bar.
    on_notes
        Called with remarks on the table before training begins, and with those on the fit.

    Raises
    ------
    TableError
        One sentence that names the column and the row that cannot be used.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from varprop.tables.source import open_source
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "data.csv"
    >>> rows = [f"{i},{'ab'[i % 2]},{i + i % 2}" for i in range(60)]
    >>> _ = path.write_text("\n".join(["size,kind,price", *rows]))
    >>> fitted = fit_table(open_source(str(path)), Roles(("price",)), {"max_iter": 5}, holdout=0.2)
    >>> fitted.n_train, len(fitted.holdout.y), list(fitted.holdout.card)[0]
    (48, 12, 'this model')
    """
    options = dict(options or {})
    table = survey(source, roles, options.get("likelihood", "auto"))
    options["likelihood"] = table.outcome.likelihood
    if model == "linear":
        _check_linear(table.outcome)
    notes = list(table.notes)
    used = np.flatnonzero(table.keep)
    n_held = min(round(holdout * len(used)), MOST_HOLDOUT)
    if holdout > 0 and n_held < MIN_HOLDOUT:
        least = math.ceil(100 * MIN_HOLDOUT / max(len(used), 1)) / 100
        advice = f" (try --holdout {max(least, 0.3):g})" if least <= 0.5 else ""
        notes.append(
            f"{len(used)} rows are too few to hold out {holdout:.0%} of them: there is no "
            f"scorecard{advice}."
        )
        n_held = 0
    held = np.zeros(len(table.keep), bool)
    if table.together is None:
        held[_held_out(used, table.codes[used], n_held, np.random.default_rng(seed))] = True
    else:
        own = table.together.part(used)
        mask = hold_out(own, table.codes[used], n_held, least=MIN_HOLDOUT, seed=seed)
        notes.append(how_held(own, mask, roles.belonging[0], wanted=n_held > 0))
        held[used[mask]], n_held = True, int(mask.sum())
    on_notes(tuple(notes))
    begin = time.perf_counter()
    regressor = unfitted(model, options, table.outcome, seed=seed, progress=progress)
    fitted, told = _fit(table, table.keep & ~held, regressor)
    seconds, scored = time.perf_counter() - begin, None
    if n_held:
        rows = TableRows(table.table, fitted.preprocessing, held, unseen="average")
        encoded = join_rows(list(rows.encoded()))
        assert encoded.y is not None
        copies = fitted.regressor.rows_seen(encoded.X, encoded.y, exposure=encoded.exposure)
        if copies is not None and copies.any():
            told.append(
                f"{count_rows(copies)} of those held out are copies of training rows: they are not "
                "scored."
            )
            encoded = join_rows([dataclasses.replace(encoded, complete=~copies)])
        if len(encoded.X) >= MIN_HOLDOUT:
            scored = fitted.score(encoded, source.where)
        else:
            told.append("no rows are left to score: there is no scorecard.")
    if refit and n_held:
        begin, n_held = time.perf_counter(), 0
        fitted, told = _fit(table, table.keep, regressor)
        seconds += time.perf_counter() - begin
    on_notes(tuple(told))
    return Fitted(fitted, scored, len(used) - n_held, seconds, (*notes, *told))


def _check_linear(outcome: Outcome) -> None:
    """Raise TableError unless a line with Gaussian noise, or logistic regression, fits."""
    if outcome.kind == "classes" or outcome.likelihood == "gaussian":
        return
    asked = f"--likelihood {outcome.likelihood}"
    for column, option in ((outcome.exposure, "--exposure"), (outcome.upper, "--upper")):
        asked = option if column else asked
    asked = "--censoring" if outcome.censoring else asked
    raise TableError(
        f"--model linear is a line with Gaussian noise, which {asked} is not for: leave out one of "
        "the two."
    )


def _held_out(
    used: np.ndarray, codes: np.ndarray, n_held: int, rng: np.random.Generator
) -> np.ndarray:
    """Draw rows to hold out; of every class its share, and never all of its rows."""
    order = rng.permutation(len(used))
    first = np.zeros(len(used), bool)  # one row of each class is kept to train on
    if codes.any():
        first[np.unique(codes[order], return_index=True)[1]] = True
    place = np.empty(len(used))
    for code in np.unique(codes):
        own = np.flatnonzero((codes[order] == code) & ~first)
        place[own] = (np.arange(len(own)) + 0.5) / max(len(own), 1)
    place[first] = 2.0
    return used[order[np.argsort(place, kind="stable")[:n_held]]]


def unfitted(
    model: str, options: Mapping[str, Any], outcome: Outcome, *, seed: int, progress: bool
) -> Any:
    """Return what is to be fitted, by the kind of its targets: the one place that chooses it."""
    # Imported late: what is wrong with a table is said before JAX is there.
    from varprop.estimators.stack import StackedRegressor
    from varprop.estimators.stack_classes import StackedClassifier

    stack: Any = StackedClassifier if outcome.kind == "classes" else StackedRegressor
    chosen = networks(model, options, classes=outcome.kind == "classes")
    # Folds, members and restarts on all cores: the machine is the caller's while it runs.
    return stack(chosen, random_state=seed, verbose=progress, n_jobs=-1)


def networks(
    model: str, options: Mapping[str, Any], *, classes: bool = False
) -> list[tuple[str, Any]]:
    """Return the networks of a kind of model, by name.

    Of classes the linear model is logistic regression, a network without hidden layers.

    Examples
    --------
    >>> [name for name, _ in networks("stack", {})], networks("linear", {})
    (['ropd', 'vi', 'skewed'], [])
    >>> [[name for name, _ in networks(model, {}, classes=True)] for model in MODELS]
    [['network', 'cold', 'linear'], ['network', 'linear'], ['linear']]
    """
    from varprop.estimators.regressor import FAWNRegressor
    from varprop.estimators.stack import default_networks
    from varprop.estimators.stack_classes import default_class_networks

    if model not in MODELS:
        raise ValueError(f"model must be one of {', '.join(MODELS)}, but is {model!r}.")
    if classes:
        left_out = {"stack": (), "network": ("cold",), "linear": ("network", "cold")}[model]
        return [pair for pair in default_class_networks(**options) if pair[0] not in left_out]
    if model == "stack":
        return default_networks(**options)
    return [("network", FAWNRegressor(**options))] if model == "network" else []


def _fit(table: Survey, chosen: np.ndarray, unfitted: Any) -> tuple[TableModel, list[str]]:
    """Fit to some rows; return the model and what is to be said of it."""
    from sklearn.base import clone

    rows = TableRows(table.table, table.learn(chosen), chosen, holes=table.holes)
    regressor = clone(unfitted)
    try:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            together = table.together and table.together.part(chosen)
            regressor.fit(rows, **({} if together is None else {together.name: together.codes}))
    except ValueError as error:  # the library's own sentence: training became infinite, and so on
        raise TableError(str(error)) from error
    if regressor.outcome_ == "interrupted":
        raise KeyboardInterrupt
    regressor.verbose, regressor.n_jobs = False, None  # how it was made, not what it is
    # Columns are found by name: scikit-learn's check would only warn of bare arrays.
    del regressor.feature_names_in_
    # In the words of the command line, as all that is said of a table.
    sentences = [_in_options(str(warning.message)) for warning in told]
    return TableModel(regressor, rows.preprocessing), list(dict.fromkeys(sentences))


def _in_options(sentence: str) -> str:
    words = {"max_iter": "--max-iter", "times=": "--time", "groups=": "--group"}
    for argument, option in words.items():
        sentence = sentence.replace(argument, option)
    return sentence
