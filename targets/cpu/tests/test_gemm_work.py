"""How the matrix kernel orders its work, which no result shows: shares, strips, columns at a time, what is fetched."""

from __future__ import annotations

import ctypes as c
import subprocess

import numpy as np
import pytest

from mace_core.emit.render import render
from mace_core.ir import Array
from mace_core.testing.compiled import host
from mace_target_cpu.isa import VECTOR, CpuLevel
from mace_target_cpu.lower.gemm import GEMM

LEVEL = CpuLevel("wide", (), "", VECTOR, lanes=8, rows=6, columns=16)
"""The tile of AVX2 in plain C: tiles of 6 x 16 and of 12 x 8, 4 of the former at a time for a single row."""

SOURCE = """
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#define MACE_UNUSED __attribute__((unused))
typedef struct threads {{ int32_t workers; }} threads;
typedef struct mace_workers {{ const threads *threads; }} mace_workers;
static int64_t fetched[1 << 16], stored[1 << 10], fetches, stores;
static const float *weights;
#define __builtin_prefetch(from, write, locality) (fetched[fetches++] = (from) - weights)
/* As if there were always enough to do. */
static int64_t mace_share(const mace_workers *run, int64_t nanoseconds) {{
  (void)nanoseconds;
  return run->threads && run->threads->workers > 1 ? 4 * run->threads->workers : 1;
}}
{helpers}
static void note(const void *results, int64_t row, int64_t end, int64_t first, int64_t last) {{
  const int64_t part[4] = {{row, end, first, last}};
  (void)results;
  memcpy(stored + 4 * stores++, part, sizeof part);
}}
void share(int32_t workers, int64_t rows, int32_t panels, int64_t copies, int64_t max_rows, int32_t fetch, int64_t *made) {{
  const threads several = {{workers}};
  const mace_workers run = {{workers ? &several : NULL}};
  const gemm_size size = {{rows, 100, copies, max_rows, panels, 16, fetch, GEMM_RATE}};
  const gemm_share s = gemm_cut(&run, &size);
  made[0] = s.rows, made[1] = s.blocks, made[2] = s.panels, made[3] = s.parts;
}}
/* size: rows, columns, length and runs. after: where what is read after b begins, from b on; -1 for nowhere. */
void multiply(const int64_t *size, const float *const *a, const float *b, const float *bias, float *c,
    int32_t first, int32_t last, int64_t after, int64_t *counts) {{
  gemm g = {{.b = b, .bias = bias, .low = -INFINITY, .high = INFINITY, .a = a[0], .table = a}};
  g.lda = size[2], g.ldc = size[1], g.length = size[2], g.pitch = size[0];
  g.runs = (int32_t)size[3], g.columns = (int32_t)size[1], g.panel = 16, g.next = size[2] * size[3] * 16;
  g.finish = note, g.after = after < 0 ? NULL : b + after;
  if (g.runs == 1) g.table = NULL;
  weights = b, fetches = stores = 0;
  gemm_rows(&g, size[0], c, first, last);
  counts[0] = fetches, counts[1] = stores;
}}
int64_t *fetched_places(void) {{ return fetched; }}
int64_t *stored_parts(void) {{ return stored; }}
"""


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> c.CDLL:
    folder = tmp_path_factory.mktemp("gemm")
    helpers = "\n".join(render(template, level=LEVEL) for template in (VECTOR, *GEMM))
    (folder / "gemm.c").write_text(SOURCE.format(helpers=helpers), encoding="utf-8")
    compiler = host()
    words = [*compiler.cc, "-w", "-O0", *compiler.shared, "-o", "gemm.so", "gemm.c"]
    subprocess.run(words, cwd=folder, check=True, capture_output=True)
    library = c.CDLL(str(folder / "gemm.so"))
    library.fetched_places.restype = library.stored_parts.restype = c.POINTER(c.c_int64)
    return library


Part = list[int]
Share = tuple[int, int, int, int]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ((0, 100, 9, 1, 1000, 16), (102, 1, 9, 1)),
        ((0, 72, 9, 1, 36, 16), (36, 2, 9, 1)),
        ((1, 100, 9, 1, 1000, 16), (102, 1, 9, 1)),
        ((2, 100, 9, 1, 1000, 16), (54, 2, 3, 3)),
        ((2, 100, 9, 1, 1000, 64), (54, 2, 9, 1)),
        ((2, 96, 9, 1, 1000, 16), (48, 2, 3, 3)),
        ((2, 97, 9, 1, 1000, 16), (54, 2, 3, 3)),
        ((2, 97, 9, 1, 1000, 64), (54, 2, 9, 1)),
        ((2, 100, 9, 1, 13, 16), (12, 9, 3, 3)),
        ((2, 100, 9, 1, 12, 16), (12, 9, 3, 3)),
        ((2, 100, 9, 1, 5, 16), (6, 17, 3, 3)),
        ((2, 100, 9, 7, 1000, 16), (102, 1, 5, 2)),
        ((2, 100, 9, 8, 1000, 16), (102, 1, 9, 1)),
        ((3, 5, 9, 1, 1000, 16), (6, 1, 1, 9)),
        ((3, 5, 33, 1, 1000, 16), (6, 1, 2, 17)),
        ((3, 6, 33, 1, 1000, 16), (6, 1, 3, 11)),
        ((3, 7, 33, 1, 1000, 16), (12, 1, 3, 11)),
        ((3, 7, 33, 5, 1000, 16), (12, 1, 3, 11)),
        ((3, 7, 33, 5, 1000, 64), (12, 1, 9, 4)),
        ((3, 7, 33, 6, 1000, 16), (12, 1, 3, 11)),
        ((4, 1, 100, 1, 1000, 16), (6, 1, 4, 25)),
        ((4, 1, 3, 1, 1000, 16), (6, 1, 3, 1)),
        ((4, 13, 64, 1, 1000, 16), (18, 1, 4, 16)),
        ((2, 30, 40, 1, 6, 16), (6, 5, 10, 4)),
        ((2, 31, 40, 1, 7, 16), (6, 6, 10, 4)),
        ((2, 64, 12, 1, 18, 16), (18, 4, 6, 2)),
        ((1, 64, 12, 1, 18, 16), (18, 4, 12, 1)),
        # Layers of ResNet-50: half or a quarter of the tasks, of blocks that end together.
        ((4, 196, 16, 1, 512, 16), (102, 2, 4, 4)),
        ((16, 196, 16, 1, 512, 16), (54, 4, 2, 8)),
        ((16, 49, 32, 1, 256, 16), (54, 1, 2, 16)),
        # All rows may be one block, though they are no whole tiles: two would read all weights twice.
        ((0, 49, 64, 1, 49, 16), (49, 1, 64, 1)),
        ((1, 196, 32, 1, 196, 16), (196, 1, 32, 1)),
        ((16, 49, 32, 1, 49, 16), (49, 1, 2, 16)),
        ((1, 49, 64, 1, 48, 16), (30, 2, 64, 1)),
        ((0, 1, 3, 1, 1, 16), (1, 1, 3, 1)),
    ],
)
def test_a_product_is_cut_into_tasks(kernel: c.CDLL, given: tuple[int, ...], expected: Share) -> None:
    """Given: workers (0 where there are no threads), rows, panels, copies, rows of a block at maximum, multiply-adds
    that take as long as a value of a row: 16, and 64 where a task gathers.

    Expected: rows of a block, blocks, panels of a part, parts. One to four tasks for each worker, whole tiles of rows in
    blocks of one size, and whole groups of panels: many parts where rows are few, few where each gathers again.
    """
    share = cut(kernel, given)
    _, rows, panels, _, max_rows, _ = given
    assert share[0] <= max(6, max_rows)
    assert rows <= share[0] * share[1] < rows + share[0]
    assert panels <= share[2] * share[3] < panels + share[2]
    assert share == expected


@pytest.mark.parametrize(
    ("size", "panels", "parts", "fetched"),
    [
        # The columns that follow are fetched by all tiles together, but for a narrow last part.
        (
            (30, 60, 600, 1),
            (0, 4),
            [[0, 30, 0, 16], [0, 30, 16, 32], [0, 30, 32, 48], [0, 30, 48, 60]],
            [(9600, 4, 3000), (19200, 4, 3000), (19200, 0, 3000), (28800, 0, 3000)],
        ),
        (
            (13, 40, 4000, 1),
            (0, 3),
            [[0, 13, 0, 16], [0, 13, 16, 32], [0, 13, 32, 40]],
            [(64000, 6, 12000), (64000, 0, 12000), (128000, 0, 8000)],
        ),
        # More tiles below each other than one call has pointers for.
        ((500, 16, 2100, 1), (0, 1), [[0, 500, 0, 16]], None),
        # Weights that stay in the cache: strips of 24 rows take all columns, of 96 where products are shallow.
        ((100, 40, 80, 1), (0, 3), [[0, 96, 0, 40], [96, 100, 0, 40]], None),
        ((50, 40, 81, 1), (0, 3), [[0, 24, 0, 40], [24, 48, 0, 40], [48, 50, 0, 40]], None),
        # The last part of a strip fetches the first one, for the next strip.
        (
            (50, 64, 81, 1),
            (1, 3),
            [[0, 24, 16, 48], [24, 48, 16, 48], [48, 50, 16, 48]],
            [*2 * [(2592, 4, 324), (1296, 4, 324)], (2592, 16, 81), (2592, 0, 81)],
        ),
        ((25, 64, 512, 1), (0, 4), [[0, 24, 0, 64], [24, 25, 0, 64]], None),
        ((25, 64, 513, 1), (0, 4), [[0, 25, 0, 16], [0, 25, 16, 32], [0, 25, 32, 48], [0, 25, 48, 64]], None),
        # The rows of a single strip read weights once, so they fetch what follows.
        (
            (24, 32, 80, 1),
            (0, 2),
            [[0, 24, 0, 16], [0, 24, 16, 32]],
            [(1280, 4, 320), (1280, 0, 320)],
        ),
        # A single row: four tiles at a time, which fetch nothing, and the rest.
        ((1, 100, 20, 1), (0, 7), [[0, 1, 0, 100]], [(1600, 16, 20), (1600, 0, 20), (1920, 0, 20)]),
        ((1, 128, 20, 1), (0, 8), [[0, 1, 0, 128]], []),
        ((1, 80, 20, 1), (1, 5), [[0, 1, 16, 80]], []),
        # Sums in between: six runs of nine at a time, but for the last part, whose columns are no whole vectors.
        (
            (7, 52, 300, 9),
            (0, 4),
            [[0, 7, 0, 16], [0, 7, 16, 32], [0, 7, 32, 48], [0, 7, 48, 52]],
            [
                (28800, 8, 3600),
                (43200, 8, 1800),
                (72000, 8, 3600),
                (86400, 8, 1800),
                (115200, 8, 3600),
                (115200, 0, 1800),
                (129600, 0, 8100),
            ],
        ),
        # The same of three tiles below each other, whose sums in between begin at rows of their own.
        (
            (18, 16, 300, 9),
            (0, 1),
            [[0, 18, 0, 16]],
            [(28800, 6, 5400), *3 * [(28800, 0, 900)]],
        ),
        ((2, 3, 5, 2), (0, 1), [[0, 2, 0, 3]], [(0, 0, 10)]),
        ((13, 40, 0, 1), (0, 3), [[0, 13, 0, 16], [0, 13, 16, 32], [0, 13, 32, 40]], []),
    ],
)
def test_the_order_of_parts_and_what_is_fetched_meanwhile(
    kernel: c.CDLL,
    size: tuple[int, int, int, int],
    panels: tuple[int, int],
    parts: list[Part],
    fetched: list[tuple[int, int, int]] | None,
) -> None:
    """Fetched: the first float of b, the step and the number of each sequence; None where that is not looked at."""
    places, stored = multiply(kernel, size, panels)
    assert stored == parts
    if fetched is not None:
        expected = [first + step * i for first, step, count in fetched for i in range(count)]
        np.testing.assert_array_equal(places, expected)


@pytest.mark.parametrize(
    ("columns", "fetched"),
    [
        # By four tiles of 6 rows.
        (32, [(1280, 4, 320), (5000, 4, 320)]),
        # A narrow last part is not fetched, and fetches by two tiles of 12 rows.
        (24, [(0, 0, 320), (5000, 8, 160)]),
    ],
)
def test_the_last_part_fetches_what_is_read_after_it(
    kernel: c.CDLL, columns: int, fetched: list[tuple[int, int, int]]
) -> None:
    places, _ = multiply(kernel, (24, columns, 80, 1), (0, 2), after=5000)
    expected = [first + step * i for first, step, count in fetched for i in range(count)]
    np.testing.assert_array_equal(places, expected)


@pytest.mark.parametrize("rows", [7, 25])
def test_a_product_without_depth_fetches_nothing(kernel: c.CDLL, rows: int) -> None:
    """What tiles share is a part of the depth: it would be divided by 0."""
    places, parts = multiply(kernel, (rows, 64, 0, 1), (0, 4), after=5000)
    assert places.size == 0
    assert {row for part in parts for row in part[:2]} >= {0, rows}


def cut(kernel: c.CDLL, given: tuple[int, ...]) -> Share:
    workers, rows, panels, copies, max_rows, fetch = given
    result = (c.c_int64 * 4)()
    kernel.share(workers, c.c_int64(rows), panels, c.c_int64(copies), c.c_int64(max_rows), fetch, result)
    first, second, third, fourth = result
    return first, second, third, fourth


def multiply(
    kernel: c.CDLL, size: tuple[int, int, int, int], panels: tuple[int, int], after: int = -1
) -> tuple[Array, list[Part]]:
    """Multiply and check the numbers: where b was fetched ahead, as floats from its first; which parts came when.

    size: rows, columns, floats of a run, runs.  after: where what is read next begins, -1 for nowhere.
    """
    rows, columns, length, runs = size
    rng = np.random.default_rng(0)
    a, b, bias = (
        rng.integers(-3, 4, shape).astype(np.float32)
        for shape in ((rows, runs, length), (runs * length, columns), columns)
    )
    packed = np.zeros((-(-columns // 16), runs * length, 16), np.float32)
    for first in range(0, columns, 16):
        packed[first // 16, :, : min(16, columns - first)] = b[:, first : first + 16]
    result, counts = np.full((rows, columns), np.nan, np.float32), (c.c_int64 * 2)()
    table = (c.c_void_p * (runs * rows))(*(a[i, run].ctypes.data for run in range(runs) for i in range(rows)))
    kernel.multiply(
        (c.c_int64 * 4)(*size),
        table,
        *(c.c_void_p(array.ctypes.data) for array in (packed, bias, result)),
        *panels,
        c.c_int64(after),
        counts,
    )
    begin, end = 16 * panels[0], min(columns, 16 * panels[1])
    expected = np.full((rows, columns), np.nan, np.float32)
    expected[:, begin:end] = (a.reshape(rows, -1) @ b + bias)[:, begin:end]
    np.testing.assert_array_equal(result, expected)
    fetched = np.array(kernel.fetched_places()[: counts[0]], np.int64)
    return fetched, np.array(kernel.stored_parts()[: 4 * counts[1]]).reshape(-1, 4).tolist()
