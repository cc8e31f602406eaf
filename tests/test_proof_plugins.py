"""Targets of every kind in one graph with the CPU: several regions each, through plan, library and session, on this machine and as ARM.

The plugins lie in tests/plugins; test_proof_wheels.py installs them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from proof_plugins import (
    INNER,
    NAMES,
    PLUGINS,
    Probe,
    build_capsule_runtime,
    generate_network,
    network_input,
    registry_with,
    target,
    write_network,
)

from mace_core.api import Compiler
from mace_core.compilation import Compilation, compile_model
from mace_core.deployment import load_deployment
from mace_core.errors import MaceError
from mace_core.explain import explain, show_explanations
from mace_core.generation import Generated
from mace_core.ir import Array
from mace_core.plan import Run, Transfer
from mace_core.registry import Registry
from mace_core.run.compile import shared_library
from mace_core.testing.compiled import case, generate_library, host, load_library
from mace_core.testing.requirements import require

pytestmark = pytest.mark.slow  # a compiler makes every library

SANITIZED = ("-O0", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
DEVICES = ("island", "capsule")
ARM_LIBRARIES = "/usr/aarch64-linux-gnu"
NEVER, AT_OPEN, AT_RUN = "0", "1", "2"


ALL = [name if name != "remote" else pytest.param(name, marks=pytest.mark.exhaustive) for name in NAMES]


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Generated]:
    """Generates the network's library for a target and the CPU, once."""

    @cache
    def make(name: str) -> Generated:
        if name == "remote":
            require(target("remote").missing())
        return generate_network(tmp_path_factory.mktemp("generated"), f"host+{name}", [name])

    return make


@pytest.fixture(scope="module")
def probes(
    generated: Callable[[str], Generated], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Probe]:
    """Builds it."""
    return cache(lambda name: Probe.build(generated(name), host(), tmp_path_factory.mktemp("probe")))


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment in which the library of the capsules' vendor is installed."""
    folder = build_capsule_runtime(tmp_path_factory.mktemp("vendor"), host())
    return {"LD_LIBRARY_PATH": str(folder)}


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> tuple[Array, ...]:
    """What the build for the CPU alone computes."""
    folder = tmp_path_factory.mktemp("alone")
    return Probe.build(generate_network(folder, "host", ()), host(), folder).run().outputs


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL)
def test_the_plan_alternates_between_target_and_cpu(name: str, generated: Callable[[str], Generated]) -> None:
    (model,) = generated(name).models
    owners = [part.target for part in model.plan.parts]
    assert owners.count(name) >= 3
    assert all(owner in (name, "cpu") for owner in owners)
    assert all(a != b for a, b in pairwise(owners))
    order = [model.plan.parts[step.part].target for step in model.plan.steps if isinstance(step, Run)]
    assert order == owners


def test_what_crosses_to_the_island_is_copied_and_nothing_else(generated: Callable[[str], Generated]) -> None:
    (model,) = generated("island").models
    plan = model.plan
    copies = {
        (step.tensor, step.source, step.destination) for step in plan.steps if isinstance(step, Transfer)
    }
    assert {(source, destination) for _, source, destination in copies} == {
        ("host", "island"),
        ("island", "host"),
    }
    inside = {
        port.tensor.name
        for part in plan.parts
        if part.target == "island"
        for port in (*part.inputs, *part.outputs)
    }
    assert {tensor for tensor, _, _ in copies} <= inside
    assert len(copies) == len(plan.transfers)
    for tensor, offset in plan.arenas["island"].offsets.items():
        assert offset % 256 == 0, tensor


@pytest.mark.parametrize("name", ["capsule", "cpu-wide"])
def test_nothing_is_copied_for_targets_in_host_memory(
    name: str, generated: Callable[[str], Generated]
) -> None:
    (model,) = generated(name).models
    assert model.plan.transfers == ()


def test_the_ledger_tells_who_refused_what_and_what_is_copied(tmp_path: Path) -> None:
    registry = registry_with("island")
    (model,) = load_deployment(write_network(tmp_path)).models
    choice = registry.select("host+island")[0]
    explanation = explain(compile_model(model, Compilation(choice, registry)))
    text = show_explanations([explanation])
    assert "(Tanh): on cpu; not on island: the island has no kernel for Tanh; it computes Abs, Add" in text
    assert "[unsupported-op]" in text
    assert "host -> island" in text
    assert "island -> host" in text
    assert "mace_island_driver" in text
    with pytest.raises(MaceError, match="would fall back to cpu; island: the island has no kernel for"):
        compile_model(model, Compilation(choice, registry, no_fallback=True))


@pytest.mark.slow
@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("name", ALL)
def test_results_are_those_of_the_cpu_alone(
    name: str, probes: Callable[[str], Probe], runtime: dict[str, str], expected: tuple[Array, ...]
) -> None:
    """Bit for bit: wide tiles add in the same order, devices compute element by element."""
    probed = probes(name).run(NEVER, "3", "2", environment=runtime)
    assert probed.said("open") == ["open 0 "] * 2
    assert probed.said("run") == ["run 0 "] * 6
    if name == "remote":  # products for another processor may be rounded otherwise
        for found, wanted in zip(probed.outputs, expected, strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    else:
        assert [a.tobytes() for a in probed.outputs] == [a.tobytes() for a in expected]


def test_wide_and_usual_kernels_lie_in_one_library(generated: Callable[[str], Generated]) -> None:
    """Each target has a table of its own, with kernels for its own tiles."""
    files = generated("cpu-wide").sources.files
    tables = [name for name in files if "_kernels" in name and name.endswith(".c")]
    assert any("wide" in name for name in tables)
    assert any("wide" not in name for name in tables)


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL)
def test_parts_say_what_computes_them(
    name: str, probes: Callable[[str], Probe], runtime: dict[str, str]
) -> None:
    devices = [line.split(" ", 2)[2] for line in probes(name).run(environment=runtime).said("part")]
    assert sum(device.startswith(name) for device in devices) >= 3
    assert any(device.startswith("cpu:") for device in devices)


FAULTS = {
    "island": [("open", 6, "tide"), ("load", 7, "generation"), ("allocate", 11, "full")],
    "capsule": [("open", 6, "no capsule reader"), ("load", 7, "generation")],
}
RUN_FAULTS = {
    "island": [("run:2", 11, "half way"), ("copy:2", 11, "boat"), ("lost:2", 10, "sank")],
    "capsule": [("run:2", 11, "burst"), ("lost:2", 10, "pulled out")],
}


@pytest.fixture(
    scope="module", params=[DEVICES[0], pytest.param(DEVICES[1], marks=pytest.mark.exhaustive)], ids=DEVICES
)
def faulty(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Probe]:
    """A target and its probe under sanitizers, which look for leaks as well, with a fallback in the library."""
    require(None if shutil.which("gcc") else "gcc is not installed: apt-get install gcc")
    folder = tmp_path_factory.mktemp("faulty")
    result = generate_network(folder, f"host+{request.param}", [request.param], fallback=True)
    return request.param, Probe.build(result, Compiler(("gcc",), ("ar",)), folder, SANITIZED)


def with_fault(name: str, fault: str, runtime: dict[str, str]) -> dict[str, str]:
    return {**runtime, f"MACE_{name.upper()}_FAULT": fault, "ASAN_OPTIONS": "detect_leaks=1"}


@pytest.mark.slow
def test_a_device_that_fails_to_open_gives_a_status_and_a_text(
    faulty: tuple[str, Probe], runtime: dict[str, str]
) -> None:
    name, probe = faulty
    for fault, status, text in FAULTS[name]:
        probed = probe.run(NEVER, "0", environment=with_fault(name, fault, runtime))
        (line,) = probed.said("open")
        assert line.startswith(f"open {status} "), fault
        assert text in line
        assert name in line, "the text says which part and device"


@pytest.mark.slow
def test_a_device_that_fails_to_open_leaves_the_model_to_the_cpu_if_asked(
    faulty: tuple[str, Probe], runtime: dict[str, str], expected: tuple[Array, ...]
) -> None:
    name, probe = faulty
    for fault, _, text in FAULTS[name]:
        probed = probe.run(AT_OPEN, "2", environment=with_fault(name, fault, runtime))
        assert probed.said("open")[0].startswith("open 0"), fault
        assert any("fallback" in line and text in line for line in probed.said("part")), probed.lines
        assert [line[:5] for line in probed.said("run")] == ["run 0"] * 2
        assert [a.tobytes() for a in probed.outputs] == [a.tobytes() for a in expected]


def test_a_device_that_fails_in_a_run_gives_a_status_and_a_text(
    faulty: tuple[str, Probe], runtime: dict[str, str]
) -> None:
    name, probe = faulty
    for fault, status, text in RUN_FAULTS[name]:
        probed = probe.run(NEVER, "3", "2", environment=with_fault(name, fault, runtime))
        lines = probed.said("run")
        failed = next(line for line in lines if not line.startswith("run 0"))
        assert failed.startswith(f"run {status} "), fault
        assert text in failed
        if status == 10:
            assert lines[2].startswith("run 10 "), "a session whose device is lost stays lost"
        else:
            assert lines[2] == "run 0 ", "the session is usable after a run that failed"


def test_a_device_that_fails_in_a_run_leaves_it_to_the_cpu_if_asked(
    faulty: tuple[str, Probe], runtime: dict[str, str], expected: tuple[Array, ...]
) -> None:
    name, probe = faulty
    for fault, _, _ in RUN_FAULTS[name]:
        probed = probe.run(AT_RUN, "2", environment=with_fault(name, fault, runtime))
        assert [line[:5] for line in probed.said("run")] == ["run 0"] * 2, fault
        assert [a.tobytes() for a in probed.outputs] == [a.tobytes() for a in expected]


def test_without_its_library_a_capsule_says_what_to_install(
    faulty: tuple[str, Probe], tmp_path: Path
) -> None:
    name, probe = faulty
    (line,) = probe.run(NEVER, "0", environment={"LD_LIBRARY_PATH": str(tmp_path)}).said("open")
    if name == "island":
        assert line == "open 0 "
        return
    assert line.startswith("open 6 ")
    for word in ("libcapsule_rt.so.2", "libcapsule_rt.so", "libcapsule.so", "install Capsule Runtime 2"):
        assert word in line


@pytest.mark.slow
def test_a_capsule_takes_the_first_library_that_is_complete(
    faulty: tuple[str, Probe], tmp_path: Path, expected: tuple[Array, ...]
) -> None:
    name, probe = faulty
    if name != "capsule":
        return
    # Incomplete.
    build_capsule_runtime(tmp_path, host(), "libcapsule_rt.so.2", ["-Dcapsule_run=capsule_walk"])
    build_capsule_runtime(tmp_path, host(), "libcapsule_rt.so")
    # Nor is this.
    build_capsule_runtime(tmp_path, host(), "libcapsule.so", ["-Dcapsule_load=capsule_swallow"])
    probed = probe.run(environment={"LD_LIBRARY_PATH": str(tmp_path)})
    assert any("libcapsule_rt.so" in line and ".so.2" not in line for line in probed.said("part"))
    assert [a.tobytes() for a in probed.outputs] == [a.tobytes() for a in expected]


@pytest.mark.parametrize(
    "name", ["island", *(pytest.param(n, marks=pytest.mark.exhaustive) for n in ("capsule", "remote"))]
)
def test_a_library_leaves_the_process_and_a_process_leaves_open_sessions(
    name: str, generated: Callable[[str], Generated], runtime: dict[str, str], tmp_path: Path
) -> None:
    """Nothing of ours runs when a process ends, so neither order of dlclose, mace_close and exit() matters."""
    library = shared_library(generated(name).sources, host(), tmp_path, ("-O0",))
    program = tmp_path / "unload"
    command = [*host().cc, "-std=gnu11", "-Wall", "-Werror", f"-I{tmp_path}", str(PLUGINS / "unload.c")]
    subprocess.run([*command, "-o", program, "-ldl"], check=True)
    for last in ([], ["leave"]):
        done = subprocess.run(
            [program, library, *last],
            env={**os.environ, **runtime},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert (done.returncode, done.stderr) == (0, ""), last


@pytest.mark.slow
def test_the_slack_of_a_space_lies_behind_its_last_tensor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tensors that fill their granules, so that nothing but the slack lies behind the last."""
    island = target("island")
    graph = case("full", "Relu", [np.zeros((1, 1024), np.float32)])
    x = np.linspace(-1, 1, 1024, dtype=np.float32).reshape(1, 1024)
    model = load_library(generate_library([island], [graph]), tmp_path / "slack")["full"]
    np.testing.assert_array_equal(model.run({"x0": x})["y0"], np.maximum(x, 0))
    module = sys.modules[type(island).__module__]
    monkeypatch.setattr(module, "SPACE", replace(module.SPACE, slack=0))
    model = load_library(generate_library([island], [graph]), tmp_path / "none")["full"]
    with pytest.raises(MaceError, match="outside of the island's memory"):
        model.run({"x0": x})


@pytest.mark.exhaustive
@pytest.mark.slow
def test_valgrind_finds_nothing(tmp_path: Path, runtime: dict[str, str]) -> None:
    require(None if shutil.which("valgrind") else "valgrind is not installed: apt-get install valgrind")
    for name in DEVICES:
        folder = tmp_path / name
        folder.mkdir()
        result = generate_network(folder, f"host+{name}", [name], fallback=True)
        probe = Probe.build(result, host(), folder, ("-O1", "-g"))
        checked = replace(probe, command=("valgrind", "-q", "--leak-check=full", "--error-exitcode=9"))
        for fault in ("", *(fault for fault, *_ in (*FAULTS[name], *RUN_FAULTS[name]))):
            checked.run(AT_OPEN, "3", environment={**runtime, f"MACE_{name.upper()}_FAULT": fault})


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.parametrize("name", ["island", "capsule", "cpu-wide"])
def test_the_same_as_arm(name: str, tmp_path: Path) -> None:
    """On an emulated 64-bit ARM, against the CPU's build for it.

    Dynamically linked, because capsules load a library.
    """
    registry = Registry.load()
    require(registry.toolchains["gnu"].missing("arm64"))
    require(
        None if shutil.which("qemu-aarch64") else "qemu-aarch64 is not in PATH: apt-get install qemu-user"
    )
    require(
        None
        if os.path.isdir(ARM_LIBRARIES)
        else f"{ARM_LIBRARIES} is not there: apt-get install libc6-dev-arm64-cross"
    )
    compiler = replace(registry.toolchains["gnu"].compiler("arm64"), program=())
    emulate = ("qemu-aarch64", "-L", ARM_LIBRARIES)
    vendor = build_capsule_runtime(tmp_path / "vendor", compiler)
    outputs = []
    for plugins in ((), (name,)):
        folder = tmp_path / "-".join(("arm", *plugins))
        folder.mkdir()
        result = generate_network(folder, "+".join(("arm64", *plugins)), plugins)
        probe = replace(
            Probe.build(result, compiler, folder), command=(*emulate, "-E", f"LD_LIBRARY_PATH={vendor}")
        )
        probed = probe.run(NEVER, "2")
        assert probed.said("run") == ["run 0 "] * 2
        outputs.append([a.tobytes() for a in probed.outputs])
    assert outputs[0] == outputs[1]


def test_the_network_reaches_every_part_of_its_input(expected: tuple[Array, ...]) -> None:
    """Outputs that differ everywhere: a part that was skipped would show."""
    assert network_input().shape[1] == INNER[0]
    for output in expected:
        assert len(np.unique(output)) > output.size // 3
