"""The card of a model, in Markdown: what it is, of what data, how good, its limits, its use.

All of it stands in the model file: facts are written there by the fit, and words of people by
`describe_model`.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from varprop.errors import printable
from varprop.files.container import read_model_file, write_model_file
from varprop.tables.columns import CategoryColumn, Preprocessing
from varprop.tables.description import from_json
from varprop.tables.monitored import in_percent
from varprop.tables.record import WORDS, Record
from varprop.tables.text import TableError

# Characters of a person's words, and rows of the table of columns.
_MOST_WORDS, _MOST_COLUMNS = 20_000, 200
_SPECIAL = re.compile(r"([\\`*_{}\[\]|~#$])")
_PREDICTED = {
    "numbers": "a number, with its whole predictive distribution",
    "counts": "a count, with its whole predictive distribution",
    "censored": "a number that was known up to bounds, with its whole predictive distribution",
    "classes": "a class, with the probability of each",
}


def model_card(path: str | os.PathLike[str]) -> str:
    """Return the card of a model that `varprop fit` wrote, in Markdown.

    Whatever stands in names and words is shown as it is, and neither as Markdown nor as HTML. What
    older files do not say is said to be unknown.

    Parameters
    ----------
    path
        The model file.

    Raises
    ------
    InputError
        If it is none, or was saved from Python without a table.

    Examples
    --------
    >>> import tempfile
    >>> import pyarrow as pa
    >>> from varprop.tables import Roles, fit_table
    >>> from varprop.tables.source import Source
    >>> table = pa.table({"size": np.arange(60) % 7, "price": np.arange(60) % 7 + 0.5})
    >>> path = os.path.join(tempfile.mkdtemp(), "houses.safetensors")
    >>> fit_table(Source.of_table(table), Roles(("price",)), model="linear").model.save(path)
    >>> describe_model(path, {"intended_use": "Offers for flats."})
    >>> text = model_card(path)
    >>> text.splitlines()[0], "Offers for flats." in text
    ('# Model card: houses', True)
    """
    header, arrays = _read(path)
    pre, record = _known(header, path)
    name = pathlib.PurePath(path).stem
    parts = [f"# Model card: {_text(name)}"]
    if record and record.verdict.startswith("Do not use"):
        parts.append(f"**{_text(record.verdict)}**")
    parts += _words(record, "about")
    parts.append(_facts(header, pre, record))
    parts += ["## Intended use", *(_words(record, "intended_use") or [_usual_use(pre)])]
    parts += ["## Data", *_data(header, arrays, pre)]
    parts += ["## Scores", *_scores(record)]
    parts += ["## Limits", "\n".join(f"- {limit}" for limit in _limits(header, pre, record))]
    parts += _words(record, "limits")
    parts += ["## Looking after it", _after(os.path.basename(path))]
    if record and record.settings:
        rows = [f"| {_text(key)} | {_text(str(v))} |" for key, v in record.settings.items()]
        parts += ["## Settings of the fit", "\n".join(["| | |", "|---|---|", *rows])]
    return "\n\n".join(parts) + "\n"


def describe_model(path: str | os.PathLike[str], words: Mapping[str, str]) -> None:
    """Write what people say of a model into its file, for its card; the model stays the same.

    Parameters
    ----------
    path
        A model file that `varprop fit` wrote; it is replaced whole or not at all.
    words
        Plain text by the names "about", "intended_use" and "limits"; an empty one takes away what
        was there.

    Raises
    ------
    InputError
        If it is no such file, or a text is too long.
    """
    header, arrays = _read(path)
    record = _known(header, path)[1]
    for name, text in words.items():
        if name not in WORDS:
            raise ValueError(f"words are said by {', '.join(WORDS)}, not {name!r}.")
        if len(text) > _MOST_WORDS:
            raise TableError(
                f"the words for {WORDS[name].lower()!r} have {len(text):,} characters: a card "
                f"takes {_MOST_WORDS:,} at most."
            )
    said = {**(record.words if record else {}), **words}
    said = {name: text.strip() for name, text in said.items() if text.strip()}
    record = dataclasses.replace(record or Record("", {}, "", 0), words=said)
    header["table"] = header["table"] | {"record": record.to_json()}
    write_model_file(path, header, arrays)


def _read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    # What the arrays must be is for those who predict with them; the checksum holds for all.
    return read_model_file(path, lambda header, table: None)


def _known(
    header: dict[str, Any], path: str | os.PathLike[str]
) -> tuple[Preprocessing, Record | None]:
    content = header.get("table")
    if content is None:
        raise TableError(
            f"{os.path.basename(path)} was saved from Python without a table: a card needs a model "
            "of `varprop fit` or `varprop.tables.fit_table`."
        )
    pre = from_json(content)
    return pre, Record.from_json(content.get("record"), len(pre.targets))


def _text(text: str) -> str:
    r"""Return text that Markdown shows as it is, on one line.

    Examples
    --------
    >>> print(_text("a|b</script>*"))
    a\|b&lt;/script&gt;\*
    """
    text = _SPECIAL.sub(r"\\\1", " ".join(printable(text).split()))
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _words(record: Record | None, name: str) -> list[str]:
    """Return the paragraphs that somebody wrote."""
    said = record.words.get(name, "") if record else ""
    return [_text(part) for part in re.split(r"\n\s*\n", said) if part.strip()]


def _usual_use(pre: Preprocessing) -> str:
    targets = ", ".join(map(_text, pre.targets))
    return (
        f"Predictions of {targets}, with how sure they are, for rows that come from where the "
        "training rows came from. Nobody has said more in this file (`varprop card MODEL "
        "--intended-use TEXT` does)."
    )


def _facts(header: dict[str, Any], pre: Preprocessing, record: Record | None) -> str:
    targets = ", ".join(f"**{_text(name)}**" for name in pre.targets)
    shares = sorted(header.get("weights", [["network", 1.0]]), key=lambda pair: -pair[1])
    made_of = ", ".join(f"{_text(str(n))} {in_percent(w)}" for n, w in shares if w >= 0.0005)
    versions = (record.versions if record else {}) or header.get("libraries", {})
    fitted = "not known: the model file is of before"
    if record and record.date:
        fitted = f"{_text(record.date)} on {record.n_rows:,} rows of {_text(record.table)}"
    rows = {
        "Predicts": f"{targets}: {_PREDICTED[pre.outcome.kind]}",
        "From": f"{len(pre.inputs)} column{'s' * (len(pre.inputs) != 1)}",
        "Likelihood": _text(pre.outcome.likelihood),
        "Made of": f"a mixture: {made_of}",
        "Fitted": fitted,
        "With": ", ".join(f"{_text(k)} {_text(str(v))}" for k, v in sorted(versions.items())),
    }
    return "\n".join(["| | |", "|---|---|", *(f"| {k} | {v} |" for k, v in rows.items())])


def _data(
    header: dict[str, Any], arrays: dict[str, np.ndarray], pre: Preprocessing
) -> Iterator[str]:
    yield (
        f"Missing inputs: {pre.missing} (error: refused, drop: no prediction, impute: filled in as "
        "uncertain)."
    )
    low, high = (arrays.get(f"domain.{end}") for end in ("low", "high"))
    lines = ["| column | holds | typical | seen | missing |", "|---|---|---|---|---|"]
    for column, place in list(zip(pre.inputs, pre.slices, strict=True))[:_MOST_COLUMNS]:
        if isinstance(column, CategoryColumn):
            total = sum(column.counts)
            pairs = zip(column.levels, column.counts, strict=True)
            shares = {level: count / total for level, count in pairs}
            top = sorted(shares.items(), key=lambda pair: -pair[1])
            shown = ", ".join(
                f"{'(missing)' if level is None else _text(level)} {in_percent(share)}"
                for level, share in top[:8]
            )
            more = f" and {len(top) - 8} more" if len(top) > 8 else ""
            typical = "(missing)" if column.typical is None else _text(column.typical)
            cells = [f"{len(top)} categories", typical, f"{shown}{more}"]
            cells.append(in_percent(shares.get(None, 0.0)))
        else:
            sketch, seen, missing = column.sketch, "not known", "not known"
            if low is not None and high is not None and low.shape == high.shape:
                seen = f"{low[place][0]:.6g} to {high[place][0]:.6g}"
            if sketch is not None:
                missing = in_percent(sketch.missing / (sketch.n + sketch.missing))
            typical = f"{column.mean:.4g} ± {np.sqrt(column.var):.3g}"
            cells = ["numbers", typical, seen, missing]
        lines.append(f"| {' | '.join([_text(column.name), *cells])} |")
    yield "\n".join(lines)
    if len(pre.inputs) > _MOST_COLUMNS:
        yield f"The first {_MOST_COLUMNS} of {len(pre.inputs)} columns."
    if seen_rows := header.get("n_seen"):
        yield f"The training rows are {seen_rows:,} different ones."
    if pre.ids or pre.dropped:
        names = ", ".join(map(_text, (*pre.ids, *pre.dropped)))
        yield f"Columns that the model does not look at: {names}."


def _scores(record: Record | None) -> Iterator[str]:
    from varprop.predictive.scorecard import CLASS_SCORES, MODEL, SCORES, by_target

    if record is None or not record.scores:
        yield "Not known: no rows were scored, or the model file is of before."
        return
    how = "rows that were held out"
    if record.scored == "out of fold":
        how = "training rows, each predicted by models that had not seen it"
    yield (
        f"Of {record.n_scored:,} {how}. Lower is better, higher of R2 and "
        "accuracy; coverages should be what they state."
    )
    order = sorted(record.scores, key=lambda name: name != MODEL)
    card: Any = {name: record.scores[name] for name in order}
    for target, models in by_target(card).items():
        known = [name for name in SCORES | CLASS_SCORES if name in models[order[0]]]
        if not known:
            continue
        lines = [f"| {_text(target)} | {' | '.join(known)} |", "|---" * (len(known) + 1) + "|"]
        for name, values in models.items():
            cells = [_score(score, values.get(score)) for score in known]
            lines.append(f"| {' | '.join([_text(name), *cells])} |")
        yield "\n".join(lines)
    yield _text(record.verdict)


def _score(name: str, value: float | None) -> str:
    if value is None:
        return "-"
    return in_percent(value) if name.startswith(("coverage", "accuracy")) else f"{value:.4g}"


def _limits(header: dict[str, Any], pre: Preprocessing, record: Record | None) -> Iterator[str]:
    yield (
        "A prediction for a row outside of what training has seen (a value far beyond the range "
        "above, a new category, an unusual combination) is a guess; `varprop predict` says so in "
        "the column `outside`."
    )
    settings = record.settings if record else {}
    if "time" in settings:
        name = _text(settings["time"])
        yield f"Scores are of other times than those trained on, by the column {name}."
    elif "group" in settings:
        yield f"Scores are of other groups than those trained on, by {_text(settings['group'])}."
    else:
        yield (
            "Scores are of rows drawn from the same table as the training rows: they say nothing "
            "of other places and later times."
        )
    yield "What moves a prediction need not be what causes the target."
    if header.get("seen"):
        yield (
            "The file holds no training rows, but quantiles of each column and fingerprints of the "
            "rows: whoever can guess a whole row can check the guess."
        )
    for note in record.notes if record else ():
        yield _text(note[:1].upper() + note[1:])


def _after(name: str) -> str:
    name = name.replace("`", "'")
    return (
        "Whether it still holds, on newer rows with observed targets if there are any:\n\n"
        f"    varprop monitor {printable(name)} new.csv --report monitor.html"
    )
