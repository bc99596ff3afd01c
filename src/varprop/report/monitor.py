"""The page of a model on new rows: what has changed beyond what chance allows."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup

from varprop.predictive.diagnostics import histogram_of
from varprop.report import charts
from varprop.report.charts import Figure
from varprop.report.files import asset, write_page
from varprop.report.numerals import number, percent, shortened
from varprop.report.svg import BAR_WIDTH, HATCH, Axis, Frame, bar_chart, element, polyline

# Columns whose cells are drawn, and targets.
_MOST_DRAWN, _MOST_TARGETS = 8, 6
_WORDS = {"green": "as before", "amber": "changed", "red": "do not rely on it"}


def write_monitor_report(
    path: str | os.PathLike[str],
    *,
    title: str,
    monitored: Mapping[str, Any],
    settings: Mapping[str, object] | None = None,
) -> None:
    """Write one self-contained HTML page on a model and new rows.

    Parameters
    ----------
    path
        Where to write; an existing file is replaced.
    title
        Heading of the page.
    monitored
        Of `varprop.tables.monitor_table`, by ``to_json()``.
    settings
        To print, beside the date and the versions.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "monitor.html"
    >>> found = {"state": "green", "sentence": "Green: nothing has changed.", "n_rows": 10}
    >>> found |= {"n_targets": 0, "checks": [], "courses": [], "blocks": [], "pits": {}}
    >>> write_monitor_report(path, title="Trial", monitored=found | {"least": None, "notes": []})
    >>> path.read_text("utf-8")[:15]
    '<!DOCTYPE html>'
    """
    checks, blocks = monitored["checks"], monitored["blocks"]
    columns = [check for check in checks if check["about"] == "column"]
    changed = [check for check in checks if check["state"] != "green"]
    rank = ("target", "rows", "column")
    # As they stand in the table, but what has changed first.
    ordered = sorted(columns, key=lambda check: check["state"] == "green")
    drawn = [check for check in ordered if check["state"] != "green" and check["cells"]]
    write_page(
        path,
        "monitor.html",
        style=asset("monitor.css"),
        settings=settings,
        title=title,
        found=monitored,
        words=_WORDS,
        n_changed=len(changed),
        reasons=sorted(changed, key=lambda c: (c["state"] != "red", rank.index(c["about"]))),
        others=[_cells(check) for check in checks if check["about"] != "column"],
        columns=[_cells(check) for check in ordered],
        cells=[_cells_figure(check) for check in drawn[:_MOST_DRAWN]],
        n_drawable=len(drawn),
        courses=[_course_figure(course, blocks) for course in monitored["courses"]],
        pits=[_pit_figure(*each) for each in list(monitored["pits"].items())[:_MOST_TARGETS]],
        least=None if monitored["least"] is None else percent(monitored["least"]),
    )


def _cells(check: Mapping[str, Any]) -> dict[str, Any]:
    """Return a line of a table, each cell a text and a number to sort by."""
    before, now = check["missing"] or (None, None)
    shares = (check["moved"], before, now, check["outside"])
    texts = [("–", "") if share is None else (percent(share), share) for share in shares]
    p = check["p"]
    chance = "no less" if p >= 1 else f"{number(p, 2)}" if p >= 1e-6 else "< 10⁻⁶"
    return {**check, "shares": texts, "chance": (chance, p)}


def _course_figure(course: Mapping[str, Any], blocks: Sequence[str]) -> Figure:
    """Draw a number over blocks of rows, with the range that chance allows."""
    values, at = np.asarray(course["values"]), np.arange(1.0, len(course["values"]) + 1)
    parts = [values]
    has_band = course["low"] is not None
    if has_band:
        parts += [np.asarray(course["low"]), np.asarray(course["high"])]
    name = (
        f"{course['name']}, {shortened(course['target'], 20)}"
        if course["target"]
        else course["name"]
    )
    ticks = tuple(float(k) for k in at if len(at) <= 8 or k % 2)
    x = Axis("part of the rows", 0.7, len(at) + 0.3, ticks, tuple(f"{k:.0f}" for k in ticks))
    y = Axis.around("share of rows" if course["is_share"] else course["name"], *parts)
    if course["is_share"]:
        low, high = max(0.0, y.low), min(1.0, y.high)
        marks = Axis("", low, high).marks(5)[0]
        y = Axis(y.label, low, high, tuple(marks), tuple(_short(mark) for mark in marks))
    frame, layers = Frame(x, y, height=230.0), []
    outside = np.zeros(len(values), bool)
    if has_band:
        low_, high_ = parts[1:]
        wide = np.concatenate([[0.7], at, [len(at) + 0.3]])
        ends = [np.concatenate([v[:1], v, v[-1:]]) for v in (low_, high_)]
        layers.append(frame.band(wide, ends[0], ends[1], "band"))
        outside = (values < low_) | (values > high_)
    if course["expected"] is not None:
        across = [0.7, len(at) + 0.3]
        layers.append(polyline(frame.points(across, [course["expected"]] * 2), "ideal"))
    layers.append(polyline(frame.points(at, values), "curve"))
    dots = []
    for (px, py), out in zip(frame.points(at, values), outside.tolist(), strict=True):
        shape = f"M{px:.1f} {py:.1f}m-5 0l5-5 5 5-5 5z" if out else ""
        dots.append(
            element("path", d=shape, class_="out")
            if out
            else element("circle", cx=px, cy=py, r=3.5)
        )
    layers.append(element("g", Markup("".join(dots)), class_="blocks"))
    spoken = ", ".join(_short(v) if course["is_share"] else number(v) for v in values.tolist())
    finding = "Nothing says what chance allows."
    if has_band:
        count = int(outside.sum())
        is_ = "is" if count == 1 else "are"
        finding = f"{count or 'None'} of {len(values)} parts {is_} outside of what chance allows"
        finding += " in 19 of 20 parts." if count else "."
    legend = [("line", "the new rows")]
    legend += [("band", "what chance allows")] if has_band else []
    legend += [("ideal", "when fitted, or as stated")] if course["expected"] is not None else []
    how = f"From {blocks[0]} to {blocks[-1]}." if blocks else ""
    svg = frame.draw(*layers, label=f"{name}, part by part: {spoken}.")
    return Figure(_capital(name), svg, how, finding, tuple(legend))


def _pit_figure(name: str, values: Sequence[float]) -> Figure:
    found = histogram_of(np.asarray(values), np.asarray(values))
    outside = int(((found.counts < found.lower) | (found.counts > found.upper)).sum())
    return Figure(
        f"Where {shortened(name, 30)} lies in what was stated (PIT)",
        charts.pit(found, f"Histogram of the PIT of {name}, {len(values)} rows."),
        "All bars are alike if the stated distributions are the true ones. High at both ends: too "
        "narrow; high on one side: predictions are too low or too high.",
        f"{len(found.counts) - outside} of {len(found.counts)} bars end inside of what chance "
        "allows for stated distributions that are right.",
        (("bar", "the new rows"), ("band", "what chance allows"), ("ideal", "as stated")),
    )


def _cells_figure(check: Mapping[str, Any]) -> Figure:
    """Draw two bars per cell of a column: training, and the new rows."""
    names, before, now = check["cells"]
    row, left, tail = 40.0, 128.0, 44.0
    scale = (BAR_WIDTH - left - tail) / max(*before, *now, 1e-9)
    parts = [HATCH]
    for i, (name, *pair) in enumerate(zip(names, before, now, strict=True)):
        y = 6 + i * row
        text = {"x": left - 8, "y": y + 19, "class_": "name", "text_anchor": "end"}
        parts.append(element("text", shortened(name, 19), **text))
        for k, (value, kind) in enumerate(zip(pair, ("spread", "mean"), strict=True)):
            at = y + 3 + 13 * k
            size = {"width": max(value * scale, 1.0), "height": 11.0}
            parts.append(element("rect", x=left, y=at, **size, class_=kind))
            end = {"x": left + value * scale + 5, "y": at + 9.5}
            parts.append(element("text", _short(value), **end, class_="tick"))
    triples = zip(names, before, now, strict=True)
    spoken = "; ".join(f"{name}: {_short(a)}, now {_short(b)}" for name, a, b in triples)
    label = f"Shares of {check['name']}, in training and now. {spoken}."
    return Figure(
        check["name"],
        bar_chart(parts, 10 + row * len(names), label),
        "Shares of the rows.",
        f"{_capital(check['finding'])}.",
        (("spread", "training"), ("mean", "the new rows")),
    )


def _short(share: float) -> str:
    return percent(share).replace("\N{NO-BREAK SPACE}", " ")


def _capital(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"
