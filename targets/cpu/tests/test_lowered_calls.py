"""Which kernels a node becomes, with all arguments, working memory and packed constants.

`test_lowered_calls.txt` has a node in each line without indent: the op, its operands, its attributes, and `>`
with how its result is stored; `by` states its numerics. An operand is TYPE[SHAPE], `=` before a constant,
`*SCALE+ZERO` behind what is quantized, `-` for none. Indented below stand the calls for x86-64, then the constants
that the lowering made, or the refusal. `python targets/cpu/tests/test_lowered_calls.py` writes the indented lines anew: read every
line of the difference before you commit it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mace_core.graph_builder import Builder
from mace_core.ir import Array, DType, Graph, Quant, Storage
from mace_core.numerics import Numerics
from mace_core.ops import core_ops
from mace_core.program import Call, Program
from mace_core.testing.samples import samples
from mace_target_cpu import Cpu

FILE = Path(__file__).with_suffix(".txt")
OPERAND = re.compile(r"(=?)([biuf]\w+)\[([\d,]*)\](?:\*([\d.e-]+)([+-]\d+))?")
STORED = re.compile(r"([iu]\d+)\*([\d.e-]+)([+-]\d+)")
WINDOW = {"strides": 1, "pads_before": 0, "pads_after": 0, "dilations": 1, "output_padding": 0}
WINDOWED = ("Conv", "ConvTranspose", "MaxPool", "AveragePool", "LpPool", "MaxPoolIndices", "Im2Col", "Col2Im")
TYPES = tuple(DType)


def read_graph(line: str) -> Graph:
    """The graph of one node that a line describes."""
    line, _, rule = line.partition(" by ")
    head, _, stored = line.partition(" > ")
    words, _, rest = head.partition(" {")
    op, *operands = words.split()
    new = Builder("line")
    names = [_add_operand(new, i, text) for i, text in enumerate(operands)]
    attrs: dict[str, Any] = json.loads("{" + rest) if rest else {}
    outputs = int(attrs.pop("outputs", 1))
    if op in (*WINDOWED, "DeformIm2Col"):
        rank = len(new.shape(names[0])) - 2
        keys = [key for key in WINDOW if key != "output_padding" or op == "ConvTranspose"]
        attrs = {**{key: (WINDOW[key],) * rank for key in keys}, **attrs}
    attrs = {key: tuple(value) if isinstance(value, list) else value for key, value in attrs.items()}
    storage = _read_storage(stored) if stored else None
    results = new.add(
        op, names, attrs, outputs=[new.reserve_output(f"y{i}", storage) for i in range(outputs)]
    )
    return replace(new.finish(results), numerics=Numerics(rule or "single-rounding"))


def _read_storage(text: str) -> Storage:
    match = STORED.fullmatch(text)
    assert match, text
    return Storage(DType(match[1]), Quant.of(float(match[2]), int(match[3])))


def _add_operand(new: Builder, number: int, text: str) -> str:
    if text == "-":
        return ""
    match = OPERAND.fullmatch(text)
    assert match, text
    constant, kind, dims, scale, zero = match.groups()
    dtype, shape = DType(kind), tuple(int(d) for d in dims.split(",") if d)
    quant = Quant.of(float(scale), int(zero)) if scale else None
    if constant:
        return new.weight(f"w{number}", _fill(shape, dtype), quant)
    return new.input(f"x{number}", dtype, shape, quant)


def _fill(shape: tuple[int, ...], dtype: DType) -> Array:
    """Numbers that differ, the same on every machine: multiples of 1/8 above zero, or small integers in ascending order."""
    count = int(np.prod(shape, dtype=np.int64))
    if dtype.is_float:
        return ((np.arange(count) * 37 % 101 + 1) / 8).reshape(shape).astype(dtype.numpy)
    return (np.arange(count) % 97).reshape(shape).astype(dtype.numpy)


def describe(graph: Graph) -> Iterator[str]:
    """The lines that stand below a node."""
    refusal = Cpu().refuses(graph.nodes[0], graph)
    if refusal:
        yield f"refused, {refusal.code}: {refusal}"
        return
    program = Cpu().lower(graph, "x86_64")
    yield from (_describe_call(call) for call in program.calls)
    yield from _describe_constants(program, graph)
    yield from (f"{name} is {of}" for name, of in program.aliases.items())


def _describe_call(call: Call) -> str:
    marks = [f"scratch={call.scratch}"] if call.scratch else []
    marks += ["inplace"] if call.inplace else []
    marks += [f"at {','.join(call.levels)}"] if call.levels else []
    args = [f"{name}={_text(value)}" for name, value in call.args.items()]
    numbers = {n: v for n, v in call.kernel.params.items() if isinstance(v, bool | int | float)}
    params = [f"{name}:{value}" for name, value in numbers.items()]
    tensors = f"{' '.join(call.reads)} -> {' '.join(call.writes)}"
    return " ".join([f"{call.kernel.name}({tensors})", *params, *args, *marks])


def _text(value: object) -> str:
    if isinstance(value, tuple | list):
        return ",".join(map(_text, value))
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _describe_constants(program: Program, graph: Graph) -> Iterator[str]:
    for name, weight in program.weights.items():
        if name in graph.weights:
            continue
        array = weight.make()
        assert array.nbytes == weight.bytes
        # A sum in which every place counts differently; printed short, as cosines may differ in their last bits.
        places = np.arange(array.size) % 89 + 1.0
        with np.errstate(invalid="ignore"):
            total = float(
                np.dot(np.nan_to_num(array.reshape(-1).astype(np.float64), posinf=9, neginf=-9), places)
            )
        yield f"{name}: {array.dtype}{list(array.shape)} {round(total, 3) + 0:.6g}"


def blocks() -> Iterator[tuple[str, list[str]]]:
    """The nodes of the file, and the lines below each."""
    lines = FILE.read_text(encoding="utf-8").splitlines()
    node = ""
    for indented, group in groupby((line for line in lines if line), lambda line: line.startswith("  ")):
        block = [line.strip() for line in group]
        if indented:
            yield node, block
        else:
            yield from ((line, []) for line in block[:-1])
            node = block[-1]


BLOCKS = list(blocks()) if FILE.exists() else []


def op_of(block: tuple[str, list[str]]) -> str:
    """The op that a block of the table is about."""
    return block[0].removeprefix("kernels of ").split(" ")[0]


BLOCKS_BY_OP = {op: [*group] for op, group in groupby(sorted(BLOCKS, key=op_of), key=op_of)}


@pytest.mark.parametrize("op", BLOCKS_BY_OP)
def test_nodes_become_these_calls(op: str) -> None:
    expected = dict(BLOCKS_BY_OP[op])
    assert {node: describe_node(node) for node in expected} == expected


def describe_node(node: str) -> list[str]:
    """The lines that stand below this one in the table."""
    if node.startswith("kernels of "):
        return describe_types(node.removeprefix("kernels of "))
    return list(describe(read_graph(node)))


def describe_types(op: str) -> list[str]:
    """The kernels of a sample of each type, or the code of its refusal; types alike in one line."""
    by_text: dict[str, list[str]] = {}
    for kind, stored in ((kind, stored) for stored in (False, True) for kind in TYPES):
        for graph in samples(op, () if stored else (kind,), (kind,) if stored else ()):
            (node,) = graph.nodes
            refusal = Cpu().refuses(node, graph)
            calls = () if refusal else Cpu().lower(graph, "x86_64").calls
            text = str(refusal) if refusal else " ".join(dict.fromkeys(call.kernel.name for call in calls))
            by_text.setdefault(text.replace(kind.value, "TYPE"), []).append(f"{kind.value}{'*' * stored}")
    return [f"{' '.join(kinds)}: {text}" for text, kinds in by_text.items()]


def test_every_op_stands_in_the_table() -> None:
    stated = {node.removeprefix("kernels of ") for node, _ in BLOCKS if node.startswith("kernels of ")}
    assert stated == {op for op in core_ops() if describe_types(op)}


def write() -> None:
    """Write the file anew, with what its nodes become now."""
    text = []
    for node, _ in blocks():
        is_op = node.startswith("kernels of ")
        below = describe_types(node.removeprefix("kernels of ")) if is_op else describe(read_graph(node))
        text += [node, *(f"  {line}" for line in below)]
    FILE.write_text("\n".join(text) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write()
