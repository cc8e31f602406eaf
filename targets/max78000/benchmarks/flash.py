"""Flash that a firmware takes, with its registers and weights written out and in tables: bytes for each of the vendor's networks.

    python targets/max78000/benchmarks/flash.py

MACE_MODELS names the folder of the networks if it is not beside the checkout; the compiler is
arm-none-eabi-gcc.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from references import Reference, references

from mace_core.api import Compiler
from mace_core.registry import Registry
from mace_target_max78000.emulator.machine import Firmware, load_firmware
from mace_target_max78000.encode import synthesize
from mace_target_max78000.firmware import emit_project
from mace_target_max78000.firmware.layout import build_firmware

REGISTERS = ("cnn_configure", "registers", "groups")
WEIGHTS = ("kernels", "runs", "codes", "coded", "cnn_load_weights")


def built(reference: Reference, compiler: Compiler, table_driven: bool) -> Firmware:
    """A network's firmware."""
    network, options = reference.network, replace(reference.options, table_driven=table_driven)
    image = synthesize(network, options, reference.device).image
    with tempfile.TemporaryDirectory() as folder:
        return load_firmware(
            build_firmware(emit_project(image, network, options, ""), compiler, Path(folder))
        )


def sizes(made: Firmware) -> tuple[int, int, int]:
    """Bytes of registers, of weights, of everything."""
    parts = (sum(made.symbols[n].size for n in names if n in made.symbols) for names in (REGISTERS, WEIGHTS))
    return (*parts, sum(len(data) for _, data in made.segments))  # type: ignore[return-value]


def main() -> None:
    """Print the table."""
    compiler = Registry.load().toolchains["arm-none-eabi"].compiler("cortex-m4")
    sys.stdout.write(f"{'network':26}{'registers':>20}{'weights':>20}{'firmware':>20}\n")
    for reference in (r for r in references() if r.path.parent.parent.name != "unit"):
        pairs = zip(
            *(sizes(built(reference, compiler, table_driven)) for table_driven in (False, True)), strict=True
        )
        sys.stdout.write(f"{reference.name:26}" + "".join(f"{a:>11} {b:>8}" for a, b in pairs) + "\n")


if __name__ == "__main__":
    main()
