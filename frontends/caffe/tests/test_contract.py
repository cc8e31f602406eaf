"""The contract that every frontend keeps."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from mace_core.ir import Array
from mace_core.testing.frontend import FrontendContract
from mace_frontend_caffe import Caffe

NET = """
name: {y}
layer {{ name: {x} type: "Input" top: {x} input_param {{ shape {{ dim: 2 dim: 3 }} }} }}
layer {{ name: {y} type: "ReLU" bottom: {x} top: {y} }}
"""


class TestCaffe(FrontendContract):
    frontend = Caffe()

    def sample(self, folder: Path) -> tuple[Path, ...]:
        return self.named_sample(folder, "x", "y")

    def named_sample(self, folder: Path, x: str, y: str) -> tuple[Path, ...]:
        file = folder / "sample.prototxt"
        quoted = {
            name: '"' + "".join(f"\\{byte:03o}" for byte in text.encode()) + '"'
            for name, text in (("x", x), ("y", y))
        }
        file.write_text(NET.format(**quoted))
        return (file,)

    def run_framework(self, inputs: Mapping[str, Array]) -> Mapping[str, Array]:
        return {"y": np.maximum(inputs["x"], 0)}
