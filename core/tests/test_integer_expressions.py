"""The expressions of two integers, compiled as C, beside the numpy references for every pair of bytes."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from mace_core.emit.integer_expressions import COMPARISON, SIGNED, UNSIGNED, spell_integers
from mace_core.ir import Array
from mace_core.ops import core_ops
from mace_core.testing.compiled import host

VARIANTS = ("ModC", "ModFloor", "BitShiftLeft", "BitShiftRight")
LOGIC = ("And", "Or", "Xor")
"""Ops of booleans, which the core's operators refuse of other integers."""


def test_no_placeholder_is_left() -> None:
    for form in SIGNED:
        spelled = spell_integers(form, is_signed=True, wrap="uint", wide="ulong")
        assert spelled
        assert "WRAP" not in spelled
        assert "WIDE" not in spelled


def test_an_op_without_an_expression_has_none() -> None:
    assert spell_integers("Pow", is_signed=False, wrap="uint", wide="ulong") == ""


def test_both_tables_have_the_same_ops() -> None:
    assert {*SIGNED} == {*UNSIGNED} >= {*COMPARISON}


class Pairs(NamedTuple):
    """Every pair of two bytes: the first ones and the second ones."""

    x: Array
    y: Array


@pytest.fixture(scope="module", params=[np.int8, np.uint8], ids=["signed", "unsigned"])
def pairs(request: pytest.FixtureRequest) -> Pairs:
    every = np.arange(256, dtype=np.uint8).view(request.param)
    x, y = np.meshgrid(every, every)
    return Pairs(np.ascontiguousarray(x), np.ascontiguousarray(y))


@pytest.mark.slow
def test_compiled_expressions_compute_what_the_references_do(pairs: Pairs, tmp_path: Path) -> None:
    x, y = pairs
    is_signed = x.dtype == np.int8
    kind = "int8_t" if is_signed else "uint8_t"
    forms = sorted({*SIGNED} - {*VARIANTS, *LOGIC})
    functions = [
        f"void f_{form}(const {kind} *a, const {kind} *b, {kind} *c) {{ for (int i = 0; i < {x.size}; i++) {{ "
        f"const {kind} x = a[i], y = b[i]; c[i] = ({kind})("
        f"{spell_integers(form, is_signed=is_signed, wrap='uint32_t', wide='uint64_t')}); }} }}"
        for form in forms
    ]
    source, library = tmp_path / "forms.c", tmp_path / "forms.so"
    source.write_text("#include <stdint.h>\n" + "\n".join(functions), encoding="utf-8")
    compiler = host()
    subprocess.run(
        [*compiler.cc, *compiler.flags, "-shared", "-fPIC", str(source), "-o", str(library)], check=True
    )
    compiled = ctypes.CDLL(str(library))
    for form in forms:
        op, result = core_ops()[form], np.empty_like(x)
        getattr(compiled, f"f_{form}")(*(ctypes.c_void_p(array.ctypes.data) for array in (x, y, result)))
        (expected,) = op.compute([x, y], op.attrs())
        np.testing.assert_array_equal(result, expected.astype(x.dtype), form)
