"""Imports a network into the IR."""

from __future__ import annotations

from typing import ClassVar

from mace_core.graph_builder import Builder
from mace_core.importer import Convert, Damage, Importer, Scope
from mace_frontend_caffe.source import NetworkSource


class Blobs(Scope[str, str]):
    """Maps the name of each blob to the tensor that was last written to it: layers may work in place."""

    unknown: ClassVar[str] = "no layer before it computes blob {name!r}; correct the .prototxt"


class CaffeImporter(Importer[str]):
    """Reads the layers of a network.

    source: its description and weights.
    """

    damage = Damage("its parameters or weights", "correct the .prototxt")

    def __init__(self, source: NetworkSource, builder: Builder, convert: Convert[str]) -> None:
        super().__init__(source.file.name, builder, convert)
        self.source = source
        self.blobs = Blobs()
