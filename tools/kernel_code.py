"""Writes the C of every kernel that is made from one template, for each level of each processor.

python tools/kernel_code.py gemm.h.in FOLDER

Runs on the packages of the checkout in which it is started. FOLDER/ABI/NUMERICS has the sources of a library with one
unit for each level; FOLDER/units.json lists its units of kernels with their flags, by ABI.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path.cwd()
sys.path[:0] = [str(ROOT / "targets/cpu/tests")]

from test_kernel_work import OPS, graphs_of  # noqa: E402

from mace_core.ir import Graph  # noqa: E402
from mace_core.levels import Level, with_levels  # noqa: E402
from mace_core.numerics import Numerics  # noqa: E402
from mace_core.program import Kernel  # noqa: E402
from mace_core.run.files import write_all  # noqa: E402
from mace_core.testing.compiled import generate_library, merge  # noqa: E402
from mace_target_arm import Arm  # noqa: E402
from mace_target_cpu import Cpu  # noqa: E402

PROCESSORS = {"amd64": Cpu(), "riscv64": Cpu(), "arm64": Arm(), "armhf": Arm()}
"""ABI -> the target whose kernels it runs; riscv64 stands for those without a level of their own."""


def list_graphs() -> Iterator[Graph]:
    """Yield graphs that together have every kernel: nodes of each type and shape, fused ones and joined ones."""
    for op in OPS:
        yield from (graph for graphs in graphs_of(op).values() for graph in graphs)


def choose_graphs(template: str, target: Cpu, abi: str, graphs: Sequence[Graph]) -> list[Graph]:
    """Return the graphs that have a kernel made from the template, without those that add none."""
    known: set[str] = set()
    chosen = []
    for graph in graphs:
        calls = target.lower(graph, abi).calls
        names = {call.kernel.name for call in calls if _uses(call.kernel, template, target.levels(abi))}
        if names - known:
            known |= names
            chosen.append(graph.with_name(f"g{len(chosen)}"))
    return chosen


def _uses(kernel: Kernel, template: str, levels: Sequence[Level]) -> bool:
    preludes = [level.prelude for level in levels]
    return template in [source.name for source in (kernel.template, *kernel.helpers, *preludes)]


def write_kernels(template: str, folder: Path) -> None:
    """Write the sources of the kernels that a template is part of."""
    graphs = list(list_graphs())
    units: dict[str, dict[str, tuple[str, ...]]] = {}
    for abi, target in PROCESSORS.items():
        target = with_levels(target, target.known_levels(abi))
        assert isinstance(target, Cpu)
        # The graphs of a library round by one rule.
        for rule in Numerics:
            ruled = [graph for graph in graphs if graph.numerics is rule]
            chosen = choose_graphs(template, target, abi, ruled)
            if chosen:
                units.setdefault(abi, {}).update(_write_library(target, abi, chosen, folder))
    (folder / "units.json").write_text(json.dumps(units), encoding="utf-8")


def _write_library(
    target: Cpu, abi: str, graphs: Sequence[Graph], folder: Path
) -> dict[str, tuple[str, ...]]:
    """Write the sources of a library, and return its units of kernels with their flags."""
    rule = graphs[0].numerics.value
    sources = generate_library([target], [merge("all", graphs)], abi)
    texts = {name: text for name, text in sources.files.items() if name.endswith((".c", ".h"))}
    write_all(folder / abi / rule, texts)
    listed = [unit for manifest in sources.manifests for unit in manifest.units]
    return {f"{rule}/{unit.source}": unit.flags for unit in listed if "_kernels_" in unit.source}


if __name__ == "__main__":
    write_kernels(sys.argv[1], Path(sys.argv[2]))
