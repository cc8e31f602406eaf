"""Every operator that the encoder knows, in files of one operator: what the adapter is told computes the same bits as the file."""

from __future__ import annotations

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema
from neuron_session import compile_by_stub, encodable, random_inputs
from operator_files import (
    CONV,
    FILES,
    FILTERS,
    I32,
    Port,
    file_of,
    int8,
    real,
    stub_network,
    uint8,
    write_file,
)

from mace_core.errors import MaceError
from mace_core.ir import DType, Graph
from mace_core.ops import core_ops
from mace_core.testing.samples import VARIANTS, sample
from mace_target_mdla.lite_model import LiteModel
from mace_target_mdla.network import encode_lite_model
from mace_target_mdla.network_operators import LOWERINGS
from mace_target_mdla.neuron import NeuronOperation
from mace_tflite_writer import write_tflite

import executor  # isort: skip  # operator_files puts the folder of the stub in reach
import neuron_network  # isort: skip

TYPES = (DType.F32, DType.I32, DType.BOOL)
QUANTIZED = (DType.I8, DType.U8, DType.I16)
ABSENT = ("SQUEEZE", "EXPAND_DIMS")
"""Operations of the adapter in whose place RESHAPE stands."""


@pytest.mark.parametrize("case", FILES)
def test_the_adapter_is_told_what_a_file_says(case: str) -> None:
    tflite, inputs = file_of(case)
    told = executor.translate(stub_network(encode_lite_model(LiteModel(tflite))))
    assert executor.run(told, inputs) == executor.run(tflite, inputs)


@pytest.mark.parametrize(
    ("data", "result"),
    [
        (int8(9, 60, zero=-7), int8(9, 60, scale=0.031, zero=4)),
        (uint8(9, 60), uint8(9, 60, scale=0.171, zero=31)),
        (uint8(9, 60), int8(9, 60, scale=0.017, zero=5)),
        (int8(9, 60), uint8(9, 60, scale=0.0703, zero=99)),
    ],
)
def test_another_scale_is_a_product_that_rounds_to_the_nearest(data: Port, result: Port) -> None:
    """LiteRT rounds products twice, the first time to a 64th of a step here, and to a whole one in its own QUANTIZE."""
    tflite = write_file("QUANTIZE", [data], [result])
    limits = np.iinfo(np.dtype(data.kind))
    stored = np.random.default_rng(2).integers(limits.min, limits.max + 1, data.shape).astype(data.kind)
    told = executor.translate(stub_network(encode_lite_model(LiteModel(tflite))))
    actual = np.frombuffer(executor.run(told, stored.tobytes()), result.kind).reshape(data.shape)
    ratio = float(np.float32(data.scale)) / float(np.float32(result.scale))
    limits = np.iinfo(np.dtype(result.kind))
    exact = np.clip((stored.astype(float) - data.zero) * ratio + result.zero, limits.min, limits.max)
    assert np.abs(actual - exact).max() <= 0.5 + 2.0**-7
    own = np.frombuffer(executor.run(tflite, stored.tobytes()), result.kind).reshape(data.shape)
    assert np.abs(own.astype(int) - actual).max() <= 1


def test_every_lowering_and_every_operation_has_a_file() -> None:
    written = {getattr(schema.BuiltinOperator, name) for name, *_ in FILES.values()}
    assert written == set(LOWERINGS)
    codes = set()
    for case in FILES:
        network = stub_network(encode_lite_model(LiteModel(file_of(case)[0])))
        codes |= {code for code, _, _ in neuron_network.Network(network).operations}
    assert {operation.name for operation in NeuronOperation if operation not in codes} == set(ABSENT)


REFUSED = {
    "sixteen bits": (
        ("QUANTIZE", [Port((2, 3), "<i2", 0.1)], [Port((2, 3), "<i2", 0.2)], "", {}),
        "more than eight bits",
    ),
    "much smaller scale": (
        ("QUANTIZE", [int8(2, 3)], [int8(2, 3, scale=0.05 / 64)], "", {}),
        "not larger than the product",
    ),
    "product": (
        ("MUL", [uint8(2, 3), uint8(2, 3)], [uint8(2, 3, scale=0.0025)], "MulOptions", {}),
        "not larger than the product",
    ),
    "mean": (
        ("MEAN", [int8(1, 4), np.array([1], I32)], [int8(1, scale=0.1)], "ReducerOptions", {}),
        "another scale",
    ),
    "abs": (("ABS", [int8(2, 3)], [int8(2, 3)], "", {}), "for real numbers"),
    "leaky relu": (("LEAKY_RELU", [int8(2, 3)], [int8(2, 3)], "LeakyReluOptions", {}), "would round"),
    "tanh": (
        ("ADD", [real(2), real(2)], [real(2)], "AddOptions", {"fusedActivationFunction": 4}),
        "no fused activation 4",
    ),
    "three axes": (
        (
            "FULLY_CONNECTED",
            [real(2, 2, 3), FILTERS.reshape(4, 18)[:, :3].copy(), None],
            [real(2, 2, 4)],
            "FullyConnectedOptions",
            {"keepNumDims": True},
        ),
        "has 3 axes",
    ),
    "crops": (
        (
            "BATCH_TO_SPACE_ND",
            [real(6, 2, 3, 2), np.array([2, 3], I32), np.ones((2, 2), I32)],
            [real(1, 2, 7, 2)],
            "",
            {},
        ),
        "does not crop",
    ),
    "new axis": (
        (
            "STRIDED_SLICE",
            [real(4), *(np.array([n], I32) for n in (0, 4, 1))],
            [real(4)],
            "StridedSliceOptions",
            {"newAxisMask": 1},
        ),
        "new axes",
    ),
    "joined": (
        (
            "CONCATENATION",
            [real(2), real(2)],
            [real(4)],
            "ConcatenationOptions",
            {"fusedActivationFunction": 1},
        ),
        "without an activation",
    ),
    "plain bytes": (
        ("ADD", [Port((2,), "i1"), Port((2,), "i1")], [Port((2,), "i1")], "AddOptions", {}),
        "plain integers",
    ),
    "bias": (
        (
            "CONV_2D",
            [int8(1, 5, 7, 3, scale=0.06), (FILTERS * 30).astype(np.int8), np.array([9, -90, 0, 400], I32)],
            [int8(1, 5, 4, 4, scale=0.3)],
            "Conv2DOptions",
            {**CONV, "padding": 0},
        ),
        "has the scale .*, and must have",
    ),
    "unknown": (("ELU", [real(2)], [real(2)], "", {}), "the adapter has no ELU"),
    "variable axis": (
        ("ARG_MAX", [real(3, 5), Port((), "<i4")], [Port((3,), "<i4")], "ArgMaxOptions", {"outputType": 2}),
        "no constant",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_the_adapter_cannot_be_told_is_refused(case: str) -> None:
    (name, operands, results, kind, options), text = REFUSED[case]
    with pytest.raises(MaceError, match=text):
        encode_lite_model(LiteModel(write_file(name, operands, results, kind=kind, **options)))


def all_samples() -> list[Graph]:
    graphs = []
    for name in sorted(core_ops()):
        for variant in range(-1, len(VARIANTS.get(name, ()))):
            mark = f"{name.lower()}_{variant + 1}"
            for dtype in TYPES:
                graphs.append((mark + dtype.value, sample(name, dtype, variant=variant)))
            for dtype in QUANTIZED:
                graphs.append((f"{mark}q{dtype.value}", sample(name, dtype, quantized=True, variant=variant)))
    return [graph.with_name(name.replace("::", "_")) for name, graph in graphs if graph is not None]


@pytest.mark.exhaustive
@pytest.mark.slow
def test_samples_of_all_operators_reach_the_adapter_as_their_files(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Through target, library, driver and the stub, which checks each call."""
    graphs = encodable(all_samples())
    told = compile_by_stub(graphs, tmp_path_factory.mktemp("operators"))
    assert [graph.name for graph in graphs] == list(told)
    assert len(graphs) > 90
    for graph in graphs:
        arrays = random_inputs(graph).values()
        # LiteRT ends at powers with negative exponents and at divisors of 0.
        plain = [array % 5 + 1 if array.dtype == np.int32 else array for array in arrays]
        inputs = b"".join(array.tobytes() for array in plain)
        model = executor.translate(told[graph.name])
        assert executor.run(model, inputs) == executor.run(write_tflite(graph), inputs), graph.name
