"""A plan's budget of the variance is that of JAX, source by source."""

import jax.numpy as jnp
import numpy as np
import pytest

from test_plans import X_VAR, X, model_of
from varprop import Gaussian, nn
from varprop.files.planning import network_plan
from varprop.nn.sources import layer_names, variance_budget
from varprop.plans.budget import INPUTS
from varprop.plans.budget import variance_budget as plan_budget

pytestmark = pytest.mark.usefixtures("as_users_run_it")
CASES = {
    "linear": {"hidden_layer_sizes": ()},
    "one": {"hidden_layer_sizes": (4,)},
    "deep": {"activation": nn.Tanh()},
    "dropout": {
        "hidden_noise": nn.Dropout(0.2),
        "input_noise": nn.AdditiveNoise(nn.Normal(0.0, 0.3)),
    },
    "points": {"weights": nn.PointWeights.init, "hidden_noise": nn.Dropout(0.3)},
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("known", [True, False])
def test_it_is_the_budget_of_jax(x64, case, known):
    model = model_of(**CASES[case])
    var = None if known else X_VAR
    given = Gaussian(jnp.asarray(X), None if known else jnp.asarray(var))
    layers = model.network.layers
    expected = np.asarray(variance_budget(layers, given))
    found = plan_budget(network_plan(model, 3).steps, X, var)
    rename = {"Dropout after": "noise after", "AdditiveNoise on": "noise on"}
    names = {}
    for place, name in layer_names(layers).items():
        for old, new in rename.items():
            name = name.replace(old, new)
        names[name] = expected[3 + place]
    if not known:
        names[INPUTS] = expected[:3].sum(axis=0)
    scale = expected.sum(axis=0).max()
    for name, want in names.items():
        got = found.get(name, 0.0)
        np.testing.assert_allclose(got + np.zeros_like(want), want, rtol=1e-9, atol=1e-12 * scale)
    assert set(found) <= set(names)
    assert sum(np.any(part > 0) for part in names.values()) == sum(
        np.any(part > 0) for part in found.values()
    )
