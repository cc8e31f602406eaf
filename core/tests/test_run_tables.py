"""Tables on a terminal."""

from __future__ import annotations

from mace_core.run.tables import MAX_CELL, table


def test_a_long_name_leaves_room_for_the_figures() -> None:
    name = "first;" + "x" * 200 + ";last"
    text = table((name, "kernel", "ms"), [(name, "conv_quantized", "0.058")])
    assert "0.058" in text
    assert "first;x" in text
    assert "x;last" in text
    assert max(map(len, text.splitlines())) < 2 * MAX_CELL
