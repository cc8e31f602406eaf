"""A description with its parameters and sample -> a network."""

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
    Activation,
    Layer,
    Network,
    Operation,
    processors_needed,
)
from mace_frontend_ai8x.options import NetworkOptions

SNOOP = 32
"""Values of `snoop`."""

Parameters = Checkpoint | Callable[[Sequence[Form]], Checkpoint]
"""Parameters, or what reads them once it is known what the layers with weights need."""

AddLimitFaults = Callable[[Network, Collection[int], Faults], None]
"""Adds what a chip cannot compute of a network to the faults of its description.

The indexes are those of layers that were not read as they are written, because they have faults of their own.
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
    add_limit_faults: adds what a chip cannot compute, so that one message tells of all faults.
    MaceError: all faults of the file that can be found at once, each with its line, and those of the
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
        """The whole network."""
        values, parameters, last = self._ends(sample)
        layers = self._layers(Shape.of(values), parameters)[: last + 1]
        for number in sorted(self.options.streaming_layers.difference(range(len(layers)))):
            self.faults.add(
                1, f"streaming-layers: there is no layer {number}", f"name layers from 0 to {len(layers) - 1}"
            )
        unread = self._unread(len(layers))
        sampled = () if unread else self._sampled(len(layers))
        if not any(layer.output for layer in layers):
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

    def _ends(self, sample: Array) -> tuple[Array, Mapping[int, LayerParameters], int]:
        """The sample, each layer's parameters, and the last layer.

        MaceError where nothing can be said of layers without them.
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

    def _unread(self, count: int) -> frozenset[int]:
        """Layers that have a fault between their first line and the next layer's, or whose output lies where such a layer says."""
        layers = self.description.layers
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
            while self.links[owner].weights != owner:
                owner = self.links[owner].weights
            reader = LayerReader(described, links.inputs, parameters.get(owner), self.faults, self.notes)
            layers.append(self._as_asked(index, reader.layer(shapes)))
        return layers

    def _as_asked(self, index: int, layer: Layer) -> Layer:
        """A layer with what options say of it: an activation or a bias that is left out, or how wide the last result is."""
        without, width = self.options.no_bias, self.options.output_width
        if self.options.ignore_activation:
            layer = replace(layer, activation=Activation.NONE)
        if without is not None and (not without or index in without):
            layer = replace(layer, bias=None)
        return replace(layer, wide=width == 32) if width and index == self._last() else layer

    def _sampled(self, count: int) -> tuple[int, ...]:
        """The layers that run for the sample, where the description says that conditions leave some out."""
        if all(links.simulated is None for links in self.links[:count]):
            return ()
        found, index = [0], 0
        while True:
            links = self.links[index]
            following = links.following if links.simulated is None else links.simulated
            index = index + 1 if following is None else following
            if not 0 <= index < count:
                return tuple(found)
            found.append(index)

    def _sample(self, sample: Array) -> Array:
        """The sample as int64; MaceError where it is none."""
        if sample.ndim not in (2, 3) or sample.size == 0 or sample.dtype.kind not in "iufb":
            problem = f"the sample is {sample.dtype} of shape {list(sample.shape)}"
            raise MaceError(
                self.description.path,
                problem,
                "give numbers as [channels, rows, columns] or [channels, length]",
            )
        rounded = np.rint(sample) if sample.dtype.kind == "f" else sample
        if not (rounded >= -128).all() or not (rounded <= 127).all():
            problem = (
                f"the sample has values from {sample.min()} to {sample.max()}; data are from -128 to 127"
            )
            raise MaceError(
                self.description.path, problem, "scale it as in training: unsigned bytes minus 128"
            )
        if sample.dtype.kind == "f" and not np.array_equal(rounded, sample):
            self.notes.append("the sample's values were rounded to whole numbers")
        return rounded.astype(np.int64)

    def _match_arch(self) -> bool:
        """Whether the description and the checkpoint are of one model."""
        found, wanted = self.checkpoint.arch, self.description.arch
        line = self.description.lines.get("arch")
        if found is None or line is None or found.lower() == wanted.lower():
            return True
        self.faults.add(
            line, f"arch: is {wanted!r}, the checkpoint holds {found!r}", "name the files of one model"
        )
        return False

    def _match_snoop(self) -> None:
        given = self.description.snoop
        if given and len(given) != SNOOP:
            remedy = f"write {SNOOP}: twelve registers of each condition, and eight results"
            self.faults.add(self.description.lines["snoop"], f"snoop: has {len(given)} values", remedy)

    def _match_layers(self, sample: Shape, weighted: Sequence[int]) -> bool:
        """Whether every layer with weights has some in the checkpoint; a note names those that none needs."""
        given, described = self.checkpoint.layers, self.description.layers
        aligned = align(weighted, given, lambda parameters: self._misfits(sample, parameters))
        for names, index in aligned.undescribed:
            problem = f"a layer is missing: the checkpoint's {names} has no description"
            remedy = f"describe it before {described[index].title}, or name the checkpoint of this network"
            self.faults.add(described[index].line, problem, remedy)
        # Where keys could not be read, layers may need weights only by mistake: then only what shapes show is
        # told.
        certain = aligned.by_shape or not self.faults
        count = f"the parameters hold those of {len(given)} layers, {len(weighted)} need them"
        for index in aligned.unweighted if certain else ():
            problem = f"{described[index].title}: needs weights, which are missing; {count}"
            self.faults.add(
                described[index].line,
                problem,
                "remove the layer, or name the one whose weights it shares as weight_source",
            )
        if aligned.unused and not aligned.undescribed:
            names = ", ".join(parameters.name for parameters in aligned.unused)
            self.notes.append(
                f"the checkpoint's last layers have no description, and their weights are not used: {names}"
            )
        return not (aligned.undescribed or aligned.unweighted)

    def _misfits(self, sample: Shape, parameters: Mapping[int, LayerParameters]) -> int:
        """How badly weights fit layers: what a layer's own keys contradict counts twice, what follows from the layers before once."""
        trial = replace(self, faults=Faults(self.description.path), notes=[])
        found = 0
        layers = trial._layers(sample, parameters)
        for index, (described, layer) in enumerate(zip(self.description.layers, layers, strict=True)):
            if layer.weights is None:
                continue
            # a kernel of one position may be meant as a linear layer, which is the less likely
            found += (
                layer.operation is Operation.LINEAR
                and index in parameters
                and parameters[index].weights.ndim > 2
            )
            shape, expected = layer.weights.values.shape, layer.weights_shape
            transposed = layer.operation is Operation.CONV_TRANSPOSE2D
            inputs = shape[0 if transposed else 1] * layer.groups
            found += 2 * (len(shape) != len(expected) or shape[2:] != expected[2:])
            if not layer.flatten:
                found += 2 * (described.processors.bit_count() != processors_needed(inputs))
            found += shape != expected
        return found

    def _last(self) -> int:
        """The last layer; an option may name an earlier one."""
        wanted = self.options.stop_after
        if wanted is None:
            return len(self.description.layers) - 1
        for index, layer in enumerate(self.description.layers):
            if wanted in (layer.name, str(layer.sequence)):
                return index
        raise MaceError(
            self.description.path,
            f"stop-after names layer {wanted!r}, which is not there",
            "name a layer or its sequence number",
        )
