"""What a user would pick instead, on the same rows: what `varprop compare` does.

Each method is fitted to all folds but one and scored on that one. Columns are encoded by what the
training rows of the fold say, as `varprop fit` does it, so that no method sees a row it is scored
on.
"""

from __future__ import annotations

import dataclasses
import os
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from varprop.bench.methods import METHODS, Method, method
from varprop.bench.registry import known
from varprop.data.fingerprints import fold_numbers, row_hashes
from varprop.data.source import Data
from varprop.data.statistics import Scaling
from varprop.tables.columns import Encoded, join_rows
from varprop.tables.fitting import MIN_SCORED
from varprop.tables.model import TableModel
from varprop.tables.roles import Roles
from varprop.tables.rows import TableRows
from varprop.tables.source import Source
from varprop.tables.survey import Survey, survey
from varprop.tables.text import TableError

#: Names of the scores of a fold, and which score of a scorecard each is.
SCORES = {"nll": "NLL", "crps": "CRPS", "rmse": "RMSE", "coverage90": "coverage 90 %"}
#: What is measured of a fold besides.
SECONDS = ("fit_seconds", "predict_seconds")


@dataclasses.dataclass(frozen=True)
class Line:
    """A method of a leaderboard.

    Attributes
    ----------
    name, title
        For the command line and for people.
    folds
        By name of the score (`SCORES`, `SECONDS`) its value in each fold; empty if there are none.
    problem
        Why there are none.

    Examples
    --------
    >>> line = Line("linear", "Linear", {"nll": (1.0, 2.0, 3.0)})
    >>> line.mean("nll"), round(line.error("nll"), 3), line.row()["nll_se"] == line.error("nll")
    (2.0, 0.577, True)
    """

    name: str
    title: str
    folds: Mapping[str, Sequence[float]] = dataclasses.field(default_factory=dict)
    problem: str = ""

    def mean(self, score: str) -> float:
        """Return the mean over folds."""
        return float(np.mean(self.folds[score]))

    def error(self, score: str) -> float:
        """Return the standard error of the mean, from the spread over folds."""
        values = self.folds[score]
        return float(np.std(values, ddof=1) / np.sqrt(len(values)))

    def row(self) -> dict[str, Any]:
        """Return the line as plain values, means and standard errors by name."""
        found: dict[str, Any] = {"model": self.name, "title": self.title, "problem": self.problem}
        for score in self.folds:
            found |= {f"{score}_mean": self.mean(score), f"{score}_se": self.error(score)}
        return found | {"folds": {name: list(values) for name, values in self.folds.items()}}


@dataclasses.dataclass(frozen=True)
class Comparison:
    """A leaderboard.

    Attributes
    ----------
    lines
        The lowest NLL first; at the end those without scores.
    verdict
        Sentences: what is best here, and whether it is clear.
    fold
        Of every row of the table the number of the fold it was scored in; -1 if it was left out.
    notes
        Sentences the user should see.
    """

    lines: tuple[Line, ...]
    verdict: str
    fold: np.ndarray
    notes: tuple[str, ...]

    @property
    def n_rows(self) -> int:
        """How many rows were scored."""
        return int((self.fold >= 0).sum())


def compared() -> list[str]:
    """Return the names of all methods that can be compared, of the default ones first.

    Examples
    --------
    >>> compared()[:4]
    ['stack', 'stack-quick', 'stack-thorough', 'network']
    """
    own = [m for m in METHODS.values() if m.protocols == ("own",)]
    return [m.name for m in sorted(own, key=lambda m: not m.compared)]


def chosen_methods(models: Sequence[str] | None) -> list[Method]:
    """Return the methods of these names, or the default ones; `UnknownName` for a wrong one."""
    if models is None:
        return [m for m in METHODS.values() if m.compared]
    names = compared()
    return [method(known(name, names, "model")) for name in dict.fromkeys(models)]


def compare_table(
    source: Source,
    roles: Roles,
    *,
    models: Sequence[str] | None = None,
    folds: int = 5,
    seed: int = 0,
    on_progress: Callable[[int, int, str], None] = lambda done, total, doing: None,
    on_notes: Callable[[tuple[str, ...]], None] = lambda notes: None,
) -> Comparison:
    r"""Cross-validate varprop and what one would use instead, on the same folds of a table.

    Parameters
    ----------
    source
        From `varprop.tables.open_source`; all rows are held in memory.
    roles
        What its columns are: one target, of numbers.
    models
        Names of methods of `varprop.bench.methods`: "stack", "stack-quick", "stack-thorough",
        "network", "linear", "gp", "ngboost", "catboost", "quantiles" and "deep-ensemble" unless
        given, and besides "pbp" and "mc-dropout".
    folds
        Parts of the rows, at least 2. Each is predicted by models fitted to the others. Identical
        rows are in one part.
    seed
        Of the folds and of all methods.
    on_progress
        Called with the number of fits done, that of all, and what is fitted now.
    on_notes
        Called with remarks on the table before the first fit.

    Returns
    -------
    Comparison
        A method that is not installed, takes fewer rows or fails has a line that says so.

    Raises
    ------
    TableError
        If the table cannot be used, has too few rows, or its target is not of numbers.
    UnknownName
        If there is no such method.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from varprop.tables import open_source
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "data.csv"
    >>> rows = [f"{i % 13},{'ab'[i % 2]},{i % 13 + i % 2 + i % 7 / 10}" for i in range(60)]
    >>> _ = path.write_text("\n".join(["size,kind,price", *rows]))
    >>> found = compare_table(open_source(str(path)), Roles(("price",)), models=["linear"], folds=3)
    >>> found.lines[0].title, sorted(set(found.fold.tolist())), found.n_rows
    ('Linear', [0, 1, 2], 60)
    """
    if folds < 2:
        raise ValueError(f"folds must be at least 2, but is {folds}.")
    methods = chosen_methods(models)
    if len(roles.targets) != 1:
        raise TableError(
            f"compare takes one --target, but there are {len(roles.targets)}: run it once for each."
        )
    table = survey(source, roles)
    if table.outcome.kind != "numbers":
        kind = table.outcome.kind.replace("censored", "censored numbers")
        raise TableError(
            f"compare is for numbers, but target {roles.targets[0]!r} holds {kind}: `varprop fit` "
            "takes it, and scores its model on held-out rows."
        )
    # In the words of the command that has the option.
    notes = tuple(note.replace("--likelihood", "fit --likelihood") for note in table.notes)
    on_notes(notes)
    fold, copies = _folds(table, folds, seed)
    n_rows = len(copies)
    lines = {m.name: _refused(m, n_rows) for m in methods}
    runs = [m for m in methods if not lines[m.name].problem]
    values: dict[str, list[dict[str, float]]] = {m.name: [] for m in runs}
    losses = {m.name: np.zeros(len(fold)) for m in runs}
    for k in range(folds):
        training, test = _fold(table, fold, k)
        for i, m in enumerate(runs):
            on_progress(k * len(runs) + i, folds * len(runs), f"fold {k + 1}: {m.title}")
            if lines[m.name].problem:
                continue
            try:
                found, loss = _run(m, training, test, _seed(seed, k), table.table.where)
            except Exception as error:  # a rival's own; it must not cost the others their lines
                said = f"failed in fold {k + 1}: {type(error).__name__}: {error}"
                lines[m.name] = Line(m.name, m.title, problem=said)
                continue
            values[m.name].append(found)
            losses[m.name][test.rows.numbers] = loss
    for m in runs:
        if not lines[m.name].problem:
            each = {name: tuple(v[name] for v in values[m.name]) for name in values[m.name][0]}
            lines[m.name] = Line(m.name, m.title, each)
    ranked = sorted(lines.values(), key=lambda line: line.mean("nll") if line.folds else np.inf)
    ranked.sort(key=lambda line: bool(line.problem))
    return Comparison(
        tuple(ranked),
        verdict(ranked, {name: _by_row(loss[fold >= 0], copies) for name, loss in losses.items()}),
        fold,
        notes,
    )


def _folds(table: Survey, folds: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the fold of every row, -1 for those not used; and of those used which are the same."""
    # What all rows say of the columns is used for nothing but to find equal rows.
    rows = TableRows(table.table, table.learn(table.keep), table.keep)
    whole = join_rows(list(rows.encoded()))
    hashes = row_hashes(whole.X, whole.y, whole.X_std)
    _, copies = np.unique(hashes, return_inverse=True)
    different = int(copies.max()) + 1
    if different < MIN_SCORED * folds:
        most = different // MIN_SCORED
        mend = f"use --folds {most}" if most > 1 else "it takes more rows to compare models"
        raise TableError(
            f"{table.table.label} has {different} different rows, too few for {folds} folds of "
            f"at least {MIN_SCORED}: {mend}."
        )
    fold = np.full(len(table.keep), -1)
    fold[whole.numbers] = fold_numbers(hashes, folds, seed)
    return fold, copies


@dataclasses.dataclass(frozen=True)
class _Encoded:
    """Rows of a fold, encoded by what its training rows say, with the uncertainty of inputs."""

    rows: Encoded
    X_std: np.ndarray | None
    model: TableModel

    @property
    def y(self) -> np.ndarray:
        assert self.rows.y is not None
        return self.rows.y[:, 0]


def _fold(table: Survey, fold: np.ndarray, k: int) -> tuple[_Encoded, _Encoded]:
    """Return training and test rows of a fold."""
    training = (fold >= 0) & (fold != k)
    pre = table.learn(training)
    found = []
    for mask in (training, fold == k):
        rows = TableRows(table.table, pre, mask, holes=table.holes, unseen="average")
        joined = join_rows(list(rows.encoded()))
        std = joined.X_std
        if std is None and table.holes:
            std = np.zeros_like(joined.X)
        found.append(_Encoded(joined, std, TableModel(None, pre)))  # type: ignore[arg-type]
    return found[0], found[1]


@dataclasses.dataclass(frozen=True)
class _Regressor:
    """A fitted method in the place of a table model's regressor."""

    fitted: Any
    uncertain_inputs: bool
    scaling_: Scaling

    def predict_dist(self, X: np.ndarray, X_std: np.ndarray | None, *, model: None = None) -> Any:
        """Predict; a method that knows of no uncertain inputs takes their means for exact."""
        return self.fitted.predict_dist(X, *([X_std] if self.uncertain_inputs else []))


def _run(
    m: Method, training: _Encoded, test: _Encoded, seed: int, where: Callable[[int], str]
) -> tuple[dict[str, float], np.ndarray]:
    """Fit a method and score it; return scores and seconds, and the loss of each test row."""
    from varprop.predictive.scorecard import row_losses, scores

    model = m.model(m.settings("own"), seed)
    for name, cores in (("n_jobs", -1), ("n_threads", os.cpu_count() or 1)):
        if hasattr(model, name):  # the machine is the caller's while it runs, as in `fit_table`
            setattr(model, name, cores)
    X, y = training.rows.X, training.y
    uncertain = {"X_std": training.X_std} if m.uncertain_inputs else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of many libraries, about their own ways
        begin = time.perf_counter()
        model.fit(X, y, **uncertain)
        fitted = time.perf_counter()
        if model.outcome_ == "interrupted":
            raise KeyboardInterrupt
        regressor: Any = _Regressor(model, m.uncertain_inputs, Scaling.of(Data(X, y)))
        table = dataclasses.replace(test.model, regressor=regressor)
        predicting = time.perf_counter()
        prediction: Any = table.predict_dist(test.rows, where)
        seconds = (fitted - begin, time.perf_counter() - predicting)
        card = scores(test.y, prediction)
        found = {name: float(card[score]) for name, score in SCORES.items()}  # type: ignore[arg-type]
        return found | dict(zip(SECONDS, seconds, strict=True)), row_losses(test.y, prediction)


def _refused(m: Method, n_rows: int) -> Line:
    return Line(m.name, m.title, problem=m.not_installed() or m.too_many(n_rows) or "")


def _seed(seed: int, k: int) -> int:
    """Return the seed of all methods in a fold: they differ by the method alone."""
    return int(np.random.default_rng([seed, k]).integers(2**31))


def _by_row(loss: np.ndarray, copies: np.ndarray) -> np.ndarray:
    """Return the mean loss of each different row: what is repeated is no further evidence."""
    return np.bincount(copies, loss) / np.bincount(copies)


def verdict(lines: Sequence[Line], losses: Mapping[str, np.ndarray]) -> str:
    """Say which method is best and whether that is clear, by differences of NLL row by row.

    "Clearly" is that of a scorecard's verdict: at least 30 rows, and a t-test and a rank test that
    agree at a level of 0.5 % each. Rows of one fold share a model, which neither test knows of.

    Parameters
    ----------
    lines
        The best first.
    losses
        Of each row, by name of the method.

    Examples
    --------
    >>> lines = [Line(n, n.title(), {"coverage90": (0.9, 0.88)}) for n in ("stack", "linear")]
    >>> losses = {"stack": np.linspace(0, 1, 50), "linear": np.linspace(0.2, 1.1, 50)}
    >>> verdict(lines, losses).split(". ")[0]
    'Stack is clearly better than the next, Linear: NLL lower by 0.15 ± 0.00'
    """
    from varprop.predictive.scorecard import ENOUGH, difference, is_clear

    scored = [line for line in lines if line.folds]
    if not scored:
        return "No model could be scored."
    best, *others = scored
    held = f"Its 90 % intervals hold {100 * best.mean('coverage90'):.0f} % of the values."
    if not others:
        return f"{best.title} is alone: there is nothing to compare it with. {held}"
    gains = {line.name: losses[line.name] - losses[best.name] for line in others}
    second, n = others[0], len(losses[best.name])
    by = difference(gains[second.name])
    if n < ENOUGH:
        return f"Too few rows to tell ({n}): {best.title} has the lowest NLL, {by}. {held}"
    level = [line for line in others if not is_clear(gains[line.name])]
    if not level:
        said = f"{best.title} is clearly better than the next, {second.title}: NLL lower {by}."
        return f"{said} {held}"
    names = _listed([line.title for line in level])
    said = f"{best.title} has the lowest NLL, but there is no clear difference from {names}."
    stack = next((line for line in others if line.name == "stack" and line not in level), None)
    if stack is not None:
        by = difference(gains["stack"])
        said += f" {stack.title} is clearly worse: NLL higher {by}."
    return f"{said} {held}"


def _listed(names: Sequence[str]) -> str:
    """Return names with commas and an "or".

    Examples
    --------
    >>> _listed(["GP"]), _listed(["GP", "Linear", "NGBoost"])
    ('GP', 'GP, Linear or NGBoost')
    """
    return " or ".join(filter(None, (", ".join(names[:-1]), names[-1])))
