"""The contract that every frontend keeps."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from mace_core.ir import Array
from mace_core.testing.frontend import FrontendContract
from mace_frontend_tflite import TfLite
from mace_frontend_tflite.cases import Case, f32
from mace_frontend_tflite.write import write


class TestTfLite(FrontendContract):
    frontend = TfLite()

    def sample(self, folder: Path) -> tuple[Path, ...]:
        file = folder / "sample.tflite"
        file.write_bytes(write(Case("relu", "RELU", [f32(2, 3)]).written()))
        return (file,)

    def expected(self, inputs: Mapping[str, Array]) -> Mapping[str, Array]:
        return {"out0": np.maximum(inputs["in0"], 0)}
