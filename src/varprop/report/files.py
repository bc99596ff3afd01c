"""From a template and values to one self-contained page."""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Mapping
from importlib import resources

import jinja2
from markupsafe import Markup

from varprop.atomic import replacing


def environment() -> jinja2.Environment:
    """Return what renders the pages; all text is escaped, in HTML and in JSON."""
    found = jinja2.Environment(
        loader=jinja2.PackageLoader("varprop.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # NaN is not JSON and is refused.
    found.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    return found


def _asset(name: str) -> str:
    return resources.files("varprop.report").joinpath("templates", name).read_text("utf-8")


def write_page(
    path: str | os.PathLike[str],
    template: str,
    *,
    settings: Mapping[str, object] | None,
    **values: object,
) -> None:
    """Write a page with its style and its script inside, whole or not at all.

    The page's own policy allows that one script, by its hash, and nothing from anywhere else.
    """
    script = _asset("page.js")
    page = (
        environment()
        .get_template(template)
        .render(
            style=Markup(_asset("page.css")),
            script=Markup(script),
            script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
            settings={str(name): str(value) for name, value in (settings or {}).items()},
            **values,
        )
    )
    with replacing(path) as file:
        file.write(page.encode())
