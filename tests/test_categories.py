"""Predictions of classes: probabilities, entropies and scores against SciPy, scikit-learn, hand."""

import numpy as np
import pytest
from scipy import stats
from sklearn import metrics

from varprop import class_metrics
from varprop.predictive import Categories


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    proba = rng.dirichlet(np.ones(3), size=400)
    y = np.array([rng.choice(3, p=p) for p in proba])
    return Categories(proba, classes=["a", "b", "c"]), np.array(["a", "b", "c"])[y], y


def test_entropy_and_its_parts(rows):
    dist, _, _ = rows
    np.testing.assert_allclose(dist.entropy(), stats.entropy(dist.proba, axis=1))
    assert (dist.epistemic == 0).all()  # a known model has no doubt
    half = Categories(dist.proba, 0.5 * dist.entropy())
    np.testing.assert_allclose(half.epistemic, half.aleatoric)
    assert (half.unsplit().epistemic == 0).all()
    # An approximation that is above the whole is all of it.
    assert (Categories(dist.proba, dist.entropy() + 1).epistemic == 0).all()


def test_a_mixture_averages_and_its_disagreement_is_epistemic(rows):
    a, _, _ = rows
    b = Categories(a.proba[:, ::-1], classes=a.classes)
    found = Categories.mixture([a, b], [3.0, 1.0])
    proba = 0.75 * a.proba + 0.25 * b.proba
    np.testing.assert_allclose(found.proba, proba)
    mutual = stats.entropy(proba, axis=1) - stats.entropy(a.proba, axis=1)
    np.testing.assert_allclose(found.epistemic, mutual, atol=1e-12)
    assert (mutual >= -1e-12).all()
    by_row = np.stack([np.linspace(0, 1, 400), np.linspace(1, 0, 400)])
    mixed = Categories.mixture([a, b], by_row).proba
    np.testing.assert_allclose(mixed[0], b.proba[0])
    np.testing.assert_allclose(mixed[-1], a.proba[-1])


def test_a_member_that_knows_fewer_numbered_classes():
    found = Categories.mixture([Categories([[0.2, 0.3, 0.5]]), Categories([[0.5, 0.5]])])
    np.testing.assert_allclose(found.proba, [[0.35, 0.4, 0.25]])
    with pytest.raises(ValueError, match="same classes"):
        Categories.mixture([Categories([[0.5, 0.5]], classes=["a", "b"]), Categories([[0.5, 0.5]])])
    with pytest.raises(ValueError, match="same rows"):
        Categories.mixture([Categories([[0.5, 0.5]]), Categories([[0.5, 0.5]])[[0, 0]]])


def test_scores_agree_with_scikit_learn(rows):
    dist, labels, y = rows
    weight = np.random.default_rng(1).uniform(size=len(y))
    for given in (None, weight):
        ours = class_metrics.log_loss(labels, dist, sample_weight=given)
        assert ours == pytest.approx(metrics.log_loss(y, dist.proba, sample_weight=given))
        ours = class_metrics.accuracy(labels, dist, sample_weight=given)
        theirs = metrics.accuracy_score(labels, dist.mode, sample_weight=given)
        assert ours == pytest.approx(theirs)
    one_hot = np.eye(3)[y]
    assert class_metrics.brier(labels, dist) == pytest.approx(
        sum(metrics.brier_score_loss(one_hot[:, k], dist.proba[:, k]) for k in range(3))
    )
    np.testing.assert_allclose(dist.crps(labels), ((dist.proba - one_hot) ** 2).sum(axis=1))
    area = metrics.roc_auc_score(y, dist.proba, multi_class="ovr", average="macro")
    assert class_metrics.roc_auc(labels, dist) == pytest.approx(area)


def test_ranked_probability_score_of_ordered_classes():
    """Being off by two classes costs more than by one; by hand."""
    dist = Categories([[0.7, 0.2, 0.1]] * 3, ordered=True)
    truth = [0.3**2 + 0.1**2, 0.7**2 + 0.1**2, 0.7**2 + 0.9**2]
    np.testing.assert_allclose(dist.crps([0, 1, 2]), truth)


def test_calibration_errors():
    """True probabilities have none but by chance; sharpened ones have what was added."""
    rng = np.random.default_rng(2)
    p = rng.uniform(0.5, 1, size=200_000)
    y = (rng.uniform(size=len(p)) < p).astype(int)
    honest = Categories(np.stack([1 - p, p], 1))
    assert class_metrics.calibration_error(y, honest) < 0.006
    assert class_metrics.calibration_error_debiased(y, honest) < 0.006
    q = np.minimum(p + 0.1, 1.0)
    sure = Categories(np.stack([1 - q, q], 1))
    expected = np.mean(q - p)
    assert class_metrics.calibration_error(y, sure) == pytest.approx(expected, abs=0.005)
    few = [class_metrics.calibration_error(y[k : k + 100], honest[k : k + 100]) for k in range(50)]
    fair = [
        class_metrics.calibration_error_debiased(y[k : k + 100], honest[k : k + 100])
        for k in range(50)
    ]
    assert np.mean(few) > 0.05 > np.mean(fair)  # what debiasing is for


def test_draws_have_the_probabilities(rows):
    dist, _, _ = rows
    n = 4000
    draws = dist.sample(n, 0)
    assert draws.shape == (400, n)
    for k, label in enumerate(dist.classes):
        z = (np.mean(draws == label, axis=1) - dist.proba[:, k]) / np.sqrt(
            dist.proba[:, k] * (1 - dist.proba[:, k]) / n
        )
        assert np.abs(z).max() < 5.5  # 1,200 comparisons: a false alarm in 20,000 runs


def test_rows_and_labels(rows):
    dist, labels, _ = rows
    np.testing.assert_allclose(dist[3:5].logpdf(labels[3:5]), dist.logpdf(labels)[3:5])
    assert len(dist[7]) == 1
    assert len(dist) == 400
    assert "400 rows, 3 classes" in repr(dist)
    with pytest.raises(ValueError, match="'d', which is none of the 3 classes"):
        dist.logpdf(np.full(400, "d"))
    with pytest.raises(ValueError, match="400 rows"):
        dist.logpdf(labels[:3])


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Categories([0.5, 0.5]), "shape"),
        (lambda: Categories([[0.5, 0.6]]), "sum 1"),
        (lambda: Categories([[1.1, -0.1]]), "not negative"),
        (lambda: Categories([[0.5, np.nan]]), "sum 1"),
        (lambda: Categories([[0.5, 0.5]], [-1.0]), "aleatoric"),
        (lambda: Categories([[0.5, 0.5]], classes=["a"]), "2 classes"),
        (lambda: Categories.mixture([]), "at least one"),
    ],
)
def test_bad_input_is_one_sentence(make, says):
    with pytest.raises(ValueError, match=says):
        make()
