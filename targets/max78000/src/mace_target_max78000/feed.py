"""Between a model's tensors and a program's words: plain data that goes with a firmware, so that nothing else is needed to run it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from mace_core.ir import Array
from mace_target_max78000.device import Device
from mace_target_max78000.network import INPUT, Network, Operation, Place
from mace_target_max78000.network import Layer as NetworkLayer
from mace_target_max78000.options import Options
from mace_target_max78000.project.unload import results
from mace_target_max78000.synthesis.memory import inputs
from mace_target_max78000.unit import Unit


@dataclass(frozen=True)
class Feed:
    """How the first layer reads its input, and what cnn_unload gives.

    channels: of one operand.  dim: rows and columns.  blocks: [channels, positions, bits of a value] of each block of results.
    """

    channels: int
    dim: tuple[int, int]
    operands: int
    processors: int
    chw: bool
    fifo: bool
    blocks: tuple[tuple[int, int, int], ...]

    @classmethod
    def of(cls, network: Network, options: Options) -> Feed:
        """The feed of a network."""
        layer, place = network.layers[0], network.places[0]
        blocks = tuple((block.channels, block.pixels, block.width) for block in results(network))
        fifo = options.fifo or options.fast_fifo
        return cls(layer.channels, layer.dim, layer.operands, place.processors, place.chw, fifo, blocks)

    @classmethod
    def read(cls, described: Mapping[str, Any]) -> Feed:
        """The feed as a report holds it."""
        return cls(**{**described, "dim": tuple(described["dim"]), "blocks": tuple(map(tuple, described["blocks"]))})

    def described(self) -> dict[str, object]:
        """The feed as a report holds it."""
        return asdict(self)

    def words(self, sample: Array, device: Device) -> dict[int, Sequence[int]]:
        """The words of each of the program's input arrays, by its number; sample: integers [channels, ...]."""
        first = NetworkLayer("input", Operation.PASSTHROUGH, (INPUT,), self.channels, self.dim, self.channels, operands=self.operands)
        unit = Unit(first, Place(self.processors, self.processors, chw=self.chw), 0)
        flat = sample.reshape(self.channels * self.operands, -1)
        found = inputs(unit, flat, Options(fifo=self.fifo), device)
        return {block.processor if block.fifo is None else block.fifo: block.words for block in found}

    def arrays(self, words: Sequence[int]) -> Iterator[Array]:
        """Each block of results as integers [channels, positions]."""
        data = np.asarray(words, "<u4")
        for channels, positions, bits in self.blocks:
            count = -(-channels * positions * bits // 32)
            values, data = data[:count], data[count:]
            yield values.view("<i4" if bits == 32 else "i1")[: channels * positions].reshape(channels, positions)
