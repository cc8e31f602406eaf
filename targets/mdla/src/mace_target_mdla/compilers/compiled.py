"""Defines what a compiler of the vendor gives."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from mace_core.json_types import Json
from mace_target_mdla.network import NetworkKind

STAMP = b"MACE-TEST-DOUBLE"
"""What every test double of a compiler writes into its results; `compile_network` refuses it."""


@dataclass(frozen=True)
class Compiled:
    """A network as a compiler of the vendor wrote it.

    kind: how the driver loads it.  version: of the tool.  command: how it was called, without folders of the
    build machine.  sdk: the version of the vendor's SDK, as its own files say; "" if they say none.
    """

    content: bytes
    kind: NetworkKind
    tool: str
    version: str
    command: tuple[str, ...]
    sdk: str = ""

    @property
    def built_by(self) -> str:
        """Tool and version, as the driver quotes them."""
        sdk = f" of SDK {self.sdk}" if self.sdk else ""
        return f"{self.tool} {self.version}{sdk}"

    def as_json(self) -> Json:
        """Describe it for the report."""
        return {
            "tool": self.tool,
            "version": self.version,
            "sdk": self.sdk,
            "command": " ".join(self.command),
            "bytes": len(self.content),
        }


class VendorCompiler(ABC):
    """A compiler of the vendor for one set of options.

    name: what the option `compiler` calls it.
    """

    name: ClassVar[str]

    @abstractmethod
    def find_fault(self) -> str | None:
        """Return why it cannot be used here, for this chip; None if it can."""

    @abstractmethod
    def compile(self, tflite: bytes, place: str) -> Compiled:
        """Return the compiled form of a file; MaceError with the compiler's words if it fails."""
