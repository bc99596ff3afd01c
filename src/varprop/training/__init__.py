"""Training: `fit` one model or `fit_many` lanes on one compiled program."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submodules=["distributed"],
    submod_attrs={
        "checkpoint": ["CheckpointError"],
        "preparation": ["Lane"],
        "engine": ["fit", "fit_many", "fit_restarts"],
        "recipe": ["Recipe", "StopRule"],
        "result": ["Fit"],
        "schedule": ["Outcome"],
    },
)
