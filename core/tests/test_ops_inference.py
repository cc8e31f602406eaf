"""Shape and type inference of the core's operators: what each takes, up to its limits, and every refusal."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mace_core.attributes import AttributeValues
from mace_core.ir import DType, Tensor
from mace_core.ops import core_ops
from mace_core.ops.op import OpError

TABLE = Path(__file__).with_suffix(".txt")
TENSOR = re.compile(r"(\w+)\[([\d,]*)\]")


def read_attributes(text: str) -> AttributeValues:
    return eval(f"dict({text})", {"inf": float("inf"), "dict": dict})  # type: ignore[no-any-return]


def read_tensor(name: str, text: str) -> Tensor | None:
    if text == "-":
        return None
    found = TENSOR.fullmatch(text)
    assert found, f"{text!r} is no tensor"
    return Tensor(name, DType(found[1]), tuple(int(size) for size in found[2].split(",") if size))


def read_table() -> dict[str, list[tuple[str, str]]]:
    """Return for each section the row's inputs and attributes, and their outcome: "-> " or "!! " and a text."""
    sections: dict[str, list[tuple[str, str]]] = {}
    for line in TABLE.read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            rows = sections.setdefault(line[1:-1], [])
        elif line and not line.startswith("#"):
            given, arrow, outcome = re.split(r" +(->|!!) ?", line, maxsplit=1)
            rows.append((given, f"{arrow} {outcome}"))
    return sections


def infer(name: str, inputs: str, values: AttributeValues) -> str:
    op = core_ops()[name]
    names = [*op.inputs, *[op.inputs[-1]] * 9]
    tensors = [read_tensor(n.rstrip("?*"), text) for n, text in zip(names, inputs.split(), strict=False)]
    try:
        specs = op.infer(tensors, op.complete(values))
    except OpError as error:
        return f"!! {error}"
    return "-> " + " ".join(f"{dtype.value}[{','.join(map(str, shape))}]" for dtype, shape in specs)


SECTIONS = read_table()


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.partition(" ")[0][:40])
def test_inference_of(section: str) -> None:
    names, _, text = section.partition(" ")
    for op in names.split(","):
        outcomes = []
        for row, _ in SECTIONS[section]:
            inputs, _, changed = row.partition(";")
            outcomes.append((row, infer(op, inputs, {**read_attributes(text), **read_attributes(changed)})))
        assert outcomes == SECTIONS[section], op


def test_every_operator_has_a_row_that_is_taken_and_one_that_is_refused() -> None:
    every: dict[str, set[str]] = {"->": set(), "!!": set()}
    for section, rows in SECTIONS.items():
        for _, outcome in rows:
            every[outcome[:2]].update(section.partition(" ")[0].split(","))
    ops = set(core_ops())
    assert (ops - every["->"], ops - every["!!"]) == (set(), {"Identity"})
