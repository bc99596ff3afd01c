"""PBPRegressor: probabilistic backpropagation behind scikit-learn's interface."""

from __future__ import annotations

import numbers
from typing import Any

import jax
import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from varprop.baselines.adf import Beliefs, first_beliefs, network_moments, one_pass
from varprop.data.arrays import Data, Scaling, bucket_size, pad_rows
from varprop.estimators.inputs import check_input_std, check_inputs, check_predicted
from varprop.estimators.methods import PredictiveMethods
from varprop.estimators.options import hidden_sizes
from varprop.moments.gaussian import Gaussian
from varprop.predictive.distribution import Predictive
from varprop.training.prediction import BLOCK_ROWS, Propagated

# A step works on a few hundred numbers, which XLA's own threads only make slower; splits on threads
# of their own use the cores better. 512-bit vectors as in training/program.py.
_pass = jax.jit(
    one_pass,
    compiler_options={"xla_cpu_prefer_vector_width": 512, "xla_cpu_multi_thread_eigen": False},
)
_moments = jax.jit(network_moments)


class PBPRegressor(PredictiveMethods, RegressorMixin, BaseEstimator):
    """A rectifier network trained by probabilistic backpropagation (a baseline).

    Assumed-density filtering with a Gaussian belief about every weight and gamma beliefs about the
    noise and about the prior's precision, as in Hernández-Lobato & Adams, "Probabilistic
    Backpropagation for Scalable Learning of Bayesian Neural Networks" (2015), with the settings of
    their code. There is no learning rate, and nothing to tune but the number of passes. Inputs and
    targets are standardized inside; results are in the units of the data.

    All is computed in float64. In float32 the test NLL of the paper's nine sets differs by at most
    2e-4 and a pass takes 10 to 35 % less time, but the noise's shape grows by about a half per row
    seen, and from 2^23 on float32 cannot add a half any more.

    Several fits may run at once in threads; those of the same sizes share one compiled program.

    Parameters
    ----------
    hidden_layer_sizes : int or sequence of int, default=(50,)
        Units per hidden layer.
    n_epochs : int, default=40
        Passes over the data, each in a new random order.
    random_state : int, RandomState or None, default=None
        Source of the first means and of the order of rows.

    Attributes
    ----------
    n_features_in_, feature_names_in_
        As in scikit-learn.
    beliefs_ : Beliefs
        What was learned, in standardized units, with NumPy arrays.
    scaling_ : varprop.Scaling
        Shift and scale of inputs and target.
    noise_std_ : float
        Standard deviation of the noise, in the target's units.
    n_iter_ : int
        Passes over the data.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.linspace(-1, 1, 100)[:, None]
    >>> y = 1e6 * np.sin(3 * X[:, 0])
    >>> model = PBPRegressor(hidden_layer_sizes=10, random_state=0).fit(X, y)
    >>> mean, std = model.predict(X, return_std=True)
    >>> mean.shape, bool((std > 0).all()), model.score(X, y) > 0.9
    ((100,), True, True)
    """

    beliefs_: Beliefs
    scaling_: Scaling

    def __init__(
        self, *, hidden_layer_sizes: Any = (50,), n_epochs: int = 40, random_state: Any = None
    ):
        self.hidden_layer_sizes = hidden_layer_sizes
        self.n_epochs = n_epochs
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> PBPRegressor:
        """Train on these rows, from a new start.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
            Inputs.
        y : array-like of shape (n_rows,) or (n_rows, 1)
            Targets.

        Returns
        -------
        PBPRegressor
            The estimator itself.
        """
        hidden = hidden_sizes(self.hidden_layer_sizes)
        n_epochs = _passes(self.n_epochs)
        X, y = check_inputs(self, X, y=y, reset=True)
        if y.ndim == 2 and y.shape[1] > 1:
            raise ValueError(
                f"y has {y.shape[1]} columns, but PBPRegressor learns one target: fit one model "
                "per column."
            )
        data = Data(X, y, dtype=np.float64)
        scaling = Scaling.of(data)
        n = data.n_rows
        padded = bucket_size(n)
        x = pad_rows((data.x - scaling.x_shift) / scaling.x_scale, padded)
        target = pad_rows((data.y[:, 0] - scaling.y_shift[0]) / scaling.y_scale[0], padded)
        rng = check_random_state(self.random_state)
        order = np.zeros(padded, np.int32)
        with jax.enable_x64(True):
            x, target = jax.device_put((x, target))
            beliefs = first_beliefs([x.shape[1], *hidden, 1], rng)
            for _ in range(n_epochs):
                order[:n] = rng.permutation(n)
                # A copy: the program may still be reading when the next order is drawn.
                beliefs = _pass(beliefs, x, target, order.copy(), np.int32(n))
            noise_var = float(beliefs.noise.expected_var())
            self.beliefs_ = jax.tree.map(np.asarray, beliefs)
        self.scaling_ = scaling
        self.noise_std_ = float(np.sqrt(noise_var) * scaling.y_scale[0])
        self.n_iter_ = n_epochs
        self._y_ndim = y.ndim
        return self

    def predict_dist(self, X: Any, X_std: Any = None) -> Predictive:
        """Return the predictive distribution of every row.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
            Inputs.
        X_std : array-like of the shape of X or of shape (n_features,), default=None
            Known standard deviations of the inputs' measurement error.

        Returns
        -------
        Predictive
            Gaussians in the units of the target.
        """
        check_is_fitted(self)
        X = check_inputs(self, X, reset=False)
        X_std = check_input_std(X_std, X)
        scaling = self.scaling_
        x = (X - scaling.x_shift) / scaling.x_scale
        x_var = None if X_std is None else (X_std / scaling.x_scale) ** 2
        means, variances = [], []
        with jax.enable_x64(True):
            for start in range(0, len(x), BLOCK_ROWS):
                part = slice(start, start + BLOCK_ROWS)
                n = len(x[part])
                rows = pad_rows(x[part], bucket_size(n))
                spread = None if x_var is None else pad_rows(x_var[part], bucket_size(n))
                out = _moments(self.beliefs_.network, Gaussian(rows, spread))
                means.append(np.asarray(out.mean)[:n])
                variances.append(np.asarray(out.variances())[:n])
        out = Propagated(
            np.concatenate(means) * scaling.y_scale + scaling.y_shift,
            np.concatenate(variances) * scaling.y_scale**2,
            None,
            np.array([self.noise_std_**2]),
        )
        check_predicted(out)
        if self._y_ndim == 1:
            return Predictive.gaussian(out.mean[:, 0], out.var[:, 0], out.noise_var)
        return Predictive.gaussian(out.mean, out.var, out.noise_var)


def _passes(value: Any) -> int:
    if not isinstance(value, numbers.Integral) or isinstance(value, bool) or value < 1:
        raise ValueError(f"n_epochs must be a whole number of at least 1, but is {value!r}.")
    return int(value)
