"""A model's inputs and outputs as the deployment file wants them: order of axes, element type, name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from mace_core.deployment import Model, Port
from mace_core.errors import MaceError
from mace_core.graph_builder import Builder
from mace_core.ir import Array, DType, Graph, Shape, State, Tensor, frozen
from mace_core.ops.op import Perm
from mace_core.rewrite import copy_nodes

IMAGE_ORDERS = ("NHWC", "NCHW")
COLORS = 3
TO_CHANNELS_FIRST: Perm = (0, 3, 1, 2)
TO_CHANNELS_LAST: Perm = (0, 2, 3, 1)


def in_framework_layout(model: Model, order: str) -> Model:
    """Return the model with the shapes of its inputs in the framework's order of axes."""
    return replace(model, inputs=tuple(replace(p, shape=_source_shape(p, order)) for p in model.inputs))


def apply_io_spec(graph: Graph, model: Model, order: str) -> Graph:
    """Return the graph with the inputs and outputs that the deployment file states, converting at the edges.

    States keep the framework's type. Their axes come in the order that the file states for the input, start
    values included.

    order: of the framework's own axes.
    MaceError with every output whose stated shape is not that of the model.
    """
    inputs, outputs = _ports_with_states(graph, model)
    _check_output_shapes(graph, outputs, order)
    if all(_agrees(p, graph.tensors.get(p.name), order) for p in (*inputs.values(), *outputs.values())):
        return graph
    builder = Builder(graph.name)
    # What is added at the edges must not take the name of what comes behind.
    builder.reserved = frozenset(graph.tensors)
    builder.storages = {n: t.storage for n, t in graph.tensors.items() if t.storage}
    builder.states = [_state_as_stated(state, inputs, outputs, order) for state in graph.states]
    entries = {name: _entry(builder, graph.tensors[name], inputs.get(name), order) for name in graph.inputs}
    renamed = copy_nodes(graph, builder, entries)
    results = [_exit(builder, renamed.get(name, name), outputs.get(name), order) for name in graph.outputs]
    return builder.finish(results, [_public(outputs.get(n), n) for n in graph.outputs])


def _check_output_shapes(graph: Graph, outputs: Mapping[str, Port], order: str) -> None:
    faults = []
    for name in graph.port_outputs:
        port, shape = outputs.get(name), graph.tensors[name].shape
        if port is None or port.shape is None:
            continue
        perm = _perm(port, len(shape), order)
        shape_stated = tuple(shape[i] for i in perm) if perm else shape
        if shape_stated != port.shape:
            problem = f"output_shapes states {list(port.shape)}, the model gives {list(shape_stated)}"
            faults.append(f"output {name!r}: {problem}; correct output_shapes, or leave it out")
    if faults:
        raise MaceError.of(faults)


def _ports_with_states(graph: Graph, model: Model) -> tuple[dict[str, Port], dict[str, Port]]:
    """Return the stated inputs and outputs by name.

    Of a state, which no application sees, only the order of axes and the names.
    """
    inputs = {p.name: p for p in model.inputs}
    outputs = {p.name: p for p in model.outputs}
    for state in graph.states:
        before = inputs.get(state.input, Port(state.input))
        after = outputs.get(state.output, Port(state.output))
        inputs[state.input] = Port(state.input, order=before.order, alias=before.alias)
        outputs[state.output] = Port(state.output, order=before.order, alias=after.alias)
    return inputs, outputs


def _state_as_stated(
    state: State, inputs: Mapping[str, Port], outputs: Mapping[str, Port], order: str
) -> State:
    before, after = inputs[state.input], outputs[state.output]
    start = frozen(turn_axes(state.start, before, order))
    return State(_public(before, state.input), _public(after, state.output), start)


def turn_axes(array: Array, port: Port | None, order: str) -> Array:
    """Transpose an array of the framework to the order of axes that the port states."""
    perm = _perm(port, array.ndim, order)
    return array if perm is None else np.transpose(array, perm)


def entry_graph(graph: Graph, model: Model, order: str) -> Graph:
    """Return a graph from the application's inputs to the framework's: the first part of `apply_io_spec`.

    Inputs and outputs are in the order of `graph.port_inputs`; their names may differ from the public ones
    and from the framework's.
    """
    ports = {p.name: p for p in model.inputs}
    builder = Builder(graph.name)
    return builder.finish(
        [_entry(builder, graph.tensors[name], ports.get(name), order) for name in graph.port_inputs]
    )


def exit_graph(graph: Graph, model: Model, order: str) -> Graph:
    """Return a graph from the framework's outputs to the application's: the last part of `apply_io_spec`.

    Inputs and outputs are in the order of `graph.port_outputs`.
    """
    ports = {p.name: p for p in model.outputs}
    builder = Builder(graph.name)
    names = []
    for i, tensor in enumerate(graph.tensors[name] for name in graph.port_outputs):
        names.append(builder.input(f"{i}:{tensor.name}", tensor.dtype, tensor.shape, tensor.quant))
    return builder.finish(
        [
            _exit(builder, name, ports.get(output), order)
            for name, output in zip(names, graph.port_outputs, strict=True)
        ]
    )


def _agrees(port: Port, tensor: Tensor | None, order: str) -> bool:
    if tensor is None:
        return True
    same = _perm(port, len(tensor.shape), order) is None and port.dtype in (None, tensor.dtype)
    return same and not port.alias and not port.preparation


def _perm(port: Port | None, rank: int, order: str) -> Perm | None:
    """Return the permutation from the framework's order to the stated one; None if they are the same."""
    if port is None or rank != len(TO_CHANNELS_LAST) or port.order not in IMAGE_ORDERS or port.order == order:
        return None
    return TO_CHANNELS_LAST if port.order == "NHWC" else TO_CHANNELS_FIRST


def _source_shape(port: Port, order: str) -> Shape | None:
    perm = _perm(port, len(port.shape or ()), order)
    return port.shape if port.shape is None or perm is None else tuple(port.shape[i] for i in _inverse(perm))


def _inverse(perm: Sequence[int]) -> Perm:
    return tuple(sorted(range(len(perm)), key=perm.__getitem__))


def _public(port: Port | None, name: str) -> str:
    return (port.alias if port else None) or name


def _entry(builder: Builder, tensor: Tensor, port: Port | None, order: str) -> str:
    perm = _perm(port, len(tensor.shape), order)
    prepared = port is not None and bool(port.preparation)
    dtype = (port.dtype if port else None) or (tensor.real.dtype if prepared else tensor.dtype)
    shape = tuple(tensor.shape[i] for i in perm) if perm else tensor.shape
    # A model of integers that is prepared gets numbers, not its own stored integers.
    quant = tensor.quant if dtype is tensor.dtype and not prepared else None
    name = builder.input(_public(port, tensor.name), dtype, shape, quant)
    if port is not None and prepared:
        name = prepare(builder, name, port, _channel_axis(port, len(shape), order))
    if perm:
        name = builder.one("Transpose", [name], {"perm": _inverse(perm)})
    return (
        name
        if builder.tensors[name].storage == tensor.storage and builder.tensors[name].dtype is tensor.dtype
        else _convert(builder, name, tensor)
    )


def prepare(builder: Builder, name: str, port: Port, axis: int) -> str:
    """Add what is computed from an input before the model reads it, and return the result, of float32.

    (x - mean) * scale or / std, then the channels reversed. The mean is subtracted from the picture itself,
    so that the border that a padded convolution adds is zero after it, as the framework has it; the reversal
    comes last, where the filters can take it in. Raises MaceError for as many numbers as there are no
    channels.
    """
    preparation = port.preparation
    if builder.tensors[name].dtype is not DType.F32:
        name = builder.one(
            "Cast", [name], {"to": DType.F32.value}, outputs=[builder.fresh(f"{port.name}.cast")]
        )
    for op, key, values in (
        ("Sub", "mean", preparation.mean),
        ("Mul", "scale", preparation.scale),
        ("Div", "std", preparation.std),
    ):
        if values:
            constant = builder.weight(
                f"{port.name}.{key}", _by_channel(builder.shape(name), axis, port, (key, values))
            )
            name = builder.one(op, [name, constant], outputs=[builder.fresh(f"{port.name}.by_{key}")])
    if preparation.reverse:
        channels = _channels(builder.shape(name), axis, port, "color")
        indices = builder.weight(f"{port.name}.channels", np.arange(channels - 1, -1, -1, dtype=np.int32))
        name = builder.one(
            "Gather", [name, indices], {"axis": axis}, outputs=[builder.fresh(f"{port.name}.reversed")]
        )
    return name


def _by_channel(shape: Shape, axis: int, port: Port, stated: tuple[str, tuple[float, ...]]) -> Array:
    """Shape the numbers so that they broadcast along the channels of an input, in the application's order."""
    key, values = stated
    if len(values) == 1:
        return np.asarray(values, np.float32).reshape((1,) * len(shape))
    channels = _channels(shape, axis, port, key)
    if len(values) != channels:
        problem = f"input_{key} has {len(values)} numbers for {channels} channels"
        raise MaceError(
            f"input {port.name!r}",
            problem,
            "write one number, or one for each channel; input_data_formats says where channels are",
        )
    row = values[::-1] if port.preparation.reverse else values
    return np.asarray(row, np.float32).reshape([channels if i == axis else 1 for i in range(len(shape))])


def _channels(shape: Shape, axis: int, port: Port, key: str) -> int:
    if not shape:
        raise MaceError(
            f"input {port.name!r}",
            f"input_{key} is for channels, and its shape is []",
            f"remove input_{key}",
        )
    if key == "color" and shape[axis] != COLORS:
        problem = f"input_color reverses {COLORS} channels, it has {shape[axis]}"
        raise MaceError(
            f"input {port.name!r}",
            problem,
            "remove input_color, or say with input_data_formats where channels are",
        )
    return shape[axis]


def _channel_axis(port: Port, rank: int, order: str) -> int:
    """Return the channel axis in the application's axis order; the last axis of what is not an image."""
    image = port.order if port.order in IMAGE_ORDERS else order
    return 1 if rank == len(TO_CHANNELS_LAST) and image == "NCHW" else rank - 1


def _exit(builder: Builder, name: str, port: Port | None, order: str) -> str:
    tensor = builder.tensors[name]
    if perm := _perm(port, len(tensor.shape), order):
        name = builder.one("Transpose", [name], {"perm": perm})
    if port and port.dtype not in (None, tensor.dtype):
        assert port.dtype is not None
        name = _convert(builder, name, Tensor(name, port.dtype, tensor.shape))
    return name


def _convert(builder: Builder, name: str, like: Tensor) -> str:
    """A tensor in the type of another: real numbers stay what they are."""
    if like.storage:
        if not builder.tensors[name].quant and builder.tensors[name].dtype is not DType.F32:
            name = builder.one("Cast", [name], {"to": DType.F32.value})
        return builder.add(
            "Quantize", [name], outputs=[builder.reserve_output(f"{like.name}.stored", like.storage)]
        )[0]
    if builder.tensors[name].quant:
        name = builder.one("Dequantize", [name])
    return (
        name
        if builder.tensors[name].dtype is like.dtype
        else builder.one("Cast", [name], {"to": like.dtype.value})
    )
