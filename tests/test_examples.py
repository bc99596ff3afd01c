"""The examples run and say what they should; the documents' code runs and their links exist."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
PNG = b"\x89PNG\r\n\x1a\n"


def run_script(path, *arguments, cwd):
    """Run a script as a user would, with warnings as errors, and return what it printed."""
    done = subprocess.run(
        [sys.executable, "-W", "error", ROOT / path, *map(str, arguments)],
        cwd=cwd,
        env=os.environ | {"MPLBACKEND": "Agg", "MPLCONFIGDIR": str(cwd)},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def python_blocks(document):
    return re.findall(r"^```python\n(.*?)^```", document.read_text("utf-8"), re.M | re.S)


def test_predictive_band_agrees_with_sampling_and_is_drawn(tmp_path):
    out = run_script(
        "examples/predictive_band.py", "--output", "band.png", "--samples", 2000, cwd=tmp_path
    )
    assert "agrees with 2,000 sampled networks" in out
    assert (tmp_path / "band.png").read_bytes().startswith(PNG)


def test_justification_by_sampling_prints_a_distance_per_case(tmp_path):
    out = run_script(
        "examples/justification_by_sampling.py",
        *("--output", "just.png", "--samples", 2000),
        cwd=tmp_path,
    )
    rows = re.findall(r"^(\w+) +(one|three) hidden layers? +([\d.]+) +([\d.]+)", out, re.M)
    assert [row[:2] for row in rows] == [
        ("Gaussian", "one"),
        ("Gaussian", "three"),
        ("Bernoulli", "one"),
        ("Bernoulli", "three"),
    ]
    # 2,000 draws from the propagated density itself exceed 0.06 once in a million; 0.014 of the
    # distances is the shape of deep networks' outputs.
    assert all(float(ks) < 0.06 for *_, ks in rows)
    assert (tmp_path / "just.png").read_bytes().startswith(PNG)


def test_depth_bias_is_none_with_one_hidden_layer_and_large_where_the_docs_say(tmp_path):
    out = run_script(
        "examples/depth_bias.py",
        *("--output", "depth.png", "--networks", 2, "--samples", 1000, "--depths", 1, 3),
        *("--families", "even noise", "noise below, aligned"),
        cwd=tmp_path,
    )
    rows = re.findall(r"^(\w[\w, ]+?) +([1-4]) +([\d.]+) +[\d.]+ +[\d.]+$", out, re.M)
    median = {(name, int(depth)): float(value) for name, depth, value in rows}
    assert len(median) == 4
    # One standard error of a single ratio is 0.022; a median of twenty has less.
    assert abs(median["even noise", 1] - 1) < 0.1
    assert abs(median["noise below, aligned", 1] - 1) < 0.1
    assert median["noise below, aligned", 3] < 0.8
    assert (tmp_path / "depth.png").read_bytes().startswith(PNG)


def test_what_is_exact_finds_the_exact_cases_exact(tmp_path):
    out = run_script("examples/what_is_exact.py", "--exact-only", "--samples", 2000, cwd=tmp_path)
    assert len(re.findall(r" yes +passes ", out)) == 3


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md"])
def test_python_of_the_document_runs(name, capsys):
    blocks = python_blocks(ROOT / name)
    assert blocks
    for block in blocks:
        exec(compile(block, name, "exec"), {"__name__": "document"})


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_relative_links_exist(document):
    text = re.sub(r"^```.*?^```", "", document.read_text("utf-8"), flags=re.M | re.S)
    targets = re.findall(r"\]\(([^)\s]+)\)", text)
    relative = [t.split("#")[0] for t in targets if not re.match(r"[a-z]+:|#", t)]
    missing = [target for target in relative if not (document.parent / target).exists()]
    assert not missing
