"""Likelihoods all the way: fitted, predicted, stacked, saved, scored; parameters recovered.

Data are simulated from each likelihood. Networks are linear where the truth is, so that what comes
out can be compared with it; standard errors are those of maximum likelihood on as many rows.
"""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from varprop import FAWNRegressor, StackedRegressor, default_networks
from varprop.data import Data
from varprop.learning.likelihoods import NegativeBinomial

pytestmark = pytest.mark.usefixtures("as_users_run_it")
INF = np.inf
LINEAR = {"hidden_layer_sizes": (), "objective": "vi", "max_iter": 1200, "validation": None}
KINDS = [
    "student-t",
    "yeo-johnson",
    "log-normal",
    "poisson",
    "negative-binomial",
    "censored",
    "censored-log-normal",
]


def simulated(kind, n=400, seed=0):
    """Inputs, what is given of the targets, exposures, and the targets themselves."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    f = 0.5 * X[:, 0] - 0.3 * X[:, 1]
    exposure = None
    if kind == "student-t":
        y = f + 0.2 * rng.standard_t(4, n)
    elif kind == "yeo-johnson":
        y = np.exp(f + 0.3 * rng.normal(size=n)) - 1
    elif kind in ("poisson", "negative-binomial"):
        exposure = rng.uniform(0.5, 4.0, n)
        rate = exposure * np.exp(1.0 + f)
        y = rng.poisson(rate if kind == "poisson" else rate * rng.gamma(2.0, 0.5, n)).astype(float)
    else:
        y = f + 0.4 * rng.normal(size=n)
        y = np.exp(y) if "log" in kind else y
    if not kind.startswith("censored"):
        return X, y, exposure, y
    limit = np.exp(0.4) if "log" in kind else 0.4
    below = np.quantile(y, 0.15)
    lower = np.where(y < below, 0.0 if "log" in kind else -INF, np.minimum(y, limit))
    upper = np.where(y > limit, INF, np.maximum(y, below))
    return X, np.stack([lower, upper], axis=1), exposure, y


def given(exposure, rows=slice(None)):
    return {} if exposure is None else {"exposure": exposure[rows]}


@pytest.fixture(scope="module")
def fitted():
    """Every likelihood, fitted once by a linear network."""
    found = {}
    for kind in KINDS:
        X, y, exposure, truth = simulated(kind)
        model = FAWNRegressor(likelihood=kind, random_state=0, **LINEAR)
        found[kind] = model.fit(X, y, **given(exposure)), X, y, exposure, truth
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_new_rows_are_covered(fitted, kind):
    """90 % intervals hold their share, in standard errors of 2,000 rows and of 400 that trained."""
    model = fitted[kind][0]
    X, _, exposure, y = simulated(kind, n=2000, seed=1)
    dist = model.predict_dist(X, **given(exposure))
    lower, upper = dist.interval(0.9)
    covered = ((y >= lower) & (y <= upper)).mean()
    # Counts are discrete, their intervals hold more.
    most = 0.97 if exposure is not None else 0.935
    assert 0.865 < covered < most


@pytest.mark.parametrize("kind", KINDS)
def test_the_log_score_is_near_the_truths(fitted, kind):
    """Of new rows: no more than 0.06 nats worse than the law they were drawn from, nor better."""
    model = fitted[kind][0]
    X, observed, exposure, y = simulated(kind, n=2000, seed=1)
    f = 0.5 * X[:, 0] - 0.3 * X[:, 1]
    if kind == "student-t":
        truth = stats.t.logpdf(y, 4, f, 0.2)
    elif kind == "yeo-johnson":
        truth = stats.norm.logpdf(np.log1p(y), f, 0.3) - np.log1p(y)
    elif kind == "log-normal":
        truth = stats.lognorm.logpdf(y, 0.4, scale=np.exp(f))
    elif kind == "poisson":
        truth = stats.poisson.logpmf(y, exposure * np.exp(1 + f))
    elif kind == "negative-binomial":
        truth = stats.nbinom.logpmf(y, 2, 2 / (2 + exposure * np.exp(1 + f)))
    else:
        with np.errstate(divide="ignore", invalid="ignore"):
            ends = np.log(observed) if "log" in kind else observed
            a, b = ((ends - f[:, None]) / 0.4).T
            inside = np.log(stats.norm.cdf(b) - stats.norm.cdf(a))
            known = stats.norm.logpdf(a) - np.log(0.4)
            known = known - (f * 0 + ends[:, 0] if "log" in kind else 0)
        truth = np.where(observed[:, 0] == observed[:, 1], known, inside)
    worse = truth.mean() - model.log_score(X, observed, **given(exposure))
    assert -0.02 < worse < (0.12 if kind == "yeo-johnson" else 0.06)


def test_parameters_are_recovered(fitted):
    """Within 4.5 standard errors of maximum likelihood, to be wrong once in 100,000."""
    member = fitted["student-t"][0].members_[0].likelihood
    scale = np.exp(float(member.log_scale[0])) * fitted["student-t"][0].scaling_.y_scale[0]
    # The information of log scale at nu = 4 is 2 nu / (nu + 3), and nu is unknown too.
    assert abs(np.log(scale / 0.2)) < 4.5 * 1.4 * np.sqrt(7 / 8 / 400)
    assert 2.2 < float(member.nu) < 12
    power = float(fitted["yeo-johnson"][0].members_[0].likelihood.power[0])
    assert power < 0.6  # a logarithm shortens this tail: 0 for log(1 + y)
    negative = fitted["negative-binomial"][0].members_[0].likelihood
    assert abs(np.log(float(negative.dispersion[0]) / 0.5)) < 4.5 * 0.12
    for kind in ("poisson", "negative-binomial"):
        model, *_ = fitted[kind]
        rate = model.predict(np.array([[0.0, 0.0], [1.0, 0.0]]))
        assert abs(np.log(rate[0]) - 1.0) < 4.5 * 0.05
        assert abs(np.log(rate[1] / rate[0]) - 0.5) < 4.5 * 0.05
    assert abs(fitted["censored"][0].noise_std_[0] / 0.4 - 1) < 4.5 * 0.05


def test_bounds_are_better_than_the_limits_taken_as_numbers(fitted):
    """The mean of targets beyond the limit is not the limit's: the bias is the point of it."""
    model, X, y, _, truth = fitted["censored"]
    high = truth > 0.6
    limits = np.where(np.isinf(y[:, 1]), y[:, 0], y[:, 1])
    naive = FAWNRegressor(random_state=0, **LINEAR).fit(X, limits)
    ours, theirs = (abs((truth - m.predict(X))[high].mean()) for m in (model, naive))
    assert ours < 0.8 * theirs


@pytest.mark.parametrize("kind", KINDS)
def test_files_hold_them(fitted, kind, tmp_path):
    model, X, y, exposure, _ = fitted[kind]
    model.save(tmp_path / "m.safetensors")
    other = FAWNRegressor.load(tmp_path / "m.safetensors")
    assert other.log_score(X, y, **given(exposure)) == model.log_score(X, y, **given(exposure))
    mine, theirs = (m.predict_dist(X[:5], **given(exposure, slice(5))) for m in (model, other))
    np.testing.assert_array_equal(mine.quantile(0.9), theirs.quantile(0.9))


def test_exposure_multiplies_the_rate(fitted):
    model, X, *_ = fitted["poisson"]
    one, three = model.predict(X[:4]), model.predict(X[:4], exposure=np.full(4, 3.0))
    np.testing.assert_allclose(three, 3 * one, rtol=1e-12)
    assert model.predict_interval(X[:4], exposure=3.0).upper.shape == (4,)
    assert model.predict_quantiles(X[:4], [0.1, 0.9], exposure=3.0).shape == (4, 2)
    assert model.sample_y(X[:4], 7, exposure=3.0).shape == (4, 7)


def test_what_score_looks_at(fitted):
    """R² of counts at their exposure, and of bounds the rows that are known."""
    model, X, y, exposure, _ = fitted["poisson"]
    mean = model.predict(X, exposure=exposure)
    truth = 1 - ((y - mean) ** 2).sum() / ((y - y.mean()) ** 2).sum()
    np.testing.assert_allclose(model.score(X, y, exposure=exposure), truth, rtol=1e-12)
    model, X, y, *_ = fitted["censored"]
    known = y[:, 0] == y[:, 1]
    mean, at = model.predict(X)[known], y[known, 0]
    truth = 1 - ((at - mean) ** 2).sum() / ((at - at.mean()) ** 2).sum()
    np.testing.assert_allclose(model.score(X, y), truth, rtol=1e-12)
    with pytest.raises(ValueError, match=r"^R² needs two rows whose targets are known exactly"):
        model.score(X[:3], np.tile([0.0, INF], (3, 1)))


def test_contaminated_tables_keep_their_intervals():
    """Two in a hundred targets are off by 100 spreads: the interval stays as it was."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 2))
    clean = X[:, 0] + 0.3 * rng.normal(size=400)
    y = np.where(rng.uniform(size=400) < 0.02, clean + 100 * rng.normal(size=400), clean)
    widths = {}
    for kind in ("gaussian", "student-t"):
        options = LINEAR | {"max_iter": 6000, "learning_rate_init": 0.01, "dtype": "float64"}
        model = FAWNRegressor(likelihood=kind, random_state=0, **options).fit(X, y)
        lower, upper = model.predict_interval(X, 0.9)
        widths[kind] = np.median(upper - lower)
    truth = 2 * 1.645 * 0.3
    assert 0.7 * truth < widths["student-t"] < 1.6 * truth
    assert widths["gaussian"] > 10 * truth


# ---- stacks -------------------------------------------------------------------------------------

QUICK = {"hidden_layer_sizes": (4,), "max_iter": 150}


@pytest.mark.parametrize("kind", ["student-t", "log-normal", "negative-binomial", "censored"])
def test_stacks_take_them(kind, tmp_path):
    """With the constant of the likelihood, and the linear model where targets are numbers."""
    X, y, exposure, _ = simulated(kind, n=60)
    networks = default_networks(likelihood=kind, n_rows=60, **QUICK)
    assert [network.likelihood for _, network in networks] == [kind, kind]
    model = StackedRegressor(networks, random_state=0).fit(X, y, **given(exposure))
    numbers = kind in ("student-t", "log-normal")
    assert list(model.weights_) == ["vi", "cold", *["linear"] * numbers, "constant"]
    np.testing.assert_allclose(sum(model.weights_.values()), 1)
    dist = model.predict_dist(X, **given(exposure))
    assert dist.shape == (60,)
    # The simplest model is what a look at the targets gives.
    constant = model.predict_dist(X, model="constant")
    if kind == "negative-binomial":
        np.testing.assert_allclose(constant.mean[0], y.sum() / exposure.sum(), rtol=0.05)
    elif kind == "log-normal":
        np.testing.assert_allclose(constant.quantile(0.5)[0], np.exp(np.log(y).mean()), rtol=1e-9)
    model.save(tmp_path / "s.safetensors")
    other = StackedRegressor.load(tmp_path / "s.safetensors")
    assert other.log_score(X, y, **given(exposure)) == model.log_score(X, y, **given(exposure))
    np.testing.assert_array_equal(
        other.predict_dist(X, model="constant").quantile(0.7), constant.quantile(0.7)
    )


def test_a_stack_mixes_continuous_likelihoods():
    X, y, _, _ = simulated("log-normal", n=60)
    kinds = ["gaussian", "student-t", "yeo-johnson", "log-normal"]
    networks = [(kind, FAWNRegressor(likelihood=kind, **QUICK)) for kind in kinds]
    model = StackedRegressor(networks, random_state=0).fit(X, y)
    dist = model.predict_dist(X)
    shares = dict(model.weights_)
    density = sum(
        share * np.exp(model.predict_dist(X, model=name).logpdf(y))
        for name, share in shares.items()
        if share > 0
    )
    np.testing.assert_allclose(dist.logpdf(y), np.log(density), rtol=1e-6)
    np.testing.assert_allclose(dist.cdf(dist.quantile(0.8)), 0.8, atol=1e-6)


def test_a_stack_mixes_no_counts_with_numbers():
    kinds = {"a": "gaussian", "b": "poisson"}
    networks = [(name, FAWNRegressor(likelihood=kind, **QUICK)) for name, kind in kinds.items()]
    X, y, _, _ = simulated("poisson", n=30)
    with pytest.raises(ValueError, match=r"^estimators has 'b', whose likelihood takes other targ"):
        StackedRegressor(networks).fit(X, y)


# ---- what is given ------------------------------------------------------------------------------


def fit(kind, y, **options):
    X = np.arange(2.0 * len(y)).reshape(len(y), 2)
    return FAWNRegressor(likelihood=kind, **QUICK).fit(X, y, **options)


@pytest.mark.parametrize(
    ("kind", "y", "options", "sentence"),
    [
        ("log-normal", [1, 0, 2], {}, r"^the target is 0 in row 1: a logarithm needs positive"),
        ("poisson", [1, -1, 2], {}, r"^the count is -1 in row 1: counts are whole numbers"),
        ("negative-binomial", [1, 1, 2.5], {}, r"^the count is 2\.5 in row 2: counts are whole"),
        ("poisson", [1, 1, 2], {"exposure": [1, 1, 0]}, r"^the exposure is 0 in row 2: it must"),
        ("poisson", [1, 1, 2], {"exposure": [1, 1]}, r"^exposure has shape \(2,\), but"),
        ("gaussian", [1, 1, 2], {"exposure": [1, 1, 1]}, r"^exposure is for counts: choose"),
        ("censored", [1, 1, 2], {}, r"^y has 1 columns, but a lower and an upper bound"),
        ("censored", [[1, 2], [2, 1], [0, 0]], {}, r"^the lower bound lies above .* in row 1"),
        ("censored", [[1, 2], [-INF, INF], [0, 0]], {}, r"^the lower bound is -inf .* in row 1"),
        ("censored-log-normal", [[1, 2], [-1, 1], [3, 3]], {}, r"^the target is -1 in row 1"),
        ("poisson", [1, np.nan, 2], {}, r"NaN"),
    ],
)
def test_bad_targets_are_one_sentence(kind, y, options, sentence):
    with pytest.raises(ValueError, match=sentence) as caught:
        fit(kind, np.array(y, float), **options)
    assert "\n" not in str(caught.value) or "NaN" in sentence


def test_names_and_sources(tmp_path):
    """A frame's names, bounds as two columns, and rows that come as a source."""
    X, y, _, _ = simulated("censored", n=40)
    frame = pd.DataFrame(y, columns=["least", "most"])
    model = FAWNRegressor(likelihood="censored", random_state=0, **QUICK).fit(X, frame)
    assert (model.n_outputs_, model.target_names_) == (1, ["least"])
    assert model.predict(X).shape == (40,)
    source = Data(X, y, names=["X[:, 0]", "X[:, 1]", "least", "most"])
    other = FAWNRegressor(likelihood="censored", random_state=0, **QUICK).fit(source)
    named = pd.DataFrame(X, columns=source.features)
    np.testing.assert_array_equal(other.predict(named), model.predict(X))
    assert model.share_seen(X, y) == 1.0


def test_going_on_and_single_epochs():
    X, y, exposure, _ = simulated("negative-binomial", n=40)
    model = FAWNRegressor(likelihood=NegativeBinomial, random_state=0, **QUICK)
    model.partial_fit(X, y, exposure=exposure).partial_fit(X, y, exposure=exposure)
    assert model.n_iter_ == 2
    model.set_params(warm_start=True).fit(X, y, exposure=exposure)
    assert model.predict(X).shape == (40,)


def test_two_targets_of_each():
    """Several outputs go the same way, block by block."""
    for kind in KINDS:
        X, y, exposure, _ = simulated(kind, n=40)
        both = np.stack([y, y], 1) if y.ndim == 1 else y[:, [0, 0, 1, 1]]
        model = FAWNRegressor(likelihood=kind, random_state=0, **QUICK | {"max_iter": 20})
        model.fit(X, both, **given(exposure))
        assert model.predict(X).shape == (40, 2)
        assert np.isfinite(model.log_score(X, both, **given(exposure)))
