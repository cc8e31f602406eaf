"""The tables that the engine reads of a plan with drivers: devices, spaces, payloads, steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mace_core.emit.addresses import Addresses
from mace_core.emit.text import CIdentifier, Code, CString
from mace_core.errors import PluginError
from mace_core.part import HOST, BlobBody, BufferKind, CallsBody, MemorySpace, Part, PartPort
from mace_core.plan import Plan, Run, Transfer, scratch_name


@dataclass(frozen=True)
class TaskValues:
    """What model_body.c.in writes of one part that a driver runs, a `mace_task` and its `mace_payload`.

    part, device: their numbers.  inputs, outputs: counts.
    code, weights: offsets in the weights of the library.
    layer, layers: number of its first layer among the model's, and how many it has.
    compiled: offset and bytes of what devices compiled.
    model_ports: by tensor, the model's port that it is, if it lies in a space and buffers of the device can
    take its place; -1 for others. Empty where all are -1.
    """

    part: int
    device: int
    inputs: int
    outputs: int
    code: int
    code_bytes: int
    weights: int
    weight_bytes: int
    built_by: CString
    built_for: CString
    digest: CString
    needs: list[Code]
    scratch: Code
    places: list[Code]
    layer: int
    layers: int
    compiled: list[tuple[int, int]]
    model_ports: list[int]


@dataclass(frozen=True)
class DeviceValues:
    """What model_body.c.in writes of the engine's plan.

    host_ports: for each input and output, 1 where its address is needed; 2 where only copies to or from a
    device need it, which no buffer of the device needs.
    """

    drivers: list[CIdentifier]
    spaces: list[Code]
    tasks: list[TaskValues]
    steps: list[Code]
    host_ports: list[int]


class DeviceView:
    """Shows the parts of a plan that drivers run as model_body.c.in writes them.

    functions: names of the C functions of kernel calls, one for each group of host parts that no other step
    interrupts.
    touched: the tensors that those functions read or write.
    """

    def __init__(
        self, plan: Plan, addresses: Addresses, functions: Sequence[Code], touched: frozenset[str]
    ) -> None:
        self.plan, self.addresses, self.functions, self.touched = plan, addresses, functions, touched
        self.tasks = [part for part in plan.parts if isinstance(part.body, BlobBody)]

    def values(self) -> DeviceValues:
        """Return what model_body.c.in reads."""
        return DeviceValues(
            drivers=[CIdentifier(driver) for driver in self.plan.drivers],
            spaces=[self._space(name) for name in self.addresses.spaces],
            tasks=[self._task(part) for part in self.tasks],
            steps=list(self._steps()),
            host_ports=[self._find_use_by_host(name) for name in (*self.plan.inputs, *self.plan.outputs)],
        )

    def _space(self, name: str) -> Code:
        drivers = list(dict.fromkeys(part.driver for part in self.tasks if part.space.name == name))
        if len(drivers) != 1:
            problem = f"is used by the drivers {', '.join(drivers)}"
            raise PluginError(f"memory space {name!r}", problem, "name the space of each differently")
        need = _write_need(self.plan.spaces[name], self.plan.arenas[name].bytes)
        return Code(f"{{{CString(name)}, {self.plan.drivers.index(drivers[0])}, {need}}}")

    def _task(self, part: Part) -> TaskValues:
        body = part.body
        assert isinstance(body, BlobBody)
        ports = (*part.inputs, *part.outputs)
        places = [self.addresses.place(port.tensor.name, port.space.name) for port in ports]
        if part.scratch:
            places.append(self.addresses.place(scratch_name(part), part.space.name))
        code, weights = self.addresses.blobs[part.name]
        return TaskValues(
            part=self.plan.parts.index(part),
            device=self.plan.drivers.index(part.driver),
            inputs=len(part.inputs),
            outputs=len(part.outputs),
            code=code,
            code_bytes=len(body.code),
            weights=weights,
            weight_bytes=len(body.weights),
            built_by=CString(body.built_by),
            built_for=CString(body.built_for),
            digest=CString(body.digest),
            needs=[_write_need(port.space, port.bytes, port.kinds) for port in ports],
            scratch=_write_need(part.space, part.scratch),
            places=places,
            layer=self._count_layers_before(part),
            layers=len(part.layers),
            compiled=list(zip(self.addresses.compiled[part.name], map(len, body.compiled), strict=True)),
            model_ports=self._list_model_ports(ports),
        )

    def _list_model_ports(self, ports: Sequence[PartPort]) -> list[int]:
        """Return the model's port of each tensor in a space; nothing if there is none."""
        roots = [self.plan.program.root(name) for name in (*self.plan.inputs, *self.plan.outputs)]
        numbers = []
        for port in ports:
            root = self.plan.program.root(port.tensor.name)
            is_remote = port.kinds and port.space.name != HOST.name and root in roots
            numbers.append(roots.index(root) if is_remote else -1)
        return numbers if max(numbers, default=-1) >= 0 else []

    def _count_layers_before(self, part: Part) -> int:
        """Count the model's layers before those of a part: the calls in host memory come first."""
        earlier = self.tasks[: self.tasks.index(part)]
        return len(self.plan.program.calls) + sum(len(other.layers) for other in earlier)

    def _steps(self) -> Iterator[Code]:
        """Yield each step: calls, the number of a task, or a copy."""
        functions = iter(self.functions)
        is_open = False  # whether calls of host parts wait for the step that interrupts them
        for step in self.plan.steps:
            body = self.plan.parts[step.part].body if isinstance(step, Run) else None
            if isinstance(body, CallsBody):
                is_open = is_open or bool(body.program.calls)
                continue
            if is_open:
                yield _write_calls(next(functions))
                is_open = False
            yield (
                self._copy(step)
                if isinstance(step, Transfer)
                else Code(f"{{.task = {self.tasks.index(self.plan.parts[step.part])}}}")
            )
        for function in functions:  # the last group, or what only copies outputs
            yield _write_calls(function)

    def _copy(self, transfer: Transfer) -> Code:
        places = [
            self.addresses.place(transfer.tensor, space) for space in (transfer.destination, transfer.source)
        ]
        return Code(f"{{.task = -1, .places = {{{', '.join(places)}}}, .bytes = {transfer.size}}}")

    def _find_use_by_host(self, port: str) -> int:
        """Return 0 where nothing needs the address of a port, 2 where only copies do that may be left out."""
        root = self.plan.program.root(port)
        copies = [t for t in self.plan.transfers if self.plan.program.root(t.tensor) == root]
        # An output that goes on to another device is computed on the host, or by a device before it.
        is_read_back = port in self.plan.outputs and any(t.source == HOST.name for t in copies)
        if root in self.touched or is_read_back:
            return 1
        return 2 if copies else 0


def _write_calls(function: Code) -> Code:
    return Code(f"{{.calls = {function}}}")


def _write_need(space: MemorySpace, size: int, kinds: Sequence[BufferKind] = ()) -> Code:
    slack = space.slack if space.name != HOST.name else 0
    bits = " | ".join(f"1u << {kind.value}" for kind in kinds) or "0"
    return Code(f"{{sizeof(mace_need), {bits}, {space.alignment}, {space.granule}, {slack}, {size}}}")
