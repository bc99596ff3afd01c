"""The runner of mutants: what it changes, that its lists are up to date, that it can fail."""

import ast
import importlib.util
import pathlib
import sqlite3
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parent.parent


@pytest.fixture(scope="module")
def mutants():
    place = importlib.util.spec_from_file_location("mutants", ROOT / "tools" / "mutants.py")
    module = importlib.util.module_from_spec(place)
    place.loader.exec_module(module)
    return module


def changes(mutants, text):
    """Every change to the only expression or statement in which it is one."""
    found = set()
    for node, parent in mutants.places(ast.parse(text)):
        for variant in mutants.variants(node, parent):
            found.add(mutants.replaced(text, node, mutants.spelled(variant, node)))
    return found


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("x = a + b", {"x = (a - b)"}),
        ("x = a * b", {"x = (a / b)"}),
        ("x = a < b", {"x = (a <= b)", "x = (a > b)"}),
        ("x = a == b", {"x = (a != b)"}),
        ("x = a and b", {"x = (a or b)"}),
        ("x = not a", {"x = (a)"}),
        ("x = 1", {"x = 2"}),
        ("x = 0.5", {"x = 1.0"}),
        ("max(a)", {"min(a)", "pass"}),
        ("x = f(a, axis=k)", {"x = (f(a))"}),
        ("x = f(a, axis=1)", {"x = (f(a))", "x = f(a, axis=2)"}),
        ("x = f(x)", {"pass"}),
        ("x = f(y)", set()),
        ("self.x = f(y)", {"pass"}),
        ("x: Literal[1] = y", set()),
        ('"""Words, 1 + 1."""', set()),
        ('x = f"{a + b}"', set()),
        ("zip(a, b, strict=True)", {"pass"}),
    ],
)
def test_what_is_changed(mutants, text, wanted):
    assert changes(mutants, text) == wanted


def test_every_mutant_is_another_program(mutants):
    for file in ("moments/gaussian.py", "training/schedule.py"):
        source = (ROOT / "src/varprop" / file).read_text()
        found = mutants.mutants_of(file, 40, seed=0)
        assert len({mutant.line for mutant in found}) == len(found) == 40
        assert [m.id for m in found] == [m.id for m in mutants.mutants_of(file, 40, seed=0)]
        for mutant in found:
            assert ast.dump(ast.parse(mutant.text)) != ast.dump(ast.parse(source))


def test_the_table_names_files_that_are_there(mutants):
    for file, (count, tests) in mutants.TESTS.items():
        assert (ROOT / "src/varprop" / file).exists()
        assert count > 0
        for name in tests.split():
            module, _, test = name.partition("::")
            assert f"def {test}" in (ROOT / f"tests/test_{module}.py").read_text()


def test_equivalent_changes_still_have_their_line(mutants):
    for (file, change), reason in mutants.EQUIVALENT.items():
        text = " ".join((ROOT / "src/varprop" / file).read_text().split())
        assert change.split("  ->  ")[0] in text, (file, change)
        assert reason.endswith(".")


def test_a_run_from_start_to_end(tmp_path):
    """Two functions and one test: what it looks at is killed, what it does not survives."""
    for folder in ("tools", "src/varprop/room", "tests"):
        (tmp_path / folder).mkdir(parents=True)
    script = (ROOT / "tools/mutants.py").read_text()
    start = script.index("TESTS: dict"), script.index("#: Changes that change nothing")
    table = 'TESTS: dict[str, tuple[int, str]] = {"room/sums.py": (9, "sums")}\n\n'
    (tmp_path / "tools/mutants.py").write_text(script[: start[0]] + table + script[start[1] :])
    (tmp_path / "pyproject.toml").write_text("[tool.pytest.ini_options]\naddopts = []\n")
    for name in ("src/varprop", "src/varprop/room"):
        (tmp_path / name / "__init__.py").write_text("")
    source = "def add(a, b):\n    return a + b\n\n\ndef sub(a, b):\n    return a - b\n"
    (tmp_path / "src/varprop/room/sums.py").write_text(source)
    (tmp_path / "tests/test_sums.py").write_text(
        "from varprop.room.sums import add, sub\n\n\n"
        "def test_add():\n    assert add(1, 2) == 3\n    sub(1, 2)\n"
    )
    command = [sys.executable, "tools/mutants.py", "--store", str(tmp_path / "m.sqlite")]
    for arguments, code in (([], 0), (["--show", "--at-least", "0.9"], 1)):
        done = subprocess.run(
            [*command, *arguments], cwd=tmp_path, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == code, done.stdout + done.stderr
        (row,) = (line.split() for line in done.stdout.splitlines() if line.startswith("all "))
        assert row == ["all", "1", "0", "1", "0", "50.0%"]
        assert "room/sums.py:6" in done.stdout
    assert (tmp_path / "src/varprop/room/sums.py").read_text() == source
    store = sqlite3.connect(tmp_path / "m.sqlite")
    results = store.execute("SELECT result FROM mutants").fetchall()
    store.close()
    assert sorted(results) == [("survived",), ("tests/test_sums.py::test_add",)]
