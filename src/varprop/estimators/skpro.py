"""An adapter to skpro, whose estimators return distributions in data frames; ``varprop[skpro]``."""

from __future__ import annotations

from typing import Any

import pandas as pd
from sklearn.base import clone
from skpro.distributions.base import BaseDistribution
from skpro.distributions.mixture import Mixture
from skpro.distributions.normal import Normal
from skpro.regression.base import BaseProbaRegressor

from varprop.estimators.regressor import FAWNRegressor


class FAWNProbaRegressor(BaseProbaRegressor):
    """A `FAWNRegressor` as a probabilistic regressor of skpro.

    Outputs are given by their marginal distributions: a Normal, or a Mixture of Normals for an
    ensemble.

    Parameters
    ----------
    estimator : FAWNRegressor, default=None
        What is cloned and fitted; one with default settings unless given.

    Attributes
    ----------
    estimator_ : FAWNRegressor
        The fitted estimator.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> from varprop import FAWNRegressor
    >>> from varprop.estimators.skpro import FAWNProbaRegressor
    >>> X = pd.DataFrame({"a": np.linspace(0, 1, 40)})
    >>> model = FAWNProbaRegressor(FAWNRegressor(5, max_iter=10)).fit(X, 2 * X)
    >>> model.predict_interval(X, coverage=0.9).shape
    (40, 2)
    """

    _tags = {  # noqa: RUF012 - skpro's way to declare capabilities
        "authors": ["varprop developers"],
        "python_dependencies": ["jax", "scikit-learn"],
        "capability:multioutput": True,
        "capability:missing": False,
        "capability:update": True,
        "X_inner_mtype": "pd_DataFrame_Table",
        "y_inner_mtype": "pd_DataFrame_Table",
    }

    def __init__(self, estimator: FAWNRegressor | None = None):
        self.estimator = estimator
        super().__init__()

    def _fit(self, X: Any, y: Any, C: Any = None) -> FAWNProbaRegressor:
        """Fit a clone of the estimator; skpro has checked the frames."""
        estimator = FAWNRegressor() if self.estimator is None else clone(self.estimator)
        self._columns = y.columns
        # Plain arrays: skpro compares the columns itself, and allows names that are no text.
        self.estimator_ = estimator.fit(X.to_numpy(), y.to_numpy())
        return self

    def _update(self, X: Any, y: Any, C: Any = None) -> FAWNProbaRegressor:
        """Train for one more pass over these rows."""
        self.estimator_.partial_fit(X.to_numpy(), y.to_numpy())
        return self

    def _predict_proba(self, X: Any) -> BaseDistribution:
        dist: Any = self.estimator_.predict_dist(X.to_numpy())
        members = [
            Normal(mu=mean, sigma=std, index=X.index, columns=self._columns)
            for mean, std in zip(*dist.member_moments(), strict=True)
        ]
        if len(members) == 1:
            return members[0]
        named = [(f"member_{number}", member) for number, member in enumerate(members)]
        weights = dist.weights[:, 0].tolist()
        return Mixture(named, weights, index=X.index, columns=self._columns)

    def _predict_quantiles(self, X: Any, alpha: list[float]) -> pd.DataFrame:
        """Return exact quantiles, also of a mixture, which skpro would search for by bisection."""
        found = self.estimator_.predict_quantiles(X.to_numpy(), alpha).reshape(len(X), -1)
        columns = pd.MultiIndex.from_product([self._columns, alpha])
        return pd.DataFrame(found, index=X.index, columns=columns)

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> list[dict[str, Any]]:
        """Return settings quick enough for skpro's tests."""
        quick: dict[str, Any] = {"hidden_layer_sizes": 4, "max_iter": 5, "random_state": 0}
        return [
            {"estimator": FAWNRegressor(**quick)},
            {"estimator": FAWNRegressor(**quick, n_members=2, output_covariance=True)},
        ]
