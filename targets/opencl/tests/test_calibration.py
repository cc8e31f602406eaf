"""The numbers of the cost model that `mace tune` measures, and what follows from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, astuple, dataclass, fields, replace
from math import prod
from pathlib import Path

import numpy as np
import pytest
from stub_session import build_stub

from mace_core.api import Target
from mace_core.calibration import ProbeTime
from mace_core.deployment import Deployment, Model
from mace_core.errors import MaceError
from mace_core.graph_builder import Builder
from mace_core.ir import DType, Graph
from mace_core.json_types import JsonValue
from mace_core.partition import partition
from mace_core.registry import Registry
from mace_core.run.calibrate import MeasuredCosts, measure_costs
from mace_core.run.operators import multiply_adds
from mace_core.run.tuning_job import TuningJob
from mace_core.tuning import TUNING, write_tuning
from mace_target_opencl.calibration import COPIED, build_probes
from mace_target_opencl.costs import Costs
from mace_target_opencl.options import OpenclOptions
from mace_target_opencl.target import Opencl

SLOW_LAUNCHES = Costs(
    sync_us=50, launch_us=1000, cpu_gmacs=20, gpu_gmacs=4000, cpu_gb_s=10, gpu_gb_s=400, copy_gb_s=12
)
"""Of a device whose launches take a millisecond, and which computes fast."""


@dataclass(frozen=True)
class SimulatedDevice:
    """A device and a processor whose costs are known."""

    costs: Costs

    def measure(self, graphs: Sequence[Graph], target: Target | None) -> list[ProbeTime]:
        """Return the times that the probes take by these costs."""
        assert target is None or (isinstance(target, Opencl) and not target.options.is_selective)
        return [self.time(graph, on_device=target is not None) for graph in graphs]

    def time(self, graph: Graph, *, on_device: bool) -> ProbeTime:
        """Return the time of a graph: its kernels, and on the device what is around them."""
        costs = self.costs
        gmacs, gb_s = (costs.gpu_gmacs, costs.gpu_gb_s) if on_device else (costs.cpu_gmacs, costs.cpu_gb_s)
        macs = sum(multiply_adds(node, graph) for node in graph.nodes)
        moved = 2 * 4 * prod(COPIED) if graph.name == "copy" else 0
        layers = tuple((macs / gmacs + moved / gb_s) / len(graph.nodes) for _ in graph.nodes)
        around = 1e3 * (costs.sync_us + costs.launch_us * len(graph.nodes)) + moved / costs.copy_gb_s
        return ProbeTime(sum(layers) + around * on_device, layers)


def model(folder: Path, costs: Costs, stated: dict[str, JsonValue] | None = None) -> Model:
    """Return a model that processor and device share, with a tuning file of these costs.

    stated: in the deployment file.
    """
    file = folder / "m.tuning.yml"
    write_tuning(file, [], "a device", {"opencl": asdict(costs)})
    options: dict[str, JsonValue] = {"opencl": {"costs": stated}} if stated else {}
    return Model("m", (), runtimes=("cpu", "gpu"), keys={TUNING: str(file), "target_options": options})


def product(size: int) -> Graph:
    """Return a product of two square matrices."""
    builder = Builder("m")
    x = builder.input("x", DType.F32, (size, size))
    weights = builder.weight("w", np.zeros((size, size), np.float32))
    return builder.finish([builder.one("MatMul", [x, weights])])


def test_costs_follow_from_the_times_of_the_probes() -> None:
    target = Opencl(OpenclOptions(is_selective=True))
    numbers = target.calibrate(SimulatedDevice(SLOW_LAUNCHES).measure)
    assert [numbers[field.name] for field in fields(Costs)] == pytest.approx(astuple(SLOW_LAUNCHES))
    # The simulated driver does not know its units.
    assert len(numbers) == len(fields(Costs))


def test_where_the_device_computes_all_its_units_alone_are_measured() -> None:
    graphs: list[str] = []

    def measure(asked: Sequence[Graph], target: Target | None) -> Sequence[ProbeTime]:
        assert isinstance(target, Opencl)
        graphs.extend(graph.name for graph in asked)
        return [ProbeTime(1.0, (), units) for _ in asked]

    units = 12
    assert Opencl().calibrate(measure) == {"compute_units": 12}
    assert graphs == ["one"]
    units = 0
    assert Opencl().calibrate(measure) == {}


def test_times_that_contradict_each_other_give_positive_costs() -> None:
    """Other programs compute too: of two graphs the longer one may be the faster."""
    times = [ProbeTime(ns, (50.0,)) for ns in (900, 100, 40, 40)]
    numbers = Opencl(OpenclOptions(is_selective=True)).calibrate(lambda graphs, target: times)
    assert all(0 < number < float("inf") for number in numbers.values())


def test_a_device_that_tells_no_times_of_kernels_has_no_costs() -> None:
    """Its rates would come from the launch and the copies as well."""
    target = Opencl(OpenclOptions(is_selective=True))
    times = SimulatedDevice(SLOW_LAUNCHES).measure(build_probes(), None)
    for silent in (2, 3):
        measured = [replace(time, layers=()) if i == silent else time for i, time in enumerate(times)]
        with pytest.raises(
            MaceError, match=r"costs of opencl: the device's driver tells no times of kernels"
        ):
            target.calibrate(lambda graphs, target, measured=measured: measured)


@pytest.mark.parametrize(("size", "target"), [(200, "cpu"), (400, "opencl")])
def test_slow_launches_leave_small_nodes_to_the_processor(tmp_path: Path, size: int, target: str) -> None:
    cpu = Registry.load().targets["cpu"]
    quick = Costs(launch_us=1, sync_us=1)
    for costs, expected in ((quick, "opencl"), (SLOW_LAUNCHES, target)):
        configured = Opencl().configure(model(tmp_path, costs))
        (region,) = partition(product(size), [configured, cpu]).regions
        assert region.target.name == expected


def test_measured_costs_keep_the_hysteresis(tmp_path: Path) -> None:
    target = Opencl().configure(model(tmp_path, SLOW_LAUNCHES))
    assert isinstance(target, Opencl)
    shares = []
    for size in (280, 300, 310, 340):
        graph = product(size)
        costs = target.options.costs
        shares.append(costs.estimate_gpu_us(graph) / costs.estimate_cpu_us(graph))
        assert target.worth(graph) == (shares[-1] < 0.8)
    assert any(0.8 < share < 1 for share in shares)
    assert any(share < 0.8 for share in shares)


def test_the_deployment_file_is_stronger_than_the_tuning_file(tmp_path: Path) -> None:
    options = OpenclOptions.of_model(model(tmp_path, SLOW_LAUNCHES, {"launch_us": 7}))
    assert (options.costs.launch_us, options.costs.copy_gb_s) == (7, 12)


def test_unknown_costs_are_refused_with_their_file(tmp_path: Path) -> None:
    asked = model(tmp_path, SLOW_LAUNCHES)
    write_tuning(tmp_path / "m.tuning.yml", [], "a device", {"opencl": {"fuel": 1.0}})
    with pytest.raises(MaceError, match=r"m\.tuning\.yml: opencl: costs: 'fuel' is unknown"):
        OpenclOptions.of_model(asked)


def test_measured_units_take_the_place_of_those_of_the_abi(tmp_path: Path) -> None:
    asked = model(tmp_path, SLOW_LAUNCHES)
    file = tmp_path / "m.tuning.yml"
    write_tuning(file, [], "a device", {"opencl": {"compute_units": 20}})
    assert OpenclOptions.of_model(asked).compute_units == 20
    # What the deployment file states is stronger.
    keys = {**asked.keys, "target_options": {"opencl": {"compute_units": 4}}}
    assert OpenclOptions.of_model(replace(asked, keys=keys)).compute_units == 4
    for faulty in (2.5, 1e9):
        write_tuning(file, [], "a device", {"opencl": {"compute_units": faulty}})
        with pytest.raises(MaceError, match=r"m\.tuning\.yml: opencl: compute_units: .* is no number of"):
            OpenclOptions.of_model(asked)


def measure_stub(folder: Path) -> MeasuredCosts:
    """Measure the costs of the stand-in for OpenCL that the environment names."""
    registry = Registry.load()
    shared = Model("m", (), runtimes=("cpu", "gpu"))
    job = TuningJob(Deployment("lib", (shared,)), registry.select("host")[0], registry)
    return measure_costs(job, shared, folder / "costs", lambda step: None)


@pytest.mark.exhaustive
def test_launches_that_take_a_millisecond_are_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stand-in computes nothing, and takes a millisecond for each kernel that is enqueued."""
    monkeypatch.setenv("LD_LIBRARY_PATH", str(build_stub(tmp_path / "vendor")))
    monkeypatch.setenv("OPENCL_STUB_LAUNCH_US", "1000")
    monkeypatch.setenv("OPENCL_STUB_UNITS", "12")
    monkeypatch.setenv("OPENCL_STUB_QUIET", "1")
    measured = measure_stub(tmp_path)
    assert measured.devices == ("opencl: stub, driver 1.0, OpenCL 1.2 stub",)
    numbers = dict(measured.numbers["opencl"])
    assert numbers.pop("compute_units") == 12
    costs = Costs(**numbers)
    assert 1000 <= costs.launch_us < 20_000
    assert not costs.is_worth(product(100))


@pytest.mark.exhaustive
def test_a_library_tells_which_times_the_device_did_not_measure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Events of the stand-in that end when they start are those of a driver that measures nothing."""
    monkeypatch.setenv("LD_LIBRARY_PATH", str(build_stub(tmp_path / "vendor")))
    monkeypatch.setenv("OPENCL_STUB_QUIET", "1")
    monkeypatch.setenv("OPENCL_STUB_NS", "0")
    with pytest.raises(MaceError, match="tells no times of kernels"):
        measure_stub(tmp_path)
