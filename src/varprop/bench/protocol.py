"""The rules every cell of the tables follows, in code and in words.

*Model.* `varprop.FAWNRegressor`: the arguments of every cell are in its row of the results.

*Data.* Inputs and targets are standardized with mean and standard deviation of the training rows of
the split, in float64; a constant column keeps scale 1. Nothing else is done to them. The networks
of the paper have no rows set aside (``validation=None``), and no setting is chosen on test rows.

*Network.* One hidden layer of 50 rectifiers, means of weights and biases drawn from N(0, 0.2²),
standard deviations of the weights starting at 0.05; one learned prior N(mu, sigma²) for all; one
learned noise level per output. (Bernoulli weights have a start and a learned prior of their own.)

*Training.* Adam in batches of 128 rows until the training loss has converged, by the written rule
of `varprop.training.StopRule`. Two protocols:

- ``paper``: learning rate 1e-3, the full KL from the start, one start, at most 300,000 steps.
- ``ours``: `OURS`, the schedule that was the engine's default when the tables were made (rate 1e-2
  that falls to 0 at the end, the KL's weight rising from 0 over the first 10,000 steps, at most
  40,000) from two starts, of which the one with the lower final training objective is kept; the
  noise of targets that repeat (whole numbers) keeps a tenth of their step
  (`varprop.data.Statistics`). The network, the prior and the objective are the paper's.
  That both starts have the rise was decided on rows set aside from training rows: see
  docs/training.md.

*Scores*, on the test rows of the split: negative log likelihood (joint over outputs) and root mean
squared error (averaged over outputs) in the target's own units and in standardized ones; the
continuous ranked probability score and the coverage of the central 50 % and 90 % intervals, which
the paper does not show.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from varprop.predictive import metrics
from varprop.predictive.distribution import Predictive
from varprop.training.recipe import Recipe, StopRule

#: Number by number, so that a cell stays what it was when the defaults change.
OURS = Recipe(
    learning_rate=1e-2,
    kl_weight=1.0,
    kl_warmup=10_000,
    cooldown=5_000,
    max_steps=40_000,
    batch_size=128,
    alternate=False,
    noise_floor=True,
    stop=StopRule(window=1000, tol=1e-3, patience=10),
)
#: By name, the arguments of `FAWNRegressor` that say how networks are trained.
PROTOCOLS: dict[str, dict[str, Any]] = {
    "paper": {"recipe": Recipe.paper(), "n_restarts": 1, "validation": None},
    "ours": {"recipe": OURS, "n_restarts": 2, "validation": None},
}


def scores(y: np.ndarray, prediction: Predictive, y_scale: np.ndarray) -> dict[str, Any]:
    """Return the scores of a split's test rows.

    Parameters
    ----------
    y
        Targets, shape (rows,) or (rows, outputs), as the prediction's mean.
    prediction
        What was predicted for them.
    y_scale
        Standard deviation of the training targets, shape (outputs,).

    Examples
    --------
    >>> p = Predictive.gaussian(np.zeros(4), np.ones(4), 0.0)
    >>> found = scores(np.zeros(4), p, np.array([2.0]))
    >>> round(found["nll"], 3), round(found["nll_standardized"], 3), found["coverage90"]
    (0.919, 0.226, 1.0)
    """
    nll = metrics.nll(y, prediction)
    rmse = np.atleast_1d(metrics.rmse(y, prediction, multioutput="raw_values"))
    return {
        "nll": nll,
        "rmse": float(rmse.mean()),
        "nll_standardized": nll - float(np.log(y_scale).sum()),
        "rmse_standardized": float((rmse / y_scale).mean()),
        "crps": metrics.crps(y, prediction),
        "coverage50": metrics.interval_coverage(y, prediction, coverage=0.5),
        "coverage90": metrics.interval_coverage(y, prediction, coverage=0.9),
        # With outputs taken as independent: the difference is what their covariance is worth.
        "nll_independent": -float(prediction.marginal_logpdf(y).reshape(len(y), -1).sum(1).mean()),
    }
