"""PBPRegressor: probabilistic backpropagation behind scikit-learn's interface."""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from varprop import nn
from varprop.baselines.adf import Beliefs, Network, first_beliefs, one_pass
from varprop.data.source import Data
from varprop.data.statistics import Scaling
from varprop.estimators.inputs import check_inputs, rows_to_predict
from varprop.estimators.members import kept, to_jax
from varprop.estimators.methods import PredictiveMethods
from varprop.estimators.options import CONSTRAINTS, layer_sizes
from varprop.learning.likelihoods import GaussianLikelihood
from varprop.learning.model import Model
from varprop.learning.priors import FixedGaussian
from varprop.predictive.distribution import Predictive
from varprop.training.program import ONE_THREAD
from varprop.training.result import propagate
from varprop.training.schedule import bucket_size

# A step works on a few hundred numbers; splits on threads of their own use the cores better.
_pass = jax.jit(one_pass, compiler_options=ONE_THREAD)


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
    model_ : varprop.Model
        The network of these beliefs, which `varprop.save_model` can write as any other.
    scaling_ : varprop.Scaling
        Shift and scale of inputs and target.
    noise_std_ : float
        Standard deviation of the noise, in the target's units.
    n_iter_ : int
        Passes over the data.
    outcome_ : str
        "max_epochs".

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
    model_: Model
    scaling_: Scaling
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "hidden_layer_sizes": CONSTRAINTS["hidden_layer_sizes"],
        "n_epochs": CONSTRAINTS["n_members"],
        "random_state": ["random_state"],
    }

    def __init__(
        self, *, hidden_layer_sizes: Any = (50,), n_epochs: int = 40, random_state: Any = None
    ):
        self.hidden_layer_sizes = hidden_layer_sizes
        self.n_epochs = n_epochs
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> PBPRegressor:
        """Train on rows X (n_rows, n_features) and one target y, from a new start."""
        self._validate_params()
        hidden = layer_sizes(self.hidden_layer_sizes)
        X, y = check_inputs(self, X, y=y, reset=True)
        if y.ndim == 2 and y.shape[1] > 1:
            raise ValueError(
                f"y has {y.shape[1]} columns, but PBPRegressor learns one target: fit one model "
                "per column."
            )
        columns = getattr(self, "feature_names_in_", [f"X[:, {i}]" for i in range(X.shape[1])])
        data = Data(X, y, names=[*columns, "y"])
        scaling, n = Scaling.of(data), data.n_rows
        rows = scaling.rows(next(data.read(0)), np.float64)
        pad = (0, bucket_size(n) - n)
        x, target = np.pad(rows.x, (pad, (0, 0))), np.pad(rows.y[:, 0], pad)
        rng = check_random_state(self.random_state)
        order = np.zeros(len(x), np.int32)
        with jax.enable_x64(True):
            x, target = jax.device_put((x, target))
            beliefs = first_beliefs([x.shape[1], *hidden, 1], rng)
            for _ in range(self.n_epochs):
                order[:n] = rng.permutation(n)
                # A copy: the program may still be reading when the next order is drawn.
                beliefs = _pass(beliefs, x, target, order.copy(), np.int32(n))
            noise_std = float(beliefs.noise.expected_var()) ** 0.5
            self.beliefs_ = jax.tree.map(np.asarray, beliefs)
            self.model_ = kept(_as_model(self.beliefs_.network, noise_std))
        self.scaling_, self.noise_std_ = scaling, noise_std * float(scaling.y_scale[0])
        self.n_iter_, self.outcome_ = self.n_epochs, "max_epochs"
        self._y_ndim = y.ndim
        return self

    def predict_dist(self, X: Any, X_std: Any = None, *, X_cov: Any = None) -> Predictive:
        """Return the predictive distribution of every row, as `FAWNRegressor` does."""
        check_is_fitted(self)
        X, x_var = rows_to_predict(self, X, X_std, X_cov)
        with jax.enable_x64(True):
            model, squeeze = to_jax(self.model_), self._y_ndim == 1
            return propagate(model, X, x_var=x_var, scaling=self.scaling_, squeeze=squeeze)


def _as_model(network: Network, noise_std: float) -> Model:
    """Return the network of these beliefs: an input's share of a unit goes into its weights."""
    layers: list[nn.AbstractLayer] = []
    for layer in network:
        fan_in = layer.weight.shape[1] + 1
        parts = [
            nn.GaussianWeights(part.mean / fan_in**0.5, np.sqrt(np.asarray(part.var) / fan_in))
            for part in layer
        ]
        layers += [nn.ReLU(), nn.Dense(*parts)]
    likelihood = GaussianLikelihood(np.array([noise_std]))
    return Model(nn.Sequential(layers[1:], "independent"), likelihood, FixedGaussian())
