"""Branches, loops of known length, and operators that do nothing when a trained model runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from mace_core.importer import RefusedError, SkippedError
from mace_frontend_onnx.importer import Result
from mace_frontend_onnx.node import OnnxNode
from mace_frontend_onnx.ops import Handler
from mace_frontend_onnx.subgraphs import inline_graph

MAX_ITERATIONS = 4096
"""How many iterations of a loop are unrolled at most; every one adds its nodes to the C code."""


def _identity(node: OnnxNode) -> Sequence[Result]:
    return [node.scope.get(node.proto.input[0])]


def _dropout(node: OnnxNode) -> Sequence[Result]:
    """Return the input; and where the mask is read, one that keeps everything."""
    # Dropout: before operator set 12 a model is always in test mode; since then input 2 says, false by
    # default. A ratio of 0 drops nothing in training mode either.
    is_training = node.opset >= 12 and node.has(2) and bool(node.constant(2, "training mode").reshape(()))
    if is_training and (not node.has(1) or node.constant(1, "ratio").reshape(()) != 0):
        raise RefusedError("it works in training mode; export the model for inference")
    x = node.input(0)
    if not node.is_output_read(1):
        return [x, ""]
    return [x, node.builder.weight(node.output_name(1), np.ones(node.shape(0), bool))]


def _if(node: OnnxNode) -> Sequence[Result]:
    condition = node.array(0)
    if condition is not None:
        branch = "then_branch" if bool(condition.reshape(())) else "else_branch"
        node.importer.taken_branches[id(node.proto)] = branch
        return inline_graph(node, node.attr(branch), {})
    # Both are translated before a result is looked at, so that the faults of both are reported.
    tags = ("/then", "/else")
    branches = [inline_graph(node, node.attr(f"{tag[1:]}_branch"), {}, tag) for tag in tags]
    tensors = []
    for tag, results in zip(tags, branches, strict=True):
        tensors.append([_as_tensor(node, result, tag) for result in results])
    return [_select(node, pair) for pair in zip(*tensors, strict=True)]


def _as_tensor(node: OnnxNode, result: Result, tag: str) -> str:
    """Return a result of a branch or an iteration as a tensor of the graph."""
    if result is None:
        raise SkippedError
    if isinstance(result, str):
        return result
    return node.add_constant(node.importer.file.array(result), tag=tag.strip("/"))


def _select(node: OnnxNode, pair: tuple[str, str]) -> str:
    """Return one of two tensors of one shape by the condition; both are computed."""
    shapes = [node.builder.shape(name) for name in pair]
    problem = f"its branches give shapes {shapes[0]} and {shapes[1]}; they must be the same"
    node.refuse_unless(shapes[0] == shapes[1], problem)
    # Computing both is right because no operator has an effect besides its result; the generated code runs
    # every node of the graph.
    return node.emit("Where", [node.input(0), *pair])


def _loop(node: OnnxNode) -> Sequence[Result]:
    """Unroll a loop whose number of iterations and condition are known."""
    # Loop: without a trip count and without a condition it runs forever.
    node.refuse_unless(node.has(0) or node.has(1), "it never ends")
    iterations = node.ints(0, "number of iterations")[0] if node.has(0) else MAX_ITERATIONS
    node.refuse_unless(
        iterations <= MAX_ITERATIONS,
        f"it has {iterations} iterations; more than {MAX_ITERATIONS} are not unrolled",
    )
    is_running = not node.has(1) or bool(node.constant(1, "condition").reshape(()))
    body = node.attr("body")
    carried: list[Result] = [node.scope.get(name) for name in node.proto.input[2:]]
    names = [value.name for value in body.input]
    always = node.add_constant(np.asarray(True), tag="going")
    scans: list[list[str]] = [[] for _ in body.output[1 + len(carried) :]]
    for iteration in range(iterations):
        if not is_running:
            break
        tag = f"/{iteration}"
        number = node.add_constant(np.asarray(iteration, np.int64), tag=f"turn{tag}")
        inputs = dict(zip(names, [number, always, *carried], strict=True))
        condition, *results = inline_graph(node, body, inputs, tag)
        is_running = _is_true(node, _as_tensor(node, condition, tag))
        states = len(carried)
        carried = results[:states]
        for scan, result in zip(scans, results[states:], strict=True):
            scan.append(_as_tensor(node, result, tag))
    problem = f"it goes on after {MAX_ITERATIONS} iterations; more are not unrolled"
    node.refuse_unless(node.has(0) or not is_running, problem)
    return [*carried, *(_stack(node, scan, 0) for scan in scans)]


def _is_true(node: OnnxNode, condition: str) -> bool:
    value = node.builder.constant(condition)
    if value is None:
        problem = "whether it goes on is computed at run time"
        raise RefusedError(f"{problem}; export the model with a fixed number of iterations")
    return bool(value.reshape(()))


def _stack(node: OnnxNode, parts: Sequence[str], axis: int) -> str:
    """Return tensors of one shape stacked along a new axis."""
    node.refuse_unless(len(parts) > 0, "it has no iteration, so that the shape of its results is unknown")
    rows = []
    for number, part in enumerate(parts):
        shape = list(node.builder.shape(part))
        shape.insert(axis, 1)
        rows.append(node.emit("Reshape", [part], {"shape": tuple(shape)}, tag=f"row/{number}"))
    return node.emit("Concat", rows, {"axis": axis}, tag="rows") if len(rows) > 1 else rows[0]


def _scan(node: OnnxNode) -> Sequence[Result]:
    """Unroll the body for every element of the scanned axes."""
    # Scan of operator set 8 has a batch axis and lengths per sequence; none of today's exporters writes it.
    problem = "Scan before operator set 9"
    node.refuse_unless(node.opset >= 9, f"{problem}; convert the model with onnx.version_converter")
    body, count = node.attr("body"), node.attr("num_scan_inputs")
    states = node.input_count - count
    axes = [
        node.axis(axis, len(node.shape(states + i)))
        for i, axis in enumerate(node.attr("scan_input_axes") or (0,) * count)
    ]
    is_reversed = node.attr("scan_input_directions") or (0,) * count
    lengths = {node.shape(states + i)[axis] for i, axis in enumerate(axes)}
    node.refuse_unless(len(lengths) == 1, f"it scans axes of lengths {sorted(lengths)}")
    (iterations,) = lengths
    node.refuse_unless(
        0 < iterations <= MAX_ITERATIONS,
        f"it has {iterations} iterations; 1 to {MAX_ITERATIONS} are unrolled",
    )
    carried: list[Result] = [node.scope.get(name) for name in node.proto.input[:states]]
    scans: list[list[str]] = [[] for _ in body.output[states:]]
    names = [value.name for value in body.input]
    for iteration in range(iterations):
        rows: list[Result] = []
        for i, axis in enumerate(axes):
            position = iterations - 1 - iteration if is_reversed[i] else iteration
            rows.append(_row(node, states + i, axis, position))
        tag = f"/{iteration}"
        results = inline_graph(node, body, dict(zip(names, [*carried, *rows], strict=True)), tag)
        carried = list(results[:states])
        for scan, result in zip(scans, results[states:], strict=True):
            scan.append(_as_tensor(node, result, tag))
    return [*carried, *_stack_scans(node, scans)]


def _stack_scans(node: OnnxNode, scans: Sequence[list[str]]) -> list[str]:
    """Return the scanned outputs of a Scan, each stacked along its axis in its direction."""
    axes = node.attr("scan_output_axes") or (0,) * len(scans)
    directions = node.attr("scan_output_directions") or (0,) * len(scans)
    outputs = []
    for scan, axis, is_reversed in zip(scans, axes, directions, strict=True):
        rank = len(node.builder.shape(scan[0])) + 1
        outputs.append(_stack(node, scan[::-1] if is_reversed else scan, node.axis(axis, rank)))
    return outputs


def _row(node: OnnxNode, index: int, axis: int, position: int) -> str:
    """Return one element of input `index` along an axis, without the axis."""
    shape = node.shape(index)
    cut = {
        "starts": tuple(position if i == axis else 0 for i in range(len(shape))),
        "sizes": tuple(1 if i == axis else n for i, n in enumerate(shape)),
        "steps": (1,) * len(shape),
    }
    tag = f"{index}/{position}"
    row = node.emit("Slice", [node.input(index)], cut, tag=f"cut/{tag}")
    return node.emit("Reshape", [row], {"shape": shape[:axis] + shape[axis + 1 :]}, tag=f"row/{tag}")


HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {"Dropout": _dropout, "Identity": _identity, "If": _if, "Loop": _loop, "Scan": _scan}
)
