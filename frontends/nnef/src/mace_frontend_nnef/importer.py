"""An NNEF model on its way into the IR."""

from __future__ import annotations

from mace_core.graph_builder import Builder
from mace_core.importer import Convert, Importer, Scope
from mace_frontend_nnef.source import Source


class NnefImporter(Importer[str]):
    """Reads the operations of a model.

    source: its description and variables.  scope: the IR's tensors by NNEF's names.
    """

    def __init__(self, source: Source, builder: Builder, convert: Convert[str]) -> None:
        super().__init__(source.file.name, builder, convert)
        self.source = source
        self.scope = Scope[str, str]()
