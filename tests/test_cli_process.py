"""The command line as a process: signals, pipes, full devices, and what help need not import."""

import os
import shlex
import signal
import subprocess
import sys
import time

import pytest

from cli_runs import VARPROP, houses, workplace
from varprop.cli.app import _keep_compiled
from varprop.tables import TableModel


@pytest.fixture
def place(as_users_run_it):
    return workplace()


@pytest.fixture
def environment(tmp_path):
    return os.environ | {"XDG_CACHE_HOME": str(tmp_path / "cache")}


def test_help_imports_nothing_heavy():
    """What makes help slow is what it imports; times would depend on the machine."""
    heavy = ["jax", "numpy", "scipy", "sklearn", "pyarrow", "matplotlib", "pandas", "safetensors"]
    program = (
        "import sys\n"
        "from typer.testing import CliRunner\n"
        "from varprop.cli.app import app\n"
        "for words in (['--help'], ['fit', '--help'], ['--version']):\n"
        "    assert CliRunner().invoke(app, words).exit_code == 0\n"
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout.strip() == "[]"


def test_help_says_the_exit_codes():
    done = subprocess.run([*VARPROP, "--help"], capture_output=True, text=True, timeout=120)
    text = " ".join(done.stdout.split())
    for code in ("0 done", "2 wrong usage", "3 bad input", "4 cannot write", "130 interrupted"):
        assert code in text
    for command in ("fit", "predict", "evaluate", "explain", "demo"):
        assert command in text
    assert "--install-completion" in text


def test_compiled_programs_are_kept_where_there_is_a_place(monkeypatch, tmp_path):
    monkeypatch.setattr(os, "environ", {})
    os.environ["XDG_CACHE_HOME"] = str(tmp_path / "cache")
    with monkeypatch.context() as patch:
        patch.setattr(os, "access", lambda path, mode: False)
        _keep_compiled()
    assert "JAX_COMPILATION_CACHE_DIR" not in os.environ
    _keep_compiled()
    assert os.environ["JAX_COMPILATION_CACHE_DIR"] == str(tmp_path / "cache" / "varprop" / "jax")
    assert not os.listdir(tmp_path)  # JAX makes the folder when it has something to keep
    os.environ["JAX_COMPILATION_CACHE_DIR"] = "chosen"
    _keep_compiled()
    assert os.environ["JAX_COMPILATION_CACHE_DIR"] == "chosen"


def _begun(folder, environment, *options):
    """Start a fit that takes minutes; return its process once training begins."""
    folder.mkdir()
    table = houses(200, holes=False)
    (folder / "houses.csv").write_text(table.replace("\nh", "\n1"))  # ids that look like numbers
    process = subprocess.Popen(
        [*VARPROP, "fit", "houses.csv", "-t", "price", *options],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    # The remark on ids comes when the table has been read and training begins.
    assert "looks like an id" in process.stderr.readline()
    return process


def test_ctrl_c_during_training_keeps_what_is_trained(tmp_path, environment):
    """What there is of the networks is judged as ever, and the model says that it was stopped."""
    folder = tmp_path / "work"
    process = _begun(folder, environment, "--effort", "quick", "--max-iter", "50000")
    try:
        time.sleep(6)  # imports, and compiling
        process.send_signal(signal.SIGINT)
        assert process.stderr.readline().startswith("varprop: stopping; what is trained is kept")
        out, error = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 130
    if "interrupted.\n" in error:  # a slow machine: the first step was not made
        assert os.listdir(folder) == ["houses.csv"]
        return
    assert "Training was interrupted" in error
    assert "Saved model.safetensors" in out
    model = TableModel.load(folder / "model.safetensors")
    assert model.regressor.outcome_ == "interrupted"
    assert set(model.regressor.weights_) == {"vi", "linear", "constant"}


def test_ctrl_c_twice_ends_at_once(tmp_path, environment):
    folder = tmp_path / "work"
    process = _begun(folder, environment, "--members", "200")
    try:
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        assert process.stderr.readline().startswith("varprop: stopping")
        process.send_signal(signal.SIGINT)
        out, error = process.communicate(timeout=120)
    finally:
        process.kill()
    assert (process.returncode, out, error) == (130, "", "varprop: interrupted.\n")
    assert os.listdir(folder) == ["houses.csv"]


def test_pipes_that_close_and_devices_that_are_full(place, environment):
    predict = [*VARPROP, "predict", place / "impute.safetensors", place / "houses.csv", "-q"]
    command = shlex.join(map(str, predict))
    script = f"{command} > /dev/full; echo $?; {command} | true; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", script], env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.stderr == "varprop: cannot read or write: No space left on device.\n"
    # Whether the reader has gone by then is a race: the output is small.
    first, second = done.stdout.split()
    assert (first, second in ("0", "4")) == ("4", True)
