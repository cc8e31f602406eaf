"""Compiles programs with redzones between all tensors, and runs them under the address and undefined-behavior sanitizers.

In the arena no two tensors share a byte and poisoned bytes lie between them; so do they between the weights;
inputs and outputs are allocations of their exact sizes. A second copy of each program has the arena that a
product has, where tensors take over each other's
bytes: what both give must be the same.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path

import numpy as np

from mace_core.api import Compiler
from mace_core.emit import code
from mace_core.ir import Array, DType
from mace_core.levels import Level
from mace_core.manifest import Manifest, Product, Unit
from mace_core.memory import Arena
from mace_core.part import HOST
from mace_core.plan import Plan
from mace_core.program import Program, Weight
from mace_core.run.compile import link

FLAGS = ("-O1", "-g0", "-fsanitize=address,undefined,float-cast-overflow", "-fno-sanitize-recover=all")
LIBRARY = "fuzz"
GAP = 2 * HOST.alignment
"""Poisoned bytes behind each tensor, at least: more than the widest vector."""

SECONDS = 60
"""Of one run."""

TIGHT = "_tight"
"""Behind the name of a program: its copy in a product's arena."""

Gaps = list[tuple[int, int]]


@dataclass(frozen=True)
class Spaced:
    """A program whose tensors have gaps between them.

    The gaps of its arena and of its weights, as first and last offset.
    """

    plan: Plan
    arena_gaps: Gaps
    weight_gaps: Gaps


def space(plan: Plan) -> Spaced:
    """Give every tensor of the arena, and every weight, bytes of its own with a gap behind."""
    program, tight = plan.program, plan.host
    roots = list(dict.fromkeys(program.root(tensor) for tensor in tight.offsets))
    at = GAP if roots else 0
    gaps = [(0, at)] if roots else []
    offsets = {}
    for root in roots:
        end = at + program.tensors[root].bytes
        offsets[root] = at
        at = HOST.round_up(end) + GAP
        gaps.append((end, at))
    spaced = {tensor: offsets[program.root(tensor)] for tensor in tight.offsets}
    weights, weight_gaps, place = {}, [], 0
    for name, weight in program.weights.items():
        size = HOST.round_up(weight.bytes) + GAP
        weights[name] = _padded(weight, size)
        weight_gaps.append((place + weight.bytes, place + size))
        place += size
    arenas = {HOST.name: Arena(spaced, at, tight.bound)}
    return Spaced(replace(plan, program=replace(program, weights=weights), arenas=arenas), gaps, weight_gaps)


def _renamed(plan: Plan, name: str) -> Plan:
    return replace(plan, program=replace(plan.program, name=name))


def _padded(weight: Weight, size: int) -> Weight:
    def make() -> Array:
        data = np.ascontiguousarray(weight.make()).tobytes()
        return np.frombuffer(data.ljust(size, b"\xcd"), np.uint8)

    return Weight((size,), size, make)


class Finding(Exception):  # noqa: N818  # what a fuzzer is for, not a failure of it
    """Tells what is wrong with a program that was compiled and run."""


class Sanitized:
    """Holds a compiled library of programs, each in two arenas. folder: an empty one."""

    def __init__(self, plans: Mapping[str, Plan], isas: Sequence[Level], folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.programs = {name: plan.program for name, plan in plans.items()}
        models: list[Plan] = []
        for name, plan in plans.items():
            spaced = space(_renamed(plan, name))
            models += [spaced.plan, _renamed(plan, name + TIGHT)]
            _write_gaps(folder / f"{name}.gaps", spaced.arena_gaps, spaced.weight_gaps)
            _write_gaps(folder / f"{name}{TIGHT}.gaps", [], [])
        sources = code.library(LIBRARY, models, isas)
        driver = (files("mace_core.testing") / "sanitized.c").read_text(encoding="utf-8")
        listed = "".join(f"X({LIBRARY}_{plan.name})" for plan in models)
        unit = Unit("sanitized.c", (f"-DMODELS={listed}",))
        tool = Manifest(
            "sanitized", Product.PROGRAM, generated=(unit.source,), units=(unit,), needs=(LIBRARY,)
        )
        sources = replace(
            sources, files={**sources.files, unit.source: driver}, manifests=(*sources.manifests, tool)
        )
        self.tool = link(sources, Compiler(("gcc",), ("ar",)), folder, FLAGS)

    def run(self, name: str, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Return the outputs of a program by name.

        Raises Finding for what a sanitizer reports, or two arenas that differ.
        """
        first = self._run(name, name, inputs)
        second = self._run(name, name + TIGHT, inputs)
        for output, array in first.items():
            if array.tobytes() != second[output].tobytes():
                raise Finding(
                    f"output {output!r} depends on where tensors lie: {array.ravel()[:8]} and {second[output].ravel()[:8]}"
                )
        return first

    def _run(self, name: str, model: str, inputs: Mapping[str, Array]) -> dict[str, Array]:
        program = self.programs[name]
        paths = []
        for i, tensor in enumerate(program.inputs):
            path = self.folder / f"input_{i}.bin"
            path.write_bytes(
                np.ascontiguousarray(inputs[tensor], program.tensors[tensor].dtype.numpy).tobytes()
            )
            paths.append(str(path))
        result = self.folder / "output.bin"
        command = [str(self.tool), model, str(self.folder / f"{model}.gaps"), str(result), *paths]
        environment = {
            **os.environ,
            "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1",
            "UBSAN_OPTIONS": "print_stacktrace=1",
        }
        try:
            done = subprocess.run(  # we built it
                command,
                capture_output=True,
                text=True,
                check=False,
                env=environment,
                timeout=SECONDS,
                errors="replace",
            )
        except subprocess.TimeoutExpired:
            raise Finding(f"it runs for more than {SECONDS} s") from None
        if done.returncode:
            raise Finding(f"{model} ends with {done.returncode}: {done.stderr[:3000]}")
        return self._outputs(program, result.read_bytes())

    def _outputs(self, program: Program, data: bytes) -> dict[str, Array]:
        found, at = {}, 0
        for name in program.outputs:
            tensor = program.tensors[name]
            raw = data[at : at + tensor.bytes]
            at += tensor.bytes
            if tensor.dtype is DType.BOOL and any(byte > 1 for byte in raw):
                raise Finding(f"output {name!r} holds truth values other than 0 and 1")
            found[name] = np.frombuffer(raw, tensor.dtype.numpy).reshape(tensor.shape)
        return found


def _write_gaps(path: Path, *sides: Gaps) -> None:
    numbers = [number for gaps in sides for number in (len(gaps), *(end for gap in gaps for end in gap))]
    path.write_bytes(np.asarray(numbers, np.int64).tobytes())
