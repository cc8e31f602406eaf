"""The proof that a fault changes nothing: by byte code, and by the object code of every unit that shows it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import equivalence
import mutate
import pytest

ROOT = Path(__file__).parents[1]

FUNCTION = b"def f(a):\n    return (lambda b: %s)\n"


@pytest.mark.parametrize(
    ("after", "is_equal"),
    [
        (b"a + b * (4)", True),
        (b"a + b * (2 + 2)", True),
        (b"a + b * 5", False),
        (b"a - b * 4", False),
        (b"a + b * 4.0", False),
        (b"b + b * 4", False),
    ],
)
def test_byte_code_is_compared_with_its_constants(after: bytes, is_equal: bool) -> None:
    assert equivalence.has_equal_byte_code(FUNCTION % b"a + b * 4", FUNCTION % after) == is_equal


def test_true_is_not_one() -> None:
    assert not equivalence.has_equal_byte_code(b"x = 1\n", b"x = True\n")


HEAD = "#include <stdint.h>\n"
UNIT = (
    HEAD
    + "int64_t f(const int32_t *x, int64_t n) {\n  int64_t s = 0;\n  for (int64_t i = 0; i < n; i++) s += %s;\n  return s;\n}\n"
)


def write_units(folder: Path, terms: dict[str, str], flags: tuple[str, ...] = ()) -> Path:
    """Write a unit for each name, whose function adds up a term."""
    (folder / "amd64").mkdir(parents=True)
    for name, term in terms.items():
        (folder / "amd64" / name).write_text(UNIT % term)
    (folder / "amd64" / "all.h").write_text(HEAD)
    (folder / "units.json").write_text(json.dumps({"amd64": dict.fromkeys(terms, flags)}))
    return folder


UNITS = {"k_kernels_a.c": "x[i]", "k_kernels_b.c": "2 * x[i]"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changed", "proof"),
    [
        ({"k_kernels_a.c": "x[i] * 1"}, "equal object code at -O2 of 1 units (a) by "),
        (
            {"k_kernels_a.c": "x[i] * 1", "k_kernels_b.c": "x[i] * 2"},
            "equal object code at -O2 of 2 units (a, b) by ",
        ),
        ({"k_kernels_a.c": "x[i] * 1", "k_kernels_b.c": "x[i] * 3"}, ""),
        ({"k_kernels_a.c": "y[i]"}, ""),  # does not compile
        ({}, ""),  # no rendered text shows the change
    ],
)
def test_equal_objects_of_every_changed_unit_are_the_proof(
    tmp_path: Path, changed: dict[str, str], proof: str
) -> None:
    before = write_units(tmp_path / "before", UNITS)
    after = write_units(tmp_path / "after", UNITS | changed)
    result = equivalence._compare(before, after)
    assert result.startswith(proof)
    assert bool(result) == bool(proof)


def test_units_with_other_flags_or_headers_are_not_equal(tmp_path: Path) -> None:
    before = write_units(tmp_path / "before", UNITS)
    flags = write_units(tmp_path / "flags", UNITS | {"k_kernels_a.c": "x[i] * 1"}, ("-mavx2",))
    header = write_units(tmp_path / "header", UNITS | {"k_kernels_a.c": "x[i] * 1"})
    (header / "amd64/all.h").write_text("")
    assert equivalence._compare(before, flags) == ""
    assert equivalence._compare(before, header) == ""


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.parametrize(("after", "is_equal"), [("job->a + 0", True), ("job->a + 1", False)])
def test_all_kernels_of_a_template_are_compared(tmp_path: Path, after: str, is_equal: bool) -> None:
    """A template of its own few kernels, in a copy of this repository."""
    copy = tmp_path / "copy"
    mutate.copy_checkout(ROOT, copy)
    template = copy / "targets/cpu/src/mace_target_cpu/kernels/deform_im2col.c.in"
    text = template.read_text()
    assert text.count("*a = job->a;") == 1
    template.write_text(text.replace("*a = job->a;", f"*a = {after};"))
    proof = equivalence.prove_equal_objects(template.name, ROOT, copy, dict(os.environ))
    assert proof.startswith("equal object code at -O2 of ") == is_equal
    assert bool(proof) == is_equal
