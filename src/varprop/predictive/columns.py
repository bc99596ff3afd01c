"""Predictions as named columns: what a table that is written has, and a data frame."""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from varprop.predictive.contract import AbstractNumeric
from varprop.predictive.mixtures import Array

#: Entropies in nats: all of it, what is the model's doubt, and what would remain without that.
ENTROPY, ENTROPY_PARTS = "entropy", ("model_entropy", "noise_entropy")
_STD_PARTS = ("model_std", "noise_std")


def number_names(
    targets: Sequence[str],
    quantiles: Sequence[float] = (),
    survival: Sequence[float] = (),
    *,
    identified: bool = False,
    joint: bool = False,
    counts: bool = False,
) -> list[str]:
    """Return the names of the columns of numbers, those of the first target first.

    Parameters
    ----------
    targets
        Their names, which are in those of columns only if there are several.
    quantiles, survival
        Probabilities of quantiles, and values to lie beyond.
    identified, joint, counts
        Whether model and noise are told apart, whether the covariance between targets is modeled,
        and whether targets are counts.

    Examples
    --------
    >>> number_names(["price"], [0.05], identified=True)
    ['mean', 'std', 'model_std', 'noise_std', 'lower', 'upper', 'q0.05']
    >>> number_names(["a", "b"], joint=True)[-2:]
    ['b_upper', 'cov_a_b']
    """
    parts = _STD_PARTS if identified else ()
    names = ["mean", "std", *parts, "lower", "upper", *(f"q{alpha:g}" for alpha in quantiles)]
    names += ["p_zero"] * counts + [f"survival_{value:g}" for value in survival]
    if len(targets) > 1:
        names = [f"{target}_{name}" for target in targets for name in names]
    pairs = itertools.combinations(targets, 2) if joint else ()
    return [*names, *(f"cov_{one}_{other}" for one, other in pairs)]


def number_values(
    prediction: AbstractNumeric,
    quantiles: Sequence[float] = (),
    survival: Sequence[float] = (),
    *,
    interval: float = 0.9,
    factor: Array | None = None,
) -> Array:
    """Return the numbers that `number_names` names, shape (rows, columns).

    Parameters
    ----------
    prediction
        Of some rows.
    quantiles, survival
        As in `number_names`.
    interval
        Probability between ``lower`` and ``upper``.
    factor
        Standard deviations that the interval reaches either way, shape (targets,); the
        distribution's own quantiles unless given.

    Examples
    --------
    >>> from varprop.predictive import Predictive
    >>> number_values(Predictive.gaussian([1.0], [0.0], 4.0).unsplit()).round(2).tolist()
    [[1.0, 2.0, -2.29, 4.29]]
    """
    mean, std, targets = prediction.mean, prediction.std, prediction.n_outputs
    levels = [(1 - interval) / 2, (1 + interval) / 2, *quantiles]
    lower, upper, *further = np.moveaxis(prediction.quantile(levels), -1, 0)
    if factor is not None:
        reach = std * (factor if mean.ndim == 2 else factor[0])
        lower, upper = mean - reach, mean + reach
    parts = [prediction.model_std, prediction.noise_std] if prediction.identified else []
    columns = [mean, std, *parts, lower, upper, *further]
    if prediction.is_discrete:
        columns.append(prediction.cdf(0.0))
    columns += [1.0 - prediction.cdf(value) for value in survival]
    stacked = np.stack([column.reshape(-1, targets) for column in columns], axis=2)
    flat = stacked.reshape(len(stacked), -1)
    if is_joint(prediction):
        first, second = np.triu_indices(targets, 1)
        flat = np.hstack([flat, prediction.output_cov[:, first, second]])  # type: ignore[attr-defined]
    return flat


def is_joint(prediction: AbstractNumeric) -> bool:
    """Return whether the covariance between targets is modeled."""
    return bool(getattr(prediction, "is_joint", False))


def probability_names(classes: Iterable[Any]) -> list[str]:
    """Return the names of the columns of probabilities.

    Examples
    --------
    >>> probability_names(["no", "yes"])
    ['p_no', 'p_yes']
    """
    return [f"p_{name}" for name in classes]


def as_frame(columns: Mapping[str, Any], library: str) -> Any:
    """Return columns as a data frame of pandas or Polars, which is imported for it.

    Raises
    ------
    ValueError
        If it is another library.
    ImportError
        If it is not installed.
    """
    if library not in ("pandas", "polars"):
        raise ValueError(f"library must be 'pandas' or 'polars', not {library!r}.")
    try:
        frames = importlib.import_module(library)
    except ImportError as error:
        raise ImportError(
            f"to_frame(library={library!r}) needs {library}: install it by `pip install {library}`."
        ) from error
    return frames.DataFrame(dict(columns))
