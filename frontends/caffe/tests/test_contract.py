"""The contract that every frontend keeps."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from mace_core.ir import Array
from mace_core.testing.frontend import FrontendContract
from mace_frontend_caffe import Caffe

NET = """
name: "sample"
layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 2 dim: 3 } } }
layer { name: "relu" type: "ReLU" bottom: "x" top: "y" }
"""


class TestCaffe(FrontendContract):
    frontend = Caffe()

    def sample(self, folder: Path) -> tuple[Path, ...]:
        file = folder / "sample.prototxt"
        file.write_text(NET)
        return (file,)

    def expected(self, inputs: Mapping[str, Array]) -> Mapping[str, Array]:
        return {"y": np.maximum(inputs["x"], 0)}
