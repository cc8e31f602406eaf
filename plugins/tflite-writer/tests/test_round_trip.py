"""Written files, read back by the frontend, are graphs that compute the same: also in types that LiteRT cannot run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from writer_cases import random_graph
from writer_oracle import evaluate, verify

from mace_core.deployment import Model
from mace_core.ir import DType, Graph
from mace_core.ops import core_ops
from mace_frontend_tflite import TfLite
from mace_tflite_writer import write_tflite


def read_back(content: bytes, folder: Path) -> Graph:
    file = folder / "written.tflite"
    file.write_bytes(content)
    return TfLite().load((file,), Model("written", (file,)), core_ops())


@pytest.mark.parametrize("name", ["f16", "f32", "q-i8", "q-u8", "q-i16"])
def test_a_graph_that_is_read_back_computes_the_same(name: str, tmp_path: Path) -> None:
    for seed in range(5):
        graph, inputs = random_graph(500 + seed, DType(name.removeprefix("q-")), name.startswith("q-"))
        content = write_tflite(graph)
        verify(content)
        again = read_back(content, tmp_path)
        assert (again.inputs, again.outputs) == (graph.inputs, graph.outputs)
        for port in (*graph.inputs, *graph.outputs):
            written, read = graph.tensors[port], again.tensors[port]
            assert (read.dtype, read.shape, read.quant) == (written.dtype, written.shape, written.quant)
        for expected, actual in zip(evaluate(graph, inputs), evaluate(again, inputs), strict=True):
            assert actual.dtype == expected.dtype
            if expected.dtype.kind != "f":
                np.testing.assert_array_equal(actual, expected)
                continue
            step = float(np.finfo(expected.dtype).eps)
            largest = float(np.abs(expected).max(initial=0))
            np.testing.assert_allclose(actual, expected, rtol=0, atol=8 * step * max(largest, 1))
