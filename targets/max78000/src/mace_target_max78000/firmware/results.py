"""Blocks of results as cnn_unload delivers them: where each one's words lie, in data for the program's loops."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby

from mace_frontend_ai8x.network import Layer, Network, Place, Unload
from mace_target_max78000.device import PER_MEMORY
from mace_target_max78000.encode.hardware_layers import bits_of


@dataclass(frozen=True)
class Results:
    """One block: bytes channel by channel.

    Words as they lie in the memories, position by position the channels of each four slots.

    slots: of the channels of one pass, ascending; channel c lies in slot c % len, pass c // len.
    offset: bytes in each data memory.  pass_words, pixel_words: words from a pass or a pixel to the next.
    """

    slots: tuple[int, ...]
    channels: int
    pixels: int
    offset: int
    width: int
    pass_words: int
    pixel_words: int

    @property
    def groups(self) -> tuple[int, ...]:
        """How many channels are delivered together: all slots of one memory in one pass, for words.

        One channel for bytes.
        """
        if self.width == 8:
            return (1,) * self.channels
        places = [divmod(channel, len(self.slots)) for channel in range(self.channels)]
        keys = [(number, self.slots[rank] // PER_MEMORY) for number, rank in places]
        return tuple(len(list(members)) for _, members in groupby(keys))

    @property
    def words(self) -> str:
        """The block in words."""
        kind = "bytes" if self.width == 8 else "words"
        return f"{self.channels} channels of {self.pixels} {kind}, from offset 0x{self.offset:04x}"

    @property
    def size(self) -> int:
        """Words of 32 bits that the block takes once unloaded."""
        return -(-self.channels * self.pixels * self.width // 32)


def list_results(network: Network) -> tuple[Results, ...]:
    """The network's own blocks where it names some, else all of its output layers."""
    if network.unloads:
        return tuple(_listed_block(u) for u in network.unloads)
    pairs = zip(network.layers, network.places, strict=True)
    return tuple(_output(layer, place) for layer, place in pairs if layer.output)


def _listed_block(unload: Unload) -> Results:
    slots = bits_of(unload.processors)
    pixels = unload.dim[0] * unload.dim[1]
    return _block(slots, (unload.channels, pixels), (unload.offset, unload.width, unload.write_gap))


def _output(layer: Layer, place: Place) -> Results:
    pixels = layer.out_dim[0] * layer.out_dim[1]
    return _block(
        bits_of(place.output_processors),
        (layer.out_channels, pixels),
        (place.out_offset, layer.width, place.write_gap),
    )


def _block(slots: tuple[int, ...], size: tuple[int, int], place: tuple[int, int, int]) -> Results:
    channels, pixels = size
    offset, width, gap = place
    passes = -(-channels // len(slots))
    step = width // 8 * (gap + 1)
    return Results(slots, channels, pixels, offset, width, pass_words=step, pixel_words=passes * step)
