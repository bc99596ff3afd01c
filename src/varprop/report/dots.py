"""One mark for each of several results, below each other, with what it is compared with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from markupsafe import Markup

from varprop.report.numerals import shortened
from varprop.report.svg import Axis, Frame, element, polyline


class Dot(NamedTuple):
    """One result.

    Attributes
    ----------
    name
        At its side.
    value, error
        Where its mark stands, and half the length of the line through it.
    told
        What is said when it is pointed at, and to who does not see it.
    kind
        The class of its mark, which colors it.
    other
        What it is compared with, a hollow mark; None if there is nothing.
    """

    name: str
    value: float
    error: float
    told: str
    kind: str
    other: float | None = None


def dot_chart(
    dots: Sequence[Dot],
    label: str,
    *,
    x: Axis,
    limits: tuple[float, float],
    band: tuple[float, float] | None = None,
) -> Markup:
    """Draw results below each other.

    Parameters
    ----------
    dots
        In the order in which they stand.
    label
        What the chart is.
    x
        The axis.
    limits
        What lies outside is drawn there.
    band
        A shaded range with a line at 0.
    """
    k = len(dots)
    at = np.arange(k, dtype=np.float64)
    names = tuple(shortened(dot.name, 28) for dot in dots)
    y = Axis("", k - 0.5, -0.5, tuple(at.tolist()), names)
    frame, layers = Frame(x, y, 440.0, 66.0 + 22.0 * k), []
    ends = [-0.5, k - 0.5]
    if band is not None:
        around = [*frame.points([band[0]] * 2, ends), *frame.points([band[1]] * 2, ends[::-1])]
        layers.append(polyline(around, "band"))
        layers.append(polyline(frame.points([0.0] * 2, ends), "axis"))

    def places(values: Sequence[float], line: float) -> list[tuple[float, float]]:
        return frame.points(np.clip(values, *limits), [line] * len(values))

    for line, dot in zip(at.tolist(), dots, strict=True):
        if dot.error > 0:
            span = [dot.value - dot.error, dot.value + dot.error]
            layers.append(polyline(places(span, line), "curve"))
        told = element("title", dot.told)
        if dot.other is not None:
            [(px, py)] = places([dot.other], line)
            diamond = f"M{px:.1f} {py:.1f}m-5 0l5-5 5 5-5 5z"
            layers.append(element("path", told, d=diamond, class_="other"))
        [(px, py)] = places([dot.value], line)
        layers.append(element("circle", told, cx=px, cy=py, r=5, class_=f"mark {dot.kind}"))
    return frame.draw(*layers, label=f"{label} {'; '.join(dot.told for dot in dots)}.")
