"""What does carrying a variance cost? Times of the core and their ratios to a plain network.

    python benchmarks/core_speed.py          (or: make bench)

Value and gradient of a Gaussian log-likelihood, float32, one thread, best of interleaved repeats:

- plain: a deterministic network of the same shape in bare JAX, written twice, for batches as rows,
  (batch, units), and as columns, (units, batch); the faster of the two is the unit of the ratios;
- varprop: `varprop.nn.mlp` with Gaussian weights and the propagated predictive density (the data
  part of the ROPD objective, without its KL);
- textbook: the same network written down straightforwardly, with the rectifier's moments as printed
  in textbooks (second moment minus squared mean) and left to automatic differentiation.

"call" is one jitted call, dispatch included. "loop" is one step inside a compiled loop of chained
value-and-gradient steps, which is what training does, and the stricter measure. "forward" is the
loss alone, in a loop as well. The exit code is always 0; the last lines say whether the target is
met, against the usual plain network (rows) and against the faster one.
"""

import argparse
import math
import os
import time

if hasattr(os, "sched_setaffinity"):  # one thread; before JAX counts the processors
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})

import jax
import jax.numpy as jnp

from varprop import nn

TARGET = 3.0
N_INPUTS = 8
SIZES = {"paper": (50, 128, 200), "large": (512, 1024, 10)}  # hidden units, batch, loop length


def log_density(y, mean, var):
    return -0.5 * jnp.mean(jnp.log(2 * math.pi * var) + (y - mean) ** 2 / var)


def plain_rows(params, x):
    (w1, b1), (w2, b2) = params
    return jax.nn.relu(x @ w1.T + b1) @ w2.T + b2, 0.0


def plain_columns(params, x):
    (w1, b1), (w2, b2) = params
    return (w2 @ jax.nn.relu(w1 @ x.T + b1[:, None]) + b2[:, None]).T, 0.0


def varprop(net, x):
    out = net.moments(x)
    return out.mean, out.var


def textbook(net, x):
    """Propagate through one hidden layer of rectifiers as one would write it at first."""
    first, _, last = net.layers
    w, v = first.weight.mean.T, jnp.exp(2 * first.weight.log_std.T)
    a = x @ w + first.bias.mean
    a_var = x**2 @ v + jnp.exp(2 * first.bias.log_std)
    std = jnp.sqrt(a_var)
    cdf, pdf = jax.scipy.stats.norm.cdf(a / std), jax.scipy.stats.norm.pdf(a / std)
    h = cdf * a + pdf * std
    h_var = a * std * pdf + (a**2 + a_var) * cdf - h**2
    w, v = last.weight.mean.T, jnp.exp(2 * last.weight.log_std.T)
    var = h**2 @ v + h_var @ w**2 + h_var @ v + jnp.exp(2 * last.bias.log_std)
    return h @ w + last.bias.mean, var


def loss_of(forward):
    def loss(params, x, y):
        model, log_noise = params
        mean, var = forward(model, x)
        return -log_density(y, mean, var + jnp.exp(2 * log_noise))

    return loss


def call(loss, length):
    """One value and gradient per call."""
    return jax.jit(jax.value_and_grad(loss)), 1


def loop(loss, length):
    """`length` value-and-gradient steps per call, each starting from the last one's parameters."""

    def run(params, x, y):
        def step(params, _):
            value, grad = jax.value_and_grad(loss)(params, x, y)
            return jax.tree.map(lambda p, g: p - 1e-6 * g, params, grad), value

        return jax.lax.scan(step, params, None, length=length)

    return jax.jit(run), length


def forward_loop(loss, length):
    """The value alone, `length` times per call; the inputs change so that none can be saved."""

    def run(params, x, y):
        def step(x, _):
            value = loss(params, x, y)
            return x + 1e-6 * value, value

        return jax.lax.scan(step, x, None, length=length)

    return jax.jit(run), length


def best_times(programs, repeats: int) -> dict[str, float]:
    """Smallest seconds per step of each program, measured in turns."""
    for run, _, arguments in programs.values():
        jax.block_until_ready(run(*arguments))
    best = dict.fromkeys(programs, math.inf)
    for _ in range(repeats):
        for name, (run, steps, arguments) in programs.items():
            inner = 10 if steps == 1 else 1
            start = time.perf_counter()
            for _ in range(inner):
                out = run(*arguments)
            jax.block_until_ready(out)
            best[name] = min(best[name], (time.perf_counter() - start) / (inner * steps))
    return best


def measure(hidden: int, batch: int, length: int, repeats: int):
    keys = jax.random.split(jax.random.key(0), 3)
    net = nn.mlp(N_INPUTS, 1, key=keys[0], hidden_layer_sizes=(hidden,))
    params = [(layer.weight.mean, layer.bias.mean) for layer in (net.layers[0], net.layers[2])]
    x = jax.random.normal(keys[1], (batch, N_INPUTS))
    y = jax.random.normal(keys[2], (batch, 1))
    log_noise = jnp.zeros(())
    models = {
        "plain, rows": (plain_rows, params),
        "plain, columns": (plain_columns, params),
        "varprop": (varprop, net),
        "textbook": (textbook, net),
    }
    results = {}
    for kind, program in {"call": call, "loop": loop, "forward": forward_loop}.items():
        programs = {}
        for name, (forward, model) in models.items():
            run, steps = program(loss_of(forward), length)
            programs[name] = run, steps, ((model, log_noise), x, y)
        results[kind] = best_times(programs, repeats)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=100, help="at the paper's size")
    args = parser.parse_args()
    verdicts = []
    for size, (hidden, batch, length) in SIZES.items():
        repeats = args.repeats if size == "paper" else max(args.repeats // 5, 1)
        results = measure(hidden, batch, length, repeats)
        print(f"\n{size}: {N_INPUTS} inputs, {hidden} rectifiers, 1 output, batch {batch}, float32")
        print(f"{'':<20}" + "".join(f"{kind + ', µs':>13}{'ratio':>7}" for kind in results))
        for name in results["call"]:
            cells = ""
            for times in results.values():
                unit = min(times["plain, rows"], times["plain, columns"])
                cells += f"{1e6 * times[name]:>13.1f}{times[name] / unit:>7.2f}"
            print(f"{name:<20}{cells}")
        for kind in ("call", "loop"):
            times = results[kind]
            fastest = min(times["plain, rows"], times["plain, columns"])
            for unit, seconds in {"rows": times["plain, rows"], "fastest": fastest}.items():
                ratio = times["varprop"] / seconds
                met = "met" if ratio <= TARGET else "NOT met"
                verdicts.append(f"{size:<6} {kind:<5} {unit:<8} {ratio:5.2f}  {met}")
    print(f"\nvarprop against the plain network, target {TARGET}")
    print("\n".join(verdicts))


if __name__ == "__main__":
    main()
