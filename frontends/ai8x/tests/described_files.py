"""Writes descriptions for tests, and reads them with parameters of ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mace_core.errors import MaceError
from mace_core.ir import Array
from mace_frontend_ai8x.checkpoint import Checkpoint, LayerParameters
from mace_frontend_ai8x.description import read_description
from mace_frontend_ai8x.network import Network
from mace_frontend_ai8x.options import NetworkOptions

HEAD = "arch: net\ndataset: data\n"


def parameters(
    *shapes: tuple[int, ...], bits: int | None = None, shift: int = 0, bias: bool = False
) -> Checkpoint:
    layers = [
        LayerParameters(f"p{i}", np.full(shape, 1), np.arange(shape[0]) if bias else None, bits, shift)
        for i, shape in enumerate(shapes)
    ]
    return Checkpoint(tuple(layers), arch="net")


class DescriptionFile:
    """A description file that is written and read."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "net.yaml"

    def read(
        self,
        layers: str,
        stored: Checkpoint,
        sample: Array,
        options: NetworkOptions | None = None,
        head: str = HEAD,
    ) -> Network:
        self.path.write_text(head + layers)
        return read_description(self.path, stored, sample, options or NetworkOptions())

    def faults(self, text: str, stored: Checkpoint | None = None, sample: Array | None = None) -> list[str]:
        """Each without the file's path."""
        self.path.write_text(text)
        with pytest.raises(MaceError) as error:
            read_description(
                self.path,
                stored or Checkpoint(()),
                np.zeros((1, 4, 4)) if sample is None else sample,
                NetworkOptions(),
            )
        return [
            line.removeprefix(f"{self.path}:").removeprefix(" ") for line in str(error.value).splitlines()
        ]


def zeros(*shape: int) -> Array:
    return np.zeros(shape, np.int64)
