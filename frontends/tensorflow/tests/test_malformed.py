"""Damaged models: each ends in one error or in a valid graph."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensorflow_graphs import FLOAT, GRAPHS, INT32, add_constant, graph_of, saved, written

from mace_core.testing.malformed import Damaged, check_damaged, message_mutations, mutations
from mace_frontend_tensorflow.messages import SavedModel

HUGE = 1 << 62


def frozen(what: str, graph: Any) -> Damaged:
    return Damaged(what, {"m.pb": graph if isinstance(graph, bytes) else graph.SerializeToString()})


def folder_of(what: str, files: dict[str, bytes], **other: bytes) -> Damaged:
    """A SavedModel; other: files in place of its own, by the beginning of their names."""
    result: dict[str, bytes | None] = {"variables": None}
    for name, data in files.items():
        key = next((k for k in other if Path(name).name.startswith(k)), None)
        result[name] = other[key] if key else data
    return Damaged(what, result, ("saved_model.pb",))


def random_damage(graphs: list[Any], files: dict[str, bytes]) -> Iterator[Damaged]:
    for i, graph in enumerate(graphs):
        yield from (frozen(f"bytes {i}", data) for data in mutations(graph.SerializeToString(), i, 30))
        yield from (frozen(f"fields {i}", message) for message in message_mutations(graph, i, 50))
    whole = SavedModel.FromString(files["saved_model.pb"])
    index, data = (next(d for n, d in files.items() if part in n) for part in ("index", ".data"))
    yield from (folder_of("saved bytes", files, saved=d) for d in mutations(files["saved_model.pb"], 7, 60))
    yield from (
        folder_of("saved fields", files, saved=m.SerializeToString())
        for m in message_mutations(whole, 7, 100)
    )
    yield from (folder_of("index", files, **{"variables.index": d}) for d in mutations(index, 8, 120))
    yield from (folder_of("data", files, **{"variables.data": d}) for d in mutations(data, 9, 20))


def big(*values: int) -> Any:
    return np.array(values, np.int64)


BY_FAULT = {
    "a cycle": graph_of(("a", "Add", "x", "b"), ("b", "Relu", "a"), ("y", "Relu", "b")),
    "a node that reads itself": graph_of(("y", "Add", "x", "y")),
    "a cycle of loops": graph_of(
        ("e", "Enter", "n"), ("m", "Merge", "e", "n"), ("n", "NextIteration", "m"), ("y", "Exit", "m")
    ),
    "a loop without a body": graph_of(("e", "Enter", "x"), ("m", "Merge", "e"), ("y", "Exit", "m")),
    "nodes of one name": graph_of(("y", "Relu", "x"), ("y", "Tanh", "x")),
    "a node without a name": graph_of(("", "Relu", "x"), ("y", "Relu", "")),
    "a huge reshape": graph_of(("s", "Const", big(HUGE, HUGE)), ("y", "Reshape", "x", "s")),
    "a huge broadcast": graph_of(("s", "Const", big(HUGE, 2, 3)), ("y", "BroadcastTo", "x", "s")),
    "a huge tile": graph_of(("s", "Const", big(HUGE, HUGE)), ("y", "Tile", "x", "s")),
    "a huge fill": graph_of(
        ("s", "Const", big(1 << 40, 1 << 20)),
        ("v", "Const", np.float32(1)),
        ("a", "Fill", "s", "v"),
        ("y", "Relu", "a"),
    ),
    "a fill of 8 GB": graph_of(
        ("s", "Const", big(1 << 31)),
        ("v", "Const", np.float32(1)),
        ("a", "Fill", "s", "v"),
        ("y", "Exp", "a"),
    ),
    "a fill below 0": graph_of(
        ("s", "Const", big(-4)), ("v", "Const", np.float32(1)), ("y", "Fill", "s", "v")
    ),
    "a constant of 8 GB": graph_of(
        ("w", "Const", np.float32(1), (1 << 31,)),
        ("a", "Exp", "w"),
        ("y", "Reverse", "a", "z"),
        ("z", "Const", big(0)),
    ),
    "a constant of a huge shape": graph_of(("w", "Const", np.float32(1), (HUGE, 4)), ("y", "Neg", "w")),
    "a constant of a shape below 0": graph_of(("w", "Const", np.float32(1), (-3,)), ("y", "Neg", "w")),
    "a huge pad": graph_of(("s", "Const", big(HUGE, 0, 0, HUGE).reshape(2, 2)), ("y", "Pad", "x", "s")),
    "a huge range": graph_of(
        ("a", "Const", big(0).reshape(())),
        ("b", "Const", big(HUGE).reshape(())),
        ("c", "Const", big(1).reshape(())),
        ("y", "Range", "a", "b", "c"),
    ),
    "a range of nothing": graph_of(
        ("a", "Const", np.float32(0)),
        ("b", "Const", np.float32(np.nan)),
        ("c", "Const", np.float32(1)),
        ("y", "Range", "a", "b", "c"),
    ),
    "a huge one-hot": graph_of(
        ("i", "Const", big(1, 2)),
        ("d", "Const", big(HUGE)),
        ("v", "Const", np.float32(1)),
        ("y", "OneHot", "i", "d", "v", "v"),
    ),
    "a huge roll": graph_of(
        ("s", "Const", big(HUGE, HUGE)),
        ("t", "Tile", "x", "s"),
        ("i", "Const", big(1)),
        ("y", "Roll", "t", "i", "i"),
    ),
    "a huge list": graph_of(
        ("s", "Const", big(2)),
        ("n", "Const", big(HUGE)),
        ("a", "TensorListReserve", "s", "n"),
        ("y", "TensorListStack", "a", "s"),
    ),
    "an item of nothing": graph_of(
        ("s", "Const", big(2)), ("a", "EmptyTensorList", "s", "s"), ("y", "TensorListPopBack", "a", "s")
    ),
    "a huge resize": graph_of(
        ("s", "Const", big(HUGE, HUGE)),
        ("d", "Const", big(0)),
        ("a", "ExpandDims", "x", "d"),
        ("b", "ExpandDims", "a", "d"),
        ("y", "ResizeNearestNeighbor", "b", "s"),
    ),
    "areas of many": graph_of(
        ("s", "Const", big(1 << 30, 1 << 30)),
        ("d", "Const", big(0)),
        ("a", "ExpandDims", "x", "d"),
        ("b", "ExpandDims", "a", "d"),
        ("y", "ResizeArea", "b", "s"),
    ),
    "a huge diagonal": graph_of(
        ("s", "Const", big(HUGE, 1)), ("t", "Tile", "x", "s"), ("y", "MatrixDiag", "t")
    ),
    "segments of many": graph_of(("i", "Const", big(0, HUGE)), ("y", "SegmentSum", "x", "i")),
    "a stitch of many": graph_of(("i", "Const", big(0, HUGE)), ("y", "DynamicStitch", "i", "x")),
    "a huge scatter": graph_of(
        ("i", "Const", big(0, 1).reshape(2, 1)),
        ("s", "Const", big(HUGE, 3)),
        ("y", "ScatterNd", "i", "x", "s"),
    ),
    "a divided by 0": graph_of(
        ("a", "Const", big(1)),
        ("b", "Const", big(0)),
        ("y", "FloorDiv", "a", "b"),
        ("z", "FloorMod", "a", "b"),
    ),
    "operators without operands": graph_of(
        *((f"n{i}", op) for i, op in enumerate(("Relu", "ConcatV2", "Pack", "AddN", "Switch", "Merge", "If")))
    ),
    "operators with a node's name": graph_of(
        *((f"n{i}", op, "x") for i, op in enumerate(("Reshape", "While", "Case", "Split", "Conv2D")))
    ),
    "an output that is none": graph_of(
        ("y", "Relu", "x:99999999"), ("z", "Relu", "x:-1"), ("w", "Relu", "x:a:b:c")
    ),
    "a type that is none": graph_of(("y", "Cast", "x")),
    "a loop of another kind": graph_of(("y", "loop of TensorFlow 1", "x")),
}


def functions(depth: int, calls: int, *, turns: bool = False) -> Any:
    """Functions that call the next one so often; the last one calls the first, or is a Relu."""
    graph = graph_of(("y", "f0", "x"))
    for level in range(depth):
        function = graph.library.function.add()
        function.signature.name = f"f{level}"
        function.signature.input_arg.add(name="v", type=FLOAT)
        function.signature.output_arg.add(name="w", type=FLOAT)
        callee = f"f{level + 1}" if level < depth - 1 else "f0" if turns else "Relu"
        last = "v"
        for call in range(calls):
            function.node_def.add(name=f"c{call}", op=callee, input=[last])
            last = f"c{call}:w:0"
        function.ret["w"] = last
    return graph


def long_loops(levels: int, turns: int) -> Any:
    """Loops in loops, each of so many turns."""
    graph = graph_of(("zero", "Const", np.int32(0)), ("y", "While", "zero", "x"))
    _calls(graph.node[-1], 0)
    for level in range(levels):
        for part in ("cond", "body"):
            function = graph.library.function.add()
            function.signature.name = f"{part}{level}"
            for name, kind in (("i", INT32), ("v", FLOAT)):
                function.signature.input_arg.add(name=name, type=kind)
            if part == "cond":
                function.signature.output_arg.add(name="more", type=10)
                add_constant(function.node_def.add(name="end", op="Const"), np.int32(turns))
                function.node_def.add(name="less", op="Less", input=["i", "end:output:0"])
                function.ret["more"] = "less:z:0"
                continue
            for name, kind in (("j", INT32), ("w", FLOAT)):
                function.signature.output_arg.add(name=name, type=kind)
            add_constant(function.node_def.add(name="one", op="Const"), np.int32(1))
            add_constant(function.node_def.add(name="none", op="Const"), np.int32(0))
            function.node_def.add(name="next", op="AddV2", input=["i", "one:output:0"])
            inner = function.node_def.add(
                name="inner", op="Sin" if level == levels - 1 else "While", input=["v"]
            )
            if level < levels - 1:
                inner.input.insert(0, "none:output:0")
                _calls(inner, level + 1)
            function.ret["j"], function.ret["w"] = (
                "next:z:0",
                "inner:y:0" if level == levels - 1 else "inner:output:1",
            )
    return graph


def _calls(node: Any, level: int) -> None:
    node.attr["cond"].func.name, node.attr["body"].func.name = f"cond{level}", f"body{level}"


def nested_messages(depth: int) -> bytes:
    """An attribute of functions within functions."""
    data = b""
    for _ in range(depth):
        data = b"\x52" + _size(data) + data  # attr_value.func
        # Its attr.
        data = b"\x12" + _size(b"\x0a\x01k\x12" + _size(data) + data) + b"\x0a\x01k\x12" + _size(data) + data
    return b"\x0a" + _size(b"\x0a\x01a\x12\x04Relu" + data) + b"\x0a\x01a\x12\x04Relu" + data


def _size(data: bytes) -> bytes:
    size, made = len(data), bytearray()
    while size > 0x7F:
        made.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes((*made, size))


def known_damage(files: dict[str, bytes]) -> Iterator[Damaged]:
    yield from (frozen(what, graph) for what, graph in BY_FAULT.items())
    yield from (frozen(f"functions {depth} deep", functions(depth, 1)) for depth in (3, 40, 500))
    yield from (frozen(f"functions that call {n} times", functions(40, n)) for n in (2, 5))
    yield from (frozen(f"{n} functions that call each other", functions(n, 1, turns=True)) for n in (1, 2, 7))
    yield from (
        frozen(f"loops {levels} deep, {turns} turns", long_loops(levels, turns))
        for levels, turns in ((1, 4096), (3, 1000), (1, 2**31 - 1), (30, 2))
    )
    yield from (frozen(f"messages {depth} deep", nested_messages(depth)) for depth in (20, 3000))
    many = graph_of(("n0", "Relu", "x"), *((f"n{i + 1}", "Relu", f"n{i}") for i in range(3000)))
    yield frozen("many nodes", many)
    yield frozen("nothing", b"")
    yield Damaged("a folder without a model", {"m.pb": None})
    yield Damaged("a model without variables", {"saved_model.pb": files["saved_model.pb"]})
    yield from (
        folder_of("variables of another length", files, **{"variables.data": bytes(n)}) for n in (0, 1, 10**6)
    )
    yield folder_of("an index that is none", files, **{"variables.index": bytes(48)})


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.timeout(300)
def test_damaged_models(tmp_path: Path, tf: Any) -> None:
    graphs, files = [written(tf, *given) for given in GRAPHS], saved(tf, tmp_path / "saved")
    sound = [*(frozen("sound", graph) for graph in graphs), folder_of("sound", files)]
    damaged = [*sound, *random_damage(graphs, files), *known_damage(files)]
    assert len(damaged) >= 700
    (tmp_path / "damaged").mkdir()
    result = check_damaged("tensorflow", damaged, tmp_path / "damaged")
    assert result["graph"] >= len(sound)
    assert result["error"] > 300
