"""What the methods with one target are given."""

from __future__ import annotations

from typing import Any

import numpy as np


def one_target(method: Any, X: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return inputs (rows, features) and targets (rows,), float64.

    Examples
    --------
    >>> one_target(object(), [[1]], [2])[1].shape
    (1,)
    """
    X, y = np.asarray(X, np.float64), np.asarray(y, np.float64)
    if y.ndim != 1:
        raise ValueError(f"{type(method).__name__} has one target, but y has shape {y.shape}.")
    return X, y
