"""Compiles programs with gaps between all tensors, and runs them under sanitizers.

These are the sanitizers of addresses and of undefined behavior. In the arena no two tensors share a byte, and
poisoned bytes lie between them and between the weights; inputs and outputs are allocations of their exact
sizes. A second copy of each program has the arena of a product, where tensors reuse each other's bytes. The
results of both must be the same.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

import numpy as np

from mace_core.api import Compiler
from mace_core.emit import code
from mace_core.ir import Array, DType
from mace_core.levels import Level
from mace_core.memory import Arena
from mace_core.part import HOST
from mace_core.plan import Plan
from mace_core.program import Program, Weight
from mace_core.testing.probe_program import ProbeProgram, link_probe

FLAGS = ("-O1", "-g0", "-fsanitize=address,undefined,float-cast-overflow", "-fno-sanitize-recover=all")
LIBRARY = "fuzz"
SOURCE = Path(__file__).with_name("sanitized.c")
GAP = 2 * HOST.alignment
"""Minimum number of poisoned bytes after each tensor; more than the widest vector."""

SECONDS = 60
"""Time limit of one run."""

TIGHT = "_tight"
"""Suffix of the name of a program's copy with the arena of a product."""

Gaps = list[tuple[int, int]]


@dataclass(frozen=True)
class Spaced:
    """A program with gaps between its tensors.

    arena_gaps, weight_gaps: first offset of each gap, and the one after its last.
    """

    plan: Plan
    arena_gaps: Gaps
    weight_gaps: Gaps


def space(plan: Plan) -> Spaced:
    """Return the plan with separate bytes and a gap for each tensor of the arena and each weight."""
    program, tight = plan.program, plan.host
    roots = list(dict.fromkeys(program.root(tensor) for tensor in tight.offsets))
    offset = GAP if roots else 0
    gaps = [(0, offset)] if roots else []
    offsets = {}
    for root in roots:
        end = offset + program.tensors[root].bytes
        offsets[root] = offset
        offset = HOST.round_up(end) + GAP
        gaps.append((end, offset))
    spaced = {tensor: offsets[program.root(tensor)] for tensor in tight.offsets}
    weights, weight_gaps, weight_offset = {}, [], 0
    for name, weight in program.weights.items():
        size = HOST.round_up(weight.bytes) + GAP
        weights[name] = _pad(weight, size)
        weight_gaps.append((weight_offset + weight.bytes, weight_offset + size))
        weight_offset += size
    arenas = {HOST.name: Arena(spaced, offset, tight.bound)}
    return Spaced(replace(plan, program=replace(program, weights=weights), arenas=arenas), gaps, weight_gaps)


def _rename(plan: Plan, name: str) -> Plan:
    return replace(plan, program=replace(plan.program, name=name))


def _pad(weight: Weight, size: int) -> Weight:
    def make() -> Array:
        data = np.ascontiguousarray(weight.make()).tobytes()
        return np.frombuffer(data.ljust(size, b"\xcd"), np.uint8)

    return Weight((size,), size, make)


class SanitizerFinding(Exception):  # noqa: N818  # the result that a fuzzer looks for, not an error of it
    """Says what is wrong with a program that was compiled and run."""


class Sanitized:
    """A compiled library of programs, each with two arenas.  folder: an empty one."""

    def __init__(self, plans: Mapping[str, Plan], isas: Sequence[Level], folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.programs = {name: plan.program for name, plan in plans.items()}
        models: list[Plan] = []
        for name, plan in plans.items():
            spaced = space(_rename(plan, name))
            models += [spaced.plan, _rename(plan, name + TIGHT)]
            _write_gaps(folder / f"{name}.gaps", spaced.arena_gaps, spaced.weight_gaps)
            _write_gaps(folder / f"{name}{TIGHT}.gaps", [], [])
        sources = code.library(LIBRARY, models, isas)
        listed = "".join(f"X({LIBRARY}_{plan.name})" for plan in models)
        program = ProbeProgram(SOURCE, flags=(f"-DMODELS={listed}",))
        self.tool = link_probe(program, sources, folder, FLAGS, Compiler(("gcc",), ("ar",)))

    def run(self, name: str, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Run a program and return its outputs by name.

        Raises Finding if a sanitizer reports something, or if the results differ between the two arenas.
        """
        first = self._run(name, name, inputs)
        second = self._run(name, name + TIGHT, inputs)
        for output, array in first.items():
            if array.tobytes() != second[output].tobytes():
                pair = f"{array.ravel()[:8]} and {second[output].ravel()[:8]}"
                raise SanitizerFinding(f"output {output!r} depends on where tensors lie: {pair}")
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
            raise SanitizerFinding(f"{model} runs for more than {SECONDS} s") from None
        if done.returncode:
            raise SanitizerFinding(f"{model} exited with status {done.returncode}: {done.stderr[:3000]}")
        return self._outputs(program, result.read_bytes())

    def _outputs(self, program: Program, data: bytes) -> dict[str, Array]:
        outputs, offset = {}, 0
        for name in program.outputs:
            tensor = program.tensors[name]
            raw = data[offset : offset + tensor.bytes]
            offset += tensor.bytes
            # A boolean other than 0 and 1 is undefined behavior of C, and breaks kernels that count booleans.
            if tensor.dtype is DType.BOOL and any(byte > 1 for byte in raw):
                raise SanitizerFinding(f"output {name!r} holds booleans other than 0 and 1")
            outputs[name] = np.frombuffer(raw, tensor.dtype.numpy).reshape(tensor.shape)
        return outputs


def _write_gaps(path: Path, *sides: Gaps) -> None:
    numbers: list[int] = []
    for gaps in sides:
        numbers += (len(gaps), *chain.from_iterable(gaps))
    path.write_bytes(np.asarray(numbers, np.int64).tobytes())
