"""Which results of a depthwise convolution take the fast ways: no result shows it, for all ways give the same bits."""

from __future__ import annotations

import ctypes as c
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from mace_core.emit.render import render
from mace_core.emit.text import CIdentifier
from mace_core.testing.compiled import host
from mace_target_cpu.isa import KERNELS, VECTOR, CpuLevel
from mace_target_cpu.lower.conv import DEPTHWISE_ROW

LANES = 8
WIDE = 16
"""Lanes of levels that go down the image with several rows of results at a time."""

COLUMNS = 4
"""Columns that are computed at a time."""

FORMS = ((0, 0), (3, 1), (3, 2), (5, 1), (5, 2))
"""Widths of windows and steps that kernels are unrolled for; 0 for any."""

SOURCE = """
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#define MACE_UNUSED __attribute__((unused))
typedef struct threads {{ int32_t workers; }} threads;
typedef struct mace_workers {{ const threads *threads; }} mace_workers;
#define PLAIN __attribute__((no_instrument_function))
PLAIN static void mace_parallel(const mace_workers *run, void (*task)(void *, int32_t, int32_t), void *context,
    int32_t tasks) {{
  for (int32_t i = 0; i < tasks; i++) task(context, i, 0);
}}
PLAIN static int64_t mace_share(const mace_workers *run, int64_t nanoseconds) {{ return 3; }}
typedef struct sizes {{
  int32_t batch, channels, in[3], out[3], kernel[3], stride[3], dilation[3], pad[3];
  float low, high;
}} sizes;
{vectors}
{kernels}
static int64_t counts[3];
/* Hidden: else calls would reach the empty functions of the C library. */
PLAIN __attribute__((visibility("hidden"))) void __cyg_profile_func_enter(void *entered, void *from);
PLAIN __attribute__((visibility("hidden"))) void __cyg_profile_func_exit(void *left, void *to);
PLAIN void __cyg_profile_func_enter(void *entered, void *from) {{
  counts[0] += {pixel};
  counts[1] += {columns};
  counts[2] += {square};
}}
PLAIN void __cyg_profile_func_exit(void *left, void *to) {{ }}
typedef void way(const mace_workers *run, const sizes *a, void *const *t);
PLAIN void compute(int form, const sizes *a, void *const *t, int64_t *result) {{
  way *const ways[] = {{{ways}}};
  const mace_workers run = {{NULL}};
  memset(counts, 0, sizeof counts);
  ways[form](&run, a, t);
  memcpy(result, counts, sizeof counts);
}}
"""


class Sizes(c.Structure):
    _fields_ = (
        *((name, c.c_int32) for name in ("batch", "channels")),
        *((name, c.c_int32 * 3) for name in ("in", "out", "kernel", "stride", "dilation", "pad")),
        *((name, c.c_float) for name in ("low", "high")),
    )


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> c.CDLL:
    return compile_kernels(tmp_path_factory.mktemp("depthwise"), LANES)


@pytest.fixture(scope="module")
def wide_library(tmp_path_factory: pytest.TempPathFactory) -> c.CDLL:
    return compile_kernels(tmp_path_factory.mktemp("wide"), WIDE)


def compile_kernels(folder: Path, lanes: int) -> c.CDLL:
    """Compile a kernel for each form, for vectors of so many floats, whether the processor has such or not."""
    level = CpuLevel("some", (), "", VECTOR, lanes=lanes, rows=6, columns=16)
    template = KERNELS / "conv_depthwise.c.in"
    names = [f"deep{width}{stride}" for width, stride in FORMS]
    kernels = [
        f"typedef sizes {name}_args;\n{render(template, name=CIdentifier(name), width=width, stride=stride, level=level)}"
        for name, (width, stride) in zip(names, FORMS, strict=True)
    ]
    functions = {
        "pixel": ["depthwise_vf_pixel"],
        "columns": [f"{name}_columns" for name in names],
        "square": [f"{name}_square" for name in names if "0" not in name],
    }
    entered = {
        way: " || ".join(f"entered == (void *){function}" for function in ways)
        for way, ways in functions.items()
    }
    vectors = "\n".join(render(helper, level=level) for helper in (KERNELS / "vector.h.in", DEPTHWISE_ROW))
    text = SOURCE.format(vectors=vectors, kernels="\n".join(kernels), ways=", ".join(names), **entered)
    (folder / "deep.c").write_text(text, encoding="utf-8")
    compiler = host()
    words = [*compiler.cc, "-w", "-O0", "-finstrument-functions", *compiler.shared, "-o", "deep.so", "deep.c"]
    subprocess.run(words, cwd=folder, check=True, capture_output=True)
    return c.CDLL(str(folder / "deep.so"))


Axes = tuple[int, int, int]


def places(axis: int, size: Axes, kernel: Axes, how: tuple[Axes, Axes, Axes, Axes]) -> tuple[int, list[bool]]:
    """The results along an axis, and for each whether its window lies inside."""
    stride, dilation, before, after = (values[axis] for values in how)
    reach = (kernel[axis] - 1) * dilation
    count = (size[axis] + before + after - reach - 1) // stride + 1
    starts = [i * stride - before for i in range(count)]
    return count, [start >= 0 and start + reach < size[axis] for start in starts]


ONE = (1, 1, 1)
NONE = (0, 0, 0)


@pytest.mark.parametrize(
    ("form", "channels", "windows"),
    [
        (0, 20, ((1, 6, 10), (1, 3, 3), (ONE, ONE, (0, 1, 1), (0, 1, 1)))),
        (1, 20, ((1, 6, 10), (1, 3, 3), (ONE, ONE, (0, 1, 1), (0, 1, 1)))),
        (1, 8, ((1, 6, 11), (1, 3, 3), (ONE, ONE, (0, 0, 2), (0, 2, 0)))),
        (1, 8, ((1, 6, 6), (1, 3, 3), (ONE, ONE, (0, 1, 1), (0, 1, 1)))),
        (1, 8, ((1, 6, 5), (1, 3, 3), (ONE, ONE, (0, 1, 1), (0, 1, 1)))),
        (1, 7, ((1, 6, 10), (1, 3, 3), (ONE, ONE, NONE, NONE))),
        (1, 9, ((1, 6, 10), (1, 3, 3), (ONE, ONE, NONE, NONE))),
        (1, 16, ((2, 6, 10), (2, 3, 3), (ONE, ONE, NONE, NONE))),
        (1, 16, ((1, 9, 10), (1, 2, 3), (ONE, ONE, (0, 1, 1), (0, 1, 1)))),
        (1, 16, ((1, 9, 10), (1, 5, 3), (ONE, ONE, (0, 1, 1), (0, 1, 1)))),
        (2, 16, ((1, 9, 19), (1, 3, 3), ((1, 2, 2), ONE, (0, 1, 1), (0, 1, 1)))),
        (2, 16, ((1, 9, 20), (1, 3, 3), ((1, 1, 2), ONE, (0, 1, 3), (0, 1, 2)))),
        (0, 16, ((1, 9, 20), (1, 3, 4), ((1, 1, 3), (1, 2, 2), (0, 2, 4), (0, 2, 5)))),
        (0, 16, ((1, 2, 3), (1, 3, 5), (ONE, ONE, (0, 1, 2), (0, 1, 2)))),
        (0, 16, ((1, 2, 5), (1, 1, 5), (ONE, ONE, (0, 0, 4), (0, 0, 4)))),
        (0, 16, ((1, 2, 8), (1, 1, 5), (ONE, ONE, (0, 0, 4), (0, 0, 4)))),
    ],
)
def test_windows_inside_take_the_fast_way(
    library: c.CDLL, form: int, channels: int, windows: tuple[Axes, Axes, tuple[Axes, Axes, Axes, Axes]]
) -> None:
    """Windows: the sizes of the input and of the window; strides, dilations and padding before and after."""
    size, kernel, how = windows
    (planes, _), (rows, down), (results, across) = (places(axis, size, kernel, how) for axis in range(3))
    given = Sizes(2, channels, size, (planes, rows, results), kernel, *how[:3], float("-inf"), float("inf"))
    lengths = (
        2 * size[0] * size[1] * size[2] * channels,
        125 * channels,
        channels,
        2 * planes * rows * results * channels,
    )
    arrays = [(c.c_float * length)() for length in lengths]
    tensors = (c.c_void_p * 4)(*(c.addressof(array) for array in arrays))
    actual = (c.c_int64 * 3)()
    library.compute(form, c.byref(given), tensors, actual)
    is_square = FORMS[form][0] > 0 and can_be_square(kernel, size, results, how)
    assert list(actual) == expected(is_square, channels, (planes, down, across))


def can_be_square(kernel: Axes, size: Axes, results: int, how: tuple[Axes, Axes, Axes, Axes]) -> bool:
    """Tell whether windows are square, and none reaches over an edge by more than half of its width."""
    stride, _, before, _ = (values[2] for values in how)
    beyond = (results - 1) * stride - before + kernel[2] - size[2]
    return kernel[:2] == (1, kernel[2]) and max(before, beyond) <= kernel[2] // 2


def expected(
    is_square: bool, channels: int, results: tuple[int, Sequence[bool], Sequence[bool]]
) -> list[int]:
    """Calls for single results, for four columns of a vector, and for a row of square windows."""
    planes, down, across = results
    inside = sum(across) if channels >= LANES and sum(across) >= COLUMNS else 0
    rows = 2 * planes * len(down)
    if is_square and channels >= LANES and len(across) >= COLUMNS:
        return [0, 0, rows]
    groups = -(-inside // COLUMNS)
    return [rows * (len(across) - inside), rows * groups * -(-channels // LANES), 0]


@dataclass(frozen=True)
class Shape:
    """Rows and channels of an image, bytes that x and y lie apart beside whole kilobytes, and how rows go down."""

    rows: int
    channels: int
    apart: int = 0
    stride: int | None = None
    dilation: int = 1


SHAPES = [Shape(*case) for case in product((1, 2, 18, 50), (7, 20, 256, 512), (0, 64))]
SHAPES += [Shape(17, 20, 0, stride, dilation) for stride, dilation in product((1, 2, 3), (1, 2))]
SHAPES += [Shape(260, channels) for channels in (96, 130)]  # images beyond 1 MB, of small and large pixels


@pytest.mark.parametrize("form", range(1, len(FORMS)))
@pytest.mark.parametrize("shape", SHAPES, ids=repr)
def test_rows_that_share_inputs_have_the_bits_of_single_rows(
    library: c.CDLL, wide_library: c.CDLL, form: int, shape: Shape
) -> None:
    width, stride = FORMS[form]
    pad, channels = width // 2, shape.channels
    size, strides, pads = (1, shape.rows, 4 * stride + 7), (1, shape.stride or stride, stride), (0, pad, pad)
    how = (strides, (1, shape.dilation, 1), pads, pads)
    kernel = (1, width, width)
    results = tuple(max(places(axis, size, kernel, how)[0], 0) for axis in range(3))
    given = Sizes(2, channels, size, results, kernel, *how[:3], -1.0, 2.0)
    random = np.random.default_rng(form)
    count = 2 * shape.rows * size[2] * channels
    end = -(-count // 256) * 256 + shape.apart // 4
    weights = random.standard_normal(width * width * channels).astype(np.float32)
    bias = random.standard_normal(channels).astype(np.float32)
    outputs = []
    for kernels in (library, wide_library):
        room = np.zeros(end + 2 * results[1] * results[2] * channels + 256, np.float32)
        room[:count] = np.random.default_rng(shape.rows).standard_normal(count)
        y = room[end:]
        tensors = (c.c_void_p * 4)(*(array.ctypes.data for array in (room, weights, bias, y)))
        actual = (c.c_int64 * 3)()
        kernels.compute(form, c.byref(given), tensors, actual)
        is_even = strides == (1, stride, stride) and shape.dilation == 1
        is_wide = kernels is wide_library
        assert (channels < LANES and not (is_wide and is_even)) or list(actual[:2]) == [0, 0]
        if is_wide and is_even and shape.rows >= 16:
            is_far = stride == 2 and size[1] * size[2] * channels > 1 << 18
            assert (actual[2] < results[1]) != is_far, "most rows share what they load"
        elif not is_wide and is_even and width == 3 and channels == 130:
            assert actual[2] == 2 * 2 * results[1], "two images, two strips of channels"
        outputs.append(y)
    np.testing.assert_array_equal(outputs[0], outputs[1])
    assert results[1] == 0 or len(np.unique(outputs[0])) > channels
