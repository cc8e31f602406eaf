"""The one way from a template to text."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

import jinja2

TEMPLATES = files("mace_core") / "emit" / "templates"


def render(template: Traversable, **values: Any) -> str:
    """Fill a Jinja2 template; a name that it uses and nobody gives is an error."""
    return _compiled(template.read_text(encoding="utf-8")).render(**values)


@cache
def _compiled(text: str) -> jinja2.Template:
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, keep_trailing_newline=True, autoescape=False)  # noqa: S701  # C, not HTML
    return environment.from_string(text)
