"""The tables as text: for a terminal, as Markdown, as CSV."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from typing import Any

from varprop.bench.tables import Row

HEADERS = (
    "Data",
    "Method",
    "Paper",
    "By",
    "Ours ± se",
    "Δ in se",
    "Verdict",
    "RMSE",
    "CRPS",
    "in 90 %",
    "Splits",
)
SIZE_HEADERS = ("Data", "N", "D", "Outputs", "Paper's N", "Paper's D", "Verdict", "Data present")

NONE = "\N{EN DASH}"

CAPTIONS = {
    1: "Table 1: test NLL, one output, in the target's units",
    2: "Table 2: joint test NLL, several outputs",
    3: "Table 3: sizes of the data",
}


def number(value: Any, digits: int = 3) -> str:
    """Return a number or a dash where there is none.

    Examples
    --------
    >>> number(2.5), number(None), number(float("nan"))
    ('2.500', '–', '–')
    """
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return NONE
    return f"{value:.{digits}f}"


def cells(line: Row) -> tuple[str, ...]:
    """Return the texts of one line of Table 1 or 2, in the order of `HEADERS`."""
    paper = number(line["paper_nll"])
    if line["paper_pm"] is not None:
        paper += f"±{number(line['paper_pm'])} {line['paper_pm_kind'] or ''}".rstrip()
    if line["paper_note"]:
        paper += " *"
    title = line["title"] + (" (standardized)" if line["units"] == "standardized" else "")
    if not line["n_splits"]:
        blank = [NONE] * 3
        return (title, line["method_title"], paper, *blank, line["verdict"], *blank, NONE)
    ours = number(line["nll_mean"])
    if line["n_splits"] > 1:
        ours += f"±{number(line['nll_se'])}"
    if line["units"] == "standardized":
        ours += f" (raw {number(line['nll_other_units'], 2)})"
    return (
        title,
        line["method_title"],
        paper,
        line["protocol"],
        ours,
        number(line["difference_in_se"], 1),
        line["verdict"],
        _short(line["rmse_mean"]),
        _short(line["crps"]),
        f"{line['coverage90']:.0%}",
        str(line["n_splits"]),
    )


def _short(value: float) -> str:
    return f"{value:.3g}"


def size_cells(line: Row) -> tuple[str, ...]:
    """Return the texts of one line of Table 3, in the order of `SIZE_HEADERS`."""
    sizes = (line["n"], line["d"], line["targets"], line["paper_n"], line["paper_d"])
    present = "yes" if line["present"] else "no"
    return (line["title"], *(f"{size:,}" for size in sizes), line["verdict"], present)


def _texts(which: int, lines: Sequence[Row]) -> tuple[Sequence[str], list[tuple[str, ...]]]:
    if which == 3:
        return SIZE_HEADERS, [size_cells(line) for line in lines]
    return HEADERS, [cells(line) for line in lines]


def notes(lines: Sequence[Row]) -> list[str]:
    """Return what the asterisks mean."""
    return [
        f"* {line['title']}, {line['method_title']}: {line['paper_note']}"
        for line in lines
        if line.get("paper_note")
    ]


def markdown(which: int, lines: Sequence[Row]) -> str:
    """Return a table as Markdown, with its caption.

    Examples
    --------
    >>> from varprop.bench.tables import table
    >>> markdown(3, table(3, [])).splitlines()[4]
    '| Boston | 506 | 13 | 1 | 506 | 13 | reproduced | yes |'
    """
    headers, texts = _texts(which, lines)
    out = [f"**{CAPTIONS[which]}**", ""]
    out.append("| " + " | ".join(headers) + " |")
    out.append("|" + "---|" * len(headers))
    out += ["| " + " | ".join(text) + " |" for text in texts]
    for note in dict.fromkeys(notes(lines)):
        out += ["", note.replace("*", "\\*", 1)]
    return "\n".join(out) + "\n"


def as_csv(lines: Sequence[Row]) -> str:
    """Return all fields of a table's lines as CSV, for machines."""
    fields = list(dict.fromkeys(field for line in lines for field in line))
    out = io.StringIO()
    writer = csv.DictWriter(out, fields, lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return out.getvalue()


#: What a narrow terminal shows of `HEADERS`: the data set becomes a line of its own.
_NARROW = ("Method", "Paper", "By", "Ours ± se", "Δ in se", "Verdict")
_COLORS = {"better": "green", "worse": "red", "reproduced": "cyan"}


def terminal(which: int, lines: Sequence[Row], *, width: int = 80) -> Any:
    """Return a Rich table, verdicts in color as well as in words.

    A terminal of 120 columns shows all of them; a narrower one the most important.
    """
    from rich import box
    from rich.table import Table

    headers, texts = _texts(which, lines)
    caption = "\n".join(dict.fromkeys(notes(lines))) or None
    out = Table(title=CAPTIONS[which], caption=caption, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    narrow = which != 3 and width < 120
    shown = _NARROW if narrow else headers
    for header in shown:
        left = header in ("Data", "Method", "By", "Verdict")
        out.add_column(header, justify="left" if left else "right", no_wrap=True)
    before = None
    for line, text in zip(lines, texts, strict=True):
        if narrow and line["dataset"] != before:
            out.add_row(f"[bold]{text[0]}[/]")
        elif line["dataset"] != before and before is not None and which != 3:
            out.add_section()
        before = line["dataset"]
        values = dict(zip(headers, text, strict=True))
        color = _COLORS.get(line["verdict"])
        if color:
            values["Verdict"] = f"[{color}]{line['verdict']}[/]"
        out.add_row(*(values[header] for header in shown))
    return out
