"""The one name for what `--json` and the files of a build hold."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]
"""A JSON object: strings, numbers, booleans, None, and lists and objects of them."""
