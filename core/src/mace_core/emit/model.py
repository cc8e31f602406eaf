"""A model as templates write it: its calls with their operands, its tensors, and the fields of a session."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from mace_core.emit.addresses import Addresses
from mace_core.emit.device import DeviceValues, DeviceView
from mace_core.emit.literals import describe_tensor, write_literal
from mace_core.emit.text import CComment, CIdentifier, Code, CPrefix, CString, shorten
from mace_core.errors import MaceError
from mace_core.ir import State
from mace_core.levels import Level
from mace_core.part import CallsBody, PartLayer
from mace_core.plan import Plan, Run
from mace_core.program import FIELD_TYPES, Call, Kernel

MAX_NAME = 80
"""Characters of a tensor's name in a comment."""

MAX_TABLES = 8
"""Targets whose kernels one model calls: MACE_MAX_TABLES of mace_types.h."""

FALLBACK = "fallback"
"""Prefix of the names of a fallback, which lies in the file of its model."""

INTEGER_BITS: Mapping[str, int] = {"int32_t": 32, "int64_t": 64}


@dataclass(frozen=True)
class KernelTable:
    """The kernels of one target in a library, compiled at each of its levels.

    name: prefix of its symbols and files.  target: the target's name, for people.
    """

    name: CIdentifier
    target: str
    levels: Sequence[Level]
    kernels: Sequence[Kernel]

    @property
    def devices(self) -> list[CString]:
        """Say for each level what runs its kernels."""
        return [CString(f"{self.target}: {level.name}") for level in self.levels]

    @property
    def level_names(self) -> list[CString]:
        """Return the names of the levels, in their order."""
        return [CString(level.name) for level in self.levels]

    @property
    def no_level(self) -> CString:
        """Return the error where MACE_CPU_LEVEL names a level that is not there."""
        names = ", ".join(level.name for level in self.levels)
        problem = "the library or this processor has no such level"
        return CString(f"MACE_CPU_LEVEL: {problem}; the library's levels of {self.target} are {names}")


@dataclass(frozen=True)
class CallValues:
    """What model_body.c.in writes of one kernel call.

    table: the number of the table that holds the kernel.  condition: when it is made; "" for always.
    args: the fields of its arguments.  arguments: the number of the first call with the same ones.
    result: the number of the pointer to what it writes first.
    """

    kernel: CIdentifier
    table: int
    condition: Code
    args_type: CIdentifier
    args: Code
    arguments: int
    pointers: list[Code]
    result: int
    comment: CComment


@dataclass(frozen=True)
class ModelValues:
    """What model_body.c.in writes of one model.

    prefix: of the names of what is static in the file.  is_static: whether the model itself is.
    functions: names of the C functions of calls, with the numbers of their calls.  copies: destination,
    source and bytes of outputs that no call computes.
    device: the engine's plan; None without drivers.
    """

    name: CString
    prefix: Code
    is_static: bool
    has_fallback: bool
    program_symbol: CIdentifier
    weights_symbol: CIdentifier
    copies: list[tuple[Code, Code, int]]
    calls: list[CallValues]
    functions: list[tuple[Code, range]]
    layers: list[Code]
    tables: list[CIdentifier]
    parts: list[Code]
    inputs: list[Code]
    outputs: list[Code]
    states: list[Code]
    state_bytes: int
    arena_bytes: int
    worker_bytes: int
    fast_bytes: int
    weight_bytes: int
    device: DeviceValues | None


@dataclass(frozen=True)
class FilePlace:
    """Where a model stands in a file that it shares with others.

    prefix: of the names of what is static there: FALLBACK for the fallback of the model before it.
    weights_symbol: that of the file of weights.  weights_before: bytes of the others at its beginning.
    """

    prefix: str
    weights_symbol: str
    weights_before: int


class ModelView:
    """Shows a plan as the templates want it.

    tables: those of the library, by target.  shares: where it stands in a file of several models; None: it
    has files of its own.
    """

    def __init__(
        self,
        library: str,
        plan: Plan,
        tables: Mapping[str, KernelTable],
        shares: FilePlace | None = None,
    ) -> None:
        self.plan, self.program = plan, plan.program
        self.name = CPrefix(self.program.name)
        self.is_static = shares is not None and shares.prefix == FALLBACK
        own_place = FilePlace("", f"{library}_{self.name}_weights", 0)
        place = shares or own_place
        self.prefix = Code(f"{CPrefix(place.prefix)}_" if place.prefix else "")
        symbol = f"{FALLBACK}_model" if self.is_static else f"{library}_{self.name}_program"
        self.program_symbol = CIdentifier(symbol)
        self.weights_symbol = CIdentifier(place.weights_symbol)
        targets = dict.fromkeys(part.target for part in plan.parts if isinstance(part.body, CallsBody))
        self.tables = [tables[target] for target in targets]
        if len(self.tables) > MAX_TABLES:
            raise MaceError(
                f"model {self.name!r}",
                f"is computed by {len(self.tables)} targets",
                f"build for at most {MAX_TABLES}",
            )
        self.addresses = Addresses(plan, self.weights_symbol, place.weights_before)
        self.weight_bytes = self.addresses.weight_bytes
        self.arena_bytes = plan.host.bytes
        self.worker_bytes = plan.worker_bytes
        self.interface = [
            *self._describe_ports("inputs"),
            *self._describe_ports("outputs"),
            *self._describe_states(),
        ]
        self.fallback: ModelView | None = None
        self.fallback = (
            ModelView(library, plan.fallback, tables, self.next_place(FALLBACK)) if plan.fallback else None
        )

    def next_place(self, prefix: str) -> FilePlace:
        """Return the place of a model behind this one in its file."""
        return FilePlace(prefix, self.weights_symbol, self.total_weight_bytes)

    @property
    def session_bytes(self) -> Code | None:
        """Return the bytes of a session in one thread; None where only drivers know them."""
        if self.plan.drivers:
            return None
        ports = len(self.plan.inputs) + len(self.plan.outputs)
        data = self.addresses.state_bytes + self.arena_bytes + self.worker_bytes + self.plan.fast.bytes
        return Code(f"MACE_SESSION_BYTES({ports}, {data})")

    @property
    def total_weight_bytes(self) -> int:
        """Bytes of the file of weights, a fallback's included."""
        return self.fallback.weight_bytes if self.fallback else self.weight_bytes

    def _describe_ports(self, side: str) -> Iterator[str]:
        for i, name in enumerate(getattr(self.plan, side)):
            yield f"{side}[{i}]: {self._interface_text(name)}"

    def _describe_states(self) -> Iterator[str]:
        for i, state in enumerate(self.plan.states):
            text = self._interface_text(state.input)
            yield f"states[{i}], kept by the session: {text}, at first {state.start_text}"

    def _interface_text(self, name: str) -> str:
        tensor = self.program.tensors[name]
        shape = " x ".join(map(str, tensor.shape)) or "scalar"
        return f"{shorten(name, MAX_NAME)}, {tensor.dtype.value} {shape}"

    def values(self) -> ModelValues:
        """Return what model_body.c.in reads."""
        tensors, functions = self.program.tensors, self._functions()
        return ModelValues(
            name=CString(self.name),
            prefix=self.prefix,
            is_static=self.is_static,
            has_fallback=self.fallback is not None,
            program_symbol=self.program_symbol,
            weights_symbol=self.weights_symbol,
            copies=list(self._copies()),
            calls=list(self._calls()),
            functions=functions,
            layers=list(self._layers()),
            tables=[table.name for table in self.tables],
            parts=list(self._parts()),
            inputs=[describe_tensor(tensors[n]) for n in self.plan.inputs],
            outputs=[describe_tensor(tensors[n]) for n in self.plan.outputs],
            states=[self._state(state) for state in self.plan.states],
            state_bytes=self.addresses.state_bytes,
            arena_bytes=self.arena_bytes,
            worker_bytes=self.worker_bytes,
            fast_bytes=self.plan.fast.bytes,
            weight_bytes=self.weight_bytes,
            device=self._device_values(functions),
        )

    def weights(self) -> Iterator[bytes]:
        """All constants, each padded to the alignment; made one at a time."""
        yield from self.addresses.weights()
        if self.fallback:
            yield from self.fallback.weights()

    def _calls(self) -> Iterator[CallValues]:
        # Repeated blocks of a network differ in weights alone: their calls share one constant of arguments.
        first_of: dict[tuple[str, str], int] = {}
        for number, (call, table) in enumerate(self._calls_with_tables()):
            values = self._call(call, table)
            arguments = first_of.setdefault((values.args_type, values.args), number)
            yield replace(values, arguments=arguments)

    def _calls_with_tables(self) -> Iterator[tuple[Call, int]]:
        """Yield each call with the number of the table that holds its kernel.

        The program has the parts' calls one after another.
        """
        numbers = {table.target: i for i, table in enumerate(self.tables)}
        calls = iter(self.program.calls)
        for part in self.plan.parts:
            if isinstance(part.body, CallsBody):
                yield from ((next(calls), numbers[part.target]) for _ in part.body.program.calls)

    def _functions(self) -> list[tuple[Code, range]]:
        """Return the C functions of calls, each with the indices of its calls.

        One function computes host parts in a row; a part on a device begins another one.
        """
        if not self.plan.drivers:
            return [(Code(f"{self.prefix}run"), range(len(self.program.calls)))]
        groups = [range(0)]
        for step in self.plan.steps:
            last = groups[-1].stop
            body = self.plan.parts[step.part].body if isinstance(step, Run) else None
            if isinstance(body, CallsBody):
                groups[-1] = range(groups[-1].start, last + len(body.program.calls))
            elif groups[-1]:
                groups.append(range(last, last))
        # The last function also copies outputs that nothing computes.
        if not groups[-1] and not list(self._copies()):
            groups.pop()
        return [(Code(f"calls_{number}"), group) for number, group in enumerate(groups)]

    def _device_values(self, functions: Sequence[tuple[Code, range]]) -> DeviceValues | None:
        if not self.plan.drivers:
            return None
        tensors = chain.from_iterable((*call.reads, *call.writes) for call in self.program.calls)
        touched = {self.program.root(tensor) for tensor in tensors if tensor}
        touched |= {self.program.root(name) for name, _ in self._list_copies()}
        return DeviceView(
            self.plan, self.addresses, [name for name, _ in functions], frozenset(touched)
        ).values()

    def _parts(self) -> Iterator[Code]:
        numbers = {table.target: i for i, table in enumerate(self.tables)}
        for part in self.plan.parts:
            is_called = isinstance(part.body, CallsBody)
            devices = f"{self.tables[numbers[part.target]].name}_devices" if is_called else "NULL"
            yield Code(f"{{{CString(part.name)}, {numbers[part.target] if is_called else -1}, {devices}}}")

    def _call(self, call: Call, table: int) -> CallValues:
        result = self.program.tensors[call.writes[0]]
        read = ", ".join(self._describe(t) for t in call.reads if t)
        fields = [f".{n} = {self._argument(call, n, t)}" for n, t in call.kernel.fields]
        return CallValues(
            kernel=CIdentifier(call.kernel.name),
            table=table,
            condition=self._condition(call, table),
            args_type=CIdentifier(f"{self.tables[table].name}_{call.kernel.name}_args"),
            args=Code(", ".join(fields) or "0"),
            arguments=0,
            pointers=[self.addresses.pointer(t) for t in (*call.reads, *call.writes)],
            result=len(call.reads),
            comment=CComment(
                f"{shorten(call.node, MAX_NAME)}: {read} -> {self._describe(result.name)}",
                *filter(None, [call.proof]),
            ),
        )

    def _condition(self, call: Call, table: int) -> Code:
        """Return when a call is made, as C writes it; "" for always."""
        levels = [i for i, level in enumerate(self.tables[table].levels) if level.name in call.levels]
        return Code(" || ".join(f"level{table} == {i}" for i in levels))

    def _state(self, state: State) -> Code:
        start = self.addresses.start(state)
        offsets = f"{self.addresses.states[state.input]}, {self.addresses.states[state.output]}"
        return Code(f"{{{describe_tensor(self.program.tensors[state.input])}, {start}, {offsets}}}")

    def _layers(self) -> Iterator[Code]:
        """Yield those of host memory, then those of each part that a driver runs, as reports have them."""
        for call in self.program.calls:
            result = self.program.tensors[call.writes[0]]
            yield _describe_layer(PartLayer(result, call.node, call.kernel.name, call.sources))
        for part in self.plan.parts:
            yield from map(_describe_layer, part.layers)

    def _argument(self, call: Call, name: str, ctype: str) -> Code:
        """Return an argument of a call as C writes it.

        MaceError for a number that its type does not hold, as of a huge tensor.
        """
        value = call.args[name]
        bits = INTEGER_BITS.get(FIELD_TYPES.get(ctype.partition("[")[0], ""))
        numbers = value if isinstance(value, tuple) else (value,)
        if bits and not all(-(1 << bits - 1) <= int(number) < 1 << bits - 1 for number in numbers):
            problem = (
                f"kernel {call.kernel.name!r} takes {name!r} as a number of {bits} bits, and it is {value}"
            )
            raise MaceError(f"{self.name}: node {call.node!r}", problem, "make its tensors smaller")
        return write_literal(value, ctype)

    def _describe(self, name: str) -> str:
        tensor = self.program.tensors.get(name)
        return (
            f"{shorten(name, MAX_NAME)}:{tensor.dtype.value}{list(tensor.shape)}"
            if tensor
            else shorten(name, MAX_NAME)
        )

    def _copies(self) -> Iterator[tuple[Code, Code, int]]:
        """Yield to where, from where and how many bytes of the outputs that no call writes."""
        for name, occurrence in self._list_copies():
            yield (
                self.addresses.output(name, occurrence),
                self.addresses.pointer(name),
                self.program.tensors[name].bytes,
            )

    def _list_copies(self) -> Iterator[tuple[str, int]]:
        """Yield the outputs that no call writes: an input, a constant, or an earlier output.

        With each stands how many outputs of its name are before it.
        """
        owned = {*self.program.inputs, *self.program.weights}
        outputs = self.program.outputs
        for position, name in enumerate(outputs):
            if self.program.root(name) in owned and self.program.tensors[name].bytes:
                yield name, outputs[:position].count(name)
            owned.add(self.program.root(name))


def _describe_layer(layer: PartLayer) -> Code:
    names = [CString(name) for name in (layer.node, layer.kernel, ",".join(layer.sources))]
    return Code(f"{{{', '.join(names)}, {describe_tensor(layer.result)}}}")
