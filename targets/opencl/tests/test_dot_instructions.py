"""Products of bytes by an instruction of the device: what the compiler is asked for, and what is done without."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest
from opencl_device import require_clang, require_device
from opencl_shim import build_shim, choose_library
from stub_session import Probe, ProbeSession, build_probe
from test_quantized import CONVS, full_range, load_on_cpu

from mace_core.ir import Graph
from mace_core.testing.compiled import generate_library, load_library
from mace_target_opencl.enqueue import render_program
from mace_target_opencl.target import Opencl

KHR, ARM, NVIDIA = (f"-DMACE_DEVICE_HAS_{name}_DOT" for name in ("KHR", "ARM", "NVIDIA"))
OLD, NEW = "-cl-std=CL1.2", "-cl-std=CL3.0"
KHR_NAME, ARM_NAME = "cl_khr_integer_dot_product", "cl_arm_integer_dot_product_int8"
NVIDIA_NAME = "cl_nv_device_attribute_query"


def dots_graph() -> Graph:
    """Return a convolution of bytes whose depth is a multiple of four."""
    (call,) = Opencl().lower(CONVS[0]).calls
    assert call.kernel.params["dots"]
    return CONVS[0].with_name("m")


@pytest.fixture(scope="module")
def probe(tmp_path_factory: pytest.TempPathFactory) -> Probe:
    return build_probe(tmp_path_factory.mktemp("probe"), graph=dots_graph())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("environment", "options"),
    [
        ({}, OLD),
        ({"EXTENSIONS": KHR_NAME}, OLD),
        ({"EXTENSIONS": KHR_NAME, "C_NEWEST": "2"}, OLD),
        ({"EXTENSIONS": KHR_NAME, "C_NEWEST": "3"}, f"{NEW} {KHR}"),
        ({"EXTENSIONS": KHR_NAME, "C_VERSION": "OpenCL C 3.0 x"}, f"{NEW} {KHR}"),
        ({"EXTENSIONS": KHR_NAME, "C_VERSION": "strange"}, OLD),
        ({"EXTENSIONS": f"{ARM_NAME} {KHR_NAME}", "C_NEWEST": "3"}, f"{NEW} {KHR} {ARM}"),
        ({"EXTENSIONS": f"{ARM_NAME} {KHR_NAME}"}, f"{OLD} {ARM}"),
        ({"C_NEWEST": "3"}, OLD),
        ({"EXTENSIONS": NVIDIA_NAME, "CAPABILITY": "61"}, f"{OLD} {NVIDIA}"),
        ({"EXTENSIONS": NVIDIA_NAME, "CAPABILITY": "90"}, f"{OLD} {NVIDIA}"),
        ({"EXTENSIONS": NVIDIA_NAME, "CAPABILITY": "60"}, OLD),
        ({"CAPABILITY": "90"}, OLD),
    ],
    ids=str,
)
def test_the_compiler_is_asked_for_what_the_device_has(
    environment: dict[str, str], options: str, probe: Probe
) -> None:
    log = probe.run(ProbeSession(runs=1), **environment)
    assert log.find("options") == [options]
    assert log.find("run") == ["0"]


@pytest.mark.slow
@pytest.mark.parametrize("environment", [{"EXTENSIONS": KHR_NAME, "C_NEWEST": "3"}, {"EXTENSIONS": ARM_NAME}])
def test_kernels_are_compiled_without_what_the_compiler_does_not_take(
    environment: dict[str, str], probe: Probe
) -> None:
    log = probe.run(ProbeSession(runs=1), FAIL="clBuildProgram:1:-11", **environment)
    assert log.find("options")[-1] == OLD
    assert len(log.find("options")) == 2
    assert log.find("run") == ["0"]


@pytest.mark.slow
def test_programs_without_such_products_are_compiled_as_ever(tmp_path: Path) -> None:
    log = build_probe(tmp_path).run(ProbeSession(runs=1), EXTENSIONS=KHR_NAME, C_NEWEST="3")
    assert log.find("options") == [OLD]


@pytest.mark.slow
def test_the_instruction_of_nvidia_is_ptx(tmp_path: Path) -> None:
    """Clang's own compiler for NVIDIA's devices takes the source; NVIDIA's was never asked."""
    clang = require_clang()
    (tmp_path / "k.cl").write_text(render_program(c.kernel for c in Opencl().lower(dots_graph()).calls))
    options = ["-x", "cl", OLD, NVIDIA, "-Xclang", "-finclude-default-header"]
    target = ["-target", "nvptx64-nvidia-nvcl", "-Xclang", "-target-cpu", "-Xclang", "sm_61"]
    command = [clang, *options, *target, "-S", str(tmp_path / "k.cl"), "-o", str(tmp_path / "k.ptx")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "dp4a.s32.s32" in (tmp_path / "k.ptx").read_text()


@pytest.mark.device
@pytest.mark.exhaustive
def test_a_newer_standard_has_the_bits_of_the_cpu(tmp_path: Path) -> None:
    """PoCL compiles OpenCL C 3.0; the library in between lists an extension whose function it lacks."""
    require_device()
    graph = dots_graph()
    config = choose_library(build_shim(tmp_path))
    device = load_library(generate_library([Opencl()], [graph]), tmp_path / "device", config=config)["m"]
    cpu = load_on_cpu(graph, tmp_path / "cpu")["m"]
    inputs = full_range(graph)
    expected, actual = cpu.run(inputs), device.run(inputs)
    assert [name for name in expected if not np.array_equal(actual[name], expected[name])] == []
