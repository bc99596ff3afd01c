"""The report as text: what it says, that it is whole, safe, small and free of NaN."""

import html.parser
import json
import os
import re
import stat
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
import pytest

import made_up

matplotlib.use("Agg")
import matplotlib.pyplot as plt

import varprop
from varprop.bench.tables import table
from varprop.predictive import Predictive, diagnostics
from varprop.predictive.scorecard import (
    CONSTANT,
    DO_NOT_USE,
    MODEL,
    scorecard,
    verdict,
)
from varprop.report import write_benchmark_report, write_report
from varprop.report.benchmark import VERDICTS
from varprop.report.files import environment
from varprop.report.importances import shares_of
from varprop.report.numerals import number, tick_labels, ticks
from varprop.report.page import scorecard_table
from varprop.report.regions import Column, panel, regions
from varprop.report.svg import Axis, Frame, coordinate, element, is_skewed
from varprop.report.words import calibration_finding, error_finding, find, pit_finding

VOID = {"meta", "link", "img", "br", "hr", "input"}
MINUS = "\N{MINUS SIGN}"


class Reader(html.parser.HTMLParser):
    """Checks that elements nest, and collects the text outside scripts and styles."""

    def __init__(self):
        super().__init__()
        self.open, self.tags, self.text, self.attributes = [], [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("script", "style"):
            self.text.append(data)


def read(path):
    """Return the whole page, its visible text and the parser."""
    page = path.read_text("utf-8")
    reader = Reader()
    reader.feed(page)
    reader.close()
    assert reader.open == []
    text = re.sub(r"\s+", " ", " ".join(reader.text)).replace("\N{WORD JOINER}", "")
    return page, text, reader


def drawn(n=120, d=None, *, seed=0, stretch=1.0):
    """A prediction of n rows, and targets drawn from it with the spread stretched."""
    rng = np.random.default_rng(seed)
    shape = (n,) if d is None else (n, d)
    p = Predictive.gaussian(rng.normal(size=shape), rng.uniform(0.1, 1.0, shape), 0.5)
    return p.mean + stretch * (p.sample(random_state=rng)[..., 0] - p.mean), p


@pytest.fixture
def path(tmp_path):
    return tmp_path / "report.html"


def test_says_what_chance_allows(path):
    y, p = drawn()
    write_report(path, title="Trial", prediction=p, y=y, target_names=["price"])
    held = np.mean((p.interval(0.9)[0] <= y) & (y <= p.interval(0.9)[1]))
    _, text, _ = read(path)
    assert f"90 % intervals held {100 * held:.0f} %" in text
    assert "of the 120 observed values; 84\N{EN DASH}95 % is what chance allows." in text
    assert "120 rows that the model had not seen · predicting price" in re.sub(" +", " ", text)


@pytest.mark.parametrize(
    ("stretch", "said"),
    [
        (1.0, "hold about as many observations as they should"),
        (2.0, "overconfident: its intervals are too narrow"),
        (0.3, "too cautious: its intervals are wider than needed"),
    ],
)
def test_verdict_follows_the_data(path, stretch, said):
    y, p = drawn(500, stretch=stretch)
    write_report(path, title="Trial", prediction=p, y=y, target_names=["price"])
    _, text, _ = read(path)
    assert said in text
    spread = {1.0: "No sign of a wrong shape", 2.0: "too small", 0.3: "too large"}[stretch]
    assert spread in text


def test_noise_that_differs_from_row_to_row_is_shown_where_it_is(path):
    x = np.random.default_rng(4).uniform(0, 1, (600, 2))
    p = Predictive.gaussian(x[:, 0], np.full(600, 1e-4), (0.05 + x[:, 1]) ** 2)
    y = p.sample(random_state=5)[..., 0]
    features = {"calm": x[:, 0], "loud": x[:, 1]}
    write_report(path, title="T", prediction=p, y=y, target_names=["t"], features=features)
    _, text, _ = read(path)
    assert "hold about as many observations as they should" in text
    assert "The largest change is along loud" in text
    assert "nearly all of that variance is noise" in text
    pair = Predictive.joint(
        np.zeros((600, 2)), np.tile(np.eye(2), (600, 1, 1)), np.stack([x[:, 0], x[:, 1]], axis=1)
    )
    y = pair.sample(random_state=6)[..., 0]
    write_report(path, title="T", prediction=pair, y=y, target_names=["a", "b"], features=features)
    assert "All targets" in read(path)[1]


SENTENCES = {
    # name: stretch of the errors, rows, what the sentences must and must not hold
    "collapsed": (30.0, 300, ("too sure", "overconfident", "too small"), ("cautious", "too wide")),
    "cautious": (0.02, 300, ("too cautious", "too wide", "too large"), ("too sure", "narrow")),
    "good": (1.0, 300, ("clearly better", "hold about as many"), ("too narrow", "too wide")),
    "few rows": (1.0, 5, ("Too few rows",), ("clearly", "too narrow", "too wide", "cautious")),
}


@pytest.mark.parametrize("case", SENTENCES)
def test_all_sentences_come_from_one_judgement(path, case):
    stretch, n, must, never = SENTENCES[case]
    y, p = drawn(n, seed=9, stretch=stretch)
    flat = made_up.flat(np.array([y.mean()]), np.array([y.std()]), n)
    models = {MODEL: p, CONSTANT: flat}
    write_report(
        path,
        title="T",
        prediction=p,
        y=y,
        target_names=["t"],
        scorecard=scorecard(y, models),
        verdict=verdict(y, models),
    )
    page, text, _ = read(path)
    said = " ".join(re.findall(r'class="(?:headline|finding)">(.*?)</p>', page))
    for words in must:
        assert words in said
    for words in never:
        assert words not in said
    rms = np.sqrt(np.mean(p.var)), np.sqrt(np.mean((y - p.mean) ** 2))
    stated, off = map(number, rms)
    side_by_side = f"standard deviation of {stated} beside errors of {off} (both root mean squares)"
    assert side_by_side in text
    assert f"off by {off} (root mean square)" in text


def test_a_curve_that_strays_by_chance_is_not_called_wrong():
    # Bands hold each level by itself: in many reports some level lies outside its own.
    strayed = 0
    for seed in range(60):
        y, p = drawn(80, seed=seed)
        found = find(y, p)
        if found.verdict != "good":
            continue
        curve = diagnostics.calibration_curve(y, p)
        said = calibration_finding(curve, found.judged)
        strayed += "outside" in said
        assert "too narrow" not in said
        assert "too wide" not in said
        shape = pit_finding(diagnostics.pit_histogram(y, p), found.judged)
        assert ("No sign of a wrong shape" in shape) == (not found.judged.bias)
    assert strayed > 3


def test_groups_that_stray_by_chance_are_not_called_wrong():
    wide = np.array([2.0, 2.0, 2.0])
    groups = diagnostics.ErrorByStd(wide, np.array([3.1, 2.0, 1.0]), wide / 1.4, wide * 1.4, wide)
    said = {
        spread: error_finding(groups, diagnostics.Judgement(spread, ""))
        for spread in ("good", "over", "unknown")
    }
    strays = "Of 3 groups of rows, 1 errs more and 1 errs less than stated"
    assert said["good"] == f"{strays}, as chance may have it."
    assert said["over"] == f"{strays}."
    assert said["unknown"] == "Too few rows to judge by."
    one = diagnostics.ErrorByStd(*(values[:1] for values in groups))
    assert "err more than stated" in error_finding(one, diagnostics.Judgement("over", ""))


def test_a_model_of_no_use_is_not_shown_in_green(path):
    y, p = drawn(300)
    for text, shown in ((None, "good"), (f"{DO_NOT_USE}: it is wrong.", "useless")):
        write_report(path, title="T", prediction=p, y=y, target_names=["t"], verdict=text)
        assert f'class="summary {shown}"' in read(path)[0]


def test_several_targets_have_a_table_each(path):
    y, p = drawn(60, 2)
    flat = made_up.flat(y.mean(axis=0), y.std(axis=0), 60)
    card = scorecard(y, {MODEL: p, CONSTANT: flat}, ["price", "weight"])
    write_report(
        path, title="T", prediction=p, y=y, target_names=["price", "weight"], scorecard=card
    )
    _, text, reader = read(path)
    assert "All targets together" in text
    labels = [
        v for k, v in reader.attributes if k == "aria-label" and v.startswith("Scores of this")
    ]
    assert [label.partition(": ")[2] for label in labels] == ["", "price", "weight"]


def test_parts_that_are_not_told_apart_are_not_shown(path):
    y, p = drawn()
    features = {"size": np.arange(120.0), "kind": np.array(["a", "b"] * 60)}
    for prediction in (p, p.unsplit()):
        write_report(
            path, title="T", prediction=prediction, y=y, target_names=["t"], features=features
        )
        page, text, _ = read(path)
        split = prediction.identified
        assert ("its model part" in text) == split
        assert ("and its model part along size" in page) == split
        assert ("uncertainty, which more data would lower" in text) == split
        assert ('class="model"' in page) == split
        assert ("not told apart by this model" in text) == (not split)


def test_rows_are_surprising_only_beyond_chance(path):
    """By the stated distribution and the number of rows, with the inputs that matter first."""
    y, p = drawn(2000)
    features = {f"x{i}": np.arange(2000.0) * (i + 1) for i in range(12)}
    given = {"title": "Trial", "prediction": p, "target_names": ["price"], "features": features}
    write_report(path, y=y, **given)
    page, text, _ = read(path)
    assert "No row of 2,000 lies farther out than chance allows." in text
    assert "<tr data-target" not in page
    # The farthest of 2,000 lies beyond 4.21 deviations in one of 20 cases: 1 - 0.95^(1 / 2000).
    y[11], y[40] = p.mean[11] + 4.2 * p.std[11], p.mean[40] - 4.3 * p.std[40]
    write_report(path, y=y, importance={"x9": (0.9, 0.1), "x2": (0.3, 0.1)}, **given)
    page, text, _ = read(path)
    assert "1 row lies farther out than chance allows for any of 2,000." in text
    [row] = re.findall(r"<tr data-target.*?</tr>", page)
    cells = re.findall(r">([^<>]+)</t[hd]>", row)
    assert cells[0] == "row 41"
    assert cells[4:8] == [MINUS + "4.3", "400", "120", "40"]  # x9, x2, and then as they stand
    assert len(cells) == 5 + 8
    assert "of the 12 inputs the first 8 are shown" in text


def test_importances_are_shares_of_all_inputs_for_each_target(path):
    """Numbers by hand; a target whose numbers are a thousand times another's changes nothing."""
    importance = {
        "age": (np.array([0.2, 300.0]), np.array([2000.0, 0.0])),
        "size": (np.array([0.6, 100.0]), np.array([1000.0, 0.0])),
        "site": (np.array([0.2, np.nan]), np.array([1000.0, 0.0])),
    }
    first, second = shares_of(importance, 2)
    assert list(first) == ["size", "age", "site"]
    np.testing.assert_allclose(list(first.values()), [(0.6, 0.25), (0.2, 0.5), (0.2, 0.25)])
    assert list(second) == ["age", "size"]
    np.testing.assert_allclose(list(second.values()), [(0.75, 0.0), (0.25, 0.0)])
    assert shares_of({"a": (1e308, 0.0), "b": (1e308, 0.0)}, 1) == [{"a": (0.5, 0), "b": (0.5, 0)}]
    assert shares_of(None, 2) == [{}, {}]
    with pytest.raises(ValueError, match=r"importance of 'age' must be .* not of shape \(2,\)"):
        shares_of(importance, 3)
    y, p = drawn(60, 2)
    y[7] = p.mean[7] + 20 * p.std[7]
    features = {name: np.arange(60.0) for name in importance}
    write_report(
        path,
        title="T",
        prediction=p,
        y=y,
        target_names=["price", "weight"],
        features=features,
        importance=importance,
    )
    page, text, _ = read(path)
    assert "size moves the prediction most; age moves its stated spread most." in text
    assert "age moves the prediction most; no input moves its stated spread." in text
    assert "size: 60\xa0% and 25\xa0%; age: 20\xa0% and 50\xa0%; site: 20" in page
    assert "age: 75\xa0% and 0\xa0%; size: 25\xa0% and 0\xa0%." in page
    # The inputs of surprising rows stand in the order of their own target.
    tables = re.findall(r'class="sortable surprising">.*?</thead>', page, re.S)
    headings = [re.findall(r"<button[^>]*>([^<]+)", head)[5:] for head in tables]
    assert headings == [["size", "age", "site"], ["age", "size", "site"]]


def test_a_chart_on_which_nothing_shows_does_not_say_the_contrary():
    """All bars inside their bands, yet too many or too few in the middle together."""
    counts = np.array([12, 12, 12, 12, 12])
    flat = diagnostics.PITHistogram(np.linspace(0, 1, 6), counts, 6.0, 18.0)
    said = {
        (spread, bias): pit_finding(flat, diagnostics.Judgement(spread, bias))
        for spread, bias in (("over", ""), ("under", "high"), ("good", "low"), ("good", ""))
    }
    assert all(text.startswith("All 5 bars end inside the band. ") for text in said.values())
    assert "50 and 90 % the stated spread is too small." in said["over", ""]
    assert "50 and 90 % the stated spread is too large." in said["under", "high"]
    assert "lie below their median: predictions tend to be too high." in said["under", "high"]
    assert "lie above their median: predictions tend to be too low." in said["good", "low"]
    assert said["good", ""].endswith("No sign of a wrong shape.")


def test_skewed_inputs_have_a_logarithmic_axis():
    n = 200
    columns = [
        Column("income", np.geomspace(1.0, 1e5, n)),
        Column("year", np.linspace(1.0, 1e5, n)),
        Column("rain", np.where(np.arange(n) % 4, 0.0, np.geomspace(1e-3, 1e2, n))),
        Column("debt", np.where(np.arange(n) % 4, 1.0, -1.0) * np.geomspace(1.0, 1e5, n)),
    ]
    found = {region.name: region for region in regions(columns, np.ones(n), None)}
    assert {name for name, region in found.items() if region.log} == {"income", "rain"}
    assert found["income"].title == "income, log scale"
    places = re.findall(r'<circle cx="([\d.]+)"', panel(found["income"], 1.0))
    gaps = np.diff([float(place) for place in places])
    np.testing.assert_allclose(gaps, gaps.mean(), atol=1.0)  # even, as their logarithms are


def test_an_almost_perfect_fit_is_not_called_perfect(path):
    y = np.stack([np.linspace(0, 1, 60), np.linspace(0, 100, 60)], axis=1)
    off = np.where(np.arange(60)[:, None] % 2, 1, -1) * [0.01, 10.0]
    p = Predictive.gaussian(y + off, 0 * y, [1e-4, 100.0])
    write_report(path, title="T", prediction=p, y=y, target_names=["a", "b"])
    rows = re.findall(r"<tbody>(.*?)</tbody>", read(path)[0], re.S)[0]
    shown = re.findall(r'data-label="R²"[^>]*>([^<]+)', rows)
    exact = 1 - np.array([0.01, 10.0]) ** 2 / y.var(axis=0)
    assert shown == [f"{value:.3f}" for value in exact]
    assert shown[0] == "0.999"


def test_a_page_says_when_and_with_what_it_was_made(path):
    y, p = drawn(20)
    write_report(path, title="Trial", prediction=p, y=y, target_names=["price"])
    _, text, _ = read(path)
    assert re.search(r"made 20\d\d-\d\d-\d\d \d\d:\d\d [+-]\d{4}", text)
    assert f"varprop {varprop.__version__} python 3." in text
    assert f"numpy {np.__version__}" in text


def test_all_parts_are_there(path):
    y, p = drawn()
    y[5] = p.mean[5] + 9 * p.std[5]
    rng = np.random.default_rng(3)
    write_report(
        path,
        title="Trial",
        prediction=p,
        y=y,
        target_names=["price"],
        features={"age": rng.normal(size=120), "site": rng.choice(["Munich", "Garching"], 120)},
        row_labels=[f"house {i}" for i in range(120)],
        scorecard={
            "this model": {"NLL": 1.25, "R2": 0.5, "coverage 90 %": 0.875},
            "linear model": {"NLL": 1.75, "R2": 0.75, "coverage 90 %": 0.9, "CRPS": np.nan},
        },
        verdict="The linear model is clearly better here.",
        loss_curve=np.r_[np.nan, np.linspace(9, 1, 99)],
        importance={"age": (0.7, 0.1), "site": (0.1, np.nan)},
        settings={"seed": 4, "hidden": (50,)},
    )
    page, text, reader = read(path)
    for heading in (
        "Did the network earn its keep?",
        "Predicted against observed",
        "Do intervals hold what they promise?",
        "Where in the stated distribution did values fall?",
        "Are large errors announced?",
        "Where is the model unsure?",
        "Most surprising rows",
        "Training",
        "Which inputs matter?",
        "Settings and versions",
    ):
        assert heading in text
    assert text.count("The linear model is clearly better here.") == 2  # headline and scores
    assert page.count("★<") == 2
    assert "(50,)" in text
    assert "house " in text
    assert re.search(r'data-point="\d+"><th scope="row">house 5</th>', page)
    assert "nan" not in text.lower().split()
    # every picture says in words what it shows
    assert (
        page.count("<svg") == page.count("<svg ") == len(re.findall(r"<svg [^>]*aria-label=", page))
    )
    assert not [v for k, v in reader.attributes if k.startswith("on")]


def test_nothing_is_loaded_and_only_one_script_may_run(path):
    y, p = drawn(20)
    write_report(path, title="Trial", prediction=p, y=y, target_names=["price"])
    page, _, reader = read(path)
    assert not re.findall(r"https?:|url\((?!#)|@import|<base", page)
    links = [value for name, value in reader.attributes if name in ("src", "href")]
    assert set(links) == {"data:,", "#main"}
    assert "default-src 'none'" in page
    assert re.search(r"script-src 'sha256-[\w+/=]{44}'", page)


def test_hostile_text_stays_text(path):
    bad = "</script><script>alert(1)</script>\u2028\"'<!--"
    y, p = drawn(30, 2)
    write_report(
        path,
        title=bad,
        prediction=p,
        y=y,
        target_names=[bad, bad],
        features={bad: np.array([bad] * 30), "x": np.arange(30)},
        row_labels=[bad] * 30,
        scorecard={bad: {bad: 1.0}, "b": {bad: 2.0}},
        importance={bad: (1.0, 0.5)},
        settings={bad: bad},
    )
    page, text, reader = read(path)
    assert "<script>alert" not in page
    assert reader.tags.count("script") == 2
    assert "alert(1)" in text
    data = json.loads(re.search(r'id="data">(.*?)</script>', page, re.S).group(1))
    assert data["inputs"] == [bad, "x"]
    assert data["rows"][0] == [bad, bad, "0"]
    assert data["targets"][1]["name"] == bad


def test_json_of_a_page_has_no_character_that_matters_to_html():
    template = environment().from_string("{{ value|tojson }}")
    value = {"</script>": ["<!--", "&amp;", "\u2028\u2029", "ü"]}
    text = template.render(value=value)
    assert not set("<>&\u2028\u2029ü") & set(text)
    assert json.loads(text) == value
    with pytest.raises(ValueError, match="not JSON compliant"):
        template.render(value=float("nan"))


NORMAL = np.random.default_rng(5).normal(size=(2, 40))
EDGES = {
    "one row": ([1.0], [0.1], [2.0]),
    "all the same": ([3.0] * 12, [0.5] * 12, [3.0] * 12),
    "certain and right": ([3.0] * 12, [0.0] * 12, [3.0] * 12),
    "certain and wrong": ([3.0] * 12, [0.0] * 12, list(range(12))),
    "certain here and there": (list(range(12)), [0.0, 1.0] * 6, [1.0] * 12),
    "huge": (1e300 * NORMAL[0], [1e300] * 40, 1e300 * NORMAL[1]),
    "both ends of the floats": ([1e306, -1e306] * 20, [1e300] * 40, [1e306] * 40),
    "tiny": (1e-300 * NORMAL[0], [0.0] * 40, 1e-300 * NORMAL[1]),
    "subnormal": ([5e-324, 0.0], [0.0, 0.0], [0.0, 5e-324]),
    "far from zero": (1e9 + 1e-3 * NORMAL[0], [1e-6] * 40, 1e9 + 1e-3 * NORMAL[1]),
}


@pytest.mark.parametrize("case", EDGES)
def test_any_scale_gives_a_page_without_nan(path, case):
    mean, var, y = (np.asarray(v, float) for v in EDGES[case])
    features = {"x": np.arange(len(y)), "text": ["a"] * len(y), "empty": np.full(len(y), np.nan)}
    write_report(
        path,
        title=case,
        prediction=Predictive.gaussian(mean, var, 0.0),
        y=y,
        target_names=["t"],
        features=features,
        loss_curve=y,
        importance={"x": (0.0, 0.0)},
    )
    page, _, _ = read(path)
    body = page[page.index("<main") : page.index("</main>")]
    assert not re.search(r"\bnan\b|\binf\b|\bNone\b", body, re.I)
    assert len(page) < 200_000
    inside = re.findall(r'[xyr]="(-?[\d.]+)"', body)
    assert inside
    assert all(abs(float(v)) < 2000 for v in inside)


def test_thousands_of_rows_are_thinned_and_said_to_be(path):
    y, p = drawn(20_000)
    y[700:725] = (p.mean + np.arange(20_000) / 100 * p.std)[700:725]
    rng = np.random.default_rng(0)
    features = {f"input {i}": rng.normal(size=20_000) for i in range(10)}
    write_report(path, title="Big", prediction=p, y=y, target_names=["t"], features=features)
    page, text, _ = read(path)
    assert "1,500 of 20,000 rows are drawn" in text
    assert "8 of 10 inputs" in text
    assert path.stat().st_size < 800_000
    worst = np.argsort(-np.abs((y - p.mean) / p.std))[:20] + 1
    assert "25 rows lie farther out than chance allows for any of 20,000; the 20 farthest" in text
    assert set(re.findall(r'<th scope="row">row (\d+)</th>', page)) == {str(i) for i in worst}


def test_many_targets_stay_small_and_are_all_in_the_table(path):
    y, p = drawn(60, 30)
    names = [f"target {i}" for i in range(30)]
    features = {f"input {i}": y[:, i] for i in range(5)}
    write_report(path, title="Wide", prediction=p, y=y, target_names=names, features=features)
    page, text, _ = read(path)
    assert page.count('<section class="target"') == 24
    assert "The first 24 of 30 targets" in text
    assert all(f'<th scope="row">{name}</th>' in page for name in names)
    assert path.stat().st_size < 2_000_000


def test_the_same_input_gives_the_same_file(tmp_path):
    y, p = drawn(3000)
    for name in ("a", "b"):
        write_report(tmp_path / name, title="T", prediction=p, y=y, target_names=["t"])
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_written_whole_or_not_at_all(path, monkeypatch):
    y, p = drawn(20)
    path.write_text("before")

    def fail(*_):
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", fail)
        with pytest.raises(OSError, match="disk full"):
            write_report(path, title="T", prediction=p, y=y, target_names=["t"])
    assert path.read_text() == "before"
    assert list(path.parent.iterdir()) == [path]
    write_report(path, title="T", prediction=p, y=y, target_names=["t"])
    assert path.read_text("utf-8").endswith("</html>\n")
    assert stat.S_IMODE(path.stat().st_mode) & 0o444 == 0o444 & ~_umask()


def _umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_bad_input_is_named_and_nothing_is_written(path, as_users_run_it):
    y, p = drawn(4)

    def attempt(message, **changed):
        arguments = {"title": "T", "prediction": p, "y": y, "target_names": ["t"], **changed}
        with pytest.raises(ValueError, match=message):
            write_report(path, **arguments)

    attempt("2 target_names but 1 outputs", target_names=["a", "b"])
    attempt(r"y has shape \(3,\)", y=y[:3])
    attempt("y is not finite at row 1", y=np.array([0.0, np.nan, 0.0, 0.0]))
    attempt("The input 'x' has 3 values but there are 4 rows", features={"x": [1, 2, 3]})
    attempt("The input 'x' must be one column", features={"x": np.zeros((4, 2))})
    attempt("1 row_labels but 4 rows", row_labels=["a"])
    attempt(r"loss_curve must have shape \(n_epochs,\)", loss_curve=np.zeros((2, 2)))
    assert not path.exists()
    with pytest.raises(FileNotFoundError, match=r"[Tt]he folder .*absent does not exist"):
        write_report(
            path.parent / "absent" / "a.html", title="T", prediction=p, y=y, target_names=["t"]
        )


def test_columns_are_numbers_or_words():
    assert Column.read("a", [1, 2]).text(1) == "2"
    assert Column.read("a", np.array([1.5, None], dtype=object)).text(1) == "(missing)"
    assert Column.read("a", np.array(["x", None, np.nan], dtype=object)).text(2) == "(missing)"
    frame = pd.DataFrame({"n": pd.array([1, None], "Int64"), "w": pd.array(["x", None], "string")})
    assert Column.read("n", frame["n"]).values[0] == 1.0
    assert [Column.read(name, frame[name]).text(1) for name in frame] == ["(missing)"] * 2
    assert Column.read("a", np.array([True, False])).values.tolist() == ["True", "False"]
    assert Column.read("a", np.array(["2026-01-02"], "datetime64[D]")).text(0) == "2026-01-02"
    assert len(Column.read("a", ["x" * 200]).text(0)) == 80


def test_regions_find_where_the_spread_is():
    x = np.linspace(-1, 1, 400)
    site = np.where(x > 0.5, "far", "near")
    total = 1 + x**2
    wide, flat = regions(
        [Column.read("noise", np.tile([0.0, 1.0], 200)), Column.read("x", x)], total, total / 2
    )
    assert (wide.name, flat.name) == ("x", "noise")
    assert len(wide.total) == 8
    assert np.argmin(wide.total) in (3, 4)
    np.testing.assert_allclose(wide.model, wide.total / 2)
    gaps = Column.read("gaps", np.where(x > 0.9, np.nan, x))
    assert regions([gaps], total, total)[0].title == f"gaps ({(x > 0.9).sum()} missing)"
    assert wide.title == "x"
    (sites,) = regions([Column.read("site", site)], total, total)
    assert dict(zip(sites.labels, sites.count, strict=True)) == {"near": 300, "far": 100}
    assert sites.total[1] > sites.total[0]


@pytest.mark.parametrize(
    ("low", "high"), [(0, 1), (-3.3, 7), (1e9, 1e9 + 1e-3), (-1e308, 1e308), (0, 3e-310), (2, 2)]
)
def test_ticks_are_few_inside_and_told_apart(low, high):
    at = ticks(float(low), float(high))
    assert 1 <= len(at) <= 7
    room = 1e-9 * (high / 2 - low / 2)
    assert all(low - room <= v <= high + room for v in at)
    offset = at[0] if high - low < 1e-5 * abs(high) else 0.0
    assert len(set(tick_labels([v - offset for v in at]))) == len(at)


def prices(n=400, *, offset=0.0):
    """Skewed targets of a model that is right: a lognormal's spread grows with its mean."""
    rng = np.random.default_rng(3)
    mean = np.exp(7 + 1.2 * rng.normal(size=n)) + offset
    return mean + 0.2 * mean * rng.normal(size=n), Predictive.gaussian(
        mean, 0 * mean, (mean / 5) ** 2
    )


@pytest.mark.parametrize(
    ("values", "log"),
    [
        (np.exp(np.random.default_rng(0).normal(size=500)), True),
        (np.exp(np.random.default_rng(0).normal(size=500)) * 1e-290, True),
        (np.where(np.arange(500) % 2, 0.0, np.geomspace(1, 1e4, 500)), True),  # zeros among them
        (np.random.default_rng(0).uniform(size=500), False),
        (np.random.default_rng(0).normal(size=500), False),  # below zero
        (-np.geomspace(1, 1e4, 500), False),
        (np.append(np.linspace(1, 2, 500), 1e9), False),  # one outlier decides nothing
        (np.exp(np.random.default_rng(0).normal(size=500)) + 100, False),
        (np.random.default_rng(0).poisson(3.0, 500), False),
        (np.geomspace(1, 1e4, 9), False),  # too few to tell
        (np.zeros(50), False),
    ],
)
def test_skewed_values_are_told_by_their_quantiles(values, log):
    assert is_skewed(values) == log


def test_a_logarithmic_axis_places_sizes_and_marks_what_is_below_it():
    axis = Axis.sizes("price", np.geomspace(10.0, 1000.0, 50), [2000.0, -5.0])
    assert (axis.label, axis.log, axis.cut) == ("price, log scale", True, True)
    tenth = axis.share(100.0) - axis.share(10.0)
    assert axis.share(1000.0) - axis.share(100.0) == pytest.approx(tenth)
    assert 0 < tenth < 0.5
    np.testing.assert_array_equal(axis.share([0.0, -5.0, axis.low]), 0.0)
    at, texts, offset = axis.marks(5)
    assert (at[0], texts[0], offset) == (axis.low, f"≤ {number(axis.low, 1)}", 0.0)
    assert texts[1:] == [number(value) for value in at[1:]]
    whole = Axis.sizes("price", np.geomspace(10.0, 1000.0, 50))
    assert not whole.cut
    assert not whole.marks(5)[1][0].startswith("≤")


@pytest.mark.parametrize("scale", [1.0, 1e-290, 1e290])
def test_skewed_targets_have_logarithmic_axes_and_say_so(path, scale):
    y, p = prices()
    write_report(path, title="T", prediction=p.times(scale), y=y * scale, target_names=["price"])
    _, text, _ = read(path)
    for said in (
        "observed price",
        "predicted price",
        "stated standard deviation",
        "size of the error",
    ):
        assert f"{said}, log scale" in text
    y, p = prices(offset=1e5)
    write_report(path, title="T", prediction=p, y=y, target_names=["price"])
    assert "log scale" not in read(path)[1]


@pytest.mark.parametrize("scale", [1e-300, 1e300])
def test_a_budget_that_no_float_holds_is_not_shown(path, scale):
    y, p = drawn()
    for unit, shown in ((1.0, True), (scale, False)):
        q = p.times(unit)
        told = {"prediction": q, "y": y * unit, "target_names": ["y"], "budget": q.budget()}
        write_report(path, title="T", **told)
        assert ("Where the uncertainty comes from" in read(path)[1]) == shown


def test_numbers():
    assert number(-0.5) == f"{MINUS}0.5"
    assert number(1e-7) == "1\N{MULTIPLICATION SIGN}10⁻⁷"
    assert number(float("nan")) == "\N{EN DASH}"
    assert number(999.96) == "1,000"


def test_svg_refuses_what_cannot_be_drawn_and_escapes_the_rest():
    with pytest.raises(ValueError, match="asked to draw at nan"):
        coordinate(float("nan"))
    assert element("text", "<b>", title='"') == '<text title="&#34;">&lt;b&gt;</text>'
    frame = Frame(Axis("x", 0.0, 1.0), Axis("y", 0.0, 1.0), left=60.0)
    assert frame.points([0.0, 1.0], [0.0, 1.0]) == [(60.0, 254.0), (366.0, 12.0)]


def test_python_of_the_document_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = (Path(__file__).parents[1] / "docs" / "report.md").read_text("utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.M | re.S)
    names = {"__name__": "document"}
    for block in blocks:
        exec(compile(block, "report.md", "exec"), names)
    assert {one.name for one in tmp_path.iterdir()} == {
        "report.html",
        "benchmark.html",
        "calibration.png",
        "churn.html",
    }
    plt.close("all")
    _, shown, _ = read(tmp_path / "report.html")
    assert "predicting progression" in shown
    assert "max_iter" in shown


def test_benchmark_page_shows_ours_beside_the_papers(path):
    rows = [
        {
            "dataset": "boston",
            "method": "FAWN",
            "protocol": "20 splits",
            "n_splits": 20,
            "nll_mean": 2.4123,
            "nll_se": 0.053,
            "nll_std": 0.24,
            "rmse_mean": 2.98,
            "rmse_se": 0.1,
            "coverage90": 0.912,
            "crps": 1.5,
            "paper_nll": 2.47,
            "paper_pm": 0.09,
            "paper_pm_kind": "sd",
            "paper_note": "the sign is a misprint",
            "title": "Boston housing",
            "method_title": "FAWN by ROPD",
            "units": "standardized",
            "difference_in_se": -0.6,
            "verdict": "reproduced",
        },
        *({"dataset": "year", "method": "FAWN", "verdict": verdict} for verdict in VERDICTS),
        {"dataset": "naval", "method": "PBP", "verdict": "worse", "difference_in_se": 40.0,
         "nll_mean": float("nan"), "nll_se": None},
    ]  # fmt: skip
    write_benchmark_report(path, title="Table", rows=rows, settings={"seed": 1})
    page, text, _ = read(path)
    for shown in ("2.412 ± 0.053", "2.47 ± 0.09 sd *", f"{MINUS}0.6", "2.98 ± 0.10", "+40.0"):
        assert shown in text
    name = "Boston housing (standardized)"
    assert f"* {name}, FAWN by ROPD: the sign is a misprint" in text
    assert f'data-dataset="{name}"' in page
    for word, (sign, meaning) in VERDICTS.items():
        empty = word in ("not run", "data not present")
        assert (f"{sign} {word}" in re.sub(r"\s+", " ", text)) == (not empty)
        assert (f"<option>{word}</option>" in page) == (not empty)
        assert (f"{meaning} year (FAWN)." in text) == empty
    assert page.count("<tr data-dataset") == len(rows) - 2
    assert not re.search(r"\bnan\b|\bNone\b", page[page.index("<main") :].split("<script")[0])


def test_benchmark_page_takes_the_rows_of_the_tables(path, tmp_path):
    rows = table(1, [], data_dir=str(tmp_path)) + table(2, [], data_dir=str(tmp_path))
    assert rows
    write_benchmark_report(path, title="Tables 1 and 2", rows=rows)
    page, _, _ = read(path)
    assert "<tr data-dataset" not in page  # nothing was run: no row, but every entry by name
    named = "; ".join(re.findall(r"nothing was run(?: yet)?\. ([^.]*)\.</p>", page))
    assert sum(len(part.split(", ")) for part in named.split("; ")) == len(rows)
    assert "Boston (VI (sampled), PBP, GP, FAWN-VI, FAWN-ROPD, FAWN-BERN)" in named


def test_benchmark_page_opens_on_a_chart_of_the_differences(path):
    found = {"Boston": -4.0, "Yacht": 1.0, "Naval": 40.0, "Wine": None, "Year": None}
    words = ("better", "reproduced", "worse", "not in the paper", "not run")
    rows = [
        {"dataset": name, "method": "FAWN", "verdict": word, "difference_in_se": difference}
        for (name, difference), word in zip(found.items(), words, strict=True)
    ]
    write_benchmark_report(path, title="Table", rows=rows)
    page, text, _ = read(path)
    svg = page[page.index("<svg") : page.index("</svg>")]
    assert page.index("<svg") < page.index("<table")
    marks = re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)" r="5" class="mark (\w+)"', svg)
    assert [kind for *_, kind in marks] == ["better", "reproduced", "worse"]
    x = [float(left) for left, *_ in marks]
    ticks = {
        text: float(at)
        for at, text in re.findall(r'<text x="([\d.]+)" y="[\d.]+" class="tick" [^>]*>([^<]*)', svg)
    }
    assert x == pytest.approx(
        [ticks[f"{MINUS}4"], (ticks["0"] + ticks["+2"]) / 2, ticks["+6"]], abs=0.2
    )
    assert "1 of 3 are within what chance allows." in text


def test_benchmark_page_shows_all_results_also_those_that_the_paper_lacks(path):
    """Where marks stand, against the numbers: NLL above the lowest of ours on the same dataset."""
    rows = [
        {"dataset": "a", "method": "FAWN", "nll_mean": 1.0, "nll_se": 0.25},
        {"dataset": "a", "method": "GP", "nll_mean": 1.5},
        {"dataset": "b", "method": "FAWN", "nll_mean": -7.0},
        {"dataset": "b", "method": "GP", "nll_mean": 30.0},
    ]
    rows = [row | {"verdict": "not in the paper"} for row in rows]
    write_benchmark_report(path, title="Table", rows=rows)
    page, text, _ = read(path)
    assert "How far from the paper?" not in text
    assert re.search("Of ours, the lowest mean NLL is FAWN.s on 2 of 2 datasets[.]", text)
    assert 'class="other"' not in page
    rows[1] |= {"paper_nll": 0.75, "verdict": "worse", "difference_in_se": 3.0}
    write_benchmark_report(path, title="Table", rows=rows)
    page, text, _ = read(path)
    assert "0 of 1 are within what chance allows." in text
    chart = re.findall(r"<svg.*?</svg>", page, re.S)[1]
    x = np.array([float(v) for v in re.findall(r'<circle cx="([\d.]+)"', chart)])
    unit = (x[1] - x[0]) / 0.5
    assert unit > 0
    np.testing.assert_allclose(x, x[0] + unit * np.array([0, 0.5, 0, 2]), atol=0.3)  # 2 is the edge
    [other] = re.findall(r'd="M([\d.]+) [\d.]+m-5[^"]*" class="other"', chart)
    assert float(other) == pytest.approx(x[0] - 0.25 * unit, abs=0.3)
    [(low, high)] = re.findall(r'd="M([\d.]+) [\d.]+L([\d.]+) [\d.]+" class="curve"', chart)
    ends = x[0] + np.array([-0.25, 0.25]) * unit
    assert (float(low), float(high)) == pytest.approx(ends, abs=0.3)


def test_scores_that_are_shown_as_equal_are_marked_alike():
    card = {"a": {"NLL": 5.39201}, "b": {"NLL": 5.39204}, "c": {"NLL": 5.4}}
    assert [row["cells"][0]["best"] for row in scorecard_table(card)["rows"]] == [True, True, False]


def test_benchmark_page_names_bad_rows_and_may_be_empty(path):
    with pytest.raises(ValueError, match="Row 0 of the benchmark has no 'method'"):
        write_benchmark_report(path, title="T", rows=[{"dataset": "a", "verdict": "worse"}])
    with pytest.raises(ValueError, match="Row 0 of the benchmark has the verdict 'fine'"):
        write_benchmark_report(
            path, title="T", rows=[{"dataset": "a", "method": "b", "verdict": "fine"}]
        )
    assert not path.exists()
    write_benchmark_report(path, title="T", rows=[])
    assert "No results yet." in read(path)[1]
