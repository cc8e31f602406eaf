"""Fuzzes the whole path from a model file to compiled C that runs under sanitizers, and prints what it found.

uv run python tests/fuzz/whole_path.py --frontend onnx --count 1000 --seed 1 --compile 200
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from mutants import FRONTENDS, mutants

from mace_core.testing.whole_path import Report, WholePathOptions, take_whole_path

PROJECTS = ("max78000",)


def fuzz(frontend: str, seed: int, count: int, plan: WholePathOptions, folder: Path) -> Report:
    """Make so many models of a seed, and take them whole-path."""
    return take_whole_path(frontend, mutants(frontend, seed, count), folder, plan)


def main() -> int:
    """Read the command line; 1 if there are findings."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frontend", choices=(*FRONTENDS, "all"), default="all")
    parser.add_argument("--count", type=int, default=1000, help="models of each frontend")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--compile", type=int, default=200, help="models of each frontend that are compiled and run, at most"
    )
    parser.add_argument("--together", type=int, default=40, help="models in one library")
    parser.add_argument("--keep", type=Path, help="a folder for the files, kept")
    asked = parser.parse_args()
    found = 0
    for frontend in FRONTENDS if asked.frontend == "all" else (asked.frontend,):
        start = time.monotonic()
        with tempfile.TemporaryDirectory() as temporary:
            folder = asked.keep / frontend if asked.keep else Path(temporary)
            folder.mkdir(parents=True, exist_ok=True)
            report = fuzz(
                frontend,
                asked.seed,
                asked.count,
                WholePathOptions(asked.compile, asked.together, PROJECTS),
                folder,
            )
        sys.stdout.write(f"{frontend}: {report}\n{frontend}: {time.monotonic() - start:.0f} s\n")
        sys.stdout.flush()
        found += len(report.findings)
    return int(found > 0)


if __name__ == "__main__":
    sys.exit(main())
