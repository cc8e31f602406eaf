"""Plans a model: the order of its parts, transfers between memory spaces, and where every tensor lies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from types import MappingProxyType
from typing import TYPE_CHECKING

from mace_core.errors import MaceError, PluginError
from mace_core.fast_memory import NO_ARENA, divide_arena
from mace_core.ir import DType, Graph, State, Tensor
from mace_core.memory import Arena, Span, Touch, arena, arrange, touches_of
from mace_core.part import HOST, BlobBody, CallsBody, FastMemory, MemorySpace, Part, PartPort, ProjectBody
from mace_core.program import Program, join, rename_apart

if TYPE_CHECKING:
    from mace_core.levels import Level
    from mace_core.selection import Selection


@dataclass(frozen=True)
class Transfer:
    """Makes one tensor available in another memory space; it never changes the order of its elements.

    source, destination: names of spaces.  size: bytes that are copied.
    """

    tensor: str
    source: str
    destination: str
    size: int


@dataclass(frozen=True)
class Run:
    """Runs one part; part: its index in `Plan.parts`."""

    part: int


Step = Run | Transfer


@dataclass(frozen=True)
class Plan:
    """Orders a whole model.

    parts: in the order of their first step; the tensors of host parts are named apart, so that all names are
    unique in the model.
    program: the calls of all host parts one after another, with the tensors and weights of the whole model,
    and its inputs and outputs.
    steps: what happens in a run, in order.
    spaces: those that parts use, by name; host memory is always among them.  arenas: where tensors lie in
    each.
    states: tensors of the program's inputs and outputs that sessions keep from run to run; the application
    sees the others.
    fallback: the same model without devices, with the same inputs and outputs; None where none was asked for.
    fast: where tensors lie in fast memory, see `FastMemory`.
    """

    parts: tuple[Part, ...]
    program: Program
    steps: tuple[Step, ...]
    spaces: Mapping[str, MemorySpace]
    arenas: Mapping[str, Arena]
    states: tuple[State, ...] = ()
    fallback: Plan | None = None
    fast: Arena = NO_ARENA

    @property
    def inputs(self) -> tuple[str, ...]:
        """The tensors that the application gives."""
        owned = {state.input for state in self.states}
        return tuple(name for name in self.program.inputs if name not in owned)

    @property
    def outputs(self) -> tuple[str, ...]:
        """The tensors that the application gets."""
        owned = {state.output for state in self.states}
        return tuple(name for name in self.program.outputs if name not in owned)

    @property
    def worker_bytes(self) -> int:
        """Bytes of working memory that the kernels of host parts need for each worker."""
        return HOST.round_up(max((call.scratch for call in self.program.calls), default=0))

    @property
    def weight_bytes(self) -> int:
        """Bytes of all constants: weights of kernels, nonzero start values of states, data of drivers."""
        sizes = [weight.bytes for weight in self.program.weights.values()]
        sizes += [state.start.nbytes for state in self.states if state.is_stored]
        for part in self.parts:
            if isinstance(part.body, BlobBody):
                sizes += [len(part.body.code), len(part.body.weights), *map(len, part.body.compiled)]
        return sum(map(HOST.round_up, sizes))

    @property
    def name(self) -> str:
        """The model's name."""
        return self.program.name

    @property
    def host(self) -> Arena:
        """The offsets of tensors in host memory."""
        return self.arenas[HOST.name]

    @property
    def transfers(self) -> tuple[Transfer, ...]:
        """The copies between memory spaces, in order."""
        return tuple(step for step in self.steps if isinstance(step, Transfer))

    @property
    def selections(self) -> tuple[Selection, ...]:
        """What was chosen for nodes that several candidates could compute."""
        return (*self.program.selections, *chain.from_iterable(part.selections for part in self.parts))

    @property
    def drivers(self) -> tuple[str, ...]:
        """The C symbols of the drivers that run parts of the model, each once."""
        return tuple(dict.fromkeys(part.driver for part in self.parts if part.driver))


def make_plan(graph: Graph, parts: Sequence[Part]) -> Plan:
    """Order the parts of a graph, which are given in an order in which they can run, and place all tensors.

    PluginError where the parts do not compute the graph together; MaceError where a space is too small.
    """
    # Before anything is planned: a plugin's contradiction would otherwise end in an error of the memory plan.
    check_parts(graph, parts)
    named = _name_apart(graph, parts)
    program = join(graph, [part.body.program for part in named if isinstance(part.body, CallsBody)])
    program = replace(program, tensors={**_device_tensors(named), **program.tensors})
    steps = tuple(_steps(graph, named))
    spaces = {HOST.name: HOST} | {part.space.name: part.space for part in named}
    arenas = {name: _device_arena(space, named, steps) for name, space in spaces.items() if name != HOST.name}
    fast, arenas[HOST.name] = _host_arenas(program, named, steps)
    # Checked after the plan, because only its reuse of memory says what a model really needs.
    for name, space in spaces.items():
        if space.capacity is not None and arenas[name].bytes > space.capacity:
            problem = f"needs {arenas[name].bytes} bytes of {name!r} memory, which has {space.capacity}"
            raise MaceError(
                f"model {graph.name!r}", problem, "make the model smaller, or give fewer nodes to the device"
            )
    by_name = MappingProxyType(spaces), MappingProxyType(arenas)
    return Plan(tuple(named), program, steps, *by_name, graph.states, fast=fast)


def plan_calls(program: Program, levels: tuple[Level, ...] = (), target: str = "cpu") -> Plan:
    """Return the plan of a single program, which was not made by compiling a graph."""
    ports = [
        tuple(PartPort(program.tensors[name]) for name in names)
        for names in (program.inputs, program.outputs)
    ]
    part = Part(f"{target}0", target, ports[0], ports[1], CallsBody(program, levels))
    arenas = {HOST.name: arena(program)}
    return Plan((part,), program, (Run(0),), MappingProxyType({HOST.name: HOST}), MappingProxyType(arenas))


def check_parts(graph: Graph, parts: Sequence[Part]) -> None:
    """Raise PluginError for parts that contradict each other, or read what no part before them computes."""
    known = {*graph.inputs, *graph.weights}
    spaces: dict[str, Part] = {}
    names: set[str] = set()
    for part in parts:
        place = f"target {part.target!r}: part {part.name!r}"
        if part.name in names:
            raise PluginError(place, "has the name of another part", "name parts after their regions")
        names.add(part.name)
        other = spaces.setdefault(part.space.name, part)
        if other.space != part.space:
            other_part = f"part {other.name!r} of target {other.target!r}"
            problem = f"describes the space {part.space.name!r} differently than {other_part}"
            raise PluginError(place, problem, "let both return one MemorySpace, or name theirs differently")
        if unknown := [port.tensor.name for port in part.inputs if port.tensor.name not in known]:
            raise PluginError(
                place,
                f"reads {', '.join(unknown)}, which nothing before it computes",
                "return the ports of its region",
            )
        known.update(port.tensor.name for port in part.outputs)
    if lost := [name for name in graph.outputs if name not in known]:
        raise PluginError(
            f"model {graph.name!r}",
            f"no part computes {', '.join(lost)}",
            "return every output of a region as a port",
        )


def _name_apart(graph: Graph, parts: Sequence[Part]) -> list[Part]:
    """Return the parts, the programs of host parts with names that no other part has for something else."""
    bodies = [part.body for part in parts if isinstance(part.body, CallsBody)]
    renamed = iter(rename_apart(graph, [body.program for body in bodies]))
    return [
        replace(part, body=replace(part.body, program=next(renamed)))
        if isinstance(part.body, CallsBody)
        else part
        for part in parts
    ]


def _device_tensors(parts: Iterable[Part]) -> dict[str, Tensor]:
    """Return the tensors that parts with drivers read and write, and their scratch in host memory."""
    tensors: dict[str, Tensor] = {}
    for part in parts:
        if part.driver:
            tensors |= {port.tensor.name: port.tensor for port in (*part.inputs, *part.outputs)}
            if part.scratch and part.space == HOST:
                tensors[scratch_name(part)] = Tensor(scratch_name(part), DType.U8, (part.scratch,))
    return tensors


def scratch_name(part: Part) -> str:
    """Return the name under which an arena holds the scratch of a part."""
    return f"{part.name}.scratch"


def _steps(graph: Graph, parts: Sequence[Part]) -> Iterator[Step]:
    """Yield each part behind the transfers that bring its inputs to it.

    At the end, those that bring the outputs to the application.

    A tensor that is in a space stays there, so that two parts of one space share it without a copy.
    """
    homes: dict[str, list[str]] = {name: [HOST.name] for name in (*graph.inputs, *graph.weights)}
    for number, part in enumerate(parts):
        for port in part.inputs:
            yield from _bring(port, homes)
        yield Run(number)
        for port in part.outputs:
            homes[port.tensor.name] = [port.space.name]
    for name in graph.outputs:
        yield from _bring(PartPort(graph.tensors[name]), homes)


def _bring(port: PartPort, homes: dict[str, list[str]]) -> Iterator[Transfer]:
    """Yield the transfers that make a tensor available to a port, through host memory between two devices."""
    name, destination = port.tensor.name, port.space.name
    # Drivers copy between their own space and host memory only, so a tensor of another device goes through
    # the host, where it then stays for further readers.
    for space in (HOST.name, destination):
        here = homes[name]
        if destination not in here and space not in here:
            source = HOST.name if HOST.name in here else here[0]
            yield Transfer(name, source, space, port.tensor.bytes)
            here.append(space)


def _host_arenas(program: Program, parts: Sequence[Part], steps: Sequence[Step]) -> tuple[Arena, Arena]:
    """Plan the memory of the host: the arena of fast memory, and the rest.

    Nothing lies in fast memory where no part has any, or parts have different ones: a session gets one.
    """
    touches: list[Touch] = []
    others: list[Touch] = []
    memories: dict[str, FastMemory] = {}
    for step in steps:
        body = None if isinstance(step, Transfer) else parts[step.part].body
        effects = _host_side(step) if isinstance(step, Transfer) else _host_touches(parts[step.part])
        touches += effects
        if isinstance(body, CallsBody) and body.fast:
            memories[body.fast.space.name] = body.fast
        else:
            others += effects
    if len(memories) != 1:
        return NO_ARENA, arena(program, touches)
    fixed = chain.from_iterable((*touch.reads, *touch.writes) for touch in others)
    (memory,) = memories.values()
    return divide_arena(program, touches, memory, filter(None, fixed))


def _host_side(transfer: Transfer) -> list[Touch]:
    """Return the effects of a transfer on host memory."""
    if transfer.source == HOST.name:
        return [Touch((transfer.tensor,), ())]
    return [Touch((), (transfer.tensor,))] if transfer.destination == HOST.name else []


def _host_touches(part: Part) -> list[Touch]:
    """Return the effects of a part on host memory, call by call if core knows its calls."""
    if isinstance(part.body, CallsBody):
        return touches_of(part.body.program, part.target)
    if isinstance(part.body, ProjectBody):
        return []
    reads = tuple(port.tensor.name for port in part.inputs if port.space == HOST)
    writes = tuple(port.tensor.name for port in part.outputs if port.space == HOST)
    scratch = (scratch_name(part),) if part.scratch and part.space == HOST else ()
    return [Touch(reads, (*writes, *scratch))] if reads or writes or scratch else []


def _device_arena(space: MemorySpace, parts: Sequence[Part], steps: Sequence[Step]) -> Arena:
    """Plan the memory of a device; a tensor lives from the step that writes it to its last reader."""
    sizes: dict[str, int] = {}
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for number, step in enumerate(steps):
        for name, size in _device_uses(space, parts, step):
            # A tensor may be a port of several parts, and each may want other bytes behind it.
            sizes[name] = max(sizes.get(name, 0), space.round_up(size))
            first.setdefault(name, number)
            last[name] = number
    arena_of_space = arrange([Span(name, sizes[name], first[name], last[name]) for name in first])
    return (
        replace(arena_of_space, bytes=arena_of_space.bytes + space.round_up(space.slack))
        if space.slack
        else arena_of_space
    )


def _device_uses(space: MemorySpace, parts: Sequence[Part], step: Step) -> Iterator[tuple[str, int]]:
    """Yield the tensors of a space that a step touches, each with its bytes there."""
    if isinstance(step, Transfer):
        if space.name in (step.source, step.destination):
            yield step.tensor, step.size
        return
    part = parts[step.part]
    for port in (*part.inputs, *part.outputs):
        if port.space.name == space.name:
            yield port.tensor.name, port.bytes
    if part.scratch and part.space.name == space.name:
        yield scratch_name(part), part.scratch
