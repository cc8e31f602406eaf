"""How a layer reads its input: counters, windows, passes and operands, as either generation's registers encode them.

Positions are pixels; the passes of a position, and the operands of a pass, lie in consecutive words.
"""

from __future__ import annotations

from dataclasses import dataclass

from mace_target_max78000.simulator.fields import Fields
from mace_target_max78000.simulator.setting import Reading


@dataclass(frozen=True)
class _Grid:
    """What the generations encode differently: windows, padding, and steps in words for `unit` words at a position."""

    windows: tuple[int, int]
    size: tuple[int, int]
    steps: tuple[int, int]
    inner: tuple[int, int]
    pad: tuple[int, int]


def first_generation(fields: Fields) -> Reading:
    """Counters run over padded rows and columns; positions follow each other without gaps."""
    passes, operands, transposed = _passes(fields), _operands(fields), fields.flag("POST", 28)
    pads = fields.take("RCNT", 16, 2), fields.take("CCNT", 16, 2)
    rows, columns = (
        fields.take(name, 0, 10) + 1 - 2 * pad for name, pad in zip(("RCNT", "CCNT"), pads, strict=True)
    )
    if min(rows, columns) < 1:
        raise fields.fault("RCNT", f"{rows} rows and {columns} columns are left after padding")
    stride = fields.take("STRIDE", 0, 4) + 1
    size = _size(fields, (fields.take("PRCNT", 0, 4) + 1, fields.take("PCCNT", 0, 4) + 1))
    if size[0] > rows or size[1] > columns:
        raise fields.fault(
            "PRCNT", f"a window of {size[0]}x{size[1]} does not fit {rows}x{columns} positions"
        )
    windows = (rows + stride - size[0]) // stride, (columns + stride - size[1]) // stride
    unit, width = passes * operands, columns // 2 if transposed else columns
    grid = _Grid(windows, size, (stride * width * unit, stride * unit), (width * unit, unit), pads)
    return _reading(fields, grid, passes, operands)


def second_generation(fields: Fields) -> Reading:
    """Counters hold where the last window begins, and how many words lie between the end of a row of windows and the next."""
    passes, operands, transposed = _passes(fields), _operands(fields), fields.flag("POST", 28)
    stride, step = fields.take("STRIDE", 0, 4) + 1, fields.take("STRIDE", 4, 28)
    last = fields.take("RCNT", 0, 11), fields.take("CCNT", 0, 11)
    pads = _padding(fields, "RCNT"), _padding(fields, "CCNT")
    if last[0] % stride or last[1] % stride or step % stride:
        raise fields.fault(
            "STRIDE", f"the last window, {last}, and {step} words are no multiples of the step {stride}"
        )
    unit, right = step // stride, fields.take("CCNT", 16, 16)
    if fields.take("RCNT", 16, 16) != (right + (stride - 1) * (last[1] + right)) * unit:
        problem = f"{right} columns from the last window on, {stride} rows and {unit} words at a position lead elsewhere"
        raise fields.fault("RCNT", problem)
    dilation = fields.take("PRCNT", 4, 4) + 1, fields.take("PCCNT", 4, 4) + 1
    spans = fields.take("PRCNT", 0, 4), fields.take("PCCNT", 0, 4)
    if spans[0] % dilation[0] or spans[1] % dilation[1]:
        raise fields.fault("PRCNT", f"a window that spans {spans} is not dilated by {dilation}")
    size = _size(fields, (spans[0] // dilation[0] + 1, spans[1] // dilation[1] + 1))
    windows = last[0] // stride + 1, last[1] // stride + 1
    width = (last[1] + right) // (2 if transposed else 1)
    grid = _Grid(
        windows, size, (stride * width * unit, step), (dilation[0] * width * unit, dilation[1] * unit), pads
    )
    return _reading(fields, grid, passes, operands)


def _reading(fields: Fields, grid: _Grid, passes: int, operands: int) -> Reading:
    rows, columns = grid.windows
    transposed = fields.flag("POST", 28)
    if transposed:
        if rows % 2 or columns % 2 or grid.size != (1, 1):
            raise fields.fault(
                "POST",
                f"a transposed convolution of {rows}x{columns} pooled positions",
                "use even counts and no pool",
            )
        rows, columns = rows // 2, columns // 2
    combined = fields.flag("ONED", 13)
    return Reading(
        base=fields.take("RPTR_BASE", 0, 15),
        rows=rows,
        columns=columns,
        size=grid.size,
        row_step=grid.steps[0],
        column_step=grid.steps[1],
        inner_row=grid.inner[0],
        inner_column=grid.inner[1],
        passes=passes,
        operands=operands,
        pad=grid.pad,
        average=not fields.flag("LCTL", 8),
        eltwise=fields.take("ONED", 14, 2) if combined else None,
        pool_first=combined and fields.flag("ONED", 16),
        planar=fields.flag("LCTL", 6),
        transposed=transposed,
        joined=fields.flag("POST", 27),
    )


def _passes(fields: Fields) -> int:
    """Values that a processor reads at a position; a flattened layer counts all its positions here."""
    low = fields.take("LCTL2", 0, 4)
    if not fields.flag("POST", 27):
        return low + 1
    last = fields.take("POST", 18, 4) << 4 | low
    expected = last << 16 | 2 * last + 1
    if fields.take("TPTR") != expected:
        raise fields.fault(
            "TPTR", f"row memory of a flattened layer of {last + 1} values must be {expected:#x}"
        )
    return last + 1


def _operands(fields: Fields) -> int:
    return fields.take("ONED", 18, 4) + 1 if fields.flag("ONED", 13) else 1


def _size(fields: Fields, size: tuple[int, int]) -> tuple[int, int]:
    """The window; one position where pooling is off."""
    return size if fields.flag("LCTL", 7) else (1, 1)


def _padding(fields: Fields, name: str) -> int:
    """Three bits: one less than the count, and whether there is any."""
    count, padded = fields.take(name, 13, 2), fields.flag(name, 15)
    if count and not padded:
        raise fields.fault(name, "a count of padding that is switched off")
    return count + 1 if padded else 0
