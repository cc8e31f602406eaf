"""Quantized tensors: what the device computes of them has the bits that the CPU's library computes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from byte_results import full_range, load_on_cpu
from opencl_device import compile_by_clang, load_on_device, require_device
from opencl_models import read_graph

from mace_core.graph_builder import Builder
from mace_core.ir import Array, DType, Graph, Quant, Storage
from mace_core.run.reference import execute
from mace_core.testing.compiled import merge
from mace_core.testing.samples import VARIANTS, sample
from mace_target_opencl.enqueue import render_program
from mace_target_opencl.target import Opencl

WHOLE = (
    "mlperf_ic/ic_int8.tflite",
    "mlperf_kws/kws_int8.tflite",
    "mlperf_ad/ad_int8.tflite",
    "tflm_mnist_lstm/trained_lstm_int8.tflite",
    "onnxzoo_shufflenetv2_int8/shufflenet-v2-12-int8.onnx",
    "coral_mobilenet_v2_1.0_224_quant/mobilenet_v2_1.0_224_quant.tflite",
)
"""Quantized models that the device computes alone."""

COMMON = (
    *("Add", "Sub", "Mul", "Minimum", "Maximum", "PRelu", "Conv", "ConvTranspose", "MatMul", "Softmax"),
    *("AveragePool", "MaxPool", "ReduceSum", "ReduceMean", "ReduceMax", "Concat", "Pad", "Where"),
    *("Transpose", "Slice", "Sigmoid", "Tanh", "Relu", "ArgMax"),
)
EIGHT_BITS = ("HardSwish", "Elu", "Exp", "Gelu", "LeakyRelu", "Clip", "Round", "Sqrt", "ReduceMin")
"""Ops with integer kernels for eight bits alone, or whose curves bend too sharply for sixteen."""


def list_samples() -> list[Graph]:
    """Return samples of every op that is computed in integers, with zero points and other attributes."""
    graphs = []
    for dtype in (DType.I8, DType.U8, DType.I16):
        for name in COMMON if dtype is DType.I16 else (*COMMON, *EIGHT_BITS):
            # Products of sixteen bits need symmetric tensors.
            zero_point = 0 if dtype is DType.I16 else 3
            for variant in range(-1, len(VARIANTS.get(name, ()))):
                graph = sample(name, dtype, quantized=True, zero_point=zero_point, variant=variant)
                if graph is not None:
                    graphs.append(graph.with_name(f"{name}_{dtype.value}_{variant + 1}"))
    return graphs


def build_conv(x: tuple[int, ...], w: tuple[int, ...], group: int = 1, zero: int = 0) -> Graph:
    """Return a convolution with a scale for each channel, a bias, a clamp, and a sum with its input's like."""
    builder, rng = Builder(f"conv_{x[-1]}_{w[0]}_{group}_{zero}"), np.random.default_rng(0)
    scales = tuple(float(scale) for scale in rng.uniform(0.001, 0.01, w[0]))
    weights = (
        rng.integers(-128, 128, w).astype(np.int8) if not zero else rng.integers(0, 256, w).astype(np.uint8)
    )
    quant = Quant(scales, (0,) * w[0], 0) if not zero else Quant.of(0.004, zero)
    unit = 0.02 * np.array(scales if not zero else [0.004] * w[0])
    operands = [
        builder.input("x", DType.U8, x, Quant.of(0.02, 119)),
        builder.weight("w", weights, quant),
        builder.weight(
            "b", rng.integers(-9999, 9999, w[0]).astype(np.int32), Quant(tuple(unit), (0,) * w[0], 0)
        ),
    ]
    attrs = {
        "strides": (1, 2),
        "pads_before": (1, 0),
        "pads_after": (1, 1),
        "dilations": (1, 1),
        "group": group,
        "low": 0.0,
        "high": 6.0,
    }
    storage = Storage(DType.U8, Quant.of(0.03, 7))
    y = builder.add("Conv", operands, attrs, outputs=[builder.reserve_output("conv", storage)])[0]
    other = builder.input("other", DType.U8, builder.tensors[y].shape, Quant.of(0.05, 128))
    out = builder.reserve_output("y", Storage(DType.U8, Quant.of(0.06, 100)))
    return builder.finish(builder.add("Add", [y, other], {}, outputs=[out]))


CONVS = (
    build_conv((1, 9, 8, 8), (12, 3, 3, 8)),
    build_conv((2, 5, 7, 3), (5, 3, 2, 3)),
    build_conv((1, 7, 7, 12), (12, 3, 3, 1), 12),
    build_conv((1, 7, 7, 5), (5, 3, 3, 1), 5, 131),
    build_conv((1, 6, 6, 8), (16, 1, 1, 4), 2, 120),
    # Work-items share the results of these.
    build_conv((1, 5, 5, 72), (12, 3, 3, 72), zero=131),
    build_conv((1, 5, 4, 33), (5, 3, 2, 33)),
)


@pytest.mark.sampled(cases="kws")
@pytest.mark.parametrize("name", WHOLE)
def test_whole_models_are_taken(name: str, tmp_path: Path) -> None:
    graph, target = read_graph(name, tmp_path), Opencl()
    refusals = [refusal for node in graph.nodes if (refusal := target.refuses(node, graph))]
    assert refusals == []


def test_a_convolution_and_the_sum_behind_it_are_one_kernel_with_exact_floats() -> None:
    (call,) = Opencl().lower(CONVS[0]).calls
    source = render_program([call.kernel])
    assert source.count("FP_CONTRACT OFF") == source.count("FP_CONTRACT DEFAULT") == 1
    assert "mace_dot" in source
    assert "mace_limit" in source


@pytest.mark.parametrize(
    ("number", "dots", "splits"), [(0, True, 1), (1, False, 1), (4, True, 1), (5, True, 4), (6, False, 8)]
)
def test_bytes_are_multiplied_four_at_a_time_where_the_depth_divides(
    number: int, dots: bool, splits: int
) -> None:
    (call,) = Opencl().lower(CONVS[number]).calls
    assert (call.kernel.params["dots"], call.kernel.params["splits"]) == (dots, splits)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("version", "defines", "function"),
    [
        ("CL3.0", ["MACE_DEVICE_HAS_KHR_DOT"], "_Z20dot_4x8packed_ss_intjj"),
        ("CL1.2", ["MACE_DEVICE_HAS_KHR_DOT", "MACE_DEVICE_HAS_ARM_DOT"], "_Z7arm_dotDv4_cS_"),
    ],
)
def test_four_products_are_one_instruction_where_the_device_has_it(
    version: str, defines: list[str], function: str, tmp_path: Path
) -> None:
    """Clang's device of OpenCL 3.0 has cl_khr_integer_dot_product, that of 1.2 has Arm's extension alone."""
    source = render_program(call.kernel for call in Opencl().lower(CONVS[0]).calls)
    assert function in compile_by_clang(source, tmp_path, version, defines)


@pytest.mark.slow
@pytest.mark.parametrize("version", ["CL3.0", "CL1.2"])
def test_a_macro_of_the_compiler_alone_makes_no_instruction(version: str, tmp_path: Path) -> None:
    """Oclgrind's compiler defines macros of extensions that its device neither lists nor computes."""
    source = render_program(call.kernel for call in Opencl().lower(CONVS[0]).calls)
    code = compile_by_clang(source, tmp_path, version)
    assert "dot_4x8packed" not in code
    assert "arm_dot" not in code


def test_a_product_of_floats_keeps_its_multiply_adds() -> None:
    """What follows it rounds exactly, and would forbid them."""
    builder = Builder("product")
    weights = builder.weight("w", np.ones((4, 4), np.float32))
    y = builder.one("MatMul", [builder.input("x", DType.F32, (4, 4)), weights])
    out = builder.reserve_output("y", Storage(DType.I8, Quant.of(0.1)))
    graph = builder.finish(builder.add("Quantize", [y], {}, outputs=[out]))
    product, _ = Opencl().lower(graph).calls
    assert "FP_CONTRACT" not in render_program([product.kernel])


def test_numbers_of_thirty_two_bits_are_refused() -> None:
    builder = Builder("wide")
    x = builder.input("x", DType.I32, (4,), Quant.of(0.1))
    graph = builder.finish([builder.one("Dequantize", [x])])
    refusal = Opencl().refuses(graph.nodes[0], graph)
    assert refusal is not None
    assert refusal.code == "quantization"
    assert "use eight or sixteen bits" in refusal.remedy


@pytest.mark.device
@pytest.mark.exhaustive
def test_ops_have_the_bits_of_the_cpu(tmp_path: Path) -> None:
    require_device()
    graph = merge("ops", [*list_samples(), *CONVS])
    device = load_on_device([graph], tmp_path / "device")["ops"]
    cpu = load_on_cpu(graph, tmp_path / "cpu")["ops"]
    for seed in range(2):
        inputs = full_range(graph, seed)
        expected, actual = cpu.run(inputs), device.run(inputs)
        assert [name for name in expected if not np.array_equal(actual[name], expected[name])] == []


TILES = {
    "small": [
        build_conv((1, 16, 34, 32), (36, 1, 2, 32)),
        build_conv((1, 15, 40, 64), (36, 1, 1, 64), zero=131),
        build_conv((1, 17, 33, 36), (68, 2, 2, 36)),
        build_conv((1, 16, 36, 80), (64, 3, 2, 40), 2),
    ],
    "large": [build_conv((1, 1, 4096, 32), (64, 1, 1, 32))],
}
"""Convolutions of bytes by tiles of 32 columns, and of 64."""


@pytest.mark.parametrize(("size", "columns"), [("small", 32), ("large", 64)])
def test_large_products_of_bytes_are_computed_by_tiles(size: str, columns: int) -> None:
    for graph in TILES[size]:
        (call,) = Opencl().lower(graph).calls
        assert call.kernel.template.name == "tile_dots.cl.in"
        assert call.kernel.params["tile_columns"] == columns


@pytest.mark.device
@pytest.mark.exhaustive
@pytest.mark.parametrize("size", TILES)
def test_tiles_of_bytes_have_the_bits_of_the_cpu(size: str, tmp_path: Path) -> None:
    require_device()
    graph = merge("tiles", TILES[size])
    device = load_on_device([graph], tmp_path / "device")["tiles"]
    cpu = load_on_cpu(graph, tmp_path / "cpu")["tiles"]
    inputs = full_range(graph)
    expected, actual = cpu.run(inputs), device.run(inputs)
    assert [name for name in expected if not np.array_equal(actual[name], expected[name])] == []
    assert all(len({*array.ravel()}) > 9 for array in expected.values()), "not clamped to few numbers"


@pytest.mark.device
@pytest.mark.exhaustive
def test_convolutions_compute_what_the_references_do(tmp_path: Path) -> None:
    """Within the two steps that a sum and the product before it may each be off from one rounding."""
    require_device()
    graph = merge("convs", CONVS)
    device = load_on_device([graph], tmp_path)["convs"]
    inputs = full_range(graph)
    expected, actual = execute(graph, inputs), device.run(inputs)
    for name in graph.outputs:
        assert np.abs(actual[name].astype(int) - expected[name].astype(int)).max() <= 2, name


def build_conversions() -> Graph:
    """Return conversions of numbers in the middle of two steps, and next to it, for several scales."""
    graphs = []
    for number, scale in enumerate((0.1, 1 / 3, 0.007812501, 3.0e-5, 7.7)):
        builder = Builder(f"scale_{number}")
        x = builder.input("x", DType.F32, (6 * 256,))
        outputs = [
            builder.reserve_output(f"y{dtype.value}", Storage(dtype, Quant.of(scale, zero)))
            for dtype, zero in ((DType.I8, -5), (DType.U8, 99), (DType.I16, 0))
        ]
        for output in outputs:
            builder.add("Quantize", [x], {}, outputs=[output])
        graphs.append(builder.finish([*outputs, *(builder.one("Dequantize", [name]) for name in outputs)]))
    return merge("conversions", graphs)


def spread_middles(scale: float) -> Array:
    middles = (np.arange(-128, 128) + 0.5).astype(np.float32) * np.float32(scale)
    around = [middles, np.nextafter(middles, np.float32(np.inf)), np.nextafter(middles, np.float32(-np.inf))]
    special = np.zeros(256, np.float32)
    special[:6] = (np.nan, np.inf, -np.inf, 3e38, -3e38, 1e-40)
    rng = np.random.default_rng(0)
    return np.concatenate([*around, special, rng.normal(0, 50 * scale, 512).astype(np.float32)])


@pytest.mark.device
@pytest.mark.exhaustive
def test_quotients_round_as_on_the_cpu(tmp_path: Path) -> None:
    require_device()
    graph = build_conversions()
    device = load_on_device([graph], tmp_path / "device")[graph.name]
    cpu = load_on_cpu(graph, tmp_path / "cpu")[graph.name]
    inputs = {
        name: spread_middles(scale)
        for name, scale in zip(graph.inputs, (0.1, 1 / 3, 0.007812501, 3.0e-5, 7.7), strict=True)
    }
    expected, actual = cpu.run(inputs), device.run(inputs)
    assert [name for name in expected if not np.array_equal(actual[name], expected[name])] == []


@pytest.mark.device
@pytest.mark.exhaustive
@pytest.mark.parametrize("name", WHOLE)
def test_models_have_the_bits_of_the_cpu(name: str, tmp_path: Path) -> None:
    require_device()
    graph = read_graph(name, tmp_path)
    device = load_on_device([graph], tmp_path / "device")[graph.name]
    cpu = load_on_cpu(graph, tmp_path / "cpu")[graph.name]
    inputs = {**full_range(graph), **{state.input: state.start for state in graph.states}}
    expected, actual = cpu.run(inputs), device.run(inputs)
    assert [name for name in expected if not np.array_equal(actual[name], expected[name])] == []
