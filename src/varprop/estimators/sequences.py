"""SequenceRegressor: a recurrent network behind fit and predict_dist, for arrays of three axes."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np
from joblib import effective_n_jobs
from sklearn.base import BaseEstimator
from sklearn.metrics import r2_score
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from varprop.data.source import Data
from varprop.data.statistics import Scaling, Statistics, first_nonfinite
from varprop.errors import TrainingError
from varprop.estimators.inputs import check_input_errors
from varprop.estimators.members import kept, to_jax, worst
from varprop.estimators.options import likelihood_class
from varprop.learning.likelihoods import AbstractLikelihood
from varprop.learning.likelihoods.given import NUMBERS
from varprop.learning.model import Model
from varprop.learning.objectives import AbstractObjective
from varprop.learning.priors import default_prior
from varprop.nn.recurrent import rnn
from varprop.nn.registry import chosen
from varprop.predictive import metrics
from varprop.predictive.blend import mixture
from varprop.predictive.contract import AbstractNumeric
from varprop.training.engine import fit_many
from varprop.training.preparation import Lane
from varprop.training.recipe import Recipe
from varprop.training.result import propagate
from varprop.training.schedule import Outcome

_OF_NETWORK = ("cell", "units", "weights_drawn", "gate_covariance")


class SequenceRegressor(BaseEstimator):
    """A recurrent network: an array (rows, steps, inputs) in, a predictive distribution out.

    Every channel is standardized over all valid steps, and targets are; results are in the units of
    the data. No rows are set aside: see `FAWNRegressor` for what that guards against.

    Parameters
    ----------
    cell, units, weights_drawn, gate_covariance
        As in `varprop.nn.rnn`.
    objective, likelihood, kl_weight, n_members, recipe, random_state, n_jobs
        As in `FAWNRegressor`; likelihoods of plain numbers only.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(64, 3, 2))
    >>> model = SequenceRegressor(units=2, recipe=Recipe(max_steps=5), random_state=0)
    >>> model.fit(X, X[:, :, 0].sum(axis=1)).predict_dist(X[:7]).interval(0.9)[0].shape
    (7,)
    """

    scaling_: Scaling
    members_: list[Model]
    masked_: bool
    shape_: tuple[int, int]

    def __init__(
        self,
        *,
        cell: str = "gru",
        units: int = 20,
        weights_drawn: str = "once",
        gate_covariance: bool = True,
        objective: Any = "vi",
        likelihood: Any = "gaussian",
        kl_weight: float | None = None,
        n_members: int = 1,
        recipe: Recipe | None = None,
        random_state: Any = None,
        n_jobs: int | None = None,
    ):
        self.cell, self.units, self.weights_drawn = cell, units, weights_drawn
        self.gate_covariance, self.objective, self.likelihood = (
            gate_covariance,
            objective,
            likelihood,
        )
        self.kl_weight, self.n_members, self.recipe = kl_weight, n_members, recipe
        self.random_state, self.n_jobs = random_state, n_jobs

    def fit(self, X: Any, y: Any, mask: Any = None, X_std: Any = None) -> SequenceRegressor:
        """Train on sequences.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_steps, n_inputs)
            Sequences, all padded to one length if these differ.
        y : array-like of shape (n_rows,) or (n_rows, n_outputs)
            Targets.
        mask : array-like of shape (n_rows, n_steps), default=None
            0 where there is no step, at the end or anywhere; 1 elsewhere.
        X_std : array-like of the shape of X or of shape (n_inputs,), default=None
            Known standard deviations of the inputs' errors.
        """
        values, valid = check_sequences(X, mask)
        self.masked_, self.shape_ = mask is not None, values.shape[1:]
        self._squeeze = np.ndim(y) == 1
        shift, std = values[valid].mean(axis=0), values[valid].std(axis=0)
        # A constant becomes 0 instead of noise.
        scale = np.where(std > 1e-14 * np.abs(shift), std, 1.0)
        n, none = self.shape_[0], np.zeros(self.shape_[0] if self.masked_ else 0)
        x_shift, x_scale = (
            np.append(np.tile(part, n), end) for part, end in ((shift, none), (scale, none + 1))
        )
        x, x_var = self._rows(values, valid, X_std, x_shift)
        data = Data(x, np.asarray(y, np.float64), x_var=x_var)
        found = Statistics.of(data)
        self.scaling_ = dataclasses.replace(found.scaling, x_shift=x_shift, x_scale=x_scale)
        recipe = Recipe() if self.recipe is None else self.recipe
        if self.kl_weight is not None:
            recipe = recipe.replace(kl_weight=float(self.kl_weight))
        objective = chosen(AbstractObjective, self.objective, "objective")
        self._told = objective.identifies_noise and recipe.kl_weight >= 1
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        targets = (data.y - self.scaling_.y_shift) / self.scaling_.y_scale
        keys = jax.random.split(jax.random.key(seed), self.n_members)
        fits = fit_many(
            [self._lane(key, targets, recipe) for key in keys],
            data,
            objective() if isinstance(objective, type) else objective,
            scaling=self.scaling_,
            statistics=found,
            n_threads=effective_n_jobs(self.n_jobs),
        )
        if any(fit.outcome is Outcome.NONFINITE for fit in fits):
            raise TrainingError("the loss is not finite: lower the recipe's learning_rate.")
        self.members_ = [kept(fit.model) for fit in fits]
        self.outcome_ = worst(fit.outcome for fit in fits).value
        self.loss_ = float(np.mean([fit.loss for fit in fits]))
        return self

    def _lane(self, key: Any, y: np.ndarray, recipe: Recipe) -> Lane:
        given = chosen(AbstractLikelihood, self.likelihood, "likelihood")
        kind = likelihood_class({"likelihood": given})
        if kind.given is not NUMBERS or kind.logged or kind.column_scaling != (True,):
            raise ValueError(
                f"likelihood must be one of plain numbers, but is {self.likelihood!r}."
            )
        model_key, run_key = jax.random.split(key)
        new = given is kind
        observed = kind.start(y.shape[1], noise_std=0.5, y=y) if new else given
        options = {name: getattr(self, name) for name in _OF_NETWORK}
        network = rnn(
            self.shape_[1],
            observed.n_outputs,
            n_steps=self.shape_[0],
            key=model_key,
            masked=self.masked_,
            joint=observed.wants_joint,
            **options,
        )
        model = Model(network, observed, default_prior(network))
        return Lane(model=model, key=run_key, recipe=recipe)

    def _rows(
        self, values: np.ndarray, valid: np.ndarray, X_std: Any, shift: np.ndarray
    ) -> tuple[Any, Any]:
        """Return sequences as rows, padding as the channels' means, which standardize to 0."""
        n, there, mask = len(values), valid[..., None], valid.astype(np.float64)
        x = np.where(there, values, shift[: values[0].size].reshape(self.shape_)).reshape(n, -1)
        x_var = None
        if X_std is not None:
            try:
                std = np.broadcast_to(np.asarray(X_std, np.float64), values.shape)
            except ValueError as error:
                raise ValueError(
                    f"X_std has shape {np.shape(X_std)}, but X has shape {values.shape}: give one "
                    "number per entry of X or one per input."
                ) from error
            x_var = check_input_errors(np.where(there, std, 0.0).reshape(n, -1), None, x)
        if not self.masked_:
            return x, x_var
        x_var = x_var if x_var is None else np.concatenate([x_var, 0 * mask], axis=1)
        return np.concatenate([x, mask], axis=1), x_var

    def predict_dist(self, X: Any, mask: Any = None, X_std: Any = None) -> AbstractNumeric:
        """Return the predictive distribution of every row; arguments as in `fit`."""
        check_is_fitted(self)
        values, valid = check_sequences(X, mask)
        if values.shape[1:] != self.shape_:
            raise ValueError(
                f"X has shape {values.shape}, but the model was fitted with sequences of "
                f"{self.shape_[0]} steps and {self.shape_[1]} inputs."
            )
        if not (self.masked_ or valid.all()):
            raise ValueError("the model was fitted without a mask, so it needs sequences in full.")
        x, x_var = self._rows(values, valid, X_std, self.scaling_.x_shift)
        parts = [
            propagate(to_jax(m), x, x_var=x_var, scaling=self.scaling_, squeeze=self._squeeze)
            for m in self.members_
        ]
        found = mixture(parts)
        return found if self._told else found.unsplit()

    def predict(self, X: Any, mask: Any = None, X_std: Any = None) -> np.ndarray:
        """Return the mean of every row."""
        return self.predict_dist(X, mask, X_std).mean

    def score(self, X: Any, y: Any, mask: Any = None, X_std: Any = None) -> float:
        """Return R² of the mean; 1 is perfect."""
        return float(r2_score(y, self.predict(X, mask, X_std)))

    def log_score(self, X: Any, y: Any, mask: Any = None, X_std: Any = None) -> float:
        """Return the mean log density of what was observed; greater is better."""
        return -metrics.nll(np.asarray(y, np.float64), self.predict_dist(X, mask, X_std))


def check_sequences(X: Any, mask: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return sequences (rows, steps, inputs) as float64, and which steps there are, (rows, steps).

    Examples
    --------
    >>> check_sequences([[[1.0], [np.nan]]], [[1, 0]])[1].tolist()
    [[True, False]]
    """
    try:
        values = np.asarray(X, np.float64)
    except (TypeError, ValueError) as error:
        lengths = sorted({len(row) for row in X if hasattr(row, "__len__")})
        if len(lengths) < 2:
            raise ValueError("X must hold numbers in an array (rows, steps, inputs).") from error
        raise ValueError(
            f"X holds sequences of {lengths[0]} to {lengths[-1]} steps: pad them to one length and "
            "give a mask of shape (rows, steps), 0 where there is no step."
        ) from error
    if values.ndim != 3 or 0 in values.shape:
        raise ValueError(f"X has shape {values.shape}, but sequences need (rows, steps, inputs).")
    valid = np.ones(values.shape[:2], bool) if mask is None else np.asarray(mask)
    if valid.shape != values.shape[:2]:
        raise ValueError(
            f"mask has shape {valid.shape}, but X of shape {values.shape} needs {values.shape[:2]}."
        )
    if not np.isin(valid, (0, 1)).all():
        raise ValueError("mask must be 1 where there is a step and 0 where there is none.")
    valid = valid.astype(bool)
    if not valid.any(axis=1).all():
        raise ValueError(f"row {int(np.argmin(valid.any(axis=1)))} has no step: its mask is all 0.")
    bad = first_nonfinite(np.where(valid[..., None], values, 0.0))
    if bad is not None:
        raise ValueError(
            f"X is {values[tuple(bad)]:g} in row {bad[0]}, step {bad[1]}, input {bad[2]}: impute "
            "it, or leave the step out by a mask."
        )
    return values, valid
