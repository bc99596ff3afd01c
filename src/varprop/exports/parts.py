"""What a plan mixes, as the exports write it down: one list of parts for all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from varprop.plans.budget import INPUTS, variance_budget
from varprop.plans.ends import Component, Probabilities
from varprop.plans.plan import Networks, Plan
from varprop.plans.steps import Network
from varprop.predictive.simple import LinearModel, constant_var

# Of a share: less changes no digit of any result.
_LEAST = 1e-30


class Part(NamedTuple):
    """One network, or one of the simple models.

    Attributes
    ----------
    name
        Of the part of the plan that it belongs to.
    share
        Of the prediction; those of all parts sum to 1.
    components
        What it predicts, with weights that sum to 1.
    made
        What predicts: a network, a linear model, or None for the constant one.
    """

    name: str
    share: float
    components: Sequence[Component | Probabilities]
    made: Network | LinearModel | None

    def sources(self, x: Any, x_var: Any = None) -> dict[str, Any]:
        """Return where the variance of the targets without noise comes from, (rows, targets)."""
        if isinstance(self.made, LinearModel):
            own = _linear(self.made, x, None).var
            from_inputs = {} if x_var is None else {INPUTS: x_var @ _square(self.made).T}
            return {"linear coefficients": own, **from_inputs}
        if self.made is None:
            return {}
        # As Python's budgets have it: to first order, as shares of what is predicted.
        first = self.components[0]
        assert isinstance(first, Component)  # classes have no variance
        var = first.var
        found = variance_budget(self.made.steps, x, x_var)
        d = var.shape[1]
        found = {name: part[:, :d] for name, part in found.items()}
        whole = sum(found.values())
        return {n: part / np.where(whole > 0, whole, 1.0) * var for n, part in found.items()}


def parts_of(plan: Plan, x: Any, x_var: Any = None) -> list[Part]:
    """Return all parts whose share counts.

    Parameters
    ----------
    plan
        Of a fitted model.
    x, x_var
        Standardized inputs and the variances of their errors, (rows, inputs); tensors.
    """
    found = []
    for name, weight in plan.weights_.items():
        part = plan.parts[name]
        if weight < _LEAST:
            continue
        if isinstance(part, Networks):
            for network in part.members:
                share = weight * network.share
                found.append(Part(name, share, plan.components(network, x, x_var), network))
        elif isinstance(part, LinearModel):
            found.append(Part(name, weight, [_linear(part, x, x_var)], part))
        else:
            found.append(Part(name, weight, [_constant(plan, x)], None))
    return found


def _linear(part: LinearModel, x: Any, x_var: Any) -> Component:
    apart, var = x - part.center, 0.0
    for cov, target in zip(part.cov, np.eye(len(part.coef)), strict=True):
        var = var + np.sum((apart @ cov) * apart, axis=-1)[:, None] * target
    if x_var is not None:
        var = var + x_var @ _square(part).T
    return Component(1.0, x @ part.coef.T + part.intercept, var, None, part.noise_var)


def _square(part: LinearModel) -> np.ndarray:
    """Return the mean square of the coefficients, (targets, inputs)."""
    return np.square(part.coef) + np.diagonal(part.cov, axis1=1, axis2=2)


def _constant(plan: Plan, x: Any) -> Component | Probabilities:
    """Return what knows nothing of a row, with an axis for the rows all the same."""
    if len(plan.classes_):
        same = plan.constant_numbers_
        surprise = -np.sum(same * np.log(np.where(same > 0, same, 1.0)))
        none = x @ np.zeros((plan.n_features_in_, len(same)))
        return Probabilities(1.0, none + same, np.sum(none, axis=-1)[..., None] + surprise)
    none = x @ np.zeros((plan.n_features_in_, plan.n_outputs_))
    return Component(1.0, none, none, None, np.full(plan.n_outputs_, constant_var(plan.n_seen_)))
