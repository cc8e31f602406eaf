"""Converts between a model's tensors and a program's words.

The conversion is plain data in the report of a build, so that a firmware can be run without the model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mace_core.attributes import values_of
from mace_core.errors import MaceError
from mace_core.ir import Array, Graph, Node
from mace_core.ops import core_ops
from mace_frontend_ai8x.network import INPUT, Layer, LayerPlacement, Network, Operation
from mace_target_max78000.device import Chip
from mace_target_max78000.encode.data_memory import list_results, make_input_blocks
from mace_target_max78000.encode.hardware_layers import HardwareLayer
from mace_target_max78000.legalize.boundary import TAIL_FUNCTIONS, AxisFold, InputFold, NetworkInput, cut_tail
from mace_target_max78000.legalize.pipeline import LegalizedGraph
from mace_target_max78000.legalize.tensors import VIEW_OPS
from mace_target_max78000.options import Options

Functions = tuple[tuple[str, Mapping[str, Any]], ...]
"""What is computed of results, in order, with the attributes."""


@dataclass(frozen=True, eq=False)
class ModelOutput:
    """One of the model's outputs.

    order: the positions of its elements among all results, one block after another.  functions: computed
    then, with their attributes.
    """

    order: Array
    functions: Functions = ()

    def of(self, reals: Array) -> Array:
        """Compute the output from all results as real numbers."""
        value = reals[self.order]
        for name, attrs in self.functions:
            op = core_ops()[name]
            (value,) = op.compute([value], op.complete(attrs))
        return value.astype(np.float32)


@dataclass(frozen=True, eq=False)
class TensorBinding:
    """How the first layer reads its input, and how the model's outputs are made of what cnn_unload gives.

    channels: of one operand.  dim: rows and columns.
    blocks: of each block of results channels, positions, bits of a value, value of the last bit, and how many
    channels come together.
    entry: how the network's input is made of the model's; None where it is the same.  outputs: none where
    they are the blocks themselves.
    """

    channels: int
    dim: tuple[int, int]
    operands: int
    processors: int
    chw: bool
    fifo: bool
    blocks: tuple[tuple[int, int, int, float, tuple[int, ...]], ...]
    entry: NetworkInput | None = None
    outputs: tuple[ModelOutput, ...] = ()

    @classmethod
    def of(cls, network: Network, options: Options, units: Sequence[float]) -> TensorBinding:
        """Bind a network's input and results.  units: what the last bit of each block's values stands for."""
        layer, place = network.layers[0], network.places[0]
        pairs = zip(list_results(network), units, strict=False)
        blocks = tuple(
            (block.channels, block.pixels, block.width, unit, block.groups) for block, unit in pairs
        )
        return cls(
            layer.channels,
            layer.dim,
            layer.operands,
            place.processors,
            place.chw,
            options.fifo or options.fast_fifo,
            blocks,
        )

    def with_ends(self, formed: LegalizedGraph) -> TensorBinding:
        """Return the binding with the inputs and outputs of the graph that the network was legalized from."""
        return replace(self, entry=formed.network_input, outputs=tuple(_outputs(formed)))

    def words(self, sample: Array, device: Chip) -> dict[int, Sequence[int]]:
        """Return the words of each of the program's input arrays, by its number.

        Sample: one input of the model.
        """
        data = self.entry.apply(sample) if self.entry else sample.astype(np.int64)
        first = Layer(
            "input",
            Operation.PASSTHROUGH,
            (INPUT,),
            self.channels,
            self.dim,
            self.channels,
            operands=self.operands,
        )
        unit = HardwareLayer(first, LayerPlacement(self.processors, self.processors, chw=self.chw), 0)
        blocks = make_input_blocks(
            unit, data.reshape(self.channels * self.operands, -1), Options(fifo=self.fifo), device
        )
        return {block.processor if block.fifo is None else block.fifo: block.words for block in blocks}

    def arrays(self, words: Sequence[int]) -> list[Array]:
        """Return the model's outputs, of the words that cnn_unload gave."""
        blocks = self.blocks_of(words)
        return self.results(blocks) if self.outputs else blocks

    def blocks_of(self, words: Sequence[int]) -> list[Array]:
        """Return the blocks of results that cnn_unload gave, each [channels, positions]."""
        return list(self._blocks(np.asarray(words, "<u4")))

    def results(self, blocks: Sequence[Array]) -> list[Array]:
        """Return the outputs of the model that was formed, of the blocks of results, each [channels, ...]."""
        reals = np.concatenate(
            [b.ravel() * unit for b, (_, _, _, unit, _) in zip(blocks, self.blocks, strict=True)]
        )
        return [output.of(reals) for output in self.outputs]

    def _blocks(self, data: Array) -> Iterator[Array]:
        for channels, positions, bits, _, groups in self.blocks:
            count = -(-channels * positions * bits // 32)
            values, data = data[:count], data[count:]
            flat = values.view("<i4" if bits == 32 else "i1")[: channels * positions]
            parts = np.split(flat, np.cumsum(groups)[:-1] * positions)
            yield np.concatenate([part.reshape(positions, -1).T for part in parts])

    def to_report(self) -> dict[str, Any]:
        """Return the binding as a report holds it."""
        entry = self.entry and {
            "name": self.entry.name,
            "power": self.entry.power,
            "order": self.entry.order.tolist(),
            "fold": self.entry.fold and self.entry.fold.axes,
        }
        outputs = [
            {
                "order": o.order.tolist(),
                "functions": [[name, dict(attrs)] for name, attrs in o.functions],
            }
            for o in self.outputs
        ]
        plain = {
            name: getattr(self, name)
            for name in ("channels", "dim", "operands", "processors", "chw", "fifo", "blocks")
        }
        return {**plain, "entry": entry, "outputs": outputs}

    @classmethod
    def read(cls, described: Mapping[str, Any]) -> TensorBinding:
        """Read the binding from a report."""
        entry = described["entry"]
        network_input = entry and NetworkInput(
            entry["name"], entry["power"], np.asarray(entry["order"]), _fold(entry["fold"])
        )
        outputs = tuple(
            ModelOutput(np.asarray(o["order"]), tuple((name, attrs) for name, attrs in o["functions"]))
            for o in described["outputs"]
        )
        plain = {
            **described,
            "dim": tuple(described["dim"]),
            "blocks": tuple(map(tuple, described["blocks"])),
        }
        return cls(**{**plain, "entry": network_input, "outputs": outputs})


def _fold(axes: Sequence[Any] | None) -> InputFold | None:
    return (
        InputFold(tuple(AxisFold(stride, tuple(moves), size) for stride, moves, size in axes))
        if axes
        else None
    )


def _outputs(formed: LegalizedGraph) -> Iterator[ModelOutput]:
    """Yield the outputs of a graph: its last nodes are executed on positions in place of values."""
    graph = formed.graph
    inner, tail = cut_tail(graph)
    positions: dict[str, Array] = {}
    functions: dict[str, Functions] = {}
    starts = _starts(formed)
    for name in inner.outputs:
        location = formed.find(name)
        assert location is not None  # every output of the inner graph was given to a layer
        positions[name] = location[1] + starts[location[0]]
    for node in tail:
        source, result = node.inputs[0], node.outputs[0]
        functions[result] = _functions(
            graph, node, {name: (positions[name], functions.get(name, ())) for name in node.inputs}
        )
        if node.op.name in VIEW_OPS or node.op.name == "Concat":
            (positions[result],) = node.op.compute([positions[i] for i in node.inputs], node.attrs)
        else:
            positions[result] = positions[source]
    for name in graph.outputs:
        yield ModelOutput(positions[name], functions.get(name, ()))


def _functions(graph: Graph, node: Node, sources: Mapping[str, tuple[Array, Functions]]) -> Functions:
    """Return what is computed of a result of the last nodes.

    sources: positions and functions of the node's inputs.

    Functions are computed after everything has been put in order, so their axis must be that of the ordered
    data.
    """
    place = f"layer {node.name!r} ({node.op.name})"
    known = [functions for _, functions in sources.values()]
    if any(functions != known[0] for functions in known):
        done = " and ".join(str([name for name, _ in functions]) for functions in known)
        raise MaceError(
            place,
            f"it joins results of which different functions are computed, {done}",
            "make them outputs of their own",
        )
    if node.op.name in TAIL_FUNCTIONS:
        return *known[0], (
            node.op.name,
            {k: v for k, v in values_of(node.attrs).items() if isinstance(v, int | float | str)},
        )
    if node.op.name not in VIEW_OPS and node.op.name != "Concat":
        return known[0]
    moved = []
    for name, attrs in known[0]:
        axis = (
            _moved_axis(node, [positions for positions, _ in sources.values()], attrs["axis"])
            if "axis" in attrs
            else 0
        )
        if axis is None:
            raise MaceError(
                place,
                f"it rearranges the axis that a {name} before it is computed along",
                f"let the {name} come last",
            )
        moved.append((name, {**attrs, "axis": axis} if "axis" in attrs else attrs))
    return tuple(moved)


def _moved_axis(node: Node, sources: Sequence[Array], axis: int) -> int | None:
    """Return the axis of a node's result that holds what its inputs hold along one of theirs.

    None if there is none.
    """
    sets, count = [], 0
    for positions in sources:  # every set of elements that lie along the axis has a number
        length = positions.shape[axis]
        others = np.delete(positions.shape, axis)
        numbers = count + np.arange(others.prod()).reshape(others)
        sets.append(np.repeat(np.expand_dims(numbers, axis), length, axis))
        count += numbers.size
    (moved,) = node.op.compute(sets, node.attrs)
    for candidate in reversed(range(moved.ndim)):
        if moved.size == count * moved.shape[candidate] and (moved == moved.take([0], candidate)).all():
            return candidate
    return None


def _starts(formed: LegalizedGraph) -> dict[int, int]:
    """Return where each output layer's block begins among all results."""
    starts, total = {}, 0
    for index, layer in enumerate(formed.layers):
        if layer.output:
            starts[index] = total
            total += layer.out_channels * layer.out_dim[0] * layer.out_dim[1]
    return starts
