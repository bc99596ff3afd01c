"""One day ahead by the last day's 24 hours: recurrent networks against models on lags.

    VARPROP_DATA=folder python benchmarks/sequences.py --store sequences.jsonl

The value 24 hours later, of GEFCom2014's load and price and of Beijing's PM2.5. A sequence is the
last 24 hours in eight steps of three; for each hour there are the value, that of the target's day a
week before it, the hour, whether the target's day is a weekend, and what is known of weather (until
now) or of forecasts of the load (a day ahead). The models on lags see all of that side by side.
Training is on the two years before the last (of prices less), every fifth hour; the test is the
last year, every seventh. Prices and PM2.5 go as logarithms, for all methods, and quantiles are
turned back. `--back 1` moves all of it a year into the past, for choosing settings.
"""

from __future__ import annotations

from typing import Any

import acting
import jax
import numpy as np
import pyarrow.parquet as pq

from varprop import Data, SequenceRegressor, fit
from varprop.baselines.linear import Linear
from varprop.baselines.quantiles import LEVELS, QuantileBoosting
from varprop.learning.likelihoods import GaussianLikelihood
from varprop.learning.model import Model
from varprop.learning.objectives import SampledVI
from varprop.learning.priors import default_prior
from varprop.nn import Dropout, PointWeights, rnn
from varprop.nn.cells import CELLS
from varprop.nn.checking import sample_outputs
from varprop.training import Recipe

PROBLEMS = ("load", "price", "pm25")
METHODS = ("naive", "linear", "boosting", "dropout", "fawn", "fawn-each-step")
STEPS, YEAR, DAY, WEEK = 8, 8760, 24, 168
NETWORK = {"cell": "gru", "units": 12}
DRAWS = 30


def series(name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return hourly values, and what else is known, (hours, columns): until now, a day ahead."""
    file = {"load": "gefcom2014_load", "price": "gefcom2014_price", "pm25": "pm25_beijing"}[name]
    table = pq.read_table(acting.folder() / "extra" / f"{file}.parquet")

    def column(of: str) -> np.ndarray:
        return table[of].to_numpy().astype(float)

    if name == "load":
        y = column("LOAD")
        first = int(np.argmax(np.isfinite(y)))
        weather = np.mean([column(f"w{i}") for i in range(1, 26)], axis=0)
        return y[first:], weather[first:, None], np.empty((len(y) - first, 0))
    if name == "price":
        ahead = [column("Forecasted Total Load"), column("Forecasted Zonal Load")]
        return np.log(column("Zonal Price")), np.empty((len(table), 0)), np.transpose(ahead)
    now = [column("TEMP"), column("DEWP"), column("PRES"), np.log1p(column("Iws"))]
    return np.log1p(column("pm2.5")), np.transpose(now), np.empty((len(table), 0))


def turned_back(name: str, values: np.ndarray) -> np.ndarray:
    """Return values in the units of the table."""
    return {"load": values, "price": np.exp(values), "pm25": np.expm1(values)}[name]


def windows(name: str, more: dict[str, Any]) -> Any:
    """Return (sequences, mask, targets, naive values) of the training and of the test rows."""
    y, now, ahead = series(name)
    start = {"load": 5, "price": 5, "pm25": 4}[name]  # 1 January: Saturdays, and a Friday in 2010
    hour = np.arange(len(y))
    weekend = ((hour // DAY + start) % 7 >= 5).astype(float)
    end = len(y) - more["back"] * YEAR
    filled = y.copy()
    for t in np.flatnonzero(np.isnan(y)):
        filled[t] = filled[t - 1] if t else np.nanmean(y)
    parts = []
    for first, last, every in ((end - 3 * YEAR, end - YEAR - DAY, 5), (end - YEAR, end, 7)):
        at = np.arange(max(first, WEEK), last - DAY, every)  # the last hour that is known
        at = at[np.isfinite(y[at + DAY])]
        steps = at[:, None] - np.arange(DAY)[::-1]
        angle = 2 * np.pi * (steps % DAY) / DAY
        target_day = steps + DAY
        channels = [y[steps], y[target_day - WEEK], np.sin(angle), np.cos(angle)]
        channels += [weekend[target_day], *now[steps].transpose(2, 0, 1)]
        channels += [*ahead[target_day].transpose(2, 0, 1)]
        X = np.stack(channels, axis=-1).reshape(len(at), STEPS, -1)
        mask = np.isfinite(X).all(axis=-1)
        naive = np.stack([filled[at], filled[at + DAY - WEEK]], axis=1)
        some = mask.any(axis=1)
        parts.append((X[some], mask[some], y[at + DAY][some], naive[some], at[some] % DAY))
    return parts


def seasonal_naive(train: Any, test: Any) -> np.ndarray:
    """Return the value a day or a week before the target, and quantiles of its errors by hour.

    Which of the two: by the training rows.
    """
    errors = train[2][:, None] - train[3]
    best = int(np.argmin(np.abs(errors).mean(axis=0)))
    by_hour = np.stack(
        [np.quantile(errors[train[4] == hour, best], LEVELS) for hour in range(DAY)], axis=0
    )
    return test[3][:, best, None] + by_hour[test[4]]


def dropout(train: Any, test: Any, seed: int, recipe: Recipe) -> np.ndarray:
    """Return quantiles of an ordinary network of the same shape that is drawn with units dropped.

    Trained by one draw per batch, as by any optimizer of a noisy network.
    """
    shift, scale = (getattr(np, f"nan{name}")(train[0], axis=(0, 1)) for name in ("mean", "std"))
    center, spread = train[2].mean(), train[2].std()

    def flat(part: Any) -> np.ndarray:
        X = np.where(part[1][..., None], (part[0] - shift) / scale, 0.0)
        return np.concatenate([X.reshape(len(X), -1), part[1]], axis=1)

    key = jax.random.key(seed)
    network = rnn(
        train[0].shape[-1],
        1,
        n_steps=STEPS,
        key=key,
        weights=PointWeights.init,
        masked=True,
        hidden_noise=Dropout(0.1),
        **NETWORK,
    )
    model = Model(network, GaussianLikelihood.start(1), default_prior(network))
    data = Data(flat(train), (train[2] - center) / spread)
    trained = fit(model, data, SampledVI(), key=key, recipe=recipe)
    noise = np.sqrt(np.asarray(trained.model.likelihood.noise_var))
    x = trained.scaling.inputs(flat(test), None, np.float32)[0]
    drawn = jax.jit(lambda x, key: trained.model.network.sample(key)(x))
    f = np.stack([drawn(x, one)[:, 0] for one in jax.random.split(key, DRAWS)])
    rng = np.random.default_rng(seed)
    values = f[:, None] + noise * rng.standard_normal((DRAWS, 20, len(x)))
    scaled = np.quantile(values.reshape(-1, len(x)), LEVELS, axis=0).T
    inner = scaled * trained.scaling.y_scale + trained.scaling.y_shift
    return inner * spread + center


def quantiles(name: str, method: str, seed: int, more: dict[str, Any]) -> Any:
    """Return the pinball loss, 0.1 to 0.9, and the coverage of the 90 % interval."""
    train, test = windows(name, more)
    recipe = Recipe(
        max_steps=more["steps"],
        kl_warmup=more["steps"] // 4,
        cooldown=more["steps"] // 3,
        stop=None,
    )
    if method == "naive":
        found = seasonal_naive(train, test)
    elif method == "dropout":
        found = dropout(train, test, seed, recipe)
    elif method in ("linear", "boosting"):
        center = np.nanmean(train[0], axis=(0, 1))
        rows = [
            np.where(np.isfinite(p[0]), p[0], center).reshape(len(p[0]), -1) for p in (train, test)
        ]
        model: Any = Linear() if method == "linear" else QuantileBoosting(random_state=seed)
        model.fit(rows[0], train[2])
        if method == "linear":
            found = model.predict_dist(rows[1]).quantile(LEVELS).reshape(len(rows[1]), -1)
        else:  # as they are boosted: no density is asked for
            found = np.sort([each.predict(rows[1]) for each in model._models], axis=0).T
    else:
        drawn = "each-step" if method.endswith("each-step") else "once"
        model = SequenceRegressor(
            objective="vi",
            likelihood="heteroscedastic",
            weights_drawn=drawn,
            recipe=recipe,
            random_state=seed,
            **NETWORK,
        )
        model.fit(train[0], train[2], train[1])
        found = model.predict_dist(test[0], test[1]).quantile(LEVELS)
    found, y = turned_back(name, found), turned_back(name, test[2])
    levels = np.array(LEVELS)
    over = y[:, None] - found
    loss = np.maximum(levels * over, (levels - 1) * over)[:, 1:-1].mean()
    covered = ((found[:, 0] <= y) & (y <= found[:, -1])).mean()
    return [float(loss), float(covered), len(train[2]), len(y)]


def spread(steps: int) -> None:
    """Print stated over sampled standard deviation after 20 steps, of trained networks."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(420, 20, 1))
    y = np.tanh(X[:, :, 0] @ 0.85 ** np.arange(20)[::-1]) + 0.2 * rng.normal(size=420)
    recipe = Recipe(max_steps=steps, kl_warmup=steps // 3, cooldown=steps // 3, stop=None)
    print("| cell | weights drawn | R² on 20 new rows | stated / sampled: median | range |")
    print("|---|---|---|---|---|")
    for cell in CELLS:
        for drawn in ("once", "each-step"):
            model = SequenceRegressor(
                cell=cell, units=8, weights_drawn=drawn, recipe=recipe, random_state=0
            )
            model.fit(X[:400], y[:400])
            network = jax.tree.map(jax.numpy.asarray, model.members_[0]).network
            x = model.scaling_.inputs(X[400:].reshape(20, -1), None, np.float32)[0]
            stated = np.sqrt(jax.jit(lambda x, net=network: net.moments(x).variances())(x))
            drawn_std = sample_outputs(network, x, jax.random.key(1), 4000).std(axis=0)
            low, middle, high = np.quantile(stated / drawn_std, (0, 0.5, 1))
            score = model.score(X[400:], y[400:])
            print(f"| {cell} | {drawn} | {score:.2f} | {middle:.2f} | {low:.2f} to {high:.2f} |")


def main() -> None:
    parser = acting.options(__doc__, problems=PROBLEMS, methods=METHODS, seeds=2)
    parser.add_argument("--steps", type=int, default=1500, help="of a network's training")
    parser.add_argument("--back", type=int, default=0, help="years into the past")
    parser.add_argument("--spread", action="store_true", help="only stated over sampled spread")
    given = parser.parse_args()
    if given.spread:
        return spread(given.steps)
    found = acting.run(given, quantiles, {"steps": given.steps, "back": given.back})
    print(f"pinball loss / coverage of 90 % intervals, {given.steps} steps\n")
    print("| series | training, test rows | seeds | " + " | ".join(given.methods) + " |")
    print("|---|---|---|" + "---|" * len(given.methods))
    for name in given.problems:
        seeds = acting.complete(found, name, given.methods)
        if not seeds:
            continue
        cells = []
        for method in given.methods:
            loss, covered, *rows = np.mean([found[name, method, seed] for seed in seeds], axis=0)
            cells.append(f"{loss:.3f} / {covered:.3f}")
        print(f"| {name} | {rows[0]:,.0f}, {rows[1]:,.0f} | {len(seeds)} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
