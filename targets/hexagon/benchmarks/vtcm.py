"""What lies in VTCM, and what its calls move: by model, for the VTCM of a v66 DSP and of a v68 DSP.

Run: python vtcm.py DEPLOYMENT... It prints a line for each model and DSP, of which docs/hexagon.md quotes.
Bytes are those of the tensors and weights that each kernel call reads and writes, each once for each call;
nothing is timed.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path

from mace_core.commands import load_job
from mace_core.compilation import Compilation, compile_model
from mace_core.deployment import Model
from mace_core.plan import Plan
from mace_core.registry import Choice, Registry
from mace_core.run.tables import table
from mace_target_hexagon.isa import HVX
from mace_target_hexagon.region import RegionBody

ABIS = ("hexagon-v66", "hexagon-v68")


@dataclass(frozen=True)
class Moved:
    """Bytes that calls move: tensors in VTCM, other tensors, and weights.

    vtcm: bytes that the largest region takes of VTCM.
    """

    vtcm: int = 0
    fast: int = 0
    slow: int = 0
    weights: int = 0

    def add_plan(self, plan: Plan) -> Moved:
        """Return the sum with the calls of a region."""
        fast, slow, weights = self.fast, self.slow, self.weights
        program = plan.program
        for call in program.calls:
            for name in {*call.reads, *call.writes} if call.is_made_at(HVX.name) else ():
                if name in program.weights:
                    weights += program.weights[name].bytes
                elif name in plan.fast.offsets:
                    fast += program.tensors[name].bytes
                elif name in program.tensors:
                    slow += program.tensors[name].bytes
        return Moved(max(self.vtcm, plan.fast.bytes), fast, slow, weights)


def count_moved(model: Model, abi: str, choice: Choice, registry: Registry) -> Moved:
    """Return what the regions of a model move on a DSP."""
    keys = {**model.keys, "target_options": {"hexagon": {"abi": abi}}}
    moved = Moved()
    for part in compile_model(replace(model, keys=keys), Compilation(choice, registry)).plan.parts:
        if isinstance(part.body, RegionBody) and part.body.plan:
            moved = moved.add_plan(part.body.plan)
    return moved


def main(deployments: list[str]) -> None:
    """Print a table."""
    rows = []
    for deployment in deployments:
        parsed, choice, registry = load_job(Path(deployment), "host+hexagon")
        for model in parsed.models:
            for abi in ABIS:
                moved = count_moved(model, abi, choice, registry)
                sizes = (moved.vtcm, moved.fast, moved.slow, moved.weights)
                rows.append((model.name, abi, *(f"{size / 1e3:.1f}" for size in sizes)))
    head = ("model", "target", "VTCM kB", "moved there kB", "elsewhere kB", "weights kB")
    sys.stdout.write(table(head, rows))


if __name__ == "__main__":
    main(sys.argv[1:])
