"""Imports go one way, the NumPy branch knows nothing of JAX, and importing the library stays light.

A new file fails here until it has been given its place in one of the two orders below: that is the
moment to think about where it belongs.
"""

import ast
import inspect
import pathlib
import subprocess
import sys

import equinox as eqx
import pytest

import varprop

ROOT = pathlib.Path(varprop.__file__).parent

# Each may import only what stands before it. `.*` is a package, whose files may use each other.
ORDER = [
    "_checks",
    "numerics",
    "covariance",
    "moments",
    "parameters",
    "nn.contract",
    "nn.variables",
    "nn.weights",
    "nn.noise",
    "nn.activations",
    "nn.integrators",
    "nn.layers",
    "nn",
    "checking",
    "priors",
    "likelihoods",
    "model",
    "data",
    "prediction",
    "objectives",
    "compilation",
    "distributed",
    "training.recipe",
    "training.result",
    "training.progress",
    "training.checkpoint",
    "training.devices",
    "training.program",
    "training.lanes",
    "training.preparation",
    "training.session",
    "training.engine",
    "training",
    "streaming.source",
    "streaming.*",
    "persistence",
    "regressor_inputs",
    "regressor_options",
    "regressor_methods",
    "regressor_training",
    "regressor",
    "regressor_streaming",
    "regressor_state",
    "onnx_graph",
    "onnx_export",
    "skpro",
    "baselines.*",
    "bench.*",
    "tables.errors",
    "tables.*",
    "cli.shared",
    "cli.*",
    "__main__",
]

# The side branch: NumPy and SciPy only. The main branch may import it, never the other way round.
NUMPY_ORDER = [
    "_mixture",
    "_members",
    "_predictive_checks",
    "predictive",
    "metrics",
    "scoring",
    "conformal",
    "importance",
    "scorecard",
    "diagnostics",
    "plotting.style",
    "plotting.judging",
    "plotting.shapes",
    "plotting",
    "report.numerals",
    "report.svg",
    "report.charts",
    "report.regions",
    "report.words",
    "report.files",
    "report.targets",
    "report.page",
    "report.benchmark",
    "report",
]

# Imports inside a function that may point upward: what saves, exports or streams is rarely asked
# for, and is built on top of what it belongs to.
DEFERRED = {
    ("regressor", "regressor_state"),
    ("regressor", "onnx_export"),
    ("training.engine", "streaming.engine"),
    ("training.engine", "streaming.source"),
}

JAX = {"jax", "jaxlib", "jaxtyping", "equinox", "optax"}


def module_name(path: pathlib.Path) -> str:
    """`nn.layers` for src/varprop/nn/layers.py, `nn` for its __init__, "" for varprop itself."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {module_name(path): path for path in sorted(ROOT.rglob("*.py"))}


def imports(name: str):
    """Yield (module, whether it is inside a function) for every import in a file."""
    tree = ast.parse(FILES[name].read_text())
    inside = {
        node
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node in inside
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name} has a relative import: write it out"
            for alias in node.names:
                # `from varprop import nn` means varprop.nn, `from varprop.nn import Dense` too.
                longer = f"{node.module}.{alias.name}"
                is_module = longer.removeprefix("varprop.") in FILES
                yield (longer if is_module else node.module), node in inside


def own_imports(name: str):
    """The same, for modules of this library only, without the prefix."""
    for module, deferred in imports(name):
        if module.startswith("varprop."):
            yield module.removeprefix("varprop."), deferred


def rank(name: str, order: list[str]) -> int | None:
    """Place in an order; a package listed with `.*` gives one place to all its files."""
    for position, entry in enumerate(order):
        package = entry.removesuffix(".*")
        if name == package or (entry.endswith(".*") and name.startswith(package + ".")):
            return position
    return None


def test_every_file_has_its_place():
    lost = [name for name in FILES if name and rank(name, ORDER + NUMPY_ORDER) is None]
    assert not lost, f"give these files a place in the orders of {__file__}: {lost}"
    assert len(set(ORDER + NUMPY_ORDER)) == len(ORDER + NUMPY_ORDER)


@pytest.mark.parametrize("name", [name for name in FILES if name])
def test_imports_go_one_way(name):
    place = rank(name, ORDER)
    for imported, deferred in own_imports(name):
        if deferred and (name, imported) in DEFERRED:
            continue
        if place is None:  # the NumPy branch
            below = rank(imported, NUMPY_ORDER)
            assert below is not None, f"{name} imports {imported}, which is not of the NumPy branch"
            assert below < rank(name, NUMPY_ORDER), f"{name} imports {imported}: an upward arrow"
        elif rank(imported, NUMPY_ORDER) is None:
            below = rank(imported, ORDER)
            same_package = ORDER[place].endswith(".*") and below == place
            assert below < place or same_package, f"{name} imports {imported}: an upward arrow"


@pytest.mark.parametrize("name", [name for name in FILES if rank(name, NUMPY_ORDER) is not None])
def test_the_numpy_branch_knows_nothing_of_jax(name):
    found = {module.split(".")[0] for module, _ in imports(name)}
    assert not found & JAX


def test_an_upward_arrow_is_seen(tmp_path, monkeypatch):
    """The tests above can fail: files that break each rule do."""

    def write(name, text):
        path = tmp_path / f"{name}.py"
        path.write_text(text)
        monkeypatch.setitem(FILES, name, path)

    write("moments", "from varprop.nn.layers import Dense")
    write("covariance", "def late():\n    from varprop import nn")
    for name in ("moments", "covariance"):
        with pytest.raises(AssertionError, match="an upward arrow"):
            test_imports_go_one_way(name)
    write("metrics", "import jax.numpy as jnp\nfrom varprop.moments.gaussian import Gaussian")
    with pytest.raises(AssertionError, match="not of the NumPy branch"):
        test_imports_go_one_way("metrics")
    with pytest.raises(AssertionError):
        test_the_numpy_branch_knows_nothing_of_jax("metrics")
    write("novelty", "")
    with pytest.raises(AssertionError, match="novelty"):
        test_every_file_has_its_place()


def test_importing_the_library_is_light():
    """No plotting, no tables, no scikit-learn until they are asked for."""
    heavy = ["matplotlib", "pandas", "sklearn", "dask", "pyarrow", "onnx", "typer", "rich", "pooch"]
    program = f"import sys, varprop, varprop.nn; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout.strip() == "[]"


def test_importing_leaves_the_configuration_alone():
    """JAX's precision and promotion are the user's to choose."""
    program = (
        "import jax; before = dict(jax.config.values); import varprop, varprop.nn; "
        "after = jax.config.values; print([k for k in after if before.get(k) != after[k]])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout.strip() == "[]"


def test_a_class_is_abstract_or_final():
    """Equinox's rule: nothing concrete is subclassed, so no concrete method is ever overridden."""
    for name in varprop.__all__:
        getattr(varprop, name)  # they are imported when asked for
    modules = [vars(module) for name, module in sys.modules.items() if name.startswith("varprop")]
    classes = {
        value
        for members in modules
        for value in members.values()
        if inspect.isclass(value)
        and issubclass(value, eqx.Module)
        and value.__module__.startswith("varprop")
    }
    assert len(classes) > 40
    for kind in classes:
        for base in kind.__bases__:
            if base.__module__.startswith("varprop"):
                assert base.__name__.startswith("Abstract"), f"{kind.__name__} extends {base}"
