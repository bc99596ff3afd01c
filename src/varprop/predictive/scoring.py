"""The metrics as scikit-learn scorers, for `cross_val_score` and `GridSearchCV`.

scikit-learn itself is imported only when its metadata routing asks a scorer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from varprop.predictive import metrics
from varprop.predictive.checks import check_share
from varprop.predictive.contract import AbstractNumeric
from varprop.predictive.mixtures import ArrayLike

__all__ = ["scorers"]


def predict_dist(estimator: Any, X: Any) -> AbstractNumeric:
    """Call ``predict_dist`` of an estimator, also inside a fitted Pipeline or search."""
    if hasattr(estimator, "predict_dist"):
        prediction = estimator.predict_dist(X)
        if not isinstance(prediction, AbstractNumeric):
            raise TypeError(f"predict_dist gave a {type(prediction).__name__}, not a Predictive.")
        return prediction
    if hasattr(estimator, "best_estimator_"):
        return predict_dist(estimator.best_estimator_, X)
    if hasattr(estimator, "steps"):
        before = estimator[:-1]
        return predict_dist(estimator[-1], before.transform(X) if len(before) else X)
    raise TypeError(f"{type(estimator).__name__} has no predict_dist, which this scorer needs.")


@dataclass(frozen=True)
class _Scorer:
    """Callable ``(estimator, X, y, sample_weight=None)``; picklable, for it is no closure."""

    name: str
    options: tuple[tuple[str, Any], ...] = ()
    weight_request: bool | str | None = None

    def __call__(
        self, estimator: Any, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> float:
        targets = () if self.name in _WITHOUT_TARGETS else (y,)
        value = getattr(metrics, self.name)(
            *targets,
            predict_dist(estimator, X),
            sample_weight=sample_weight,
            **dict(self.options),
        )
        return value if self.name in _GREATER_IS_BETTER else -value

    def set_score_request(self, *, sample_weight: bool | str | None) -> _Scorer:
        """Ask scikit-learn's metadata routing for ``sample_weight``; returns a new scorer."""
        return replace(self, weight_request=sample_weight)

    def get_metadata_routing(self) -> Any:
        """Tell scikit-learn's metadata routing what this scorer takes."""
        from sklearn.utils.metadata_routing import MetadataRequest

        request = MetadataRequest(owner=self)
        request.score.add_request(param="sample_weight", alias=self.weight_request)
        return request


_LOSSES = ("nll", "crps", "rmse", "mae", "calibration_error", "interval_score")
_GREATER_IS_BETTER = ("r2", "interval_coverage")
_WITHOUT_TARGETS = ("interval_width", "sharpness")


def scorers(*, coverage: float = 0.9) -> dict[str, Callable[..., float]]:
    """Return scikit-learn scorers by name for estimators with ``predict_dist(X) -> Predictive``.

    Greater is better, so losses come negated. Each is picklable and works in `cross_val_score`,
    `cross_validate` (which takes the whole dictionary) and `GridSearchCV`, also on a `Pipeline`.
    To report and not to tune by: ``"interval_coverage"`` (the plain share; best is `coverage`,
    not 1), ``"interval_width"`` and ``"sharpness"`` (a model can be narrow and wrong).

    Parameters
    ----------
    coverage : float, default 0.9
        Nominal coverage of the three interval scorers.

    Returns
    -------
    dict of str to callable(estimator, X, y, sample_weight=None) -> float

    Examples
    --------
    >>> sorted(scorers())[:4]
    ['calibration_error', 'crps', 'interval_coverage', 'interval_score']
    """
    check_share(coverage, "coverage")
    options = (("coverage", coverage),)
    names = _LOSSES + _GREATER_IS_BETTER + _WITHOUT_TARGETS
    return {name: _Scorer(name, options if "interval" in name else ()) for name in names}
