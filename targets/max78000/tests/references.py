"""The vendor's networks beside the checkout, each with what the vendor's generator made of it."""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from mace_frontend_ai8x.checkpoint import Checkpoint, Form, load_arrays, load_checkpoint
from mace_frontend_ai8x.description import read_description
from mace_frontend_ai8x.network import Network
from mace_target_max78000.device import MAX78000, Chip
from mace_target_max78000.image import Check, Chunk
from mace_target_max78000.options import Options
from mace_target_max78002.device import MAX78002

ROOT = Path(os.environ.get("MACE_MODELS", Path(__file__).parents[4] / "shared" / "models"))
MODELS = ROOT / "ai8x"
FOLDERS = (MODELS, ROOT / "ai8x-more")
DEVICES: Mapping[str, Chip] = {d.name: d for d in (MAX78000, MAX78002)}

IMPOSSIBLE = ("test-multilayer-eltwise-MAX78000", "test-multilayer-eltwise-MAX78002")
"""Networks whose answers the vendor's tool computes from operands in other processors' data, where no layer moves them."""


@dataclass(frozen=True)
class Reference:
    """One network on one part."""

    path: Path

    @property
    def name(self) -> str:
        """Of the network and the part."""
        return f"{self.path.parent.name}-{self.path.stem.removeprefix('reference-')}"

    @cached_property
    def content(self) -> Mapping[str, Any]:
        """What the generator made."""
        result: Mapping[str, Any] = json.loads(self.path.read_text())
        return result

    @property
    def device(self) -> Chip:
        """The part."""
        return DEVICES[self.content["device"]]

    @property
    def options(self) -> Options:
        """What the generator was asked for."""
        return Options.of_arguments(
            (*self.content["options"], *(() if "--fifo" in self.content["options"] else self._fifo))
        )

    @property
    def _fifo(self) -> tuple[str, ...]:
        """The option of the FIFO where the program switches it on: files in `ai8x-more` do not record it."""
        enabled = any(value >> 15 & 1 for _, value in self.content["registers"]["cnn_start"])
        return ("--fifo",) if enabled else ()

    @property
    def conditional(self) -> bool:
        """Whether layers run under conditions only, which the simulator does not model."""
        return "snoop:" in (self.path.parent / self.content["network"]).read_text()

    @property
    def network(self) -> Network:
        """The network as its description and parameters tell it."""
        folder = self.path.parent
        sample = np.load(folder / self.content["sample"])
        return read_description(folder / self.content["network"], self._parameters, sample, self.options)

    def _parameters(self, forms: Sequence[Form]) -> Checkpoint:
        folder = self.path.parent
        if "checkpoint" in self.content:
            return load_checkpoint(folder / self.content["checkpoint"])
        bias = self.content["bias_file"]
        return load_arrays(folder / self.content["weights_file"], forms, folder / bias if bias else None)

    @property
    def known_answer(self) -> tuple[Check, ...]:
        """Result words; empty where the generator made none."""
        return tuple(
            Check(address, mask, tuple(values))
            for address, mask, values in self.content.get("known_answer", ())
        )


def references(folders: Sequence[Path] = FOLDERS) -> list[Reference]:
    """All networks of some folders; none where these are absent."""
    return [Reference(path) for folder in folders for path in sorted(folder.glob("**/reference-*.json"))]


def digest(chunks: Iterable[Chunk]) -> str:
    """As the references state it: over the chunks by address, each as address and words, big-endian."""
    total = hashlib.sha256()
    for chunk in sorted(chunks, key=lambda c: c.address):
        total.update(struct.pack(f">{1 + len(chunk.words)}I", chunk.address, *chunk.words))
    return total.hexdigest()
