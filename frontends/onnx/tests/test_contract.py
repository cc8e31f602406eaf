"""The contract that every frontend keeps."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

from mace_core.ir import Array
from mace_core.testing.frontend import FrontendContract
from mace_frontend_onnx import Onnx


class TestOnnx(FrontendContract):
    frontend = Onnx()

    def sample(self, folder: Path) -> tuple[Path, ...]:
        return self.named_sample(folder, "x", "y")

    def named_sample(self, folder: Path, x: str, y: str) -> tuple[Path, ...]:
        ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, 3]) for n in (x, y)]
        graph = helper.make_graph([helper.make_node("Relu", [x], [y], name=y)], y, ports[:1], ports[1:])
        file = folder / "sample.onnx"
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), file)
        return (file,)

    def run_framework(self, inputs: Mapping[str, Array]) -> Mapping[str, Array]:
        return {"y": np.maximum(inputs["x"], 0)}
