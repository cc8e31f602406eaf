"""A built model beside its own framework: in one process, in turn, one thread each."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mace_core.api import Frontend
from mace_core.deployment import Model
from mace_core.errors import MaceError
from mace_core.registry import Choice
from mace_core.run import native
from mace_core.run.validate import random_samples

WARMUP = 5


def versus(folder: Path, library: str, choice: Choice, pair: tuple[Model, Frontend], rounds: int) -> dict[str, Any]:
    """Nanoseconds of each round by the library ("ns") and by the framework ("framework_ns"), on the same random inputs.

    pair: the model and its frontend.  Only for a choice whose shared library this process can load.
    """
    model, frontend = pair
    file = folder / "lib" / choice.text / f"lib{library}.so"
    if not file.is_file():
        raise MaceError(file, "is not built", f"run: mace build ... --target {choice.text}")
    peer = frontend.peer(model.files, model)
    if peer is None:
        raise MaceError(f"model {model.name!r}", f"the framework behind {frontend.name!r} is not installed", "install it")
    ours = native.load(file, library)[model.name]
    inputs = {name: array[0] for name, array in random_samples(model, ours.inputs).items()}
    sides: tuple[Callable[[], object], ...] = (lambda: ours.run(inputs), lambda: peer(inputs))
    times: tuple[list[int], list[int]] = ([], [])
    for number in range(WARMUP + rounds):
        for side, seen in zip(sides, times, strict=True):
            start = time.perf_counter_ns()
            side()
            if number >= WARMUP:
                seen.append(time.perf_counter_ns() - start)
    return {"model": model.name, "ns": times[0], "framework_ns": times[1], "arena_bytes": ours.arena_bytes}
