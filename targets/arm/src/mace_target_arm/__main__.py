"""`python -m mace_target_arm`: counts the inner loops of kernels, see `inner_loops`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, fields

from mace_core.errors import MaceError
from mace_core.registry import Registry
from mace_core.run.tables import table
from mace_target_arm import Arm
from mace_target_arm.inner_loops import (
    PROCESSORS,
    InnerLoop,
    compile_tiles,
    count_loop,
    find_tiles,
    measure_shares,
)


@dataclass(frozen=True)
class Row:
    """The inner loop of a tile at a level, and its shares by core."""

    level: str
    loop: InnerLoop
    shares: Mapping[str, float]


def main(words: Sequence[str]) -> int:
    """Print the counts of the highest tile of each width, at each level; return 2 if that is not possible."""
    parser = argparse.ArgumentParser(prog="python -m mace_target_arm", description=__doc__)
    parser.add_argument("--abi", default="arm64-v8a", choices=PROCESSORS, help="what to compile for")
    parser.add_argument("--toolchain", default="zig", help="the compiler to use")
    parser.add_argument("--json", action="store_true", help="all counts, for programs")
    chosen = parser.parse_args(words)
    rows: list[Row] = []
    try:
        compiler = Registry.load().select(chosen.abi, chosen.toolchain)[0].compiler
        for level in Arm().known_levels(chosen.abi):
            assembly = compile_tiles(chosen.abi, level, compiler)
            rows += [
                Row(level.name, count_loop(assembly, name), measure_shares(assembly, name, chosen.abi))
                for name in find_tiles(assembly)
            ]
    except MaceError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    if chosen.json:
        sys.stdout.write(json.dumps([asdict(row) for row in rows], indent=2) + "\n")
    else:
        sys.stdout.write(show_rows(rows))
    return 0


def show_rows(rows: Sequence[Row]) -> str:
    """Return a table for people."""
    counts = [field.name for field in fields(InnerLoop)]
    cells = [
        (row.level, *map(str, astuple(row.loop)), *(f"{100 * share:.0f}" for share in row.shares.values()))
        for row in rows
    ]
    return table(("level", *counts, *(f"% {core}" for core in rows[0].shares)), cells)


raise SystemExit(main(sys.argv[1:]))
