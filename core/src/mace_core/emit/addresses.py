"""Addresses of tensors, as generated code writes them.

A tensor lies in the arena, among the states, in the file of weights, in memory of the application, or on a
device.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mace_core.emit.text import CIdentifier, Code
from mace_core.ir import State
from mace_core.part import HOST, BlobBody
from mace_core.plan import Plan


class Addresses:
    """The addresses of all tensors of a plan.

    weights_symbol: that of the file of weights.
    behind: bytes of another plan at the beginning of that file; weight_bytes counts them.
    """

    def __init__(self, plan: Plan, weights_symbol: CIdentifier, behind: int) -> None:
        self.plan, self.program, self.weights_symbol = plan, plan.program, weights_symbol
        self.offsets: dict[str, int] = {}
        self._starts: dict[str, int] = {}
        self.blobs: dict[str, tuple[int, int]] = {}
        self.compiled: dict[str, list[int]] = {}
        offset = behind
        for name, weight in self.program.weights.items():
            self.offsets[name] = offset
            offset += HOST.round_up(weight.bytes)
        for state in plan.states:
            if state.is_stored:
                self._starts[state.input] = offset
                offset += HOST.round_up(state.start.nbytes)
        for part in plan.parts:
            if isinstance(part.body, BlobBody):
                self.blobs[part.name] = (offset, offset + HOST.round_up(len(part.body.code)))
                offset += HOST.round_up(len(part.body.code)) + HOST.round_up(len(part.body.weights))
                self.compiled[part.name] = []
                for entry in part.body.compiled:
                    self.compiled[part.name].append(offset)
                    offset += HOST.round_up(len(entry))
        self.weight_bytes = offset
        self.states: dict[str, int] = {}
        offset = 0
        for state in plan.states:
            for name in (state.input, state.output):
                self.states[name] = offset
                offset += HOST.round_up(self.program.tensors[name].bytes)
        self.state_bytes = offset

    def weights(self) -> Iterator[bytes]:
        """Yield the content of the file of weights after the first `behind` bytes."""
        # One constant after another, each padded to the alignment: together they may exceed the memory.
        for name, weight in self.program.weights.items():
            array = weight.make()
            assert array.nbytes == weight.bytes, f"{name}: {array.nbytes} bytes, {weight.bytes} announced"
            yield from _pad(np.ascontiguousarray(array).tobytes())
        for state in self.plan.states:
            if state.is_stored:
                yield from _pad(np.ascontiguousarray(state.start).tobytes())
        for part in self.plan.parts:
            if isinstance(part.body, BlobBody):
                yield from _pad(part.body.code)
                yield from _pad(part.body.weights)
                for entry in part.body.compiled:
                    yield from _pad(entry)

    def start(self, state: State) -> Code:
        """Return the address of a state's start value; NULL for zeros."""
        if state.input not in self._starts:
            return Code("NULL")
        return Code(f"{self.weights_symbol} + {self._starts[state.input]}")

    def pointer(self, tensor: str) -> Code:
        """Return a tensor's address in host memory, in terms of the variables of a function of calls.

        NULL for "".
        """
        if not tensor:
            return Code("NULL")
        where, index, offset = self._find(tensor)
        if where == "INPUT":
            return Code(f"(void *)in[{index}]")
        if where == "OUTPUT":
            return Code(f"out[{index}]")
        base = {"WEIGHTS": "w", "ARENA": "a", "STATES": "s", "FAST": "fast"}[where]
        return Code(f"{base} + {offset}")

    def output(self, name: str, occurrence: int = 0) -> Code:
        """Return the address of an output of the program: the application's, or the next value of a state.

        occurrence: which of the outputs of this name, as a model file may list a tensor twice.
        """
        if name in self.states:
            return Code(f"s + {self.states[name]}")
        indices = [index for index, output in enumerate(self.plan.outputs) if output == name]
        return Code(f"out[{indices[occurrence]}]")

    def place(self, tensor: str, space: str) -> Code:
        """Return a `mace_place`."""
        if space == HOST.name:
            where, index, offset = self._find(tensor)
            return Code(f"{{MACE_IN_{where}, {index}, {offset}}}")
        number = self.spaces.index(space)
        return Code(f"{{MACE_IN_SPACE, {number}, {self.plan.arenas[space].offsets[tensor]}}}")

    @property
    def spaces(self) -> list[str]:
        """The memory spaces besides host memory, in the order of their numbers."""
        return [name for name in self.plan.spaces if name != HOST.name]

    def _find(self, tensor: str) -> tuple[str, int, int]:
        """Find a tensor in host memory: kind of place, index among inputs or outputs, and offset."""
        root = self.program.root(tensor)
        if root in self.offsets:
            return "WEIGHTS", 0, self.offsets[root]
        if root in self.plan.host.offsets:
            return "ARENA", 0, self.plan.host.offsets[root]
        if root in self.plan.fast.offsets:
            return "FAST", 0, self.plan.fast.offsets[root]
        if root in self.program.inputs:
            return (
                ("STATES", 0, self.states[root])
                if root in self.states
                else ("INPUT", self.plan.inputs.index(root), 0)
            )
        name = next(name for name in self.program.outputs if self.program.root(name) == root)
        return (
            ("STATES", 0, self.states[name])
            if name in self.states
            else ("OUTPUT", self.plan.outputs.index(name), 0)
        )


def _pad(data: bytes) -> Iterator[bytes]:
    yield data
    yield bytes(HOST.round_up(len(data)) - len(data))
