"""Takes models through a build, in a process of its own; see `whole_path`.

Each line that it prints is a JSON list: number, kind, text.

Kinds: "valid" for a model that reaches C, "refused" with the stage, "fault" with what is wrong, then for
those that are compiled "ran" or "wrong"; "project" with a target and what became of its project.
"""

from __future__ import annotations

import json
import math
import resource
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import numpy as np

from mace_core import pipeline
from mace_core.api import Content, Stream
from mace_core.build_manifest import library_levels
from mace_core.compilation import Compilation, compile_graph
from mace_core.deployment import Deployment, Model
from mace_core.emit import code
from mace_core.errors import MaceError
from mace_core.generation import Job, encode
from mace_core.ir import Array, Graph, Tensor
from mace_core.levels import Level
from mace_core.plan import Plan as ModelPlan
from mace_core.registry import Choice, Registry
from mace_core.run.reference import execute
from mace_core.states import RESET
from mace_core.testing.malformed import MEMORY
from mace_core.testing.sanitized import Finding, Sanitized
from mace_core.testing.whole_path import Plan
from mace_core.transforms import run_phases

T = TypeVar("T")

SECONDS = 20
"""Of processor time that one stage of one model may take."""

LARGEST = 1 << 19
"""Elements of all tensors together of a model that is compiled: more would take numpy and the sanitizers too long."""

LONGEST = 300
"""Calls of a program that is compiled."""

TOLERANCE = 2e-3
"""Of the largest expected value: floats of library and reference are rounded in another order, and a mutant's numbers may cancel."""

ROUNDED_OTHERWISE = 0.02
"""The share of integers that may be one step off: those rounded from floats."""


@dataclass
class Candidate:
    """A model that is to be compiled. graph: as it was read; normal: as it was lowered."""

    number: int
    graph: Graph
    normal: Graph
    plan: ModelPlan


@dataclass
class Worker:
    """Takes models as far as the plan says."""

    frontend: str
    folder: Path
    plan: Plan
    registry: Registry = field(default_factory=Registry.load)
    waiting: list[Candidate] = field(default_factory=list)
    batches: int = 0
    compiled: int = 0

    def __post_init__(self) -> None:
        self.choice = self.registry.select("host")[0]
        self.projects: dict[str, Choice] = {
            name: self.registry.select(name)[0] for name in self.plan.projects
        }

    def take(self, number: int, paths: tuple[Path, ...]) -> None:
        """Take one model to C, and note it for compilation."""
        stage = "load"
        try:
            model = Model("fuzz", paths, self.frontend, keys={"states": RESET})
            graph = _timed(lambda: pipeline.load(model, self.registry))
            stage = "transform"
            normal = _timed(lambda: run_phases(graph, self.registry))
            stage = "lower"
            plan = _timed(lambda: compile_graph(model, normal, Compilation(self.choice, self.registry)).plan)
            stage = "emit"
            _timed(lambda: _read_all(code.library("fuzz", [plan], self._isas()).files.values()))
        except MaceError as error:
            tell(
                number,
                *(
                    ("refused", stage)
                    if str(error).strip()
                    else ("fault", f"{stage}: an error that says nothing")
                ),
            )
            return
        except MemoryError:
            tell(number, "fault", f"{stage}: it takes more than {MEMORY >> 20} MB")
            return
        except Exception:  # noqa: BLE001  # which one is the finding
            tell(number, "fault", f"{stage}: {traceback.format_exc()[-2500:]}")
            return
        self._offer(number, model, normal)
        tell(number, "valid", "")
        if self.compiled + len(self.waiting) < self.plan.compiled and _is_small(graph, normal, plan):
            self.waiting.append(Candidate(number, graph, normal, plan))
            if len(self.waiting) >= self.plan.together:
                self.compile_waiting()

    def _isas(self) -> list[Level]:
        targets = library_levels(self.registry.targets_for(self.choice, ()), self.choice.abi)
        return [level for levels in targets.values() for level in levels]

    def _offer(self, number: int, model: Model, normal: Graph) -> None:
        """Ask every target of projects for its project."""
        for name, choice in self.projects.items():
            work = Compilation(choice, self.registry)
            try:
                made = _timed(lambda work=work: compile_graph(model, normal, work))  # type: ignore[misc]
                _read_all(
                    encode(Job(Deployment("fuzz", (model,)), choice), [made], self.registry).files.values()
                )
                tell(number, "project", f"made by {name}")
            except MaceError:
                tell(number, "project", f"refused by {name}")
            except Exception:  # noqa: BLE001
                tell(number, "wrong", f"project of {name}: {traceback.format_exc()[-2500:]}")

    def compile_waiting(self) -> None:
        """Compile and run all that wait.

        Where they do not compile, halves of them, until those at fault are alone.
        """
        waiting, self.waiting = self.waiting, []
        limits = resource.getrlimit(resource.RLIMIT_AS)
        # The sanitizers' shadow is larger than any memory.
        resource.setrlimit(resource.RLIMIT_AS, (limits[1], limits[1]))
        try:
            if waiting:
                self._compile(waiting)
        finally:
            resource.setrlimit(resource.RLIMIT_AS, limits)

    def _compile(self, candidates: list[Candidate]) -> None:
        isas = self._isas()
        isa = isas[self.batches % len(isas)]
        folder = self.folder / f"library{self.batches}"
        self.batches += 1
        tell(-1, "progress", f"compiling {len(candidates)} models for {isa.name}")
        try:
            library = Sanitized({f"m{c.number}": c.plan for c in candidates}, [isa], folder)
        except Exception as error:  # noqa: BLE001
            if len(candidates) == 1:
                self.compiled += 1
                tell(candidates[0].number, "wrong", f"compile: {str(error)[:3000]}")
                return
            half = len(candidates) // 2
            self._compile(candidates[:half])
            self._compile(candidates[half:])
            return
        for candidate in candidates:
            self.compiled += 1
            try:
                _run(candidate, library)
                tell(candidate.number, "ran", isa.name)
            except Exception as error:  # noqa: BLE001
                text = str(error) if isinstance(error, Finding) else traceback.format_exc()
                tell(candidate.number, "wrong", f"{isa.name}: {text[:3000]}")


def _run(candidate: Candidate, library: Sanitized) -> None:
    """Run a model on random inputs and compare it with the references of the graph that was read.

    Finding if they differ.
    """
    graph = candidate.graph
    rng = np.random.default_rng(candidate.number)
    inputs = {name: random_input(rng, graph.tensors[name]) for name in graph.inputs}
    found = library.run(f"m{candidate.number}", inputs)
    as_read, as_lowered = (execute(g, inputs) for g in (graph, candidate.normal))
    for name in graph.outputs:
        where = (
            ""
            if (wrong := difference(as_lowered[name], as_read[name], graph.tensors[name])) is None
            else f"transforms: {wrong}"
        )
        kernel = difference(found[name], as_lowered[name], graph.tensors[name])
        if where or kernel:
            nodes = "; ".join(map(str, graph.nodes))
            raise Finding(f"output {name!r}: {where or 'kernels: ' + str(kernel)}: {nodes[:1200]}")


def random_input(rng: np.random.Generator, tensor: Tensor) -> Array:
    """All that stored integers can be; else small counts, fair coins, normal floats."""
    if tensor.quant:
        ends = np.iinfo(tensor.dtype.numpy)
        return rng.integers(ends.min, ends.max, tensor.shape, endpoint=True).astype(tensor.dtype.numpy)
    if tensor.dtype.is_float:
        return rng.standard_normal(tensor.shape).astype(tensor.dtype.numpy)
    return rng.integers(0, 2 if tensor.dtype.value == "bool" else 5, tensor.shape).astype(tensor.dtype.numpy)


def difference(found: Array, expected: Array, tensor: Tensor) -> str | None:
    """Return what tells two arrays apart beyond rounding; None if nothing does."""
    if (found.shape, found.dtype) != (expected.shape, expected.dtype):
        return f"{found.dtype} {found.shape} instead of {expected.dtype} {expected.shape}"
    if found.dtype.kind == "f":
        finite = np.isfinite(expected)
        if not np.array_equal(np.where(finite, 0, expected), np.where(finite, 0, found), equal_nan=True):
            return _worst(
                found, expected, ~finite & ~((found == expected) | (np.isnan(found) & np.isnan(expected)))
            )
        scale = max(1.0, float(np.abs(expected[finite]).max(initial=0)))
        off = finite & ~(np.abs(np.subtract(found, expected, dtype=np.float64)) <= TOLERANCE * scale)
        return _worst(found, expected, off) if off.any() else None
    steps = np.abs(found.astype(np.float64) - expected.astype(np.float64))
    far = steps > (2 if tensor.quant else 0)
    return _worst(found, expected, far) if far.sum() > ROUNDED_OTHERWISE * far.size else None


def _worst(found: Array, expected: Array, off: Array) -> str:
    places = np.argwhere(off)[:4].tolist()
    pairs = ", ".join(f"{found[tuple(p)]} instead of {expected[tuple(p)]} at {p}" for p in places)
    return f"{int(off.sum())} of {off.size} differ: {pairs}"


def _is_small(graph: Graph, normal: Graph, plan: ModelPlan) -> bool:
    elements = sum(t.elements for g in (graph, normal) for t in g.tensors.values())
    return (
        elements < LARGEST
        and len(plan.program.calls) < LONGEST
        and math.prod((len(graph.inputs) < 64, len(graph.outputs) < 64)) == 1
    )


def _read_all(contents: object) -> None:
    """Make every file's content, for what is made late may fail late."""
    assert isinstance(contents, type({}.values()))
    content: Content
    for content in contents:
        if isinstance(content, Stream):
            for _ in content.make():
                pass


@contextmanager
def _limited(seconds: float) -> Iterator[None]:
    """Raise TimeoutError after so much processor time."""

    def give_up(*_: object) -> None:
        raise TimeoutError(f"it takes more than {seconds:.0f} s")

    before = signal.signal(signal.SIGVTALRM, give_up)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def _timed(work: Callable[[], T]) -> T:
    with _limited(SECONDS):
        return work()


def tell(number: int, kind: str, text: str) -> None:
    """Print one line of the report."""
    sys.stdout.write(json.dumps([number, kind, text]) + "\n")
    sys.stdout.flush()


def main(frontend: str, folder: str, first: str, plan: str) -> None:
    """Take the models from number `first` on."""
    stated: Mapping[str, object] = json.loads(plan)
    projects = stated["projects"]
    assert isinstance(projects, list)
    models = [tuple(map(Path, named)) for named in json.loads(Path(folder, "files.json").read_text())]
    own = Path(folder, f"from{first}-{time.monotonic_ns()}")
    worker = Worker(
        frontend, own, Plan(int(str(stated["compiled"])), int(str(stated["together"])), tuple(projects))
    )
    warnings.simplefilter("ignore")
    with np.errstate(all="ignore"):
        if (status := Path("/proc/self/statm")).exists():  # elsewhere than on Linux memory is not watched
            used = int(status.read_text().split()[0]) * resource.getpagesize()
            resource.setrlimit(
                resource.RLIMIT_AS, (used + 2 * MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1])
            )
        for number in range(int(first), len(models)):
            worker.take(number, models[number])
        worker.compile_waiting()


if __name__ == "__main__":
    main(*sys.argv[1:])
