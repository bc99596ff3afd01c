"""What a user should be told of a fit: that it did not converge, collapsed, or learned nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from varprop.data.parts import gather
from varprop.data.source import AbstractSource
from varprop.data.statistics import Scaling
from varprop.data.together import Together
from varprop.errors import FitWarning
from varprop.estimators.inputs import Training
from varprop.estimators.members import Task
from varprop.estimators.trained import Trained
from varprop.estimators.validation import N_FOLDS, SetAside, in_memory
from varprop.predictive.categories import Categories
from varprop.training.result import propagate
from varprop.training.schedule import Outcome

# In standardized units: predicted means that vary by less say the same of every row.
_CONSTANT = 0.01
# Nats by which rows set aside may score worse than training rows.
_APART = 1.0
# A noise variance of no more than so many times its floor's is the floor's.
_AT_FLOOR = 1.05
# Sample weights whose mean is further from 1 than this weaken the prior, or the data, a lot.
_WEIGHT = 5.0
# Share of a column's different values that must still differ in the network's precision.
_TOLD_APART = 0.5
_OR_STACK = ", or take StackedRegressor"
# Rows by which to say that a network is constant, and training rows to compare with.
_SOME_ROWS, _SOME_TRAINING_ROWS = 4, 2000


def remarks(model: Any, task: Task, trained: Trained) -> list[Warning]:
    """Return warnings, each one sentence with what to do next.

    Parameters
    ----------
    model
        A FAWNRegressor, just fitted.
    task, trained
        What it was trained on, and what came out.
    """
    found: list[Warning] = []
    if trained.interrupted:
        found.append(UserWarning("Training was interrupted: the model is what there was."))
    elif model.outcome_ == Outcome.MAX_STEPS.value:
        found.append(
            ConvergenceWarning(
                f"Training ended after {model.n_iter_} epochs, before the loss had converged: "
                "raise max_iter."
            )
        )
    found += map(FitWarning, _collapse(model, trained))
    if trained.aside is not None and task.training is not None:
        found += map(FitWarning, order_of_rows(task.training))
        if task.options["validation"] == "bag":
            found += map(FitWarning, few_folds(trained.aside, task.training.together))
    found += map(FitWarning, too_many_inputs(len(task.scaling.x_shift), task.data.n_rows))
    if model.dtype == "float32":
        found += map(FitWarning, lost_digits(task.data, task.scaling))
    if _at_floor(task, trained):
        found.append(
            FitWarning(
                "the noise ended at the floor that is set for targets on a grid: what is stated as "
                "spread is the network's alone."
            )
        )
    weight = task.statistics.total_weight / task.data.n_rows
    if not 1 / _WEIGHT <= weight <= _WEIGHT:
        found.append(
            FitWarning(
                f"the sample weights sum to {task.statistics.total_weight:.3g}, as if there were "
                f"so many rows: if they are relative, scale them to a mean of 1, not {weight:.3g}."
            )
        )
    return found


def _collapse(model: Any, trained: Trained) -> Iterator[str]:
    """Say what the rows set aside tell: that the network is too sure of itself, or says nothing."""
    judged, aside = model._held, trained.aside
    if judged is None or aside is None or model.trust_ is None:
        return
    fits, fold, prediction = trained.judges[0], aside.folds[0], judged.predictions[0]
    if not fits or prediction is None:
        yield (
            "a network trained without a fifth of the rows failed on these: the prediction is "
            f"{1 - model.trust_:.0%} the constant model's; look for extreme values."
        )
        return
    seen = aside.source if fold.rows is None else in_memory(aside.source).take(fold.rows)
    rows = gather(seen, most=_SOME_TRAINING_ROWS)
    squeeze, scaling, likelihood = prediction.squeeze, fits[0].scaling, judged.likelihood
    known = propagate(fits[0].model, rows.x, x_var=rows.x_var, scaling=scaling, squeeze=squeeze)
    known, y = likelihood.as_observed(known, rows.y)
    classes = isinstance(prediction, Categories)
    said = prediction.proba if classes else np.reshape(prediction.mean, (len(prediction), -1))
    scale = 1.0 if classes else y.std(axis=0)
    if len(said) >= _SOME_ROWS and (said.std(axis=0) < _CONSTANT * scale).all():
        other = "" if classes else ", or take StackedRegressor, which has a linear model too"
        yield (
            "the network was pruned to a constant: it says the same of every row; give it more "
            f"rows or fewer hidden units{other}."
        )
        return
    trained_nll = float(-known.logpdf(y[:, 0] if squeeze else y).mean())
    new_nll = float(-judged.log_density.mean())
    if new_nll - trained_nll > _APART:
        yield (
            f"the network is far too sure of itself: rows it was not trained on have an NLL of "
            f"{new_nll:.3g}, its training rows {trained_nll:.3g}. It has {model.trust_:.0%} of the "
            f"prediction, the constant {'frequencies' if classes else 'Gaussian'} the rest; give "
            f"it more rows or fewer hidden units, raise kl_weight{'' if classes else _OR_STACK}."
        )


def order_of_rows(training: Training) -> Iterator[str]:
    """Say that rows look like a trajectory, if they do."""
    if training.alike():
        yield (
            "neighboring rows are nearly equal, as along a trajectory: rows that were set aside "
            "have near copies in the rest, so that the model may be far too sure; give times=, or "
            "groups= if there are several trajectories (shuffle the rows if their order says "
            "nothing)."
        )


def few_folds(aside: SetAside, together: Together | None) -> Iterator[str]:
    """Say that there are fewer folds than usual, since rows belong together."""
    n_folds = len(aside.folds)
    if together is not None and 1 < n_folds < N_FOLDS:
        yield (
            f"{together.name} part the rows into {n_folds} only: there are {n_folds} folds instead "
            f"of {N_FOLDS}, and a network of each is trained on fewer rows."
        )


def lonely_classes(codes: Any, labels: np.ndarray) -> Iterator[str]:
    """Name classes of a single row, of which nothing can be learned and tried; codes or None."""
    if codes is None:
        return
    counts = np.bincount(np.asarray(codes, int), minlength=len(labels))
    lonely = [str(label) for label in labels[counts == 1]]
    if lonely and 2 * len(labels) <= len(codes):
        more = f" (and {len(lonely) - 1} more)" if len(lonely) > 1 else ""
        yield (
            f"the class {lonely[0]!r}{more} has one row only: what is said of it is hardly more "
            "than how rare it is; add rows, or join it with another class."
        )


def too_many_inputs(n_inputs: int, n_rows: int) -> Iterator[str]:
    """Say that there are more inputs than rows, of which any target can be made."""
    if n_inputs > n_rows:
        yield (
            f"there are {n_inputs} inputs and only {n_rows} rows: much of what is found in so many "
            "is chance; leave out inputs that cannot matter, or add rows."
        )


def lost_digits(data: AbstractSource, scaling: Scaling) -> Iterator[str]:
    """Name columns whose values single precision cannot tell apart beside one that is far off."""
    rows = gather(data, most=_SOME_TRAINING_ROWS)
    rounded = scaling.rows(rows, np.float32)
    names = [*data.features, *data.targets]
    before, after = (np.concatenate([part.x, part.y], axis=1) for part in (rows, rounded))
    for name, values, kept in zip(names, before.T, after.T, strict=True):
        different = len(np.unique(values))
        if len(np.unique(kept)) < _TOLD_APART * different:
            yield (
                f"column {name!r} has values so far from the others that single precision cannot "
                "tell these apart: remove what is far off, or take dtype='float64'."
            )


def _at_floor(task: Task, trained: Trained) -> bool:
    floor = (task.statistics.noise_floor / task.scaling.y_scale)[: task.n_targets]
    noise = [fit.model.likelihood.noise_var for fit in trained.fits if fit.recipe.noise_floor]
    return any(
        var is not None and bool(((floor > 0) & (np.asarray(var) <= _AT_FLOOR * floor**2)).any())
        for var in noise
    )
