"""How long a streaming layer must wait at least, so that every window is there when it is read.

What the hardware does is not public in detail.  These are the waits of the vendor's programs, computed from
registers alone; that they are needed, and not only usual, is an assumption: a program that waits less is
refused.  A longer wait is accepted.
"""

from __future__ import annotations

from typing import NamedTuple

from mace_target_max78000.device import Device
from mace_target_max78000.simulator.setting import Reading, Setting


class Wait(NamedTuple):
    """Words before the first window, at each column, and at the end of each row."""

    start: int
    columns: int
    rows: int


class _Window(NamedTuple):
    """A layer's windows: rows, columns, step, and the columns of a row of its input."""

    rows: int
    columns: int
    step: int
    width: int


def minimum(setting: Setting, before: Setting | None, device: Device) -> Wait:
    """What a layer must wait for.  before: the streaming layer that it reads from; None for the first one."""
    if device.generation == 2:
        return _second_generation(setting, before)
    return _first_layer(setting) if before is None else _behind(setting, before)


def _window(reading: Reading) -> _Window:
    unit = reading.passes * reading.operands
    step = reading.column_step // unit
    return _Window(*reading.size, step, reading.row_step // (step * unit))


def _first_layer(setting: Setting) -> Wait:
    """The first generation counts positions, also where a word holds four of them, and each row of a window once more."""
    window = _window(setting.reading)
    rows = (window.rows - 1) * window.width
    start = (rows + window.columns) * window.rows
    return Wait(start, (window.step - 1) * setting.reading.operands, rows * setting.reading.operands)


def _behind(setting: Setting, before: Setting) -> Wait:
    """The first generation counts the padded positions of the layer before.

    That layer is done with a row when its kernel's last row is there.
    """
    window, operands = _window(setting.reading), setting.reading.operands
    width = before.reading.columns + 2 * before.reading.pad[1]
    start = width * (before.kernel.rows + window.rows - 2) + before.kernel.columns + window.columns - 1
    return Wait(start, window.step * operands, (window.step - 1) * width + window.columns * operands)


def _second_generation(setting: Setting, before: Setting | None) -> Wait:
    """The second generation counts rows with their padding.

    A layer that reads ahead waits longer, which is not asked for here.
    """
    reading, window = setting.reading, _window(setting.reading)
    unit = reading.passes * reading.operands
    span = max(window.columns * (reading.inner_column // unit), window.step)
    down = max(window.rows * (reading.inner_row // (unit * window.width)), window.step)
    pad, columns = reading.pad[1], window.step * reading.operands
    padded = window.width + 2 * pad
    first = (down * padded + pad + 2 * span) * reading.operands
    if before is None:
        single = window.step == 1 and window.rows == 1
        columns = _words(columns - single, reading)
        rest = _left_out(window, window.width // window.step, 1)
        rows = (
            columns + rest
            if window.step == 1
            else (window.step - 1) * window.width + rest + window.columns - 1
        )
        return Wait(_words(span if single else first, reading), columns, _words(rows, reading))
    steps = window.width // span
    steps -= steps * window.step + window.columns > window.width
    rest = 0 if span == 1 else window.width - steps * span
    start = (pad or window.step) * padded + first
    return Wait(
        start, columns, columns + rest if window.step == 1 else (window.step - 1) * window.width + rest
    )


def _left_out(window: _Window, steps: int, overlap: int) -> int:
    """Columns at the end of a row where no window begins."""
    steps -= steps * window.step + window.columns - overlap > window.width
    return max(0, window.width - steps * window.step)


def _words(positions: int, reading: Reading) -> int:
    """Words that hold so many positions."""
    return -(-positions // 4) if reading.planar else positions
