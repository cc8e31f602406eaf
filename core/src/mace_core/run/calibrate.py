"""Measures the numbers of targets' cost models on the device, through the runner that runs its programs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from mace_core.api import Runner, Target
from mace_core.calibration import CalibratedTarget, Numbers, ProbeTime
from mace_core.compilation import Compilation, compile_graph
from mace_core.deployment import Model
from mace_core.ir import Graph
from mace_core.run.tuning_job import TuningJob

TURNS = 3
ROUNDS = 10
"""Runs in one process; the shortest of all turns counts, because other work of the machine adds to it."""


@dataclass(frozen=True)
class MeasuredCosts:
    """Numbers of cost models, by the name of the target, and the devices that they were measured on."""

    numbers: Mapping[str, Numbers] = field(default_factory=dict)
    devices: tuple[str, ...] = ()


def measure_costs(job: TuningJob, model: Model, folder: Path, step: Callable[[str], None]) -> MeasuredCosts:
    """Return what each target of a model asks to be measured, rates and times rounded to four digits.

    Nothing where no target decides by such numbers.
    """
    stand = _Stand(job, job.find_runner(model), folder)
    measured: dict[str, Numbers] = {}
    for target in Compilation(job.choice, job.registry).targets(model):
        if not isinstance(target, CalibratedTarget):
            continue
        step(f"{model.name}: measuring what {target.name} costs")
        numbers = target.calibrate(stand.measure)
        if numbers:
            measured[target.name] = {name: _round(value) for name, value in numbers.items()}
    return MeasuredCosts(measured, tuple(dict.fromkeys(stand.devices)))


def _round(value: float) -> float:
    return value if isinstance(value, int) else float(f"{value:.4g}")


@dataclass(frozen=True)
class _Stand:
    """Builds and times graphs.

    folder: where their libraries are built.  devices: notes what computed for targets.
    """

    job: TuningJob
    runner: Runner
    folder: Path
    devices: list[str] = field(default_factory=list)

    def measure(self, graphs: Sequence[Graph], target: Target | None) -> list[ProbeTime]:
        """Return the times of graphs; see `Measure`."""
        choice = replace(self.job.choice, targets=(target,) if target else ())
        job = replace(self.job, choice=choice)
        compilation = Compilation(choice, job.registry)
        compiled = [compile_graph(Model(graph.name, ()), graph, compilation) for graph in graphs]
        built = job.build(compiled, self.runner, self.folder / (target.name if target else "processor"))
        shortest: dict[str, float] = {}
        layers: dict[str, dict[int, float]] = defaultdict(dict)
        units: dict[str, int] = {}
        # In turn, so that what else the machine does hits each alike.
        for _ in range(TURNS):
            for graph, one in zip(graphs, compiled, strict=True):
                timing = built.time(graph.name, job.threads, ROUNDS, layers=True)
                shortest[graph.name] = min(*timing.ns, shortest.get(graph.name, timing.ns[0]))
                self.devices.extend(timing.devices if target else ())
                units[graph.name] = max(timing.units, default=0)
                of_graph = layers[graph.name]
                for layer in timing.layers:
                    # The processor's clock sees a device's kernel with its launch and the copy of its result.
                    if layer.is_of_device or not one.plan.drivers:
                        of_graph[layer.number] = min(layer.ns, of_graph.get(layer.number, layer.ns))
        names = [graph.name for graph in graphs]
        return [ProbeTime(shortest[name], tuple(layers[name].values()), units[name]) for name in names]
