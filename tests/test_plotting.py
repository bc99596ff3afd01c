"""Plots: what is drawn is what was computed, in the Axes that were given."""

import re
import subprocess
import sys
from pathlib import Path

import matplotlib
import numpy as np
import pytest

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from varprop import diagnostics, plotting
from varprop.predictive import Categories, Counts, Predictive


@pytest.fixture(autouse=True)
def _close_figures():
    plt.close("all")
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def held_out():
    rng = np.random.default_rng(0)
    p = Predictive.gaussian(rng.normal(size=80), rng.uniform(0.2, 2.0, 80), 0.3)
    return p.sample(random_state=1)[..., 0], p


JOINT = Predictive.joint(
    np.zeros((2, 2)), [[[1.0, 0.6], [0.6, 1.0]], [[4.0, 0.0], [0.0, 4.0]]], 0.0
)
CLASSES = Categories(np.random.default_rng(2).dirichlet(np.ones(3), size=80))
CODES = CLASSES.sample(random_state=3)[:, 0]
COUNTS = Counts(Predictive.gaussian(np.zeros(80), np.zeros(80), 0.0))
CALLS = {
    "plot_band": lambda y, p, ax: plotting.plot_band(np.arange(80.0), p, y=y, ax=ax),
    "plot_budget": lambda y, p, ax: plotting.plot_budget(p.budget(), ax=ax),
    "plot_calibration": lambda y, p, ax: plotting.plot_calibration(y, p, ax=ax),
    "plot_confusion": lambda y, p, ax: plotting.plot_confusion(CODES, CLASSES, ax=ax),
    "plot_density": lambda y, p, ax: plotting.plot_density(y, p, row=3, ax=ax),
    "plot_entropy": lambda y, p, ax: plotting.plot_entropy(CODES, CLASSES, ax=ax),
    "plot_error_by_std": lambda y, p, ax: plotting.plot_error_by_std(y, p, ax=ax),
    "plot_output_correlation": lambda y, p, ax: plotting.plot_output_correlation(JOINT, ax=ax),
    "plot_pit": lambda y, p, ax: plotting.plot_pit(y, p, ax=ax),
    "plot_predicted_observed": lambda y, p, ax: plotting.plot_predicted_observed(y, p, ax=ax),
    "plot_reliability": lambda y, p, ax: plotting.plot_reliability(CODES, CLASSES, ax=ax),
    "plot_roc": lambda y, p, ax: plotting.plot_roc(CODES, CLASSES, ax=ax),
    "plot_rootogram": lambda y, p, ax: plotting.plot_rootogram(CODES, COUNTS, ax=ax),
    "plot_survival": lambda y, p, ax: plotting.plot_survival(y, p, ax=ax),
    "plot_training": lambda y, p, ax: plotting.plot_training(y, label="a run", ax=ax),
}


def line(ax, label):
    """The data of the line with that name in the legend."""
    (found,) = [one for one in ax.lines if one.get_label() == label]
    return np.asarray(found.get_xydata())


def test_every_plot_has_its_case():
    assert set(CALLS) == set(plotting.__all__)


@pytest.mark.parametrize("name", CALLS)
def test_draws_into_the_given_axes_and_returns_them(name, held_out):
    y, p = held_out
    figure, axes = plt.subplots(1, 2)
    assert CALLS[name](y, p, axes[1]) is axes[1]
    assert axes[1].has_data()
    assert not axes[0].has_data()
    figure.canvas.draw()
    new = CALLS[name](y, p, None)
    assert new.figure is not figure
    assert new.has_data()


# Matrices are labeled at their sides.
MATRICES = {"plot_output_correlation", "plot_confusion"}


@pytest.mark.parametrize("name", sorted(set(CALLS) - MATRICES))
def test_says_what_the_axes_are(name, held_out):
    ax = CALLS[name](*held_out, None)
    assert ax.get_xlabel()
    assert ax.get_ylabel()
    assert ax.get_legend() is not None


def test_calibration_draws_the_curve(held_out):
    ax = plotting.plot_calibration(*held_out, levels=[0.2, 0.6])
    curve = diagnostics.calibration_curve(*held_out, levels=[0.2, 0.6])
    np.testing.assert_array_equal(
        line(ax, "observed"), np.stack([curve.level, curve.observed], axis=1)
    )


def test_band_is_the_interval_in_order_of_the_input(held_out):
    _, p = held_out
    x = np.random.default_rng(2).permutation(80).astype(float)
    ax = plotting.plot_band(x, p, coverage=0.5, show_model=False)
    mean = line(ax, "mean")
    np.testing.assert_array_equal(mean[:, 0], np.arange(80))
    np.testing.assert_array_equal(mean[:, 1], p.mean[np.argsort(x)])
    (band,) = ax.collections
    lower, upper = p.interval(0.5)
    vertices = band.get_paths()[0].vertices[:, 1]
    assert vertices.min() == lower.min()
    assert vertices.max() == upper.max()
    assert ax.get_legend_handles_labels()[1][0] == "50% interval"


def test_model_band_is_inside(held_out):
    _, p = held_out
    ax = plotting.plot_band(np.arange(80.0), p, x_observed=[1.0, 2.0], y=[0.0, 0.5])
    total, model = (np.ptp(c.get_paths()[0].vertices[:, 1]) for c in ax.collections)
    assert model < total
    np.testing.assert_array_equal(line(ax, "observed"), [[1.0, 0.0], [2.0, 0.5]])


def test_predicted_observed_marks_what_fell_outside(held_out):
    y, p = held_out
    lower, upper = p.interval(0.5)
    outside = (y < lower) | (y > upper)
    ax = plotting.plot_predicted_observed(y, p, coverage=0.5)
    drawn = line(ax, "outside")
    np.testing.assert_array_equal(drawn, np.stack([y, p.mean], axis=1)[outside])
    styles = {one.get_marker() for one in ax.lines}
    assert {"o", "D"} <= styles  # told apart by shape, too


def test_pit_and_errors_draw_their_groups(held_out):
    counts = [bar.get_height() for bar in plotting.plot_pit(*held_out, n_bins=5).patches]
    assert counts == diagnostics.pit_histogram(*held_out, n_bins=5).counts.tolist()
    groups = diagnostics.error_by_std(*held_out, n_bins=3)
    drawn = line(plotting.plot_error_by_std(*held_out, n_bins=3), "group of rows")
    np.testing.assert_array_equal(drawn, np.stack([groups.stated, groups.error], axis=1))


def test_band_follows_noise_that_differs_from_row_to_row():
    x = np.linspace(0.0, 1.0, 50)
    p = Predictive.gaussian(np.zeros(50), np.full(50, 0.01), 0.01 + x**2)
    total, model = (
        np.abs(band.get_paths()[0].vertices) for band in plotting.plot_band(x, p).collections
    )
    at_end = total[:, 0] == 1.0
    np.testing.assert_allclose(total[at_end, 1], p.interval(0.9)[1][-1])
    assert total[:, 1].max() > 6 * total[total[:, 0] == 0.0, 1].max()
    np.testing.assert_allclose(model[:, 1], 0.1 * 1.6448536, rtol=1e-6)  # the model's stays


def test_correlations_of_a_row_of_all_rows_and_covariances():
    def numbers(**options):
        return [t.get_text() for t in plotting.plot_output_correlation(JOINT, **options).texts]

    assert numbers(row=0) == ["1.00", "0.60", "0.60", "1.00"]
    assert numbers() == ["1.00", "0.12", "0.12", "1.00"]  # 0.3 / 2.5
    assert numbers(covariance=True, row=1) == ["4", "0", "0", "4"]
    ax = plotting.plot_output_correlation(JOINT, names=["a", "b"])
    assert [t.get_text() for t in ax.get_yticklabels()] == ["a", "b"]


def test_density_is_that_of_the_row():
    p = Predictive.mixture(
        [
            Predictive.gaussian([0.0, -3.0], [1.0, 1.0], 0.0),
            Predictive.gaussian([0.0, 3.0], [1.0, 1.0], 0.0),
        ]
    )
    curve = line(plotting.plot_density([-3.0, 3.0, 2.0], p, row=1, n_bins=3), "stated density")
    height = np.exp(-0.5 * (curve[:, 0, None] - [-3.0, 3.0]) ** 2).mean(axis=1) / np.sqrt(2 * np.pi)
    np.testing.assert_allclose(curve[:, 1], height, rtol=1e-9)
    assert abs(np.trapezoid(curve[:, 1], curve[:, 0]) - 1) < 1e-3


def test_training_curve_counts_epochs_from_one_and_compares_runs():
    ax = plotting.plot_training([3.0, 2.0], label="a")
    plotting.plot_training([4.0, 1.0, 0.5], label="b", ax=ax)
    np.testing.assert_array_equal(line(ax, "a"), [[1, 3.0], [2, 2.0]])
    assert len(ax.lines) == 2


def test_bad_input_is_named(held_out):
    _, p = held_out
    with pytest.raises(ValueError, match=r"2 outputs: choose one by prediction.marginal"):
        plotting.plot_calibration(np.zeros((2, 2)), JOINT)
    with pytest.raises(ValueError, match=r"x must have shape \(n,\)"):
        plotting.plot_band(np.zeros((80, 2)), p)
    with pytest.raises(ValueError, match="x has 3 values but 80 rows were predicted"):
        plotting.plot_band(np.zeros(3), p)
    with pytest.raises(ValueError, match="y has 3 values but there are 80 inputs"):
        plotting.plot_band(np.zeros(80), p, y=[1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match="1 names but 2 outputs"):
        plotting.plot_output_correlation(JOINT, names=["a"])
    with pytest.raises(ValueError, match="zero variance, so its correlations"):
        plotting.plot_output_correlation(Predictive.gaussian([[1.0, 2.0]], [[0.0, 1.0]], 0.0))
    with pytest.raises(ValueError, match="Row 0 has zero variance"):
        plotting.plot_density([1.0], Predictive.gaussian([1.0], [0.0], 0.0))
    with pytest.raises(ValueError, match=r"loss_curve must have shape \(n_epochs,\)"):
        plotting.plot_training(np.zeros((2, 2)))


def test_without_matplotlib_the_extra_is_named_and_jax_is_not_needed():
    program = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "import varprop.plotting as p\n"
        "assert not {'jax', 'equinox'} & set(sys.modules)\n"
        "try: p.plot_training([1.0])\n"
        "except ImportError as error: print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120
    )
    assert done.stdout.strip() == (
        "Plots need matplotlib: install it by `pip install varprop[plot]`."
    ), done.stderr


def test_the_gallery_draws_and_sees_a_spread_that_is_too_small(tmp_path):
    script = Path(__file__).parents[1] / "examples" / "plot_gallery.py"
    done = subprocess.run(
        [sys.executable, "-W", "error", script, "--stated", "0.5", "--rows", "200"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "plot_gallery.png").read_bytes().startswith(b"\x89PNG")
    found = re.findall(r"held (\d+)% of 200 values; (\d+)% to", done.stdout)
    assert len(found) == 2
    assert all(int(share) < int(lowest) for share, lowest in found)


def test_a_model_part_that_is_not_told_apart_is_not_drawn(held_out):
    _, p = held_out
    assert len(plotting.plot_band(np.arange(80.0), p).collections) == 2
    assert len(plotting.plot_band(np.arange(80.0), p.unsplit()).collections) == 1


def test_correlations_have_no_unit():
    texts = [
        [text.get_text() for text in plotting.plot_output_correlation(p).texts]
        for p in (JOINT, JOINT.times([1e300, 1e-300]))
    ]
    assert texts[0] == texts[1]
