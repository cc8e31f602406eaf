"""Counts what the models of a built library execute, where no runner can time them.

`mace benchmark` and `scons benchmark` print it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path

from mace_core.api import Counter
from mace_core.build_manifest import library_levels
from mace_core.compilation import Compilation, CompiledModel, compile_model
from mace_core.deployment import Deployment, Model
from mace_core.errors import MaceError
from mace_core.json_types import Json, JsonObject, JsonValue
from mace_core.registry import Choice, Registry
from mace_core.run.built_library import BuiltLibrary
from mace_core.run.operators import count_bytes, count_products, find_calls, find_level
from mace_core.run.results import Timing
from mace_core.run.tables import table
from mace_core.toolchain import EMULATED

COUNTED = "counted"
"""What stands for `Runner.timing` in results as JSON."""

TOOL = "mace_benchmark"
READINGS_OF_A_RUN = 4
"""How often the program reads the clock for the opening and for one run, at the start and the end of each."""


@dataclass(frozen=True)
class LayerCount:
    """What one call executes.

    counts: in the order of the counter's names.  macs: multiply-adds of convolutions and matrix products; 0
    for all others.  bytes: of the tensors and weights that it reads and writes, each once.
    """

    name: str
    kernel: str
    counts: tuple[int, ...]
    macs: int
    bytes: int


@dataclass(frozen=True)
class ModelCount:
    """What one run of a model executes.

    counts: in the order of the counter's names; calls of the engine are in them, and in no layer.
    """

    model: str
    target: str
    level: str
    counter: Counter
    counts: tuple[int, ...]
    layers: tuple[LayerCount, ...]

    @property
    def macs(self) -> int:
        """Multiply-adds of all layers."""
        return sum(layer.macs for layer in self.layers)

    @property
    def bytes(self) -> int:
        """Bytes that all layers read and write."""
        return sum(layer.bytes for layer in self.layers)

    def as_json(self) -> Json:
        """Return it as JSON has it: what is counted under the counter's names."""
        return {
            "model": self.model,
            "target": self.target,
            "level": self.level,
            "timing": COUNTED,
            **self._describe(self.counts, self.macs, self.bytes),
            "layers": [
                {
                    "name": layer.name,
                    "kernel": layer.kernel,
                    **self._describe(layer.counts, layer.macs, layer.bytes),
                }
                for layer in self.layers
            ],
        }

    def _describe(self, counts: Sequence[int], macs: int, moved: int) -> dict[str, JsonValue]:
        bound = find_bound(macs, self.counter)
        return {
            **dict(zip(self.counter.names, counts, strict=True)),
            "macs": macs,
            "bytes": moved,
            "bound": bound,
        }


def find_counter(deployment: Deployment, choice: Choice, registry: Registry) -> Counter | None:
    """Return the counter of the first target that has one; None where a runner's times say something.

    None too where a target has a runner of its own, which executes more than one processor.
    """
    runtimes = tuple(chain.from_iterable(model.runtimes for model in deployment.models))
    targets = registry.targets_for(choice, runtimes)
    runner = registry.find_runner(choice, deployment.models)
    # A vendor's simulator has times, and is no emulator that a counter could look into.
    if (runner and runner.timing != EMULATED) or any(target.runner() for target in targets):
        return None
    return next(filter(None, (target.counter() for target in targets)), None)


def count_library(
    deployment: Deployment, folder: Path, choice: Choice, registry: Registry, counter: Counter
) -> list[ModelCount]:
    """Count one run of every model of a library.

    folder: of the built library. MaceError where it is not built or cannot be counted.
    """
    runner = registry.find_runner(choice, deployment.models)
    built = BuiltLibrary.open(folder, choice.text, runner)
    return [_count_model(built, model, choice, registry, counter) for model in deployment.models]


def _count_model(
    built: BuiltLibrary, model: Model, choice: Choice, registry: Registry, counter: Counter
) -> ModelCount:
    arguments = [f"--model={model.name}", "--rounds=1", "--warmup=0", "--layers=1"]
    counted = counter.count(built.runner.command(built.programs / TOOL, arguments))
    timing = Timing.of_json(JsonObject.parse(counted.printed, TOOL), COUNTED, choice.text)
    # One reading before the first layer, and for each the end of it and the start of the next.
    expected = READINGS_OF_A_RUN + 1 + 2 * len(timing.layers)
    if len(counted.readings) != expected:
        problem = f"read the clock {len(counted.readings)} times instead of {expected}"
        raise MaceError(TOOL, problem, "build the library again with this version")
    steps = [_subtract(after, before) for before, after in pairwise(counted.readings)]
    level = find_level(
        timing.device, library_levels(registry.targets_for(choice, model.runtimes), choice.abi).values()
    )
    compiled = compile_model(model, Compilation(choice, registry))
    layers = tuple(_count_layers(compiled, timing, level.name, steps[READINGS_OF_A_RUN::2]))
    return ModelCount(model.name, choice.text, level.name, counter, steps[READINGS_OF_A_RUN - 2], layers)


def _subtract(after: Sequence[int], before: Sequence[int]) -> tuple[int, ...]:
    return tuple(a - b for a, b in zip(after, before, strict=True))


def _count_layers(
    compiled: CompiledModel, timing: Timing, level: str, counts: Sequence[tuple[int, ...]]
) -> Iterator[LayerCount]:
    calls = find_calls(compiled, timing, level)
    products = count_products(compiled.graph, calls)
    for call, layer, count, macs in zip(calls, timing.layers, counts, products, strict=True):
        yield LayerCount(layer.name, layer.kernel, count, macs, count_bytes(call, compiled.plan.program))


def find_bound(macs: int, counter: Counter) -> int:
    """Return the smallest count in which a processor can do so many multiply-adds."""
    return -(-macs // counter.max_macs)


def show_counts(counts: Sequence[ModelCount], layers: bool) -> str:
    """Return a table of all models, and of the layers of each, the most expensive first.

    counts: at least one.
    """
    counter = counts[0].counter
    columns = (*counter.names, "MMAC", "a MAC", "bound", "% of it", "kB")
    rows = [
        (count.model, count.level, *_cells(count.counts, count.macs, count.bytes, counter))
        for count in counts
    ]
    text = table(("model", "level", *columns), rows)
    for count in counts if layers else ():
        ordered = sorted(count.layers, key=lambda layer: -layer.counts[0])
        rows = [
            (layer.name, layer.kernel, *_cells(layer.counts, layer.macs, layer.bytes, counter))
            for layer in ordered
        ]
        text += table((count.model, "kernel", *columns), rows)
    cost = counter.names[0]
    return text + (
        f"counted, not timed. a MAC: {cost} for one; bound: of {cost} with {counter.max_macs} MACs each, "
        f"{counter.limit}; kB: tensors and weights of each call, once\n"
    )


def _cells(counts: Sequence[int], macs: int, moved: int, counter: Counter) -> tuple[str, ...]:
    kilobytes = f"{moved / 1e3:.1f}"
    if not macs:
        return (*map(str, counts), "-", "-", "-", "-", kilobytes)
    bound, cost = find_bound(macs, counter), counts[0]
    share = f"{100 * bound / cost:.0f}" if cost else "-"
    return (*map(str, counts), f"{macs / 1e6:.2f}", f"{cost / macs:.4f}", str(bound), share, kilobytes)
