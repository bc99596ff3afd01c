"""What comes out, in NumPy only: distributions, scores, diagnostics, conformal intervals."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submodules=[
        "class_diagnostics",
        "class_metrics",
        "conformal",
        "count_diagnostics",
        "diagnostics",
        "importance",
        "metrics",
        "scoring",
        "survival",
    ],
    submod_attrs={
        "blend": ["Blend", "mixture"],
        "categories": ["Categories"],
        "counts": ["Counts"],
        "distribution": ["Predictive"],
        "warped": ["Warped"],
        "warps": ["AbstractWarp", "Log", "YeoJohnson"],
    },
)
