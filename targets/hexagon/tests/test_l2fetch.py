"""What kernels ask of the second-level cache: boxes with the fields of the vendor's manual."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from emulated import require_compiler

from mace_core.emit.render import render
from mace_target_hexagon.isa import HVX, KERNELS

PROBE = Path(__file__).parent / "probe" / "l2fetch_probe.c"
MAX_BYTES, MAX_FIELD = 128 * 1024, 65535
EDGES = (1, 2, 127, 128, 4095, 4096, 4097, 65535, 65536, 131072, 131073, 1 << 20)

Rows = tuple[int, int, int]
"""Width, height and stride, in bytes and rows."""


def make_cases() -> list[Rows]:
    """Return the ends of all fields, nothing at all, strides backward, and random rows."""
    rng = np.random.default_rng(0)
    cases = [(width, 1, 0) for width in EDGES] + [(width, 3, width) for width in EDGES]
    cases += [(64, height, 256) for height in EDGES] + [(64, 5, stride) for stride in EDGES]
    cases += [(0, 4, 4), (4, 0, 4), (-1, 4, 4), (100, 4, -100), (100, 7, 30), (100, 7, 0)]
    return cases + [tuple(map(int, row)) for row in rng.integers(1, [5000, 90, 70000], (300, 3))]


def list_lines(rows: Rows, limit: int) -> list[tuple[int, int]]:
    """Return first and last byte of each row, in order, until `limit` bytes have been counted."""
    width, height, stride = rows
    lines = []
    for i in range(height):
        if limit <= 0:
            break
        count = min(width, limit)
        lines.append((i * stride, i * stride + count))
        limit -= count
    return lines


def covers(box: Rows, line: tuple[int, int]) -> bool:
    """Tell whether all bytes of a line lie in the rows of a box."""
    width, height, stride = box
    assert width <= stride, "rows that touch are one run, cut into rows of their stride"
    if width == stride:
        return line[1] <= width * height
    row, first = divmod(line[0], stride)
    return row < height and first + line[1] - line[0] <= width


@pytest.fixture(scope="module")
def boxes(tmp_path_factory: pytest.TempPathFactory) -> Sequence[tuple[Rows, list[int]]]:
    """Each case with the fields of its box: width, height, stride, and what must be 0."""
    compiler, folder = require_compiler(), tmp_path_factory.mktemp("l2fetch")
    (folder / "l2fetch.h").write_text(render(KERNELS / "l2fetch.h.in", level=HVX))
    command = [*compiler.cc, *compiler.flags, *compiler.program, "-O2", "-Wall", "-Werror", "-I.", str(PROBE)]
    subprocess.run([*command, "-o", "probe"], cwd=folder, check=True)
    cases = make_cases()
    text = "".join(f"{width} {height} {stride}\n" for width, height, stride in cases)
    done = subprocess.run(
        ["qemu-hexagon", "probe"], cwd=folder, check=True, input=text, capture_output=True, text=True
    )
    fields = [list(map(int, line.split())) for line in done.stdout.splitlines()]
    return list(zip(cases, fields, strict=True))


@pytest.mark.exhaustive
def test_boxes_cover_their_rows(boxes: Sequence[tuple[Rows, list[int]]]) -> None:
    """All rows up to the limit; where a stride has no field, the first row."""
    for rows, (width, height, stride, rest) in boxes:
        assert rest == 0, "row by row, and no reserved bit"
        if min(rows[:2]) <= 0:
            assert (width, height, stride) == (0, 0, 0)
            continue
        assert min(width, height, stride) > 0, f"a field of 0 would end all boxes: {rows}"
        has_stride = 0 <= rows[2] <= MAX_FIELD or rows[1] == 1
        is_run = rows[1] == 1 or 0 <= rows[2] <= rows[0]
        expected = rows if has_stride or is_run else (rows[0], 1, 0)
        # A run of rows that touch is counted once, whatever they share.
        if is_run and rows[1] > 1:
            expected = (rows[0] + (rows[1] - 1) * rows[2], 1, 0)
        for line in list_lines(expected, MAX_BYTES - width):
            assert covers((width, height, stride), line), f"{rows}: {line} is not in the box"


@pytest.mark.exhaustive
def test_boxes_are_small(boxes: Sequence[tuple[Rows, list[int]]]) -> None:
    for rows, (width, height, _, _) in boxes:
        assert width * height <= MAX_BYTES, rows
        total = max(rows[0], 0) + max(rows[1] - 1, 0) * max(rows[2], rows[0], 0)
        assert width * height < total + 4096, f"{rows} fetches {width * height} bytes"
