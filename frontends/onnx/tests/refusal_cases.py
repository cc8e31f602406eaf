"""A model that a handler refuses, and what the refusal says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from mace_core.deployment import Model
from mace_core.errors import MaceError
from mace_core.ops import core_ops
from mace_frontend_onnx import Onnx

DOMAINS = ("ai.onnx.ml", "com.microsoft")


@dataclass(frozen=True)
class Refusal:
    """A model of one output y, in ONNX's text form, and what the refusal of it says.

    constants: lists are integers of 64 bits, numbers are floats.
    """

    body: str
    message: str
    ports: str = "float[1,4,6,6] x"
    constants: Mapping[str, object] = field(default_factory=dict)
    opset: int = 17

    def write(self, path: Path) -> None:
        imports = "".join(f', "{domain}" : {3 if domain == "ai.onnx.ml" else 1}' for domain in DOMAINS)
        text = f'<ir_version: 8, opset_import: ["" : {self.opset}{imports}]> g ({self.ports}) => (float[N] y)'
        model = onnx.parser.parse_model(f"{text} {{ {self.body} }}")
        for name, value in self.constants.items():
            array = np.asarray(value, np.int64 if isinstance(value, list) else np.float32)
            array = value if isinstance(value, np.ndarray) else array
            model.graph.initializer.append(numpy_helper.from_array(array, name))
        path.write_bytes(model.SerializeToString())

    def check(self, path: Path) -> None:
        """Load the model; the first line of the error names the node and has the message."""
        self.write(path)
        with pytest.raises(MaceError) as error:
            Onnx().load((path,), Model("m", (path,)), core_ops())
        first = str(error.value).splitlines()[0]
        assert self.message in first
        assert first.startswith(f"{path.name}: node '")
        # Words for a damaged file, where a handler failed instead of refusing.
        assert "make no sense" not in first


def weights(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)
