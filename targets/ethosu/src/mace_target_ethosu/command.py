"""`python -m mace_target_ethosu FILE...`: compares where the rules and Vela place operators.

TensorFlow Lite files are compared as they are; every model also as the transforms leave it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

from mace_core.errors import MaceError
from mace_target_ethosu.agreement import Agreement, compare
from mace_target_ethosu.as_built import write_regions
from mace_target_ethosu.options import ACCELERATORS, EthosUOptions
from mace_target_ethosu.vela import find_fault


def main(words: Sequence[str]) -> int:
    """Compare each file for each accelerator; return 1 if anything differs, 2 if a file cannot be read."""
    parser = argparse.ArgumentParser(prog="python -m mace_target_ethosu", description=__doc__)
    parser.add_argument("files", nargs="+", type=Path, help="models of any frontend")
    parser.add_argument(
        "--accelerator", action="append", choices=ACCELERATORS, help="may stand several times"
    )
    parser.add_argument("--json", action="store_true", help="every operator, for programs")
    chosen = parser.parse_args(words)
    # One of each generation, so that the table that U55 and U65 share is compared for both.
    accelerators = chosen.accelerator or ("ethos-u55-128", "ethos-u65-256", "ethos-u85-256")
    try:
        results = _compare_all(chosen.files, accelerators)
    except MaceError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    if chosen.json:
        sys.stdout.write(json.dumps([result.as_json() for result in results], indent=2) + "\n")
    else:
        for result in results:
            sys.stdout.write("\n".join(result.describe()) + "\n")
    return int(any(result.differences for result in results))


def _compare_all(files: Sequence[Path], accelerators: Sequence[str]) -> list[Agreement]:
    """Compare every file; MaceError where Vela is missing or a file cannot be read."""
    if fault := find_fault():
        raise MaceError("target 'ethosu'", "Vela is needed to compare with", fault)
    return list(chain.from_iterable(_compare_file(file, accelerators) for file in files))


def _compare_file(file: Path, accelerators: Sequence[str]) -> Iterator[Agreement]:
    """Compare a model as it is, if it is a TensorFlow Lite file, and as it is built."""
    for accelerator in accelerators:
        options = EthosUOptions(accelerator)
        if file.suffix == ".tflite":
            yield compare(file.read_bytes(), options, file.name)
        for number, region in enumerate(write_regions(file, options.generation)):
            yield compare(region, options, f"{file.name}, region {number}")
