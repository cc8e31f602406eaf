"""docs/benchmarks.md: one section for each script that measures, replaced as a whole when it runs again."""

from __future__ import annotations

import re
from pathlib import Path

FILE = Path(__file__).parents[1] / "docs" / "benchmarks.md"


def write(heading: str, text: str) -> None:
    """Put a section where the one of this heading was, or at the end.  text: what follows the heading."""
    before = FILE.read_text(encoding="utf-8") if FILE.is_file() else "# Benchmarks\n"
    parts = re.split(r"(?m)^(?=## )", before)
    section = f"## {heading}\n\n{text.strip()}\n\n"
    at = next((i for i, part in enumerate(parts) if part.startswith(f"## {heading}\n")), None)
    parts = [*parts, section] if at is None else [*parts[:at], section, *parts[at + 1 :]]
    FILE.write_text("\n\n".join(part.strip() for part in parts) + "\n", encoding="utf-8")
