"""Arrays of test data in files."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from mace_core.ir import Array


def load_arrays(path: Path) -> dict[str, Array]:
    """Return the arrays of an .npz file by their names, and close the file."""
    with np.load(path, allow_pickle=False) as file:
        return dict(file)
