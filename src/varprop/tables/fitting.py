"""From a table to a fitted, scored model: what `varprop fit` does, for Python users as well."""

from __future__ import annotations

import dataclasses
import math
import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from varprop import stopping
from varprop.tables.belonging import hold_out, how_held
from varprop.tables.columns import count_rows, join_rows
from varprop.tables.model import Scored, TableModel
from varprop.tables.outcomes import Outcome
from varprop.tables.record import Record, made_today
from varprop.tables.rows import TableRows
from varprop.tables.source import Source
from varprop.tables.survey import Roles, Survey, survey
from varprop.tables.text import TableError

#: Scores of fewer rows than this say nothing.
MIN_SCORED = 10
#: Rows that are scored, at most: they are kept in memory, and more say no more.
MOST_SCORED = 100_000
#: Part of the rows that is held out of more of them than memory takes.
OF_MANY = 0.1
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
    scored
        Rows that the networks which predict them had not seen; None if there are too few.
    out_of_fold
        Whether these are the training rows, each predicted by the networks of the other folds, and
        not rows that were held out.
    n_train
        Rows the saved model was fitted on.
    seconds
        Spent in training.
    notes
        Sentences the user should see.
    """

    model: TableModel
    scored: Scored | None
    out_of_fold: bool
    n_train: int
    seconds: float
    notes: tuple[str, ...]


def fit_table(
    source: Source,
    roles: Roles,
    options: Mapping[str, Any] | None = None,
    *,
    model: str = "stack",
    effort: str = "normal",
    holdout: float | None = None,
    refit: bool = False,
    seed: int = 0,
    progress: bool = False,
    on_notes: Callable[[tuple[str, ...]], None] = lambda notes: None,
) -> Fitted:
    r"""Read a table of any size, fit, and score the fit on rows it has not seen.

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
    effort
        "quick", "normal" or "thorough": how long networks are trained and, of a stack, which.
    holdout
        Part of the rows to hold out for the scores; 0 for none. With a group among the roles these
        are whole groups, with a time the last rows in it. Unless given nothing is held out: every
        row is scored as predicted by the networks of the folds that it is not in, unless there are
        more rows than memory takes; of these a tenth is held out.
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
    >>> fitted = fit_table(open_source(str(path)), Roles(("price",)), {"max_iter": 5})
    >>> fitted.n_train, len(fitted.scored.y), list(fitted.scored.card)[0]
    (60, 60, 'this model')
    """
    options = dict(options or {})
    table = survey(source, roles, options.get("likelihood", "auto"))
    options["likelihood"] = table.outcome.likelihood
    if model == "linear":
        _check_linear(table.outcome, effort)
    notes = list(table.notes)
    regressor = unfitted(
        model,
        options,
        table.outcome,
        effort=effort,
        n_rows=int(table.keep.sum()),
        seed=seed,
        progress=progress,
    )
    rows = None if holdout is not None else _rows(table, table.keep)
    if rows is not None and not rows.fits_memory:
        rows, holdout = None, OF_MANY
    used, held = np.flatnonzero(table.keep), np.zeros(len(table.keep), bool)
    if rows is None:
        held, said = _hold_out(table, used, roles, float(holdout or 0.0), seed)
        notes += said
    elif table.together is not None:
        own = table.together.part(used)
        notes.append(how_held(own, held[used], roles.belonging[0], wanted=False))
    on_notes(tuple(notes))
    begin = time.perf_counter()
    fitted, told = _fit(table, rows or _rows(table, table.keep & ~held), regressor)
    seconds, scored = time.perf_counter() - begin, None
    if rows is not None:
        scored = _score_unseen(table, fitted, rows, seed)
        if scored is None:
            told.append(f"{len(used)} rows are too few to score: there is no scorecard.")
    elif held.any():
        scored, said = _score_held(table, fitted, held)
        told += said
    interrupted = fitted.regressor.outcome_ == "interrupted"
    if refit and held.any() and not interrupted:
        begin, held = time.perf_counter(), np.zeros(len(held), bool)
        fitted, told = _fit(table, _rows(table, table.keep), regressor)
        seconds += time.perf_counter() - begin
    on_notes(tuple(told))
    n_train = len(used) - int(held.sum())
    settings = {"model": model, "effort": effort, "seed": seed, **options}
    record = _record(table, n_train, settings, (*notes, *told))
    if scored is not None:
        record = _with_scores(record, fitted, scored, out_of_fold=rows is not None)
    fitted = dataclasses.replace(fitted, record=record)
    return Fitted(fitted, scored, rows is not None, n_train, seconds, (*notes, *told))


def _record(
    table: Survey, n_train: int, settings: dict[str, Any], notes: tuple[str, ...]
) -> Record:
    """Return what is known of a fit but for its scores."""
    date, versions = made_today()
    roles = {name: getattr(table.roles, name) for name in ("missing", "group", "time")}
    known = {name: value for name, value in (settings | roles).items() if value is not None}
    return Record(date, versions, table.table.label, n_train, known, notes)


def _with_scores(
    record: Record, fitted: TableModel, scored: Scored, *, out_of_fold: bool
) -> Record:
    from varprop.predictive.promises import Promises

    promises = Promises.of(scored.y, fitted.judged(scored.prediction, scored.y))
    return dataclasses.replace(
        record,
        scored="out of fold" if out_of_fold else "held out",
        n_scored=len(scored.y),
        scores=scored.card,
        verdict=scored.verdict,
        past=promises.summary(),
    )


def _rows(table: Survey, chosen: np.ndarray) -> TableRows:
    return TableRows(table.table, table.learn(chosen), chosen, holes=table.holes)


def _hold_out(
    table: Survey, used: np.ndarray, roles: Roles, share: float, seed: int
) -> tuple[np.ndarray, list[str]]:
    """Choose rows to hold out, as a mask, and say what is to be said of it."""
    n_held, notes = min(round(share * len(used)), MOST_SCORED), []
    if share > 0 and n_held < MIN_SCORED:
        least = math.ceil(100 * MIN_SCORED / max(len(used), 1)) / 100
        advice = f" (try --holdout {max(least, 0.3):g})" if least <= 0.5 else ""
        notes.append(
            f"{len(used)} rows are too few to hold out {share:.0%} of them: there is no "
            f"scorecard{advice}."
        )
        n_held = 0
    held = np.zeros(len(table.keep), bool)
    if table.together is None:
        held[_drawn(used, table.codes[used], n_held, np.random.default_rng(seed))] = True
    else:
        own = table.together.part(used)
        mask = hold_out(own, table.codes[used], n_held, least=MIN_SCORED, seed=seed)
        notes.append(how_held(own, mask, roles.belonging[0], wanted=n_held > 0))
        held[used[mask]] = True
    return held, notes


def _score_held(
    table: Survey, fitted: TableModel, held: np.ndarray
) -> tuple[Scored | None, list[str]]:
    """Score the model on rows that were held out, but for copies of training rows."""
    rows = TableRows(table.table, fitted.preprocessing, held, unseen="average")
    encoded, told = join_rows(list(rows.encoded())), []
    assert encoded.y is not None
    copies = fitted.regressor.rows_seen(encoded.X, encoded.y, exposure=encoded.exposure)
    if copies is not None and copies.any():
        told.append(
            f"{count_rows(copies)} of those held out are copies of training rows: they are not "
            "scored."
        )
        encoded = join_rows([dataclasses.replace(encoded, complete=~copies)])
    if len(encoded.X) >= MIN_SCORED:
        return fitted.score(encoded, table.table.where), told
    return None, [*told, "no rows are left to score: there is no scorecard."]


def _score_unseen(table: Survey, fitted: TableModel, rows: TableRows, seed: int) -> Scored | None:
    """Score predictions of the training rows by models that had not seen them."""
    chosen = np.flatnonzero(table.keep)
    if len(chosen) < MIN_SCORED or not fitted.regressor.out_of_fold_nll_:
        return None
    if len(chosen) > MOST_SCORED:  # more say no more, and a report shows all of them
        drawn = np.random.default_rng(seed).choice(chosen, MOST_SCORED, replace=False)
        mask = np.zeros(len(table.keep), bool)
        mask[drawn] = True
        rows = TableRows(table.table, rows.preprocessing, mask, holes=table.holes)
    return fitted.score(join_rows(list(rows.encoded())), table.table.where, out_of_fold=True)


def _check_linear(outcome: Outcome, effort: str) -> None:
    """Raise TableError unless a line with Gaussian noise, or logistic regression, fits."""
    if outcome.kind == "classes":
        return
    if effort != "normal":
        raise TableError(
            f"--effort {effort} is of networks, and --model linear has none: leave out one of the "
            "two."
        )
    if outcome.likelihood == "gaussian":
        return
    asked = f"--likelihood {outcome.likelihood}"
    for column, option in ((outcome.exposure, "--exposure"), (outcome.upper, "--upper")):
        asked = option if column else asked
    asked = "--censoring" if outcome.censoring else asked
    raise TableError(
        f"--model linear is a line with Gaussian noise, which {asked} is not for: leave out one of "
        "the two."
    )


def _drawn(
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
    model: str,
    options: Mapping[str, Any],
    outcome: Outcome,
    *,
    effort: str = "normal",
    n_rows: int | None = None,
    seed: int,
    progress: bool,
) -> Any:
    """Return what is to be fitted, by the kind of its targets: the one place that chooses it."""
    # Imported late: what is wrong with a table is said before JAX is there.
    from varprop.estimators.stack import StackedRegressor
    from varprop.estimators.stack_classes import StackedClassifier

    stack: Any = StackedClassifier if outcome.kind == "classes" else StackedRegressor
    classes = outcome.kind == "classes"
    chosen = networks(model, options, effort=effort, n_rows=n_rows, classes=classes)
    # Folds, members and restarts on all cores: the machine is the caller's while it runs.
    return stack(chosen, effort=effort, random_state=seed, verbose=progress, n_jobs=-1)


def networks(
    model: str,
    options: Mapping[str, Any],
    *,
    effort: str = "normal",
    n_rows: int | None = None,
    classes: bool = False,
) -> list[tuple[str, Any]]:
    """Return the networks of a kind of model, by name.

    Of classes the linear model is logistic regression, a network without hidden layers.

    Examples
    --------
    >>> [name for name, _ in networks("stack", {})], networks("linear", {})
    (['vi', 'skewed', 'cold', 'deep', 'ropd'], [])
    >>> [[name for name, _ in networks(model, {}, classes=True)] for model in MODELS]
    [['network', 'cold', 'linear'], ['network', 'linear'], ['linear']]
    """
    from varprop.estimators.regressor import FAWNRegressor
    from varprop.estimators.stack import default_networks
    from varprop.estimators.stack_classes import default_class_networks

    if model not in MODELS:
        raise ValueError(f"model must be one of {', '.join(MODELS)}, but is {model!r}.")
    if classes:
        kept = {"network": ("network", "linear"), "linear": ("linear",)}.get(model)
        found = default_class_networks(effort=effort if kept is None else "normal", **options)
        return [pair for pair in found if kept is None or pair[0] in kept]
    if model == "stack":
        return default_networks(effort=effort, n_rows=n_rows, **options)
    return [("network", FAWNRegressor(**options))] if model == "network" else []


def _fit(table: Survey, rows: TableRows, unfitted: Any) -> tuple[TableModel, list[str]]:
    """Fit to some rows; return the model and what is to be said of it."""
    try:
        with stopping.listening(), warnings.catch_warnings(record=True) as told:
            from sklearn.base import clone

            warnings.simplefilter("always")
            together = table.together and table.together.part(rows.chosen)
            regressor = clone(unfitted)
            regressor.fit(rows, **({} if together is None else {together.name: together.codes}))
    except ValueError as error:  # the library's own sentence: training became infinite, and so on
        raise TableError(str(error)) from error
    regressor.verbose, regressor.n_jobs = False, None  # how it was made, not what it is
    # Columns are found by name: scikit-learn's check would only warn of bare arrays.
    del regressor.feature_names_in_
    # In the words of the command line, as all that is said of a table.
    sentences = [_in_options(str(warning.message)) for warning in told]
    return TableModel(regressor, rows.preprocessing), list(dict.fromkeys(sentences))


def _in_options(sentence: str) -> str:
    words = {
        **{"max_iter": "--max-iter", "times=": "--time", "groups=": "--group"},
        **{"effort='normal'": "--effort normal"},
    }
    for argument, option in words.items():
        sentence = sentence.replace(argument, option)
    return sentence
