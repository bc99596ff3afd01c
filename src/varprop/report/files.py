"""From a template and values to one file, written whole or not at all."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import tempfile
from importlib import resources
from pathlib import Path

import jinja2
from markupsafe import Markup

__all__ = ["render", "script_json", "write_whole"]


def script_json(value: object) -> Markup:
    r"""Return JSON that can stand inside a ``<script>`` element whatever its strings hold.

    Examples
    --------
    >>> print(script_json({"name": "</script>&"}))
    {"name":"\u003c/script\u003e\u0026"}
    """
    # ASCII only, which escapes U+2028 too; NaN is not JSON and is refused.
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return Markup(text)


def _asset(name: str) -> str:
    return resources.files("varprop.report").joinpath("templates", name).read_text("utf-8")


def render(template: str, **values: object) -> str:
    """Return a page with its style and its script inside.

    The page's own policy allows that one script, by its hash, and nothing from anywhere else.
    """
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("varprop.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    script = _asset("page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return environment.get_template(template).render(
        style=Markup(_asset("page.css")), script=Markup(script), script_hash=digest, **values
    )


def write_whole(path: str | os.PathLike[str], text: str) -> None:
    """Write a text file beside its place and move it there, so that no half of it is ever seen."""
    target = Path(path)
    if not target.parent.is_dir():
        raise FileNotFoundError(
            f"The folder {target.parent} does not exist, so nothing was written."
        )
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(name, 0o666 & ~umask)  # mkstemp's files are private; a report is not
        os.replace(name, target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
