"""A small model whose outputs must be those of ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from mace_core.deployment import Model
from mace_core.ir import Array, Graph
from mace_core.ops import core_ops
from mace_core.run.reference import execute
from mace_core.verify import verify
from mace_frontend_onnx import Onnx


@dataclass(frozen=True)
class RuntimeCase:
    """A model in ONNX's text form.

    constants: lists are integers of 64 bits, numbers are floats.
    values: inputs that are not random.  outputs: names; their types are left to be inferred.
    """

    body: str
    ports: str = "float[1,4,6,6] x"
    constants: Mapping[str, object] = field(default_factory=dict)
    opset: int = 17
    ml: int = 3
    outputs: str = "y"
    values: Mapping[str, Array] = field(default_factory=dict)

    def write(self, path: Path) -> None:
        imports = f'"" : {self.opset}, "ai.onnx.ml" : {self.ml}, "com.microsoft" : 1'
        outputs = ", ".join(f"float[N] {name}" for name in self.outputs.split())
        text = f"<ir_version: 8, opset_import: [{imports}]> g ({self.ports}) => ({outputs})"
        model = onnx.parser.parse_model(f"{text} {{ {self.body} }}")
        for output in model.graph.output:
            output.ClearField("type")
        for name, value in self.constants.items():
            dtype = np.int64 if isinstance(value, list) else np.float32
            array = value if isinstance(value, np.ndarray | np.generic) else np.asarray(value, dtype)
            model.graph.initializer.append(numpy_helper.from_array(np.asarray(array), name))
        path.write_bytes(model.SerializeToString())

    def load(self, path: Path) -> Graph:
        self.write(path)
        return verify(Onnx().load((path,), Model("m", (path,)), core_ops()))

    def inputs(self, graph: Graph) -> dict[str, Array]:
        rng = np.random.default_rng(3)
        arrays: dict[str, Array] = {}
        for name in graph.inputs:
            tensor = graph.tensors[name]
            numbers = rng.uniform(-1, 1, tensor.shape)
            if not tensor.dtype.is_float:
                numbers = rng.integers(0, 4, tensor.shape)
            arrays[name] = np.asarray(self.values.get(name, numbers)).astype(tensor.dtype.numpy)
        return arrays

    def compute(self, path: Path) -> dict[str, Array]:
        """Load the model and return its outputs by numpy."""
        graph = self.load(path)
        values = execute(graph, self.inputs(graph))
        return {name: values[name] for name in graph.outputs}

    def check(self, path: Path, rtol: float = 2e-5, atol: float = 5e-6) -> Graph:
        """Compare every output with ONNX Runtime's, in type, shape and numbers; return the graph."""
        graph = self.load(path)
        arrays = self.inputs(graph)
        run = Onnx().reference((path,), Model("m", (path,)))
        assert run is not None
        expected, values = run(arrays), execute(graph, arrays)
        assert list(graph.outputs) == self.outputs.split()
        for name in graph.outputs:
            assert (values[name].dtype, values[name].shape) == (expected[name].dtype, expected[name].shape)
            np.testing.assert_allclose(values[name], expected[name], rtol=rtol, atol=atol, err_msg=name)
        return graph


def normal(*shape: int, seed: int = 1) -> Array:
    """Return random numbers for constants."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
