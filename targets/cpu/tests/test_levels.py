"""The levels of the CPU target: tiles that its kernels can be compiled for, panels that they can read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from quantized_graphs import inputs_of

from mace_core.commands import load_job
from mace_core.errors import MaceError, PluginError
from mace_core.fingerprint import fingerprint
from mace_core.generation import generate
from mace_core.ir import Array, DType
from mace_core.job import Job
from mace_core.kernel_target import KernelTarget
from mace_core.levels import choose_levels, with_levels
from mace_core.run import native
from mace_core.run.compile import shared_library
from mace_core.run.reference import execute
from mace_core.testing.compiled import (
    case,
    check_graphs,
    check_merged,
    generate_library,
    host,
    is_close,
    merge,
    plan_graph,
    split_by_graph,
    with_quick_flags,
)
from mace_core.testing.processor import levels_here
from mace_core.testing.samples import sample
from mace_target_cpu import Cpu, is_x86
from mace_target_cpu.isa import GENERIC, VECTOR, X86, CpuLevel, Packing


@pytest.mark.parametrize("level", [*X86, *GENERIC], ids=lambda level: str(level.name))
def test_panels_and_tiles_divide_each_other_and_hold_whole_registers(level: CpuLevel) -> None:
    narrow, wide = sorted((level.panel, level.columns))
    assert wide % narrow == 0
    assert narrow % level.lanes == 0


@pytest.mark.parametrize("numbers", [(4, 6, 16), (4, 12, 16), (8, 16, 24)])
def test_a_level_whose_kernels_would_read_beside_their_panel_is_refused(
    numbers: tuple[int, int, int],
) -> None:
    lanes, columns, panel = numbers
    with pytest.raises(
        PluginError,
        match=r"level odd: its widths .* do not divide each other; let a panel hold whole tiles or",
    ):
        CpuLevel("odd", (), "", VECTOR, lanes=lanes, rows=4, columns=columns, panel=panel)


def test_lowerings_pack_for_the_panel_of_the_level() -> None:
    assert Cpu().parameters(replace(X86[0], panel=32)) == Packing(32)
    assert Cpu().parameters(None) == Packing(16)


@pytest.mark.slow
def test_the_environment_chooses_the_level(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    levels = levels_here(Cpu().levels("host"))
    graph = case("product", "MatMul", factors((2, 3), (3, 4)))
    library = shared_library(generate_library([Cpu()], [graph]), host(), tmp_path, ("-O0",))
    for level in levels:
        monkeypatch.setenv("MACE_CPU_LEVEL", level.name)
        assert native.load(library, "cases")["product"].devices() == [f"cpu: {level.name}"]
    monkeypatch.setenv("MACE_CPU_LEVEL", "")
    assert native.load(library, "cases")["product"].devices() == [f"cpu: {levels[0].name}"]
    monkeypatch.setenv("MACE_CPU_LEVEL", "avx9")
    names = ", ".join(level.name for level in Cpu().levels("host"))
    text = f"MACE_CPU_LEVEL: .* no such level; the library's levels of cpu are {names}"
    with pytest.raises(MaceError, match=text):
        native.load(library, "cases")


class TwoPanels(Cpu):
    """Two levels that differ in their panels; `is_first` says which one runs."""

    def __init__(self, is_first: bool) -> None:
        first = CpuLevel("first", (), str(int(is_first)), VECTOR, lanes=4, rows=2, columns=16, panel=32)
        self.both = (first, CpuLevel("last", (), "", VECTOR, lanes=4, rows=4, columns=8))

    def levels(self, abi: str) -> tuple[CpuLevel, ...]:
        return self.both


def factors(*shapes: tuple[int, ...]) -> list[Array]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(shape).astype(np.float32) for shape in shapes]


CONV = {"strides": (1, 1), "pads_before": (1, 1), "pads_after": (1, 1), "dilations": (1, 1)}


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.parametrize("is_first", [True, False], ids=["panel of 32", "panel of 16"])
def test_each_level_reads_weights_that_were_packed_for_it(is_first: bool, tmp_path: Path) -> None:
    graphs = [
        case("product", "MatMul", factors((5, 7), (7, 45)), constants=(1,)),
        case("computed", "MatMul", factors((5, 7), (7, 45))),
        case("window", "Conv", factors((1, 6, 5, 3), (45, 3, 3, 3), (45,)), CONV, constants=(1, 2)),
        *(g for op in ("MatMul", "Conv") if (g := sample(op, DType.I8, quantized=True))),
    ]
    target = TwoPanels(is_first)
    calls = plan_graph(target, graphs[0]).program.calls
    assert [(call.args["panel"], call.levels) for call in calls] == [(32, ("first",)), (16, ("last",))]
    check_graphs(target, graphs[:3], tmp_path / "floats")
    check_merged(target, graphs, tmp_path / "all", 1e-5)


HAS_AVX2 = any(level.name == "avx2" for level in levels_here(X86))


@pytest.mark.slow
@pytest.mark.skipif(not HAS_AVX2, reason="this processor lacks AVX2, so that the kernels could not run")
def test_the_lowest_level_is_compiled_by_compilers_that_use_avx2_unasked(tmp_path: Path) -> None:
    """As GCC of distributions for x86-64-v3 does, and any with -march=native in $CC."""
    target = with_levels(Cpu(), [level for level in X86 if level.name == "sse2"])
    ops = ("Conv", "MatMul", "Add", "MaxPool", "Sigmoid")
    graphs = []
    for op in ops:
        for dtype in (DType.I8, DType.U8):
            graph = sample(op, dtype, quantized=True)
            assert graph is not None, op
            graphs.append(replace(graph, name=f"{op}_{dtype.value}"))
    newer = replace(host(), cc=(*host().cc, "-mavx2", "-mfma"))
    merged = merge("all", graphs)
    sources = with_quick_flags(generate_library([target], [merged]), newer)
    library = shared_library(sources, newer, tmp_path, ())
    inputs = inputs_of(merged)
    results = native.load(library, "cases")["all"].run(inputs)
    for graph in graphs:
        found, expected = split_by_graph(results, graph), execute(graph, split_by_graph(inputs, graph))
        for name in graph.outputs:
            assert is_close(found[name], expected[name], graph.tensors[name], 1e-5), graph.name


def test_a_target_that_borrows_lowerings_without_their_parameters_is_told_so() -> None:
    class Borrower(KernelTarget):
        name = "borrower"
        runtime = "cpu"
        lowerings = Cpu().lowerings

        def levels(self, abi: str) -> tuple[CpuLevel, ...]:
            return GENERIC

    graph = case(
        "product", "MatMul", [np.zeros((2, 3), np.float32), np.zeros((3, 4), np.float32)], constants=(1,)
    )
    assert graph.tensors["y0"].dtype is DType.F32
    with pytest.raises(
        PluginError, match=r"parameters\(\) returns no Packing; derive the target from mace_target_cpu.Cpu"
    ):
        Borrower().refuses(graph.nodes[0], graph)


def test_a_level_of_another_width_is_refused() -> None:
    with pytest.raises(
        PluginError, match="level scalar: its vectors hold 1 floats; kernels are written for 4, 8 and 16"
    ):
        CpuLevel("scalar", (), "", VECTOR, lanes=1, rows=4, columns=4)


FLAGS = {
    "amx": {
        "avx512f",
        "avx512bw",
        "avx512dq",
        "avx512vl",
        "avx512_vnni",
        "avx512_bf16",
        "amx_tile",
        "amx_int8",
        "amx_bf16",
    },
    "avx512vnni": {"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vnni"},
    "avx512": {"avx512f", "avx512bw", "avx512dq", "avx512vl"},
    "avxvnni": {"avx2", "fma", "avx_vnni"},
    "avx2": {"avx2", "fma"},
    "sse2": {"sse2"},
}
"""The names in /proc/cpuinfo of the extensions that each level needs; Linux lists those whose state it saves."""


@pytest.mark.slow
@pytest.mark.skipif(not is_x86("host"), reason="the levels of x86-64 cannot be detected elsewhere")
def test_levels_are_detected_as_the_kernel_lists_them() -> None:
    line = next(line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("flags"))
    known = set(line.split(":")[1].split())
    assert [level.name for level in levels_here(X86)] == [
        name for name, needed in FLAGS.items() if needed <= known
    ]


def levels_of(features: tuple[str, ...], abi: str = "amd64") -> list[str]:
    (target,) = choose_levels([Cpu()], abi, features)
    return [str(level.name) for level in target.levels(abi)]


def test_a_library_holds_the_levels_of_cpu_features_and_one_for_every_processor() -> None:
    assert levels_of(()) == ["avx512vnni", "avx2", "sse2"]
    assert levels_of(("avx2", "avx512")) == ["avx512", "avx2", "sse2"]
    assert levels_of(("amx",)) == ["amx", "sse2"]
    assert levels_of(("sse2",)) == ["sse2"]
    assert levels_of(("generic",), "riscv64") == ["generic"]


def test_levels_that_a_target_derived_from_the_cpu_was_not_written_for_stay_out() -> None:
    target = with_levels(Cpu(), GENERIC)
    assert target.known_levels("amd64") == GENERIC


def test_a_level_that_no_target_has_is_refused_with_those_that_it_has() -> None:
    text = "cpu_features: no level avx9 for amd64; choose among amx, avx512vnni, avx512"
    with pytest.raises(MaceError, match=text):
        levels_of(("avx2", "avx9"))


def test_targets_with_chosen_levels_are_the_same_objects_each_time() -> None:
    targets = [Cpu()]
    assert choose_levels(targets, "amd64", ("avx2",)) == choose_levels(targets, "amd64", ("avx2",))


@pytest.mark.slow
def test_the_deployment_file_chooses_the_levels(tmp_path: Path) -> None:
    model = Path(__file__).parents[3] / "models/digits/digits.onnx"
    deployment = tmp_path / "one.yml"
    deployment.write_text(
        "library_name: one\ncpu_features: [avx2]\nmodels:\n  digits:\n    platform: onnx\n"
        f"    model_file_path: {model}\n"
    )
    parsed, choice, registry = load_job(deployment, "amd64+cpu" if is_x86("host") else "host")
    sources = generate(Job(parsed, choice), registry).sources
    kernels = sorted(name for name in sources.files if "_kernels_" in name)
    assert kernels == ["one_cpu_kernels_avx2.c", "one_cpu_kernels_sse2.c"]
    # What a build depends on names the package of the target, not that of the class made for the levels.
    assert any(
        line.startswith("mace_target_cpu ")
        for line in fingerprint(Job(parsed, choice), registry).splitlines()
    )
