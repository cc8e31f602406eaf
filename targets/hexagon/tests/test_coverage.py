"""What becomes of the operators that MACE gave to a Hexagon DSP stands in docs/hexagon.md, as executed.

The lists are those of MACE 1.1: 25 operators that its converter lowered to hexagon-nn and HTA; 34 for HTP
(tools/python/transform/hexagon_converter.py; mace/runtimes/qnn/op).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

import pytest
from emulated import ABI, require_compiler

from mace_core.graph_builder import Builder
from mace_core.ir import DType, Graph, Quant, Storage
from mace_core.run.compile import program
from mace_core.testing.compiled import generate_library, merge
from mace_core.testing.samples import sample
from mace_target_hexagon.packets import PacketCounter
from mace_target_hexagon.processor import Hvx
from mace_target_hexagon.target import Hexagon

PAGE = Path(__file__).parents[3] / "docs" / "hexagon.md"
NN, HTP = "nn", "HTP"
LISTS: Mapping[str, str] = {
    NN: """
        Activation BatchNorm BatchToSpaceND Concat Conv2D Deconv2D DepthToSpace DepthwiseConv2d Dequantize
        Eltwise ExpandDims FullyConnected InstanceNorm Pad Pooling Quantize Reduce Reshape ResizeBilinear
        ResizeNearestNeighbor Softmax Split StridedSlice SpaceToBatchND SpaceToDepth
    """,
    HTP: """
        Activation ArgMax BatchNorm Cast Concat Conv2D Deconv2D DepthToSpace DepthwiseConv2d DepthwiseDeconv2d
        Dequantize Eltwise ExpandDims FullyConnected Gather InstanceNorm MatMul Moments Pack Stack Pad Pooling
        Quantize Reduce Reshape ResizeBilinear ResizeNearestNeighbor Softmax SpaceToDepth Split Squeeze
        StridedSlice Tile Transpose
    """,
}
OURS: Mapping[str, str] = {
    "Activation": "Relu Clip LeakyRelu PRelu Sigmoid Tanh HardSwish",
    "BatchToSpaceND": "Reshape Transpose Slice",
    "Conv2D": "Conv",
    "Deconv2D": "ConvTranspose",
    "DepthwiseConv2d": "Conv",
    "DepthwiseDeconv2d": "ConvTranspose",
    "Eltwise": "Add Sub Mul Div Minimum Maximum Abs Neg Pow SquaredDistance Equal",
    "ExpandDims": "Reshape",
    "FullyConnected": "MatMul",
    "Moments": "ReduceMean SquaredDistance",
    "Pack": "Reshape Concat",
    "Pooling": "MaxPool AveragePool",
    "Reduce": "ReduceMean ReduceMin ReduceMax ReduceProd ReduceSum",
    "ResizeBilinear": "Resize",
    "ResizeNearestNeighbor": "Resize",
    "SpaceToBatchND": "Pad Reshape Transpose",
    "Squeeze": "Reshape",
    "Stack": "Reshape Concat",
    "StridedSlice": "Slice",
}
"""What frontends make of an operator; the op of its own name where it is not here."""

VECTORS, PLAIN = "HVX", "plain C"
U8 = Storage(DType.U8, Quant.of(0.05, 3))
ROW = re.compile(r"\| (\w+) \| (?:nn|HTP|nn, HTP) \| (.*) \|")


def ops_of(name: str) -> list[str]:
    return OURS.get(name, name).split()


def convert(op: str) -> Graph:
    """Return a graph that makes bytes of floats, or the other way round."""
    builder = Builder(op.lower())
    if op == "Quantize":
        x = builder.input("x", DType.F32, (1, 6, 6, 4))
        return builder.finish(builder.add(op, [x], {}, outputs=[builder.reserve_output("y", U8)]))
    return builder.finish([builder.one(op, [builder.input("x", U8.dtype, (1, 6, 6, 4), U8.quant)], {})])


def samples() -> dict[str, Graph]:
    """Return a small graph of each op over uint8."""
    names = {op for listed in LISTS.values() for name in listed.split() for op in ops_of(name)}
    graphs = {}
    for op in sorted(names):
        is_conversion = op in ("Quantize", "Dequantize")
        graph = convert(op) if is_conversion else sample(op, DType.U8, quantized=True, zero_point=3)
        assert graph is not None, op
        graphs[op] = graph.with_name(op.lower())
    return graphs


def count_vectors(graphs: Mapping[str, Graph], folder: Path) -> dict[str, str]:
    """Return for each op whether it is computed on HVX, as executed: one in eight packets uses it."""
    merged = merge("ops", graphs.values())
    sources = generate_library([Hvx()], [merged], ABI)
    path = program("mace_benchmark", sources, require_compiler(), folder, ("-O1", "-s", "-Wno-error"))
    words = ["qemu-hexagon", str(path), "--rounds=1", "--warmup=0", "--layers=1"]
    counted = PacketCounter().count(words)
    steps = [(after[0] - before[0], after[1] - before[1]) for before, after in pairwise(counted.readings)][
        4::2
    ]
    layers = json.loads(counted.printed)["layers"]
    totals = {op: [0, 0] for op in graphs}
    for layer, step in zip(layers, steps, strict=True):
        (op,) = (op for op, graph in graphs.items() if layer["name"].startswith(f"{graph.name}/"))
        totals[op] = [total + count for total, count in zip(totals[op], step, strict=True)]
    return {op: VECTORS if 8 * vectors >= packets > 0 else PLAIN for op, (packets, vectors) in totals.items()}


def write_table(kinds: Mapping[str, str]) -> str:
    """Return the table of the page."""
    lines = ["| MACE's operator | for | computed by |", "|---|---|---|"]
    for name in sorted({name for listed in LISTS.values() for name in listed.split()}):
        lists = ", ".join(key for key, listed in LISTS.items() if name in listed.split())
        ops = ", ".join(f"{op}: {kinds[op]}" for op in ops_of(name))
        lines.append(f"| {name} | {lists} | {ops} |")
    return "\n".join(lines)


def read_table() -> dict[str, dict[str, str]]:
    """Return what the page says of the ops behind each operator."""
    rows = ROW.findall(PAGE.read_text(encoding="utf-8"))
    return {name: dict(cell.split(": ") for cell in cells.split(", ")) for name, cells in rows}


def test_the_lists_have_as_many_operators_as_mace_had() -> None:
    assert [len({*listed.split()}) for listed in LISTS.values()] == [25, 34]


def test_the_page_has_a_row_for_each() -> None:
    names = {name for listed in LISTS.values() for name in listed.split()}
    table = read_table()
    assert {name: list(ops) for name, ops in table.items()} == {name: ops_of(name) for name in names}
    assert {kind for ops in table.values() for kind in ops.values()} == {VECTORS, PLAIN}


def test_the_dsp_takes_all_of_them() -> None:
    """So that none of them falls back to the CPU for what it is."""
    for graph in samples().values():
        for node in graph.nodes:
            assert Hexagon().refuses(node, graph) is None, str(node)


@pytest.mark.parametrize(
    ("op", "dtype", "code"), [("Quantize", DType.F32, "unsupported-op"), ("Clip", DType.I32, "dtype")]
)
def test_what_is_refused_has_the_code_that_the_page_names(op: str, dtype: DType, code: str) -> None:
    graph = sample(op, dtype)
    assert graph is not None
    codes = [refusal.code for node in graph.nodes if (refusal := Hexagon().refuses(node, graph))]
    assert codes == [code]
    assert f"`{code}`" in PAGE.read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.emulator
def test_vectors_compute_what_the_page_says(tmp_path: Path) -> None:
    """The page may say less than is true, since kernels come faster than pages, and no more."""
    kinds = count_vectors(samples(), tmp_path)
    claims = {op for ops in read_table().values() for op, kind in ops.items() if kind == VECTORS}
    missing = sorted(op for op in claims if kinds[op] != VECTORS)
    assert missing == [], f"write into {PAGE.name}:\n{write_table(kinds)}"
