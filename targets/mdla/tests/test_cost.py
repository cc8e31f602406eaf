"""Estimates: the guide's rates by hand, layouts, groups, and how an interval depends on what it is made from."""

from __future__ import annotations

import math

import pytest
from mdla_rule_cases import conv, one, pad, pool, product, relu, resize

from mace_core.attributes import Attribute
from mace_core.graph_builder import Builder
from mace_core.ir import DType, Graph, Quant, Tensor
from mace_target_mdla.cost.estimate import CostModel, GraphCost
from mace_target_mdla.cost.fusion import predict_groups
from mace_target_mdla.cost.layout import choose_layouts, conversion_bytes, padded_bytes
from mace_target_mdla.cost.rates import DeviceRates
from mace_target_mdla.options import MdlaOptions
from mace_target_mdla.socs import GENERATIONS, find_soc

F32, I8, U8 = DType.F32, DType.I8, DType.U8


def estimate(graph: Graph, generation: str = "3.0", **numbers: float) -> GraphCost:
    rates = DeviceRates.of(MdlaOptions(generation, **numbers))
    return CostModel(graph, [node.name for node in graph.nodes], rates).estimate(0)


def cycles(graph: Graph, generation: str = "3.0") -> tuple[float, float]:
    interval = estimate(graph, generation).nodes[graph.nodes[0].name].cycles
    return interval.low, interval.high


def max_pool(size: int, channels: int, kernel: int, stride: int, dtype: DType = U8) -> Graph:
    window = {"strides": (stride,) * 2, "pads_before": (0, 0), "pads_after": (0, 0), "dilations": (1, 1)}
    return one("MaxPool", [(1, size, size, channels)], {**window, "kernel": (kernel,) * 2}, dtype)


@pytest.mark.parametrize(
    ("graph", "expected"),
    [
        (max_pool(112, 64, 2, 2), 50176),
        (max_pool(7, 1024, 7, 7), 3136),
        (max_pool(56, 64, 3, 1), 36288),
        (max_pool(112, 64, 2, 2, F32), 2 * 50176),
    ],
)
def test_pools_follow_the_guides_formula(graph: Graph, expected: float) -> None:
    assert cycles(graph) == (expected, expected)


def test_a_matrix_product_of_one_row_is_256_products_a_cycle_on_each_generation() -> None:
    graph = one("MatMul", [(1, 1024), (1024, 256)], dtype=U8, constant=(1,), result=Quant.of(64.0))
    assert [cycles(graph, g) for g in GENERATIONS] == [(1024, 1024)] * 3


def test_batches_between_listed_ones_are_bounded_by_both() -> None:
    low, high = cycles(product(3, U8), "2.0")
    assert (low, high) == (3 * 16 * 16 / 1024, 3 * 16 * 16 / 512)


@pytest.mark.parametrize("batch", [3, 5, 9])
def test_other_batches_are_convolutions_on_the_third_generation(batch: int) -> None:
    """By the rule `fully-connected-batch`; a listed batch of 2 and 4 reaches a quarter and a half of the peak."""
    as_convolution = batch * 16 * 16 / 2048
    assert cycles(product(batch, U8)) == (as_convolution, as_convolution)
    assert cycles(product(4, U8)) == (4 * 16 * 16 / 1024,) * 2
    (node,) = estimate(product(batch, U8)).nodes.values()
    assert "found: page-3.0 FullyConnected: other batches are computed as CONV_2D" in node.cycles.provenance
    (slowed,) = estimate(product(batch, U8), small_filter_factor=3).nodes.values()
    assert (slowed.cycles.low, slowed.cycles.high) == (as_convolution, 3 * as_convolution)


@pytest.mark.parametrize(("generation", "rate"), [("1.5", 256), ("2.0", 256), ("3.0", 512)])
def test_depthwise_convolutions_reach_a_quarter_of_the_peak(generation: str, rate: int) -> None:
    assert cycles(conv(U8, group=16), generation) == (64 * 16 / rate,) * 2


def test_the_third_generation_multiplies_only_bytes_faster() -> None:
    assert cycles(conv(U8), "2.0")[0] == 2 * cycles(conv(U8), "3.0")[0]
    assert cycles(conv(F32), "2.0") == cycles(conv(F32), "3.0")
    assert cycles(conv(F32), "1.5")[0] == 2 * cycles(conv(F32), "2.0")[0]


@pytest.mark.parametrize(("generation", "expected"), [("1.5", 128), ("2.0", 128), ("3.0", 64)])
def test_sums_of_two_tensors_have_their_own_rate(generation: str, expected: int) -> None:
    graph = one("Add", [(1, 8, 8, 16)] * 2, dtype=U8)
    assert cycles(graph, generation) == (expected, expected)
    with_constant = one("Add", [(1, 8, 8, 16), (16,)], dtype=U8, constant=(1,))
    assert cycles(with_constant, generation) == (64, expected)


def test_scaling_down_has_no_upper_bound() -> None:
    assert cycles(resize(16)) == (16 * 8 * 16 / 5,) * 2
    assert cycles(resize(4)) == (4 * 8 * 16 / 5, math.inf)


def test_an_operator_without_a_rate_is_named_and_bounded_by_its_traffic() -> None:
    cost = estimate(one("Softmax", [(1, 16)]))
    assert cost.unrated == ("SOFTMAX",)
    (node,) = cost.nodes.values()
    assert (node.cycles.low, node.cycles.high) == (0, math.inf)
    assert node.milliseconds.low == pytest.approx(2 * 32 / 10240 / 1e3)


@pytest.mark.parametrize(
    ("dtype", "layout", "microseconds"), [(U8, "4C", 34), (U8, "16C", 93), (F32, "4C", 98)]
)
def test_conversions_of_an_image(dtype: DType, layout: str, microseconds: int) -> None:
    quant = Quant.of(1.0) if dtype is U8 else None
    image = Tensor("x", dtype, (1, 224, 224, 3), quant)
    assert round(conversion_bytes(image, layout) / 10240) == microseconds


def test_layouts_follow_channels_operators_and_partners() -> None:
    assert set(choose_layouts(relu((1, 4, 4, 4))).values()) == {"4C"}
    assert set(choose_layouts(relu((1, 4, 4, 5))).values()) == {"16C"}
    assert set(choose_layouts(resize(16, 3)).values()) == {"16C"}
    mixed = choose_layouts(one("Mul", [(1, 4, 4, 3), (1, 4, 4, 3)]))
    assert set(mixed.values()) == {"4C"}
    assert padded_bytes(Tensor("x", F32, (1, 2, 2, 3)), "16C") == 4 * 16 * 2


def test_a_layout_reaches_the_operands_of_earlier_operators() -> None:
    builder = Builder("wide")
    narrow = [builder.input(name, F32, (1, 4, 4, 3)) for name in "ab"]
    product = builder.one("Mul", narrow)
    joined = builder.one("Concat", [product, builder.input("c", F32, (1, 4, 4, 16))], {"axis": 3})
    layouts = choose_layouts(builder.finish([joined]))
    assert [layouts[name] for name in (*narrow, product)] == ["16C"] * 3


def chain_of(*ops: str, second_reader: bool = False) -> Graph:
    """Return a chain of 1x1 convolutions and operators of one operand; all keep the shape."""
    builder = Builder("chain")
    tensor = builder.input("x", F32, (1, 8, 8, 16))
    window = {"strides": (1, 1), "pads_before": (0, 0), "pads_after": (0, 0), "dilations": (1, 1)}
    values = []
    for op in ops:
        inputs = [tensor]
        attrs: dict[str, Attribute] = {}
        if op == "Conv":
            source = conv()
            inputs.append(builder.weight("w", source.weights["w"]))
            attrs = dict(window)
        if op == "Resize":
            attrs = {"sizes": (1, 8, 8, 16), "scales": (1.0,) * 4, "mode": "linear"}
        tensor = builder.one(op, inputs, attrs)
        values.append(tensor)
    return builder.finish([tensor, *([values[0]] if second_reader else [])])


@pytest.mark.parametrize(
    ("ops", "generation", "safe", "hopeful"),
    [
        (("Conv", "Relu"), "1.5", 1, 1),
        (("Conv", "Relu", "Abs"), "1.5", 2, 2),
        (("Conv", "Abs", "Relu"), "1.5", 2, 1),
        (("Conv", "Resize", "Relu"), "2.0", 3, 1),
        (("Conv", "Resize", "Relu"), "3.0", 1, 1),
        (("Conv", "Conv"), "1.5", 2, 1),
        (("Conv", "Conv", "Conv"), "2.0", 3, 2),
        (("Conv", "Conv", "Conv"), "3.0", 3, 1),
        (("Conv", "Softmax", "Conv"), "3.0", 3, 3),
        (("Relu", "Abs"), "3.0", 2, 1),
    ],
)
def test_groups(ops: tuple[str, ...], generation: str, safe: int, hopeful: int) -> None:
    graph = chain_of(*ops)
    names = [node.name for node in graph.nodes]
    counts = [len({*predict_groups(graph, names, generation, safe=s).values()}) for s in (True, False)]
    assert counts == [safe, hopeful]


def test_what_two_read_is_never_fused() -> None:
    graph = chain_of("Conv", "Relu", second_reader=True)
    names = [node.name for node in graph.nodes]
    assert len({*predict_groups(graph, names, "3.0", safe=False).values()}) == 2


def test_fusion_saves_the_traffic_of_inner_tensors() -> None:
    alone, fused = estimate(chain_of("Conv", "Softmax")), estimate(chain_of("Conv", "Relu"))
    inner = 2 * 64 * 16 * 2
    assert alone.bytes.low - fused.bytes.low == inner


@pytest.mark.parametrize("generation", GENERATIONS)
def test_intervals_are_ordered_and_scale_with_the_clock(generation: str) -> None:
    graph = chain_of("Conv", "Relu", "Conv", "Abs")
    slow = estimate(graph, generation, frequency_mhz=100, bandwidth_mb_s=1e6)
    fast = estimate(graph, generation, frequency_mhz=200, bandwidth_mb_s=2e6)
    assert 0 < slow.milliseconds.low <= slow.milliseconds.high
    assert slow.milliseconds.low == pytest.approx(2 * fast.milliseconds.low)
    assert slow.milliseconds.high == pytest.approx(2 * fast.milliseconds.high)
    assert "option frequency_mhz: 100 MHz" in slow.milliseconds.provenance


def test_cores_lower_the_lower_end_alone() -> None:
    graph = chain_of("Conv", "Relu")
    names = [node.name for node in graph.nodes]
    one_core, two = (
        CostModel(graph, names, DeviceRates.of(options)).estimate(0).milliseconds
        for options in (
            MdlaOptions("2.0", bandwidth_mb_s=1e9),
            MdlaOptions("2.0", find_soc("MT8195", "x"), bandwidth_mb_s=1e9),
        )
    )
    assert two.low == pytest.approx(one_core.low / 2)
    assert two.high == one_core.high


def test_the_lost_list_of_small_filters_is_a_factor_of_the_user() -> None:
    graph = conv(U8)
    plain, slowed = estimate(graph), estimate(graph, small_filter_factor=3)
    (a,), (b,) = plain.nodes.values(), slowed.nodes.values()
    assert (b.cycles.low, b.cycles.high) == (a.cycles.low, 3 * a.cycles.high)


def test_padding_waste_is_a_share_of_the_products() -> None:
    (node,) = estimate(conv(channels=3)).nodes.values()
    assert (node.macs.useful, node.macs.padded) == (64 * 16 * 3, 64 * 16 * 4)
    assert node.wasted == pytest.approx(0.25)


def test_switches_and_conversions_count_at_the_upper_end() -> None:
    graph = pad(1)
    rates = DeviceRates.of(MdlaOptions("3.0"))
    names = [node.name for node in graph.nodes]
    none, two = (CostModel(graph, names, rates).estimate(count).milliseconds for count in (0, 2))
    assert two.high - none.high == pytest.approx(4.0)
    assert two.low == none.low


def test_reshapes_cost_nothing() -> None:
    cost = estimate(one("Reshape", [(1, 4, 4, 16)], {"shape": (1, 256)}))
    assert cost.cycles.high == 0
    assert cost.bytes.low == 0


def test_provenance_of_the_seed_is_marked() -> None:
    (node,) = estimate(pool("MaxPool", U8)).nodes.values()
    assert all(line.split(":")[0] in ("seed", "found", "inferred") for line in node.cycles.provenance)
