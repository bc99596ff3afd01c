"""Templates of what is exported, and what fills them in."""

from __future__ import annotations

from typing import Any

import jinja2


def render(template: str, **values: object) -> str:
    """Fill in a template of plain text: what comes from a table must have been made harmless."""
    from varprop import __version__

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("varprop.exports"),
        autoescape=False,
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    named: dict[str, Any] = {"version": __version__, **values}
    return environment.get_template(template).render(named)
