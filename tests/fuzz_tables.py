"""Hostile tables, model files and options, by the thousand: what is badly met is counted.

``python tests/fuzz_tables.py --cases 1000 --seed 0`` prints the counts and every case badly met.
A case is badly met if the command

- raises anything but SystemExit, or ends with another code than 0, 2, 3 and 4;
- ends with 0 and numbers that are not finite;
- says on standard error what is no sentence, or prints control characters;
- leaves a file behind that it should not.

Training itself is replaced by a sentence, except in a few cases: this is about what comes in.
"""

import argparse
import collections
import contextlib
import csv
import gzip
import io
import itertools
import json
import os
import pathlib
import re
import shutil
import tempfile
import time
import unittest.mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from typer.testing import CliRunner

from cli_runs import houses, workplace
from varprop.cli.app import app
from varprop.tables.text import TableError

CODES = (0, 2, 3, 4)
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_SENTENCE = re.compile(r"(varprop|note): .+[.?!)]|Wrote \d+ rows to .*\.")

CELLS = [
    *("", " ", "NA", "nan", "-", "?", "0", "1", "-1", "00123", "1e5", "1e400", "-inf", "1e-320"),
    *("42,000", "42.000", "1.234,5", "1,234.5", "1 234", "1'234", "1,2,3", "1.2.3", ".", ",", "%"),
    *("5%", "$5", "€ 5", "5 €", "$", "-$5", "$-5", "--5", "$5%", "(5)", "5e", "+5", "\u22125"),
    *(
        "Yes",
        "YES ",
        "yes",
        "true",
        "FALSE",
        "2026-01-31",
        "12:30",
        "31.12.2026",
        "\x1b[31m",
        "\x07",
    ),
    *(
        'a"b',
        '"',
        '""',
        "=1+1",
        "@x",
        "é",
        "ß",
        "SS",
        "İ",
        "\u202e",
        "\u00a0",
        "\ufeff",
        "😀",
        "x\r",
    ),
    *(
        "\t",
        "a\tb",
        "x" * 5000,
        "9" * 400,
        "0x10",
        "1_000",
        "\uff11\uff12",
        "٣",
        "NULL",
        "None",
        "Infinity",
    ),
]
NAMES = [
    *(
        "size",
        "rooms",
        "city",
        "price",
        "rent",
        "id",
        "Price",
        " size",
        "",
        " ",
        "1",
        "2.5",
        "mean",
    ),
    *(
        "\x1b[31m",
        "a\nb",
        "row",
        "x" * 3000,
        "é",
        "=a",
        "a,b",
        'q"',
        "size",
        "\u202e",
        "--drop",
        "-t",
    ),
]
ENCODINGS = ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "cp1252", "latin-1", "cp850", "shift_jis"]
DELIMITERS = [",", ";", "\t", "|", " ", ":"]


class Case:
    """One hostile call, made by a seed."""

    def __init__(self, seed, folder, models):
        self.rng = np.random.default_rng(seed)
        self.folder, self.models = folder, models
        self.command = self.pick(["fit", "fit", "fit", "predict", "predict", "evaluate", "explain"])
        self.stdin = None

    def pick(self, options):
        return options[int(self.rng.integers(len(options)))]

    def chance(self, share):
        return self.rng.random() < share

    def table(self):
        """Bytes of a table, good or bad."""
        if self.chance(0.1):
            return self.parquet()
        delimiter = self.pick(DELIMITERS[:4]) if self.chance(0.3) else ","
        rows = [line.split(",") for line in houses(int(self.rng.integers(1, 14))).splitlines()]
        for _ in range(self.pick([0, 0, 0, 1, 1, 3])):
            self.pick(rows[1:])[int(self.rng.integers(6))] = self.pick(CELLS)
        if self.chance(0.2):  # a whole column of odd cells
            few, place = [self.pick(CELLS) for _ in range(3)], int(self.rng.integers(6))
            for row in rows[1:]:
                row[place] = self.pick(few)
        if self.chance(0.1):
            rows[0][int(self.rng.integers(6))] = self.pick(NAMES)
        if self.chance(0.05):
            del self.pick(rows)[int(self.rng.integers(6)) :]
        if self.chance(0.05):
            rows = [row[:-1] for row in rows]
        out = []
        for row in rows:
            quote = self.chance(0.05)
            cells = [
                '"' + c.replace('"', '""') + '"' if quote or delimiter in c else c for c in row
            ]
            out.append(delimiter.join(cells))
            out += [""] * int(self.chance(0.03))
        text = self.pick(["\n", "\n", "\r\n", "\r"] if self.chance(0.2) else ["\n"]).join(out)
        text += "\n" * int(self.chance(0.9))
        if self.chance(0.05):
            text = f"sep={delimiter}\n" + text
        encoding = self.pick(ENCODINGS) if self.chance(0.2) else "utf-8"
        data = self.spoil(text.encode(encoding, "replace"))
        if self.chance(0.05):
            data = gzip.compress(data)
            data = data[: int(self.rng.integers(len(data)))] if self.chance(0.5) else data
        return data

    def parquet(self):
        columns = {
            name: self.pick(
                [
                    *([1.0, None, 3.0], [1, 2, 3], ["a", "b", None], ["1", "2", "3"]),
                    *([True, None, False], [None] * 3, [[1], [2], []], [np.inf, 1.0, 2.0]),
                ]
            )
            for name in ("id", "size", "rooms", "city", "price", "rent")
            if self.chance(0.95)
        }
        file = io.BytesIO()
        pq.write_table(pa.table(columns), file)
        return self.spoil(file.getvalue())

    def spoil(self, data):
        """Change a few bytes, if any."""
        if self.chance(0.8) or not data:
            return data
        data = bytearray(data)
        for _ in range(int(self.rng.integers(1, 8))):
            place = int(self.rng.integers(len(data) + 1))
            kind = int(self.rng.integers(6))
            if kind == 0:
                data[place:place] = bytes([int(self.rng.integers(256))])
            elif kind == 1:
                del data[place : place + int(self.rng.integers(1, 20))]
            elif kind == 2:
                data[place:place] = self.pick(
                    [b'"', b"\0", b"\n", b"\r", b"\xff", b",", b";", b"\x1b["]
                )
            elif kind == 3:
                data[place : place + 1] = bytes([int(self.rng.integers(256))])
            elif kind == 4:
                data[place:place] = data[place : place + 40]
            elif self.chance(0.1):
                data[place:place] = b"x" * 200_000
            if not data:
                break
        return bytes(data)

    def model(self):
        """A model file, good or bad."""
        path = self.pick(self.models)
        if self.chance(0.85):
            return path
        data = bytearray(path.read_bytes())
        where = len(data) if self.chance(0.3) else 3000
        for _ in range(int(self.rng.integers(1, 4))):
            data[int(self.rng.integers(where))] = int(self.rng.integers(256))
        if self.chance(0.2):
            del data[int(self.rng.integers(len(data))) :]
        other = self.folder / "bad.safetensors"
        other.write_bytes(bytes(data))
        return other

    def options(self):
        """Options, some of them senseless."""
        given = []

        def maybe(share, name, values):
            if self.chance(share):
                given.extend([name, str(self.pick(values))])

        maybe(0.05, "--delimiter", [*DELIMITERS, "tab", "\\t", '"', "\n", "é", "", "ab", "a", "1"])
        maybe(0.05, "--decimal", [".", ",", "", ";", ".."])
        maybe(0.05, "--thousands", [".", ",", "'", " ", "space", "x", ""])
        maybe(
            0.05, "--encoding", [*ENCODINGS, "hex", "idna", "utf-7", "x", "", "undefined", "\x1b"]
        )
        maybe(0.05, "--na", [*CELLS[:20], "\x1b[31m"])
        if self.command == "fit":
            names = [name for name in NAMES if name]
            given += ["-t", self.pick(names) if self.chance(0.15) else "price"]
            if self.chance(0.8):
                given += ["--drop", "rent", "--id", "id"]
            for option in ("--drop", "--id", "--category", "--number", "-t"):
                maybe(0.06, option, names)
            maybe(
                0.8, "--missing", ["error", "drop", "drop", "impute", "impute", "impute", "guess"]
            )
            maybe(0.2, "--holdout", ["0", "0.5", "1", "-1", "nan", "x"])
            maybe(0.1, "--hidden", ["2", "0", "a", "2,2", ""])
        else:
            maybe(0.4, "--unseen", ["average"] * 9 + ["error", "x"])
        if self.command == "predict":
            maybe(0.1, "--interval", ["0.5", "0.9", "0.99", "0", "1", "nan", "x", "-1"])
            maybe(0.1, "--quantiles", ["0.5", "0.1,0.9", "", "nan", "0.5,0.5", "x", "1"])
        return given + ["--json"] * int(self.chance(0.2))

    def arguments(self):
        """All of it; the table may come from standard input."""
        data = self.table()
        name = self.pick(["t.csv", "t.csv", "t.tsv", "t.parquet", "t", "t\x1b[31m.csv", "t\n.csv"])
        path = self.folder / name
        path.write_bytes(data)
        table = str(path)
        if self.chance(0.2):
            table, self.stdin = "-", data
        elif self.chance(0.02):
            table = self.pick([str(self.folder), str(self.folder / "no*.csv"), "/dev/null", ""])
        words = [self.command]
        if self.command != "fit":
            words.append(str(self.model()))
        words += [table, *self.options()]
        if self.command == "fit":
            words += ["-o", self.output("m.safetensors"), "--max-iter", "1"]
        elif self.command == "predict" and self.chance(0.5):
            words += [
                "-o",
                self.output(self.pick(["o.csv", "o.tsv", "o.parquet", "o.csv.gz", "o.x"])),
            ]
        return words

    def output(self, name):
        if self.chance(0.9):
            return str(self.folder / name)
        (self.folder / "loop").symlink_to(self.folder / "loop")
        odd = [self.folder, self.folder / "no" / name, self.folder / "loop", self.folder / "t.csv"]
        return str(self.pick(odd))


def without_ids(words, text):
    """Standard output without what stood in the table: ids, and the cells that `explain` shows."""
    if words[0] == "predict":
        rows = csv.reader(io.StringIO(text))
        return " ".join(cell for row in rows for cell in row[1:])
    shown = [line[-40:] for line in text.splitlines() if not line.startswith("row ")]
    return "\n".join([*shown, *re.findall(r": \w+ \S+ ± \S+$", text, re.M)])


def judge(words, result, folder, before):
    """Return what is wrong with how a case was met."""
    wrong = []
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        wrong.append(f"raised {result.exception!r}"[:300])
    if result.exit_code not in CODES:
        wrong.append(f"ended with {result.exit_code}")
    for line in result.stderr.splitlines() if result.exit_code != 2 else []:
        if not _SENTENCE.fullmatch(line):
            wrong.append(f"no sentence: {line!r}"[:300])
    text = result.stderr
    if words[0] != "predict" or "--json" in words:  # else it may be the ids, as they are in a file
        text += result.stdout
    if _CONTROL.search(text):
        wrong.append(f"control characters in {text!r}"[:300])
    if result.exit_code in (3, 4) and not result.stderr.startswith(("varprop: ", "note: ")):
        wrong.append("says nothing")
    if result.exit_code == 0 and "--json" in words:
        found = json.loads(result.stdout)
        shown = [*(found.get("scorecard") or {}).values()]
        if "no prediction for" not in result.stderr:
            shown.append(found.get("predictions", {}) | {"id": None})
        if any(
            None in (part if isinstance(part, list) else [part])
            for scores in shown
            for name, part in scores.items()
            if name not in ("id", "outside")  # nothing is outside where all is as in training
        ):
            wrong.append(f"not finite: {result.stdout}"[:300])
    elif result.exit_code == 0 and re.search(r"\b(nan|inf)\b", without_ids(words, result.stdout)):
        wrong.append(f"not finite: {result.stdout}"[:300])
    outputs = {word for option, word in itertools.pairwise(words) if option == "-o"}
    allowed = before | {pathlib.Path(word).name for word in outputs if result.exit_code == 0}
    left = set(os.listdir(folder)) - allowed
    if left:
        wrong.append(f"left behind {left}")
    return wrong


def run_cases(seeds, *, trained=0.0):
    """Run cases by their seeds; return how each ended, and those badly met."""
    place = workplace()
    models = [place / "impute.safetensors", place / "drop.safetensors", place / "two.safetensors"]
    codes, bad = collections.Counter(), []

    def stop(*args, **options):
        raise TableError("training would begin here.")

    for seed in seeds:
        folder = pathlib.Path(tempfile.mkdtemp(prefix="fuzz-"))
        try:
            case = Case(seed, folder, models)
            words = case.arguments()
            before = set(os.listdir(folder))
            real = case.chance(trained)
            fits = unittest.mock.patch("varprop.tables.fitting._fit", stop)
            with contextlib.ExitStack() as stack:
                stack.enter_context(unittest.mock.patch("tempfile.tempdir", str(folder)))
                if not real:
                    stack.enter_context(fits)
                result = CliRunner().invoke(app, words, input=case.stdin)
            codes[words[0], result.exit_code] += 1
            result.exc_info = None  # whose frames would keep temporary files
            wrong = judge(words, result, folder, before)
            if wrong:
                bad.append((seed, words, wrong))
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    return codes, bad


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--trained", type=float, default=0.01, help="share of fits that train")
    chosen = parser.parse_args()
    begin = time.perf_counter()
    found, badly = run_cases(range(chosen.seed, chosen.seed + chosen.cases), trained=chosen.trained)
    for (command, code), count in sorted(found.items()):
        print(f"{command:10} exit {code}: {count}")
    for seed, words, wrong in badly:
        print(f"seed {seed}: {words!r}"[:400])
        for line in wrong:
            print(f"    {line}")
    print(f"{len(badly)} of {chosen.cases} badly met, in {time.perf_counter() - begin:.0f} s")
