"""Bytes for the driver: what `encode` writes is what the driver reads, and nothing else is taken."""

from __future__ import annotations

import random
import struct
import subprocess
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from stub_session import HEADERS, SANITIZED, STUB, stub_graph

from mace_core import runtime
from mace_core.errors import PluginError
from mace_core.graph_builder import Builder
from mace_core.ir import DType
from mace_core.program import Program
from mace_core.testing.compiled import host
from mace_target_opencl.blob import CALL, IMAGE_RECORD, MAGIC, OPERAND, VERSION, WEIGHTS, Blob, encode
from mace_target_opencl.image_storage import store_in_images
from mace_target_opencl.options import OpenclOptions
from mace_target_opencl.target import Opencl

HEADER = struct.Struct("<14I2Q")
FIELDS = (
    "magic", "version", "flags", "bindings", "kernels", "calls", "operands", "name_bytes", "option_bytes", "source_bytes",
    "deflated_bytes", "window", "images", "padding", "pool_bytes", "apart_bytes",
)  # fmt: skip
INPUTS, OUTPUTS, PORT_BYTES = 1, 1, 400


@dataclass(frozen=True)
class Case:
    """What the probe is given.  size: of the inflated text, for a stream."""

    content: bytes
    size: int | None = None
    scratch: int = 0
    weights: int = 0

    def encode(self) -> bytes:
        kind = 0 if self.size is None else 1
        numbers = (
            kind,
            INPUTS,
            OUTPUTS,
            PORT_BYTES,
            self.scratch,
            self.weights,
            self.size or 0,
            len(self.content),
        )
        return struct.pack("<8I", *numbers) + self.content


@pytest.fixture(scope="module")
def probe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("blob") / "blob_probe"
    compiler = host()
    runtime_folder = Path(runtime.__path__[0])
    sources = [STUB / "blob_probe.c", HEADERS / "opencl_blob.c", HEADERS / "opencl_inflate.c"]
    command = [*compiler.cc, *compiler.flags, "-std=gnu11", *SANITIZED, f"-I{HEADERS}", f"-I{runtime_folder}"]
    subprocess.run([*command, *map(str, sources), "-o", str(program)], check=True)
    return program


def ask(probe: Path, cases: Sequence[Case]) -> list[str]:
    content = b"".join(case.encode() for case in cases)
    done = subprocess.run([str(probe)], input=content, capture_output=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr.decode()
    answers = done.stdout.decode().splitlines()
    assert len(answers) == len(cases)
    return answers


def small_blob() -> Blob:
    return encode(small_program())


def small_program() -> Program:
    return Opencl().lower(stub_graph())


def header_of(blob: bytes) -> dict[str, int]:
    return dict(zip(FIELDS, HEADER.unpack_from(blob), strict=True))


def deflate(text: bytes, level: int = 9, strategy: int = zlib.Z_DEFAULT_STRATEGY) -> bytes:
    compressor = zlib.compressobj(level, zlib.DEFLATED, -15, strategy=strategy)
    return compressor.compress(text) + compressor.flush()


def hash_text(text: bytes) -> int:
    value = 5381
    for byte in text:
        value = (value * 33 + byte) % (1 << 32)
    return value


def test_the_header_states_what_follows() -> None:
    blob = small_blob()
    header = header_of(blob.code)
    assert (header["magic"], header["version"]) == (MAGIC, VERSION)
    assert (header["calls"], header["kernels"]) == (blob.calls, blob.kernels)
    assert header["source_bytes"] == blob.source_bytes
    start = HEADER.size
    first = CALL.unpack_from(blob.code, start)
    assert first[0] == 0
    assert first[2] == 0
    operands = start + header["calls"] * CALL.size
    bindings = [
        OPERAND.unpack_from(blob.code, operands + i * OPERAND.size)[0] for i in range(header["operands"])
    ]
    assert WEIGHTS in bindings, "the constant that is added"
    assert 0 in bindings, "the input"
    assert 1 in bindings, "the output"
    assert np.frombuffer(blob.weights[:200], np.float32).tolist() == [2.0] * 50
    assert len(blob.weights) % 256 == 0


def test_a_kernel_that_two_calls_share_is_written_once() -> None:
    builder = Builder("twice")
    x = builder.input("x", DType.F32, (4, 4))
    first = builder.one("Tanh", [x])
    graph = builder.finish([builder.one("Tanh", [first]), first])
    blob = encode(Opencl().lower(graph))
    assert (blob.calls, blob.kernels) == (2, 1)


def test_kernels_of_one_name_must_be_equal() -> None:
    program = small_program()
    (call, *_) = program.calls
    other = type(call.kernel)(call.kernel.name, call.kernel.template, call.kernel.fields, {"other": 1})
    changed = type(program)(
        **{**vars(program), "calls": (call, type(call)(**{**vars(call), "kernel": other}))}
    )
    with pytest.raises(PluginError, match="has the name of another kernel"):
        encode(changed)


@pytest.mark.slow
def test_the_driver_reads_what_is_written(probe: Path) -> None:
    blob = small_blob()
    good = Case(blob.code, scratch=blob.scratch, weights=len(blob.weights))
    cases = [
        good,
        Case(blob.code, scratch=blob.scratch + 256, weights=0),
        Case(blob.code + bytes(8), weights=512),
    ]
    assert ask(probe, [good, good]) == ["blob ", "blob "]
    assert all(answer != "blob " for answer in ask(probe, cases[1:]))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("field", "value", "fault"),
    [
        ("magic", 1, "these are no kernels"),
        ("version", 1, "they have another version"),
        ("bindings", 9, "they have other ports than the part"),
        ("calls", 0xFFFFFFFF, "they are cut short"),
        ("operands", 0x10000000, "they are cut short"),
        ("kernels", 0, ""),
        ("name_bytes", 0xFFFFFFFF, "they are cut short"),
        ("deflated_bytes", 0xFFFFFFFF, "they are cut short"),
        ("option_bytes", 0, ""),
    ],
)
def test_a_header_that_lies_is_refused(field: str, value: int, fault: str, probe: Path) -> None:
    blob = small_blob()
    header = {**header_of(blob.code), field: value}
    code = HEADER.pack(*header.values()) + blob.code[HEADER.size :]
    (answer,) = ask(probe, [Case(code, scratch=blob.scratch, weights=len(blob.weights))])
    assert answer != "blob "
    assert fault in answer


@pytest.mark.slow
@pytest.mark.parametrize("number", [0, 1, 2])
@pytest.mark.parametrize(
    ("field", "value", "fault"),
    [
        (0, 9, "an operand is no port"),
        (1, 3, "an operand has no such elements"),
        (2, 1 << 20, "an operand leaves its memory"),
        (3, 1 << 20, "an operand leaves its memory"),
        (3, (1 << 64) - 1, "an operand leaves its memory"),
    ],
)
def test_an_operand_that_lies_is_refused(
    number: int, field: int, value: int, fault: str, probe: Path
) -> None:
    """Field 0 is the binding, then unit, offset and bytes; operands are the input, the constant and the output."""
    blob = small_blob()
    start = HEADER.size + header_of(blob.code)["calls"] * CALL.size + number * OPERAND.size
    record = [*OPERAND.unpack_from(blob.code, start)]
    record[field] = value
    code = blob.code[:start] + OPERAND.pack(*record) + blob.code[start + OPERAND.size :]
    (answer,) = ask(probe, [Case(code, scratch=blob.scratch, weights=len(blob.weights))])
    assert answer == f"blob {fault}"


def image_blob() -> Blob:
    """Two convolutions of 400 bytes, whose filters and the tensor between them lie in images."""
    builder = Builder("m")
    y = builder.input("x", DType.F32, (1, 5, 5, 4))
    window = {"strides": (1, 1), "pads_before": (0, 0), "pads_after": (0, 0), "dilations": (1, 1)}
    for _ in range(2):
        y = builder.one("Conv", [y, builder.weight("w", np.ones((4, 1, 1, 4), np.float32))], window)
    options = OpenclOptions(images=True)
    return encode(store_in_images(Opencl(options).lower(builder.finish([y]))))


def pooled_blob() -> Blob:
    """Four convolutions of 400 bytes with two images between them, and a buffer that makes a pool worth it."""
    builder = Builder("m")
    y = builder.input("x", DType.F32, (1, 5, 5, 4))
    window = {"strides": (1, 1), "pads_before": (0, 0), "pads_after": (0, 0), "dilations": (1, 1)}
    for inputs, outputs in ((4, 5), (5, 256), (256, 256), (256, 4)):
        weights = np.ones((outputs, 1, 1, inputs), np.float32)
        y = builder.one("Conv", [y, builder.weight("w", weights)], window)
    return encode(store_in_images(Opencl(OpenclOptions(images=True)).lower(builder.finish([y]))))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "field", "value", "fault"),
    [
        (0, "rows", 0, "an image has no such size"),
        (1, "columns", 8193, "an image has no such size"),
        (1, "quads", 8000, "an image has no such size"),
        (0, "unit", 3, "an image has no such elements"),
        (1, "slot", 2, "an image has no place"),
        (1, "slot", 0, "an image shares the place of a constant"),
        (0, "is_constant", 2, "an image has no place"),
        (0, "offset", 512, "an image leaves its memory"),
        (0, "rows", 2, "an operand has another image"),
        (1, "is_constant", 1, "a call writes a constant"),
    ],
)
def test_a_table_of_images_that_lies_is_refused(
    number: int, field: str, value: int, fault: str, probe: Path
) -> None:
    blob = image_blob()
    assert len(read_images(blob)) == 3
    assert ask(probe, change_image(blob, number, field, value)) == ["blob ", f"blob {fault}"]


IMAGE_FIELDS = ("rows", "columns", "quads", "unit", "slot", "is_constant", "pitch", "padding", "offset")


def find_images(blob: Blob) -> int:
    """Return where the table of images begins."""
    header = header_of(blob.code)
    return HEADER.size + header["calls"] * CALL.size + header["operands"] * OPERAND.size


def read_images(blob: Blob) -> list[dict[str, int]]:
    """Return the records of the table of images."""
    count, start = header_of(blob.code)["images"], find_images(blob)
    records = (IMAGE_RECORD.unpack_from(blob.code, start + i * IMAGE_RECORD.size) for i in range(count))
    return [dict(zip(IMAGE_FIELDS, record, strict=True)) for record in records]


def change_image(blob: Blob, number: int, field: str, value: int) -> list[Case]:
    """Return the blob, and one with another number in its table of images."""
    start = find_images(blob) + number * IMAGE_RECORD.size
    record = IMAGE_RECORD.pack(*{**read_images(blob)[number], field: value}.values())
    code = blob.code[:start] + record + blob.code[start + len(record) :]
    return [Case(content, None, blob.scratch, len(blob.weights)) for content in (blob.code, code)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("field", "value"),
    [("pitch", 256), ("pitch", 8256), ("pitch", 384), ("offset", 512), ("offset", 1 << 40)],
)
def test_an_image_that_leaves_the_pool_is_refused(field: str, value: int, probe: Path) -> None:
    blob = pooled_blob()
    number = max(n for n, image in enumerate(read_images(blob)) if not image["is_constant"])
    answers = ask(probe, change_image(blob, number, field, value))
    assert answers == ["blob ", "blob an image leaves the pool"]


@pytest.mark.slow
@pytest.mark.parametrize("field", ["pool_bytes", "apart_bytes"])
def test_a_pool_that_is_too_small_is_refused(field: str, probe: Path) -> None:
    blob = pooled_blob()
    header = {**header_of(blob.code), field: 64}
    code = HEADER.pack(*header.values()) + blob.code[HEADER.size :]
    (answer,) = ask(probe, [Case(code, weights=len(blob.weights))])
    assert answer in ("blob an image leaves the pool", "blob an operand leaves the pool")


@pytest.mark.slow
@pytest.mark.parametrize("build", [small_blob, image_blob, pooled_blob])
def test_every_changed_number_is_taken_or_refused_and_never_crashes(
    build: Callable[[], Blob], probe: Path
) -> None:
    """Each word of the tables gets each of some values; the probe is built with the sanitizers."""
    blob = build()
    header = header_of(blob.code)
    tables = HEADER.size + header["calls"] * CALL.size + header["operands"] * OPERAND.size
    tables += header["images"] * IMAGE_RECORD.size
    cases = []
    for position in range(0, tables, 4):
        for value in (0, 1, 7, 255, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF):
            code = blob.code[:position] + struct.pack("<I", value) + blob.code[position + 4 :]
            cases.append(Case(code, scratch=blob.scratch, weights=len(blob.weights)))
    cases += [Case(blob.code[:length], weights=512) for length in range(0, len(blob.code), 8)]
    answers = ask(probe, cases)
    assert len({answer for answer in answers if answer != "blob "}) >= 8, "faults of many kinds are told"


@pytest.mark.slow
def test_streams_are_inflated_as_zlib_does(probe: Path) -> None:
    noise = random.Random(0).randbytes(70_000)
    texts = [
        b"",
        b"a",
        b"abc" * 5000,
        noise,
        b"".join(bytes([i % 7]) * i for i in range(400)),
        noise[:300] * 200,
    ]
    cases = [Case(deflate(text, level), len(text)) for text in texts for level in (0, 1, 9)]
    cases += [Case(deflate(text, 9, zlib.Z_FIXED), len(text)) for text in texts]
    expected = [f"inflate 1 {hash_text(text)}" for text in texts for _ in range(3)]
    expected += [f"inflate 1 {hash_text(text)}" for text in texts]
    assert ask(probe, cases) == expected


@pytest.mark.slow
def test_damaged_streams_are_refused_or_give_the_stated_bytes(probe: Path) -> None:
    text = bytes(range(256)) * 9 + b"kernel void f() {}" * 40
    good = deflate(text)
    rng = random.Random(1)
    cases = [
        Case(good, len(text) - 1),
        Case(good, len(text) + 1),
        *(Case(good[:n], len(text)) for n in range(len(good))),
    ]
    assert all(answer.startswith("inflate 0") for answer in ask(probe, cases))
    mutated = []
    for _ in range(1500):
        damaged = bytearray(good)
        for _ in range(rng.randint(1, 4)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        mutated.append(Case(bytes(damaged), len(text)))
    mutated += [Case(rng.randbytes(rng.randrange(60)), 200) for _ in range(1500)]
    ask(probe, mutated)
