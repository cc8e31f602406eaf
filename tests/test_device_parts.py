"""Plans with drivers as C: a graph divided between the CPU and a fake device, generated, compiled and run in a session."""

from __future__ import annotations

import ctypes as c
import re
import struct
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mace_core.api import BuildConfig, Region
from mace_core.build_manifest import describe_engine
from mace_core.compilation import compile_region
from mace_core.deployment import Model
from mace_core.emit import code
from mace_core.errors import MaceError, PluginError
from mace_core.graph_builder import Builder
from mace_core.ir import DType, Graph, Node, State
from mace_core.levels import Level
from mace_core.manifest import Manifest, Product, Unit
from mace_core.part import HOST, BlobBody, BufferKind, MemorySpace, Part, PartPort
from mace_core.partition import partition
from mace_core.plan import Plan, make_plan
from mace_core.refusal import Refusal
from mace_core.registry import Registry
from mace_core.run import native
from mace_core.run.compile import link, shared_library
from mace_core.run.files import write_all
from mace_core.run.reference import execute
from mace_core.testing.compiled import host, merge, with_quick_flags
from mace_core.testing.requirements import require
from mace_core.testing.samples import sample
from mace_target_cpu import Cpu

FAKE = Path(__file__).parents[1] / "core/tests/engine"
VALUES = 8
SPACE = MemorySpace("fake", alignment=128, granule=256, slack=16)


def fake_code() -> bytes:
    """3 x + 10 of eight floats, as fake_driver.c takes it."""
    body = struct.pack("<iff", VALUES, 3.0, 10.0)
    checksum = 1
    for byte in body:
        checksum = (checksum * 31 + byte) & 0xFFFFFFFF
    return b"FAKE" + struct.pack("<II", 12 + len(body), checksum) + body


class Fake(Cpu):
    """Computes every Neg as 3 x + 10, in memory of its own or in host memory."""

    name = "fake"
    device = "fake"
    space = SPACE
    driver = "fake_own"
    kinds: tuple[BufferKind, ...] = ()

    def refuses(self, node: Node, graph: Graph) -> Refusal | None:
        return None if node.op.name == "Neg" else Refusal("unsupported-op", f"has no {node.op.name}")

    def levels(self, abi: str) -> tuple[Level, ...]:
        return ()

    def compile(self, region: Region, config: BuildConfig) -> Part:
        inputs, outputs = (
            [PartPort(port.tensor, self.space, kinds=self.kinds) for port in ports]
            for ports in region.ports()
        )
        assert len(inputs) == len(outputs) == len(region.graph.nodes) == 1
        body = BlobBody(fake_code(), b"weights of a device", "fakec 7", "fake mark 1")
        return Part(
            region.name, self.name, tuple(inputs), tuple(outputs), body, driver=self.driver, scratch=100
        )


class Shared(Fake):
    space = HOST
    driver = "fake_shared"


class Importing(Fake):
    space = HOST
    driver = "fake_import"
    kinds = (BufferKind.HOST, BufferKind.DMABUF)


def graph(shape: tuple[int, ...] = (VALUES,), outputs: tuple[str, ...] = ("y",)) -> Graph:
    """y = 3 relu(3 x + 10) + 10 + x: two regions of the device, and the CPU between and behind them."""
    new = Builder("net")
    x = new.input("x", DType.F32, shape)
    first = new.one("Relu", [new.one("Neg", [x], outputs=["first"])])
    new.one("Add", [new.one("Neg", [first]), x], outputs=["y"])
    return new.finish(list(outputs))


def expected(x: np.ndarray) -> np.ndarray:
    return 3 * np.maximum(3 * x + 10, 0) + 10 + x


def plan(target: Fake, divided: Graph) -> Plan:
    regions = partition(divided, [target, Cpu()]).regions
    config = BuildConfig("host", "host+fake", Model("net", ()))
    return make_plan(divided, [compile_region(region, config) for region in regions])


def build(made: Plan, folder: Path) -> Path:
    """The shared library of a plan, with the engine and the fake device in it."""
    sources = code.library("lib", [made], {"cpu": Cpu().levels("host")})
    headers = ("fake_driver.h", "sha256.h")
    copies = {name: FAKE / name for name in ("fake_driver.c", *headers)}
    driver = Manifest(
        "lib", copies=copies, units=(Unit("fake_driver.c", reads=headers),), drivers=("fake_own",)
    )
    joined = sources.manifests[0].join([driver, describe_engine(sources.manifests[0])])
    return shared_library(with_quick_flags(replace(sources, manifests=(joined,))), host(), folder, ())


@pytest.mark.sampled(cases="own-memory")
@pytest.mark.slow
@pytest.mark.parametrize("target", [Fake(), Shared(), Importing()], ids=["own-memory", "shared", "importing"])
def test_a_graph_divided_with_a_device(target: Fake, tmp_path: Path) -> None:
    result = plan(target, graph(outputs=("y", "first", "x")))
    assert len(result.drivers) == 1
    assert bool(result.transfers) == (target.space is SPACE)
    model = native.load(build(result, tmp_path), "lib")["net"]
    assert "fake: Mark 1" in model.devices() or "fake" in model.devices()
    assert any(device.startswith("cpu: ") for device in model.devices())
    for seed in range(3):
        x = np.random.default_rng(seed).standard_normal(VALUES).astype(np.float32)
        seen: dict[str, np.ndarray] = {}
        actual = model.run({"x": x}, seen.__setitem__)
        np.testing.assert_allclose(actual["y"], expected(x), rtol=1e-6)
        np.testing.assert_allclose(actual["first"], 3 * x + 10, rtol=1e-6)
        np.testing.assert_array_equal(actual["x"], x)
        assert len(seen) == len(result.program.calls)


class Buffer(c.Structure):
    """What mace_buffer is in C."""

    _fields_ = (
        ("struct_bytes", c.c_uint32),
        ("kind", c.c_int),
        ("host", c.c_void_p),
        ("handle", c.c_uint64),
        ("offset", c.c_size_t),
        ("bytes", c.c_size_t),
        ("fence", c.c_int32),
    )


@pytest.mark.slow
def test_a_port_takes_the_kinds_of_buffers_that_its_target_states(tmp_path: Path) -> None:
    """The fake takes the handle of a dma-buf for its address."""
    new = Builder("net")
    x = new.input("x", DType.F32, (VALUES,))
    new.one("Neg", [x], outputs=["y"])
    library = build(plan(Importing(), new.finish(["y"])), tmp_path)
    model = native.load(library, "lib")["net"]
    functions, session = model._functions, model._session
    values, result = np.arange(VALUES, dtype=np.float32), np.zeros(VALUES, np.float32)
    shared = Buffer(c.sizeof(Buffer), 1, None, values.ctypes.data, 0, values.nbytes, -1)
    assert functions.bind(session, 0, c.byref(shared)) == 0
    nothing = (c.c_void_p * 1)(None)
    assert functions.run(session, nothing, (c.c_void_p * 1)(result.ctypes.data)) == 0
    np.testing.assert_array_equal(result, 3 * values + 10)
    shared.kind = 3
    assert functions.bind(session, 0, c.byref(shared)) == 5
    assert functions.error(session) == (
        b"port 0 does not take a buffer of this kind; give one of MACE_HOST MACE_DMABUF"
    )


@pytest.mark.slow
def test_states_beside_a_device(tmp_path: Path) -> None:
    """The session keeps a state that a part of the device computes."""
    new = Builder("net")
    x, s = new.input("x", DType.F32, (VALUES,)), new.input("s", DType.F32, (VALUES,))
    new.one("Add", [x, new.one("Neg", [s], outputs=["t"])], outputs=["y"])
    divided = replace(new.finish(["y", "t"]), states=(State("s", "t", np.full(VALUES, 0.5, np.float32)),))
    model = native.load(build(plan(Fake(), divided), tmp_path), "lib")["net"]
    assert [t.name for t in model.inputs] == ["x"]
    assert [t.name for t in model.outputs] == ["y"]
    for _ in range(2):
        state = np.full(VALUES, 0.5, np.float32)
        for step in range(6):
            given = np.full(VALUES, step, np.float32)
            state = 3 * state + 10
            np.testing.assert_array_equal(model.run({"x": given})["y"], given + state)
        model.reset()


@pytest.mark.slow
def test_a_fallback_computes_where_there_is_no_device(tmp_path: Path) -> None:
    divided = graph(outputs=("y", "first"))
    regions = partition(divided, [Cpu()]).regions
    config = BuildConfig("host", "host+fake", Model("net", ()))
    cpu = make_plan(divided, [compile_region(region, config) for region in regions])
    made = replace(plan(Absent(), divided), fallback=cpu)
    library = build(made, tmp_path)
    with pytest.raises(MaceError, match=r"status 7: part \S+ \(fake 1.0\): built by another fakec"):
        native.load(library, "lib")
    model = native.load(library, "lib", native.Config(c.sizeof(native.Config), 1))["net"]
    assert all(
        "(fallback: part " in device and "fakec 7 and fake mark 1; build again)" in device
        for device in model.devices()
    )
    x = np.linspace(-1, 1, VALUES, dtype=np.float32)
    reference = execute(divided, {"x": x})
    for name in divided.outputs:
        np.testing.assert_allclose(model.run({"x": x})[name], reference[name], rtol=1e-6)


class Absent(Fake):
    """Makes parts for another generation than the device is."""

    def compile(self, region: Region, config: BuildConfig) -> Part:
        part = super().compile(region, config)
        assert isinstance(part.body, BlobBody)
        return replace(part, body=replace(part.body, built_for="fake mark 2"))


def test_two_drivers_of_one_space_are_refused() -> None:
    result = plan(Fake(), graph(outputs=("y", "first")))
    last = max(i for i, part in enumerate(result.parts) if part.driver)
    parts = [replace(part, driver="other") if i == last else part for i, part in enumerate(result.parts)]
    with pytest.raises(PluginError, match="memory space 'fake': is used by the drivers fake_own, other"):
        code.library("lib", [replace(result, parts=tuple(parts))], {"cpu": Cpu().levels("host")})


def test_payloads_lie_in_the_file_of_weights() -> None:
    result = plan(Fake(), graph(outputs=("y",)))
    sources = code.library("lib", [result], {"cpu": Cpu().levels("host")})
    stored = bytes(sources.files["lib_net_weights.bin"])  # type: ignore[arg-type]
    assert stored.count(fake_code()) == 2
    assert stored.count(b"weights of a device") == 2
    assert stored.index(fake_code()) % 64 == 0
    # Only drivers know how much memory a session takes.
    assert "SESSION_BYTES" not in str(sources.files["lib.h"])
    text: Mapping[str, object] = sources.files
    assert "mace_device_engine" in str(text["lib_net_program.c"])
    plain = code.library("lib", [plan(Fake(), graph_without_device())], {"cpu": Cpu().levels("host")})
    assert "mace_device_engine" not in str(plain.files["lib_net_program.c"])
    assert "driver" not in str(plain.files["lib_net_program.c"])


def graph_without_device() -> Graph:
    new = Builder("net")
    return new.finish([new.one("Relu", [new.input("x", DType.F32, (VALUES,))])])


HEADERS = {
    "string.h": "#include <stddef.h>\n"
    "void *memcpy(void *, const void *, size_t);\nvoid *memmove(void *, const void *, size_t);\n"
    "void *memset(void *, int, size_t);\nint memcmp(const void *, const void *, size_t);\n"
    "int strcmp(const char *, const char *);\n",
    "math.h": "#define INFINITY __builtin_inff()\n",
}
"""What of a C library these kernels include; bare.c has the functions."""


@pytest.mark.slow
def test_a_generated_library_links_without_an_allocator(tmp_path: Path) -> None:
    """For a bare machine, without a C library: whatever a kernel asked for would be undefined."""
    chain = Registry.load().toolchains["arm-none-eabi"]
    require(chain.missing("cortex-m4"))
    compiler = chain.compiler("cortex-m4")
    whole = merge("net", [sample(op, DType.F32) for op in ("Conv", "MatMul", "MaxPool", "Add", "Concat")])
    config = BuildConfig("cortex-m4", "cortex-m4", Model("net", ()))
    result = make_plan(
        whole, [compile_region(region, config) for region in partition(whole, [Cpu()]).regions]
    )
    sources = code.library("lib", [result], {"cpu": Cpu().levels("cortex-m4")})
    (symbol,) = re.findall(r"^extern const mace_model (\w+);$", str(sources.files["lib.c"]), re.MULTILINE)
    text = f'#include "mace.h"\nextern const mace_model {symbol};\nextern const mace_model *const MODEL;\n'
    main = {"main.c": f"{text}const mace_model *const MODEL = &{symbol};\n" + (FAKE / "bare.c").read_text()}
    unit = Unit("main.c", ("-fno-tree-loop-distribute-patterns",))  # which make memcpy of memcpy's own loop
    program = Manifest("bare", Product.PROGRAM, generated=("main.c",), units=(unit,), needs=("lib",))
    library = replace(sources.manifests[0], includes=(".",))
    sources = replace(sources, files={**sources.files, **main}, manifests=(library, program))
    write_all(tmp_path, HEADERS)
    compiler = replace(compiler, flags=(*compiler.flags, f"-isystem{tmp_path}"))
    elf = link(sources, compiler, tmp_path, ("-O1", "-Wl,-e,start"))
    assert b"mace_engine" not in elf.read_bytes()
