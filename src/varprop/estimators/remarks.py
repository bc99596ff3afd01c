"""What a user should be told of a fit: that it did not converge, collapsed, or learned nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from varprop.data.parts import gather
from varprop.data.source import AbstractSource
from varprop.data.statistics import Scaling
from varprop.errors import FitWarning
from varprop.estimators.members import Task, Trained
from varprop.estimators.validation import in_memory
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
            f"{1 - model.trust_:.0%} the constant Gaussian; look for extreme values."
        )
        return
    means = np.reshape(prediction.mean, (len(prediction), -1))
    if len(means) >= _SOME_ROWS and (means.std(axis=0) < _CONSTANT * model.scaling_.y_scale).all():
        yield (
            "the network was pruned to a constant: it says the same of every row; give it more "
            "rows or fewer hidden units, or take StackedRegressor, which has a linear model too."
        )
        return
    seen = aside.source if fold.rows is None else in_memory(aside.source).take(fold.rows)
    rows = gather(seen, most=_SOME_TRAINING_ROWS)
    x, y = rows.x, rows.y[:, 0] if prediction.squeeze else rows.y
    scaling = fits[0].scaling
    known = propagate(
        fits[0].model, x, x_var=rows.x_var, scaling=scaling, squeeze=prediction.squeeze
    )
    trained_nll, new_nll = float(-known.logpdf(y).mean()), float(-judged.log_density.mean())
    if new_nll - trained_nll > _APART:
        yield (
            f"the network is far too sure of itself: rows it was not trained on have an NLL of "
            f"{new_nll:.3g}, its training rows {trained_nll:.3g}. It has {model.trust_:.0%} of the "
            "prediction, the constant Gaussian the rest; give it more rows or fewer hidden units, "
            "raise kl_weight, or take StackedRegressor."
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
    floor = task.statistics.noise_floor / task.scaling.y_scale
    noise = [fit.model.likelihood.noise_var for fit in trained.fits if fit.recipe.noise_floor]
    return any(
        var is not None and bool(((floor > 0) & (np.asarray(var) <= _AT_FLOOR * floor**2)).any())
        for var in noise
    )
