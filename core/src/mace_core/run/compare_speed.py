"""A built model beside its own framework: in one process, in turn, one thread each."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from mace_core.deployment import Model
from mace_core.errors import MaceError
from mace_core.registry import Choice, Registry
from mace_core.run import native
from mace_core.run.framework import Framework, absence, installation
from mace_core.run.results import Timing
from mace_core.run.validate import random_samples

WARMUP = 5


def compare_speed(library: Path, choice: Choice, model: Model, registry: Registry, rounds: int) -> Timing:
    """Time the library and the framework in turn on the same random inputs.

    library: the folder of the built library, which has its name.  Only for a choice whose shared library
    this process can load. Raises MaceError where the library is not built or the framework is not installed.
    """
    file = library / "lib" / choice.text / f"lib{library.name}.so"
    if not file.is_file():
        raise MaceError(file, "is not built", f"run: mace build ... --target {choice.text}")
    framework = Framework.of(model, registry)
    fast_reference = framework.frontend.fast_reference(model.files, model)
    if fast_reference is None:
        has_framework = framework.frontend.needs
        remedy = installation(framework.frontend) if has_framework else "measure without the framework"
        raise MaceError(f"model {model.name!r}", absence(framework.frontend), remedy)
    ours = native.load(file, library.name)[model.name]
    inputs = {name: array[0] for name, array in random_samples(model, ours.inputs).items()}
    framework_inputs = framework.convert_inputs(inputs)
    sides: tuple[Callable[[], object], ...] = (
        lambda: ours.run(inputs),
        lambda: fast_reference(framework_inputs),
    )
    times: tuple[list[int], list[int]] = ([], [])
    for number in range(WARMUP + rounds):
        for side, seen in zip(sides, times, strict=True):
            start = time.perf_counter_ns()
            side()
            if number >= WARMUP:
                seen.append(time.perf_counter_ns() - start)
    return Timing(
        model.name,
        tuple(times[0]),
        target=choice.text,
        framework=fast_reference.runtime,
        framework_ns=tuple(times[1]),
    )
