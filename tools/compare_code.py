"""Compares the C of two versions of MACE file by file: bytes, then text without comments, then machine code.

uv run mace convert models.yml --output before    # at the one version
uv run mace convert models.yml --output after     # at the other
uv run python tools/compare_code.py before after

Files of equal machine code compute the same numbers in the same time, so nothing has to be run for them. Exit
status 1 if a file is missing on one side or its machine code differs.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

LEVEL_FLAGS = {"avx2": ("-mavx2", "-mfma", "-mf16c")}
"""What the level in the name of a file of kernels needs beyond -O2."""

EQUAL = ("bytes", "without comments", "machine code")
"""What can be the same about two files, the strongest first."""


def main() -> int:
    """Print how many files agree in what, and each that does not."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    asked = parser.parse_args()
    names = {path.name for folder in (asked.before, asked.after) for path in folder.iterdir()}
    results = {name: compare_files(asked.before / name, asked.after / name) for name in sorted(names)}
    for level, count in Counter(results.values()).items():
        sys.stdout.write(f"{count} files: {level}\n")
    different = [name for name, result in results.items() if result not in EQUAL]
    for name in different:
        sys.stdout.write(f"{name}: {results[name]}\n")
    return 1 if different else 0


def compare_files(before: Path, after: Path) -> str:
    """Return what two files have in common, a word of EQUAL, or what is wrong."""
    if not (before.is_file() and after.is_file()):
        return f"is missing in {after.parent if before.is_file() else before.parent}"
    if before.read_bytes() == after.read_bytes():
        return "bytes"
    if before.suffix not in (".c", ".h"):
        return "differs"
    if drop_comments(before) == drop_comments(after):
        return "without comments"
    if before.suffix == ".h":
        # What a header means shows in the machine code of the files that include it.
        return "machine code"
    old, new = disassemble(before), disassemble(after)
    different = sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))
    return (
        f"{len(different)} of {len(new)} functions differ: {', '.join(different)}" if different else EQUAL[-1]
    )


def drop_comments(file: Path) -> list[str]:
    """Return the words of a file as the compiler reads them."""
    return call("gcc", "-fpreprocessed", "-dD", "-E", "-P", "-w", str(file)).split()


def disassemble(file: Path) -> dict[str, str]:
    """Compile a file and return the instructions of each function, without the addresses that others move."""
    level = file.stem.rpartition("_")[2]
    with tempfile.TemporaryDirectory() as folder:
        built = f"{folder}/built.o"
        flags = ("-O2", "-w", "-ffunction-sections", *LEVEL_FLAGS.get(level, ()))
        call("gcc", *flags, "-I", str(file.parent), "-c", str(file), "-o", built)
        text = call("objdump", "-dr", "--no-show-raw-insn", "--no-addresses", built)
    functions = re.split(r"^Disassembly of section \S*?\.text\.?(\S*):$", text, flags=re.MULTILINE)
    # Places of constants shift with what other functions keep there.
    return {
        name: re.sub(r"(\.rodata|\.LC)\S*", "CONSTANT", body)
        for name, body in zip(functions[1::2], functions[2::2], strict=True)
    }


def call(*words: str) -> str:
    """Return what a program prints; an error ends the comparison with the program's own words."""
    return subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout  # noqa: S603  # our own files


if __name__ == "__main__":
    sys.exit(main())
