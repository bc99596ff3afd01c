"""scikit-learn's own checks of an estimator, with no expected failures."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from varprop import FAWNRegressor

# The checks hand over lists and other stand-ins for arrays.
pytestmark = pytest.mark.usefixtures("as_users_run_it")


# Few epochs, because a check must only see that training works, not how well.
@parametrize_with_checks([FAWNRegressor(max_iter=200)])
def test_sklearn_checks(estimator, check):
    check(estimator)


# Every option that changes what is computed, in as few programs as they take to compile.
@parametrize_with_checks(
    [
        FAWNRegressor(
            10,
            weights="bernoulli",
            dtype="float64",
            n_members=2,
            n_restarts=2,
            output_covariance=True,
            learning_rate_init=0.02,
            max_iter=200,
        ),
        FAWNRegressor(
            (10, 10),
            objective="vi",
            activation="tanh",
            prior="per-layer",
            likelihood="heteroscedastic",
            max_iter=300,
        ),
    ]
)
def test_sklearn_checks_of_variants(estimator, check):
    check(estimator)
