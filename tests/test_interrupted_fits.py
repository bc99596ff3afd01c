"""What FAWNRegressor makes of fits that were cut short, and of targets that are not scaled."""

import jax.numpy as jnp
import numpy as np
import pytest

import rows
from varprop import FAWNRegressor
from varprop.data import ParquetSource
from varprop.learning.likelihoods import AbstractGaussianNoise, GaussianLikelihood
from varprop.training import preparation
from varprop.training.runner import Runner
from varprop.training.schedule import Plan

pytestmark = pytest.mark.usefixtures("as_users_run_it")


def test_ctrl_c_while_rows_are_streamed_is_an_interrupt(tmp_path, monkeypatch):
    """No loss is known then, which must not be taken for training that became infinite."""
    source = ParquetSource(rows.folder(tmp_path / "rows"), targets="y")
    monkeypatch.setattr("varprop.estimators.inputs.MERGE_ROWS", 10)
    make = Plan.of

    def in_buffers(block_rows, recipe, **options):
        return make(block_rows, recipe, **options | {"buffer_rows": 64})

    monkeypatch.setattr(preparation.Plan, "of", in_buffers)
    advance = Runner.advance

    def interrupted(self):
        advance(self)
        if self.schedule.position >= 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(Runner, "advance", interrupted)
    with pytest.raises(KeyboardInterrupt):
        FAWNRegressor(3, max_iter=50, batch_size=32, random_state=0).fit(source)


class RawGaussian(AbstractGaussianNoise):
    """A Gaussian likelihood that takes targets as they are."""

    log_std: jnp.ndarray
    column_scaling = (False,)
    wants_joint = False
    floor = None

    def __init__(self, std, *, floor=None):
        self.log_std = GaussianLikelihood(std).log_std

    n_outputs = property(lambda self: self.n_targets)
    noise_var = property(lambda self: jnp.exp(2 * self.log_std))

    def floored(self, floor):
        return self

    def expected_log_prob(self, f, y):
        raise NotImplementedError

    def predictive(self, f):
        return GaussianLikelihood(jnp.exp(self.log_std)).predictive(f)


def test_partial_fit_and_fit_agree_on_the_units_of_targets_that_are_not_scaled():
    x = np.linspace(-1, 1, 64)[:, None]
    y = 7 + x[:, 0]
    options = {"likelihood": RawGaussian, "learning_rate_init": 0.05, "random_state": 0}
    whole = FAWNRegressor(5, max_iter=400, kl_warmup=0, **options).fit(x, y)
    parts = FAWNRegressor(5, kl_warmup=0, **options)
    for _ in range(400):
        parts.partial_fit(x, y)
    for model in (whole, parts):
        assert model.scaling_.y_shift == 0
        assert abs(model.predict(x).mean() - 7) < 0.5


def test_a_warm_start_with_another_dropout_is_refused():
    x = np.linspace(-1, 1, 64)[:, None]
    model = FAWNRegressor(5, max_iter=2, dropout=0.1).fit(x, x[:, 0])
    with pytest.raises(ValueError, match="settings were changed: it cannot go on"):
        model.set_params(dropout=0.5, warm_start=True).fit(x, x[:, 0])
