"""Measures how long a session takes from `mace_open` to the first result.

From source, from the application's cache, and from binaries in the library; beside that, how long the parts
take alone.

    uv run python targets/opencl/benchmarks/cold_start.py MODEL.onnx

Each case is a process of its own. PoCL's own cache of compiled kernels is emptied for the first case of a
device, so that source means source; drivers of vendors keep caches that no program can empty.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

from mace_core.compilation import Compilation, compile_model
from mace_core.deployment import Deployment, load_deployment
from mace_core.generation import encode
from mace_core.job import Job
from mace_core.registry import Registry
from mace_core.run.command import Command
from mace_core.testing.probe_program import FILE_CACHE, ProbeProgram, link_probe

PROCESSES = 5
"""Processes of a case, of which the fastest counts: other work shares the processor."""

PROGRAM = ProbeProgram(Path(__file__).with_name("cold_start.c"), (FILE_CACHE,))


def build(model_file: Path, folder: Path, binaries: tuple[Path, ...] = ()) -> Path:
    """Return the program around the model.  binaries: what the device compiled of it."""
    folder.mkdir()
    deployment = folder / "cold.yml"
    options = {"opencl": {"binaries": [str(file.resolve()) for file in binaries]}}
    model_keys = {"model_file_path": str(model_file.resolve()), "target_options": options}
    # JSON is YAML, and keeps whatever a path is made of.
    document = {"library_name": "cold", "models": {"m": model_keys}}
    deployment.write_text(json.dumps(document), encoding="utf-8")
    registry = Registry.load()
    choice = registry.select("host+opencl")[0]
    (model,) = load_deployment(deployment).models
    compiled = compile_model(model, Compilation(choice, registry))
    sources = encode(Job(Deployment("cold", (model,)), choice), [compiled], registry)
    return link_probe(PROGRAM, sources, folder)


def measure(program: Path, words: tuple[str, ...], pocl_cache: Path) -> dict[str, str]:
    """Return what the program printed."""
    lines: list[str] = []
    pocl_cache.mkdir(exist_ok=True)
    environment = {**os.environ, "POCL_CACHE_DIR": str(pocl_cache)}
    Command((str(program), *words), pocl_cache, environment, program.name).execute(lines.append)
    return dict(line.split(" ", 1) for line in lines)


def measure_best(program: Path, words: tuple[str, ...], pocl_cache: Path) -> dict[str, str]:
    """Return what the fastest of several processes printed, each with a driver's cache of its own."""
    told = [measure(program, words, pocl_cache.with_name(f"{pocl_cache.name}_{i}")) for i in range(PROCESSES)]
    return min(told, key=lambda one: float(one["open"]) + float(one["first"]))


def show(case: str, told: dict[str, str], start: float) -> None:
    """Print a line.  start: milliseconds of the system's OpenCL alone."""
    times = f"open {told['open']} ms, first run {told['first']} ms, warm run {told['warm']} ms"
    cold = float(told["open"]) + float(told["first"])
    apart = start + float(told["load"]) + float(told["warm"])
    parts = f"{start} + {told['load']} + {told['warm']} ms"
    sys.stdout.write(
        f"{case}: {times}; {cold / apart:.2f} times OpenCL's start, load and a warm run ({parts})\n"
    )


def main() -> None:
    """Print a line for each case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--options", default="-", help="of mace_config, such as opencl.device=gpu")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        entry = folder / "entry"
        source = build(arguments.model, folder / "source")
        cases = [
            ("from source", "-", "pocl0"),
            ("from source, stored", str(entry), "pocl1"),
            ("from the cache", str(entry), "pocl2"),
            ("from source, the driver's own cache warm", "-", "pocl1"),
        ]
        starts = [measure(source, ("start",), folder / "pocl0")["start"] for _ in range(PROCESSES)]
        start = min(map(float, starts))
        for case, cache, caches in cases:
            # Compiling takes seconds, and fills the caches that the next cases need: once is enough.
            best = measure_best if case == "from the cache" else measure
            show(case, best(source, (cache, arguments.options), folder / caches), start)
        shipped = build(arguments.model, folder / "binaries", (entry,))
        told = measure_best(shipped, ("-", arguments.options), folder / "pocl3")
        show("from binaries in the library", told, start)
        sys.stdout.write(f"{told['device']}; {entry.stat().st_size} bytes of compiled kernels\n")


if __name__ == "__main__":
    main()
