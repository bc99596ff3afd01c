"""Parts of a model by name, rows not seen and rows trained on, recalibrated intervals.

With the simple models alone, which take no time.
"""

import csv
import io

import numpy as np
import pytest

from cli_runs import QUICK, run, run_json, sentence
from varprop.tables.model import TableModel


def rows_of(text):
    return list(csv.DictReader(io.StringIO(text)))


def write(path, n, seed, *, extra=()):
    rng = np.random.default_rng(seed)
    size, rooms = rng.uniform(20, 200, n), rng.integers(1, 7, n)
    city = np.array(["Bern", "Ulm"])[rng.integers(0, 2, n)]
    # Heavy tails: the stated intervals of a Gaussian are too wide here.
    price = 3 * size + 20 * rooms + 10 * rng.standard_t(2, n)
    lines = [
        f"{s:.3f},{r},{c},{p:.3f}" for s, r, c, p in zip(size, rooms, city, price, strict=True)
    ]
    path.write_text("\n".join(["size,rooms,city,price", *lines, *extra]) + "\n")
    return path


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("parts")
    write(folder / "train.csv", 300, 0)
    write(folder / "new.csv", 400, 1)
    write(folder / "held.csv", 200, 2)
    fit = ("fit", folder / "train.csv", "-t", "price", "--holdout", "0")
    run(*fit, "--model", "linear", "-o", folder / "line.safetensors")
    run(*fit, "--model", "network", *QUICK, "-o", folder / "network.safetensors")
    return folder


def test_the_linear_model_needs_no_network(place):
    result = run_json(
        "fit",
        place / "train.csv",
        "-t",
        "price",
        "--model",
        "linear",
        "-o",
        place / "x.safetensors",
    )
    assert list(result["weights"]) == ["linear", "constant"]
    assert set(result["out_of_fold_nll"]) == {"linear", "constant", "stack"}
    assert result["weights"]["linear"] > 0.8


def test_a_part_predicts_and_is_scored_by_name(place):
    model, table = place / "network.safetensors", place / "new.csv"
    whole, line = (
        rows_of(run("predict", model, table, *options).stdout)
        for options in ((), ("--model", "linear"))
    )
    alone = rows_of(run("predict", place / "line.safetensors", table, "--model", "linear").stdout)
    assert [row["mean"] for row in line] == [row["mean"] for row in alone]
    assert [row["mean"] for row in line] != [row["mean"] for row in whole]
    scores = run_json("evaluate", model, table, "--model", "linear")["scorecard"]
    assert scores["this model"] == scores["linear model"]
    explained = run_json("explain", model, place / "held.csv", "--model", "linear")["rows"]
    first = explained[0]["targets"]["price"]
    assert first["mean"] == pytest.approx(
        float(
            rows_of(run("predict", model, place / "held.csv", "--model", "linear").stdout)[0][
                "mean"
            ]
        )
    )
    said = sentence("predict", model, table, "--model", "forest", code=3)
    assert said == "the model has no part 'forest': it has 'network', 'linear', 'constant'."


def test_rows_outside_of_what_was_seen_are_named(place, tmp_path):
    extra = ["6000,3,Bern,1", "50,3,Rom,1", "50,40,Ulm,1"]
    table = write(tmp_path / "odd.csv", 5, 3, extra=extra)
    result = run("predict", place / "line.safetensors", table, "--unseen", "average")
    said = [row["outside"] for row in rows_of(result.stdout)]
    assert said[:5] == [""] * 5
    assert said[5].startswith("size is 6000, seen 20")
    assert said[6] == "city is 'Rom', which training did not have"
    assert said[7] == "rooms is 40, seen 1 to 6"
    assert (
        "3 rows lie outside of what training has seen, where a prediction is a guess"
        in result.stderr
    )
    assert "line 7 of odd.csv: size is 6000" in result.stderr


def test_rows_that_were_trained_on_are_found_out(place, tmp_path):
    model, page = place / "line.safetensors", tmp_path / "r.html"
    seen = run_json("evaluate", model, place / "train.csv", "--report", page)
    assert seen["share_trained_on"] == 1.0
    assert (
        "100% of these rows were trained on: the scores are not those of new rows." in seen["notes"]
    )
    assert "of which the model was trained on 100 %" in page.read_text("utf-8")
    new = run_json("evaluate", model, place / "new.csv", "--report", page)
    assert new["share_trained_on"] == 0.0
    assert not any("trained on" in note for note in new["notes"])
    assert "that the model had not seen" in page.read_text("utf-8")
    lines = (place / "train.csv").read_text().splitlines()
    mixed = tmp_path / "mixed.csv"
    mixed.write_text("\n".join(lines[:101] + (place / "new.csv").read_text().splitlines()[1:301]))
    assert run_json("evaluate", model, mixed)["share_trained_on"] == 0.25


def test_intervals_are_recalibrated_with_rows_not_trained_on(place):
    model, new, held = place / "line.safetensors", place / "new.csv", place / "held.csv"
    plain, moved = (
        rows_of(run("predict", model, new, "--interval", "0.8", *options).stdout)
        for options in ((), ("--recalibrate", held))
    )
    y = np.array([float(row["price"]) for row in rows_of(new.read_text())])

    def covered(rows):
        ends = [np.array([float(row[end]) for row in rows]) for end in ("lower", "upper")]
        return np.mean((ends[0] <= y) & (y <= ends[1]))

    assert covered(plain) > 0.9  # heavy tails widen a Gaussian
    assert 0.74 < covered(moved) < 0.86
    # By hand: the order statistic of the held-out rows' errors in standard deviations.
    fitted = TableModel.load(model)
    table = rows_of(run("predict", model, held).stdout)
    mean, std = (np.array([float(row[name]) for row in table]) for name in ("mean", "std"))
    target = np.array([float(row["price"]) for row in rows_of(held.read_text())])
    factor = np.sort(np.abs(target - mean) / std)[int(np.ceil(201 * 0.8)) - 1]
    row = moved[0]
    assert float(row["upper"]) == pytest.approx(float(row["mean"]) + factor * float(row["std"]))
    assert fitted.choice is None
    said = sentence("predict", model, new, "--recalibrate", place / "train.csv", code=3)
    assert "100% of the rows of train.csv were trained on" in said
    said = sentence("predict", model, new, "--recalibrate", held, "--interval", "0.999", code=3)
    assert "needs at least 999 held-out rows, but there are 200" in said
