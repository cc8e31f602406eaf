"""Makes every function of the vendor that the driver's header declares fail in turn; a new function without a case fails a test."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest
from neuron_session import (
    BUILDS,
    SANITIZED,
    Direct,
    SessionProgram,
    build_adapter,
    build_runtime,
    build_session,
    small_graph,
)
from test_driver_compiled import dla, doubled_graph

from mace_core.graph_builder import Builder
from mace_core.ir import DType, Graph, Quant, Storage
from mace_target_mdla.driver import ADAPTERS
from mace_target_mdla.network import NetworkKind, encode_compiled

HEADER = Path(__file__).parents[1] / "src/mace_target_mdla/driver/mdla_neuron.h"
NEVER, AT_OPEN, AT_RUN = 0, 1, 2
REFUSED, NO_DEVICE, FAILED = 5, 6, 11


@dataclass(frozen=True)
class Fault:
    """How a function is reached, and what becomes of its answer 1 (out of memory).

    library: the session.  moment: the line of the program that tells it.  status: that line's.
    """

    moment: str = "open"
    status: int = FAILED
    library: str = "adapter"
    options: str = "-"
    bind: int = 0
    uses_cache: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)


IS_ABSENT = Fault(status=0)
"""The expected status of a function whose failure the driver tolerates."""
DEVICES = {"NEURON_STUB_DEVICES": "mtk-mdla"}
COMPILE = "mdla.compile=--opt-bw"
FAULTS: Mapping[str, Fault] = {
    "Neuron_getVersion": Fault(status=NO_DEVICE),
    **dict.fromkeys(BUILDS, Fault()),
    "NeuronModel_setOperandSymmPerChannelQuantParams": Fault(library="channels"),
    "NeuronModel_restoreFromCompiledNetwork": replace(IS_ABSENT, uses_cache=True),
    "NeuronCompilation_getCompiledNetworkSize": replace(IS_ABSENT, uses_cache=True),
    "NeuronCompilation_storeCompiledNetwork": replace(IS_ABSENT, uses_cache=True),
    "NeuronCompilation_createForDevices": Fault(environment=DEVICES),
    "NeuronCompilation_createWithOptions": Fault(options=COMPILE),
    "NeuronCompilation_setOptimizationString": Fault(library="old adapter", options=COMPILE),
    "Neuron_getDeviceCount": replace(IS_ABSENT, environment=DEVICES),
    "Neuron_getDevice": replace(IS_ABSENT, environment=DEVICES),
    "NeuronDevice_getName": replace(IS_ABSENT, environment=DEVICES),
    "NeuronExecution_setInput": Fault("run"),
    "NeuronExecution_setOutput": Fault("run"),
    "NeuronExecution_setBoostHint": Fault("run"),
    "NeuronExecution_compute": Fault("run"),
    "NeuronExecution_setInputFromMemory": Fault("run", bind=1),
    "NeuronExecution_setOutputFromMemory": Fault("run", bind=1),
    "NeuronMemory_createFromFd": Fault("bind", REFUSED, bind=1),
    "NeuronMemory_createFromAHardwareBuffer": Fault("bind", REFUSED, bind=2),
    **{
        f"NeuronRuntimeV2_{name}": Fault(library="runtime 2")
        for name in ("createFromBuffer", "getInputNumber", "getOutputNumber", "getInputSize", "getOutputSize")
    },
    "NeuronRuntimeV2_run": Fault("run", library="runtime 2"),
    **{
        f"NeuronRuntime_{name}": Fault(library="runtime 1")
        for name in (
            "create",
            "loadNetworkFromBuffer",
            "getInputNumber",
            "getOutputNumber",
            "getInputSize",
            "getOutputSize",
        )
    },
    **{
        f"NeuronRuntime_{name}": Fault("run", library="runtime 1")
        for name in ("setInput", "setOutput", "inference")
    },
}


def declared_functions() -> set[str]:
    """Return the functions of the header that return a status; those that free an object return nothing."""
    text = re.sub(r"\\\n\s*", " ", HEADER.read_text(encoding="utf-8"))
    functions = re.findall(r"NAME\((Neuron\w+),\s*(\w+)", text)
    assert len(functions) > 50
    return {name for name, answer in functions if answer == "int"}


def test_every_function_of_the_header_has_its_fault() -> None:
    assert set(FAULTS) == declared_functions()


def channels_graph() -> Graph:
    """A convolution of int8 whose filters have a scale each."""
    builder = Builder("m")
    x = builder.input("x", DType.I8, (1, 4, 4, 2), Quant.of(0.1))
    w = builder.weight("w", np.full((3, 1, 1, 2), 7, np.int8), Quant((0.1, 0.2, 0.3), (0, 0, 0), 0))
    window = {"strides": (1, 1), "dilations": (1, 1), "pads_before": (0, 0), "pads_after": (0, 0)}
    y = builder.reserve_output("y", Storage(DType.I8, Quant.of(0.5)))
    return builder.finish([builder.one("Conv", [x, w], window, outputs=[y])])


@pytest.fixture(scope="module")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> dict[str, SessionProgram]:
    """A program for each library that a fault is planted in, with the library in its environment."""
    folder = tmp_path_factory.mktemp("sessions")
    adapter = build_session(small_graph(), folder / "adapter", flags=SANITIZED)
    network = encode_compiled(doubled_graph(), dla(), NetworkKind.DLA)
    files = build_session(doubled_graph(), folder / "files", Direct(network), SANITIZED)
    absent = ["-DNeuronCompilation_createWithOptions=NeuronCompilation_createWithOptions_absent"]
    vendors = {
        "adapter": (adapter, build_adapter(folder / "vendor")),
        "old adapter": (adapter, build_adapter(folder / "old", ADAPTERS[-1], absent)),
        "channels": (
            build_session(channels_graph(), folder / "channels", flags=SANITIZED),
            folder / "vendor",
        ),
        "runtime 2": (files, build_runtime(folder / "v2")),
        "runtime 1": (files, build_runtime(folder / "v1", flags=["-DONLY_V1"])),
    }
    return {
        name: replace(program, environment={"LD_LIBRARY_PATH": str(vendor)})
        for name, (program, vendor) in vendors.items()
    }


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.parametrize("function", FAULTS)
def test_a_fault_becomes_a_status_and_the_result_of_the_cpu(
    function: str, sessions: dict[str, SessionProgram], tmp_path: Path
) -> None:
    case = FAULTS[function]
    program, log, entry = sessions[case.library], tmp_path / "log", tmp_path / "entry"
    cache = str(entry) if case.uses_cache else "-"
    if function == "NeuronModel_restoreFromCompiledNetwork":
        program.run(NEVER, 1, cache_file=cache)
    planted = {"NEURON_STUB_FAULT": f"{function}=1", "NEURON_STUB_LOG": str(log), **case.environment}
    keys = {"options": case.options, "bind": case.bind, "cache_file": cache}
    runs = 0 if case.moment in ("open", "bind") and case.status else 1
    told = program.run(NEVER, runs, environment=planted, **keys)
    line = told.said(case.moment)[0]
    assert int(line.split()[1]) == case.status, line
    if function.startswith("NeuronRuntime"):
        assert f"{function} of libneuron_runtime.so answered 1" in line
    else:
        assert function in log.read_text().split(), "the fault was never reached"
    if case.status not in (0, NO_DEVICE, REFUSED):
        assert function in line
    if case.status == 0:
        assert list(told.outputs) == program.expected()
        return
    fallback = AT_RUN if case.moment == "run" else AT_OPEN
    if case.moment != "bind":
        told = program.run(fallback, 1, environment=planted, **keys)
        assert list(told.outputs) == program.expected()
