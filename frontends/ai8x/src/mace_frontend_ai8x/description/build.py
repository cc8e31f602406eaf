"""Builds a network from a description, its parameters and a sample."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from mace_core.deployment.faults import BEHIND, Faults
from mace_core.errors import MaceError
from mace_core.ir import Array
from mace_frontend_ai8x.checkpoint import Checkpoint, Form, LayerParameters
from mace_frontend_ai8x.description.align import align
from mace_frontend_ai8x.description.keys import Description, origin, parse
from mace_frontend_ai8x.description.layer import LayerReader, Shape, line_or_plane
from mace_frontend_ai8x.description.links import Links, link
from mace_frontend_ai8x.description.place import buffers, check_buffers, places, unloads
from mace_frontend_ai8x.network import (
    BUFFER,
    INPUT,
    Layer,
    LayerActivation,
    Network,
    Operation,
    processors_needed,
)
from mace_frontend_ai8x.options import NetworkOptions

SNOOP_VALUES = 32
"""Values of the key `snoop`: the registers of the MAX78002 for conditional execution, in their order."""

Parameters = Checkpoint | Callable[[Sequence[Form]], Checkpoint]
"""Parameters, or a function that reads them once it is known what the layers with weights need."""

AddLimitFaults = Callable[[Network, Collection[int], Faults], None]
"""Adds what a chip cannot compute of a network to the faults of its description.

The indexes are those of layers with faults of their own, which were not read as they are written.
"""


def read_description(
    path: Path,
    parameters: Parameters,
    sample: Array,
    options: NetworkOptions,
    add_limit_faults: AddLimitFaults | None = None,
) -> Network:
    """Read the vendor's network description.

    sample: [channels, rows, columns] or [channels, length] of any number type, -128 ... 127.
    add_limit_faults: adds what a chip cannot compute, so that one message has all faults.
    MaceError with all faults of the file that can be found at once, each with its line, and those of the
    parameters and the sample.
    """
    description, faults = parse(path, options.skip_yaml_layers)
    links = link(description, faults)
    if not description.layers:
        faults.check()
    checkpoint = Checkpoint(())
    try:
        checkpoint = parameters if isinstance(parameters, Checkpoint) else parameters(description.forms())
    except MaceError as error:
        faults.add_error(error)
        faults.check()
    return _Builder(description, links, checkpoint, faults, options).network(sample, add_limit_faults)


@dataclass(frozen=True)
class _Builder:
    description: Description
    links: tuple[Links, ...]
    checkpoint: Checkpoint
    faults: Faults
    options: NetworkOptions
    notes: list[str] = field(default_factory=list)

    def network(self, sample: Array, add_limit_faults: AddLimitFaults | None) -> Network:
        """Return the whole network."""
        values, parameters, last = self._read_inputs(sample)
        layers = self._layers(Shape.of(values), parameters)[: last + 1]
        for number in sorted(self.options.streaming_layers.difference(range(len(layers)))):
            self.faults.add(
                1, f"streaming-layers: there is no layer {number}", f"name layers from 0 to {len(layers) - 1}"
            )
        unread = self._find_unread(len(layers))
        sampled = () if unread else self._follow_conditions(len(layers))
        if not any(layer.output for layer in layers):
            # As in the vendor's tool, the last layer is the result where none is marked.
            last = sampled[-1] if sampled else -1
            layers[last] = replace(layers[last], output=True)
        laid = places(self.description, self.links, layers, self.options)
        if not unread:
            check_buffers(self.description, laid, self.faults)
        network = Network(
            name=self.description.arch,
            layers=tuple(layers),
            places=laid,
            sample=values,
            unloads=unloads(self.description),
            buffers=buffers(self.description),
            snoop=self.description.snoop,
            sampled=sampled,
            notes=(*self.checkpoint.notes, *self.notes),
            origin=origin(self.description),
        )
        if add_limit_faults is not None:
            add_limit_faults(network, unread, self.faults)
        self.faults.check()
        return network

    def _read_inputs(self, sample: Array) -> tuple[Array, Mapping[int, LayerParameters], int]:
        """Return the sample, the parameters by index of their layer, and the index of the last layer.

        MaceError if layers cannot be read without them.
        """
        values, last = np.zeros(0), 0
        try:
            values, last = self._sample(sample), self._last()
        except MaceError as error:
            self.faults.add_error(error)
        complete = self._match_arch() and bool(values.size)
        self._match_snoop()
        weighted = [index for index, layer in enumerate(self.description.layers) if layer.weighted]
        parameters = dict(zip(weighted, self.checkpoint.layers, strict=False))
        if complete:
            complete = self._match_layers(Shape.of(values), weighted)
        if not complete:
            self.faults.check()
        return values, parameters, last

    def _find_unread(self, count: int) -> frozenset[int]:
        """Return the indexes of layers that were not read as they are written, because of their own faults.

        A layer whose output goes to the processors of a faulty layer is one of them.
        """
        layers = self.description.layers
        # Layers need not stand in the order of their sequence numbers: a layer ends where the next line of
        # any layer begins.
        starts = sorted({layer.line for layer in layers} | {BEHIND})
        faulty = set()
        for index, layer in enumerate(layers[:count]):
            end = starts[starts.index(layer.line) + 1]
            written = range(layer.line, max(end, layer.line + 1))
            if any(line in written for line in self.faults.lines):
                faulty.add(index)
        leading = {
            i - 1
            for i in faulty
            if i and not layers[i].processors and layers[i - 1].output_processors is None
        }
        return frozenset(faulty | leading)

    def _layers(self, sample: Shape, parameters: Mapping[int, LayerParameters]) -> list[Layer]:
        layers: list[Layer] = []
        outer = {INPUT: sample} | {
            BUFFER - k: Shape(b.channels, line_or_plane(b.dim))
            for k, b in enumerate(self.description.data_buffer)
        }
        for index, (described, links) in enumerate(zip(self.description.layers, self.links, strict=True)):
            shapes = [
                Shape(layers[i].out_channels, layers[i].out_dim) if i >= 0 else outer[i] for i in links.inputs
            ]
            owner = index
            # A weight_source may itself name another one; the weights are those of the first.
            while self.links[owner].weights != owner:
                owner = self.links[owner].weights
            reader = LayerReader(described, links.inputs, parameters.get(owner), self.faults, self.notes)
            layers.append(self._apply_options(index, reader.layer(shapes)))
        return layers

    def _apply_options(self, index: int, layer: Layer) -> Layer:
        """Return a layer as the options change it: its activation, bias, or width of the last result."""
        without, width = self.options.no_bias, self.options.output_width
        if self.options.ignore_activation:
            layer = replace(layer, activation=LayerActivation.NONE)
        # An empty list stands for all layers.
        if without is not None and (not without or index in without):
            layer = replace(layer, bias=None)
        return replace(layer, wide=width == 32) if width and index == self._last() else layer

    def _follow_conditions(self, count: int) -> tuple[int, ...]:
        """Return the layers that run for the sample; nothing if no condition leaves one out."""
        if all(links.simulated is None for links in self.links[:count]):
            return ()
        executed, index = [0], 0
        while True:
            links = self.links[index]
            following = links.following if links.simulated is None else links.simulated
            index = index + 1 if following is None else following
            # STOP is negative, and a layer behind the last one ends the network too.
            if not 0 <= index < count:
                return tuple(executed)
            executed.append(index)

    def _sample(self, sample: Array) -> Array:
        """Return the sample as int64; MaceError if it has another shape or values than data have."""
        if sample.ndim not in (2, 3) or sample.size == 0 or sample.dtype.kind not in "iufb":
            problem = f"the sample is {sample.dtype} of shape {list(sample.shape)}"
            raise MaceError(
                self.description.path,
                problem,
                "give numbers as [channels, rows, columns] or [channels, length]",
            )
        # The vendor's samples are integers; floats come from users who scale their data themselves.
        rounded = np.rint(sample) if sample.dtype.kind == "f" else sample
        if not (rounded >= -128).all() or not (rounded <= 127).all():
            problem = (
                f"the sample has values from {sample.min()} to {sample.max()}; data are from -128 to 127"
            )
            raise MaceError(
                self.description.path, problem, "scale it as in training: unsigned bytes minus 128"
            )
        if sample.dtype.kind == "f" and not np.array_equal(rounded, sample):
            self.notes.append("the sample's values were rounded to integers")
        return rounded.astype(np.int64)

    def _match_arch(self) -> bool:
        """Return whether the description and the checkpoint are of one model."""
        actual, expected = self.checkpoint.arch, self.description.arch
        line = self.description.lines.get("arch")
        if actual is None or line is None or actual.lower() == expected.lower():
            return True
        self.faults.add(
            line, f"arch: is {expected!r}, the checkpoint holds {actual!r}", "name the files of one model"
        )
        return False

    def _match_snoop(self) -> None:
        values = self.description.snoop
        if values and len(values) != SNOOP_VALUES:
            remedy = f"write {SNOOP_VALUES}: twelve registers of each condition, and eight results"
            self.faults.add(self.description.lines["snoop"], f"snoop: has {len(values)} values", remedy)

    def _match_layers(self, sample: Shape, weighted: Sequence[int]) -> bool:
        """Return whether every layer with weights has some in the checkpoint; note those of no layer."""
        parameters, described = self.checkpoint.layers, self.description.layers
        aligned = align(weighted, parameters, lambda by_index: self._count_misfits(sample, by_index))
        for names, index in aligned.undescribed:
            problem = f"a layer is missing: the checkpoint's {names} has no description"
            remedy = f"describe it before {described[index].title}, or name the checkpoint of this network"
            self.faults.add(described[index].line, problem, remedy)
        # Where keys could not be read, layers may need weights only by mistake: then only faults that shapes
        # show are reported.
        certain = aligned.by_shape or not self.faults
        count = f"the parameters hold those of {len(parameters)} layers, {len(weighted)} need them"
        for index in aligned.unweighted if certain else ():
            problem = f"{described[index].title}: needs weights, which are missing; {count}"
            self.faults.add(
                described[index].line,
                problem,
                "remove the layer, or name the one whose weights it shares as weight_source",
            )
        if aligned.unused and not aligned.undescribed:
            names = ", ".join(layer.name for layer in aligned.unused)
            self.notes.append(
                f"the checkpoint's last layers have no description, and their weights are not used: {names}"
            )
        return not (aligned.undescribed or aligned.unweighted)

    def _count_misfits(self, sample: Shape, parameters: Mapping[int, LayerParameters]) -> int:
        """Return how badly weights fit the layers.

        What contradicts a layer's own keys counts twice; what follows from the layers before it counts once,
        because these may be wrong instead.
        """
        trial = replace(self, faults=Faults(self.description.path), notes=[])
        count = 0
        layers = trial._layers(sample, parameters)
        for index, (described, layer) in enumerate(zip(self.description.layers, layers, strict=True)):
            if layer.weights is None:
                continue
            # A kernel of one position may be meant for a linear layer, but rarely is.
            count += (
                layer.operation is Operation.LINEAR
                and index in parameters
                and parameters[index].weights.ndim > 2
            )
            shape, expected = layer.weights.values.shape, layer.weights_shape
            transposed = layer.operation is Operation.CONV_TRANSPOSE2D
            inputs = shape[0 if transposed else 1] * layer.groups
            count += 2 * (len(shape) != len(expected) or shape[2:] != expected[2:])
            if not layer.flatten:
                count += 2 * (described.processors.bit_count() != processors_needed(inputs))
            count += shape != expected
        return count

    def _last(self) -> int:
        """Return the index of the last layer, which an option may name; MaceError for an unknown name."""
        stop_after = self.options.stop_after
        if stop_after is None:
            return len(self.description.layers) - 1
        for index, layer in enumerate(self.description.layers):
            if stop_after in (layer.name, str(layer.sequence)):
                return index
        raise MaceError(
            self.description.path,
            f"stop-after names layer {stop_after!r}, which is not there",
            "name a layer or its sequence number",
        )
