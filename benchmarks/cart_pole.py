"""Swing a pole up in few trials: planning by propagated moments, or by an ensemble and particles.

    python benchmarks/cart_pole.py --store cart_pole.jsonl
    python benchmarks/cart_pole.py --store cart_pole.jsonl --seconds    # of planning, on one core

A pole hangs from a cart that is pushed by up to 10 N, ten times a second; it stands for 0.5 kg and
0.6 m, the cart for 0.5 kg, with friction (Deisenroth & Rasmussen, 2011). Positions and speeds are
measured with an error of 0.01. The first trial of 5 s pushes at random; then a network of the
change of the state is trained on all trials so far, and the next trial plans by it: the
cross-entropy method, 5 rounds of 200 candidates, 15 steps ahead, of which the first push is made.
Solved is a trial in whose last second the pole stood within 0.3 rad of upright all the time.

All methods plan with the same candidates, horizon and cost, whose expectation counts: 1 + cos of
the angle (0 is hanging down), and small shares of the squares of the cart's position and the pole's
speed.

"moments": one network of ours. The state is a Gaussian; the expected sine and cosine of its angle,
with their variances, and the push, which is known, go into the network, whose slopes carry the
state's covariance on (`varprop.nn.propagation`). The expected cost is in closed form. "mean" is the
same with nothing uncertain. "ensemble": five plain networks of the same widths by maximum
likelihood, with 20 particles each, which stay with their network and draw its noise at every step.
"""

from __future__ import annotations

import functools
import os
import time
import warnings
from typing import Any, NamedTuple

import acting
import jax
import jax.numpy as jnp
import numpy as np

from varprop import FAWNRegressor, Gaussian, Recipe, StopRule, nn
from varprop.data import Data
from varprop.estimators.members import to_jax
from varprop.learning.likelihoods import GaussianLikelihood
from varprop.learning.model import Model
from varprop.learning.objectives import MaximumLikelihood
from varprop.learning.priors import FixedGaussian
from varprop.nn.propagation import traced
from varprop.nn.weights import PointWeights
from varprop.training import Lane, fit_many

METHODS = ["moments", "mean", "ensemble"]
STEPS, PUSH, ERROR, MOST = 50, 10.0, 0.01, 10
HORIZON, CANDIDATES, ROUNDS, ELITE = 15, 200, 5, 20
NETWORKS, PARTICLES, WIDTHS = 5, 20, (50,)
RECIPE = Recipe(kl_warmup=1_000, cooldown=1_000, max_steps=3_000, stop=StopRule(tol=0.0))
OURS: dict[str, Any] = {"objective": "vi", "kl_weight": 0.1, "prior": "ard"}


# ---- the cart and the pole ----------------------------------------------------------------------


def _speeds(state: Any, push: Any) -> Any:
    _, v, angle, turn = state
    m, big, length, friction, g = 0.5, 0.5, 0.6, 0.1, 9.82
    s, c, force = jnp.sin(angle), jnp.cos(angle), push - friction * v
    below = 4 * (big + m) - 3 * m * c**2
    faster = (2 * m * length * turn**2 * s + 3 * m * g * s * c + 4 * force) / below
    turning = -3 * m * length * turn**2 * s * c - 6 * (big + m) * g * s - 6 * force * c
    return jnp.stack([v, faster, turn, turning / (length * below)])


@jax.jit
def moved(state: Any, push: Any) -> Any:
    """Return the state (position, speed, angle, turning speed) a tenth of a second later."""
    h = 0.01

    def step(state: Any, _: None) -> Any:
        a = _speeds(state, push)
        b = _speeds(state + h / 2 * a, push)
        c = _speeds(state + h / 2 * b, push)
        d = _speeds(state + h * c, push)
        return state + h / 6 * (a + 2 * b + 2 * c + d), None

    return jax.lax.scan(step, state, None, 10)[0]


def inputs_of(states: np.ndarray, pushes: np.ndarray) -> np.ndarray:
    """Return what networks see: where the cart is changes nothing."""
    _, v, angle, turn = states.T
    return np.stack([v, np.sin(angle), np.cos(angle), turn, pushes], axis=1)


# ---- what is expected of pushes -----------------------------------------------------------------


class Rescaled(NamedTuple):
    """A network or several, and the units they were trained in."""

    networks: Any
    noise: Any
    x_shift: Any
    x_scale: Any
    y_shift: Any
    y_scale: Any


def cost(x: Any, x_var: Any, cosine: Any, turn: Any, turn_var: Any) -> Any:
    """Return the expected cost of states."""
    return 1 + cosine + 0.1 * (x**2 + x_var) + 0.003 * (turn**2 + turn_var)


def next_moments(model: Rescaled, mean: Any, cov: Any, push: Any) -> tuple[Any, Any]:
    """Return mean (4, n) and covariance (4, 4, n) of the state after known pushes (n,)."""
    shift, scale = model.x_shift[:, None], model.x_scale[:, None]
    y_shift, y_scale = model.y_shift[:, None], model.y_scale[:, None]
    var = jnp.stack([cov[one, one] for one in range(4)])
    angle, wide = mean[2], jnp.exp(-0.5 * var[2])
    sine, cosine, twice = jnp.sin(angle) * wide, jnp.cos(angle) * wide, jnp.cos(2 * angle)
    features = jnp.stack([mean[1], sine, cosine, mean[3], push])
    zero, square = jnp.zeros_like(push), wide**4
    spread = (0.5 * (1 - twice * square) - sine**2, 0.5 * (1 + twice * square) - cosine**2)
    spread = jnp.stack([var[1], *(jnp.maximum(one, 0) for one in spread), var[3], zero])
    x = Gaussian(((features - shift) / scale).T, (spread / scale**2).T)
    trace = traced(model.networks.layers, x)
    _, *adjoints, by_input = (at.mean for at in trace.adjoints())
    by_feature = by_input / scale[..., None]  # (5, 4, n)
    # What the state's covariance carries on goes by slopes (state, output, n).
    turned = cosine * by_feature[1] - sine * by_feature[2]
    steep = jnp.stack([jnp.zeros_like(turned), by_feature[0], turned, by_feature[3]])
    steep = steep * y_scale + jnp.eye(4)[..., None]
    cov = jnp.sum(cov[:, :, None] * steep[:, None], axis=0)  # (t, k, n)
    cov = jnp.sum(cov[:, :, None] * steep[:, None], axis=0)
    # What the network adds: weights, and sine and cosine beside their lines; for each output.
    last, *others = (part.own for part in reversed(trace.steps))
    beside = jnp.stack([spread[1] - cosine**2 * var[2], spread[2] - sine**2 * var[2]])
    new = last + model.noise[:, None]
    new = new + jnp.sum(jnp.maximum(beside, 0)[:, None] * by_feature[1:3] ** 2, axis=0)
    for own, slope in zip(others, adjoints, strict=True):
        squared = slope**2
        if squared.shape[-1] == 1:
            new = new + squared[..., 0].T @ own
        else:  # a product of matrices, which XLA runs faster than a sum
            each = (own[:, None] * squared).reshape(len(own), -1)
            new = new + (jnp.ones((1, len(own)), each.dtype) @ each).reshape(new.shape)
    cov = cov + jnp.eye(4)[..., None] * (y_scale**2 * new)
    return mean + y_shift + y_scale * trace.out.mean, cov


def by_moments(model: Rescaled, state: Any, pushes: Any, key: Any, *, sure: bool = False) -> Any:
    """Return the expected cost of candidates (n, horizon), the state being a Gaussian."""

    def step(carry: Any, push: Any) -> Any:
        mean, cov = next_moments(model, *carry, push)
        cov = jnp.zeros_like(cov) if sure else cov
        upright = jnp.cos(mean[2]) * jnp.exp(-0.5 * cov[2, 2])
        return (mean, cov), cost(mean[0], cov[0, 0], upright, mean[3], cov[3, 3])

    n = len(pushes)
    start = jnp.broadcast_to(state[:, None], (4, n))
    first = jnp.broadcast_to(0.0 if sure else ERROR**2 * jnp.eye(4)[..., None], (4, 4, n))
    return jnp.sum(jax.lax.scan(step, (start, first), pushes.T)[1], axis=0)


def by_particles(model: Rescaled, state: Any, pushes: Any, key: Any) -> Any:
    """Return the mean cost of candidates over particles, each of which stays with its network."""
    n, horizon = pushes.shape
    shift, scale = model.x_shift[:, None], model.x_scale[:, None]
    rows = PARTICLES * n

    def change(network: Any, x: Any) -> Any:
        *hidden, (weight, bias) = network
        for w, b in hidden:
            x = jnp.maximum(w @ x + b[:, None], 0)
        return weight @ x + bias[:, None]

    def step(states: Any, now: Any) -> Any:
        push, key = now
        push = jnp.tile(push, PARTICLES)
        drawn = jax.random.normal(key, (NETWORKS, 4, PARTICLES, 1))  # the same for all candidates
        drawn = jnp.broadcast_to(drawn, (NETWORKS, 4, PARTICLES, n)).reshape(NETWORKS, 4, rows)
        found, worth = [], 0.0
        for one, network in enumerate(model.networks):
            _, v, angle, turn = states[one]
            features = jnp.stack([v, jnp.sin(angle), jnp.cos(angle), turn, push])
            out = change(network, (features - shift) / scale)
            out = out + jnp.sqrt(model.noise[one])[:, None] * drawn[one]
            new = states[one] + model.y_shift[:, None] + model.y_scale[:, None] * out
            found.append(new)
            worth = worth + cost(new[0], 0.0, jnp.cos(new[2]), new[3], 0.0)
        return jnp.stack(found), worth.reshape(PARTICLES, n).sum(axis=0) / (NETWORKS * PARTICLES)

    begin, more = jax.random.split(key)
    error = ERROR * jax.random.normal(begin, (NETWORKS, 4, PARTICLES, 1))
    start = jnp.broadcast_to(state[:, None, None] + error, (NETWORKS, 4, PARTICLES, n))
    keys = jax.random.split(more, horizon)
    costs = jax.lax.scan(step, start.reshape(NETWORKS, 4, rows), (pushes.T, keys))[1]
    return jnp.sum(costs, axis=0)


EXPECTED = {
    "moments": by_moments,
    "mean": functools.partial(by_moments, sure=True),
    "ensemble": by_particles,
}


@functools.partial(jax.jit, static_argnums=0)
def planned(method: str, model: Any, state: Any, before: Any, key: Any) -> Any:
    """Return pushes for the next steps: the cross-entropy method, from those planned before."""

    def round_(carry: Any, key: Any) -> Any:
        middle, wide = carry
        drawing, expecting = jax.random.split(key)
        drawn = middle + wide * jax.random.normal(drawing, (CANDIDATES, HORIZON))
        drawn = jnp.clip(drawn, -PUSH, PUSH).at[0].set(middle)
        costs = EXPECTED[method](model, state, drawn, expecting)
        costs = jnp.where(jnp.isfinite(costs), costs, jnp.inf)
        best = drawn[jax.lax.top_k(-costs, ELITE)[1]]
        return (best.mean(axis=0), best.std(axis=0) + 0.1), None

    start = (before, jnp.full(HORIZON, 0.7 * PUSH))
    return jax.lax.scan(round_, start, jax.random.split(key, ROUNDS))[0][0]


# ---- what is learned ----------------------------------------------------------------------------


def learned(method: str, X: np.ndarray, y: np.ndarray, seed: int) -> Rescaled:
    """Return networks of the change of the state."""
    if method == "ensemble":
        lanes = []
        for key in jax.random.split(jax.random.key(seed), NETWORKS):
            start, run = jax.random.split(key)
            net = nn.mlp(X.shape[1], 4, key=start, hidden_layer_sizes=WIDTHS, weights=_he)
            floored = GaussianLikelihood(np.full(4, 0.5, np.float32), floor=1e-3)
            model = Model(net, floored, FixedGaussian())
            recipe = RECIPE.replace(kl_warmup=0)
            lanes.append(Lane(model=model, key=run, recipe=recipe))
        fits = fit_many(lanes, Data(X, y), MaximumLikelihood(), n_threads=1)
        networks = [
            [(layer.weight.value, layer.bias.value) for layer in fit.model.network.layers[::2]]
            for fit in fits
        ]
        noise = jnp.stack([fit.model.likelihood.noise_var for fit in fits])
        scaling = fits[0].scaling
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # so few steps are meant
            found = FAWNRegressor(
                WIDTHS, validation=None, recipe=RECIPE, random_state=seed, n_jobs=1, **OURS
            ).fit(X, y)
        member = to_jax(found.members_[0], jnp.float32)
        networks, noise, scaling = member.network, member.likelihood.noise_var, found.scaling_
    units = (scaling.x_shift, scaling.x_scale, scaling.y_shift, scaling.y_scale)
    return Rescaled(networks, noise, *(jnp.asarray(one, jnp.float32) for one in units))


def _he(key: Any, shape: tuple[int, ...]) -> PointWeights:
    if len(shape) == 1:
        return PointWeights(jnp.zeros(shape))
    return PointWeights.init(key, shape, scale=(2 / shape[1]) ** 0.5)


def trial(method: str, model: Any, key: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return what was measured (steps + 1, 4), and the pushes; at random without a model."""
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)).tolist())
    state = jnp.zeros(4) + 0.01 * rng.standard_normal(4)
    seen, pushes = [np.asarray(state) + ERROR * rng.standard_normal(4)], []
    plan = jnp.zeros(HORIZON)
    for number in range(STEPS):
        if model is None:
            push = float(rng.uniform(-PUSH, PUSH))
        else:
            at = jnp.asarray(seen[-1], jnp.float32)
            plan = planned(method, model, at, plan, jax.random.fold_in(key, number))
            push = float(plan[0])
            plan = jnp.append(plan[1:], 0.0)
        state = moved(state, push)
        seen.append(np.asarray(state) + ERROR * rng.standard_normal(4))
        pushes.append(push)
    return np.array(seen), np.array(pushes)


def run(problem: str, method: str, seed: int, more: dict[str, Any]) -> dict[str, Any]:
    """Return which trial was the first to be solved, and the uprightness of every one."""
    key, model = jax.random.key(seed), None
    X, y, upright = np.zeros((0, 5)), np.zeros((0, 4)), []
    for number in range(MOST + 1):
        name = "" if number == 0 else method
        seen, pushes = trial(name, model, jax.random.fold_in(key, number))
        off = np.abs((seen[:, 2] % (2 * np.pi)) - np.pi)
        upright.append(float(np.mean(off < 0.3)))
        if number and off[-11:].max() < 0.3:
            return {"solved": number, "upright": upright}
        X = np.vstack([X, inputs_of(seen[:-1], pushes)])
        y = np.vstack([y, np.diff(seen, axis=0)])
        if number < MOST:
            model = learned(method, X, y, 1_000 * seed + number)
    return {"solved": None, "upright": upright}


def seconds(times: int = 60) -> dict[str, float]:
    """Return the least seconds of one core that an action's planning took, methods taking turns."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # before JAX starts its threads
    seen, pushes = trial("", None, jax.random.key(0))
    X, y = inputs_of(seen[:-1], pushes), np.diff(seen, axis=0)
    models = {method: learned(method, X, y, 0) for method in METHODS if method != "mean"}
    state, plan, best = jnp.zeros(4), jnp.zeros(HORIZON), dict.fromkeys(models, np.inf)
    for number in range(times + 1):
        for method, model in models.items():
            begin = time.process_time()
            planned(method, model, state, plan, jax.random.key(number)).block_until_ready()
            if number:
                best[method] = min(best[method], time.process_time() - begin)
    return best


def main() -> None:
    parser = acting.options(__doc__, problems=["swing-up"], methods=METHODS, seeds=10)
    parser.add_argument("--seconds", action="store_true", help="of planning, and nothing else")
    given = parser.parse_args()
    if given.seconds:
        best = seconds()
        for method, value in best.items():
            print(f"{method}: {1e3 * value:.1f} ms for an action, {value / best['ensemble']:.3f}")
        return
    found = acting.run(given, run, {})
    print(f"trials until one was solved, of at most {MOST}, after the one at random\n")
    print("| method | seeds | median | each | never |")
    print("|---|---|---|---|---|")
    for method in given.methods:
        if not (seeds := acting.complete(found, "swing-up", [method])):
            continue
        first = [found["swing-up", method, seed]["solved"] for seed in seeds]
        counted = [MOST + 1 if one is None else one for one in first]
        each = ", ".join("-" if one is None else str(one) for one in first)
        never = sum(one is None for one in first)
        print(f"| {method} | {len(seeds)} | {np.median(counted):g} | {each} | {never} |")


if __name__ == "__main__":
    main()
