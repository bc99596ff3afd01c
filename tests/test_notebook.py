"""What notebooks show of predictions and fits, and predictions as data frames."""

import re
import sys
import warnings
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
import sklearn
from scipy import stats

from varprop import FAWNClassifier, FAWNRegressor, StackedRegressor, default_networks, plotting
from varprop.predictive import Categories, Counts, Predictive, mixture

MINUS = "\N{MINUS SIGN}"

MEAN, STD = np.array([0.0, 3.0, -2.0]), np.array([1.0, 0.5, 2.0])
GAUSSIAN = Predictive.gaussian(MEAN, 0.36 * STD**2, 0.64 * STD**2)


def pictures(prediction):
    """The svg elements of what a notebook shows; that it is well-formed is tested along."""
    text = prediction._repr_html_()
    for forbidden in ("<script", "<style", " id=", "url("):  # which notebooks drop, or mix up
        assert forbidden not in text
    return list(ElementTree.fromstring(f"<div>{text}</div>").iter("svg"))


def drawn(svg):
    """Of a strip: where the interval ends, where the mean is, and the outline's upper half."""
    interval, mean = svg.findall("line")
    path = svg.find("g/path").attrib["d"].strip("MZ").split("L")
    points = np.array([list(map(float, point.split())) for point in path])
    upper = points[: len(points) // 2]
    return float(interval.get("x1")), float(interval.get("x2")), float(mean.get("x1")), upper


# ---- data frames --------------------------------------------------------------------------------


def test_a_frame_has_the_numbers():
    frame = GAUSSIAN.to_frame(interval=0.8, quantiles=[0.05])
    truth = stats.norm(MEAN, STD)
    expected = {
        **{"mean": MEAN, "std": STD, "model_std": 0.6 * STD, "noise_std": 0.8 * STD},
        **{"lower": truth.ppf(0.1), "upper": truth.ppf(0.9), "q0.05": truth.ppf(0.05)},
    }
    assert list(frame) == list(expected)
    for name, values in expected.items():
        np.testing.assert_allclose(frame[name], values, rtol=1e-12)
    assert list(GAUSSIAN.unsplit().to_frame()) == ["mean", "std", "lower", "upper"]
    assert isinstance(frame, pd.DataFrame)


def test_a_frame_of_polars_is_that_of_pandas():
    polars = pytest.importorskip("polars")
    found = GAUSSIAN.to_frame("polars")
    assert isinstance(found, polars.DataFrame)
    known = GAUSSIAN.to_frame()
    assert found.columns == list(known)
    np.testing.assert_array_equal(found.to_numpy(), known.to_numpy())


def test_a_frame_of_several_targets():
    cov = np.array([[[2.0, 0.5], [0.5, 1.0]]])
    joint = Predictive.joint([[1.0, -1.0]], cov, [0.25, 0.5]).unsplit()
    frame = joint.to_frame(targets=["a", "b"])
    names = [f"{target}_{name}" for target in "ab" for name in ("mean", "std", "lower", "upper")]
    assert list(frame) == [*names, "cov_a_b"]
    assert frame["cov_a_b"][0] == 0.5
    np.testing.assert_allclose([frame["a_std"][0], frame["b_std"][0]], np.sqrt([2.25, 1.5]))
    assert next(iter(joint.to_frame())) == "y0_mean"
    with pytest.raises(ValueError, match="1 targets named, but 2 outputs"):
        joint.to_frame(targets=["a"])
    with pytest.raises(ValueError, match="one name"):
        joint.to_frame(targets=["a", "a"])


def test_a_frame_of_counts_and_of_classes():
    rate = np.array([0.5, 4.0])
    counts = Counts(Predictive.gaussian(np.log(rate), [0.0, 0.0], 0.0)).to_frame()
    np.testing.assert_allclose(counts["p_zero"], np.exp(-rate), atol=1e-7)
    np.testing.assert_array_equal(counts["upper"], stats.poisson(rate).ppf(0.95))
    sure = Categories([[0.2, 0.8], [1.0, 0.0]], classes=["no", "yes"])
    frame = sure.to_frame()
    assert list(frame) == ["predicted", "p_no", "p_yes", "entropy"]
    assert frame["predicted"].tolist() == ["yes", "no"]
    np.testing.assert_allclose(frame["entropy"], [stats.entropy([0.2, 0.8]), 0.0], atol=1e-12)
    doubtful = Categories(sure.proba, [0.1, 0.0], classes=["no", "yes"]).to_frame()
    assert list(doubtful)[-2:] == ["model_entropy", "noise_entropy"]
    np.testing.assert_allclose(doubtful["model_entropy"] + doubtful["noise_entropy"],
                               frame["entropy"])  # fmt: skip


def test_frames_that_cannot_be(monkeypatch):
    with pytest.raises(ValueError, match="'pandas' or 'polars', not 'arrow'"):
        GAUSSIAN.to_frame("arrow")
    with pytest.raises(ValueError, match="interval"):
        GAUSSIAN.to_frame(interval=1.0)
    with pytest.raises(ValueError, match="between 0 and 1"):
        GAUSSIAN.to_frame(quantiles=[0.0])
    monkeypatch.setitem(sys.modules, "pandas", None)
    for prediction in (GAUSSIAN, Categories([[1.0]])):
        with pytest.raises(ImportError, match="pip install pandas"):
            prediction.to_frame()


# ---- strips -------------------------------------------------------------------------------------


@pytest.mark.parametrize("unit", [1.0, 1e250, 1e-250])
def test_a_strip_is_the_density(unit):
    """Thick where it is likely; the ends of the interval say where on the axis everything is."""
    other = stats.norm(4.0, 0.3)
    two = mixture([GAUSSIAN, Predictive.gaussian([4.0] * 3, [0.09] * 3, 0.0)], [0.7, 0.3])
    lows, highs = [], []
    for row, svg in enumerate(pictures(two.times(unit))):
        truth = stats.norm(MEAN[row], STD[row])
        grid = np.linspace(-15, 15, 30001)
        cdf = 0.7 * truth.cdf(grid) + 0.3 * other.cdf(grid)
        ends = np.interp([0.05, 0.95], cdf, grid)
        left, right, mean, upper = drawn(svg)
        slope = (ends[1] - ends[0]) / (right - left)
        at = ends[0] + slope * (upper[:, 0] - left)
        density = 0.7 * truth.pdf(at) + 0.3 * other.pdf(at)
        thick = 10.0 - upper[:, 1]
        # A cell's average, and tenths of a pixel, of the densest.
        np.testing.assert_allclose(thick / 10, density / density.max(), atol=0.04)
        assert mean == pytest.approx(left + (0.7 * MEAN[row] + 1.2 - ends[0]) / slope, abs=0.2)
        lows.append(ends[0] - slope * left)
        highs.append(ends[0] + slope * (300 - left))
    assert np.ptp(lows) < 0.05  # all rows have one axis
    assert np.ptp(highs) < 0.05


def test_a_strip_of_counts_has_a_step_for_each():
    rate = 2.5
    (svg,) = pictures(Counts(Predictive.gaussian([np.log(rate)], [0.0], 0.0)))
    *_, upper = drawn(svg)
    thick = 10.0 - upper[:, 1]
    pmf = stats.poisson(rate).pmf(np.arange(len(thick) // 2))
    np.testing.assert_allclose(thick[::2] / 10, pmf / pmf.max(), atol=0.01)
    np.testing.assert_array_equal(thick[::2], thick[1::2])


def test_a_strip_of_classes_has_their_shares():
    proba = np.array([[0.5, 0.3, 0.2], [0.0, 0.9, 0.1]])
    names = ["a", "<b>&", "c"]
    svgs = pictures(Categories(proba, classes=names))
    for svg, row in zip(svgs, proba, strict=True):
        bars = svg.findall("rect")
        widths = [float(bar.get("width")) / 300 for bar in bars]
        np.testing.assert_allclose(widths, row[row > 0], atol=0.001)
        assert [bar.find("title").text.rsplit(" ", 2)[0].split()[0] for bar in bars] == [
            name for name, share in zip(names, row, strict=True) if share
        ]
    many = np.random.default_rng(0).dirichlet(np.ones(12), 4)
    text = Categories(many)._repr_html_()
    assert "6 others" in text
    for svg in pictures(Categories(many)):
        assert sum(float(bar.get("width")) for bar in svg.findall("rect")) == pytest.approx(
            300, abs=0.7
        )


def test_only_some_rows_and_targets_are_shown():
    many = Predictive.gaussian(np.zeros((25, 5)), np.ones((25, 5)), 1.0)
    assert len(pictures(many)) == 10 * 3
    assert "2 more targets, 15 more rows not shown" in many._repr_html_()
    assert len(many._repr_html_()) < 120_000
    point = Predictive.gaussian([1.0, 1.0], [0.0, 0.0], 0.0)  # no density
    assert len(pictures(point)) == 2


# ---- estimators ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def stack():
    x = np.linspace(-1, 1, 40)[:, None]
    networks = default_networks(n_rows=40, hidden_layer_sizes=(4,), max_iter=10)[:1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return StackedRegressor(networks, random_state=0).fit(x, np.sin(3 * x[:, 0]))


def cells(page):
    """The table at the end of an estimator's page, by row; scikit-learn's own comes before."""
    table = page[page.rindex("<table") : page.rindex("</table>") + len("</table>")]
    rows = ElementTree.fromstring(table).iter("tr")
    return {row[0].text or "": [cell.text for cell in row[1:]] for row in rows}


def test_a_fitted_stack_shows_how_it_ended_and_its_scores(stack):
    page = stack._repr_mimebundle_()["text/html"]
    assert "sk-estimator" in page  # scikit-learn's own is there
    assert "Fitted on 40 different rows: the limit of steps was reached" in page
    found = cells(page)
    assert found[""] == ["weight", "out-of-fold NLL"]
    for name, weight in stack.weights_.items():
        share, nll = found[name]
        assert float(share.strip("%")) == pytest.approx(100 * weight, abs=0.05)
        known = stack.out_of_fold_nll_[name]
        assert float(nll.replace(MINUS, "-")) == pytest.approx(known, rel=0.01, abs=0.001)
    # And where a notebook asks for the page alone.
    assert re.sub(r"sk-[\w-]+", "", stack._repr_html_()).endswith(page[page.rindex("<table") :])


def test_the_page_survives_a_file_and_follows_the_display_setting(stack, tmp_path):
    path = tmp_path / "m.safetensors"
    stack.save(path)
    again = StackedRegressor.load(path)
    assert cells(again._repr_mimebundle_()["text/html"]) == cells(stack._repr_html_())
    with sklearn.config_context(display="text"):
        assert set(stack._repr_mimebundle_()) == {"text/plain"}


def test_an_unfitted_estimator_shows_what_scikit_learn_shows():
    for estimator in (StackedRegressor(), FAWNRegressor(), FAWNClassifier()):
        assert "Fitted on" not in estimator._repr_mimebundle_()["text/html"]


def test_a_network_shows_its_loss(stack):
    _name, network = stack.estimators_[0]
    found = cells(network._repr_mimebundle_()["text/html"])
    assert found["epochs"] == ["10"]
    assert float(found["training loss per row"][0].replace(MINUS, "-")) == pytest.approx(
        network.loss_, rel=0.01
    )
    assert found["weight of the network beside a constant"] == [f"{network.trust_:.1%}"]


# ---- plots --------------------------------------------------------------------------------------


def test_every_plot_returns_axes():
    """By what they say; that they do is in test_plotting.py, plot by plot."""
    for name in plotting.__all__:
        assert getattr(plotting, name).__annotations__["return"] == "Axes"
