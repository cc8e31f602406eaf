"""Measures how long a session takes from `mace_open` to the first result.

From source, from the application's cache, and from binaries in the library.

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


def measure(program: Path, cache: str, options: str, pocl_cache: Path) -> dict[str, str]:
    """Return what the program printed."""
    lines: list[str] = []
    pocl_cache.mkdir(exist_ok=True)
    environment = {**os.environ, "POCL_CACHE_DIR": str(pocl_cache)}
    Command((str(program), cache, options), pocl_cache, environment, program.name).execute(lines.append)
    return dict(line.split(" ", 1) for line in lines)


def show(case: str, told: dict[str, str]) -> None:
    """Print a line."""
    times = f"open {told['open']} ms, first run {told['first']} ms, warm run {told['warm']} ms"
    sys.stdout.write(f"{case}: {times}\n")


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
        for case, cache, caches in cases:
            told = measure(source, cache, arguments.options, folder / caches)
            show(case, told)
        shipped = build(arguments.model, folder / "binaries", (entry,))
        told = measure(shipped, "-", arguments.options, folder / "pocl3")
        show("from binaries in the library", told)
        sys.stdout.write(f"{told['device']}; {entry.stat().st_size} bytes of compiled kernels\n")


if __name__ == "__main__":
    main()
