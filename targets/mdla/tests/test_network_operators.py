"""Every operator that the writer knows goes through encoder, driver and stub, and computes what its TFLite file does, bit for bit."""

from __future__ import annotations

import sys

import pytest
from neuron_session import STUB, compile_by_stub, encodable, random_inputs

from mace_core.ir import Array, DType, Graph
from mace_core.ops import core_ops
from mace_core.testing.samples import VARIANTS, sample
from mace_tflite_writer import write_tflite

sys.path.insert(0, str(STUB))
import executor

TYPES = (DType.F32, DType.F16, DType.I32, DType.BOOL)
QUANTIZED = (DType.I8, DType.U8, DType.I16)


def all_samples() -> list[Graph]:
    graphs = []
    for name in sorted(core_ops()):
        for variant in range(-1, len(VARIANTS.get(name, ()))):
            marks = f"{name.lower()}_{variant + 1}"
            for dtype in TYPES:
                graphs.append((marks + dtype.value, sample(name, dtype, variant=variant)))
            for dtype in QUANTIZED:
                graphs.append(
                    (f"{marks}q{dtype.value}", sample(name, dtype, quantized=True, variant=variant))
                )
    return [graph.with_name(name.replace("::", "_")) for name, graph in graphs if graph is not None]


@pytest.fixture(scope="module")
def networks(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Graph], dict[str, bytes]]:
    graphs = encodable(all_samples())
    return graphs, compile_by_stub(graphs, tmp_path_factory.mktemp("operators"))


def outputs(model: bytes, inputs: list[Array]) -> bytes:
    return executor.run(model, b"".join(array.tobytes() for array in inputs))


@pytest.mark.slow
def test_the_adapter_is_told_what_the_file_says(networks: tuple[list[Graph], dict[str, bytes]]) -> None:
    graphs, told = networks
    assert [graph.name for graph in graphs] == list(told)
    for graph in graphs:
        inputs = list(random_inputs(graph).values())
        model = executor.translate(told[graph.name])
        assert outputs(model, inputs) == outputs(write_tflite(graph), inputs), graph.name
