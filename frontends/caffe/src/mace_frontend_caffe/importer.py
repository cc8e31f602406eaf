"""A network on its way into the IR."""

from __future__ import annotations

from typing import ClassVar

from mace_core.graph_builder import Builder
from mace_core.importer import Convert, Damage, Importer, Scope
from mace_frontend_caffe.source import Source


class Blobs(Scope[str, str]):
    """By the name of a blob the tensor that was written last."""

    unknown: ClassVar[str] = "nothing before it makes blob {name!r}; correct the .prototxt"


class CaffeImporter(Importer[str]):
    """Reads the layers of a network.

    source: its description and weights.
    """

    damage = Damage("its parameters or weights", "correct the .prototxt")

    def __init__(self, source: Source, builder: Builder, convert: Convert[str]) -> None:
        super().__init__(source.file.name, builder, convert)
        self.source = source
        self.blobs = Blobs()
