"""scikit-learn's own checks of a classifier, with no expected failures."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from varprop import FAWNClassifier, StackedClassifier

# The checks hand over lists and other stand-ins for arrays.
pytestmark = pytest.mark.usefixtures("as_users_run_it")


# Few epochs, because a check must only see that training works, not how well.
@parametrize_with_checks(
    [
        FAWNClassifier(20, validation="check", max_iter=200),
        FAWNClassifier(10, validation=None, objective="ropd", likelihood="softmax", max_iter=200),
        StackedClassifier([("network", FAWNClassifier(10, max_iter=200))]),
    ]
)
def test_sklearn_checks(estimator, check):
    check(estimator)
