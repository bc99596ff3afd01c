"""What all tests share: compiled programs, precision, promotion and the settings of Hypothesis."""

import gc
import importlib.util
import os
import pathlib
import subprocess
import sys
import tempfile

# Most of the suite's time was compilation. What one worker, or a process that a test starts, has
# compiled is kept for the others: workers inherit the folder from the process that starts them.
# It goes with the run; a developer who names one in the environment keeps it from run to run.
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    _cache = tempfile.TemporaryDirectory(prefix="varprop-compiled-", ignore_cleanup_errors=True)
    os.environ["JAX_COMPILATION_CACHE_DIR"] = _cache.name
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")

# XLA's older code generator compiles our programs a third faster, though steps of training take
# twice as long (test_hostile.py has the newer one); results differ by rounding. XLA ends a process
# that names a flag it does not know, so another one asks.
_FLAG = "--xla_cpu_use_fusion_emitters=false"
if "XLA_FLAGS" not in os.environ:
    _asked = subprocess.run(
        [sys.executable, "-c", "import jax; jax.numpy.zeros(1)"],
        env=os.environ | {"XLA_FLAGS": _FLAG},
        capture_output=True,
    )
    os.environ["XLA_FLAGS"] = "" if _asked.returncode else _FLAG

import jax
import jax.numpy as jnp
import pytest
from hypothesis import settings
from jaxtyping import config as jaxtyping_config

# No deadline, because the first example compiles; derandomized, so that a run can be repeated.
settings.register_profile("varprop", deadline=None, derandomize=True, database=None)
settings.load_profile("varprop")


def pytest_configure(config):
    """Let tests train for a few steps only; those on what users are told ask for it by name."""
    # Not in pyproject.toml: to name a class there imports the package before its types are checked.
    for name in ("varprop.errors.FitWarning", "sklearn.exceptions.ConvergenceWarning"):
        config.addinivalue_line("filterwarnings", f"ignore::{name}")
    if importlib.util.find_spec("optuna") is None:  # its doctest cannot even be collected then
        path = pathlib.Path(__file__).parents[1] / "src/varprop/decisions/optuna.py"
        config.option.ignore = [*(config.option.ignore or []), str(path)]


@pytest.fixture(scope="module", autouse=True)
def programs_go_with_their_module():
    """Drop compiled programs when a file of tests is done.

    Each is several pieces of mapped memory, of which Linux allows a process some 65,000: a worker
    that had kept the programs of most of the suite crashed. What comes again is read from disk.
    """
    yield
    jax.clear_caches()
    gc.collect()


@pytest.fixture(scope="module")
def strict_promotion():
    """No silent mixing of float32 and float64.

    Core test modules ask for it with `pytestmark`. It is not autouse, since Optax's optimizers mix
    integers and floats. Rank promotion stays allowed: layers add one row of biases to a batch.
    """
    with jax.numpy_dtype_promotion("strict"):
        yield


@pytest.fixture
def x64():
    """Run one test with float64 switched on, without touching the global configuration."""
    with jax.enable_x64(True):
        yield


@pytest.fixture(params=["float32", "float64"])
def dtype(request):
    """Run one test in each precision."""
    with jax.enable_x64(request.param == "float64"):
        yield jnp.dtype(request.param)


@pytest.fixture
def as_users_run_it():
    """Switch the runtime type checks off, which speak before the library's own sentences do."""
    jaxtyping_config.update("jaxtyping_disable", True)
    yield
    jaxtyping_config.update("jaxtyping_disable", False)
