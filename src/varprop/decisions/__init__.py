"""What to try next: closed-form acquisition on a fitted regressor, single rows and batches.

`expected_improvement` and its kin score single rows, `select_*` choose several at a time,
`draw_function` and `linear_features` look into the networks. ``varprop suggest`` does it for
tables, and `varprop.decisions.optuna` is a sampler for Optuna.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "acquisition": [
            "confidence_bound",
            "expected_improvement",
            "information_gain",
            "log_expected_improvement",
            "probability_of_improvement",
            "without_noise",
        ],
        "batches": ["Selected", "select_improving", "select_informative", "select_spread"],
        "draws": ["draw_function", "linear_features"],
    },
)
