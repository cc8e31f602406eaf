"""What Vela crashes on is rewritten exactly; a crash that remains is an error of the region."""

from __future__ import annotations

import numpy as np
import pytest

from mace_core.errors import MaceError
from mace_core.graph_builder import Builder
from mace_core.ir import Array, DType, Graph, Quant, Storage
from mace_core.quantization import compute
from mace_core.testing.requirements import require
from mace_target_ethosu import vela
from mace_target_ethosu.legalize import legalize_region, widen_in_two_steps
from mace_target_ethosu.options import EthosUOptions
from mace_target_ethosu.vela import compile_network
from mace_tflite_writer import write_tflite

SCALE = 0.0078125
EIGHT_BITS = [Storage(DType.I8, Quant.of(SCALE, zero)) for zero in (-128, 0, 5)]
EIGHT_BITS += [Storage(DType.U8, Quant.of(SCALE, zero)) for zero in (0, 128)]
U85 = EthosUOptions("ethos-u85-256")


def widening(stored: Storage, readers: int = 1, scale: float = SCALE) -> Graph:
    """Return a conversion to int16 and products that read it."""
    builder = Builder("widening")
    x = builder.input("x", stored.dtype, (1, 8), stored.quant)
    wide = Storage(DType.I16, Quant.of(scale))
    q = builder.one("Quantize", [x], outputs=[builder.reserve_output("q", wide)])
    result = Storage(DType.I16, Quant.of(0.0625))
    outputs = []
    for number in range(readers):
        values = np.random.default_rng(number).integers(-127, 128, (8, 8)).astype(np.int8)
        w = builder.weight(f"w{number}", values, Quant.of(0.25))
        name = builder.reserve_output(f"y{number}", result)
        outputs.append(builder.one("MatMul", [q, w], outputs=[name]))
    return builder.finish(outputs)


def run_graph(graph: Graph, x: Array) -> Array:
    """Return the first output by the references of the nodes."""
    arrays = {**graph.weights, "x": x}
    for node in graph.nodes:
        operands = [(graph.tensors[name], arrays[name]) for name in node.inputs]
        arrays.update(
            zip(node.outputs, compute(node.op, node.attrs, operands, graph.outputs_of(node)), strict=True)
        )
    return arrays[graph.outputs[0]]


def every_value(graph: Graph) -> list[Array]:
    """Return all 256 values of the input's type, eight at a time."""
    x = graph.tensors["x"].dtype.numpy
    limits = np.iinfo(x)
    return list(np.arange(limits.min, limits.max + 1).astype(x).reshape(-1, 1, 8))


@pytest.mark.parametrize("stored", EIGHT_BITS, ids=str)
def test_a_conversion_in_two_steps_gives_the_same_integers(stored: Storage) -> None:
    graph = widening(stored)
    rewritten = widen_in_two_steps(graph)
    assert [node.op.name for node in rewritten.nodes] == ["Quantize", "Quantize", "MatMul"]
    for x in every_value(graph):
        np.testing.assert_array_equal(run_graph(rewritten, x), run_graph(graph, x))


@pytest.mark.parametrize(
    "graph",
    [widening(EIGHT_BITS[1], readers=2), widening(EIGHT_BITS[1], scale=SCALE / 2)],
    ids=["read twice", "scaled"],
)
def test_conversions_that_vela_does_not_merge_stay_as_they_are(graph: Graph) -> None:
    assert widen_in_two_steps(graph).nodes == graph.nodes


@pytest.mark.parametrize("generation", ["u55", "u65"])
def test_other_generations_convert_in_one_step(generation: str) -> None:
    graph = widening(EIGHT_BITS[1])
    assert legalize_region(graph, generation).nodes == graph.nodes


@pytest.mark.slow
def test_vela_compiles_the_conversion_in_two_steps_alone() -> None:
    """Fails when a Vela without the fault is installed: then the rewrite can go."""
    require(vela.find_fault())
    graph = widening(EIGHT_BITS[1])
    assert compile_network(write_tflite(legalize_region(graph, "u85")), U85, "m").stream
    with pytest.raises(
        MaceError, match=r"^m: region a: Vela 5\.\S+ crashed \(SIGSEGV\) on this region; give its nodes"
    ):
        compile_network(write_tflite(graph), U85, "m: region a")
