"""Rows set aside: which they are, the weights they give, and what is made of a network by them."""

import numpy as np
import pytest
from scipy import optimize

from varprop.data.source import Data
from varprop.data.statistics import Scaling
from varprop.estimators.validation import (
    CRPS_SLACK,
    Judged,
    SetAside,
    judged_constant,
    mixed,
    stack_weights,
    trust,
    trusted,
)
from varprop.learning.likelihoods import GaussianLikelihood
from varprop.predictive import Predictive
from varprop.predictive.simple import constant_gaussian


def table(n, seed=0, copies=1, weight=None):
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(n, 2)), rng.normal(size=n)
    return Data(np.repeat(X, copies, 0), np.repeat(y, copies), weight)


def objective(log_density, weights, rows=0.1):
    """What is maximized: the mean log density, and the broadest model's share of a row."""
    mixture = np.log(weights @ np.exp(log_density))
    return mixture.sum() + rows * np.log(weights[-1])


class TestWeights:
    def test_are_the_best_there_are(self):
        """Against SciPy's optimizer over the simplex, which shares no step with ours."""
        rng = np.random.default_rng(0)
        density = rng.normal(size=(3, 80)) + np.array([[0.3], [0.0], [-0.5]])

        def loss(free):
            weights = np.exp(np.append(free, 0.0))
            return -objective(density, weights / weights.sum())

        free = optimize.minimize(loss, np.zeros(2), method="Nelder-Mead", options={"xatol": 1e-8})
        best = np.exp(np.append(free.x, 0.0))
        np.testing.assert_allclose(stack_weights(density), best / best.sum(), atol=1e-4)

    def test_of_a_part_stand_for_all(self):
        """The broadest keeps a tenth of one of all rows, not of one of those set aside."""
        sure = np.stack([np.zeros(20), np.full(20, -50.0)])
        assert stack_weights(sure)[1] == pytest.approx(0.1 / 20.1)
        assert stack_weights(sure, n_rows=100)[1] == pytest.approx(0.1 / 100.1)

    def test_take_rows_by_their_weight(self):
        rng = np.random.default_rng(1)
        density, copies = rng.normal(size=(2, 30)), rng.integers(1, 5, 30)
        repeated = stack_weights(np.repeat(density, copies, axis=1), n_rows=30)
        np.testing.assert_allclose(stack_weights(density, 7.0 * copies), repeated, atol=1e-7)

    def test_of_what_has_no_density_are_nothing(self):
        density = np.stack([np.full(9, np.nan), np.full(9, np.inf), np.full(9, -1.0)])
        np.testing.assert_allclose(stack_weights(density), [0, 0, 1], atol=1e-9)

    def test_a_catastrophe_costs_no_more_than_its_share(self):
        """One row in ten is given no density at all: a tenth of the weight is the broad one's."""
        sure = np.full(100, 3.0)
        sure[:10] = -1e9
        weights = stack_weights(np.stack([sure, np.full(100, -1.0)]))
        assert weights[1] == pytest.approx(0.1, abs=0.02)


class TestFolds:
    def test_set_every_row_aside_once(self):
        data = table(53)
        aside = SetAside.of(data, 0, every_row=True)
        assert len(aside.folds) == 5
        held = np.concatenate([fold.held.y for fold in aside.folds])
        np.testing.assert_array_equal(np.sort(held, axis=0), np.sort(data.y, axis=0))
        for fold in aside.folds:
            assert len(fold.rows) + len(fold.held.y) == 53
            assert not np.isin(fold.held.y, data.y[fold.rows]).any()

    def test_keep_copies_together(self):
        aside = SetAside.of(table(40, copies=6), 0, every_row=True)
        assert aside.n_different == 40
        for fold in aside.folds:
            assert not np.isin(fold.held.y, aside.source.y[fold.rows]).any()
            assert len(fold.held.y) == 6 * len(np.unique(fold.held.y))

    def test_of_identical_rows_are_none(self):
        assert SetAside.of(table(1, copies=8), 0, every_row=True).folds == ()

    def test_of_a_check_are_one(self):
        (fold,) = SetAside.of(table(50), 0, every_row=False).folds
        assert len(fold.held.y) == 10


def judged(aside, mean_of, std):
    """Gaussians around a function of the targets themselves."""
    found = []
    for fold in aside.folds:
        mean = mean_of(fold.held.y[:, 0])
        found.append(Predictive.gaussian(mean, np.zeros(len(mean)), std**2))
    return Judged(aside, tuple(found), GaussianLikelihood)


class TestTrust:
    data = table(200)
    aside = SetAside.of(data, 0, every_row=True)
    constant = constant_gaussian(Scaling.of(data), 1, n_seen=200, squeeze=True)

    def test_a_good_model_is_trusted(self):
        found = trust(judged(self.aside, lambda y: y + 0.01, 0.05), self.constant, 1)
        assert found == pytest.approx(1 - 0.1 / 200.1, abs=1e-3)

    def test_a_model_that_is_far_too_sure_is_not(self):
        found = trust(judged(self.aside, lambda y: y + 0.5, 1e-3), self.constant, 1)
        assert found < 1e-6

    def test_equal_targets_leave_nothing_to_judge_by(self):
        data = Data(self.data.x, np.full(200, 3.0))
        aside = SetAside.of(data, 0, every_row=True)
        found = judged(aside, lambda y: y, 1.0)
        assert trust(found, self.constant, 1) is None

    def test_a_spike_must_not_spoil_the_crps(self):
        """Nine of ten rows are met exactly, the tenth is missed by far, and rewarded by density."""

        def mean(y):
            return np.where(np.abs(y) > 1.6, y + 40.0, y)

        spike = judged(self.aside, mean, 1e-4)
        broad = judged_constant(self.aside, self.constant, GaussianLikelihood)
        by_density = stack_weights(np.stack([spike.log_density, broad.log_density]))
        assert mixed([spike, broad], by_density).crps()[0] > 1.5 * broad.crps()[0]
        weights = trusted([spike, broad])
        ratio = mixed([spike, broad], weights).crps()[0] / broad.crps()[0]
        assert 0 < weights[0] < by_density[0]
        assert ratio == pytest.approx(1 + CRPS_SLACK, abs=1e-6)

    def test_intervals_hold_enough_rows(self):
        """The mean is good, the spread stated is half: density alone would take it as it is."""
        noise = np.random.default_rng(5).normal(size=1000)

        def mean(y):
            return y + 0.15 * noise[: len(y)]

        sure = judged(self.aside, mean, 0.08)
        broad = judged_constant(self.aside, self.constant, GaussianLikelihood)
        by_density = stack_weights(np.stack([sure.log_density, broad.log_density]))

        def held(weights):
            found = mixed([sure, broad], weights)
            inside = []
            for fold, prediction in zip(self.aside.folds, found.predictions, strict=True):
                lower, upper = prediction.interval(0.9)
                y = fold.held.y[:, 0]
                inside.append((lower <= y) & (y <= upper))
            return np.concatenate(inside).mean()

        weights = trusted([sure, broad])
        assert held(by_density) < 0.75
        assert 0.8 <= held(weights) < 0.85
        assert by_density[0] - 0.3 < weights[0] < by_density[0]
        # Of a spread that is right nothing is taken away.
        right = trusted([judged(self.aside, mean, 0.15), broad])
        assert right[0] > 0.999

    def test_a_fold_without_a_prediction_counts_as_a_failure(self):
        good = judged(self.aside, lambda y: y, 0.05)
        partial = Judged(self.aside, (None, *good.predictions[1:]), GaussianLikelihood)
        assert np.isneginf(partial.log_density[: len(self.aside.folds[0].held.y)]).all()
        assert np.isinf(partial.crps()).all()
        found = trust(partial, self.constant, 1)
        assert 0.5 < found < 0.85
