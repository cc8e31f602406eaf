"""The contract that every frontend keeps."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
from tflite_cases import Case, f32
from tflite_write import write

from mace_core.ir import Array
from mace_core.testing.frontend import FrontendContract
from mace_frontend_tflite import TfLite


class TestTfLite(FrontendContract):
    frontend = TfLite()

    def sample(self, folder: Path) -> tuple[Path, ...]:
        return self.named_sample(folder, "in0", "out0")

    def named_sample(self, folder: Path, x: str, y: str) -> tuple[Path, ...]:
        file = folder / "sample.tflite"
        written = Case("relu", "RELU", [f32(2, 3)]).written()
        names = {"in0": x, "out0": y}
        values = [replace(v, name=names.get(v.name, v.name)) for v in written.values]
        steps = [
            replace(s, inputs=[names[n] for n in s.inputs], outputs=[names[n] for n in s.outputs])
            for s in written.steps
        ]
        file.write_bytes(write(replace(written, values=values, steps=steps, inputs=[x], outputs=[y])))
        return (file,)

    def run_framework(self, inputs: Mapping[str, Array]) -> Mapping[str, Array]:
        return {"out0": np.maximum(inputs["in0"], 0)}
