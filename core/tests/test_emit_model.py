"""What the templates read of a plan: addresses, steps of the engine, tasks of drivers."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from importlib.resources import files

import numpy as np
import pytest

from mace_core.api import BuildConfig, Refusal, Region
from mace_core.deployment import Model
from mace_core.emit.literals import write_literal
from mace_core.emit.model import MAX_TABLES, KernelTable, ModelView
from mace_core.emit.text import CIdentifier
from mace_core.errors import MaceError, PluginError
from mace_core.graph_builder import Builder
from mace_core.ir import DType, Graph, Node
from mace_core.levels import Level
from mace_core.part import BlobBody, BufferKind, CallsBody, MemorySpace, Part, PartPort
from mace_core.partition import partition
from mace_core.plan import Plan, make_plan
from mace_core.testing.separate_calls import SeparateCalls
from mace_target_cpu import Cpu

ISLAND = MemorySpace("island", alignment=128, granule=256, slack=32)
TEMPLATE = files("mace_core") / "SConstruct"
CODE, WEIGHTS = b"code" * 20, b"w" * 70
BASE = Level("base", (), "", TEMPLATE)


class SeparateCpu(SeparateCalls, Cpu):
    """The CPU target without fused calls."""


class Island(Cpu):
    """Computes Relu in a memory space of its own, or in host memory, where it imports buffers."""

    name, device = "island", "island"

    def __init__(
        self, space: MemorySpace = ISLAND, kinds: tuple[BufferKind, ...] = (), driver: str = "acme"
    ) -> None:
        self.space, self.kinds, self.driver = space, kinds, driver

    def refuses(self, node: Node, graph: Graph) -> Refusal | None:
        return None if node.op.name == "Relu" else Refusal("unsupported-op", "no", "")

    def compile(self, region: Region, config: BuildConfig) -> Part:
        inputs, outputs = (
            tuple(PartPort(port.tensor, self.space, kinds=self.kinds) for port in ports)
            for ports in region.ports()
        )
        body = BlobBody(CODE, WEIGHTS, "tool 1", "v2")
        return Part(region.name, self.name, inputs, outputs, body, self.driver, 1000)


def plan(graph: Graph, *targets: Cpu) -> Plan:
    config = BuildConfig("host", "host", Model("m", ()))
    regions = partition(graph, (*targets, SeparateCpu())).regions
    return make_plan(graph, [region.target.compile(region, config) for region in regions])


def view(made: Plan, base: ModelView | None = None) -> ModelView:
    return ModelView("lib", made, {"cpu": KernelTable(CIdentifier("mk"), "cpu", (BASE,), ())}, base)


def chain(*ops: str) -> Graph:
    new = Builder("m")
    last = new.input("x", DType.F32, (1, 100))
    for number, op in enumerate(ops):
        last = new.one(op, [last], outputs=[f"t{number}"])
    return new.finish([last])


def test_a_device_between_kernel_calls() -> None:
    shown = view(plan(chain("Exp", "Relu", "Exp", "Relu"), Island()))
    values = shown.values()
    assert values.functions == [("calls_0", range(1)), ("calls_1", range(1, 2))]
    assert values.parts == [
        '{"cpu0", 0, mk_devices}',
        '{"island1", -1, NULL}',
        '{"cpu2", 0, mk_devices}',
        '{"island3", -1, NULL}',
    ]
    assert [call.pointers for call in values.calls] == [["(void *)in[0]", "a + 0"], ["a + 0", "a + 0"]]
    assert [(call.table, call.result, call.args_type, call.args) for call in values.calls] == [
        (0, 1, "mk_exp_f32_args", ".n = 100")
    ] * 2
    assert (values.arena_bytes, values.weight_bytes, values.state_bytes, values.copies) == (448, 512, 0, [])
    assert b"".join(shown.weights()) == (CODE + bytes(48) + WEIGHTS + bytes(58)) * 2
    assert shown.plan.weight_bytes == 512
    assert (shown.session_bytes, shown.total_weight_bytes, values.has_fallback) == (None, 512, False)
    assert values.device is not None
    assert values.device.drivers == ["acme"]
    assert values.device.host_ports == [1, 2], "a call reads the input, a copy alone writes the output"
    assert values.device.spaces == ['{"island", 0, {sizeof(mace_need), 0, 128, 256, 32, 2304}}']
    into, out_of = (
        "{.task = -1, .places = {{MACE_IN_SPACE, 0, 1024}, {MACE_IN_ARENA, 0, 0}}, .bytes = 400}",
        "{.task = -1, .places = {{MACE_IN_%s, 0, 0}, {MACE_IN_SPACE, 0, 1536}}, .bytes = 400}",
    )
    assert values.device.steps == [
        "{.calls = calls_0}", into, "{.task = 0}", out_of % "ARENA",
        "{.calls = calls_1}", into, "{.task = 1}", out_of % "OUTPUT",
    ]  # fmt: skip
    first, second = values.device.tasks
    assert (first.part, first.device, first.inputs, first.outputs) == (1, 0, 1, 1)
    assert (first.code, first.code_bytes, first.weights, first.weight_bytes) == (0, 80, 128, 70)
    assert (second.part, second.code, second.weights) == (3, 256, 384)
    assert (first.built_by, first.built_for) == ('"tool 1"', '"v2"')
    assert first.digest == f'"{hashlib.sha256(CODE + WEIGHTS).hexdigest()}"'
    assert first.needs == ["{sizeof(mace_need), 0, 128, 256, 32, 400}"] * 2
    assert first.scratch == "{sizeof(mace_need), 0, 128, 256, 32, 1000}"
    assert first.places == ["{MACE_IN_SPACE, 0, 1024}", "{MACE_IN_SPACE, 0, 1536}", "{MACE_IN_SPACE, 0, 0}"]


def test_calls_with_equal_arguments_share_one_constant() -> None:
    shared = view(plan(chain("Exp", "Exp", "Tanh", "Exp")))
    calls = shared.values().calls
    assert [call.kernel for call in calls] == ["exp_f32", "exp_f32", "tanh_f32", "exp_f32"]
    assert len({call.args for call in calls}) == 1
    assert [call.arguments for call in calls] == [0, 0, 2, 0], "of one type and with equal fields"
    new = Builder("m")
    inputs = [new.input(f"x{size}", DType.F32, (1, size)) for size in (100, 101)]
    calls = view(plan(new.finish([new.one("Exp", [x]) for x in inputs]))).values().calls
    assert [call.arguments for call in calls] == [0, 1], "of other fields"


def test_buffers_of_a_device_take_the_place_of_ports_in_its_space() -> None:
    island = Island(kinds=(BufferKind.CL_MEM,))
    values = view(plan(chain("Relu", "Exp", "Relu"), island)).values()
    assert values.device is not None
    assert values.device.host_ports == [2, 2]
    assert [task.model_ports for task in values.device.tasks] == [[0, -1], [-1, 1]]
    assert values.device.tasks[0].needs == ["{sizeof(mace_need), 1u << MACE_CL_MEM, 128, 256, 32, 400}"] * 2
    builder = Builder("m")
    x = builder.input("x", DType.F32, (1, 100))
    first = builder.one("Relu", [x])
    last = builder.one("Exp", [first])
    between = view(plan(builder.finish([last, first, first, x]), island)).values()
    assert between.device is not None
    assert [task.model_ports for task in between.device.tasks] == [[0, 2]]
    assert between.device.host_ports == [1, 1, 1, 1, 1], "calls and copies of outputs use every address"


def test_a_device_that_begins_and_ends_has_calls_only_between() -> None:
    values = view(plan(chain("Relu", "Exp", "Relu"), Island())).values()
    assert values.functions == [("calls_0", range(1))]
    assert values.device is not None
    assert [step[:8] for step in values.device.steps] == [
        "{.task =",
        "{.task =",
        "{.task =",
        "{.calls ",
        *["{.task ="] * 3,
    ]
    alone = view(plan(chain("Relu"), Island())).values()
    assert alone.functions == []
    last = view(plan(chain("Relu", "Exp"), Island())).values()
    assert last.device is not None
    assert last.device.steps[-1] == "{.calls = calls_0}"


def test_a_device_in_host_memory_imports_buffers_and_needs_no_copy() -> None:
    kinds = (BufferKind.HOST, BufferKind.DMABUF)
    values = view(plan(chain("Relu"), Island(MemorySpace("host"), kinds))).values()
    assert values.device is not None
    assert (values.device.spaces, values.device.steps, values.device.host_ports) == (
        [],
        ["{.task = 0}"],
        [0, 0],
    )
    (task,) = values.device.tasks
    assert task.needs == ["{sizeof(mace_need), 1u << MACE_HOST | 1u << MACE_DMABUF, 64, 64, 0, 400}"] * 2
    assert task.places[:2] == ["{MACE_IN_INPUT, 0, 0}", "{MACE_IN_OUTPUT, 0, 0}"]


def test_scratch_in_host_memory_lies_beside_what_the_device_reads_and_writes() -> None:
    result = plan(chain("Exp", "Relu", "Exp"), Island(MemorySpace("host")))
    assert result.host.bytes == 448 + 448 + 1024
    assert set(result.host.offsets) >= {"t0", "t1", "island1.scratch"}
    assert plan(chain("Exp", "Relu", "Exp"), Island()).host.bytes == 448, "of a device, in its own space"


def test_a_space_of_two_drivers_is_refused() -> None:
    class Other(Island):
        name = "other"

        def refuses(self, node: Node, graph: Graph) -> Refusal | None:
            return None if node.op.name == "Abs" else Refusal("unsupported-op", "no", "")

    result = plan(chain("Relu", "Abs"), Island(), Other(driver="bcme"))
    with pytest.raises(
        PluginError, match="memory space 'island': is used by the drivers acme, bcme; name the space of each"
    ):
        view(result).values()


def recurrent() -> Graph:
    """Two states, of which one begins with zeros; outputs that are an input, twice, and a constant."""
    new = Builder("s")
    x = new.input("x", DType.F32, (1, 3))
    h = new.state("h", np.arange(3, dtype=np.float32).reshape(1, 3))
    z = new.state("z", np.zeros((1, 3), np.float32))
    product = new.one("Mul", [x, new.weight("w", np.full((1, 3), 2, np.float32))])
    (y,) = new.add("Add", [product, h], outputs=["y"])
    new.set_next(h, y)
    new.set_next(z, x)
    c = new.weight("c", np.arange(4, dtype=np.int8))
    return new.finish([*new.add("Sub", [y, z], outputs=["y2"]), x, x, c], ["y2", "x", "x", "c"])


def test_states_weights_and_copied_outputs() -> None:
    shown = view(plan(recurrent()))
    values = shown.values()
    assert [call.pointers for call in values.calls] == [
        ["(void *)in[0]", "w + 0", "a + 0"],
        ["a + 0", "s + 0", "s + 64"],
        ["s + 64", "s + 128", "out[0]"],
        ["w + 64", "out[3]"],
        ["(void *)in[0]", "s + 192"],
    ]
    assert values.copies == [("out[1]", "(void *)in[0]", 12), ("out[2]", "(void *)in[0]", 12)]
    assert values.functions == [("run", range(5))]
    tensor = '{"%s", MACE_F32, 2, {1, 3}, 12, 0x0.0p+0f, 0}'
    assert values.states == [
        f"{{{tensor % 'h'}, lib_s_weights + 128, 0, 64}}", f"{{{tensor % 'z'}, NULL, 128, 192}}"
    ]  # fmt: skip
    assert (values.inputs, values.outputs[:2]) == ([tensor % "x"], [tensor % "y2", tensor % "x"])
    assert values.layers[0] == '{"Mul", "mul_f32", "Mul", ' + tensor % "Mul" + "}"
    assert (values.state_bytes, values.arena_bytes, values.weight_bytes) == (256, 64, 192)
    assert (values.device, shown.session_bytes) == (None, "MACE_SESSION_BYTES(5, 320)")
    assert shown.plan.weight_bytes == 192
    numbers = [
        np.full(3, 2, "f4").tobytes(),
        np.arange(4, dtype="i1").tobytes(),
        np.arange(3, dtype="f4").tobytes(),
    ]
    assert b"".join(shown.weights()) == b"".join(part.ljust(64, b"\0") for part in numbers)
    assert values.calls[0].comment == "/* Mul: x:f32[1, 3], w -> Mul:f32[1, 3] */"
    assert shown.interface == [
        "inputs[0]: x, f32 1 x 3", "outputs[0]: y2, f32 1 x 3", "outputs[1]: x, f32 1 x 3", "outputs[2]: x, f32 1 x 3",
        "outputs[3]: c, i8 4", "states[0], kept by the session: h, f32 1 x 3, at first an array of the model file",
        "states[1], kept by the session: z, f32 1 x 3, at first 0.0",
    ]  # fmt: skip
    assert (values.name, values.prefix, values.program_symbol, values.weights_symbol) == (
        '"s"', "", "lib_s_program", "lib_s_weights"
    )  # fmt: skip


def test_a_fallback_lies_behind_the_weights_of_its_model() -> None:
    graph = recurrent()
    made = replace(plan(graph), fallback=plan(graph))
    shown = view(made)
    assert shown.fallback is not None
    values = shown.fallback.values()
    assert (values.prefix, values.program_symbol, shown.values().has_fallback) == (
        "fallback_",
        "fallback_model",
        True,
    )
    assert values.calls[0].pointers[1] == "w + 192"
    assert values.functions[0][0] == "fallback_run"
    assert (shown.weight_bytes, shown.total_weight_bytes, len(b"".join(shown.weights()))) == (192, 384, 384)


def test_a_call_of_some_levels_has_their_condition_and_argument_types_have_limits() -> None:
    result = plan(chain("Exp"))
    (call,) = result.program.calls
    fast = Level("fast", (), "some", TEMPLATE)
    tables = {"cpu": KernelTable(CIdentifier("mk"), "cpu", (fast, replace(fast, name="mid"), BASE), ())}

    def shown(**changes: object) -> ModelView:
        program = replace(result.program, calls=(replace(call, **changes),))  # type: ignore[arg-type]
        part = result.parts[0]
        body = CallsBody(program, (BASE,))
        return ModelView("lib", replace(result, program=program, parts=(replace(part, body=body),)), tables)

    assert shown().values().calls[0].condition == ""
    assert shown(levels=("fast", "base")).values().calls[0].condition == "level0 == 0 || level0 == 2"
    assert tables["cpu"].devices == ['"cpu: fast"', '"cpu: mid"', '"cpu: base"']
    bits = 64 if dict(call.kernel.fields)["n"] in ("i64", "int64_t") else 32
    for number in (-(1 << bits - 1), (1 << bits - 1) - 1):
        literal = write_literal(number, f"i{bits}")
        assert f".n = {literal}" in shown(args={"n": number}).values().calls[0].args
    for number in (-(1 << bits - 1) - 1, 1 << bits - 1):
        with pytest.raises(
            MaceError,
            match=f"model?.*node 't0': kernel 'exp_f32' takes 'n' as a number of {bits} bits, and it is {number}|m: node",
        ):
            shown(args={"n": number}).values()


def test_a_model_calls_kernels_of_eight_targets_at_most() -> None:
    result = plan(chain("Exp"))
    names = [f"cpu{i}" for i in range(MAX_TABLES + 1)]
    tables = {name: KernelTable(CIdentifier(name), name, (BASE,), ()) for name in names}
    for count in (MAX_TABLES, MAX_TABLES + 1):
        several = replace(
            result, parts=tuple(replace(result.parts[0], target=name) for name in names[:count])
        )
        if count == MAX_TABLES:
            assert len(ModelView("lib", several, tables).tables) == MAX_TABLES
        else:
            with pytest.raises(MaceError, match="model 'm': is computed by 9 targets; build for at most 8"):
                ModelView("lib", several, tables)
