"""What the tests of the command line share: a runner, small tables, models fitted once."""

import atexit
import functools
import json
import pathlib
import shutil
import sys
import tempfile

import numpy as np
from typer.testing import CliRunner

from varprop.cli.app import app

QUICK = ("--max-iter", "3", "--hidden", "4")

#: The command as a process that signals reach: what is started in the background, or under nohup,
#: ignores some, and so would everything that it starts.
VARPROP = [
    sys.executable,
    "-c",
    "import os, signal, sys; [signal.signal(kind, signal.SIG_DFL) for kind in (1, 2, 15)]; "
    "os.execv(sys.executable, [sys.executable, '-m', 'varprop', *sys.argv[1:]])",
]


def run(*arguments, code=0, stdin=None):
    """Run a command in this process and check its exit code; its output is for the caller."""
    result = CliRunner().invoke(app, [str(part) for part in arguments], input=stdin)
    assert result.exit_code == code, (result.exit_code, result.output, result.exception)
    return result


def run_json(*arguments, stdin=None):
    """Run a command with --json: standard output is one JSON object and nothing else."""
    return json.loads(run(*arguments, "--json", stdin=stdin).stdout)


def sentence(*arguments, code, stdin=None):
    """Run a command that must fail: one line on standard error, nothing else, no traceback."""
    result = run(*arguments, code=code, stdin=stdin)
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("varprop: ")
    assert line.endswith(".") or line.endswith("?")
    return line.removeprefix("varprop: ")


def houses(n_rows=60, *, holes=True):
    """CSV text with an id, numbers (one with holes), a category, a boolean and two targets."""
    rng = np.random.default_rng(0)
    lines = ["id,size,rooms,city,price,rent"]
    for row in range(n_rows):
        size, rooms = rng.uniform(20, 200), rng.integers(1, 7)
        city = ["Bern", "Ulm"][rng.integers(2)]
        price = 3 * size + 20 * rooms + rng.normal(scale=10)
        cell = "" if holes and row % 10 == 3 else str(rooms)
        lines.append(f"h{row:03d},{size:.2f},{cell},{city},{price:.2f},{price / 7 + rooms:.2f}")
    return "\n".join(lines) + "\n"


@functools.cache
def workplace():
    """A folder with a table and models fitted on it, made once per process."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="varprop-tests-"))
    atexit.register(shutil.rmtree, folder)
    (folder / "houses.csv").write_text(houses())
    (folder / "full.csv").write_text(houses(holes=False))
    common = ("--id", "id", "--holdout", "0.25", *QUICK)
    table = folder / "houses.csv"
    for missing in ("impute", "drop"):
        output = folder / f"{missing}.safetensors"
        options = ("--drop", "rent", "--missing", missing, "-o", output)
        run("fit", table, "-t", "price", *options, *common, "-q")
    output = folder / "two.safetensors"
    run("fit", folder / "full.csv", "-t", "price", "-t", "rent", "--joint", "-o", output, *common)
    return folder
