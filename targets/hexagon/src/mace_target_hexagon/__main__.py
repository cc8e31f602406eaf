"""`python -m mace_target_hexagon FILE`: counts the packets of built models, see `packets`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from mace_core.commands import BuiltModels
from mace_core.errors import MaceError
from mace_target_hexagon.packets import count_models


def main(words: Sequence[str]) -> int:
    """Count one run of every model of a deployment file; return 2 if that is not possible."""
    parser = argparse.ArgumentParser(prog="python -m mace_target_hexagon", description=__doc__)
    parser.add_argument("deployment", type=Path, help="a deployment file whose library is built")
    parser.add_argument("--target", default="hexagon-v66", help="the choice that it is built for")
    parser.add_argument("--builds", type=Path, default=Path("builds"), help="where libraries are built")
    parser.add_argument("--json", action="store_true", help="all counts, for programs")
    chosen = parser.parse_args(words)
    try:
        counts = count_models(BuiltModels(chosen.deployment, chosen.target, chosen.builds))
    except MaceError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    if chosen.json:
        described = [{**asdict(count), "bound": count.bound, "timing": "counted"} for count in counts]
        sys.stdout.write(json.dumps(described, indent=2) + "\n")
    else:
        sys.stdout.write("".join(f"{count.describe()}\n" for count in counts))
    return 0


raise SystemExit(main(sys.argv[1:]))
