"""The paper's Gaussian process: linear plus squared-exponential kernel, one length scale per input.

scikit-learn's, with exact inference: for a thousand rows or so.
"""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, WhiteKernel
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from varprop.baselines.rows import one_target
from varprop.predictive.distribution import Predictive


@dataclasses.dataclass(eq=False, kw_only=True)
class GaussianProcess:
    """A Gaussian process with noise, its hyper-parameters by marginal likelihood.

    Parameters
    ----------
    n_restarts : int, default=3
        Random starts of the hyper-parameters besides the usual one.
    random_state : int, default=0
        Seed of the starts.

    Examples
    --------
    >>> x = np.linspace(-1, 1, 20)[:, None]
    >>> model = GaussianProcess(n_restarts=0).fit(x, 10 * np.sin(3 * x[:, 0]))
    >>> bool(abs(model.predict_dist([[0.5]]).mean[0] - 9.97) < 0.2)
    True
    """

    n_restarts: int = 3
    random_state: int = 0

    def fit(self, X: Any, y: Any) -> GaussianProcess:
        """Fit to inputs (rows, features) and targets (rows,)."""
        X, y = one_target(self, X, y)
        # Bounds wide enough that an input can be switched off and the noise can vanish.
        wide = (1e-5, 1e5)
        kernel = (
            ConstantKernel(1.0, wide) * RBF(np.ones(X.shape[1]), wide)
            + ConstantKernel(0.1, wide) * DotProduct(1.0, wide)
            + WhiteKernel(0.1, (1e-8, 1e2))
        )
        process = GaussianProcessRegressor(
            kernel,
            normalize_y=True,
            n_restarts_optimizer=self.n_restarts,
            random_state=self.random_state,
        )
        with warnings.catch_warnings():
            # That a hyper-parameter ends at its bound is what switching an input off looks like.
            warnings.simplefilter("ignore", ConvergenceWarning)
            self._model = make_pipeline(StandardScaler(), process).fit(X, y)
        self._noise = process.kernel_.k2.noise_level * process._y_train_std**2
        self.outcome_ = "converged"
        self.loss_ = -float(process.log_marginal_likelihood_value_) / len(y)
        return self

    def predict_dist(self, X: Any) -> Predictive:
        """Return the predictive distribution of every row, noise included."""
        mean, std = self._model.predict(np.asarray(X, np.float64), return_std=True)
        return Predictive.gaussian(mean, np.maximum(std**2 - self._noise, 0.0), self._noise)
