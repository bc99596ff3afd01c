"""The adapter passes skpro's own tests and agrees with the regressor."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from varprop import FAWNRegressor

# skpro warns of its own use of pandas and NumPy; its warnings are not ours to fix.
pytestmark = [
    pytest.mark.usefixtures("as_users_run_it"),
    pytest.mark.filterwarnings("ignore"),
]


CHECKS = """
from skpro.utils import check_estimator
from varprop.estimators.skpro import FAWNProbaRegressor

results = check_estimator(FAWNProbaRegressor, raise_exceptions=True, verbose=False)
assert len(results) > 30, len(results)
assert set(results.values()) == {"PASSED"}, results
"""


def test_skpros_own_checks():
    # In a process of its own: skpro reads the constructor's signature, which the runtime type
    # checks of this test run hide.
    subprocess.run([sys.executable, "-c", CHECKS], check=True)


@pytest.mark.parametrize("n_members", [1, 2])
def test_agrees_with_the_regressor(n_members):
    from varprop.estimators.skpro import FAWNProbaRegressor

    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(40, 2)), index=np.arange(40) + 7)
    y = pd.DataFrame({"u": X[0] + X[1], "v": X[0]})
    inner = FAWNRegressor(5, max_iter=20, random_state=0, n_members=n_members)
    model = FAWNProbaRegressor(inner).fit(X, y)
    dist = inner.fit(X.to_numpy(), y.to_numpy()).predict_dist(X.to_numpy())
    np.testing.assert_allclose(model.predict(X), dist.mean, rtol=1e-9)
    np.testing.assert_allclose(model.predict_var(X), dist.var, rtol=1e-9)
    assert list(model.predict(X).columns) == ["u", "v"]
    assert (model.predict(X).index == X.index).all()
    before = model.predict(X)
    assert (model.update(X, y).predict(X) != before).any(axis=None)
