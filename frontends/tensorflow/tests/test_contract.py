"""The contract that every frontend keeps."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from mace_core.ir import Array
from mace_core.testing.frontend import FrontendContract
from mace_frontend_tensorflow import TensorFlow


class TestTensorFlow(FrontendContract):
    frontend = TensorFlow()

    def sample(self, folder: Path) -> tuple[Path, ...]:
        return self.named_sample(folder, "x", "y")

    def named_sample(self, folder: Path, x: str, y: str) -> tuple[Path, ...]:
        from mace_frontend_tensorflow.messages import GraphDef

        graph = GraphDef()
        node = graph.node.add(name=x, op="Placeholder")
        node.attr["dtype"].type = 1
        for size in (2, 3):
            node.attr["shape"].shape.dim.add(size=size)
        graph.node.add(name=y, op="Relu", input=[x]).attr["T"].type = 1
        file = folder / "sample.pb"
        file.write_bytes(graph.SerializeToString())
        return (file,)

    def run_framework(self, inputs: Mapping[str, Array]) -> Mapping[str, Array]:
        return {"y": np.maximum(inputs["x"], 0)}
