"""Kernels: what their arguments may be."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mace_core.emit import code
from mace_core.errors import PluginError
from mace_core.ir import DType, Tensor
from mace_core.levels import Level
from mace_core.plan import plan_calls
from mace_core.program import Call, Kernel, Program
from mace_core.run import native
from mace_core.run.compile import shared_library
from mace_core.testing.compiled import host

BODY = """static void {{ name }}(const mace_workers *run, const {{ name }}_args *a, void *const *t) {
  float *y = t[1];
  (void)run;
  y[0] = a->f; y[1] = (float)a->d; y[2] = (float)a->i; y[3] = (float)a->l; y[4] = a->several[2]; y[5] = a->sign;
}
"""
ARGUMENTS = {"f": 0.5, "d": 1.5, "i": -2, "l": 3, "several": (1.0, 2.0, 4.0), "sign": 5}


SHORT = ("f32", "f64", "i32", "i64", "f32[3]", "char")
LONG = ("float", "double", "int32_t", "int64_t", "float[3]", "char")


@pytest.mark.parametrize("types", [SHORT, LONG])
def test_fields_have_the_types_of_the_ir_or_of_c(types: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "body.c.in").write_text(BODY)
    (tmp_path / "none.h.in").write_text("\n")
    kernel = Kernel("six", tmp_path / "body.c.in", tuple(zip(ARGUMENTS, types, strict=True)))
    tensors = {name: Tensor(name, DType.F32, (6,)) for name in ("x", "y")}
    program = Program(
        "m", (Call(kernel, ARGUMENTS, ["x"], ["y"], node="n"),), tensors, {}, {}, ("x",), ("y",)
    )
    level = Level("generic", (), "", tmp_path / "none.h.in")
    sources = code.library("fields", [plan_calls(program)], [level])
    model = native.load(shared_library(sources, host(), tmp_path / "out"), "fields")["m"]
    assert model.run({"x": np.zeros(6, np.float32)})["y"].tolist() == [0.5, 1.5, -2, 3, 4, 5]


ARRAYS = ("i32[", "i32[]", "i32[0]", "i32[-1]", "i32[2", "i32[2][2]")


@pytest.mark.parametrize("kind", ["short", "unsigned", "f16", "int", "", *ARRAYS, "i32 x; int y", "*/"])
def test_other_types_are_one_message(kind: str, tmp_path: Path) -> None:
    with pytest.raises(
        PluginError, match=r"kernel 'k': field 'n' of type .* cannot be declared in C; the types are i32"
    ):
        Kernel("k", tmp_path, (("n", kind),))


@pytest.mark.parametrize("name", ["int", "linux", "a b", "a-b", "", "1", "x; int y"])
def test_names_of_fields_and_kernels_are_names_in_c(name: str, tmp_path: Path) -> None:
    with pytest.raises(PluginError, match="cannot be declared"):
        Kernel("k", tmp_path, ((name, "i32"),))
    with pytest.raises(Exception, match="not a name in C"):
        Kernel(name, tmp_path)
