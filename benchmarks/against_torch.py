"""Training throughput against what users would pick instead, on kin8nm's shape, in one run.

A benchmark-only environment; `make bench-torch` makes it and runs this file. Every contender trains
the same network (8-50-1, batches of 128, Adam where it has an optimizer) on the same rows for the
same number of epochs, as its own examples do it, with the batches sliced from tensors in memory (no
loader). One thread each; ten lanes of varprop use both cores. Interleaved, best of several; the
number is the throughput of varprop over the contender's, whole calls of `fit_many` included.
"""

from __future__ import annotations

import math
import subprocess
import sys
import time

import jax
import numpy as np
import pytagi.nn as tagi
import torch
import torchbnn
from bayesian_torch.layers.variational_layers.linear_variational import LinearReparameterization
from pytagi.nn import OutputUpdater

import varprop

N_ROWS, N_INPUTS, HIDDEN, BATCH = 7373, 8, 50, 128
EPOCHS, REPEATS = 50, 4


def rows() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((N_ROWS, N_INPUTS)).astype(np.float32)
    y = (np.sin(x[:, :1]) + 0.1 * rng.standard_normal((N_ROWS, 1))).astype(np.float32)
    return x, y


def varprop_lanes(n_lanes: int):
    data = varprop.Data(*rows())
    steps = EPOCHS * -(-N_ROWS // BATCH)
    recipe = varprop.Recipe(max_steps=steps, kl_warmup=0, cooldown=0)
    lanes = [
        varprop.Lane(
            model=varprop.regression_model(N_INPUTS, 1, key=jax.random.key(i)),
            key=jax.random.key(i),
            recipe=recipe,
        )
        for i in range(n_lanes)
    ]
    return lambda: varprop.fit_many(lanes, data, varprop.ROPD())


def one_lane_on_one_thread() -> float:
    """Return the seconds of one lane, in a process of its own: XLA makes its threads once."""
    done = subprocess.run(
        [sys.executable, __file__, "--one-lane"], check=True, capture_output=True, text=True
    )
    return float(done.stdout.splitlines()[-1])


def timed(job) -> float:
    begin = time.perf_counter()
    job()
    return time.perf_counter() - begin


def torch_loop(model: torch.nn.Module, loss_of):
    """The usual eager loop: shuffle, slice, forward, backward, Adam."""
    x, y = (torch.from_numpy(part) for part in rows())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def run():
        for _ in range(EPOCHS):
            order = torch.randperm(N_ROWS)
            for start in range(0, N_ROWS, BATCH):
                chosen = order[start : start + BATCH]
                optimizer.zero_grad()
                loss_of(model, x[chosen], y[chosen]).backward()
                optimizer.step()

    return run


def with_bayesian_torch():
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first = LinearReparameterization(N_INPUTS, HIDDEN)
            self.second = LinearReparameterization(HIDDEN, 1)

        def forward(self, x):
            h, kl_first = self.first(x)
            out, kl_second = self.second(torch.relu(h))
            return out, kl_first + kl_second

    def loss_of(net, x, y):
        out, kl = net(x)
        return torch.nn.functional.mse_loss(out, y) + kl / N_ROWS

    return torch_loop(Net(), loss_of)


def with_torchbnn():
    net = torch.nn.Sequential(
        torchbnn.BayesLinear(
            prior_mu=0, prior_sigma=0.1, in_features=N_INPUTS, out_features=HIDDEN
        ),
        torch.nn.ReLU(),
        torchbnn.BayesLinear(prior_mu=0, prior_sigma=0.1, in_features=HIDDEN, out_features=1),
    )
    kl = torchbnn.BKLLoss(reduction="mean", last_layer_only=False)
    return torch_loop(
        net, lambda net, x, y: torch.nn.functional.mse_loss(net(x), y) + 0.01 * kl(net)
    )


def with_eager_fawn():
    """The same FAWN-ROPD step, written straightforwardly in PyTorch."""

    class Dense(torch.nn.Module):
        def __init__(self, n, m):
            super().__init__()
            self.mean = torch.nn.Parameter(0.2 * torch.randn(m, n))
            self.log_std = torch.nn.Parameter(torch.full((m, n), -3.0))
            self.bias_mean = torch.nn.Parameter(torch.zeros(m))
            self.bias_log_std = torch.nn.Parameter(torch.full((m,), -3.0))

        def forward(self, mean, var):
            weight_var = torch.exp(2 * self.log_std)
            out = mean @ self.mean.T + self.bias_mean
            out_var = mean**2 @ weight_var.T + torch.exp(2 * self.bias_log_std)
            if var is not None:
                out_var = out_var + var @ (self.mean**2 + weight_var).T
            return out, out_var

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = Dense(N_INPUTS, HIDDEN), Dense(HIDDEN, 1)
            self.noise = torch.nn.Parameter(torch.zeros(1))
            self.prior_mean = torch.nn.Parameter(torch.zeros(()))
            self.prior_log_std = torch.nn.Parameter(torch.tensor(-1.6))

        def kl(self):
            total = 0.0
            for layer in (self.first, self.second):
                for mean, log_std in (
                    (layer.mean, layer.log_std),
                    (layer.bias_mean, layer.bias_log_std),
                ):
                    ratio = 2 * (log_std - self.prior_log_std)
                    shift = (mean - self.prior_mean) ** 2 * torch.exp(-2 * self.prior_log_std)
                    total = total + 0.5 * (torch.exp(ratio) - 1 - ratio + shift).sum()
            return total

        def forward(self, x):
            mean, var = self.first(x, None)
            std = var.sqrt()
            r = mean / std
            above = 0.5 * (1 + torch.erf(r / math.sqrt(2)))
            density = torch.exp(-0.5 * r * r) / math.sqrt(2 * math.pi)
            out = above * mean + density * std
            out_var = mean * std * density + (mean**2 + var) * above - out**2
            return self.second(out, out_var)

    def loss_of(net, x, y):
        mean, var = net(x)
        var = var + torch.exp(2 * net.noise)
        return (
            0.5 * (torch.log(2 * math.pi * var) + (y - mean) ** 2 / var).mean() + net.kl() / N_ROWS
        )

    return torch_loop(Net(), loss_of)


def with_pytagi():
    net = tagi.Sequential(tagi.Linear(N_INPUTS, HIDDEN), tagi.ReLU(), tagi.Linear(HIDDEN, 1))
    net.set_threads(1)
    updater = OutputUpdater(net.device)
    x, y = rows()
    rng = np.random.default_rng(1)

    def run():
        for _ in range(EPOCHS):
            order = rng.permutation(N_ROWS)
            for start in range(0, N_ROWS - BATCH + 1, BATCH):
                chosen = order[start : start + BATCH]
                net(x[chosen].ravel())
                noise = np.full(BATCH, 0.01, np.float32)
                updater.update(
                    net.output_z_buffer, y[chosen].ravel(), noise, net.input_delta_z_buffer
                )
                net.backward()
                net.step()

    return run


def main() -> None:
    torch.set_num_threads(1)  # these networks are slower with more
    if "--one-lane" in sys.argv:
        varprop.use_one_thread()
        job = varprop_lanes(1)
        print(min(timed(job) for _ in range(3)))  # the first compiles
        return
    jobs = {
        "varprop, ten lanes": varprop_lanes(10),
        "bayesian-torch 0.5.0": with_bayesian_torch(),
        "torchbnn 1.2": with_torchbnn(),
        "eager PyTorch FAWN": with_eager_fawn(),
        "pytagi 0.1.12": with_pytagi(),
    }
    best = {"varprop, one lane": math.inf, **dict.fromkeys(jobs, math.inf)}
    for job in jobs.values():
        job()
    for _ in range(REPEATS):
        best["varprop, one lane"] = min(best["varprop, one lane"], one_lane_on_one_thread())
        for name, job in jobs.items():
            best[name] = min(best[name], timed(job))
    one, ten = best["varprop, one lane"], best["varprop, ten lanes"] / 10
    print(f"varprop {varprop.__version__}, jax {jax.__version__}, torch {torch.__version__}")
    print(f"{'':<24}{'rows/s':>12}{'one lane is':>14}{'ten lanes are':>16}")
    for name, seconds in best.items():
        n = 10 if "ten" in name else 1
        rate = n * EPOCHS * N_ROWS / seconds
        if "varprop" in name:
            print(f"{name:<24}{rate:>12,.0f}")
        else:
            print(f"{name:<24}{rate:>12,.0f}{seconds / one:>12.1f} x{seconds / ten:>14.1f} x")
    print("targets: one lane 7 x, ten lanes 20 x of each")


if __name__ == "__main__":
    main()
