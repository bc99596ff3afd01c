"""The examples run and say what they should; the documents' code runs and their links exist."""

import os
import pkgutil
import re
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

# Examples and pages are run as their readers run them.
pytestmark = pytest.mark.usefixtures("as_users_run_it")

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
# Pages whose code runs from top to bottom. The others show fragments and say so by undefined names.
PAGES = sorted(
    [
        *(
            ROOT / "docs" / f"{name}.md"
            for name in ("start", "errata", "likelihoods", "report", "training", "troubleshooting")
        ),
        *ROOT.glob("docs/how-to/*.md"),
        *ROOT.glob("docs/coming-from/*.md"),
    ]
)
PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture
def run_example(tmp_path, monkeypatch, capsys):
    """Run an example in this process, which has JAX and its compiled programs at hand."""

    def run(name, *arguments, drawn=True):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("MPLBACKEND", "Agg")
        picture = tmp_path / f"{name}.png"
        output = ["--output", str(picture)] if drawn else []
        monkeypatch.setattr(sys, "argv", [f"{name}.py", *output, *map(str, arguments)])
        try:
            runpy.run_path(str(ROOT / "examples" / f"{name}.py"), run_name="__main__")
        except SystemExit as end:
            if end.code:
                raise
        assert not drawn or picture.read_bytes().startswith(PNG)
        return capsys.readouterr().out

    return run


def python_blocks(document):
    return re.findall(r"^```python\n(.*?)^```", document.read_text("utf-8"), re.M | re.S)


def test_between_clusters_independent_weights_are_surest_in_the_gap(run_example):
    out = run_example("between_clusters", "--steps", 2000)
    doubt = {
        line[:20].strip(): [float(x) for x in re.findall(r"(\S+) \(", line[20:])]
        for line in out.splitlines()[2:]
    }
    ratio = {name: gap / data for name, (data, gap, _) in doubt.items()}
    assert len(ratio) == 4
    assert ratio["independent weights"] < 0.9
    assert ratio["all weights together"] >= ratio["independent weights"]
    assert ratio["Gaussian process"] > 2


def test_predictive_band_agrees_with_sampling_and_is_drawn(run_example):
    out = run_example("predictive_band", "--samples", 2000)
    assert "agrees with 2,000 sampled networks" in out


def test_a_forecast_is_drawn_and_its_spread_grows(run_example):
    out = run_example("forecast", "--steps", 60, "--draws", 50)
    rows = np.array(re.findall(r"^ +(\d+) +[\d.]+ +[\d.]+ +([\d.]+)", out, re.M), float)
    assert rows[:, 0].tolist() == [1, 2, 3, 6, 12, 18, 24]
    assert rows[-1, 1] >= rows[0, 1] > 0


def test_justification_by_sampling_prints_a_distance_per_case(run_example):
    out = run_example("justification_by_sampling", "--samples", 2000)
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


def test_depth_bias_is_none_to_first_order_and_large_where_the_docs_say(run_example):
    out = run_example(
        "depth_bias",
        *("--networks", 2, "--samples", 1000, "--depths", 1, 3),
        *("--families", "even noise", "noise below, aligned"),
    )
    rows = re.findall(r"^(\w[\w, ]+?) +([1-4]) +((?:[\d.]+ *){9})$", out, re.M)
    medians = {(name, int(depth)): list(map(float, row.split()[::3])) for name, depth, row in rows}
    assert len(medians) == 4
    # One standard error of a single ratio is 0.022; a median of twenty has less.
    for (name, depth), (independent, first, second) in medians.items():
        assert abs(first - 1) < 0.1
        assert abs(second - 1) < 0.1
        assert abs(independent - 1) < 0.1 or (name, depth) == ("noise below, aligned", 3)
    assert medians["noise below, aligned", 3][0] < 0.8


def test_what_is_exact_finds_the_exact_cases_exact(run_example):
    out = run_example("what_is_exact", "--exact-only", "--samples", 2000, drawn=False)
    assert len(re.findall(r" yes +passes ", out)) == 3


def test_calibration_is_better_after_recalibrating(run_example):
    out = run_example("calibration", "--max-iter", 500)
    rows = re.findall(r"^ +(\d+)% +([\d.]+)% +([\d.]+)% ", out, re.M)
    off = [[abs(float(part) - float(row[0])) for part in row[1:]] for row in rows]
    assert len(off) == 9
    gaussian, recalibrated = (sum(column) for column in zip(*off, strict=True))
    assert recalibrated < gaussian


def test_uncertain_inputs_widen_the_steep_side(run_example):
    out = run_example("uncertain_inputs", "--max-iter", 500, "--draws", 100)
    rows = re.findall(r"^ +(-?[\d.]+) +([\d.]+) +([\d.]+) ", out, re.M)
    widened = {float(x): float(propagated) / float(known) for x, known, propagated in rows}
    assert widened[2.25] > 1.2 > widened[-2.25]


def test_correlated_outputs_gain_by_their_covariance(run_example):
    out = run_example("correlated_outputs", "--max-iter", 500)
    independent, joint = re.findall(r"joint NLL +([\d.]+)", out)
    alone, given = re.findall(r"stated std ([\d.]+)", out)
    assert float(joint) < float(independent)
    assert float(given) < float(alone)


def test_vi_finds_the_noise_that_ropd_calls_model(run_example):
    out = run_example("model_and_noise", "--rows", 300, "--steps", 2000)
    rows = re.findall(r"^(vi|ropd) +300 +([\d.]+) +([\d.]+) ", out, re.M)
    (_, vi_model, vi_noise), (_, ropd_model, ropd_noise) = rows
    assert float(vi_model) < float(vi_noise)
    assert float(ropd_model) > float(ropd_noise)


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md"])
def test_python_of_the_document_runs(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    blocks = python_blocks(ROOT / name)
    assert blocks
    for block in blocks:
        exec(compile(block, name, "exec"), {"__name__": "document"})


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_code_of_the_page_runs(page, tmp_path, monkeypatch, capsys):
    """In order, in one namespace and one empty folder, shell commands included."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    names = {"__name__": "document"}
    text = page.read_text("utf-8")
    for language, block in re.findall(r"^```(python|sh)\n(.*?)^```", text, re.M | re.S):
        if language == "python":
            exec(compile(block, page.name, "exec"), names)
        else:
            subprocess.run(["bash", "-euo", "pipefail", "-c", block], check=True, timeout=900)


def test_every_public_name_is_in_the_api_pages():
    stub = (ROOT / "src/varprop/__init__.pyi").read_text("utf-8")
    public = re.findall(r"^from ([.\w]+) import (\w+) as \2$", stub, re.M)
    text = "\n".join(page.read_text("utf-8") for page in ROOT.glob("docs/api/*.md"))
    documented = re.findall(r"^\.\. auto\w+:: (varprop[.\w]+)$", text, re.M)
    assert len(public) > 20
    # A module is on a page as a whole, or by the names it holds, under the path it has.
    missing = [
        name
        for place, name in public
        for path in [f"varprop{place.rstrip('.')}.{name}"]
        if f"varprop.{name}" not in documented
        and not any(f"{d}.".startswith((f"{path}.", f"varprop.{name}.")) for d in documented)
    ]
    assert not missing
    # What the pages name is there: a name that has gone is found without building the site.
    for path in documented:
        pkgutil.resolve_name(path)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_relative_links_exist(document):
    text = re.sub(r"^```.*?^```", "", document.read_text("utf-8"), flags=re.M | re.S)
    targets = re.findall(r"\]\(([^)\s]+)\)", text)
    relative = [t.split("#")[0] for t in targets if not re.match(r"[a-z]+:|#", t)]
    missing = [target for target in relative if not (document.parent / target).exists()]
    assert not missing
