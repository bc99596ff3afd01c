"""varprop: a neural network's whole predictive distribution in one forward pass, no sampling.

The public names are listed in `__init__.pyi`. Each is imported when it is first asked for, so that
the command line need not wait for JAX to say what it can do.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

__version__ = "0.1.0"
