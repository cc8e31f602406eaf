"""Work that is shared out gives the same bits, whichever worker does which part and in whatever order."""

import ctypes as c
import random
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from quantized_graphs import I8, I16, POOL, U8, conv, graph, storage

from mace_core.attributes import Attribute
from mace_core.ir import Array, DType, Graph
from mace_core.levels import with_levels
from mace_core.run import native
from mace_core.testing.compiled import (
    case,
    compile_graphs,
    generate_library,
    load_library,
    merge,
    random_inputs,
)
from mace_core.testing.processor import levels_here
from mace_target_cpu import Cpu
from mace_target_cpu.isa import CpuLevel

pytestmark = pytest.mark.slow

TASK = c.CFUNCTYPE(None, c.c_void_p, c.c_int32, c.c_int32)
PARALLEL = c.CFUNCTYPE(None, c.c_void_p, TASK, c.c_void_p, c.c_int32)
WORKERS = 3
LEVEL = levels_here(Cpu().levels("host"))[0]
BEST = with_levels(Cpu(), [LEVEL])

# The tasks that each kernel cuts its work into for WORKERS, in the order of the graphs: a constant of a share
# changes nothing else that a test could see.
MOVED = [10, 9, 19, 16, 60, 110, 10, 334, 10, 10, 10, 20, 20, 20, 10, 10]
PRODUCTS = {
    4: [3, 5, 9, 15, 15, 3, 12, 9, 10],
    8: [3, 5, 9, 15, 15, 6, 6, 9, 10],
    16: [3, 3, 3, 15, 5, 6, 6, 9, 10],
}
"""Lanes of a level -> tasks of products, convolutions and pools, which its tiles decide."""
OTHERS = [12, 12, 6, 6, 6, 2, 2, 2, 10, 2, 6, 3, 10, 24, 5, 5, 24, 8, 42, 85, 17]

STORED = {
    "amx": [6, 5, 3, 10, 12, 12, 6, 9, 9, 9, 12, 3, 2],
    "avx512vnni": [6, 5, 3, 12, 12, 12, 6, 9, 9, 9, 12, 3, 3],
    "avx512": [6, 5, 3, 5, 12, 12, 6, 9, 9, 9, 12, 3, 3],
    "avxvnni": [6, 19, 3, 12, 12, 12, 6, 9, 9, 9, 12, 3, 3],
    "avx2": [6, 19, 3, 5, 12, 12, 6, 9, 9, 9, 12, 3, 3],
    "sse2": [3, 19, 6, 5, 12, 6, 6, 9, 9, 9, 12, 3, 3],
    "generic": [3, 19, 6, 12, 12, 6, 6, 9, 9, 9, 12, 3, 3],
}
"""Level -> tasks of the kernels of stored integers."""


class Threads(c.Structure):
    _fields_ = (
        ("struct_bytes", c.c_uint32),
        ("workers", c.c_int32),
        ("pool", c.c_void_p),
        ("parallel", PARALLEL),
    )


def shuffled(model: native.LoadedModel, given: dict[str, Array]) -> tuple[dict[str, Array], list[int]]:
    """The outputs of a run whose tasks come in another order, on one of WORKERS each.

    And the number of tasks of each kernel.
    """
    order = random.Random(1)
    counts: list[int] = []

    def parallel(_: object, task: object, context: int, tasks: int) -> None:
        assert callable(task)
        counts.append(tasks)
        for index in order.sample(range(tasks), tasks):
            task(context, index, order.randrange(WORKERS))

    threads = Threads(c.sizeof(Threads), WORKERS, None, PARALLEL(parallel))
    config = native.Config(c.sizeof(native.Config), 0, c.cast(c.pointer(threads), c.c_void_p))
    outputs = native.LoadedModel(model._raw, model._functions, config).run(given)
    return outputs, counts


def moves() -> list[Graph]:
    x, at = np.zeros((2, 90, 91, 5), np.float32), np.zeros((2000,), np.int64)
    up = {"sizes": (2, 120, 130, 5), "scales": (1.0, 120 / 90, 130 / 91, 1.0)}
    cases: dict[str, tuple[list[Array], Mapping[str, Attribute]]] = {
        "Transpose": ([x], {"perm": (3, 1, 2, 0)}),
        "Slice": ([x], {"starts": (0, 1, 90, 4), "sizes": (2, 80, 91, 5), "steps": (1, 1, -1, -1)}),
        "Pad": ([x], {"before": (0, 1, 1, 0), "after": (1, 0, 2, 1)}),
        "Concat": ([x, x[..., :3]], {"axis": 3}),
        "Tile": ([x], {"repeats": (1, 2, 1, 3)}),
        "Gather": ([x[0], at], {"axis": 1}),
        "GatherElements": ([x, np.zeros((2, 90, 91, 5), np.int32)], {"axis": 1}),
        "GatherND": ([x, np.zeros((2, 3000, 1), np.int32)], {"batch_dims": 1}),
        "Trilu": ([x], {"k": 1}),
        "ReverseSequence": ([x, np.zeros(91, np.int64)], {"batch_axis": 2, "time_axis": 1}),
        "SpaceToDepth": ([x[:, :, :90]], {"block": 3}),
    }
    single = [case(op.lower(), op, inputs, attrs) for op, (inputs, attrs) in cases.items()]
    resized = [case(f"resize_{m}", "Resize", [x], {**up, "mode": m}) for m in ("nearest", "linear", "cubic")]
    split = case("split", "Split", [x], {"axis": 3, "sizes": (2, 3)}, outputs=2)
    return [*single, *resized, split, case("topk", "TopK", [x], {"k": 20, "axis": 2}, outputs=2)]


WINDOW = {"strides": (1, 1), "pads_before": (1, 1), "pads_after": (1, 1), "dilations": (1, 1)}
LSTM = [(7, 9, 6), (2, 20, 6), (2, 20, 5)]


def build_float_graphs() -> list[Graph]:
    """Return graphs of sums, whose order must not depend on the workers, and of kernels with memory for each one."""
    cases: list[tuple[str, list[tuple[int, ...]], Mapping[str, Attribute]]] = [
        ("MatMul", [(37, 19), (19, 70)], {}),
        ("MatMul", [(1, 19), (19, 270)], {}),
        ("MatMul", [(3, 19), (19, 130)], {}),
        ("MatMul", [(5, 7, 19), (5, 19, 33)], {}),
        ("Conv", [(2, 9, 10, 6), (40, 3, 3, 6)], WINDOW),
        ("Conv", [(1, 9, 10, 6), (12, 3, 3, 3)], {**WINDOW, "group": 2}),
        ("Conv", [(2, 9, 10, 20), (20, 3, 3, 1)], {**WINDOW, "group": 20}),
        (
            "ConvTranspose",
            [(2, 5, 6, 4), (6, 3, 3, 4)],
            {**WINDOW, "strides": (2, 3), "output_padding": (0, 0)},
        ),
        ("MaxPool", [(2, 9, 10, 20)], {**WINDOW, "kernel": (3, 3)}),
        ("AveragePool", [(2, 9, 10, 20)], {**WINDOW, "kernel": (3, 3)}),
        ("LSTM", LSTM, {"hidden": 5, "direction": "bidirectional"}),
        ("GRU", [(7, 9, 6), (2, 15, 6), (2, 15, 5)], {"hidden": 5, "direction": "bidirectional"}),
        ("RNN", [(7, 9, 6), (2, 5, 6), (2, 5, 5)], {"hidden": 5, "direction": "bidirectional"}),
        ("Softmax", [(60, 301)], {}),
        ("Softmax", [(3, 70, 130)], {"axis": 1}),
        ("LayerNorm", [(60, 301), (301,)], {}),
        ("InstanceNorm", [(5, 40, 70), (70,), (70,)], {}),
        ("MeanVarianceNorm", [(30, 40, 20)], {"axes": (0, 2)}),
        ("BatchNorm", [(60, 301), (301,), (301,), (301,), (301,)], {}),
        ("LRN", [(60, 301)], {"size": 5}),
        ("RMSNorm", [(60, 301), (301,)], {}),
        ("DFT", [(50, 60, 2)], {"length": 60}),
        ("GridSample", [(2, 9, 10, 20), (2, 30, 40, 2)], {}),
        ("RoiMaxPool", [(2, 9, 10, 20), (9, 4), (9,)], {"size": (7, 7)}),
        ("RoiAlign", [(2, 9, 10, 20), (9, 4), (9,)], {"size": (7, 7)}),
        ("SquaredDistance", [(70, 30), (90, 30)], {}),
        ("NonMaxSuppression", [(2, 60, 4), (2, 4, 60)], {"per_class": 9}),
        ("Im2Col", [(2, 30, 31, 20)], {**WINDOW, "kernel": (3, 3)}),
        ("MaxPoolIndices", [(2, 30, 31, 20)], {**WINDOW, "kernel": (3, 3)}),
        ("DeformIm2Col", [(2, 9, 10, 20), (2, 9, 10, 18)], {**WINDOW, "kernel": (3, 3)}),
    ]
    outputs = {"LSTM": 3, "GRU": 2, "RNN": 2, "NonMaxSuppression": 2, "MaxPoolIndices": 2}
    constants = {
        "MatMul": (1,),
        "Conv": (1,),
        "ConvTranspose": (1,),
        "LSTM": (1, 2),
        "GRU": (1, 2),
        "RNN": (1, 2),
    }
    graphs = []
    for number, (op, shapes, attrs) in enumerate(cases):
        rng = np.random.default_rng(number)
        arrays: list[Array] = [rng.standard_normal(s).astype(np.float32) for s in shapes]
        if op.startswith("Roi"):
            arrays[2] = np.zeros(shapes[2], np.int64)
        fixed = () if op == "MatMul" and len(shapes[1]) == 3 else constants.get(op, ())
        name = f"{op.lower()}{number}"
        graphs.append(case(name, op, arrays, attrs, outputs=outputs.get(op, 1), constants=fixed))
    return graphs


def test_results_do_not_depend_on_the_workers(tmp_path: Path) -> None:
    alone, together, counts = run_both(moves(), tmp_path)
    assert counts == MOVED
    for name, array in alone.items():
        np.testing.assert_array_equal(together[name], array, err_msg=name)


@pytest.mark.exhaustive
def test_numbers_do_not_depend_on_the_workers(tmp_path: Path) -> None:
    graphs = build_float_graphs()
    alone, together, counts = run_both(graphs, tmp_path)
    assert isinstance(LEVEL, CpuLevel)
    assert counts == [*PRODUCTS[LEVEL.lanes], *OTHERS]
    for name, array in alone.items():
        np.testing.assert_array_equal(together[name], array, err_msg=name)


def build_quantized_graphs() -> list[Graph]:
    """Return graphs of quantized operators with more rows and columns than one task of a worker computes."""
    narrow, legacy = (I8, DType.I8, I8), (U8, DType.U8, storage(DType.U8, 0.3, 100))
    pixel = {"pads_before": (0, 0), "pads_after": (0, 0)}
    graphs = [
        conv("pixel", (2, 9, 10, 13), (70, 1, 1, 13), narrow, **pixel),
        conv("row", (1, 1, 3, 66), (300, 1, 1, 66), legacy, **pixel),
        conv("window", (2, 9, 10, 6), (40, 3, 3, 6), legacy, strides=(1, 2)),
        conv("tiles", (2, 20, 21, 16), (16, 3, 3, 16), narrow),
        conv("strip", (2, 20, 21, 16), (16, 3, 3, 16), narrow, dilations=(2, 2)),
        conv("groups", (2, 9, 10, 6), (12, 3, 3, 3), narrow, group=2),
        conv("wide", (2, 9, 10, 5), (19, 3, 3, 5), (I16, DType.I8, I16)),
        conv("deep", (2, 9, 10, 37), (37, 3, 3, 1), narrow, group=37),
        conv("deep_wide", (2, 9, 10, 21), (21, 3, 3, 1), (I16, DType.I8, I16), group=21),
        graph("mean", "AveragePool", [(I8, (2, 9, 10, 20))], {**POOL, "count_pad": False}, U8),
        graph("greatest", "MaxPool", [(I8, (2, 9, 10, 70))], POOL, I8),
        graph("heads", "MatMul", [(I8, (3, 37, 11)), (I8, (3, 11, 21))], {}, storage(DType.I8, 0.3, 2)),
    ]
    rng = np.random.default_rng(0)
    factors = [rng.integers(-9, 9, shape).astype(np.int8) for shape in ((37, 19), (19, 70))]
    return [*graphs, case("integers", "MatMulInteger", factors, constants=(1,))]


def test_stored_integers_do_not_depend_on_the_workers(tmp_path: Path) -> None:
    graphs = build_quantized_graphs()
    alone, together, counts = run_both(graphs, tmp_path)
    assert counts == STORED[LEVEL.name]
    for name, array in alone.items():
        np.testing.assert_array_equal(together[name], array, err_msg=name)


def run_both(graphs: list[Graph], folder: Path) -> tuple[dict[str, Array], dict[str, Array], list[int]]:
    """The outputs by GRAPH/NAME on one worker and on several, and the numbers of tasks of the latter."""
    merged = merge("all", graphs)
    # Otherwise the work of these small graphs would not be worth another worker.
    model = load_library(generate_library([BEST], [merged]), folder, ("-DMACE_GRAIN_NS=1",))["all"]
    inputs = {name: np.abs(array) for name, array in random_inputs(merged).items()}
    together, counts = shuffled(model, inputs)
    return model.run(inputs), together, counts


def test_small_calls_are_not_shared(tmp_path: Path) -> None:
    """A matrix product of 10,000 multiply-adds takes less time than handing a part of it over."""
    factors: list[Array] = [np.ones((9, 33), np.float32), np.ones((33, 33), np.float32)]
    small = case("small", "MatMul", factors, constants=(1,))
    factors = [np.ones((333, 333), np.float32), np.ones((333, 99), np.float32)]
    large = case("large", "MatMul", factors, constants=(1,))
    models = compile_graphs(BEST, [small, large], tmp_path)
    _, few = shuffled(models["small"], random_inputs(small))
    _, many = shuffled(models["large"], random_inputs(large))
    assert (few, many) == ([], [2 * WORKERS])
