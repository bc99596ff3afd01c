"""NGBoost as its authors run it: the number of trees chosen on a fifth of the training rows."""

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
        rows = np.random.default_rng(self.random_state).permutation(len(y))
        border = round(0.8 * len(y))
        trial = self._new(self.max_trees)
        fitting, choosing = rows[:border], rows[border:]
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
