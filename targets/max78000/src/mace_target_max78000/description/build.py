"""A description with its parameters and sample -> a network."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from mace_core.deployment.faults import Faults
from mace_core.errors import MaceError
from mace_core.ir import Array
from mace_target_max78000.checkpoint import Checkpoint, Form, LayerParameters
from mace_target_max78000.description.keys import Description, parse
from mace_target_max78000.description.layer import LayerReader, Shape, line_or_plane
from mace_target_max78000.description.links import Links, link
from mace_target_max78000.description.place import buffers, check_buffers, places, unloads
from mace_target_max78000.network import BUFFER, INPUT, Layer, Network
from mace_target_max78000.options import Options

SNOOP = 32
"""Values of `snoop`."""

Parameters = Checkpoint | Callable[[Sequence[Form]], Checkpoint]
"""Parameters, or what reads them once it is known what the layers with weights need."""


def read_description(path: Path, parameters: Parameters, sample: Array, options: Options) -> Network:
    """Read the maker's network description.

    sample: [channels, rows, columns] or [channels, length] of any number type, -128 ... 127.
    MaceError: all faults of the file, each with its line; or those of the parameters.  What the hardware cannot do is for `legal.faults`.
    """
    description, faults = parse(path)
    links = link(description, faults)
    faults.check()
    checkpoint = parameters if isinstance(parameters, Checkpoint) else parameters(description.forms())
    return _Builder(description, links, checkpoint, faults, options).network(sample)


@dataclass(frozen=True)
class _Builder:
    description: Description
    links: tuple[Links, ...]
    checkpoint: Checkpoint
    faults: Faults
    options: Options
    notes: list[str] = field(default_factory=list)

    def network(self, sample: Array) -> Network:
        """The whole network."""
        values = self._sample(sample)
        self._match_arch()
        self._match_snoop()
        parameters, last = self._parameters(), self._last()
        self.faults.check()
        layers = self._layers(Shape.of(values), parameters)[: last + 1]
        self.faults.check()
        sampled = self._sampled(len(layers))
        if not any(layer.output for layer in layers):
            last = sampled[-1] if sampled else -1
            layers[last] = replace(layers[last], output=True)
        laid = places(self.description, self.links, layers, self.options)
        check_buffers(self.description, laid, self.faults)
        self.faults.check()
        return Network(
            name=self.description.arch,
            layers=tuple(layers),
            places=laid,
            sample=values,
            unloads=unloads(self.description),
            buffers=buffers(self.description),
            snoop=self.description.snoop,
            sampled=sampled,
            notes=(*self.checkpoint.notes, *self.notes),
        )

    def _layers(self, sample: Shape, parameters: Mapping[int, LayerParameters]) -> list[Layer]:
        layers: list[Layer] = []
        outer = {INPUT: sample} | {BUFFER - k: Shape(b.channels, line_or_plane(b.dim)) for k, b in enumerate(self.description.data_buffer)}
        for index, (described, links) in enumerate(zip(self.description.layers, self.links, strict=True)):
            shapes = [Shape(layers[i].out_channels, layers[i].out_dim) if i >= 0 else outer[i] for i in links.inputs]
            owner = index
            while self.links[owner].weights != owner:
                owner = self.links[owner].weights
            reader = LayerReader(described, links.inputs, parameters.get(owner), self.faults, self.notes)
            layers.append(self._as_asked(index, reader.layer(shapes)))
        return layers

    def _as_asked(self, index: int, layer: Layer) -> Layer:
        """A layer with what options say of it: a bias that is left out, or how wide the last result is."""
        without, width = self.options.no_bias, self.options.output_width
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
            raise MaceError(self.description.path, problem, "give numbers as [channels, rows, columns] or [channels, length]")
        rounded = np.rint(sample) if sample.dtype.kind == "f" else sample
        if not (rounded >= -128).all() or not (rounded <= 127).all():
            problem = f"the sample has values from {sample.min()} to {sample.max()}; data are from -128 to 127"
            raise MaceError(self.description.path, problem, "scale it as in training: unsigned bytes minus 128")
        if sample.dtype.kind == "f" and not np.array_equal(rounded, sample):
            self.notes.append("the sample's values were rounded to whole numbers")
        return rounded.astype(np.int64)

    def _match_arch(self) -> None:
        found, wanted = self.checkpoint.arch, self.description.arch
        if found is not None and found.lower() != wanted.lower():
            self.faults.add(
                self.description.lines["arch"], f"arch: is {wanted!r}, the checkpoint holds {found!r}", "name the files of one model"
            )

    def _match_snoop(self) -> None:
        given = self.description.snoop
        if given and len(given) != SNOOP:
            remedy = f"write {SNOOP}: twelve registers of each condition, and eight results"
            self.faults.add(self.description.lines["snoop"], f"snoop: has {len(given)} values", remedy)

    def _parameters(self) -> Mapping[int, LayerParameters]:
        """Parameters by layer: in the model's order for layers that have weights."""
        weighted = [index for index, layer in enumerate(self.description.layers) if layer.weighted]
        given = self.checkpoint.layers
        for index in weighted[len(given) :]:
            layer = self.description.layers[index]
            problem = f"{layer.label}: needs weights; the parameters hold those of {len(given)} layers, {len(weighted)} need them"
            self.faults.add(layer.line, problem, "remove the layer, or name the one whose weights it shares as weight_source")
        if len(given) > len(weighted):
            unused = ", ".join(p.name for p in given[len(weighted) :])
            self.notes.append(f"weights of {len(given) - len(weighted)} layers are not used: {unused}")
        return dict(zip(weighted, given, strict=False))

    def _last(self) -> int:
        """The last layer; an option may name an earlier one."""
        wanted = self.options.stop_after
        if wanted is None:
            return len(self.description.layers) - 1
        for index, layer in enumerate(self.description.layers):
            if wanted in (layer.name, str(layer.sequence)):
                return index
        raise MaceError(
            self.description.path, f"stop-after names layer {wanted!r}, which is not there", "name a layer or its sequence number"
        )
