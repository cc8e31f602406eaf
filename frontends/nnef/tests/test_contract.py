"""The contract that every frontend keeps."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from nnef_cases import graph_text

from mace_core.ir import Array
from mace_core.testing.frontend import FrontendContract
from mace_frontend_nnef import Nnef


class TestNnef(FrontendContract):
    frontend = Nnef()

    def sample(self, folder: Path) -> tuple[Path, ...]:
        file = folder / "sample.nnef"
        file.write_text(graph_text(["x"], ["y"], ["x = external(shape = [2, 3]);", "y = relu(x);"]))
        return (file,)

    # No `named_sample`: the syntax takes nothing but letters, digits and _ for a name.

    def run_framework(self, inputs: Mapping[str, Array]) -> Mapping[str, Array]:
        return {"y": np.maximum(inputs["x"], 0)}
