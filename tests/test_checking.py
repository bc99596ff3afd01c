"""`varprop.check`: what a user learns about a layer of their own."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import truth
from varprop import CheckReport, Gaussian, check, nn

pytestmark = pytest.mark.usefixtures("strict_promotion")

KEY = jax.random.key(0)
X = Gaussian(np.array([[0.5, -1.0, 2.0]]), np.array([[1.0, 0.5, 0.1]]))


class Square(nn.AbstractLayer):
    """A user's layer: a^2 has mean m^2 + v and variance 4 m^2 v + 2 v^2."""

    error: float = 0.0

    def moments(self, x):
        m, v = x.mean, x.variances()
        return Gaussian(m**2 + v, (4 * m**2 * v + 2 * v**2) * (1 + self.error))

    def sample(self, key):
        return lambda x: x**2


class Rotation(nn.AbstractLayer):
    """A user's layer with correlated outputs."""

    forget_covariance: bool = False

    def moments(self, x):
        joint = x.to_joint().affine(np.array([[1.0, 1.0], [1.0, -1.0], [0.0, 2.0]]))
        return joint.marginals().to_joint() if self.forget_covariance else joint

    def sample(self, key):
        return lambda x: x @ jnp.asarray([[1.0, 1.0], [1.0, -1.0], [0.0, 2.0]])


def test_a_users_layer_passes():
    report = check(Square(), X, KEY, n_samples=20_000)
    assert report.passed
    assert report.mean_z.shape == report.var_z.shape == report.std_ratio.shape == (1, 3)
    assert report.cov_z is None
    assert report.n_samples == 20_000
    assert report.threshold == pytest.approx(truth.threshold(1e-6, 6))
    lines = str(report).splitlines()
    assert lines[0].startswith("agrees with 20,000 sampled networks (|z| up to ")
    assert "false-alarm rate 1e-06" in lines[0]
    assert [line.split()[0] for line in lines[1:]] == ["mean", "variance", "propagated"]


def test_a_wrong_layer_is_caught():
    report = check(Square(0.3), X, KEY, n_samples=20_000)
    assert not report.passed
    assert np.abs(report.mean_z).max() < report.threshold < np.abs(report.var_z).max()
    assert report.worst == np.abs(report.var_z).max()
    np.testing.assert_allclose(report.std_ratio, 1.3**0.5, rtol=0.1)
    assert str(report).startswith("DISAGREES with 20,000 sampled networks")


def test_covariances_are_compared():
    report = check(Rotation(), X, KEY, n_samples=20_000)
    assert report.passed
    assert report.cov_z.shape == (1, 2, 2)
    np.testing.assert_array_equal(report.cov_z, np.swapaxes(report.cov_z, 1, 2))
    np.testing.assert_array_equal(np.diagonal(report.cov_z[0]), 0.0)  # variances are in var_z
    wrong = check(Rotation(True), X, KEY, n_samples=20_000)
    assert not wrong.passed
    assert max(np.abs(wrong.mean_z).max(), np.abs(wrong.var_z).max()) < wrong.threshold
    assert "covariance worst |z|" in str(wrong)


class Traced(nn.AbstractLayer):
    """Gives what it is told to, past the checks of Gaussian."""

    mean: float
    var: float

    def moments(self, x):
        return jax.jit(lambda m, v: Gaussian(m, v))(
            jnp.full(x.shape, self.mean), jnp.full(x.shape, self.var)
        )

    def sample(self, key):
        return lambda x: jnp.zeros_like(x) + jax.random.normal(key, x.shape)


@pytest.mark.parametrize(("mean", "var"), [(np.nan, 1.0), (0.0, np.nan), (0.0, np.inf), (0.0, 0.0)])
def test_no_agreement_with_nonsense(mean, var):
    """NaN is no agreement; neither is an infinite variance, nor none at all."""
    assert not check(Traced(mean, var), jnp.ones(2), KEY, n_samples=1000).passed


@pytest.mark.parametrize("place", ["mean_z", "var_z", "cov_z"])
def test_a_nan_anywhere_is_no_agreement(place):
    """Not even beside finite distances, which Python's own max would prefer to it."""
    z = {"mean_z": np.zeros(2), "var_z": np.ones(2), "cov_z": np.ones((2, 2))}
    report = CheckReport(n_samples=100, threshold=5.0, false_alarm=1e-6, std_ratio=np.ones(2), **z)
    assert report.passed
    z[place] = np.full_like(z[place], np.nan)
    assert not dataclasses.replace(report, **z).passed


def test_slack_forgives_a_known_error():
    """Of a mean of about 1 and a variance of 4.5, 5 % and no less."""
    x = Gaussian(np.ones(1), 1.0)
    strict = check(Square(0.05), x, KEY, n_samples=300_000)
    assert not strict.passed
    assert check(Square(0.05), x, KEY, n_samples=300_000, var_slack=0.3).passed
    assert not check(Square(0.05), x, KEY, n_samples=300_000, var_slack=0.1).passed


class Fixed(nn.AbstractLayer):
    """Nothing random: a known value stays known, whatever its size."""

    scale: float = 1.0

    def moments(self, x):
        return Gaussian(self.scale * x.mean)

    def sample(self, key):
        return lambda x: self.scale * x


def test_exact_values_agree_up_to_rounding():
    x = jnp.asarray([1e-3, 1.0, 1e6])
    assert check(Fixed(), x, KEY, n_samples=100).passed
    net = nn.mlp(3, 2, weights=nn.PointWeights.init, hidden_layer_sizes=(20,), key=KEY)
    assert check(net, x, KEY, n_samples=100).passed


def test_z_scores_are_standard_normal():
    """The stated false-alarm rate rests on it: 2,000 independent means and variances of Gaussians.

    The sum of their squares is chi-squared: its standard score is below 5 but for one seed in a
    million. (The estimated standard errors make the variances' z a little heavier tailed.)
    """
    report = check(nn.Identity(), Gaussian(np.zeros(2000), 1.0), KEY, n_samples=10_000)
    for z in (report.mean_z, report.var_z):
        assert abs(np.sum(z**2) - 2000) / np.sqrt(2 * 2000) < 5
        assert abs(np.sum(z)) / np.sqrt(2000) < 5
    assert report.passed


def test_a_rare_event_does_not_spoil_the_mean():
    """No draw may see it; the mean is then judged by the analytic spread, the variance by slack."""
    x = Gaussian(np.array([-6.0]), 1.0)
    report = check(nn.ReLU(), x, KEY, n_samples=1000)
    assert np.abs(report.mean_z).max() < 1
    assert check(nn.ReLU(), x, KEY, n_samples=1000, var_slack=1e-6).passed
