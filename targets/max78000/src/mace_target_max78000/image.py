"""Everything that a program brings onto the chip, in the order in which it does, and what must come back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mace_target_max78000.device import Chip


@dataclass(frozen=True)
class Write:
    """A 32-bit register write."""

    address: int
    value: int


@dataclass(frozen=True)
class Poll:
    """Wait until all bits of a mask are set in a register."""

    address: int
    mask: int


@dataclass(frozen=True)
class Expect:
    """Fail if any of these bits is set in a register."""

    address: int
    errors: int


Step = Write | Poll | Expect


@dataclass(frozen=True)
class Chunk:
    """A run of words of one processor's weight memory as the packing loader takes it.

    address: of its first word, where the bytes are written in ascending order after a byte 0x01 at `address |
    1`.
    words: the 72-bit words' bytes, big-endian in 32-bit words, zeros after the last.
    processor, column, count: the same place in other words: `count` words of the memory from `column` on.
    """

    address: int
    words: tuple[int, ...]
    processor: int
    column: int
    count: int


@dataclass(frozen=True)
class Block:
    """Consecutive input words: to data memory from an address on, or through a FIFO.

    processor: the first one that reads them.
    """

    address: int
    words: tuple[int, ...]
    processor: int
    fifo: int | None = None


@dataclass(frozen=True)
class Check:
    """Result words from an address on: masked, they must equal these values."""

    address: int
    mask: int
    values: tuple[int, ...]


@dataclass(frozen=True)
class Image:
    """A program for the accelerator.

    bias: bytes by quadrant.  init, configure, start: the steps of cnn_init, cnn_configure and cnn_start.
    FIFO blocks are fed after the start, one word of each FIFO in turn; others are written before it.
    """

    device: Chip
    kernels: tuple[Chunk, ...]
    bias: Mapping[int, bytes]
    init: tuple[Step, ...]
    configure: tuple[Step, ...]
    start: tuple[Step, ...]
    inputs: tuple[Block, ...]
    known_answer: tuple[Check, ...]
    quadrants: tuple[int, ...]
    """Quadrants in use; the first is the master."""
    packing: bool = True
    """Whether cnn_load_weights writes through the packing loader.

    Else each word of 72 bits as four words of 32 bits.
    """
