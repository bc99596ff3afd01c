"""What a model file says of its fit: when and from what it was made, and how good it was then.

Monitoring compares new rows with it, and the card of a model is written from it.
"""

from __future__ import annotations

import dataclasses
import datetime
import math
import os
import platform
from collections.abc import Mapping
from typing import Any

from varprop.data.sketch import Sketch
from varprop.files.container import ModelFileError
from varprop.predictive.past import Past

#: Version of the JSON.
VERSION = 1
#: What people may say of a model, and what it is headed with in the card.
WORDS = {
    "about": "About this model",
    "intended_use": "Intended use",
    "limits": "Further limits",
}
_NOTHING = "the model file's record of its fit is damaged."


@dataclasses.dataclass(frozen=True)
class Record:
    """What is known of a fit.

    Attributes
    ----------
    date
        Day of the fit, in UTC.
    versions
        Of what made it, by name.
    table
        What the table was called.
    n_rows
        Rows it was fitted on.
    settings
        As given.
    notes
        Remarks of the fit.
    scored
        How rows were scored: "out of fold", "held out", or "" if none were.
    n_scored
        How many.
    scores
        Of this model and simpler ones; None for what is no finite number.
    verdict
        The same in a sentence.
    past
        What new rows are compared with; None if none were scored.
    words
        What people said of the model, by the names of `WORDS`.
    """

    date: str
    versions: Mapping[str, str]
    table: str
    n_rows: int
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    notes: tuple[str, ...] = ()
    scored: str = ""
    n_scored: int = 0
    scores: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    verdict: str = ""
    past: Past | None = None
    words: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return what a model file holds.

        Examples
        --------
        >>> record = Record("2026-11-19", {"varprop": "0.1"}, "houses.csv", 500)
        >>> Record.from_json(record.to_json(), 1) == record
        True
        """
        return {"version": VERSION, **_plain(dataclasses.asdict(self))}

    @classmethod
    def from_json(cls, content: Any, n_targets: int) -> Record | None:
        """Read what `to_json` wrote, and trust nothing of it; None for None."""
        if content is None:
            return None
        if isinstance(content, dict) and content.get("version", VERSION) != VERSION:
            raise ModelFileError(
                "the model file describes its fit in a way this version does not know: load it "
                "with the varprop that wrote it."
            )
        try:
            fields = {key: part for key, part in content.items() if key != "version"}
            fields["notes"] = tuple(fields["notes"])
            if (past := fields["past"]) is not None:
                past["losses"] = _sketch(past["losses"])
                past["pits"] = tuple(map(_sketch, past["pits"]))
                past["counts"] = {name: tuple(each) for name, each in past["counts"].items()}
                fields["past"] = Past(**past)
            found = cls(**fields)
            sound = found._is_sound(n_targets)
        except (KeyError, TypeError, AttributeError):
            sound = False
        if not sound:
            raise ModelFileError(_NOTHING)
        return found

    def _is_sound(self, n_targets: int) -> bool:
        texts = [self.date, self.table, self.scored, self.verdict, *self.notes]
        texts += [*self.versions.values(), *self.words.values()]
        return (
            all(isinstance(text, str) for text in texts)
            and all(type(count) is int and count >= 0 for count in (self.n_rows, self.n_scored))
            and isinstance(self.settings, dict)
            and set(self.words) <= set(WORDS)
            and all(_is_score(value) for row in self.scores.values() for value in row.values())
            and (self.past is None or self.past.is_sound(n_targets))
        )


def made_today() -> tuple[str, dict[str, str]]:
    """Return the day, in UTC, and the versions at work.

    The variable SOURCE_DATE_EPOCH, in seconds, stands for the clock if it is set, so that equal
    fits of different days can make equal files.
    """
    from varprop.files.regressor import libraries

    seconds = os.environ.get("SOURCE_DATE_EPOCH", "")
    now = datetime.datetime.now(datetime.UTC)
    if seconds.isdecimal():
        now = datetime.datetime.fromtimestamp(int(seconds), datetime.UTC)
    return f"{now:%Y-%m-%d}", {**libraries(), "python": platform.python_version()}


def _sketch(entry: dict[str, Any]) -> Sketch:
    fields: Any = {k: tuple(v) if isinstance(v, list) else v for k, v in entry.items()}
    return Sketch(**fields)


def _plain(value: Any) -> Any:
    """Turn tuples and what JSON does not know into what it does."""
    if isinstance(value, Mapping):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int | str) else str(value)


def _is_score(value: Any) -> bool:
    """Whether it is a number or None, or one of these for each target."""
    if isinstance(value, dict):
        return all(not isinstance(part, dict) and _is_score(part) for part in value.values())
    return value is None or type(value) in (int, float)
