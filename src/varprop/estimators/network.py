"""What estimators of networks share, whatever their targets: from rows to members and back."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from varprop.data.statistics import Statistics
from varprop.estimators.base import AbstractEstimator
from varprop.estimators.inputs import training_data
from varprop.estimators.members import (
    Epochs,
    Task,
    check_goes_on,
    kept,
    member_dtype,
    to_jax,
    worst,
)
from varprop.estimators.options import likelihood_class
from varprop.estimators.remarks import remarks
from varprop.estimators.trained import Trained
from varprop.estimators.validation import Judged, as_trained, trust
from varprop.learning.likelihoods import AbstractLikelihood
from varprop.learning.model import Model
from varprop.learning.objectives import AbstractObjective
from varprop.nn.registry import chosen
from varprop.predictive.blend import mixture
from varprop.predictive.contract import AbstractPredictive
from varprop.training.recipe import Recipe, weight_of_kl
from varprop.training.result import propagate


class AbstractNetwork(AbstractEstimator):
    """An estimator whose members are networks of one kind, and that can be judged by rows."""

    members_: list[Model]
    shares_: np.ndarray
    trust_: float | None
    constant_numbers_: np.ndarray
    dtype: str
    n_members: int
    objective: Any
    kl_weight: float | None
    recipe: Recipe | None
    warm_start: bool
    _epochs: Epochs | None
    _held: Judged | None
    _aside_seed: int

    @abstractmethod
    def _options(self) -> dict[str, Any]:
        """Return the constructor's arguments as training takes them."""

    def _store(self, arguments: Mapping[str, Any]) -> None:
        """Keep the constructor's arguments (its `locals()`), each as an attribute."""
        for name in self._get_param_names():
            setattr(self, name, arguments[name])

    # ---- training ---------------------------------------------------------------------------

    def _fit(
        self,
        X: Any,
        y: Any,
        weight: Any,
        X_std: Any,
        X_cov: Any,
        exposure: Any = None,
        *,
        groups: Any = None,
        times: Any = None,
    ) -> None:
        """Train on these rows, from a new start unless `warm_start`, and say what to know of it."""
        members = self.members_ if self.warm_start and hasattr(self, "members_") else None
        task = self._task(members, X, y, weight, X_std, X_cov, exposure, groups, times)
        told = self._train(task, members)
        self._held = None  # what it was judged by has served
        self._see(task.data if task.training is None else task.training.source)
        for remark in told:
            warnings.warn(remark, stacklevel=3)

    def _train(self, task: Task, members: list[Model] | None = None) -> list[Warning]:
        """Train on what was checked; return what the user should be told."""
        squeeze = self._y_ndim == 1
        with jax.enable_x64(self.dtype == "float64"):
            seed = None if members is None else self._aside_seed
            trained = task.train(members, aside_seed=seed)
            self._keep(task, trained, trained.held(squeeze=squeeze))
            return remarks(self, task, trained)

    def _keep(self, task: Task, trained: Trained, held: list[AbstractPredictive | None]) -> None:
        """Set what a fitted estimator has."""
        fits = trained.fits
        self.members_, self.shares_ = [kept(fit.model) for fit in fits], trained.shares
        self.scaling_, self._epochs = fits[0].scaling, None
        self.trust_, self._held, self._aside_seed = None, None, trained.aside_seed
        self.constant_numbers_ = np.empty(0)
        self.n_seen_ = None if trained.aside is None else trained.aside.n_different
        if trained.aside is not None and trained.aside.folds:
            self.constant_numbers_ = task.constant_numbers()
            self._held = Judged(trained.aside, tuple(held), task.likelihood)
            self.trust_ = trust(self._held, self._constant(), task.n_targets)
        self.outcome_ = worst(fit.outcome for fit in fits).value
        self.loss_ = float(np.mean([fit.loss for fit in fits]))
        # Those of all rows come first; an epoch of others is shorter.
        whole = fits[: self.n_members]
        self.n_iter_ = max(len(fit.history) for fit in whole)
        self.n_steps_ = sum(fit.n_steps for fit in fits)
        curves = np.full((len(whole), self.n_iter_), np.nan)
        for curve, fit in zip(curves, whole, strict=True):
            curve[: len(fit.history)] = fit.history
        self.loss_curve_ = np.nanmean(curves, axis=0)
        self.restart_losses_ = np.array([fit.restart_losses for fit in fits])

    def _partial_fit(
        self, X: Any, y: Any, weight: Any, X_std: Any, X_cov: Any, exposure: Any = None
    ) -> None:
        """Train for one more pass over these rows, from where the model stands."""
        before = getattr(self, "members_", None)
        epochs = None if before is None else self._epochs
        task = self._task(before, X, y, weight, X_std, X_cov, exposure)
        with jax.enable_x64(self.dtype == "float64"):
            members, self._epochs, self.loss_ = task.train_epoch(before, epochs)
        if before is None:
            self.scaling_, self.loss_curve_, self.n_iter_ = task.scaling, np.empty(0), 0
            self.trust_ = self.n_seen_ = self.domain_ = self.fingerprints_ = None
            self.constant_numbers_, self._held = np.empty(0), None
            self._aside_seed = self._epochs.seed  # should `fit` go on from here
            self.shares_ = np.full(len(members), 1 / len(members))
        self.members_, self.outcome_ = members, "max_steps"
        self.loss_curve_ = np.append(self.loss_curve_, self.loss_)
        self.restart_losses_ = np.full((len(members), 1), self.loss_)
        self.n_iter_ += 1
        self.n_steps_ = self._epochs.n_steps

    def _task(
        self,
        members: list[Model] | None,
        X: Any,
        y: Any,
        weight: Any,
        X_std: Any,
        X_cov: Any,
        exposure: Any,
        groups: Any = None,
        times: Any = None,
    ) -> Task:
        """Check all that was given, and return what members, new or old, are trained on."""
        self._validate_params()
        options = self._options()
        kind = likelihood_class(options)
        training = training_data(
            self,
            X,
            y,
            weight,
            X_std,
            X_cov,
            reset=members is None,
            given=kind.given,
            exposure=exposure,
            groups=groups,
            times=times,
        )
        data = as_trained(training.source, kind)
        statistics = Statistics.of(data)
        if members is None:
            scaling = statistics.scaling.of_columns(kind.column_scaling)
            return Task(options, data, statistics, scaling, training=training)
        with jax.enable_x64(self.dtype == "float64"):
            check_goes_on(members, options, self.n_features_in_)
        return Task(options, data, statistics, self.scaling_, training=training)

    def _came_of_it(self) -> dict[str, dict[str, float | str]]:
        """Return the loss, how long training took, and how far rows set aside trust the network."""
        found: dict[str, float | str] = {"training loss per row": self.loss_}
        found["epochs"] = f"{self.n_iter_:,}"
        if self.trust_ is not None:
            found["weight of the network beside a constant"] = f"{self.trust_:.1%}"
        return {name: {"": value} for name, value in found.items()}

    # ---- prediction -------------------------------------------------------------------------

    def _predict_mixed(self, X: np.ndarray, x_var: np.ndarray | None) -> Any:
        """Return what the members say, mixed with the constant as rows set aside have it."""
        network = self._predict_network(X, x_var)
        if self.trust_ is None:
            return network
        constant = self._constant()[np.zeros(len(X), int)]
        return mixture([network, constant], [self.trust_, 1 - self.trust_])

    def _constant(self) -> Any:
        """Return what the simplest model says of any row."""
        numbers, scaling = self.constant_numbers_, self.scaling_.of_targets(self.n_outputs_)
        return self._kind.constant(numbers, scaling, n_seen=self.n_seen_, squeeze=self._y_ndim == 1)

    @property
    def _kind(self) -> type[AbstractLikelihood]:
        """How targets are observed."""
        return likelihood_class(self._options())

    def _predict_network(self, X: np.ndarray, x_var: np.ndarray | None) -> Any:
        """Return what the members say, whatever the rows set aside said of them."""
        squeeze, parts = self._y_ndim == 1, []
        for member in self.members_:
            with jax.enable_x64(member_dtype(member) == np.float64):
                model, scaling = to_jax(member), self.scaling_
                parts.append(propagate(model, X, x_var=x_var, scaling=scaling, squeeze=squeeze))
        found = mixture(parts, self.shares_)
        return found if self._identifies_noise else found.unsplit()

    @property
    def _identifies_noise(self) -> bool:
        """Whether doubt is told from noise.

        Of a KL divergence that counts for less it is not, unless the doubt follows from what all
        rows say of all weights together.
        """
        weight = weight_of_kl(self.kl_weight, self.recipe)
        told = chosen(AbstractObjective, self.objective, "objective").identifies_noise
        together = self._options()["row_covariance"] == "gauss-newton"
        return told and (together or weight >= 1)
