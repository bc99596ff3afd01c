"""The plan of a fitted estimator in memory; a user's own functions are traced and written down."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from varprop.estimators.base import AbstractEstimator
from varprop.estimators.members import to_jax
from varprop.estimators.network import AbstractNetwork
from varprop.estimators.stacking import AbstractStack
from varprop.files.plan import Moments, Node, network_of
from varprop.learning.likelihoods import AbstractClasses
from varprop.learning.model import Model
from varprop.moments.gaussian import Gaussian
from varprop.nn.contract import AbstractElementwise
from varprop.nn.integrators import AbstractNodes
from varprop.nn.layers import Dense, JointDense
from varprop.nn.registry import registered
from varprop.nn.variables import AbstractVariable
from varprop.nn.weights import AbstractWeights
from varprop.plans.plan import Networks, Plan
from varprop.plans.rules import OPERATIONS
from varprop.plans.steps import Network, Operand, PlanError, Program, Quadrature, Traced
from varprop.predictive.simple import CONSTANT, LINEAR


def plan_of(model: AbstractEstimator) -> Plan:
    """Return the plan of a fitted estimator.

    Raises
    ------
    PlanError
        Naming the part of the model that has no plan.

    Examples
    --------
    >>> from varprop import StackedRegressor
    >>> X = np.linspace(0, 1, 30)[:, None]
    >>> model = StackedRegressor([]).fit(X, X[:, 0])
    >>> found, again = model.predict_dist(X), plan_of(model).predict_dist(X)
    >>> bool(np.allclose(found.mean, again.mean) and np.allclose(found.std, again.std))
    True
    """
    parts: dict[str, Any] = {CONSTANT: None}
    if isinstance(model, AbstractNetwork):
        trust = 1.0 if model.trust_ is None else model.trust_
        parts["network"] = _networks(model)
        weights = {"network": trust, CONSTANT: 1 - trust}
    else:
        assert isinstance(model, AbstractStack)
        parts |= {name: _networks(network) for name, network in model.estimators_}
        weights = model.weights_
        if model.linear_ is not None:
            parts[LINEAR] = model.linear_
    names, targets = getattr(model, "feature_names_in_", None), model.target_names_
    return Plan(
        model.scaling_,
        parts,
        weights,
        model._y_ndim == 1,
        n_seen_=model.n_seen_,
        domain_=model.domain_,
        feature_names_in_=None if names is None else tuple(map(str, names)),
        target_names_=None if targets is None else tuple(targets),
        classes_=getattr(model, "classes_", np.empty(0)),
        constant_numbers_=model.constant_numbers_,
    )


def _networks(model: AbstractNetwork) -> Networks:
    pairs = zip(model.members_, model.shares_, strict=True)
    n = model.n_features_in_
    found = (network_plan(member, n, share=float(share)) for member, share in pairs)
    return Networks(tuple(found), model._identifies_noise)


def network_plan(model: Model, n_inputs: int, *, share: float = 1.0) -> Network:
    """Return the plan of one model, in the units that it takes, and its share among others."""
    with jax.enable_x64(True):  # functions are traced in the precision of plans
        node, end = _node(to_jax(model, np.float64)), model.likelihood
        classes = end.n_classes if isinstance(end, AbstractClasses) else 0
        return network_of(node, n_inputs, end.n_targets, share, n_classes=classes)


def _node(thing: Any) -> Any:
    """Return an object as a file describes it; of a user's own class what a plan needs of it."""
    if isinstance(thing, tuple | list):
        return [_node(part) for part in thing]
    if thing is None or isinstance(thing, bool | int | float | str):
        return thing
    kind: Any = type(thing)
    name = kind.__name__
    if isinstance(thing, AbstractWeights | AbstractVariable):
        return _moments(thing.moments())
    if isinstance(thing, Dense | JointDense):  # noise on weights may be a user's own
        weight, bias = thing.noisy_weights()
        parts = {"weight": _moments(weight), "bias": None if bias is None else _moments(bias)}
        return Node(name, {**parts, "weight_noise": None, "bias_noise": None})
    if kind is registered(name) and kind.__module__.startswith("varprop."):
        return Node(
            name, {f.name: _node(getattr(thing, f.name)) for f in dataclasses.fields(thing)}
        )
    if isinstance(thing, AbstractNodes):
        z, w = (np.asarray(part, np.float64) for part in thing.nodes())
        return Quadrature(_program(lambda x: jax.jvp(thing, (x,), (jnp.ones_like(x),)), 1), z, w)
    if isinstance(thing, AbstractElementwise):
        return _traced(thing)
    if isinstance(thing, jax.Array | np.ndarray):
        return np.asarray(thing, np.float64)
    raise PlanError(
        f"{name} has no plan, and so it can be neither exported nor run without JAX: take a layer "
        "or a likelihood of the library."
    )


def _moments(x: Gaussian) -> Moments:
    return Moments(np.asarray(x.mean), None if x.var is None else np.asarray(x.var))


# ---- users' own functions -----------------------------------------------------------------------


def _traced(layer: AbstractElementwise) -> Traced:
    def known(x: jax.Array) -> tuple[jax.Array, ...]:
        out: Any = layer.moments(Gaussian(x))
        return (out.mean,) if out.var is None else (out.mean, out.var)

    def uncertain(mean: jax.Array, var: jax.Array) -> tuple[jax.Array, ...]:
        out, *derivatives = layer.partials(Gaussian(mean, var))
        return out.mean, out.variances(), *derivatives

    return Traced(_program(known, 1), _program(uncertain, 2))


def _program(function: Any, n_given: int) -> Program:
    """Trace a function of numbers as JAX traces it for its own compiler."""
    traced = jax.make_jaxpr(function)(*[jax.ShapeDtypeStruct((1,), np.float64)] * n_given)
    found: list[tuple[str, tuple[Operand, ...]]] = []
    results = _written(found, traced, list(range(n_given)), n_given)
    return Program(tuple(found), tuple(results))


#: Operations that are nothing but other ones; a loop is not.
_CALLS = {"jit", "pjit", "closed_call", "custom_jvp_call", "custom_vjp_call"}
#: Those that do nothing to a single number.
_NOTHING = {"broadcast_in_dim", "copy", "optimization_barrier", "reduce_sum", "reshape", "squeeze"}
_NOTHING |= {"stop_gradient", "transpose"}


def _written(found: list[Any], traced: Any, inputs: list[Operand], n_given: int) -> list[Operand]:
    """Write down the operations of a traced function; return its results."""
    jaxpr = traced.jaxpr
    constants = [float(np.asarray(value).item()) for value in traced.consts]
    known: dict[Any, Any] = dict(zip(jaxpr.constvars, constants, strict=True))
    known |= dict(zip(jaxpr.invars, inputs, strict=True))

    def add(name: str, *operands: Operand) -> int:
        found.append((name, operands))
        return n_given + len(found) - 1

    for eqn in jaxpr.eqns:
        taken = [float(a.val) if hasattr(a, "val") else known[a] for a in eqn.invars]
        name, params = eqn.primitive.name, eqn.params
        one = all(math.prod(v.aval.shape) == 1 for v in (*eqn.invars, *eqn.outvars))
        if name in _CALLS:
            inner = params.get("jaxpr", params.get("call_jaxpr"))
            results = _written(found, inner, taken, n_given)
        elif name in _NOTHING and one:
            results = taken
        elif name == "convert_element_type" and one:
            to_float = eqn.invars[0].aval.dtype == bool and isinstance(taken[0], int)
            results = [add("float", taken[0])] if to_float else taken
        elif name in OPERATIONS and one:
            results = [add(name, *taken)]
        elif name in _OTHERS and one:
            results = [_OTHERS[name](add, params, *taken)]
        else:
            raise PlanError(
                f"The network uses the operation {name!r}, which cannot be written down: take "
                "another activation."
            )
        known |= dict(zip(eqn.outvars, results, strict=True))
    return [float(a.val) if hasattr(a, "val") else known[a] for a in jaxpr.outvars]


#: Operations by other ones.
_OTHERS: dict[str, Any] = {
    "add_any": lambda add, p, a, b: add("add", a, b),
    "clamp": lambda add, p, low, x, high: add("min", add("max", x, low), high),
    "erfc": lambda add, p, x: add("sub", 1.0, add("erf", x)),
    "integer_pow": lambda add, p, x: (
        add("square", x) if p["y"] == 2 else add("pow", x, float(p["y"]))
    ),
    "rsqrt": lambda add, p, x: add("div", 1.0, add("sqrt", x)),
    "select_n": lambda add, p, which, no, yes: add("select", which, yes, no),
}
