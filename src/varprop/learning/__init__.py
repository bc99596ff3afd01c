"""What is learned: a model with its likelihood and its prior, and what training minimizes."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(__name__, submodules=["likelihoods", "priors"])
