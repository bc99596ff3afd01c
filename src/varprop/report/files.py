"""From a template and values to one self-contained page."""

from __future__ import annotations

import base64
import datetime
import hashlib
import os
import platform
from collections.abc import Mapping
from importlib import metadata, resources

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


def asset(name: str) -> str:
    """Return a file that goes into pages as it is."""
    return resources.files("varprop.report").joinpath("templates", name).read_text("utf-8")


def made_by() -> dict[str, str]:
    """Return when a page was made, and with which versions.

    Examples
    --------
    >>> list(made_by())
    ['made', 'varprop', 'python', 'jax', 'numpy']
    """
    # Imported late: the package's own names are not there yet while it is being imported.
    from varprop import __version__

    now = datetime.datetime.now().astimezone()
    found = {"made": f"{now:%Y-%m-%d %H:%M %z}", "varprop": __version__}
    found["python"] = platform.python_version()
    # As installed: a page needs no JAX, and does not import it to say so.
    return found | {name: metadata.version(name) for name in ("jax", "numpy")}


def write_page(
    path: str | os.PathLike[str],
    template: str,
    *,
    settings: Mapping[str, object] | None,
    script: str = "",
    style: str = "",
    **values: object,
) -> None:
    """Write a page with its style and its script inside, whole or not at all.

    The page's own policy allows that one script, by its hash, and nothing from anywhere else. What
    a page has of its own comes after what all of them share, and makes the script a module.
    """
    module, script = bool(script), asset("page.js") + script
    page = (
        environment()
        .get_template(template)
        .render(
            style=Markup(asset("page.css") + style),
            module=module,
            script=Markup(script),
            script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
            settings={str(name): str(value) for name, value in (settings or {}).items()},
            made=made_by(),
            **values,
        )
    )
    with replacing(path) as file:
        file.write(page.encode())
