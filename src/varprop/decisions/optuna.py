"""A sampler for Optuna that asks a network where the expected improvement is largest.

In the extra ``varprop[optuna]``.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.samplers import BaseSampler, RandomSampler
from optuna.search_space import IntersectionSearchSpace
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState
from sklearn.base import clone

from varprop.decisions.acquisition import log_expected_improvement, without_noise
from varprop.estimators.regressor import FAWNRegressor
from varprop.training.recipe import Recipe, StopRule

# Enough for the few rows of a study, and the same number of steps for any of them.
_RECIPE = Recipe(kl_warmup=1_000, cooldown=1_000, max_steps=4_000, stop=StopRule(tol=0.0))
# Of the candidates, those that lie around the best trial, and how far in units of the ranges.
_NEAR, _REACH = 0.5, (0.2, 0.05, 0.0125)


class FAWNSampler(BaseSampler):
    """Expected improvement of a `FAWNRegressor`, over candidates drawn at random.

    The first trials are random. From then on the network is trained on all complete trials before
    every new one (a tenth of a second, and some seconds where it has to be compiled), and the best
    of many candidates is tried: half of them from all of the space, half around the best trial.
    Numbers, on a logarithmic scale where the study says so, and categories. Trials that are pruned,
    fail or run at the time are not looked at; studies of several objectives are refused, and
    constraints are not known to it.

    Parameters
    ----------
    estimator : FAWNRegressor, default=None
        What is cloned and fitted; ``FAWNRegressor(objective="vi", kl_weight=0.1,
        row_covariance="gauss-newton", validation=None)`` unless given. It must tell its doubt from
        noise.
    n_startup_trials : int, default=10
        Random trials before the first that a network is asked for.
    n_candidates : int, default=2000
        At which the expected improvement is looked at.
    seed : int, default=None
        Of all that is drawn.

    Examples
    --------
    >>> import optuna
    >>> from varprop.decisions.optuna import FAWNSampler
    >>> optuna.logging.set_verbosity(optuna.logging.WARNING)
    >>> study = optuna.create_study(sampler=FAWNSampler(n_startup_trials=3, seed=0))
    >>> study.optimize(lambda trial: trial.suggest_float("x", -1, 1) ** 2, n_trials=4)
    >>> len(study.trials)
    4
    """

    def __init__(
        self,
        estimator: FAWNRegressor | None = None,
        *,
        n_startup_trials: int = 10,
        n_candidates: int = 2000,
        seed: int | None = None,
    ):
        if n_startup_trials < 2 or n_candidates < 1:
            raise ValueError(
                "n_startup_trials must be at least 2 and n_candidates at least 1, but are "
                f"{n_startup_trials} and {n_candidates}."
            )
        # So few rows would prune a network to a constant, and its doubt away: the KL counts for
        # little while the weights are trained, and what they are unsure of is what all rows
        # together say (chosen on simulated functions, docs/uncertainty-at-work.md).
        self._estimator = estimator or FAWNRegressor(
            objective="vi",
            kl_weight=0.1,
            row_covariance="gauss-newton",
            validation=None,
            recipe=_RECIPE,
        )
        self._n_startup_trials, self._n_candidates = n_startup_trials, n_candidates
        self._rng = np.random.default_rng(seed)
        self._random = RandomSampler(seed)
        self._space = IntersectionSearchSpace()

    def reseed_rng(self) -> None:
        """Draw otherwise than before, as Optuna asks of every worker."""
        self._rng = np.random.default_rng()
        self._random.reseed_rng()

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """Return the parameters that all trials have, but those with one value."""
        space = self._space.calculate(study)
        return {name: of for name, of in space.items() if not of.single()}

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Return the candidate with the largest expected improvement."""
        if study._is_multi_objective():
            raise ValueError("FAWNSampler is for studies of one objective: take another sampler.")
        trials = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        trials = [one for one in trials if one.value is not None and math.isfinite(one.value)]
        values = np.array([one.value for one in trials])
        if not search_space or len(trials) < self._n_startup_trials or np.ptp(values) == 0:
            return {}  # the rest, at random
        spread = list(search_space.values())
        seen = np.array(
            [[_position(of, one.params[n]) for n, of in search_space.items()] for one in trials]
        )
        maximize = study.direction == StudyDirection.MAXIMIZE
        candidates = self._candidates(
            seen[values.argmax() if maximize else values.argmin()], spread
        )
        model = clone(self._estimator)
        model.set_params(random_state=int(self._rng.integers(2**31)))
        rows = _encoded(seen, spread)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # few rows, and few steps, are what is meant here
            model.fit(rows, values)
        # The best so far as the network sees it, since values may be noisy.
        ahead = model.predict(rows)
        worth = log_expected_improvement(
            without_noise(model.predict_dist(_encoded(candidates, spread))),
            float(ahead.max() if maximize else ahead.min()),
            maximize=maximize,
        )
        best = candidates[int(worth.argmax())]
        return {
            name: _value(of, at) for (name, of), at in zip(search_space.items(), best, strict=True)
        }

    def sample_independent(
        self,
        study: Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """Return a random value."""
        return self._random.sample_independent(study, trial, param_name, param_distribution)

    def _candidates(self, best: np.ndarray, spread: Sequence[BaseDistribution]) -> np.ndarray:
        """Return positions to look at, (candidates, parameters), as values of the parameters."""
        n, d = self._n_candidates, len(spread)
        found = self._rng.uniform(size=(n, d))
        near = self._rng.uniform(size=n) < _NEAR
        around = best + self._rng.choice(_REACH, size=(n, 1)) * self._rng.standard_normal((n, d))
        # Of a category the same one, mostly; of a number somewhere near.
        is_category = np.array([isinstance(of, CategoricalDistribution) for of in spread])
        stays = self._rng.uniform(size=(n, d)) < 1 - 1 / d
        around = np.where(is_category, np.where(stays, best, found), np.clip(around, 0, 1))
        found = np.where(near[:, None], around, found)
        # What steps and whole numbers make of it is what the network is asked.
        return np.array(
            [[_position(of, _value(of, at)) for of, at in zip(spread, row, strict=True)]
             for row in found]
        )  # fmt: skip


def _position(of: BaseDistribution, value: Any) -> float:
    """Return a parameter's place between 0 and 1; of a category the middle of its share."""
    if isinstance(of, CategoricalDistribution):
        return (of.choices.index(value) + 0.5) / len(of.choices)
    assert isinstance(of, FloatDistribution | IntDistribution)
    low, high, at = (math.log(x) if of.log else float(x) for x in (of.low, of.high, value))
    return (at - low) / (high - low)


def _value(of: BaseDistribution, position: float) -> Any:
    """Return the value of a parameter at a place between 0 and 1."""
    if isinstance(of, CategoricalDistribution):
        return of.choices[min(int(position * len(of.choices)), len(of.choices) - 1)]
    assert isinstance(of, FloatDistribution | IntDistribution)
    low, high = (math.log(x) if of.log else float(x) for x in (of.low, of.high))
    value = low + position * (high - low)
    value = math.exp(value) if of.log else value
    if of.step is not None:
        value = of.low + of.step * round((value - of.low) / of.step)
    value = min(max(value, of.low), of.high)
    return int(value) if isinstance(of, IntDistribution) else float(value)


def _encoded(positions: np.ndarray, spread: Sequence[BaseDistribution]) -> np.ndarray:
    """Return positions as inputs of a network: one for every category."""
    columns = []
    for at, of in zip(positions.T, spread, strict=True):
        if isinstance(of, CategoricalDistribution):
            count = len(of.choices)
            columns.append(np.eye(count)[np.minimum((at * count).astype(int), count - 1)])
        else:
            columns.append(at[:, None])
    return np.hstack(columns)
