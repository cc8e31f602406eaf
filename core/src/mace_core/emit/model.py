"""A model as the templates write it: its calls with their operands, its tensors, and what it reads of a session."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mace_core.emit.text import CComment, CIdentifier, Code, CPrefix, CString, shortened
from mace_core.errors import MaceError
from mace_core.ir import MAX_RANK, State, Tensor
from mace_core.levels import Level
from mace_core.memory import ALIGNMENT
from mace_core.plan import Plan
from mace_core.program import FIELD_TYPES, Call, Kernel

MAX_NAME = 80
"""Characters of a tensor's name in a comment."""


@dataclass(frozen=True)
class KernelTable:
    """The kernels of one target in a library, compiled at each of its levels.

    name: prefix of its symbols and files.  target: the target's name, for people.
    """

    name: CPrefix
    target: str
    levels: Sequence[Level]
    kernels: Sequence[Kernel]

    @property
    def devices(self) -> list[CString]:
        """Say for each level what runs its kernels."""
        return [CString(f"{self.target}: {level.name}") for level in self.levels]


class ModelView:
    """Shows a placed program as the templates want it."""

    def __init__(self, library: str, plan: Plan, tables: Sequence[KernelTable]) -> None:
        self.plan, self.program, self.arena = plan, plan.program, plan.host
        self.tables = tables
        self.name = CPrefix(self.program.name)
        self.program_symbol = CIdentifier(f"{library}_{self.name}_program")
        self.weights_symbol = CIdentifier(f"{library}_{self.name}_weights")
        self.offsets: dict[str, int] = {}
        at = 0
        for weight, described in self.program.weights.items():
            self.offsets[weight] = at
            at += _aligned(described.bytes)
        self.starts: dict[str, int] = {}
        for state in plan.states:
            if state.start.tobytes().strip(b"\0"):  # zeros are written without being stored
                self.starts[state.input] = at
                at += _aligned(state.start.nbytes)
        self.weight_bytes = at
        self.states: dict[str, int] = {}
        at = 0
        for state in plan.states:
            for name in (state.input, state.output):
                self.states[name] = at
                at += _aligned(self.program.tensors[name].bytes)
        self.state_bytes = at
        self.arena_bytes = self.arena.bytes
        self.worker_bytes = _aligned(max((c.scratch for c in self.program.calls), default=0))
        ports = len(plan.inputs) + len(plan.outputs)
        self.session_bytes = Code(f"MACE_SESSION_BYTES({ports}, {self.state_bytes + self.arena_bytes + self.worker_bytes})")
        self.interface = [*self._describe_ports("inputs"), *self._describe_ports("outputs"), *self._describe_states()]

    def _describe_ports(self, side: str) -> Iterator[str]:
        for i, name in enumerate(getattr(self.plan, side)):
            yield f"{side}[{i}]: {self._interface_text(name)}"

    def _describe_states(self) -> Iterator[str]:
        for i, state in enumerate(self.plan.states):
            yield f"states[{i}], kept by the session: {self._interface_text(state.input)}, at first {state.start_text}"

    def _interface_text(self, name: str) -> str:
        tensor = self.program.tensors[name]
        shape = " x ".join(map(str, tensor.shape)) or "scalar"
        return f"{shortened(name, MAX_NAME)}, {tensor.dtype.value} {shape}"

    def values(self) -> dict[str, Any]:
        """What model.c.in reads."""
        tensors = self.program.tensors
        return {
            "name": CString(self.name),
            "program_symbol": self.program_symbol,
            "weights_symbol": self.weights_symbol,
            "copies": list(self._copies()),
            "calls": [self._call(c, 0) for c in self.program.calls],
            "layers": [self._layer(c) for c in self.program.calls],
            "tables": [table.name for table in self.tables],
            "parts": [Code(f'{{"part{i}", {i}, {table.name}_devices}}') for i, table in enumerate(self.tables)],
            "states": [self._state(state) for state in self.plan.states],
            "state_bytes": self.state_bytes,
            "inputs": [_tensor(tensors[n]) for n in self.plan.inputs],
            "outputs": [_tensor(tensors[n]) for n in self.plan.outputs],
            "arena_bytes": self.arena_bytes,
            "worker_bytes": self.worker_bytes,
            "weight_bytes": self.weight_bytes,
        }

    def weights(self) -> Iterator[bytes]:
        """All constants, each padded to the alignment; made one at a time."""
        for name, weight in self.program.weights.items():
            array = weight.make()
            assert array.nbytes == weight.bytes, f"{name}: {array.nbytes} bytes, {weight.bytes} announced"
            yield np.ascontiguousarray(array).tobytes()
            yield bytes(-weight.bytes % ALIGNMENT)
        for state in self.plan.states:
            if state.input in self.starts:
                yield state.start.tobytes().ljust(_aligned(state.start.nbytes), b"\0")

    def _call(self, call: Call, table: int) -> dict[str, Any]:
        result = self.program.tensors[call.writes[0]]
        read = ", ".join(self._described(t) for t in call.reads if t)
        fields = [f".{n} = {self._argument(call, n, t)}" for n, t in call.kernel.fields]
        return {
            "kernel": call.kernel.name,
            "table": table,
            "condition": self._condition(call, table),
            "args_type": CIdentifier(f"{self.tables[table].name}_{call.kernel.name}_args"),
            "args": Code(", ".join(fields) or "0"),
            "pointers": [self._pointer(t) for t in (*call.reads, *call.writes)],
            "result": len(call.reads),
            "comment": CComment(f"{shortened(call.node, MAX_NAME)}: {read} -> {self._described(result.name)}"),
        }

    def _condition(self, call: Call, table: int) -> Code:
        """Return when a call is made, as C writes it; "" for always."""
        levels = [i for i, level in enumerate(self.tables[table].levels) if level.name in call.levels]
        return Code(" || ".join(f"f->levels[{table}] == {i}" for i in levels))

    def _state(self, state: State) -> Code:
        start = f"{self.weights_symbol} + {self.starts[state.input]}" if state.input in self.starts else "NULL"
        offsets = f"{self.states[state.input]}, {self.states[state.output]}"
        return Code(f"{{{_tensor(self.program.tensors[state.input])}, {start}, {offsets}}}")

    def _layer(self, call: Call) -> Code:
        names = [CString(name) for name in (call.node, call.kernel.name, ",".join(call.sources))]
        return Code(f"{{{', '.join(names)}, {_tensor(self.program.tensors[call.writes[0]])}}}")

    def _argument(self, call: Call, name: str, ctype: str) -> Code:
        """Return an argument of a call as C writes it; MaceError for a number that its type does not hold, as of a huge tensor."""
        value = call.args[name]
        bits = INTEGER_BITS.get(FIELD_TYPES.get(ctype.partition("[")[0], ""))
        numbers = value if isinstance(value, tuple) else (value,)
        if bits and not all(-(1 << bits - 1) <= int(number) < 1 << bits - 1 for number in numbers):
            problem = f"kernel {call.kernel.name!r} takes {name!r} as a number of {bits} bits, and it is {value}"
            raise MaceError(f"{self.name}: node {call.node!r}", problem, "make its tensors smaller")
        return _literal(value, ctype)

    def _described(self, name: str) -> str:
        tensor = self.program.tensors.get(name)
        return f"{shortened(name, MAX_NAME)}:{tensor.dtype.value}{list(tensor.shape)}" if tensor else shortened(name, MAX_NAME)

    def _copies(self) -> Iterator[tuple[Code, Code, int]]:
        """Yield the outputs that no call writes, because they are an input, a constant, or an output before them: to, from, bytes."""
        owned = {*self.program.inputs, *self.offsets}
        for name in self.program.outputs:
            size = self.program.tensors[name].bytes
            if self.program.root(name) in owned and size:
                yield self._output(name), self._pointer(name), size
            owned.add(self.program.root(name))

    def _output(self, name: str) -> Code:
        """Return the address of an output of the program: the application's, or the next value of a state."""
        if name in self.states:
            return Code(f"s + {self.states[name]}")
        return Code(f"out[{self.plan.outputs.index(name)}]")

    def _pointer(self, tensor: str) -> Code:
        if not tensor:
            return Code("NULL")
        root = self.program.root(tensor)
        if root in self.offsets:
            return Code(f"w + {self.offsets[root]}")
        if root in self.arena.offsets:
            return Code(f"a + {self.arena.offsets[root]}")
        if root in self.program.inputs:
            return Code(f"s + {self.states[root]}" if root in self.states else f"(void *)in[{self.plan.inputs.index(root)}]")
        return self._output(next(name for name in self.program.outputs if self.program.root(name) == root))


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def _literal(value: Any, ctype: str) -> Code:
    """A number, or a braced list of them, as C writes it; floats exactly."""
    if isinstance(value, tuple):
        base = ctype.partition("[")[0]
        return Code("{" + ", ".join(_literal(v, base) for v in value) + "}")
    if FIELD_TYPES[ctype] not in ("float", "double"):
        return Code(int(value))
    if math.isinf(value) or math.isnan(value):
        return Code("NAN" if math.isnan(value) else ("INFINITY" if value > 0 else "-INFINITY"))
    if FIELD_TYPES[ctype] == "float":
        return Code(f"{float(np.float32(value)).hex()}f")
    return Code(float(value).hex())


INTEGER_BITS: Mapping[str, int] = {"int32_t": 32, "int64_t": 64}


def _tensor(tensor: Tensor) -> Code:
    axes = tensor.shape
    if len(axes) > MAX_RANK:  # only of a layer: for observers its leading axes are one
        axes = (math.prod(axes[: 1 - MAX_RANK]), *axes[1 - MAX_RANK :])
    shape = ", ".join(map(str, axes)) or "0"
    scale, zero = _one_scale(tensor)
    head = f"{CString(tensor.name)}, MACE_{tensor.dtype.name}, {len(axes)}"
    return Code(f"{{{head}, {{{shape}}}, {tensor.bytes}, {_literal(scale, 'f32')}, {zero}}}")


def _one_scale(tensor: Tensor) -> tuple[float, int]:
    """The scale and zero point of a whole tensor; 0 where there is none."""
    quant = tensor.quant
    return (quant.scale[0], quant.zero_point[0]) if quant and quant.axis is None else (0.0, 0)
