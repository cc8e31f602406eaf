"""Tables on a terminal."""

from __future__ import annotations

import pytest

from mace_core.api import MEASURED
from mace_core.run.results import Failure, LayerComparison, Timing, Validation
from mace_core.run.similarity import Similarity
from mace_core.run.tables import (
    MAX_CELL,
    milliseconds,
    show_layers,
    show_timings,
    show_validations,
    table,
    timing_note,
)


def test_a_long_name_leaves_room_for_the_figures() -> None:
    name = "first;" + "x" * 200 + ";last"
    text = table((name, "kernel", "ms"), [(name, "conv_quantized", "0.058")])
    assert "0.058" in text
    assert "first;x" in text
    assert "x;last" in text
    assert max(map(len, text.splitlines())) < 2 * MAX_CELL


ALIKE = Similarity(0.99999996, 137.25, 1.1e-6, 0.98765)


def cells(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines() if line.strip() and "─" not in line]


def test_validations() -> None:
    rows = [
        Validation(
            "a",
            "host",
            ALIKE,
            0.96667,
            1234567,
            MEASURED,
            5120,
            27456,
            "stored outputs",
            True,
            ("acme: Mark\t1",) * 2,
        ),
        Validation("b", "arm64", ALIKE, None, 1234567, "emulated", 1, 2, "Acme 1.0", False),
        Failure("c", "host", "no data"),
    ]
    text = cells(show_validations(rows))
    assert text[0] == [
        "model",
        "target",
        "cosine",
        "SQNR",
        "dB",
        "max",
        "error",
        "pixels",
        "accuracy",
        "latency",
        "ms",
        "arena",
        "bytes",
        "library",
        "bytes",
    ]
    assert text[1] == [
        "a",
        "host",
        "1.0000000",
        "137.2",
        "1.1e-06",
        "0.9877",
        "0.9667",
        "1.235",
        "5120",
        "27456",
        "passed",
    ]
    assert text[2] == ["b", "arm64", "1.0000000", "137.2", "1.1e-06", "0.9877", "~1.235", "1", "2", "FAILED"]
    assert [" ".join(line) for line in text[3:]] == [
        "a: compared with stored outputs", "b: compared with Acme 1.0", "a: computed by acme: Mark\\t1",
        "c: not validated: no data",
        "~ emulated: not measured on the processor itself",
    ]  # fmt: skip
    assert show_validations(rows[2:]) == "  c: not validated: no data\n"
    assert "~" not in show_validations(rows[:1])


def test_layers() -> None:
    rows = [
        LayerComparison("m", "host", stage, name, "Conv", ALIKE, ALIKE, passed)
        for stage, name, passed in (
            ("computed", "a", True),
            ("computed", "b", False),
            ("computed", "c", False),
            ("read", "d", True),
        )
    ]
    text = cells(show_layers(rows))
    assert text[0] == ["stage", "tensor", "op", "as", "computed", "from", "the", "framework's", "inputs"]
    assert text[1] == ["read", "d", "Conv", "1.0000000", "137.2", "1.0000000", "137.2", "passed"]
    assert text[2] == ["stage", "tensor", "op", "as", "computed", "from", "the", "library's", "inputs"]
    assert [line[1] for line in text[3:6]] == ["a", "b", "c"]
    assert text[-1] == ["first", "wrong:", "b", "(Conv),", "as", "computed"]
    assert show_layers(rows[:1]).endswith("no layer is wrong\n")
    assert show_layers([]) == ""


def test_timings() -> None:
    alone = Timing("m", (3e6, 1e6, 2e6), target="host")
    assert (alone.median, alone.ratio) == (2e6, None)
    both = Timing("n", (3e6,), framework="acme", framework_ns=(6e6, 4e6, 5e6), timing="emulated", target="x")
    assert both.ratio == 0.6
    text = cells(show_timings([alone, both]))
    assert text[0] == ["model", "target", "min", "ms", "median", "ms", "framework", "ms", "ratio"]
    assert text[1:3] == [["m", "host", "1.000", "2.000"], ["n", "x", "~3.000", "~3.000", "5.000", "0.60"]]
    assert text[3][:2] == ["~", "emulated:"]
    assert timing_note([MEASURED, "b", "a", "b"]) == "~ a or b: not measured on the processor itself\n"
    assert (timing_note([MEASURED]), milliseconds(1e6), milliseconds(1e6, "emulated")) == (
        "",
        "1.000",
        "~1.000",
    )


@pytest.mark.parametrize(("length", "is_cut"), [(72, False), (73, True)])
def test_long_cells_lose_their_middle(length: int, is_cut: bool) -> None:
    name = "".join(chr(ord("a") + i % 26) for i in range(length))
    text = table(("name", "n"), [(name, "1")])
    assert (name in text) != is_cut
    if is_cut:
        assert f"{name[:35]}…{name[-35:]}" in text
    assert name in table(("name", "n"), [(name, "1")], full_text=True)


def test_columns_of_text_begin_left_and_of_numbers_end_right() -> None:
    lines = table(("name", "bytes", ""), [("a", "1", "passed"), ("bbb", "1000000", "x")]).splitlines()
    first, second = (next(line for line in lines if line.split()[:1] == [word]) for word in ("a", "bbb"))
    assert first.index("a") == second.index("bbb")
    assert first.index("1") == second.index("1000000") + 6
    assert first.index("passed") == second.index("x")
    assert "[bold]x" in table(("name",), [("[bold]x\x1b[2J",)])
