"""Three odd shapes for every op that the target takes: sizes that fill no vector, no tile and no group.

    python targets/opencl/tests/odd_shapes.py [f16]

computes them on the device that OpenCL finds, on random numbers and on the ends of floats, and compares them
with the references. With f16, operands and results are stored in half precision, and products are computed in
it as well, with floats in the place of halves for simulators and processors that have none. `test_oclgrind`
does so in the simulator, which compiles in seconds what takes PoCL minutes.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from half_device import replace_by_floats
from half_errors import insert_copies, list_errors, reverse_results, round_floats
from odd_cases import CASES, GROUPS, RECURRENT, OpCase, build_case, build_recurrent, list_variants, window
from opencl_device import load_on_device

from mace_core.ir import Array, Graph, Shape
from mace_core.ops import core_ops
from mace_core.run.reference import execute
from mace_core.testing.compiled import assert_close, merge, random_inputs
from mace_core.testing.samples import IMAGE, INDICES, SAMPLES, extreme_inputs
from mace_target_opencl.options import OpenclOptions
from mace_target_opencl.target import Opencl

HALF_LIMIT = 2e-3
"""The error of a result that is stored in half precision, of the range: four roundings of 2^-11."""

IMAGES: Sequence[tuple[int, int, int, int]] = ((2, 7, 5, 3), (1, 3, 9, 8), (3, 4, 6, 5))
"""In the place of the image of the samples: channels that are no vectors, and some that are two."""

UNARY: Sequence[Shape] = ((3, 5, 7), (13,), (2, 9, 4))
BINARY: Sequence[tuple[Shape, Shape]] = (((3, 5, 7), (5, 1)), ((1, 9), (4, 1)), ((5, 12), (12,)))
WORDS = ("And", "Or", "Xor", "Not")
INTEGERS = ("BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot", "BitShift")
SLIDE = window(strides=[2, 1], before=[1, 0], after=[0, 1], dilations=[1, 2])
TURN = window(strides=[1, 2], before=[0, 1], after=[1, 0], dilations=[2, 1])
PLACES = np.array([[1, 0], [2, -1], [0, 1]])
BYTES = np.arange(-17, 18, dtype=np.int8).reshape(5, 7)
ROIS = np.array([[0, 0, 5, 4], [1.5, 0.5, 3, 9], [-2, 1, 40, 2]], np.float32)


def resize(x: Shape, sizes: Shape, mode: str) -> OpCase:
    scales = tuple(to / size for size, to in zip(x, sizes, strict=True))
    return OpCase("Resize", [x], {"sizes": sizes, "scales": scales, "mode": mode})


SPECIAL = (
    OpCase("Conv", [(2, 7, 5, 3), (5, 3, 2, 3)], SLIDE),
    OpCase("Conv", [(1, 6, 9, 12), (20, 2, 3, 6)], {**TURN, "group": 2}),
    OpCase("ConvTranspose", [(2, 3, 5, 3), (5, 3, 2, 3)], {**SLIDE, "output_padding": (0, 0)}),
    OpCase("ConvTranspose", [(1, 4, 3, 8), (12, 2, 3, 8)], {**TURN, "output_padding": (0, 1)}),
    # Work-items share the results of this one, and of the deep product of integers below.
    OpCase("ConvTranspose", [(1, 3, 4, 68), (5, 2, 3, 68)], {**SLIDE, "output_padding": (0, 0)}),
    OpCase("DepthToSpace", [(2, 3, 5, 12)], {"block": 2}),
    OpCase("DepthToSpace", [(1, 7, 1, 20)], {"block": 2}),
    OpCase("DepthToSpace", [(3, 2, 2, 9)], {"block": 3}),
    OpCase("SpaceToDepth", [(2, 6, 2, 3)], {"block": 2}),
    OpCase("SpaceToDepth", [(1, 4, 10, 5)], {"block": 2}),
    OpCase("SpaceToDepth", [(3, 9, 3, 2)], {"block": 3}),
    OpCase("GroupNorm", [(2, 3, 5, 6), (6,), (6,)], {"groups": 3}),
    OpCase("GroupNorm", [(1, 7, 4, 10), (10,), (10,)], {"groups": 2}),
    OpCase("GroupNorm", [(3, 2, 2, 5), (5,), (5,)], {"groups": 5}),
    OpCase("Gather", [(5, 7), np.array([3, 0, -2])], {}, (1,)),
    OpCase("Gather", [(3, 4, 9), np.array([[8, 2], [1, 5]])], {"axis": 2}, (1,)),
    OpCase("GatherElements", [(5, 3), np.array([[0, 2, 1]])], {"axis": 0}, (1,)),
    OpCase("GatherElements", [(2, 3, 5), np.array([[[0], [-1], [2]]] * 2)], {"axis": 2}, (1,)),
    OpCase("GatherND", [(3, 3, 5), PLACES], {}, (1,)),
    OpCase("GatherND", [(3, 7), np.array([[2], [0]])], {}, (1,)),
    OpCase("MatMul", [(5, 7), (7, 3)], {}, (1,)),
    OpCase("MatMul", [(2, 3, 9), (9, 12)], {}, (1,)),
    OpCase("MatMul", [(3, 1, 5, 4), (2, 4, 9)], {}),
    OpCase("DecodeBoxes", [(3, 5, 4), (5, 4)], {}),
    OpCase("DecodeBoxes", [(1, 9, 4), (9, 4)], {"variances": (0.5, 0.5, 2.0, 2.0)}),
    OpCase("OneHot", [np.array([[0, 1, 4], [2, 3, -1]]), (2,)], {"depth": 5, "axis": 0}, (0,)),
    OpCase("LRN", [(2, 7, 5, 3)], {"size": 3}),
    OpCase("LRN", [(1, 3, 9)], {"size": 5, "beta": 0.5}),
    OpCase("Reshape", [(2, 7, 3)], {"shape": (6, 7)}),
    OpCase("Reshape", [(5, 3)], {"shape": (15,)}),
    OpCase("Reshape", [(9,)], {"shape": (1, 3, 3, 1)}),
    resize((2, 7, 5, 3), (2, 3, 11, 3), "nearest"),
    resize((1, 3, 5, 8), (1, 7, 4, 8), "linear"),
    resize((1, 5, 3, 2), (1, 1, 9, 2), "cubic"),
    OpCase("ReverseSequence", [(7, 2, 3), np.array([7, 3])], {}, (1,)),
    OpCase("RoiMaxPool", [(2, 5, 7, 4), ROIS, np.array([1, 0, 1])], {"size": (2, 3)}, (1, 2)),
    OpCase("RoiMaxPool", [(1, 9, 3, 5), ROIS, np.array([0, 0, 0])], {"size": (1, 4), "scale": 0.25}, (1, 2)),
    OpCase("SquaredDistance", [(3, 1), (9, 1)], {}),
    OpCase("SquaredDistance", [(1, 12), (5, 12)], {}),
    OpCase("Slice", [(9, 5, 3)], {"starts": (7, 1, 0), "sizes": (3, 2, 3), "steps": (-3, 2, 1)}),
    OpCase("Split", [(5, 7)], {"axis": 1, "sizes": (2, 4, 1)}, (), 3),
    OpCase("Split", [(3, 2, 3)], {"axis": 0, "sizes": (1, 2)}, (), 2),
    OpCase("Split", [(9,)], {"axis": 0, "sizes": (5, 4)}, (), 2),
    OpCase("Tile", [(5, 1, 3)], {"repeats": (1, 3, 2)}),
    OpCase("Tile", [(7,)], {"repeats": (3,)}),
    OpCase("Expand", [(5,)], {"shape": (3, 5)}),
    OpCase("Expand", [(2, 1, 3, 1)], {"shape": (2, 5, 3, 4)}),
    OpCase("TopK", [(3, 9, 5)], {"k": 2, "axis": 1}, (), 2),
    OpCase("TopK", [(7,)], {"k": 7, "axis": 0}, (), 2),
    OpCase("OneHot", [np.array([3, 1, 0]), (2,)], {"depth": 4}),
    OpCase("MatMulInteger", [np.ones((3, 5), np.uint8), BYTES], {}, (1,)),
    OpCase("MatMulInteger", [np.ones((2, 3, 5), np.int8), BYTES, np.int8(2), np.int8(-1)], {}, (1, 2, 3)),
    OpCase("MatMulInteger", [np.ones((7, 5), np.uint8), BYTES, np.uint8(9)], {}, (1, 2)),
    OpCase("MatMulInteger", [np.ones((2, 70), np.uint8), np.resize(BYTES, (70, 7)), np.uint8(9)], {}, (1, 2)),
    OpCase("Transpose", [(5, 9)], {"perm": (1, 0)}),
    OpCase("Transpose", [(3, 7, 5)], {"perm": (0, 2, 1)}),
    OpCase("Trilu", [(5, 3)], {}),
    OpCase("Concat", [(5, 3, 2), (5, 1, 2), (5, 4, 2)], {"axis": 1}),
    OpCase("Concat", [(3,), (4,)], {"axis": 0}),
)
"""Cases whose attributes follow from the shapes."""

RECURRENT_CASES = (("RNN", {"direction": "reverse"}, True),)


def list_odd_cases() -> Iterator[OpCase]:
    """Yield cases of every op, those of `odd_cases` and what they lack."""
    yield from (*CASES, *list_variants(), *SPECIAL)
    listed = {case.op for case in SPECIAL}
    # Conversions of quantized tensors are tried by `test_quantized`.
    listed |= {"Quantize", "Dequantize"}
    for name, op in core_ops().items():
        if name in SAMPLES and name not in listed:
            yield from _fit_sample(name)
        elif name not in SAMPLES and name not in listed:
            yield from _list_elements(name, len(op.inputs))


def _fit_sample(name: str) -> Iterator[OpCase]:
    """Yield the op's sample with other images; nothing for a sample without one."""
    shapes, attrs = SAMPLES[name]
    if shapes[0] != IMAGE or name in UNFIT or any(shape not in (IMAGE, (IMAGE[-1],)) for shape in shapes):
        return
    for image in IMAGES:
        operands = [image if shape == IMAGE else image[-1:] for shape in shapes]
        kinds = [_describe(name, number, shape) for number, shape in enumerate(operands)]
        yield OpCase(name, kinds, attrs, outputs=OUTPUTS.get(name, 1))


UNFIT = ("Reshape", "Split", "Im2Col", "DeformIm2Col", "MaxPoolIndices", "DepthToSpace", "SpaceToDepth")
OUTPUTS: Mapping[str, int] = {"TopK": 2}


def _describe(name: str, number: int, shape: Shape) -> Array | Shape:
    if number in INDICES.get(name, ()):
        return np.zeros(shape, np.int64)
    return np.zeros(shape, bool) if (name, number) == ("Where", 0) else shape


def _list_elements(name: str, inputs: int) -> Iterator[OpCase]:
    """Yield the cases of an op on each element, or along an axis: without attributes that it must have."""
    kinds: Mapping[str, type] = {**dict.fromkeys(WORDS, np.bool_), **dict.fromkeys(INTEGERS, np.uint32)}
    kind = kinds.get(name, np.float32)
    for shapes in BINARY if inputs == 2 else [(shape,) for shape in UNARY]:
        yield OpCase(name, [np.zeros(shape, kind) for shape in shapes], {})


def build_odd_shapes() -> Graph:
    """Return a graph with every case that the target takes."""
    graphs = [build_case(number, entry) for number, entry in enumerate(list_odd_cases())]
    recurrent = enumerate((*RECURRENT, *RECURRENT_CASES))
    graphs += [
        build_recurrent(number, (op, {**attrs}, is_full)) for number, (op, attrs, is_full) in recurrent
    ]
    target = Opencl()
    taken = [g for g in graphs if all(target.refuses(node, g) is None for node in g.nodes)]
    return merge("shapes", taken)


INEXACT = (
    *(
        "BatchNorm",
        "Conv",
        "ConvTranspose",
        "CumProd",
        "CumSum",
        "DFT",
        "DecodeBoxes",
        "GridSample",
        "GroupNorm",
    ),
    *("InstanceNorm", "LRN", "LayerNorm", "LpNorm", "LpPool", "MatMul", "MeanVarianceNorm", "RMSNorm"),
    *(
        "ReduceL2",
        "ReduceLogSum",
        "ReduceProd",
        "ReduceSum",
        "ReduceSumSquare",
        "SquaredDistance",
        "RoiAlign",
    ),
    *("AveragePool", "ReduceL1", "ReduceMean", "Resize"),
)
"""Ops that add and multiply in another order or precision than the references: 1e38 overflows elsewhere."""


def choose_inputs(graph: Graph, has_extremes: bool) -> dict[str, Array]:
    """Return random inputs, or NaN, infinities, denormals, zeros of both signs and 1e38 in place of floats."""
    inputs = random_inputs(graph)
    if has_extremes:
        extremes = extreme_inputs(graph)
        # Integers stay places and shifts that the references take.
        inputs = {name: extremes[name] if a.dtype.kind == "f" else a for name, a in inputs.items()}
    return inputs


def build_products() -> Graph:
    """Return a graph with every case of a product, one that is computed by tiles, and depthwise windows."""
    cases = [entry for entry in list_odd_cases() if entry.op in ("Conv", "ConvTranspose", "MatMul")]
    cases.append(OpCase("Conv", [(1, 16, 34, 32), (36, 1, 2, 32)], GROUPS))
    cases.append(OpCase("Conv", [(1, 7, 5, 12), (12, 3, 3, 1)], {**GROUPS, "group": 12}))
    graphs = [build_case(number, entry) for number, entry in enumerate(cases)]
    return merge("products", graphs)


def compare_in_half(graph: Graph, options: OpenclOptions) -> None:
    """Compute a graph with operands and results in half precision; print how many results of ops are right."""
    ops = {node.op.name for node in graph.nodes}
    graph = reverse_results(insert_copies(graph))
    inputs = round_floats(random_inputs(graph))
    with tempfile.TemporaryDirectory() as folder:
        outputs = load_on_device([graph], Path(folder), Opencl(options))[graph.name].run(inputs)
    errors = list_errors(graph, outputs, inputs)
    assert max(errors.values()) > 1e-5, "half precision was not in use"
    bad = {name: error for name, error in errors.items() if not error < HALF_LIMIT}
    assert not bad, bad
    sys.stdout.write(f"{len(errors)} results of {len(ops)} ops\n")


def compare() -> None:
    """Compute all cases on random numbers and on the ends of floats; print how many results of ops are right."""
    graph = build_odd_shapes()
    ops = {name: node.op.name for node in graph.nodes for name in node.outputs}
    with tempfile.TemporaryDirectory() as folder:
        model = load_on_device([graph], Path(folder))["shapes"]
        for has_extremes in (False, True):
            inputs = choose_inputs(graph, has_extremes)
            outputs = model.run(inputs)
            with np.errstate(all="ignore"):
                expected = execute(graph, inputs)
            names = [name for name in graph.outputs if not has_extremes or ops[name] not in INEXACT]
            for name in names:
                assert_close(outputs[name], expected[name], name, 1e-4)
            sys.stdout.write(f"{len(names)} results of {len({ops[name] for name in names})} ops\n")


if __name__ == "__main__":
    if sys.argv[1:] == ["f16"]:
        compare_in_half(build_odd_shapes(), OpenclOptions(storage="f16"))
        replace_by_floats()
        compare_in_half(build_products(), OpenclOptions(storage="f16", arithmetic="f16"))
    else:
        compare()
