"""The one way from a template to text."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import jinja2

from mace_core.cache import cache_folder

TEMPLATES = files("mace_core") / "emit" / "templates"


def render(template: Traversable, **values: Any) -> str:
    """Fill a Jinja2 template; a name that it uses and nobody gives is an error."""
    return _environment().get_template(str(template)).render(**values)


@cache
def _environment() -> jinja2.Environment:
    """Templates are known by their paths; compiled ones are kept in the user's cache, where that can be written."""
    loader = jinja2.FunctionLoader(lambda path: Path(path).read_text(encoding="utf-8"))
    compiled = _folder()
    kept = jinja2.FileSystemBytecodeCache(str(compiled)) if compiled else None
    options = {"undefined": jinja2.StrictUndefined, "keep_trailing_newline": True, "loader": loader, "bytecode_cache": kept}
    return jinja2.Environment(autoescape=False, **options)  # type: ignore[arg-type]  # noqa: S701  # C, not HTML


def _folder() -> Path | None:
    folder = cache_folder("templates")
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        mine = folder.stat().st_mode & 0o022 == 0  # what others could write is not executed here
    except OSError:
        return None
    return folder if mine else None
