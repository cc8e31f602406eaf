"""Branches, loops of known length, and operators that do nothing when a trained model runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from mace_core.importer import RefusedError, SkippedError
from mace_frontend_onnx.importer import Held
from mace_frontend_onnx.node import OnnxNode
from mace_frontend_onnx.ops import Handler
from mace_frontend_onnx.subgraphs import inline

TURNS = 4096
"""How often a loop may turn and still be written out."""


def _identity(node: OnnxNode) -> Sequence[Held]:
    return [node.scope.get(node.proto.input[0])]


def _dropout(node: OnnxNode) -> Sequence[Held]:
    """What goes in comes out; the mask, where it is read, keeps everything."""
    training = node.opset >= 12 and node.has(2) and bool(node.constant(2, "training mode").reshape(()))
    if training and (not node.has(1) or node.constant(1, "ratio").reshape(()) != 0):
        raise RefusedError("it works in training mode; export the model for inference")
    first = node.input(0)
    if not node.wants(1):
        return [first, ""]
    return [
        first,
        node.builder.weight(node.output_name(1), np.ones(node.shape(0), bool)),
    ]


def _if(node: OnnxNode) -> Sequence[Held]:
    condition = node.array(0)
    if condition is not None:
        branch = "then_branch" if bool(condition.reshape(())) else "else_branch"
        node.importer.taken[id(node.proto)] = branch
        return inline(node, node.attr(branch), {})
    yes, no = (inline(node, node.attr(f"{tag}_branch"), {}, f"/{tag}") for tag in ("then", "else"))
    sides = [
        [_entered(node, held, f"/{tag}") for held in side] for side, tag in ((yes, "then"), (no, "else"))
    ]
    return [_chosen(node, pair) for pair in zip(*sides, strict=True)]


def _entered(node: OnnxNode, held: Held, tag: str) -> str:
    """What a branch or a turn made, as a tensor of the graph."""
    if held is None:
        raise SkippedError
    return (
        held
        if isinstance(held, str)
        else node.add_constant(node.importer.source.array(held), tag=tag.strip("/"))
    )


def _chosen(node: OnnxNode, pair: tuple[str, str]) -> str:
    """One of two tensors of one shape, both computed: neither has an effect besides its result."""
    shapes = [node.builder.shape(name) for name in pair]
    node.refuse_unless(
        shapes[0] == shapes[1], f"its branches give shapes {shapes[0]} and {shapes[1]}; they must be the same"
    )
    return node.emit("Where", [node.input(0), *pair])


def _loop(node: OnnxNode) -> Sequence[Held]:
    """Write the body out once a turn; the number of turns and whether to go on must be known."""
    node.refuse_unless(node.has(0) or node.has(1), "it never ends")
    turns = node.ints(0, "number of turns")[0] if node.has(0) else TURNS
    node.refuse_unless(turns <= TURNS, f"it turns {turns} times; more than {TURNS} are not written out")
    going = not node.has(1) or bool(node.constant(1, "condition").reshape(()))
    body = node.attr("body")
    carried: list[Held] = [node.scope.get(name) for name in node.proto.input[2:]]
    names = [i.name for i in body.input]
    going_on = node.add_constant(np.asarray(True), tag="going")
    scans: list[list[str]] = [[] for _ in body.output[1 + len(carried) :]]
    for turn in range(turns):
        if not going:
            break
        tag = f"/{turn}"
        given = [node.add_constant(np.asarray(turn, np.int64), tag=f"turn{tag}"), going_on, *carried]
        made = inline(node, body, dict(zip(names, given, strict=True)), tag)
        going = _goes_on(node, _entered(node, made[0], tag))
        carried = list(made[1 : 1 + len(carried)])
        for scan, held in zip(scans, made[1 + len(carried) :], strict=True):
            scan.append(_entered(node, held, tag))
    return [*carried, *(_stacked(node, scan, 0) for scan in scans)]


def _goes_on(node: OnnxNode, condition: str) -> bool:
    value = node.builder.constant(condition)
    if value is None:
        raise RefusedError(
            "whether it goes on is computed at run time; export the model with a fixed number of turns"
        )
    return bool(value.reshape(()))


def _stacked(node: OnnxNode, parts: Sequence[str], axis: int) -> str:
    node.refuse_unless(len(parts) > 0, "it does not turn once, so that the shape of its results is unknown")
    rows = []
    for number, part in enumerate(parts):
        shape = list(node.builder.shape(part))
        shape.insert(axis, 1)
        rows.append(node.emit("Reshape", [part], {"shape": tuple(shape)}, tag=f"row/{number}"))
    return node.emit("Concat", rows, {"axis": axis}, tag="rows") if len(rows) > 1 else rows[0]


def _scan(node: OnnxNode) -> Sequence[Held]:
    """Write the body out for every element of the scanned axes (from operator set 9 on)."""
    node.refuse_unless(
        node.opset >= 9, "Scan before operator set 9; convert the model with onnx.version_converter"
    )
    body, count = node.attr("body"), node.attr("num_scan_inputs")
    states = node.count - count
    results = len(body.output) - states
    axes = [
        node.axis(a, len(node.shape(states + i)))
        for i, a in enumerate(node.attr("scan_input_axes") or (0,) * count)
    ]
    back = node.attr("scan_input_directions") or (0,) * count
    lengths = {node.shape(states + i)[a] for i, a in enumerate(axes)}
    node.refuse_unless(len(lengths) == 1, f"it scans axes of lengths {sorted(lengths)}")
    (turns,) = lengths
    node.refuse_unless(0 < turns <= TURNS, f"it turns {turns} times; 1 to {TURNS} are written out")
    carried: list[Held] = [node.scope.get(name) for name in node.proto.input[:states]]
    scans: list[list[str]] = [[] for _ in range(results)]
    for turn in range(turns):
        rows = [_row(node, states + i, a, turns - 1 - turn if back[i] else turn) for i, a in enumerate(axes)]
        given = dict(zip((i.name for i in body.input), [*carried, *rows], strict=True))
        made = inline(node, body, given, f"/{turn}")
        carried = list(made[:states])
        for scan, held in zip(scans, made[states:], strict=True):
            scan.append(_entered(node, held, f"/{turn}"))
    return [*carried, *_results(node, scans)]


def _results(node: OnnxNode, scans: Sequence[list[str]]) -> list[str]:
    axes = node.attr("scan_output_axes") or (0,) * len(scans)
    back = node.attr("scan_output_directions") or (0,) * len(scans)
    made = []
    for scan, axis, reverse in zip(scans, axes, back, strict=True):
        rank = len(node.builder.shape(scan[0])) + 1
        made.append(_stacked(node, scan[::-1] if reverse else scan, node.axis(axis, rank)))
    return made


def _row(node: OnnxNode, index: int, axis: int, place: int) -> str:
    shape = node.shape(index)
    starts = tuple(place if i == axis else 0 for i in range(len(shape)))
    sizes = tuple(1 if i == axis else n for i, n in enumerate(shape))
    tag = f"{index}/{place}"
    cut = node.emit(
        "Slice",
        [node.input(index)],
        {"starts": starts, "sizes": sizes, "steps": (1,) * len(shape)},
        tag=f"cut/{tag}",
    )
    return node.emit("Reshape", [cut], {"shape": shape[:axis] + shape[axis + 1 :]}, tag=f"row/{tag}")


HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {"Dropout": _dropout, "Identity": _identity, "If": _if, "Loop": _loop, "Scan": _scan}
)
