"""Plans: transfers exactly where a tensor changes its memory space, an arena for each space, names apart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from mace_core.api import BuildConfig, Region
from mace_core.deployment import Model
from mace_core.errors import MaceError, PluginError
from mace_core.graph_builder import Builder
from mace_core.ir import DType, Graph, Node, State, Tensor
from mace_core.memory import Touch, arena
from mace_core.part import HOST, BlobBody, MemorySpace, Part, PartPort, ProjectBody
from mace_core.partition import partition
from mace_core.plan import (
    Plan,
    Run,
    Transfer,
    _device_arena,
    _device_uses,
    _host_side,
    _host_touches,
    make_plan,
    scratch_name,
)
from mace_core.program import join
from mace_core.refusal import Refusal
from mace_core.testing.separate_calls import SeparateCalls
from mace_target_cpu import Cpu

ISLAND = MemorySpace("island", alignment=256, granule=256)
CONFIG = BuildConfig("host", "host", Model("m", ()))


class SeparateCpu(SeparateCalls, Cpu):
    """The CPU target without fused calls."""


class Device(Cpu):
    """Computes some ops in a memory space of its own."""

    def __init__(self, name: str, ops: set[str], space: MemorySpace, scratch: int = 0) -> None:
        self.name = name  # type: ignore[misc]  # an instance stands for a class of its own here
        self.ops, self.space, self.scratch = ops, space, scratch

    def refuses(self, node: Node, graph: Graph) -> Refusal | None:
        return None if node.op.name in self.ops else Refusal("unsupported-op", f"no {node.op.name} here")

    def compile(self, region: Region, config: BuildConfig) -> Part:
        inputs, outputs = ([PartPort(port.tensor, self.space) for port in ports] for ports in region.ports())
        body = BlobBody(b"code")
        return Part(
            region.name, self.name, tuple(inputs), tuple(outputs), body, f"{self.name}_driver", self.scratch
        )


def chain(*ops: str) -> Graph:
    new = Builder("m")
    last = new.input("x", DType.F32, (1, 100))
    for number, op in enumerate(ops):
        last = new.one(op, [last], outputs=[f"t{number}"])
    return new.finish([last])


def plan(graph: Graph, *targets: Cpu) -> Plan:
    regions = partition(graph, targets).regions
    return make_plan(graph, [region.target.compile(region, CONFIG) for region in regions])


def steps(made: Plan) -> list[object]:
    return [
        made.parts[s.part].name if isinstance(s, Run) else (s.tensor, s.source, s.destination)
        for s in made.steps
    ]


def test_a_model_of_cpu_parts_has_one_part_and_the_arena_of_its_program() -> None:
    graph = chain("Exp", "Tanh", "Relu")
    result = plan(graph, Cpu())
    assert steps(result) == ["cpu0"]
    assert result.transfers == ()
    assert result.drivers == ()
    assert result.host == arena(join(graph, [Cpu().lower(graph)]))


def test_a_device_between_two_regions_of_the_cpu_gets_two_transfers() -> None:
    result = plan(chain("Exp", "Relu", "Tanh"), Device("island", {"Relu"}, ISLAND), Cpu())
    assert steps(result) == ["cpu0", ("t0", "host", "island"), "island1", ("t1", "island", "host"), "cpu2"]
    assert result.drivers == ("island_driver",)
    assert {step.size for step in result.transfers} == {400}
    assert result.arenas["island"].bytes == result.arenas["island"].bound == 2 * 512


def test_inputs_and_outputs_of_the_application_are_transferred_too() -> None:
    result = plan(chain("Relu"), Device("island", {"Relu"}, ISLAND), Cpu())
    assert steps(result) == [("x", "host", "island"), "island0", ("t0", "island", "host")]
    assert result.host.bytes == 0


def test_parts_of_one_space_share_tensors_without_a_copy() -> None:
    new = Builder("m")
    x = new.input("x", DType.F32, (1, 100))
    a = new.one("Relu", [x], outputs=["a"])
    b = new.one("Abs", [a], outputs=["b"])
    c = new.one("Relu", [b], outputs=["c"])
    graph = new.finish([new.one("Add", [c, a], outputs=["y"])])
    space = ISLAND
    result = plan(graph, Device("first", {"Relu", "Add"}, space), Device("second", {"Abs"}, space), Cpu())
    assert [step for step in steps(result) if isinstance(step, tuple)] == [
        ("x", "host", "island"),
        ("y", "island", "host"),
    ]


def test_between_two_devices_a_tensor_goes_through_host_memory() -> None:
    other = MemorySpace("other")
    result = plan(
        chain("Relu", "Abs"), Device("island", {"Relu"}, ISLAND), Device("remote", {"Abs"}, other), Cpu()
    )
    assert steps(result)[1:4] == ["island0", ("t0", "island", "host"), ("t0", "host", "other")]
    assert result.host.bytes == 448  # t0 on its way, in steps of 64 bytes


def test_a_transferred_tensor_has_host_bytes_that_nothing_else_uses_meanwhile() -> None:
    """What waits in host memory for the CPU must survive what the device's other tensors do there."""
    new = Builder("m")
    x = new.input("x", DType.F32, (1, 100))
    a = new.one("Relu", [x], outputs=["a"])
    b = new.one("Exp", [x], outputs=["b"])
    graph = new.finish([new.one("Add", [a, b], outputs=["y"])])
    result = plan(graph, Device("island", {"Relu"}, ISLAND), Cpu())
    offsets = result.host.offsets
    if {"a", "b"} <= set(offsets):
        assert abs(offsets["a"] - offsets["b"]) >= 400
    assert result.host.bytes >= 448


def test_scratch_and_slack_of_a_device_are_in_its_arena() -> None:
    space = replace(ISLAND, slack=100)
    result = plan(chain("Relu"), Device("island", {"Relu"}, space, scratch=1000), Cpu())
    assert scratch_name(result.parts[0]) in result.arenas["island"].offsets
    assert result.arenas["island"].bytes == 2 * 512 + 1024 + 256


def test_a_space_that_is_too_small_is_one_message() -> None:
    with pytest.raises(
        MaceError,
        match="model 'm': needs 1024 bytes of 'island' memory, which has 1000; make the model smaller",
    ):
        plan(chain("Relu"), Device("island", {"Relu"}, replace(ISLAND, capacity=1000)), Cpu())


@pytest.mark.parametrize("seed", range(20))
def test_every_part_finds_its_inputs_where_it_wants_them(seed: int) -> None:
    """Random graphs over three spaces: replaying the steps never reads a tensor from a space where it is not."""
    rng = np.random.default_rng(seed)
    new = Builder("m")
    results = [new.input("x", DType.F32, (1, 100))]
    for _ in range(12):
        op = str(rng.choice(["Relu", "Abs", "Exp", "Add"]))
        operands = [results[int(i)] for i in rng.integers(0, len(results), 2 if op == "Add" else 1)]
        results.append(new.one(op, operands))
    graph = new.finish(results[-2:])
    targets = (Device("island", {"Relu"}, ISLAND), Device("remote", {"Abs"}, MemorySpace("remote")), Cpu())
    result = plan(graph, *targets)
    at: dict[str, set[str]] = {name: {HOST.name} for name in graph.inputs}
    for step in result.steps:
        if isinstance(step, Transfer):
            assert step.source in at[step.tensor]
            assert step.destination not in at[step.tensor], "a copy of what is there already"
            at[step.tensor].add(step.destination)
            continue
        part = result.parts[step.part]
        assert all(port.space.name in at[port.tensor.name] for port in part.inputs)
        for port in part.outputs:
            at[port.tensor.name] = {port.space.name}
    assert all(HOST.name in at[name] for name in graph.outputs)


def test_inner_names_of_two_parts_are_kept_apart() -> None:
    """Two regions that each make a weight or a temporary of one name must not read each other's."""
    new = Builder("m")
    x = new.input("x", DType.F32, (1, 4))
    w = new.weight("w", np.eye(4, dtype=np.float32))
    a = new.one("MatMul", [x, w], outputs=["a"])
    b = new.one("Relu", [a], outputs=["b"])
    graph = new.finish([new.one("MatMul", [b, w], outputs=["y"])])
    result = plan(graph, Device("island", {"Relu"}, ISLAND), Cpu())
    reads = [name for call in result.program.calls for name in call.reads]
    assert len(result.program.weights) == len({name for name in reads if name in result.program.weights})
    assert len(result.program.weights) == 2


def broken(graph: Graph, change: Mapping[str, object]) -> Part:
    region = partition(graph, (Cpu(),)).regions[0]
    return replace(Cpu().compile(region, CONFIG), **change)  # type: ignore[arg-type]


def test_parts_that_do_not_compute_the_graph_are_faults_of_their_target() -> None:
    graph = chain("Relu")
    stranger = PartPort(replace(graph.tensors["x"], name="stranger"))
    with pytest.raises(
        PluginError, match="target 'cpu': part 'cpu0': reads stranger, which nothing before it computes"
    ):
        make_plan(graph, [broken(graph, {"inputs": (stranger,)})])
    with pytest.raises(PluginError, match="model 'm': no part computes t0"):
        make_plan(graph, [broken(graph, {"outputs": ()})])
    part = broken(graph, {})
    with pytest.raises(PluginError, match="has the name of another part"):
        make_plan(graph, [part, part])


def test_two_descriptions_of_one_space_are_refused() -> None:
    with pytest.raises(
        PluginError, match="describes the space 'island' differently than part 'island0' of target 'island'"
    ):
        plan(
            chain("Relu", "Abs"),
            Device("island", {"Relu"}, ISLAND),
            Device("other", {"Abs"}, replace(ISLAND, slack=1)),
            Cpu(),
        )


def blob(scratch: int = 0, **ports: tuple[MemorySpace, int]) -> Part:
    """Return a part that a driver runs: inputs are named x..., outputs y...; each port asks for the given bytes in its memory space."""
    results = {
        name: PartPort(Tensor(name, DType.U8, (100,)), where, size) for name, (where, size) in ports.items()
    }
    inputs, outputs = (tuple(p for n, p in results.items() if n.startswith(first)) for first in "xy")
    return Part("p", "npu", inputs, outputs, BlobBody(b"c" * 65, b"w"), "driver", scratch)


def test_effects_on_host_memory() -> None:
    """Transfers, and parts whose contents core does not know, have these costs."""
    assert _host_side(Transfer("t", "host", "island", 8)) == [Touch(("t",), ())]
    assert _host_side(Transfer("t", "island", "host", 8)) == [Touch((), ("t",))]
    assert _host_side(Transfer("t", "island", "lake", 8)) == []
    here, there = (HOST, 0), (ISLAND, 0)
    assert _host_touches(blob(7, x=here, x2=here, y=here)) == [Touch(("x", "x2"), ("y", "p.scratch"))]
    assert _host_touches(blob(0, x=here, y=here)) == [Touch(("x",), ("y",))]
    assert _host_touches(blob(7, x=there, y=there)) == []
    assert _host_touches(blob(7, x=here, y=there)) == [Touch(("x",), ())]
    assert _host_touches(blob(7, x=there, y=here)) == [Touch((), ("y",))]
    assert _host_touches(blob(7)) == [Touch((), ("p.scratch",))]
    assert _host_touches(replace(blob(0, x=here, y=here), body=ProjectBody({}), driver="")) == []


def test_uses_of_device_memory() -> None:
    part = blob(7, x=(ISLAND, 300), x2=(HOST, 0), y=(ISLAND, 0))
    assert list(_device_uses(ISLAND, [part], Run(0))) == [("x", 300), ("y", 100), ("p.scratch", 7)]
    assert list(_device_uses(HOST, [part], Run(0))) == [("x2", 100)]
    assert list(_device_uses(ISLAND, [replace(part, scratch=0)], Run(0))) == [("x", 300), ("y", 100)]
    for source, destination, uses in (("host", "island", 1), ("island", "host", 1), ("host", "lake", 0)):
        step = Transfer("t", source, destination, 8)
        assert list(_device_uses(ISLAND, [part], step)) == [("t", 8)] * uses


def test_the_arena_of_a_device() -> None:
    """A tensor lives from its first step to its last, with the most bytes that a port asks for."""
    first = blob(x=(ISLAND, 0), y=(ISLAND, 257))
    second = blob(x2=(ISLAND, 0), y=(ISLAND, 0))
    result = _device_arena(ISLAND, [first, second], [Run(0), Run(1)])
    assert (result.offsets, result.bytes) == ({"x": 512, "y": 0, "x2": 512}, 768)
    assert _device_arena(replace(ISLAND, slack=1), [first, second], [Run(0), Run(1)]).bytes == 1024
    assert _device_arena(ISLAND, [], []).bytes == 0


def test_a_space_may_be_filled_to_its_capacity() -> None:
    full = plan(chain("Relu"), Device("island", {"Relu"}, replace(ISLAND, capacity=1024)), Cpu())
    assert full.arenas["island"].bytes == 1024
    with pytest.raises(MaceError, match="needs 1024 bytes of 'island' memory, which has 1023"):
        plan(chain("Relu"), Device("island", {"Relu"}, replace(ISLAND, capacity=1023)), Cpu())


def test_sizes_and_names_of_a_plan() -> None:
    """States are neither inputs nor outputs; zeros need no bytes; each size is rounded up to 64."""
    result = plan(chain("Relu", "Abs"), SeparateCpu())
    assert (result.worker_bytes, result.weight_bytes, result.drivers) == (0, 0, ())
    calls = [replace(call, scratch=size) for call, size in zip(result.program.calls, (65, 3), strict=True)]
    states = (State("x", result.outputs[0], np.ones(20, np.float32)), State("", "", np.zeros(5, np.float32)))
    parts = (*result.parts, blob(), blob())
    changed = replace(result, program=replace(result.program, calls=tuple(calls)), states=states, parts=parts)
    assert changed.worker_bytes == 128
    assert changed.weight_bytes == 128 + 2 * (128 + 64)
    assert (changed.inputs, changed.outputs, changed.drivers) == ((), (), ("driver",))
    assert (result.inputs, result.outputs) == (("x",), result.program.outputs)
