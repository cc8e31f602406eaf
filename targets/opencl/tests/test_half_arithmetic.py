"""Half precision as arithmetic: which kernels compute so, and how far results are from those of floats.

Sums of products are rounded to 11 bits after each term. The bounds below are of the range of a result: of a
single op with up to 144 terms, and of whole networks.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from half_device import has_half, replace_half
from half_errors import insert_copies, list_errors, round_floats
from opencl_device import compile_by_clang, load_on_device, require_device
from opencl_models import WHOLE, read_graph
from stub_session import Probe, ProbeSession, build_probe
from test_half_storage import network

from mace_core.errors import MaceError
from mace_core.graph_builder import Builder
from mace_core.ir import DType, Graph
from mace_core.ops import core_ops
from mace_core.program import Program
from mace_core.testing.compiled import merge, random_inputs
from mace_core.testing.samples import sample
from mace_target_opencl.enqueue import render_program
from mace_target_opencl.half_arithmetic import compute_in_half
from mace_target_opencl.half_storage import store_in_half
from mace_target_opencl.options import OpenclOptions
from mace_target_opencl.target import Opencl

STORAGE = OpenclOptions(storage="f16")
ARITHMETIC = OpenclOptions(storage="f16", arithmetic="f16")
OP_LIMITS = {STORAGE: 2e-3, ARITHMETIC: 5e-3}
MODEL_LIMITS = {STORAGE: 5e-3, ARITHMETIC: 1e-2}
IDS = ("fp16_fp32", "fp16_fp16")
NO_DEVICE = 6


def lower_in_half(graph: Graph) -> Program:
    return compute_in_half(store_in_half(Opencl().lower(graph)))


def name_sums(program: Program) -> list[str]:
    """Return the type in which each call with weights or windows sums."""
    return [str(call.kernel.params["type"]) for call in program.calls if "type" in call.kernel.params]


def test_products_compute_in_half_and_pools_do_not() -> None:
    program = lower_in_half(network())
    assert name_sums(program) == ["mace_half", "float", "mace_half"]
    source = render_program(call.kernel for call in program.calls)
    assert source.startswith("#pragma OPENCL EXTENSION cl_khr_fp16 : enable\n")
    assert source.count("#pragma") == 1


def test_a_product_whose_weights_half_precision_cannot_hold_computes_in_floats() -> None:
    assert name_sums(lower_in_half(network(1e5))) == ["float", "float", "mace_half"]


@pytest.mark.parametrize(("side", "kind"), [(4, "mace_half"), (5, "float")])
def test_windows_of_many_taps_are_summed_in_floats(side: int, kind: str) -> None:
    builder = Builder("windows")
    x = builder.one("Abs", [builder.input("x", DType.F32, (1, 9, 9, 8))])
    weights = builder.weight("w", np.ones((8, side, side, 1), np.float32))
    window = {"strides": (1, 1), "pads_before": (0, 0), "pads_after": (0, 0), "dilations": (1, 1)}
    graph = builder.finish([builder.one("Conv", [x, weights], {**window, "group": 8})])
    assert name_sums(lower_in_half(graph)) == [kind]


def test_a_large_constant_left_factor_is_multiplied_in_floats() -> None:
    builder = Builder("left")
    x = builder.one("Abs", [builder.input("x", DType.F32, (8, 8))])
    factor = builder.weight("factor", np.full((4, 8), 1e6, np.float32))
    product = builder.one(
        "Tanh", [builder.one("Transpose", [builder.one("MatMul", [factor, x])], {"perm": (1, 0)})]
    )
    assert name_sums(lower_in_half(builder.finish([product]))) == ["float"]


def test_kernels_without_products_need_no_extension() -> None:
    builder = Builder("plain")
    graph = builder.finish([builder.one("Relu", [builder.input("x", DType.F32, (4, 4))])])
    assert "cl_khr_fp16" not in render_program(call.kernel for call in lower_in_half(graph).calls)


@pytest.mark.slow
def test_kernels_are_opencl_c_of_a_device_with_the_extension(tmp_path: Path) -> None:
    """PoCL has no cl_khr_fp16, but the compiler that it brings knows the type and its functions."""
    programs = [lower_in_half(graph) for graph in (network(), build_products())]
    source = render_program(call.kernel for program in programs for call in program.calls)
    assert "_Z" in compile_by_clang(source, tmp_path)


@pytest.fixture(scope="module")
def probe(tmp_path_factory: pytest.TempPathFactory) -> Probe:
    builder = Builder("m")
    weights = builder.weight("w", np.full((50, 50), 0.03, np.float32))
    graph = builder.finish([builder.one("MatMul", [builder.input("x", DType.F32, (2, 50)), weights])])
    return build_probe(tmp_path_factory.mktemp("probe"), graph=graph, target=Opencl(ARITHMETIC))


LONG_LIST = " ".join(["cl_khr_fp16_not", *(f"cl_vendor_extension_{i}" for i in range(200)), "cl_khr_fp16"])


@pytest.mark.exhaustive
@pytest.mark.parametrize("extensions", ["", "cl_khr_fp161 xcl_khr_fp16", " cl_khr_fp64 "])
def test_a_device_without_the_extension_is_refused(extensions: str, probe: Probe) -> None:
    (opened,) = probe.run(EXTENSIONS=extensions).find("open")
    assert opened.startswith(f"{NO_DEVICE} ")
    assert "has no cl_khr_fp16" in opened
    assert "build the library with arithmetic: f32" in opened


@pytest.mark.exhaustive
@pytest.mark.parametrize("extensions", ["cl_khr_fp16", "a cl_khr_fp16 b", LONG_LIST])
def test_a_device_with_the_extension_is_taken(extensions: str, probe: Probe) -> None:
    assert probe.run(EXTENSIONS=extensions).find("open") == ["0"]


@pytest.mark.exhaustive
def test_the_processor_computes_where_the_extension_is_missing(probe: Probe) -> None:
    log = probe.run(ProbeSession(fallback=1), EXTENSIONS="")
    assert log.find("run") == ["0", "0"]
    assert {round(float(value), 3) for value in log.find("output")} == {1.5}


@pytest.mark.device
@pytest.mark.exhaustive
def test_the_device_answers_by_its_extension(tmp_path: Path) -> None:
    require_device()
    graph = network()
    if has_half():
        load_on_device([graph], tmp_path, Opencl(ARITHMETIC))
        return
    with pytest.raises(MaceError, match="has no cl_khr_fp16"):
        load_on_device([graph], tmp_path, Opencl(ARITHMETIC))


def build_products() -> Graph:
    """Return products by tiles and without, split ones, depthwise windows, and one of computed matrices."""
    rng = np.random.default_rng(0)
    plain = {"strides": (1, 1), "pads_before": (1, 1), "pads_after": (1, 1), "dilations": (1, 1)}
    graphs = []
    cases = (("tiles", 40, 16, 1), ("odd", 40, 5, 1), ("depthwise", 40, 12, 12), ("teams", 15, 68, 1))
    for name, size, width, group in (*cases, ("few_tiles", 7, 68, 1)):
        builder = Builder(name)
        x = builder.one("Abs", [builder.input("x", DType.F32, (1, size, size, width))])
        shape = (width if group > 1 else 2 * width, 3, 3, width // group)
        w = builder.weight("w", rng.standard_normal(shape).astype(np.float32))
        y = builder.one("Conv", [x, w], {**plain, "group": group})
        graphs.append(builder.finish([builder.one("Relu", [y])]))
    builder = Builder("computed")
    x = builder.one("Abs", [builder.input("x", DType.F32, (3, 70, 36))])
    y = builder.one("MatMul", [x, builder.one("Transpose", [x], {"perm": (0, 2, 1)})])
    graphs.append(builder.finish([builder.one("Relu", [y])]))
    return merge("products", graphs)


def build_samples() -> Graph:
    """Return a sample of each op of floats, whose operands pass through the memory of the device."""
    target = Opencl()
    graphs = []
    for name in sorted(core_ops()):
        graph = sample(name, DType.F32)
        if graph and all(target.refuses(node, graph) is None for node in graph.nodes):
            graphs.append(insert_copies(graph.with_name(name)))
    return merge("samples", graphs)


@pytest.mark.device
@pytest.mark.exhaustive
@pytest.mark.parametrize("options", [STORAGE, ARITHMETIC], ids=IDS)
@pytest.mark.parametrize("build", [build_products, build_samples], ids=["products", "samples"])
def test_ops_are_within_the_bound(
    build: Callable[[], Graph], options: OpenclOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace_half(monkeypatch)
    graph = build()
    model = load_on_device([graph], tmp_path, Opencl(options))[graph.name]
    inputs = round_floats(random_inputs(graph))
    errors = list_errors(graph, model.run(inputs), inputs)
    assert max(errors.values()) > 1e-5, "different, or half precision was not in use"
    above = {name: error for name, error in errors.items() if not error < OP_LIMITS[options]}
    assert above == {}


@pytest.mark.device
@pytest.mark.exhaustive
@pytest.mark.parametrize("options", [STORAGE, ARITHMETIC], ids=IDS)
@pytest.mark.parametrize("name", WHOLE)
def test_models_are_within_the_bound(
    name: str, options: OpenclOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace_half(monkeypatch)
    graph = read_graph(name, tmp_path)
    model = load_on_device([graph], tmp_path, Opencl(options))[graph.name]
    inputs = {**random_inputs(graph), **{state.input: state.start for state in graph.states}}
    errors = list_errors(graph, model.run(inputs), inputs)
    assert max(errors.values()) < MODEL_LIMITS[options], errors


@pytest.mark.device
@pytest.mark.exhaustive
@pytest.mark.parametrize(("rows", "columns"), [(64, 256), (8, 8), (5, 3)], ids=["tiles", "vectors", "single"])
def test_deep_sums_stay_within_the_bound(
    rows: int, columns: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each sum is near the exact one, by the magnitudes of its products; in half precision it would end at 2048."""
    replace_half(monkeypatch)
    depth, rng = 4096, np.random.default_rng(3)
    w = rng.uniform(-1, 1, (depth, columns)).astype(np.float16).astype(np.float32)
    w[:, 0] = 1
    builder = Builder("deep")
    x = builder.one("Abs", [builder.input("x", DType.F32, (rows, depth))])
    graph = builder.finish([builder.one("MatMul", [x, builder.weight("w", w)])])
    given = rng.uniform(0, 1, (rows, depth)).astype(np.float16).astype(np.float32)
    given[0] = 1
    model = load_on_device([graph], tmp_path, Opencl(ARITHMETIC))["deep"]
    (actual,) = model.run({"x": given}).values()
    exact = given.astype(np.float64) @ w.astype(np.float64)
    magnitudes = given.astype(np.float64) @ np.abs(w.astype(np.float64))
    assert actual[0, 0] == depth
    assert (np.abs(actual - exact) <= 17 * 2.0**-11 * magnitudes).all()
    assert np.abs(actual - exact).max() > 0, "or half precision was not in use"
