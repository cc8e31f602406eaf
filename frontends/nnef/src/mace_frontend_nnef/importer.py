"""Turns the operations of an NNEF model into nodes of the IR."""

from __future__ import annotations

from mace_core.graph_builder import Builder
from mace_core.importer import Convert, Importer, Scope
from mace_frontend_nnef.source import NnefSource


class NnefImporter(Importer[str]):
    """Reads the operations of a model.

    source: the description and variables.  scope: the tensors of the IR by their names in the description.
    """

    def __init__(self, source: NnefSource, builder: Builder, convert: Convert[str]) -> None:
        super().__init__(source.file.name, builder, convert)
        self.source = source
        self.scope = Scope[str, str]()
