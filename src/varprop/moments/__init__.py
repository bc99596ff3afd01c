"""What flows: Gaussians, their covariances, and float-safe scalar maths with exact derivatives."""

import lazy_loader

# Late, since NumPy's rules read constants here without JAX.
__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__, submod_attrs={"gaussian": ["Gaussian", "JointGaussian"]}
)
