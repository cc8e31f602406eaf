"""One layer of a network as its handler sees it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, ClassVar

import numpy as np

from mace_core.errors import MaceError
from mace_core.graph_builder import Builder
from mace_core.importer import ImportedNode, RefusedError
from mace_core.ir import Array, Shape
from mace_core.ops.op import Op
from mace_frontend_caffe.importer import CaffeImporter

CORRECT_DESCRIPTION = "correct the .prototxt"
"""The remedy for parameters that Caffe does not accept either."""

CUT_BEFORE = "cut the graph before it with output_tensors"
"""The remedy for parameters that Caffe accepts and the IR cannot represent."""

MATCHING_WEIGHTS = "give the .caffemodel that belongs to this .prototxt"


@dataclass(frozen=True)
class CaffeNode(ImportedNode):
    """A layer with its parameters and weights.

    Caffe calls the tensors that a layer reads its bottoms, those that it computes its tops, and its weights
    its blobs.

    layer: the message of caffe.proto.
    importer: the network that it belongs to.
    requested: numbers of the bottoms that its handler has read.
    """

    noun: ClassVar[str] = "layer"

    layer: Any
    importer: CaffeImporter
    requested: set[int] = field(default_factory=set, compare=False)

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
        """The graph that is being built."""
        return self.importer.builder

    def refuse_unless(self, condition: bool, text: str, remedy: str = CORRECT_DESCRIPTION) -> None:
        """Raise RefusedError with the text and the remedy unless the condition holds."""
        super().refuse_unless(condition, f"{text}; {remedy}")

    def enum_name(self, parameters: Any, field: str) -> str:
        """Return the name of the enum value that a parameter has."""
        kind = parameters.DESCRIPTOR.fields_by_name[field].enum_type
        return str(kind.values_by_number[getattr(parameters, field)].name)

    @property
    def bottom_count(self) -> int:
        """How many tensors it reads."""
        return len(self.layer.bottom)

    @property
    def blob_count(self) -> int:
        """How many blobs of weights the .caffemodel has for it."""
        return len(self.importer.source.blobs.get(self.name, ()))

    def input(self, index: int = 0) -> str:
        """Return the tensor of bottom `index`; RefusedError if there is none, or nothing computes it."""
        self.refuse_unless(index < self.bottom_count, f"it has no bottom {index}")
        self.requested.add(index)
        return self.importer.blobs.find(self.layer.bottom[index])

    def inputs(self) -> list[str]:
        """Return the tensors of all its bottoms."""
        return [self.input(i) for i in range(self.bottom_count)]

    def shape(self, index: int = 0) -> Shape:
        """Return the shape of bottom `index`."""
        return self.builder.shape(self.input(index))

    def refuse_unread_bottoms(self) -> None:
        """Raise RefusedError for bottoms that forks of Caffe gave a layer and that its handler ignores."""
        unread = [name for i, name in enumerate(self.layer.bottom) if i not in self.requested]
        self.refuse_unless(not unread, f"it has further bottoms: {', '.join(unread)}", CUT_BEFORE)

    def blob(self, index: int, role: str) -> Array:
        """Return blob `index` of the layer as the .caffemodel stores it.

        role: what messages call it, such as "bias".
        RefusedError if the .caffemodel lacks it, MaceError if no .caffemodel was given.
        """
        source = self.importer.source
        if not source.has_weights:
            # Every layer with weights fails in this way. The message names none of them, so that the
            # importer, which reports equal faults once, prints a single line.
            problem = "has layers with weights, but no .caffemodel is given; name it: weight_file_path"
            raise MaceError.of([f"{source.file.name}: {problem}"])
        blobs = source.blobs.get(self.name, ())
        if index >= len(blobs):
            raise RefusedError(f"the weights hold no {role} of it; {MATCHING_WEIGHTS}")
        return blobs[index]

    def shaped_blob(self, index: int, role: str, shape: Shape) -> Array:
        """Return blob `index` in the shape that the parameters give; RefusedError if it has another size.

        Only the sizes are compared: until 2014 Caffe stored every blob with four axes, such as a bias of n
        numbers as [1, 1, 1, n].
        """
        array = self.blob(index, role)
        self.refuse_unless(
            array.size == prod(shape),
            f"its {role} have shape {list(array.shape)}, but the .prototxt makes them {list(shape)}",
            MATCHING_WEIGHTS,
        )
        return array.reshape(shape)

    def add_indices(self, array: Array | int, tag: str = "places") -> str:
        """Add a constant of this layer that holds indices; return its tensor."""
        return self.builder.weight(f"{self.name}/{tag}", np.asarray(array, np.int64))

    def output_names(self, op: Op, count: int | None) -> Sequence[str]:
        """Return a name for each of its tops: that of its blob, with a suffix where a layer works in place.

        A layer in place writes the blob that it reads under the same name, but tensors of the IR have one
        value.
        """
        return [self.builder.fresh(top) for top in self.layer.top]

    def done_top(
        self, index: int, op: str | Op, inputs: Sequence[str], attrs: Mapping[str, Any] | None = None
    ) -> str:
        """Add the node of the IR that computes top `index` of this layer; return its tensor."""
        names = [self.builder.fresh(self.layer.top[index])]
        return self.add(op, inputs, attrs, names, self.origin)[0]
