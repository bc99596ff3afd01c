"""Boosted Gaussians, NGBoost and CatBoost: the number of trees chosen on a fifth of the rows."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from sklearn.base import clone

from varprop.baselines.rows import one_target
from varprop.predictive.distribution import Predictive


@dataclasses.dataclass(eq=False, kw_only=True)
class NGBoost:
    """Natural gradient boosting of a Gaussian's mean and spread (Duan et al. 2020).

    A fifth of the training rows decides after how many trees to stop, then all rows are trained on
    for as many. Needs the package ngboost.

    Parameters
    ----------
    max_trees : int, default=2000
        At most so many.
    learning_rate : float, default=0.01
        Shrinkage.
    random_state : int, default=0
        Seed.

    Examples
    --------
    >>> import pytest
    >>> _ = pytest.importorskip("ngboost")
    >>> x = np.linspace(-1, 1, 100)[:, None]
    >>> NGBoost(max_trees=20).fit(x, x[:, 0]).predict_dist(x).mean.shape
    (100,)
    """

    max_trees: int = 2000
    learning_rate: float = 0.01
    random_state: int = 0

    def fit(self, X: Any, y: Any) -> NGBoost:
        """Fit to inputs (rows, features) and targets (rows,)."""
        X, y = one_target(self, X, y)
        trial = self._new(self.max_trees)
        fitting, choosing = _four_fifths(len(y), self.random_state)
        aside = {"X_val": X[choosing], "Y_val": y[choosing]}
        trial.fit(X[fitting], y[fitting], **aside, early_stopping_rounds=50)
        self.n_iter_ = int(trial.best_val_loss_itr or self.max_trees - 1) + 1
        self._model = self._new(self.n_iter_).fit(X, y)
        self.outcome_ = "stopped early"
        return self

    def _new(self, n_trees: int) -> Any:
        from ngboost import NGBRegressor
        from ngboost.learners import default_tree_learner

        # NGBoost's own seed does not reach its trees, which draw among splits that are as good.
        tree = clone(default_tree_learner).set_params(random_state=self.random_state)
        return NGBRegressor(
            Base=tree,
            n_estimators=n_trees,
            learning_rate=self.learning_rate,
            random_state=self.random_state,
            verbose=False,
        )

    def predict_dist(self, X: Any) -> Predictive:
        """Return the predictive distribution of every row; all of its variance is noise."""
        normal = self._model.pred_dist(np.asarray(X, np.float64))
        mean, std = normal.params["loc"], normal.params["scale"]
        # Predictive keeps one noise per output; this one differs by row, so it goes as the model's.
        return Predictive.gaussian(mean, std**2, 0.0)


@dataclasses.dataclass(eq=False, kw_only=True)
class CatBoost:
    """Gradient boosting of a Gaussian's mean and variance: CatBoost's loss RMSEWithUncertainty.

    With CatBoost's own settings, which has 1,000 trees and no word on when to stop. So a fifth of
    the training rows decides after how many trees, then all rows are trained on for as many, as for
    `NGBoost`. Categories come one-hot encoded, as for all methods. Needs the package catboost.

    Parameters
    ----------
    max_trees : int, default=1000
        At most so many.
    random_state : int, default=0
        Seed.
    n_threads : int, default=1
        Threads to train on.

    Examples
    --------
    >>> import pytest
    >>> _ = pytest.importorskip("catboost")
    >>> x = np.linspace(-1, 1, 100)[:, None]
    >>> CatBoost(max_trees=20).fit(x, x[:, 0]).predict_dist(x).mean.shape
    (100,)
    """

    max_trees: int = 1000
    random_state: int = 0
    n_threads: int = 1

    def fit(self, X: Any, y: Any) -> CatBoost:
        """Fit to inputs (rows, features) and targets (rows,)."""
        X, y = one_target(self, X, y)
        fitting, choosing = _four_fifths(len(y), self.random_state)
        trial = self._new(self.max_trees)
        aside = (X[choosing], y[choosing])
        trial.fit(X[fitting], y[fitting], eval_set=aside, early_stopping_rounds=50)
        self.n_iter_ = int(trial.get_best_iteration()) + 1
        self._model = self._new(self.n_iter_).fit(X, y)
        self.outcome_ = "stopped early"
        return self

    def _new(self, n_trees: int) -> Any:
        from catboost import CatBoostRegressor

        return CatBoostRegressor(
            loss_function="RMSEWithUncertainty",
            iterations=n_trees,
            random_seed=self.random_state,
            thread_count=self.n_threads,
            allow_writing_files=False,
            verbose=False,
        )

    def predict_dist(self, X: Any) -> Predictive:
        """Return the predictive distribution of every row; all of its variance is noise."""
        found = self._model.predict(np.asarray(X, np.float64), thread_count=self.n_threads)
        mean, var = found.T
        return Predictive.gaussian(mean, var, 0.0)


def _four_fifths(n_rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return rows to fit to, and a fifth to choose by."""
    rows = np.random.default_rng(seed).permutation(n_rows)
    border = round(0.8 * n_rows)
    return rows[:border], rows[border:]
