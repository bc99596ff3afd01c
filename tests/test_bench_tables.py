"""The tables: averages, verdicts in standard errors, what is said where a result is missing."""

import csv
import io
import math

import numpy as np
import pytest
from scipy import stats

from varprop.bench.protocol import scores
from varprop.bench.render import as_csv, cells, markdown, terminal
from varprop.bench.tables import Average, latest, published, table, verdict
from varprop.predictive import Predictive

FIGURE = {"value": 2.0, "pm": 0.3, "kind": "sd", "n": 9}  # a standard error of 0.1


def row(**changes):
    made = {
        "dataset": "boston",
        "method": "fawn-ropd",
        "protocol": "ours",
        "split": 0,
        "seed": 0,
        "nll": 2.5,
        "rmse": 3.0,
        "nll_standardized": 0.3,
        "rmse_standardized": 0.3,
        "crps": 1.5,
        "coverage50": 0.5,
        "coverage90": 0.9,
        "seconds": 1.0,
        "settings_digest": "a",
        "version": "0.1",
        "finished": "2026-01-01T00:00:00Z",
    }
    return made | changes


def test_scores_against_scipy():
    rng = np.random.default_rng(0)
    mean, noise = rng.normal(size=(6, 2)), np.array([0.1, 0.3])
    model = np.array([[1.0, 0.8], [0.8, 2.0]])
    y, scale = rng.normal(size=(6, 2)), np.array([2.0, 5.0])
    found = scores(y, Predictive.joint(mean, np.tile(model, (6, 1, 1)), noise), scale)
    cov = model + np.diag(noise)
    joint = [-stats.multivariate_normal(m, cov).logpdf(t) for m, t in zip(mean, y, strict=True)]
    assert found["nll"] == pytest.approx(np.mean(joint))
    # The density of y / scale is that of y times the scales.
    assert found["nll_standardized"] == pytest.approx(np.mean(joint) - np.log(10.0))
    alone = -stats.norm(mean, np.sqrt(np.diag(cov))).logpdf(y).sum(axis=1)
    assert found["nll_independent"] == pytest.approx(alone.mean())
    errors = np.sqrt(((y - mean) ** 2).mean(axis=0))
    assert found["rmse"] == pytest.approx(errors.mean())
    assert found["rmse_standardized"] == pytest.approx((errors / scale).mean())


def test_averages_are_numpys():
    values = np.random.default_rng(0).normal(size=7)
    average = Average.of(values)
    assert average.mean == pytest.approx(values.mean())
    assert average.std == pytest.approx(values.std(ddof=1))
    assert average.se == pytest.approx(values.std(ddof=1) / 7**0.5)
    assert math.isnan(Average.of([1.0]).se)


@pytest.mark.parametrize(
    ("mean", "word"),
    [(2.0, "reproduced"), (2.28, "reproduced"), (2.29, "worse"), (1.71, "better")],
)
def test_within_two_combined_standard_errors_is_reproduced(mean, word):
    ours = Average(4, mean, 0.2)  # a standard error of 0.1 as well: together 0.1414
    in_se, found = verdict(ours, FIGURE)
    assert found == word
    assert in_se == pytest.approx((mean - 2.0) / math.hypot(0.1, 0.1))


def test_a_standard_error_in_print_is_not_divided_again():
    assert verdict(Average(4, 2.5, 0.0), FIGURE | {"kind": "se"})[0] == pytest.approx(0.5 / 0.3)


def test_without_any_spread_the_sign_decides():
    in_se, word = verdict(Average(1, 7.8, math.nan), {"value": 8.64})
    assert math.isnan(in_se)
    assert word == "better"


def test_runs_of_other_settings_are_not_averaged_together():
    rows = [
        row(split=0),
        row(split=0, settings_digest="b", nll=9.0, finished="2026-01-02T00:00:00Z"),
        row(split=1, settings_digest="b", nll=9.0, finished="2026-01-02T00:00:00Z"),
        row(split=0, seed=1, finished="2025-01-01T00:00:00Z"),
    ]
    groups = latest(rows)
    assert [r["nll"] for r in groups["boston", "fawn-ropd", "ours"]] == [9.0, 9.0]
    assert len(latest(rows, seed=1)["boston", "fawn-ropd", "ours"]) == 1


def test_table_1_has_all_the_papers_entries_and_says_what_is_missing(monkeypatch, tmp_path):
    monkeypatch.delenv("VARPROP_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    lines = table(1, [row(split=s, nll=2.5 + 0.1 * s) for s in range(3)])
    ours = [line for line in lines if line["n_splits"]]
    assert len(ours) == 1
    assert ours[0]["nll_mean"] == pytest.approx(2.6)
    assert ours[0]["paper_nll"] == 2.559
    year = [line for line in lines if line["dataset"] == "year"]
    assert {line["verdict"] for line in year} == {"data not present"}
    assert "nll_mean" not in year[0]
    assert ours[0]["verdict"] == "reproduced"


def test_the_misprint_is_marked_and_mended():
    figure = published()["table1"]["kin8nm"]["vi"]
    assert figure["value"] == -figure["printed"] == -0.897
    text = markdown(1, table(1, []))
    assert "-0.897±0.010 se *" in text
    assert "the sign" in text


def test_sarcos_is_stood_in_for_by_name_and_jura_is_in_both_units():
    rows = [
        row(dataset="jura", method="co-fawn", nll=23.3, nll_standardized=7.8),
        row(dataset="sarcos_test", method="co-fawn", nll_standardized=-3.0),
    ]
    lines = table(2, rows)
    jura = next(line for line in lines if line["dataset"] == "jura" and line["n_splits"])
    assert (jura["nll_mean"], jura["nll_other_units"]) == (7.8, 23.3)
    assert "raw 23.30" in cells(jura)[4]
    stand_in = next(x for x in lines if x["dataset"] == "sarcos_test" and x["n_splits"])
    assert stand_in["verdict"] == "not in the paper"
    assert stand_in["title"] == "Sarcos test file"
    sarcos = [line for line in lines if line["dataset"] == "sarcos"]
    assert all(line["n_splits"] == 0 for line in sarcos)


def test_only_verified_figures_of_others_are_carried_over():
    others = published()["others"]
    assert {figure["seen"] for row in others.values() for figure in row.values()} <= {
        "V",
        "V2",
        "V/V2",
    }
    assert "NGBoost" not in others["year"]  # known from memory only


def test_csv_and_terminal_hold_the_same_lines():
    lines = table(1, [row()])
    read = list(csv.DictReader(io.StringIO(as_csv(lines))))
    assert len(read) == len(lines)
    assert terminal(1, lines, width=200).row_count == len(lines)
    assert terminal(3, table(3, [])).row_count == 12
