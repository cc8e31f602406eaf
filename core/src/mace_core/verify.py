"""The IR's executable specification: what a graph must be for every later stage to trust it."""

from __future__ import annotations

from collections.abc import Iterator

from mace_core import quantization
from mace_core.attributes import values_of
from mace_core.errors import MaceError
from mace_core.ir import DType, Graph, Node
from mace_core.ops.op import OpError

MOST_ALONG_AN_AXIS = 1 << 31
"""C describes dimensions as 32-bit integers."""


def verify(graph: Graph) -> Graph:
    """Return the graph if it is well formed; otherwise raise one MaceError that tells every fault."""
    faults = [*_port_faults(graph), *_tensor_faults(graph), *_node_faults(graph), *_state_faults(graph)]
    if faults:
        raise MaceError.of(f"{graph.name}: {fault}" for fault in faults)
    return graph


def _port_faults(graph: Graph) -> Iterator[str]:
    """Yield a fault for each name that two inputs have.

    A tensor may be several outputs, each of which gets its elements.
    """
    for name in dict.fromkeys(graph.inputs):
        if graph.inputs.count(name) > 1:
            yield f"input {name!r} is there {graph.inputs.count(name)} times; each needs a name of its own"


def _tensor_faults(graph: Graph) -> Iterator[str]:
    for name, tensor in graph.tensors.items():
        if name != tensor.name or not name:
            yield f"tensor {tensor.name!r} is filed under {name!r}"
        if any(not isinstance(d, int) or d < 0 for d in tensor.shape):
            yield f"tensor {name!r} has shape {tensor.shape}; every dimension must be a known number"
        elif any(d >= MOST_ALONG_AN_AXIS for d in tensor.shape):
            yield f"tensor {name!r} has shape {tensor.shape}; dimensions must be below {MOST_ALONG_AN_AXIS}"
        elif wrong := quantization.fault(tensor):
            yield f"tensor {name!r}: {wrong}"
    for name, array in graph.weights.items():
        described = graph.tensors.get(name)
        if described is None or (described.dtype, described.shape) != (DType.of(array), array.shape):
            yield f"weight {name!r} is {array.dtype}{list(array.shape)}, described as {described}"
        elif array.flags.writeable:
            yield f"weight {name!r} is writable"


def _node_faults(graph: Graph) -> Iterator[str]:
    known = {*graph.inputs, *graph.weights}
    names: set[str] = set()
    for node in graph.nodes:
        place = f"node {node.name!r} ({node.op.name})"
        if node.name in names:
            yield f"{place}: its name is used twice"
        names.add(node.name)
        missing = [i for i in node.inputs if i and (i not in known or i not in graph.tensors)]
        yield from (f"{place}: reads {name!r}, which nothing before it computes" for name in missing)
        yield from (
            f"{place}: writes {name!r}, which exists already" for name in node.outputs if name in known
        )
        known.update(node.outputs)
        if not missing:
            yield from (f"{place}: {fault}" for fault in _inference_faults(node, graph))
    yield from (f"output {name!r} is never computed" for name in graph.outputs if name not in known)


def _inference_faults(node: Node, graph: Graph) -> Iterator[str]:
    try:
        node.op.check_arity(len(node.inputs), len(node.outputs))
        node.op.check_present(node.inputs)
        _check_attributes(node)
        inferred = node.op.infer([t and t.real for t in graph.inputs_of(node)], node.attrs)
    except OpError as error:
        yield str(error)
        return
    for name, (dtype, shape) in zip(node.outputs, inferred, strict=False):
        described = graph.tensors.get(name)
        if described is None or (described.real.dtype, described.shape) != (dtype, tuple(shape)):
            yield f"output {described or name} must be {dtype.value}{list(shape)}"


def _check_attributes(node: Node) -> None:
    """Raise OpError if the attributes are another op's, or hold values of other types than their fields."""
    if type(node.attrs) is not node.op.attrs:
        raise OpError(f"its attributes are {type(node.attrs).__name__}, expected {node.op.attrs.__name__}")
    checked = node.op.complete(node.attrs)
    # Compared as dictionaries at last, for which a value is equal to itself: NaN is an attribute like others.
    if checked != node.attrs and values_of(checked) != values_of(node.attrs):
        raise OpError("its attributes hold lists or numpy's numbers in place of Python's")


def _state_faults(graph: Graph) -> Iterator[str]:
    """Yield what keeps a state from being handed from one run to the next."""
    for side, names in (
        ("input", [s.input for s in graph.states]),
        ("output", [s.output for s in graph.states]),
    ):
        ports = graph.inputs if side == "input" else graph.outputs
        yield from (f"state {name!r} is no {side} of the graph" for name in names if name not in ports)
        repeated = sorted({name for name in names if names.count(name) > 1 or ports.count(name) > 1})
        yield from (f"{side} {name!r} is a state and something else" for name in repeated)
    for state in graph.states:
        before, after = graph.tensors.get(state.input), graph.tensors.get(state.output)
        if before is None or after is None:
            continue
        if (before.dtype, before.shape, before.quant) != (after.dtype, after.shape, after.quant):
            yield f"state {before} is {after} after the run; type, shape and quantization must stay the same"
        if (before.dtype, before.shape) != (DType.of(state.start), state.start.shape):
            yield f"state {before} begins with {state.start.dtype}{list(state.start.shape)}"
