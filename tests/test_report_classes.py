"""Reports and plots of classes, counts and censored targets: what they say, whole and safe."""

import matplotlib
import numpy as np
import pytest

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from test_report import read
from varprop import plotting
from varprop.predictive import Predictive
from varprop.predictive.bounds import Bounded
from varprop.predictive.categories import Categories
from varprop.predictive.class_diagnostics import confusion, roc
from varprop.predictive.counts import Counts
from varprop.predictive.scorecard import DO_NOT_USE, FREQUENCIES, MODEL, scorecard, verdict
from varprop.report import write_class_report, write_report, write_survival_report
from varprop.report.class_charts import merged_confusion
from varprop.report.classes import surprise

HOSTILE = "</script><script>alert(1)</script> \"q\" 'it' &amp;"


def classes(n=200, c=2, *, seed=0, names=None):
    rng = np.random.default_rng(seed)
    proba = np.exp(1.5 * rng.normal(size=(n, c)))
    proba /= proba.sum(axis=1, keepdims=True)
    p = Categories(proba, classes=names or ["no", "yes", "maybe", "never", "x", "y", "z"][:c])
    return p.sample(random_state=seed)[:, 0], p


def page(tmp_path, y, p, **more):
    path = tmp_path / "r.html"
    write_class_report(path, title="Trial", prediction=p, y=y, target_name="answer", **more)
    return read(path)


def test_two_classes(tmp_path):
    y, p = classes()
    flat = Categories(np.tile([0.5, 0.5], (200, 1)), classes=p.classes)
    both = {MODEL: p, FREQUENCIES: flat}
    said = verdict(y, both)
    card = scorecard(y, both)
    html, text, reader = page(tmp_path, y, p, scorecard=card, verdict=said)
    assert said in text
    assert "predicting answer , one of 2 classes" in text
    right = round(100 * np.mean(p.mode == y))
    assert f"{right} % of the predicted classes are right" in text.replace("\xa0", " ")
    for word in ("Do probabilities come true?", "Is yes told apart?", "What is taken for what?"):
        assert word in text
    area = round(100 * roc(y, p).area)
    assert f"in {area} % of all pairs" in text.replace("\xa0", " ")
    assert "Is each class told apart from all others?" not in text
    counts = confusion(y, p)
    drawn = [t for t in text.split() if t.isdigit()]
    assert all(str(k) in drawn for k in counts.ravel())
    assert "nan" not in html.lower().replace("nanosecond", "")
    assert ("role", "img") in reader.attributes
    assert text.count("log-loss") >= 2


def test_several_classes_have_small_curves(tmp_path):
    y, p = classes(c=7)
    html, text, _ = page(tmp_path, y, p)
    assert "Is each class told apart from all others?" in text
    assert html.count("ROC curve.") == 6
    assert "The 6 most frequent of 7 classes are drawn." in text


def test_many_classes_are_merged(tmp_path):
    names = [f"class number {k}" for k in range(14)]
    y, p = classes(c=14, names=names)
    counts = confusion(y, p)
    merged, shown = merged_confusion(counts, names)
    assert merged.shape == (10, 10)
    assert merged.sum() == 200
    kept = [names.index(name) for name in shown[:-1]]
    np.testing.assert_array_equal(merged[:-1, :-1], counts[np.ix_(kept, kept)])
    assert counts.sum(axis=1)[kept].min() >= np.delete(counts.sum(axis=1), kept).max()
    _, text, _ = page(tmp_path, y, p)
    assert "The rarest classes are one, (other)." in text
    assert "…mber 13" in text or "…umber 1" in text


def test_surprising_rows_are_listed_with_their_inputs(tmp_path):
    rng = np.random.default_rng(0)
    n = 300
    risk = np.clip(rng.uniform(size=n), 0.05, 0.95)
    risk[7] = 1e-6
    p = Categories(np.stack([1 - risk, risk], axis=1), classes=["no", "yes"])
    y = np.where(rng.uniform(size=n) < risk, "yes", "no")
    y[7] = "yes"
    features = {"age": np.arange(n) * 1.0, "city": np.array(["Ulm"] * n)}
    labels = [f"person {i}" for i in range(n)]
    _, text, _ = page(tmp_path, y, p, features=features, row_labels=labels)
    assert "1 row is of a class less probable than chance allows for any of 300." in text
    place = text.index("person 7")
    assert "Ulm" in text[place : place + 120]
    assert "< 0.1 %" in text[place : place + 120]
    y[7] = "no"
    _, text, _ = page(tmp_path, y, p, features=features)
    assert "No row of 300 is of a class less probable than chance allows." in text


def test_surprise_is_a_p_value():
    """Below t in at most a share t of rows: by summing over all classes, exactly."""
    proba = np.random.default_rng(0).dirichlet(np.ones(5), size=50)
    for t in (0.01, 0.1, 0.3):
        for row in proba:
            stated = np.array([surprise(np.array([k]), row[None])[0] for k in range(5)])
            assert row[stated < t].sum() <= t


def test_a_useless_model_is_named(tmp_path):
    y, p = classes()
    sure = Categories(np.eye(2)[p.codes(y)[::-1]] * 0.9998 + 1e-4, classes=p.classes)
    said = verdict(y, {MODEL: sure, FREQUENCIES: p})
    html, text, _ = page(tmp_path, y, sure, verdict=said)
    assert said.startswith(DO_NOT_USE)
    assert 'class="summary useless"' in html
    assert "The model is overconfident" in text


def test_names_are_never_run(tmp_path):
    y, p = classes(names=[HOSTILE, "no"])
    features = {HOSTILE: np.array([HOSTILE] * 200)}
    html, text, _ = page(tmp_path, y, p, features=features, row_labels=[HOSTILE] * 200)
    assert "<script>alert" not in html
    assert "alert(1)" in text


@pytest.mark.parametrize("n", [1, 2, 9])
def test_few_rows(tmp_path, n):
    y, p = classes(n=n, c=3)
    _, text, _ = page(tmp_path, y, p)
    assert "Too few rows to judge the stated probabilities." in text
    certain = Categories(np.eye(3)[p.codes(y)], classes=p.classes)
    _, text, _ = page(tmp_path, y, certain)
    assert "No row was taken for another class." in text


def test_what_does_not_fit_is_refused(tmp_path):
    y, p = classes()
    with pytest.raises(ValueError, match="The input 'a' has 3 values but there are 200 rows"):
        page(tmp_path, y, p, features={"a": [1, 2, 3]})
    with pytest.raises(ValueError, match="There are 1 row_labels but 200 rows"):
        page(tmp_path, y, p, row_labels=["a"])
    with pytest.raises(ValueError, match="'perhaps', which is none of the 2 classes"):
        page(tmp_path, np.array(["perhaps"] * 200), p)
    with pytest.raises(ValueError, match="a lower and an upper bound for each of 2 rows"):
        write_survival_report(
            tmp_path / "s.html",
            title="t",
            prediction=Predictive.gaussian([0.0, 1.0], [1.0, 1.0], 0.0),
            y=[[0.0, 1.0], [2.0, 1.0]],
            target_name="t",
        )
    assert not (tmp_path / "s.html").exists()


def test_counts_have_a_rootogram(tmp_path):
    rng = np.random.default_rng(0)
    f = rng.normal(0.5, 0.5, 300)
    y = rng.poisson(np.exp(f)).astype(float)
    p = Counts(Predictive.gaussian(f, np.zeros(300), 0.0))
    path = tmp_path / "r.html"
    write_report(path, title="Visits", prediction=p, y=y, target_names=["visits"])
    _, text, _ = read(path)
    assert "Does each count occur as often as stated?" in text
    assert "The intervals hold about as many observations as they should." in text
    few = Counts(Predictive.gaussian(f - 1, np.zeros(300), 0.0))
    write_report(path, title="Visits", prediction=few, y=y, target_names=["visits"])
    _, text, _ = read(path)
    assert "fewer than stated of 0" in text
    assert "Predictions tend to be too low." in text


def bounded(n=300, *, seed=0):
    rng = np.random.default_rng(seed)
    mean = rng.normal(5, 1, n)
    t, c = mean + rng.normal(0, 0.8, n), rng.uniform(3, 8, n)
    y = np.stack([np.minimum(t, c), np.where(t <= c, t, np.inf)], axis=1)
    return y, Predictive.gaussian(mean, np.full(n, 0.1), 0.54)


def test_censored_targets_have_a_survival_curve(tmp_path):
    y, p = bounded()
    known = Bounded(p, y[:, :1], y[:, 1:])
    path = tmp_path / "r.html"
    options = {
        "title": "Days",
        "y": y,
        "target_name": "days",
        "scorecard": scorecard(y, {MODEL: known}),
    }
    write_survival_report(path, prediction=p, **options)
    _, text, _ = read(path)
    exact = int((y[:, 0] == y[:, 1]).sum())
    assert f"{exact} of 300 targets exactly; {300 - exact} only to be at least so large." in text
    assert "How many last how long?" in text
    assert "What was observed lies where the stated distributions have it." in text
    late = Predictive.gaussian(p.mean + 1.5, np.full(300, 0.1), 0.54)
    write_survival_report(path, prediction=late, **options)
    assert "What was observed does not lie where the stated" in read(path)[1]
    ranges = np.stack([y[:, 0] - 0.5, y[:, 0] + 0.5], axis=1)
    write_survival_report(path, prediction=p, **options | {"y": ranges})
    assert "by Turnbull, of ranges" in read(path)[1]


# ---- plots --------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _closed():
    yield
    plt.close("all")


def test_plots_show_the_numbers():
    y, p = classes(c=3)
    ax = plotting.plot_roc(y, p, label="yes")
    plotting.plot_roc(y, p, label="no", ax=ax)
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert labels[0] == f"yes: area {roc(y, p, label='yes').area:.3f}"
    assert labels.count("guessing") == 1
    ax = plotting.plot_confusion(y, p)
    shown = [int(text.get_text()) for text in ax.texts]
    np.testing.assert_array_equal(shown, confusion(y, p).ravel())
    ax = plotting.plot_reliability(y, p)
    assert ax.get_xlabel() == "stated probability of the predicted class"
    assert plotting.plot_reliability(*classes()).get_xlabel() == "stated probability of yes"
    ax = plotting.plot_entropy(y, p)
    total = [patch.get_data().values.sum() for patch in ax.patches]
    np.testing.assert_allclose(total, [1, 1])
    bounds, prediction = bounded()
    ax = plotting.plot_survival(bounds, prediction)
    assert ax.lines[0].get_ydata()[0] == 1.0
    ax = plotting.plot_survival(bounds[:, 0], prediction)
    at = np.median(bounds[:, 0])
    steps = ax.lines[0].get_xdata(), ax.lines[0].get_ydata()
    assert steps[1][np.searchsorted(steps[0], at, "right") - 1] == pytest.approx(0.5, abs=0.01)
    with pytest.raises(ValueError, match="a lower and an upper bound for each of 300 rows"):
        plotting.plot_survival(bounds[:5], prediction)
    counts = Counts(Predictive.gaussian(np.zeros(40), np.zeros(40), 0.0))
    ax = plotting.plot_rootogram(np.arange(40) % 3, counts)
    heights = [bar.get_height() for bar in ax.patches][:3]
    assert heights == [14, 13, 13]
