"""Imports go one way, room by room; most rooms know nothing of JAX; importing stays light.

A new package fails here until it has been given its place below: that is the moment to think about
where it belongs.
"""

import ast
import graphlib
import inspect
import pathlib
import subprocess
import sys

import equinox as eqx
import pytest

import varprop

ROOT = pathlib.Path(varprop.__file__).parent

# A room may import only rooms that stand before it.
ROOMS = [
    "errors",
    "atomic",
    "brief",
    "compilation",
    "stopping",
    "moments",
    "nn",
    "data",
    "predictive",
    "learning",
    "plans",
    "training",
    "estimators",
    "decisions",
    "files",
    # Applications: each uses the rooms above and is used by none of them.
    "baselines",
    "bench",
    "plotting",
    "report",
    "tables",
    "exports",
    "cli",
    "__main__",
]

# NumPy and SciPy only: what comes in, what comes out, and how training is scheduled.
WITHOUT_JAX = [
    "errors",
    "atomic",
    "brief",
    "stopping",
    "data",
    "predictive",
    "plans",
    "plotting",
    "report",
]
WITHOUT_JAX += ["moments.constants", "training.recipe", "training.schedule"]
# What reads a plan from a file.
WITHOUT_JAX += ["files.container", "files.header", "files.plan", "files.seen"]

# The arrows that point back, inside functions: an estimator saves and exports itself, and what a
# notebook shows of it and of predictions is drawn where pages are.
DEFERRED = {("estimators", "files"), ("estimators", "report"), ("predictive", "report")}

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


def room(name: str) -> str:
    """`nn` for `nn.layers`; a file at the top is a room of its own."""
    return name.split(".")[0]


def test_every_file_is_in_a_room():
    lost = {room(name) for name in FILES if name} - set(ROOMS)
    assert not lost, f"give these a place in the order of {__file__}: {lost}"


@pytest.mark.parametrize("name", [name for name in FILES if name])
def test_imports_go_one_way(name):
    place = ROOMS.index(room(name))
    for imported, deferred in own_imports(name):
        if deferred and (room(name), room(imported)) in DEFERRED:
            continue
        below = ROOMS.index(room(imported))
        assert below <= place, f"{name} imports {imported}: an upward arrow"


def test_no_file_imports_itself_by_a_detour():
    graph = {
        name: {imported for imported, deferred in own_imports(name) if not deferred} - {name}
        for name in FILES
        if name and not FILES[name].name.startswith("__")
    }
    graphlib.TopologicalSorter(graph).prepare()  # raises CycleError


@pytest.mark.parametrize(
    "name", [n for n in FILES if n and (room(n) in WITHOUT_JAX or n in WITHOUT_JAX)]
)
def test_these_rooms_know_nothing_of_jax(name):
    found = {module.split(".")[0] for module, _ in imports(name)}
    assert not found & JAX
    for imported, _ in own_imports(name):
        assert {room(imported), imported} & set(WITHOUT_JAX), f"{name} imports {imported}"


def test_an_upward_arrow_is_seen(tmp_path, monkeypatch):
    """The tests above can fail: files that break each rule do."""

    def write(name, text):
        path = tmp_path / f"{name}.py"
        path.write_text(text)
        monkeypatch.setitem(FILES, name, path)

    write("moments.gaussian", "from varprop.nn.layers import Dense")
    write("nn.weights", "def late():\n    from varprop import training")
    for name in ("moments.gaussian", "nn.weights"):
        with pytest.raises(AssertionError, match="an upward arrow"):
            test_imports_go_one_way(name)
    write("predictive.metrics", "import jax.numpy as jnp")
    with pytest.raises(AssertionError):
        test_these_rooms_know_nothing_of_jax("predictive.metrics")
    write("predictive.metrics", "from varprop.moments.gaussian import Gaussian")
    with pytest.raises(AssertionError):
        test_these_rooms_know_nothing_of_jax("predictive.metrics")
    write("moments.numerics", "from varprop.moments.gaussian import Gaussian")
    write("moments.gaussian", "from varprop.moments.numerics import square_root")
    with pytest.raises(graphlib.CycleError):
        test_no_file_imports_itself_by_a_detour()
    write("novelty", "")
    with pytest.raises(AssertionError, match="novelty"):
        test_every_file_is_in_a_room()


def test_files_can_be_read_in_one_sitting():
    long = {name: n for name, path in FILES.items() if (n := path.read_text().count("\n")) > 400}
    assert not long
    assert len([path for path in ROOT.iterdir() if path.is_file()]) <= 12


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
