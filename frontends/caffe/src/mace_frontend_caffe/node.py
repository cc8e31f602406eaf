"""One layer of a network as its handler sees it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from mace_core.errors import MaceError
from mace_core.graph_builder import Builder
from mace_core.ir import Array, Shape
from mace_core.ops.op import Op
from mace_core.translation import FileNode, RefusedError

if TYPE_CHECKING:
    from mace_frontend_caffe.load import Translation


@dataclass(frozen=True)
class Node(FileNode):
    """A layer, its parameters and weights."""

    layer: Any
    work: Translation

    @property
    def name(self) -> str:
        """The layer's name."""
        return str(self.layer.name)

    @property
    def build(self) -> Builder:
        """The graph that is being made."""
        return self.work.builder

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
        return self.work.blob(self.layer.bottom[index])

    def inputs(self) -> list[str]:
        """The tensors of all its bottoms."""
        return [self.input(i) for i in range(self.count)]

    def shape(self, index: int = 0) -> Shape:
        """Shape of bottom `index`."""
        return self.build.shape(self.input(index))

    def blob(self, index: int, what: str) -> Array:
        """The layer's own blob `index`.

        RefusedError if the weights do not hold it, MaceError if there are none at all.
        """
        source = self.work.source
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
        return len(self.work.source.blobs.get(self.name, ()))

    def weight(self, array: Array | float, tag: str = "constant") -> str:
        """Add a constant of this layer's own, of single precision."""
        return self.build.weight(f"{self.name}/{tag}", np.asarray(array, np.float32))

    def places(self, array: Array | int, tag: str = "places") -> str:
        """Add a constant of this layer's own that holds places."""
        return self.build.weight(f"{self.name}/{tag}", np.asarray(array, np.int64))

    def emit_all(
        self, op: str | Op, inputs: Sequence[str], attrs: Mapping[str, Any] | None = None, *, count: int
    ) -> tuple[str, ...]:
        """Add an IR node whose results stay inside."""
        names = [self.build.fresh(f"{self.name}/inner-{i}") for i in range(count)]
        return self.build.add(op, inputs, attrs, outputs=names, like=self.origin)

    def emit(
        self, op: str | Op, inputs: Sequence[str], attrs: Mapping[str, Any] | None = None, *, tag: str = ""
    ) -> str:
        """Add an IR node whose one result stays inside."""
        return self.build.add(
            op, inputs, attrs, outputs=[self.build.fresh(f"{self.name}/{tag or 'inner'}")], like=self.origin
        )[0]

    def done(
        self,
        op: str | Op,
        inputs: Sequence[str],
        attrs: Mapping[str, Any] | None = None,
        *,
        top: int | None = None,
    ) -> tuple[str, ...]:
        """Add the IR node that computes this layer's tops, or one of them.

        A blob that is written again gets a name of its own.
        """
        tops = self.layer.top if top is None else [self.layer.top[top]]
        return self.build.add(
            op, inputs, attrs, outputs=[self.build.fresh(t) for t in tops], like=self.origin
        )

    def channels_last(self, tensor: str) -> str:
        """A tensor [N, C, *spatial] as [N, *spatial, C]."""
        rank = len(self.build.shape(tensor))
        self.refuse_unless(
            rank >= 3, f"its bottom has rank {rank}; it needs a batch, channels and spatial axes"
        )
        return self.emit("Transpose", [tensor], {"perm": (0, *range(2, rank), 1)}, tag="channels-last")

    def channels_first(self, tensor: str, *, top: int | None = None) -> tuple[str, ...]:
        """The layer's top [N, C, *spatial] from [N, *spatial, C]."""
        rank = len(self.build.shape(tensor))
        return self.done("Transpose", [tensor], {"perm": (0, rank - 1, *range(1, rank - 1))}, top=top)
