"""Vela itself: what it writes is read as it means it, and what it refuses is told in its words."""

from __future__ import annotations

import int8_graphs
import numpy as np
import pytest
import tflite

from mace_core.api import BlobBody, BuildConfig, Part, Region
from mace_core.deployment import Model
from mace_core.errors import MaceError
from mace_core.graph_builder import Builder
from mace_core.ir import DType
from mace_core.testing.requirements import require
from mace_target_ethosu import EthosU, vela
from mace_target_ethosu.options import EthosUOptions
from mace_target_ethosu.payload import ALIGNMENT, HEADER_WORDS, MAGIC, encode_network
from mace_target_ethosu.vela import CompiledNetwork, OperatorRefusal, Place, compile_network, read_refusals
from mace_tflite_writer import write_tflite

SMALL = CompiledNetwork(
    b"COP1" + bytes(12), b"w" * 16, 0, 1, 100, 0, 0, (Place(1, 0, 4),), (Place(1, 16, 4),), {}
)


@pytest.fixture
def installed_vela() -> None:
    require(vela.find_fault())


needs_vela = pytest.mark.usefixtures("installed_vela")


@needs_vela
@pytest.mark.slow
def test_a_region_becomes_a_payload_with_velas_estimates() -> None:
    target = EthosU(EthosUOptions("ethos-u85-256"))
    graph = int8_graphs.chain(2)
    part = target.compile(Region(target, graph), BuildConfig("host", "host", Model("m", ())))
    assert isinstance(part, Part)
    assert isinstance(part.body, BlobBody)
    assert part.body.built_for == "ethos-u85-256"
    assert part.body.built_by == f"Vela {vela.vela_version()}"
    start = int.from_bytes(part.body.code[12:16], "little")
    assert part.body.code[start : start + 4] == b"COP1"
    assert part.scratch >= 2 * 64
    details = part.figures.details
    assert isinstance(details, dict)
    # Two convolutions of 4 x 4 x 4 results, of 3 x 3 x 4 products each.
    assert details["macs"] == 2 * 4 * 4 * 4 * 36
    assert details["source"] == "estimated by Vela, not measured"
    assert "Vela's defaults for ethos-u85-256" in part.notes[0]


@needs_vela
@pytest.mark.slow
def test_ports_have_the_order_of_the_graph() -> None:
    """Vela's raw output has no names; its other output has them, and must lay tensors at the same offsets."""
    builder = Builder("ports")
    names = ["first", "second", "third"]
    sums = [int8_graphs.add_input(builder, name) for name in names]
    y = int8_graphs.convolve(builder, sums[2], 0, "of third")
    z = int8_graphs.convolve(
        builder,
        builder.one("Sub", sums[:2], outputs=[builder.reserve_output("d", int8_graphs.STORED)]),
        1,
        "of both",
    )
    graph = builder.finish([z, y])
    content = write_tflite(graph)
    network = compile_network(content, EthosUOptions(), "ports")
    named = _offsets_by_name(content)
    assert [place.offset for place in network.inputs] == [named[name] for name in graph.inputs]
    assert [place.offset for place in network.outputs] == [named[name] for name in graph.outputs]
    assert len({place.offset for place in network.inputs}) == 3
    assert len({place.offset for place in network.outputs}) == 2


def _offsets_by_name(content: bytes) -> dict[str, int]:
    """Return where Vela's TensorFlow Lite output places tensors, from its metadata."""
    from pathlib import Path
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as folder:
        vela._run(content, EthosUOptions(), Path(folder), (), "ports")
        written = (Path(folder) / "output/network_vela.tflite").read_bytes()
    model = tflite.Model.GetRootAs(written, 0)
    graph = model.Subgraphs(0)
    (metadata,) = (
        model.Metadata(i)
        for i in range(model.MetadataLength())
        if model.Metadata(i).Name() == b"OfflineMemoryAllocation"
    )
    # The version, the subgraph, how many tensors there are, and the offset of each in the arena.
    numbers = np.frombuffer(model.Buffers(metadata.Buffer()).DataAsNumpy().tobytes(), np.int32)
    assert numbers[2] == graph.TensorsLength()
    return {graph.Tensors(i).Name().decode(): int(numbers[3 + i]) for i in range(graph.TensorsLength())}


@needs_vela
@pytest.mark.slow
def test_what_vela_refuses_is_told_in_its_words() -> None:
    builder = Builder("floats")
    x = builder.input("x", DType.F32, (1, 4))
    graph = builder.finish([builder.one("Relu", [x], outputs=["y"])])
    with pytest.raises(MaceError) as error:
        compile_network(write_tflite(graph), EthosUOptions(), "m: region ethosu0")
    text = str(error.value)
    assert text.startswith("m: region ethosu0: Vela does not compile it: RELU ('y'): ")
    assert "unsupported DataType Float32" in text
    assert "Traceback" not in text


@needs_vela
@pytest.mark.slow
def test_a_memory_mode_that_vela_does_not_know_is_told() -> None:
    with pytest.raises(MaceError, match=r"No_Such_Mode.*; correct the options of target 'ethosu'"):
        compile_network(write_tflite(int8_graphs.chain(1)), EthosUOptions(memory_mode="No_Such_Mode"), "m")


def test_refusals_are_read_from_what_vela_prints() -> None:
    lines = [
        "Warning: No memory mode specified.",
        "Warning (supported operators) operator: RELU, ofm: 'it's, ofm: 'odd'",
        "Reason: Operation has tensor with unsupported DataType Float32 (x)",
        "Warning (supported operators) operator: GATHER, ofm: 'z'",
    ]
    assert read_refusals(lines) == [
        OperatorRefusal(
            "RELU", "it's, ofm: 'odd", "Operation has tensor with unsupported DataType Float32 (x)"
        ),
        OperatorRefusal("GATHER", "z", ""),
    ]


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("SIGSEGV", "Vela 5.2 crashed (SIGSEGV)"),
        ("SIGKILL", "Vela does not compile it: m: python was killed by SIGKILL"),
    ],
)
def test_a_crash_of_vela_is_not_taken_for_short_memory(
    name: str, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise MaceError(
            "m", f"python was killed by {name}", "if memory is short, build with fewer jobs (-j1)"
        )

    monkeypatch.setattr("mace_core.run.command.Command.execute", fail)
    monkeypatch.setattr(vela, "version", lambda _: "5.2")
    with pytest.raises(MaceError) as error:
        compile_network(b"", EthosUOptions(), "m")
    assert str(error.value).startswith(f"m: {problem}")
    assert ("if memory is short" in str(error.value)) == (name == "SIGKILL")


@pytest.mark.parametrize(
    ("installed", "fits"), [("5.2.0", True), ("5.9", True), ("5.1.1", False), ("6.0.0", False)]
)
def test_versions_whose_output_is_not_known_are_missing(
    installed: str, fits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vela, "version", lambda _: installed)
    monkeypatch.setattr(vela, "find_spec", lambda _: object())
    fault = EthosU().missing()
    assert (fault is None) == fits
    assert fits or f"Vela {installed}" in str(fault)


def test_without_vela_the_target_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: str) -> str:
        raise vela.PackageNotFoundError

    monkeypatch.setattr(vela, "version", fail)
    assert EthosU().missing() == (
        "Vela, Arm's compiler, is not installed: pip install 'mace-target-ethosu[vela]'"
    )


def test_a_payload_states_regions_and_ports() -> None:
    encoded = encode_network(SMALL, "m")
    words = np.frombuffer(encoded.code[: 4 * (HEADER_WORDS + 4 + 6)], "<u4").tolist()
    start = words[3]
    assert start % ALIGNMENT == 0
    assert words[:7] == [MAGIC, 1, len(encoded.code), start, 16, 2, 2]
    assert words[7:] == [1, 16, 2, 100, 1, 0, 4, 1, 16, 4]
    assert encoded.code[start:] == SMALL.stream
    assert (encoded.scratch, encoded.weights) == (100, SMALL.weights)


def test_fast_memory_comes_behind_the_arena() -> None:
    from dataclasses import replace

    encoded = encode_network(replace(SMALL, fast_region=2, fast_bytes=48), "m")
    assert encoded.scratch == 128 + 48


def test_ports_outside_the_arena_are_refused() -> None:
    from dataclasses import replace

    with pytest.raises(MaceError, match=r"m: Vela lays tensors into the regions \[0, 1\]; report a bug"):
        encode_network(replace(SMALL, inputs=(Place(0, 0, 4),)), "m")
