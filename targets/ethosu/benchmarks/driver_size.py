"""Print the size of the driver for processors that Ethos-U stands beside: `uv run python targets/ethosu/benchmarks/driver_size.py`.

The driver is compiled alone, without the vendor's, as a library's build would with -Os. It needs `arm-none-eabi-gcc`.
"""

from __future__ import annotations

import os
import sys
from importlib.resources import files
from pathlib import Path
from shutil import which
from tempfile import TemporaryDirectory

from mace_core.run.command import Command

PROCESSORS = ("cortex-m4", "cortex-m33", "cortex-m55")
DRIVER = Path(str(files("mace_target_ethosu"))) / "driver/mace_ethosu_driver.c"
RUNTIME = Path(str(files("mace_core"))) / "runtime"


def measure(processor: str, folder: Path) -> tuple[int, int, int]:
    """Return bytes of code and constants, of variables, and of memory that is cleared."""
    made = folder / f"{processor}.o"
    flags = ["-std=c11", "-Os", "-mthumb", f"-mcpu={processor}", "-ffunction-sections", f"-I{RUNTIME}"]
    words = ("arm-none-eabi-gcc", *flags, "-c", str(DRIVER), "-o", str(made))
    lines: list[str] = []
    Command(words, folder, os.environ, processor).execute(lines.append)
    lines.clear()
    Command(("arm-none-eabi-size", str(made)), folder, os.environ, processor).execute(lines.append)
    text, data, cleared = lines[1].split()[:3]
    return int(text), int(data), int(cleared)


def main() -> int:
    """Print a line for each processor."""
    if which("arm-none-eabi-gcc") is None:
        sys.stderr.write("arm-none-eabi-gcc is not installed: apt-get install gcc-arm-none-eabi\n")
        return 2
    with TemporaryDirectory() as folder:
        for processor in PROCESSORS:
            text, data, cleared = measure(processor, Path(folder))
            sys.stdout.write(
                f"{processor}: {text} bytes of code and constants, {data} of variables, {cleared} cleared\n"
            )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
