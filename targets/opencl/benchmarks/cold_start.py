"""Measures how long a session takes from `mace_open` to the first result: from source, and from the cache.

    uv run python targets/opencl/benchmarks/cold_start.py MODEL.onnx

Each case is a process of its own. PoCL's own cache of compiled kernels is emptied for the first case of a
device, so that source means source; drivers of vendors keep caches that no program can empty.
"""

from __future__ import annotations

import argparse
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

PROGRAM = ProbeProgram(Path(__file__).with_name("cold_start.c"), (FILE_CACHE,))


def build(model_file: Path, folder: Path) -> Path:
    """Return the program around the model."""
    deployment = folder / "cold.yml"
    deployment.write_text(
        f"library_name: cold\nmodels:\n  m:\n    model_file_path: {model_file.resolve()}\n", encoding="utf-8"
    )
    registry = Registry.load()
    choice = registry.select("host+opencl")[0]
    (model,) = load_deployment(deployment).models
    compiled = compile_model(model, Compilation(choice, registry))
    sources = encode(Job(Deployment("cold", (model,)), choice), [compiled], registry)
    return link_probe(PROGRAM, sources, folder)


def measure(program: Path, cache: str, options: str, pocl_cache: Path) -> dict[str, str]:
    """Return what the program printed."""
    lines: list[str] = []
    environment = {**os.environ, "POCL_CACHE_DIR": str(pocl_cache)}
    Command((str(program), cache, options), pocl_cache, environment, program.name).execute(lines.append)
    return dict(line.split(" ", 1) for line in lines)


def main() -> None:
    """Print a line for each case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--options", default="-", help="of mace_config, such as opencl.device=gpu")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        program = build(arguments.model, folder)
        entry = folder / "entry"
        for case, cache, caches in (
            ("from source", "-", folder / "pocl0"),
            ("from source, stored", str(entry), folder / "pocl1"),
            ("from the cache", str(entry), folder / "pocl2"),
            ("from source, the driver's own cache warm", "-", folder / "pocl1"),
        ):
            caches.mkdir(exist_ok=True)
            told = measure(program, cache, arguments.options, caches)
            sys.stdout.write(
                f"{case}: open {told['open']} ms, first run {told['first']} ms, warm run {told['warm']} ms\n"
            )
        sys.stdout.write(f"{told['device']}; {entry.stat().st_size} bytes of compiled kernels\n")


if __name__ == "__main__":
    main()
