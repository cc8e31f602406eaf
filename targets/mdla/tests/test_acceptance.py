"""What the target takes as it is, what after rewrites, and what it refuses with which reason."""

from __future__ import annotations

import numpy as np
import pytest
from mdla_rule_cases import one, relu

from mace_core.attributes import Attribute
from mace_core.graph_builder import Builder
from mace_core.ir import DType, Graph, Quant, Storage
from mace_core.run.reference import execute
from mace_target_mdla.acceptance import Acceptance, examine
from mace_target_mdla.legalize import absent_ops, legalize_for
from mace_target_mdla.options import MdlaOptions


def examine_first(graph: Graph, generation: str = "1.5", *, accepts_unknown: bool = False) -> Acceptance:
    options = MdlaOptions(generation, accepts_unknown=accepts_unknown)
    return examine(graph.nodes[0], graph, options)


def row_convolution() -> Graph:
    builder = Builder("row")
    x = builder.input("x", DType.F32, (1, 8, 4))
    w = builder.weight("w", np.ones((4, 3, 4), np.float32))
    window = {"strides": (1,), "pads_before": (1,), "pads_after": (1,), "dilations": (1,)}
    return builder.finish([builder.one("Conv", [x, w], window)])


def test_what_is_legal_stays_as_it_is() -> None:
    answer = examine_first(relu())
    assert answer.refusal is None
    assert answer.steps == ()


def test_a_convolution_of_one_axis_is_taken_as_an_image() -> None:
    answer = examine_first(row_convolution())
    assert answer.refusal is None
    assert [step.operator for step in answer.steps].count("CONV_2D") == 1


@pytest.mark.parametrize(
    ("op", "generation", "is_rewritten"),
    [("HardSwish", "1.5", True), ("HardSwish", "3.0", False), ("Sqrt", "1.5", True), ("Sqrt", "2.0", False)],
)
def test_what_a_chip_lacks_is_computed_by_steps(op: str, generation: str, is_rewritten: bool) -> None:
    graph = one(op, [(1, 4, 4, 16)])
    answer = examine_first(graph, generation)
    if is_rewritten:
        assert answer.refusal is None
        assert len(answer.steps) >= 1
        assert all(not step.refusal(MdlaOptions(generation)) for step in answer.steps)
    else:
        assert answer.steps == ()


def vectors(op: str, count: int, shape: tuple[int, ...], **attrs: Attribute) -> Graph:
    builder = Builder(op)
    x = builder.input("x", DType.F32, shape)
    operands = [builder.weight(f"v{n}", np.ones(shape[-1], np.float32)) for n in range(count)]
    return builder.finish([builder.one(op, [x, *operands], attrs)])


STEPS = {
    "BatchNorm": (vectors("BatchNorm", 4, (1, 4, 4, 16)), ["MUL", "ADD"]),
    "LayerNorm": (
        vectors("LayerNorm", 2, (1, 4, 16)),
        ["MEAN", "SUB", "MUL", "MEAN", "ADD", "RSQRT", "MUL", "MUL", "ADD"],
    ),
    "HardSigmoid": (one("HardSigmoid", [(1, 4, 4, 16)]), ["MUL", "ADD", "MAXIMUM", "MINIMUM"]),
    "Elu": (one("Elu", [(1, 4, 4, 16)]), ["MINIMUM", "EXP", "SUB", "RELU", "ADD"]),
    "MatMul": (
        one("MatMul", [(1, 4, 16), (16, 16)], constant=(1,)),
        ["RESHAPE", "FULLY_CONNECTED", "RESHAPE"],
    ),
    "ReduceMean": (
        one("ReduceMean", [(1, 7, 7, 16)], {"axes": (1, 2)}, DType.U8, result=Quant.of(0.25)),
        ["DEPTHWISE_CONV_2D"],
    ),
    "Concat": (
        one("Concat", [(1, 4, 4, 16)] * 2, {"axis": 3}, DType.U8, result=Quant.of(0.25)),
        ["QUANTIZE", "QUANTIZE", "CONCATENATION"],
    ),
}


@pytest.mark.parametrize("op", STEPS)
def test_what_no_operator_states_is_computed_by_operators_of_the_chip(op: str) -> None:
    graph, operators = STEPS[op]
    answer = examine_first(graph, "2.0")
    assert answer.refusal is None
    assert [step.operator for step in answer.steps] == operators


@pytest.mark.parametrize(
    ("op", "shape", "operator"),
    [("SpaceToDepth", (1, 4, 4, 16), "CONV_2D"), ("DepthToSpace", (1, 4, 4, 64), "TRANSPOSE_CONV")],
)
def test_blocks_that_software_would_move_are_convolutions_where_software_is_refused(
    op: str, shape: tuple[int, ...], operator: str
) -> None:
    graph = one(op, [shape], {"block": 2}, DType.I8)
    (node,) = graph.nodes
    assert examine(node, graph, MdlaOptions("1.5")).steps == ()
    answer = examine(node, graph, MdlaOptions("1.5", accepts_software=False))
    assert answer.refusal is None
    assert [step.operator for step in answer.steps] == [operator]
    assert examine(node, graph, MdlaOptions("2.0", accepts_software=False)).steps == ()


def uneven_split(*sizes: int, dtype: DType = DType.U8) -> Graph:
    builder = Builder("split")
    quant = None if dtype.is_float else Quant.of(0.5, 3)
    x = builder.input("x", dtype, (1, 4, 4, sum(sizes)), quant)
    names = [f"y{n}" for n in range(len(sizes))]
    return builder.finish(builder.add("Split", [x], {"axis": -1, "sizes": sizes}, outputs=names))


@pytest.mark.parametrize("dtype", [DType.U8, DType.F32])
@pytest.mark.parametrize("generation", ["2.0", "3.0"])
def test_splits_of_different_lengths_are_slices(generation: str, dtype: DType) -> None:
    """The guide lists SPLIT and SLICE, and the format states such a split as SPLIT_V."""
    graph = uneven_split(4, 12, dtype=dtype)
    answer = examine_first(graph, generation)
    assert answer.refusal is None
    assert answer.judgment.findings[0].rule == "operator-SPLIT_V"
    assert [step.operator for step in answer.steps] == ["SLICE", "SLICE"]
    rewritten, _ = legalize_for(graph, MdlaOptions(generation))
    x = np.random.default_rng(0).integers(0, 256, (1, 4, 4, 16)).astype(dtype.numpy)
    values = execute(rewritten, {"x": x})
    np.testing.assert_array_equal(values["y0"], x[..., :4])
    np.testing.assert_array_equal(values["y1"], x[..., 4:])


def test_even_splits_stay_and_parts_without_elements_are_refused() -> None:
    answer = examine_first(uneven_split(8, 8), "2.0")
    assert (answer.refusal, answer.judgment.operator, answer.steps) == (None, "SPLIT", ())
    refusal = examine_first(uneven_split(16, 0), "2.0").refusal
    assert refusal is not None
    assert "does not list SPLIT_V" in refusal.reason


def test_an_accepted_split_goes_to_the_compiler_as_it_is() -> None:
    graph = uneven_split(4, 12)
    options = MdlaOptions("2.0", accepts_unknown=True, compiler="ncc")
    assert examine(graph.nodes[0], graph, options).steps == ()
    assert [node.op.name for node in legalize_for(graph, options)[0].nodes] == ["Split"]


def test_roots_of_norms_are_powers_where_the_chip_has_no_roots() -> None:
    answer = examine_first(STEPS["LayerNorm"][0], "1.5")
    assert answer.refusal is None
    assert "POW" in [step.operator for step in answer.steps]


def test_norms_of_windows_of_stored_integers_are_refused() -> None:
    """The hardware has them for integers, and the file format for floats alone."""
    window = {"kernel": (2, 2), "strides": (2, 2), "dilations": (1, 1), "pads_before": (0, 0)}
    graph = one("LpPool", [(1, 4, 4, 16)], {**window, "pads_after": (0, 0)}, DType.U8)
    answer = examine_first(graph, "2.0")
    assert answer.refusal is not None
    graph = one("LpPool", [(1, 4, 4, 16)], {**window, "pads_after": (0, 0)})
    assert examine_first(graph, "2.0").refusal is None


@pytest.mark.parametrize(
    ("compiler", "is_taken"), [("auto", False), ("none", False), ("ncc", True), ("aot", True)]
)
def test_a_compiler_that_the_options_name_need_not_be_told_by_operations(
    compiler: str, is_taken: bool
) -> None:
    """The adapter has no GELU; the chip and the file have."""
    graph = one("Gelu", [(1, 4, 16)])
    answer = examine(graph.nodes[0], graph, MdlaOptions("2.0", compiler=compiler))
    assert (answer.refusal is None) == is_taken
    assert answer.refusal is None or "the adapter has no GELU" in answer.refusal.reason


def test_what_no_rewrite_helps_keeps_its_own_reason() -> None:
    answer = examine_first(one("Softmax", [(1, 16)]))
    assert answer.refusal is not None
    assert "the guide lists SOFTMAX from MDLA 2.0 on" in answer.refusal.reason
    assert answer.refusal.remedy == "choose a chip with MDLA 2.0"


def test_what_the_file_cannot_state_is_refused_with_the_writers_reason() -> None:
    builder = Builder("wide")
    x = builder.input("x", DType.I16, (1, 4), Quant.of(0.5))
    y = builder.reserve_output("y", Storage(DType.I8, Quant.of(0.5)))
    answer = examine_first(builder.finish(builder.add("Mul", [x, x], outputs=[y])), "3.0")
    assert answer.judgment.refusal(MdlaOptions("3.0")) is None
    assert answer.refusal is not None
    assert answer.refusal.code == "quantization"


def test_an_accepted_unknown_is_not_rewritten() -> None:
    assert "HardSwish" in absent_ops(MdlaOptions("2.0"))
    assert "HardSwish" not in absent_ops(MdlaOptions("2.0", accepts_unknown=True))
    assert "HardSwish" not in absent_ops(MdlaOptions("3.0"))
