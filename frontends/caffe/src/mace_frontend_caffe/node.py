"""One layer of a network as its handler sees it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar

import numpy as np

from mace_core.errors import MaceError
from mace_core.graph_builder import Builder
from mace_core.importer import ImportedNode, RefusedError
from mace_core.ir import Array, Shape
from mace_core.ops.op import Op
from mace_frontend_caffe.importer import CaffeImporter


@dataclass(frozen=True)
class CaffeNode(ImportedNode):
    """A layer, its parameters and weights."""

    noun: ClassVar[str] = "layer"

    layer: Any
    importer: CaffeImporter

    @property
    def name(self) -> str:
        """The layer's name."""
        return str(self.layer.name)

    @property
    def op(self) -> str:
        """The layer's type."""
        return str(self.layer.type)

    @property
    def builder(self) -> Builder:
        """The graph that is being made."""
        return self.importer.builder

    def choice(self, parameters: Any, field: str) -> str:
        """The name of the value that a parameter has, of those that it may have."""
        kind = parameters.DESCRIPTOR.fields_by_name[field].enum_type
        return str(kind.values_by_number[getattr(parameters, field)].name)

    @property
    def count(self) -> int:
        """How many blobs it reads."""
        return len(self.layer.bottom)

    def input(self, index: int = 0) -> str:
        """The tensor of bottom `index`; RefusedError if it has none such, or nothing before it makes it."""
        self.refuse_unless(index < self.count, f"it has no bottom {index}; correct the .prototxt")
        return self.importer.blobs.find(self.layer.bottom[index])

    def inputs(self) -> list[str]:
        """The tensors of all its bottoms."""
        return [self.input(i) for i in range(self.count)]

    def shape(self, index: int = 0) -> Shape:
        """Shape of bottom `index`."""
        return self.builder.shape(self.input(index))

    def blob(self, index: int, what: str) -> Array:
        """The layer's own blob `index`.

        RefusedError if the weights do not hold it, MaceError if there are none at all.
        """
        source = self.importer.source
        blobs = source.blobs.get(self.name, ())
        if not source.weighted:
            name = source.file.name  # told once for all layers
            raise MaceError.of(
                [f"{name}: has layers with weights, but no .caffemodel is given; name it: weight_file_path"]
            )
        if index >= len(blobs):
            raise RefusedError(
                f"the weights hold no {what} of it; give the .caffemodel that belongs to this .prototxt"
            )
        return blobs[index]

    def fitted(self, index: int, what: str, shape: Shape) -> Array:
        """The layer's own blob `index` in the shape that its parameters give.

        Files of old write every shape with four axes.
        """
        array = self.blob(index, what)
        text = f"its {what}: {list(array.shape)} numbers, {list(shape)} by the .prototxt; give the .caffemodel that belongs to it"
        self.refuse_unless(array.size == prod(shape), text)
        return array.reshape(shape)

    @property
    def blobs(self) -> int:
        """How many blobs of its own it has."""
        return len(self.importer.source.blobs.get(self.name, ()))

    def places(self, array: Array | int, tag: str = "places") -> str:
        """Add a constant of this layer's own that holds places."""
        return self.builder.weight(f"{self.name}/{tag}", np.asarray(array, np.int64))

    def output_names(self, op: Op, count: int | None) -> Sequence[str]:
        """Names for its tops. A blob that is written again gets a name of its own."""
        return [self.builder.fresh(top) for top in self.layer.top]

    def done_top(
        self, index: int, op: str | Op, inputs: Sequence[str], attrs: Mapping[str, Any] | None = None
    ) -> str:
        """Add the node of the IR that computes one of this layer's tops; return that."""
        names = [self.builder.fresh(self.layer.top[index])]
        return self.add(op, inputs, attrs, names, self.origin)[0]
