"""The syntax, held against Khronos's own parser."""

from __future__ import annotations

from typing import Any

import nnef
import numpy as np
import pytest
from nnef_cases import WHOLE, Case, floats, graph_text

from mace_frontend_nnef.signatures import MISSING, TABLE, signature
from mace_frontend_nnef.syntax import Name, parse

TEXTS = (
    *(case.text() for case in WHOLE),
    Case("a = mul(x0, 2.0);\n    y = add(-1.5e-2, a);").text(),
    Case(
        "y = conv(x0, w, 0.5, border = 'replicate', stride = [2, 2]);", variables={"w": floats(4, 3, 3, 3)}
    ).text(),
    Case("[a, y] = split(x0, axis = 1, ratios = [1, 2]);", outputs=("a", "y")).text(),
    Case("m, y = moments(x0, axes = [2, 3]);  # two results", outputs=("m", "y")).text(),
    Case("c = constant<integer>(shape = [2], value = [1, 0]);\n    y = gather(x0, c);").text(),
    Case("c = gt(x0, 0.0);\n    y = select(c, x0, \n  0.0);").text(),
)


def plain(value: Any) -> Any:
    """A value without the classes that tell names from texts, with a word for names."""
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float):
        return float(np.float32(value))  # Khronos's parser holds numbers in single precision
    is_name = isinstance(value, Name | nnef.Identifier)
    return ("name", str(value)) if is_name else value


def flat(outputs: dict[str, Any]) -> list[str]:
    return [
        str(name) for value in outputs.values() for name in (value if isinstance(value, list) else [value])
    ]


@pytest.mark.parametrize("text", TEXTS)
def test_operations_are_those_that_khronos_reads(text: str) -> None:
    own, theirs = parse(text), nnef.parse_string(text)
    assert (own.name, list(own.inputs), list(own.outputs)) == (theirs.name, theirs.inputs, theirs.outputs)
    assert len(own.operations) == len(theirs.operations)
    for mine, other in zip(own.operations, theirs.operations, strict=True):
        assert mine.name == other.name
        assert {k: plain(v) for k, v in mine.attribs.items()} == {
            k: plain(v) for k, v in other.attribs.items()
        }
        assert {k: plain(v) for k, v in mine.inputs.items()} == {k: plain(v) for k, v in other.inputs.items()}
        assert list(mine.outputs) == flat(other.outputs)
    assert own.kinds == {name: tensor.dtype for name, tensor in theirs.tensors.items()}


@pytest.mark.parametrize("name", sorted(TABLE))
def test_signatures_are_those_that_khronos_knows(name: str) -> None:
    """An operation with every argument in its place is read by Khronos's parser, and the defaults are the same."""
    known = signature(name)
    assert known is not None
    words = {
        "T": "x",
        "L": "[x, x]",
        "i": "1",
        "n": "[1, 1]",
        "p": "[(1, 1)]",
        "f": "0.5",
        "s": "'s'",
        "b": "true",
    }
    kinds = {"select": ("c", "x", "x"), "gather": ("x", "i"), "update": ("v", "x")}
    logical = name in ("and", "or", "not", "any_reduce", "all_reduce")
    operands = iter(kinds.get(name, ()))
    given = []
    for parameter in known.parameters:
        word = words.get(parameter.kind, "[1.0]")
        if parameter.kind == "T":
            word = next(operands, "c" if logical else "x")
            word = "i" if parameter.name in ("index", "batch_index", "zero_point") else word
        given.append((parameter, word))
    results = [f"r{i}" if not r.endswith("*") else f"[r{i}, s{i}]" for i, r in enumerate(known.results)]
    generic = "<scalar>" if known.kind == "?" else ""
    ends = ["c"] if name == "external" else [word.strip("[]").split(",")[0] for word in results]
    for part in (given, [pair for pair in given if pair[0].default is MISSING]):
        arguments = ", ".join(f"{parameter.name} = {word}" for parameter, word in part)
        text = graph_text(
            ["x", "r0"] if name == "external" else ["x"],
            ends,
            [
                "x = external(shape = [1]);",
                "v = variable(shape = [1], label = 'v');",
                "c = gt(x, 0.0);",
                "i = constant<integer>(shape = [1], value = [1]);",
                f"{', '.join(results)} = {name}{generic}({arguments});",
            ],
        )
        mine, other = parse(text).operations[-1], nnef.parse_string(text).operations[-1]
        assert {k: plain(v) for k, v in mine.attribs.items()} == {
            k: plain(v) for k, v in other.attribs.items()
        }
        assert {k: plain(v) for k, v in mine.inputs.items()} == {k: plain(v) for k, v in other.inputs.items()}


def test_all_standard_operations_are_known() -> None:
    # Of the two that are left out, Khronos's library has shapes and no definition.
    assert {*nnef.StandardOperations} - set(TABLE) == {"avg_unpool", "max_unpool"}
    assert not set(TABLE) - {*nnef.StandardOperations}
