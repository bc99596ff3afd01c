"""Moments of a network's outputs, step by step, in NumPy: the three ways of `varprop.nn`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from varprop.moments.constants import INV_SQRT_2PI, hermite_nodes
from varprop.plans.rules import Partials, Rule, rule_of, run
from varprop.plans.steps import Activation, Dense, Elementwise, Noise, PlanError, Step, Traced

# Of the series for second order, as in `varprop.moments.pairs`.
_N_TERMS, _N_NODES = 16, 64


class Outputs(NamedTuple):
    """Mean and variance, (rows, m), and covariance, (rows, m, m), where it is wanted."""

    mean: Any
    var: Any
    cov: Any


def propagated(steps: Sequence[Step], propagation: str, x: Any, x_var: Any = None) -> Outputs:
    """Push rows through steps.

    Parameters
    ----------
    steps
        In order; only the last may be joint.
    propagation
        "first-order", "second-order" or "independent".
    x, x_var
        Inputs and the variance of their errors, shape (rows, n); known exactly unless given.

    Examples
    --------
    >>> step = Dense(np.ones((1, 2)), np.full((1, 2), 0.25), None, None, joint=False)
    >>> found = propagated([step], "first-order", np.array([[3.0, 4.0]]))
    >>> found.mean.tolist(), found.var.tolist()
    ([[7.0]], [[6.25]])
    """
    if propagation == "second-order":
        return _second_order(steps, x, x_var)
    mean, var, n_mixed = x, x_var, 0
    for step in steps[:-1]:
        n_mixed += isinstance(step, Dense) and var is not None
        mean, var = _moments(step, mean, var)
    last = steps[-1]
    n_mixed += isinstance(last, Dense) and var is not None
    if n_mixed > 1 and propagation == "first-order":  # the first mixed independent units
        return _first_order(steps, x, x_var)
    if isinstance(last, Dense) and last.joint and var is not None:
        out, own = _own(last, mean, var)
        cov = _spread(own) + (last.weight * var[:, None]) @ last.weight.T
        return Outputs(out, own + var @ np.square(last.weight.T), cov)
    mean, var = _moments(last, mean, var)
    var = np.zeros_like(mean) if var is None else var
    return Outputs(mean, var, _spread(var) if isinstance(last, Dense) and last.joint else None)


def _moments(step: Step, mean: Any, var: Any) -> tuple[Any, Any]:
    """Mean and variance after a step, entries taken as independent; None for no variance."""
    if isinstance(step, Dense):
        out, own = _own(step, mean, var)
        if var is not None:
            return out, own + var @ np.square(step.weight.T)
        random = step.weight_var is not None or step.bias_var is not None
        return out, own if random else None
    if var is not None:
        return _partials(step, mean, var)[:2]
    if isinstance(step, Noise):
        return _partials(step, mean, np.zeros_like(mean))[:2]
    if isinstance(step, Traced):
        found = run(step.known, mean)
        return found[0], found[1] if len(found) > 1 else None
    return rule_of(step).plain(mean), None


def _own(step: Dense, mean: Any, var: Any) -> tuple[Any, Any]:
    """Mean of the outputs, and the part of their variance that is independent between them."""
    out = mean @ step.weight.T
    own = np.zeros_like(out)
    if step.weight_var is not None:
        square = np.square(mean) if var is None else np.square(mean) + var
        own = square @ step.weight_var.T
    if step.bias is not None:
        out = out + step.bias
        own = own if step.bias_var is None else own + step.bias_var
    return out, own


def _partials(step: Step, mean: Any, var: Any) -> Partials:
    """Moments after a step that takes every entry by itself, and their derivatives."""
    if isinstance(step, Noise):
        spread = step.factor_var * np.square(mean) + step.shift_var
        none = np.zeros_like(mean)
        slope, gain = none + step.factor, none + np.square(step.factor) + step.factor_var
        out_mean, out_var = mean * step.factor + step.shift, spread + gain * var
        return Partials(out_mean, out_var, slope, none, 2 * step.factor_var * mean, gain)
    assert not isinstance(step, Dense)
    return rule_of(step).partials(mean, var)


def _spread(var: Any) -> Any:
    """Variances (rows, n) as covariances (rows, n, n)."""
    return var[:, None] * np.eye(var.shape[-1])


# ---- first order --------------------------------------------------------------------------------


def _first_order(steps: Sequence[Step], x: Any, x_var: Any) -> Outputs:
    """Follow every independent source of variance to the outputs by the adjoint of the moments."""
    mean, var = x, x_var
    mixed: Any = None  # what the first dense step with random inputs makes its outputs of
    seen: list[tuple[Step, Any, Any]] = []  # steps from there on, with their inputs or derivatives
    for step in steps:
        if isinstance(step, Dense) and var is not None:
            mixed = var if mixed is None else mixed
            before = mean
            mean, own = _own(step, before, var)
            var = own + var @ np.square(step.weight.T)
            seen.append((step, own, before))
        elif mixed is None:
            mean, var = _moments(step, mean, var)
        else:
            found, incoming = _partials(step, mean, var), var
            mean, var = found.mean, found.var
            own = np.maximum(var - np.square(found.slope) * incoming, 0)
            seen.append((step, own, found))
    last = steps[-1]
    joint = isinstance(last, Dense) and last.joint
    var = seen[-1][1]
    back: tuple[Any, Any] = (None, None)
    cov = _spread(var) if joint else None
    others = [own for _, own, _ in seen[:-1]]
    for (step, _, kept), source in zip(reversed(seen), [*reversed(others), mixed], strict=True):
        back = _pulled(step, kept, *back)
        by_mean = back[0]
        var = var + np.sum(np.square(by_mean) * source[:, None], axis=-1)
        if joint:
            cov = cov + (by_mean * source[:, None]) @ np.swapaxes(by_mean, -1, -2)
    return Outputs(mean, var, cov)


def _pulled(step: Step, kept: Any, by_mean: Any, by_var: Any) -> tuple[Any, Any]:
    """Take derivatives of the outputs' means back through a step: (rows or 1, outputs, units).

    They are by means, None for the identity, and by variances, None for none; `kept` are the means
    that came into a dense step, and the derivatives of any other.
    """
    if isinstance(step, Dense):
        if by_mean is None:
            return step.weight[None], None
        found = by_mean @ step.weight
        if by_var is None:
            return found, None
        square = np.square(step.weight)
        if step.weight_var is None:
            return found, by_var @ square
        found = found + 2 * kept[:, None] * (by_var @ step.weight_var)
        return found, by_var @ (square + step.weight_var)
    by_mean = np.eye(kept.mean.shape[-1]) if by_mean is None else by_mean
    found, spread = by_mean * kept.slope[:, None], by_mean * kept.bend[:, None]
    if by_var is not None:
        found, spread = found + by_var * kept.tilt[:, None], spread + by_var * kept.gain[:, None]
    return found, spread


# ---- second order -------------------------------------------------------------------------------


def _second_order(steps: Sequence[Step], x: Any, x_var: Any) -> Outputs:
    """Carry the covariance of all units of a layer, by the series of `varprop.moments.pairs`."""
    mean, var, cov = x, x_var, None
    for step in steps:
        if var is not None and cov is None:
            cov = _spread(var)
        if var is None:
            mean, var = _moments(step, mean, var)
        elif isinstance(step, Dense):
            mean, own = _own(step, mean, var)
            cov = step.weight @ cov @ step.weight.T + _spread(own)
            var = np.maximum(np.sum(cov * np.eye(len(step.weight)), axis=-1), 0)
        else:
            (mean, var, slope, *_), before = _partials(step, mean, var), (mean, var)
            random = isinstance(step, Traced) and len(step.known.results) > 1
            if isinstance(step, Elementwise) and not random:
                cov = _series(step, *before, slope, var, cov)
            else:  # noise is independent, and only its means go together
                cov = slope[:, None] * slope[..., None] * cov
            # The diagonal is known exactly.
            rest = 1 - np.eye(var.shape[-1])
            cov = rest * (0.5 * (cov + np.swapaxes(cov, -1, -2))) + _spread(var)
    last = steps[-1]
    var = np.zeros_like(mean) if var is None else var
    if not (isinstance(last, Dense) and last.joint):
        return Outputs(mean, var, None)
    return Outputs(mean, var, _spread(var) if cov is None else cov)


def _series(step: Elementwise, mean: Any, var: Any, slope: Any, out_var: Any, cov: Any) -> Any:
    """Covariance of all pairs of units after an activation, given that before it."""
    std = np.sqrt(np.where(var > 0, var, 1.0))
    rho = np.where(var > 0, 1.0, 0.0) / std
    rho = np.maximum(np.minimum(cov * rho[:, None] * rho[..., None], 1), -1)
    spread = np.sqrt(var)
    name, numbers = (step.name, step.numbers) if isinstance(step, Activation) else ("", {})
    if name in ("ReLU", "LeakyReLU", "Heaviside"):
        m = np.maximum(np.minimum(np.where(var > 0, mean / std, 0.0), 1e4), -1e4)
        bells = [np.exp(-0.5 * np.square(m)) * INV_SQRT_2PI]
        before = np.zeros_like(m)
        for k in range(_N_TERMS - 1):
            after = (m * bells[-1] + math.sqrt(k) * before) * (-1 / math.sqrt(k + 1))
            before = bells[-1]
            bells.append(after)
        if name == "Heaviside":
            terms = [bell / math.sqrt(k) for k, bell in enumerate(bells, 1)]
        else:
            size = 1.0 - (numbers["negative_slope"] if name == "LeakyReLU" else 0.0)
            others = [bell / math.sqrt(k * (k - 1)) for k, bell in enumerate(bells[:-1], 2)]
            terms = [spread * slope, *(size * spread * other for other in others)]
    else:
        terms = _by_quadrature(rule_of(step), mean, spread, spread * slope, out_var)
    left = np.sqrt(np.maximum(out_var - sum(np.square(term) for term in terms), 0))
    total = left[:, None] * left[..., None]
    for term in reversed(terms):
        total = total * rho + term[:, None] * term[..., None]
    return total * rho


def _by_quadrature(rule: Rule, mean: Any, spread: Any, first: Any, out_var: Any) -> list[Any]:
    """Coefficients in Hermite polynomials, the first from the line, by values of the function."""
    z, w = hermite_nodes(_N_NODES)
    factorials = [math.factorial(k) for k in range(2, _N_TERMS + 1)]
    polynomials = np.polynomial.hermite_e.hermevander(z, _N_TERMS)[:, 2:]
    by = w[:, None] * polynomials / np.sqrt(np.array(factorials, np.float64))
    values = rule.plain(mean[..., None] + spread[..., None] * z) - rule.plain(mean)[..., None]
    others = [values @ column for column in by.T]
    # Their squares sum to at most the variance; where both are approximate they may not.
    found, left = sum(np.square(term) for term in others), out_var - np.square(first)
    share = left / np.where(found > 0, found, 1.0)
    shrink = np.sqrt(np.maximum(np.minimum(share, 1), 0))
    return [first, *(shrink * term for term in others)]


def check_steps(steps: Sequence[Step], n_inputs: int) -> int:
    """Return the number of outputs; PlanError if the steps do not fit one another."""
    n = n_inputs
    for position, step in enumerate(steps):
        if isinstance(step, Dense):
            size = step.weight.shape
            sizes = {(np.shape(v), size) for v in (step.weight_var,) if v is not None}
            sizes |= {(np.shape(v), size[:1]) for v in (step.bias, step.bias_var) if v is not None}
            if len(size) != 2 or size[1] != n or 0 in size or any(a != b for a, b in sizes):
                raise ValueError(f"the sizes of step {position} do not fit.")
            if step.joint and position < len(steps) - 1:
                raise PlanError("only the last step may be joint.")
            n = size[0]
        elif isinstance(step, Noise):
            for name, value in vars(step).items():
                if value.shape not in ((), (1,), (n,)):
                    raise ValueError(f"the {name} of step {position} does not fit.")
        elif isinstance(step, Activation):
            rule_of(step)
    return n
