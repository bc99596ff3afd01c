"""Damage the library on purpose, line by line, and see whether its tests notice.

A mutant is one small change to one source file: another sign, another comparison, a condition
turned round, a keyword left out, a statement deleted. `TESTS` says which test files must notice a
change to which source file. A seeded sample of mutants per file is written, one after the other,
into a copy of the tree (never in place), where these tests run until the first one fails. A change
that no test fails on has *survived*: a test is missing, or the change does not matter, and then
`EQUIVALENT` says why.

    python tools/mutants.py                          # all rooms; results are kept, work resumes
    python tools/mutants.py moments nn/layers.py     # some rooms or files
    python tools/mutants.py --list                   # which mutants there are; nothing is run
    python tools/mutants.py --show                   # what is known so far; nothing is run

First every test file runs once on the sound code, which notes how long each test takes and which
lines it passes. A mutant meets the quickest tests of its lines first and then all tests of its
file. Ctrl-C stops; another call goes on. What was killed is not tried again unless its source
changes, what survived is tried again when one of its tests has changed.
"""

import argparse
import ast
import collections
import copy
import difflib
import hashlib
import itertools
import json
import os
import pathlib
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
PACKAGE = "src/varprop"

_DEVICES = "distributed::test_devices_and_processes_train_as_one_device"
_PROCESSES = f"streaming {_DEVICES} distributed::test_ctrl_c_in_one_process_stops_both"
_SETTINGS = "bench_estimator::test_settings_are_the_ones_written_down"
#: Source file -> how many mutants are drawn, and the test files that must notice them.
TESTS: dict[str, tuple[int, str]] = {
    "moments/checks.py": (6, "survivors_core moments bad_input"),
    "moments/covariance.py": (9, "covariance moments"),
    "moments/gaussian.py": (11, "moments covariance"),
    "moments/numerics.py": (12, "numerics rectifier activations"),
    "nn/activations.py": (9, "activations rectifier twins bad_input pairs"),
    "nn/checking.py": (8, "checking bad_input"),
    "nn/contract.py": (3, "propagation rows_together checking"),
    "nn/integrators.py": (11, "survivors_core integrators activations bad_input"),
    "nn/layers.py": (11, "layers noise bad_input rows_together"),
    "nn/noise.py": (8, "noise layers bad_input rows_together"),
    "nn/parameters.py": (7, "parameters objectives"),
    "nn/propagation.py": (4, "propagation layers"),
    "nn/registry.py": (5, "regressor persistence"),
    "nn/variables.py": (7, "survivors_core noise twins bad_input"),
    "nn/weights.py": (9, "survivors_core weights layers bad_input"),
    "learning/likelihoods/gaussian.py": (
        11,
        "survivors_core likelihoods likelihoods_integrals likelihoods_noise_of_input objectives",
    ),
    "learning/likelihoods/bernoulli.py": (4, "classes"),
    "learning/likelihoods/categorical.py": (4, "classes"),
    "learning/likelihoods/censored.py": (5, "likelihoods_censored"),
    "learning/likelihoods/counts.py": (5, "likelihoods_counts"),
    "learning/likelihoods/ordinal.py": (4, "classes"),
    "learning/likelihoods/student.py": (3, "likelihoods_student"),
    "learning/likelihoods/transformed.py": (3, "likelihoods_transformed"),
    "learning/objectives.py": (9, "survivors_core objectives"),
    "learning/priors.py": (11, "survivors_core priors objectives"),
    "training/preparation.py": (9, f"survivors_training outcomes training prediction {_DEVICES}"),
    "training/program.py": (10, f"training schedules shuffle outcomes {_DEVICES}"),
    "training/recipe.py": (9, "survivors_training schedules plan"),
    "training/runner.py": (10, f"survivors_training outcomes training checkpoint {_PROCESSES}"),
    "training/schedule.py": (12, "survivors_training plan schedules"),
    "estimators/inputs.py": (11, "survivors_estimator regressor one_way"),
    "estimators/members.py": (11, "survivors_estimator regressor interrupted_fits"),
    "estimators/options.py": (11, "survivors_estimator regressor"),
    "estimators/stacking.py": (3, "stack"),
    "estimators/validation.py": (4, "validation stack"),
    "plans/class_ends.py": (3, "plans"),
    "plans/ends.py": (3, "plans"),
    "plans/plan.py": (3, "plans"),
    "plans/propagation.py": (4, "plans"),
    "plans/rules.py": (4, "plans"),
    "predictive/blend.py": (3, "blend"),
    "predictive/categories.py": (3, "categories"),
    "predictive/counts.py": (3, "counts"),
    "predictive/mixtures.py": (4, "predictive metrics"),
    "predictive/warped.py": (3, "warped"),
    "bench/cells.py": (9, "survivors_bench bench_estimator bench_store"),
    "bench/methods.py": (8, f"{_SETTINGS} survivors_bench bench_estimator"),
    "bench/protocol.py": (7, "survivors_bench bench_estimator"),
    "bench/registry.py": (9, "survivors_bench bench_data"),
}

#: Changes that change nothing, or nothing that can be seen: (file, "old -> new") -> why.
EQUIVALENT: dict[tuple[str, str], str] = {
    (
        "moments/numerics.py",
        "root = jnp.sqrt(jnp.where(positive, x, 1.0))  ->  "
        "root = jnp.sqrt(jnp.where(positive, x, 2.0))",
    ): "A number that is not selected in the end.",
    (
        "nn/activations.py",
        "wide = jnp.where(small, 1.0, var)  ->  wide = jnp.where(small, 2.0, var)",
    ): "A number that is not selected in the end.",
    (
        "nn/noise.py",
        "return moments  ->  return -moments",
    ): "Covariances take the square of its mean, and its variance.",
    (
        "nn/parameters.py",
        "sizes = [int(np.prod(shape, dtype=int)) for shape in self.shapes]  ->  "
        "sizes = [int((np.prod(shape))) for shape in self.shapes]",
    ): "The product of no numbers is the float 1.0, of which int() makes the same 1.",
    (
        "nn/parameters.py",
        "if isinstance(params, np.ndarray):  ->  if (True):",
    ): "NumPy's split of a JAX array gives the same slices; it only compiles to slower programs.",
    (
        "learning/likelihoods/gaussian.py",
        "if isinstance(total, JointGaussian):  ->  if (True):",
    ): "Gaussian.log_prob is the same density; it only has a case for a variance of 0 as well.",
    (
        "learning/priors.py",
        "per_layer: ClassVar[bool] = False  ->  per_layer: ClassVar[bool] = True",
    ): "The same sum, layer by layer instead of in one go: slower, no other number.",
    (
        "training/program.py",
        "trace_count = 0  ->  trace_count = 1",
    ): "Tests look at the difference of two counts only.",
    (
        "training/preparation.py",
        "inputs if mesh is None else on_devices(inputs, mesh),  ->  "
        "inputs if (mesh is not None) else on_devices(inputs, mesh),",
    ): "A compiled program places what is not placed yet, at the cost of a copy per call.",
    (
        "training/preparation.py",
        "out = jax.eval_shape(lambda *x: model.network.moments(as_input(*x)).mean, *row).shape[-1]"
        "  ->  "
        "out = jax.eval_shape(lambda *x: model.network.moments(as_input(*x)).mean, *row)"
        ".shape[(1)]",
    ): "The output of a batch has two axes: the last is number 1.",
    (
        "learning/likelihoods/bernoulli.py",
        "return sign * (f.mean[..., 0] + self.offset), f.variances()[..., 0]  ->  "
        "return sign * (f.mean[..., 1] + self.offset), f.variances()[..., 0]",
    ): "There is one output, and JAX takes the last entry for an index beyond it.",
    (
        "nn/contract.py",
        'return jnp.einsum("mnr,mkr->nkr", matrix, jnp.broadcast_to(g, (*g.shape[:2], rows)))'
        "  ->  "
        "return -jnp.einsum('mnr,mkr->nkr', matrix, jnp.broadcast_to(g, (*g.shape[:2], rows)))",
    ): "All derivatives of a source change sign together; what comes out has products of two.",
    (
        "nn/propagation.py",
        "shape = (len(trace.out.mean), weight.shape[-1])  ->  "
        "shape = (len(trace.out.mean), weight.shape[(1)])",
    ): "Units and rows are two axes: the last is number 1.",
    (
        "plans/propagation.py",
        "rho = np.maximum(np.minimum(cov * rho[:, None] * rho[..., None], 1), -1)  ->  "
        "rho = np.maximum(np.minimum(cov * rho[:, None] * rho[..., None], 1), -2)",
    ): "Only rounding takes a correlation beyond -1, and a power series returns it as rounding.",
    (
        "bench/protocol.py",
        '"coverage90": metrics.interval_coverage(y, prediction, coverage=0.9),  ->  '
        '"coverage90": (metrics.interval_coverage(y, prediction)),',
    ): "0.9 is the default.",
    (
        "predictive/blend.py",
        "P = TypeVar(\"P\", bound=AbstractPredictive)  ->  P = (TypeVar('P'))",
    ): "Types are for the type checker.",
    (
        "predictive/warped.py",
        "return self._public(np.where(slope == -np.inf, 0.0, self.warp.forward(y))), slope  ->  "
        "return self._public(np.where(slope == -np.inf, 1.0, self.warp.forward(y))), slope",
    ): "A number that is not selected in the end.",
}

PYTEST = [sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "--tb=line"]
PYTEST += ["-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:randomly"]

# ---- making mutants -----------------------------------------------------------------------------

BINARY = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
}
COMPARE = {
    ast.Lt: (ast.LtE, ast.Gt),
    ast.LtE: (ast.Lt, ast.GtE),
    ast.Gt: (ast.GtE, ast.Lt),
    ast.GtE: (ast.Gt, ast.LtE),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
CONSTANTS = {0: 1, 1: 2, 2: 3, 0.5: 1.0}  # as floats too
NAMES = {"max": "min", "min": "max", "maximum": "minimum", "minimum": "maximum"}
NAMES |= {"any": "all", "all": "any", "cumsum": "cumprod", "ones": "zeros", "zeros": "ones"}
#: Arguments that only forbid (a second length, an assignment) or say where a warning points to.
GUARDS = {"strict", "frozen", "kw_only", "stacklevel"}


def changed(node: ast.AST, **fields) -> ast.AST:
    new = copy.deepcopy(node)
    for name, value in fields.items():
        setattr(new, name, value)
    return new


def variants(node: ast.AST, parent: ast.AST):
    """All small changes to one node, each as the node that takes its place."""
    if isinstance(node, ast.BinOp | ast.AugAssign) and type(node.op) in BINARY:
        if not is_text(node):
            yield changed(node, op=BINARY[type(node.op)]())
    elif isinstance(node, ast.Compare):
        for i, op in enumerate(node.ops):
            for other in COMPARE[type(op)]:
                yield changed(node, ops=[*node.ops[:i], other(), *node.ops[i + 1 :]])
    elif isinstance(node, ast.BoolOp):
        yield changed(node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And())
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
        yield node.operand
    elif isinstance(node, ast.Constant):
        if isinstance(node.value, bool):
            yield ast.Constant(not node.value)
        elif isinstance(node.value, int | float) and node.value in CONSTANTS:
            yield ast.Constant(type(node.value)(CONSTANTS[node.value]))
    elif isinstance(node, ast.Name) and node.id in NAMES:
        yield changed(node, id=NAMES[node.id])
    elif isinstance(node, ast.Attribute) and node.attr in NAMES and isinstance(parent, ast.Call):
        yield changed(node, attr=NAMES[node.attr])
    elif isinstance(node, ast.IfExp):
        yield changed(node, test=ast.UnaryOp(ast.Not(), node.test))
    elif isinstance(node, ast.Return) and node.value is not None:
        if isinstance(node.value, ast.BinOp | ast.Call | ast.Name):
            yield changed(node, value=ast.UnaryOp(ast.USub(), node.value))
        elif isinstance(node.value, ast.Tuple):
            first, *rest = node.value.elts
            yield changed(node, value=ast.Tuple([ast.UnaryOp(ast.USub(), first), *rest]))
        elif not (isinstance(node.value, ast.Constant) and node.value.value is None):
            yield changed(node, value=None)
    if isinstance(node, ast.Call):
        for i, keyword in enumerate(node.keywords):
            if keyword.arg is not None and keyword.arg not in GUARDS:
                yield changed(node, keywords=node.keywords[:i] + node.keywords[i + 1 :])
    if deletable(node):
        yield ast.Pass()


def is_text(node: ast.AST) -> bool:
    return any(
        isinstance(part, ast.JoinedStr) or isinstance(getattr(part, "value", None), str)
        for part in ast.iter_child_nodes(node)
    )


def deletable(node: ast.AST) -> bool:
    """Whether to delete a statement; one that first names a thing would only be a NameError."""
    if isinstance(node, ast.Assign):
        names = {part.id for part in ast.walk(node.value) if isinstance(part, ast.Name)}
        (target, *_) = node.targets
        return not isinstance(target, ast.Name | ast.Tuple) or (
            isinstance(target, ast.Name) and target.id in names
        )
    if isinstance(node, ast.Expr):
        return not isinstance(node.value, ast.Constant)
    return isinstance(node, ast.AugAssign | ast.Raise)


def places(tree: ast.AST, parent: ast.AST | None = None):
    """Every node that is code, with its parent: no annotations, docstrings or lists of names."""
    for name, value in ast.iter_fields(tree):
        if name in ("annotation", "returns", "type_params", "bases"):
            continue
        for node in value if isinstance(value, list) else [value]:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
                continue
            if isinstance(node, ast.JoinedStr) or not isinstance(node, ast.AST):
                continue  # texts of messages
            if isinstance(node, ast.keyword) and node.arg in GUARDS:
                continue
            yield node, tree
            yield from places(node, tree)


def replaced(text: str, node: ast.AST, new: str) -> str:
    lines = text.encode().splitlines(keepends=True)
    start = sum(map(len, lines[: node.lineno - 1])) + node.col_offset
    end = sum(map(len, lines[: node.end_lineno - 1])) + node.end_col_offset
    data = text.encode()
    return (data[:start] + new.encode() + data[end:]).decode()


def spelled(node: ast.AST, old: ast.AST) -> str:
    text = ast.unparse(ast.fix_missing_locations(node))
    return text if isinstance(old, ast.stmt | ast.Constant | ast.Name) else f"({text})"


class Mutant:
    """One changed file: its name in the package, its text, the lines it touches."""

    def __init__(self, file: str, source: str, text: str, first: int, last: int):
        self.file, self.text, self.line, self.lines = file, text, first, range(first, last + 1)
        diff = list(difflib.unified_diff(source.splitlines(), text.splitlines(), n=0, lineterm=""))
        old = " ".join(line[1:].strip() for line in diff[3:] if line[0] == "-")
        new = " ".join(line[1:].strip() for line in diff[3:] if line[0] == "+")
        self.change = f"{old}  ->  {new}"
        self.id = hashlib.sha256(f"{file}\0{source}\0{text}".encode()).hexdigest()[:16]


def mutants_of(file: str, count: int, seed: int) -> list[Mutant]:
    """A seeded sample, at most one per line."""
    source = (ROOT / PACKAGE / file).read_text()
    found: dict[int, list[tuple[ast.AST, str]]] = collections.defaultdict(list)
    for node, parent in places(ast.parse(source)):
        if not hasattr(node, "lineno"):
            continue
        for variant in variants(node, parent):
            found[node.lineno].append((node, spelled(variant, node)))
        if isinstance(node, ast.If | ast.While):
            for test in (f"not ({ast.unparse(node.test)})", "False", "True"):
                if test != "True" or isinstance(node, ast.If):
                    found[node.lineno].append((node.test, f"({test})"))
    draw = random.Random(f"{seed}/{file}")
    mutants = []
    for line in sorted(draw.sample(sorted(found), min(count, len(found)))):
        node, new = draw.choice(found[line])
        text = replaced(source, node, new)
        ast.parse(text)  # a syntax error would be no mutant
        mutants.append(Mutant(file, source, text, line, node.end_lineno))
    return mutants


# ---- which test passes which line ---------------------------------------------------------------


class Watch:
    """A plugin of pytest: writes, per test, how long it took and which lines it passed."""

    def __init__(self):
        self.root = str(pathlib.Path(os.environ["MUTANTS_ROOT"]) / PACKAGE) + "/"
        self.seen: dict[str, set[int]] = collections.defaultdict(set)
        self.tests: dict[str, dict] = {}

    def look(self, frame, event, argument):
        name = frame.f_code.co_filename
        if not name.startswith(self.root):
            return None
        lines = self.seen[name.removeprefix(self.root)]

        def line(frame, event, argument):
            lines.add(frame.f_lineno)
            return line

        lines.add(frame.f_lineno)
        return line

    def pytest_runtest_protocol(self, item, nextitem):
        self.seen.clear()
        self.begin = time.monotonic()
        sys.settrace(self.look)

    def pytest_runtest_logfinish(self, nodeid, location):
        sys.settrace(None)
        lines = {name: sorted(lines) for name, lines in self.seen.items()}
        self.tests[nodeid] = {"seconds": time.monotonic() - self.begin, "lines": lines}

    def pytest_sessionfinish(self):
        pathlib.Path(os.environ["MUTANTS_WATCH"]).write_text(json.dumps(self.tests))


def pytest_configure(config):  # this file is the plugin where a map is made
    if "MUTANTS_WATCH" in os.environ:
        config.pluginmanager.register(Watch())


# ---- running ------------------------------------------------------------------------------------


class Runner:
    """A copy of the tree, and the store of what is known."""

    def __init__(self, store: pathlib.Path, folder: pathlib.Path):
        self.folder, self.file = folder, None
        for name in ("src", "tests"):
            skip = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, folder / name, ignore=skip)
        shutil.copy(ROOT / "pyproject.toml", folder)
        self.seen: dict[str, dict] = {}
        self.tests = {file: self._targets(file) for file in TESTS}
        self.texts = {
            target: (folder / target.partition("::")[0]).read_text()
            for target in itertools.chain(*self.tests.values())
        }
        store.parent.mkdir(parents=True, exist_ok=True)
        self.store = sqlite3.connect(store, isolation_level=None)
        self.store.execute("CREATE TABLE IF NOT EXISTS tests (id PRIMARY KEY, watched)")
        self.store.execute("CREATE TABLE IF NOT EXISTS mutants (id PRIMARY KEY, result, tests, s)")
        self.environment = os.environ | {
            "PYTHONPATH": os.pathsep.join([str(folder / "src"), str(ROOT / "tools")]),
            "MUTANTS_ROOT": str(folder),
            "JAX_COMPILATION_CACHE_DIR": str(store.with_suffix(".compiled")),
            "PYTHONDONTWRITEBYTECODE": "1",
            "VARPROP_DATA": "",
        }
        # As tests/conftest.py finds out, once for all.
        flag = {"XLA_FLAGS": "--xla_cpu_use_fusion_emitters=false"}
        ask = [sys.executable, "-c", "import jax; jax.numpy.zeros(1)"]
        if subprocess.run(ask, env=os.environ | flag, capture_output=True).returncode == 0:
            self.environment |= flag

    def pytest(self, arguments: list[str], seconds: float, more: dict[str, str] | None = None):
        """Exit code and output; None if time ran out."""
        process = subprocess.Popen(
            ["nice", "-n", "10", *PYTEST, *arguments],
            cwd=self.folder,
            env=self.environment | (more or {}),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,  # so that what a test starts ends with it
        )
        try:
            output = process.communicate(timeout=seconds)[0]
            return process.returncode, output
        except subprocess.TimeoutExpired:
            return None, ""
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def _targets(self, file: str) -> list[str]:
        """The tests of a source file: its own examples, and its test files."""
        split = (name.partition("::") for name in TESTS[file][1].split())
        return [f"{PACKAGE}/{file}", *(f"tests/test_{name}.py{a}{b}" for name, a, b in split)]

    def digest(self, file: str) -> str:
        texts = "".join(self.texts[target] for target in self.tests[file])
        return hashlib.sha256(texts.encode()).hexdigest()[:16]

    def watched(self, target: str) -> dict[str, dict]:
        """Seconds and lines of every test of a file on the sound code, from the store if known."""
        if target in self.seen:
            return self.seen[target]
        id = hashlib.sha256(f"{target}\0{self.texts[target]}".encode()).hexdigest()
        found = self.store.execute("SELECT watched FROM tests WHERE id = ?", (id,)).fetchone()
        if found is None:
            print(f"{target}: once on the sound code ...", end=" ", flush=True)
            with tempfile.NamedTemporaryFile() as file:
                more = {"MUTANTS_WATCH": file.name}
                code, output = self.pytest(["-p", "mutants", target], 1800, more)
                found = (pathlib.Path(file.name).read_text(),)
            if code not in (0, 5) and target.startswith("src"):
                found = ("{}",)  # examples that need what other tests import: left out
            elif code not in (0, 5):
                sys.exit(f"the tests fail on the sound code:\n{output}")
            self.store.execute("INSERT OR REPLACE INTO tests VALUES (?, ?)", (id, *found))
            print(f"{sum(test['seconds'] for test in json.loads(found[0]).values()):.0f} s")
        self.seen[target] = json.loads(found[0])
        return self.seen[target]

    def run(self, mutant: Mutant) -> str:
        """Return the name of the test that noticed, "timeout", or "survived"."""
        place = self.folder / PACKAGE / mutant.file
        sound = place.read_text()
        lines = set(mutant.lines)
        stages: list[tuple[list[str], float]] = []
        # First the quickest tests of the lines, file by file, and only then whole files.
        # Examples and the first file share a process, whose start costs as much as their tests.
        first, second, *others = self.tests[mutant.file]
        for targets in ([first, second], *([target] for target in others)):
            near: list[tuple[float, str]] = []
            for target in targets:
                tests = self.watched(target)
                stages.append(([target], sum(test["seconds"] for test in tests.values())))
                near += (
                    (test["seconds"], name)
                    for name, test in tests.items()
                    if lines & set(test["lines"].get(mutant.file, ()))
                )
            near = sorted(near)[:25]
            place.write_text(mutant.text)
            try:
                names = [name for _, name in near]
                result = self.noticed(names, sum(seconds for seconds, _ in near))
            finally:
                place.write_text(sound)
            if result is not None:
                return result
        place.write_text(mutant.text)
        try:
            found = (self.noticed(targets, seconds) for targets, seconds in stages)
            return next((result for result in found if result is not None), "survived")
        finally:
            place.write_text(sound)

    def noticed(self, targets: list[str], seconds: float) -> str | None:
        """Return which of these tests fails on the tree as it is, or None."""
        if not seconds:  # no tests
            return None
        code, output = self.pytest(targets, 45 + 6 * seconds)
        if code is None:
            return "timeout"
        if code in (0, 5):
            return None
        known = itertools.chain(*self.seen.values())
        failed = [name for name in known if f"\nFAILED {name}" in output]
        return max(failed, key=len) if failed else "collection"

    def confirm(self, results: list[tuple[Mutant, str]]) -> None:
        """Run on the sound code, and without the rest of its file, every test that noticed."""
        named = collections.defaultdict(set)
        for _, name in results:
            named[name.partition("::")[0]].add(name)
        for file in sorted(named.keys() - {"survived", "timeout", "collection"}):
            code, output = self.pytest(sorted(named[file]), 1800)
            if code != 0:
                sys.exit(f"tests that noticed mutants fail on the sound code too:\n{output}")

    def known(self, mutant: Mutant) -> str | None:
        query = "SELECT result, tests FROM mutants WHERE id = ?"
        found = self.store.execute(query, (mutant.id,)).fetchone()
        if found is None or (found[0] == "survived" and found[1] != self.digest(mutant.file)):
            return None
        return found[0]


def report(results: list[tuple[Mutant, str]]) -> float:
    """Print a line per room and the mutants that survived; return the share that was noticed."""
    rooms: dict[str, collections.Counter] = collections.defaultdict(collections.Counter)
    for mutant, result in results:
        kind = result if result in ("survived", "timeout") else "killed"
        if (mutant.file, mutant.change) in EQUIVALENT:
            kind = "equivalent"
        for room in (mutant.file.split("/")[0], "all"):
            rooms[room][kind] += 1
    columns = ("killed", "timeout", "survived", "equivalent")
    print("\n" + f"{'room':12}" + "".join(f"{name:>12}" for name in columns) + f"{'score':>9}")
    for room in sorted(rooms, key=lambda name: (name == "all", name)):
        counts = rooms[room]
        noticed = counts["killed"] + counts["timeout"]
        score = noticed / max(1, noticed + counts["survived"])  # of "all" in the end
        print(f"{room:12}" + "".join(f"{counts[name]:12}" for name in columns) + f"{score:9.1%}")
    for mutant, result in results:
        if result == "survived":
            reason = EQUIVALENT.get((mutant.file, mutant.change))
            print(f"\n{mutant.file}:{mutant.line}  {'equivalent: ' + reason if reason else ''}")
            print(f"    {mutant.change}")
    return score


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*", help="rooms or source files; all unless given")
    parser.add_argument("--seed", type=int, default=12)
    parser.add_argument("--times", type=float, default=1.0, help="more or fewer mutants per file")
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache"))
    parser.add_argument("--store", type=pathlib.Path, default=cache / "varprop/mutants.sqlite")
    parser.add_argument("--list", action="store_true", help="print the mutants, run nothing")
    parser.add_argument("--show", action="store_true", help="print what is known, run nothing")
    parser.add_argument("--at-least", type=float, default=0.0, help="score below which it fails")
    options = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    names = [
        name
        for name in TESTS
        if not options.files or any(name == f or name.startswith(f"{f}/") for f in options.files)
    ]
    mutants = [
        mutant
        for name in names
        for mutant in mutants_of(name, round(TESTS[name][0] * options.times), options.seed)
    ]
    if options.list:
        for mutant in mutants:
            print(f"{mutant.file}:{mutant.line}  {mutant.change}")
        return
    results: list[tuple[Mutant, str]] = []
    with tempfile.TemporaryDirectory(prefix="varprop-mutants-") as folder:
        runner = Runner(options.store, pathlib.Path(folder))
        try:
            for number, mutant in enumerate(mutants, 1):
                equivalent = (mutant.file, mutant.change) in EQUIVALENT
                result = "survived" if equivalent else runner.known(mutant)
                if result is None and not options.show:
                    begin = time.monotonic()
                    result = runner.run(mutant)
                    seconds = time.monotonic() - begin
                    row = (mutant.id, result, runner.digest(mutant.file), seconds)
                    runner.store.execute("INSERT OR REPLACE INTO mutants VALUES (?, ?, ?, ?)", row)
                    print(
                        f"{number}/{len(mutants)} {mutant.file}:{mutant.line} {mutant.change}\n"
                        f"    {result}  ({seconds:.0f} s)",
                        flush=True,
                    )
                if result is not None:
                    results.append((mutant, result))
            if not options.show:
                runner.confirm(results)
        except KeyboardInterrupt:
            print("\nStopped; another call goes on from here.")
        if report(results) < options.at_least:
            sys.exit(1)


if __name__ == "__main__":
    main()
