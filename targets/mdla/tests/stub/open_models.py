"""Opens all models of the library `cases`: `open_models.py LIBRARY`. In a process of its own, where the stub is in the search path."""

from __future__ import annotations

import sys
from pathlib import Path

from mace_core.run import native

for model in native.load(Path(sys.argv[1]), "cases").values():
    sys.stdout.write(f"{model.name}\n")
