"""Einsum with every kind of letter, against numpy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from runtime_cases import RuntimeCase, normal

from mace_core.errors import MaceError

Shapes = tuple[tuple[int, ...], ...]
EQUATIONS: tuple[tuple[str, Shapes], ...] = (
    ("ij->ji", ((2, 3),)),
    ("ij->ij", ((2, 3),)),
    ("ij", ((2, 3),)),
    ("ji", ((2, 3),)),
    ("ij->", ((2, 3),)),
    ("ij->i", ((2, 3),)),
    ("ii", ((3, 3),)),
    ("ii->i", ((3, 3),)),
    ("iij->ij", ((3, 3, 2),)),
    ("iji->ij", ((3, 2, 3),)),
    ("iii->i", ((3, 3, 3),)),
    ("ij,jk", ((2, 3), (3, 4))),
    ("ji,kj->ik", ((3, 2), (4, 3))),
    ("ij,kj->ik", ((2, 3), (4, 3))),
    ("ij,ij->ij", ((2, 3), (2, 3))),
    ("ij,ji->ij", ((2, 3), (3, 2))),
    ("ij,j->ij", ((2, 3), (3,))),
    ("i,ij->ij", ((2,), (2, 3))),
    ("i,j->ji", ((2,), (3,))),
    ("ij,ij->", ((2, 3), (2, 3))),
    ("bij,bjk->bik", ((2, 3, 4), (2, 4, 5))),
    ("bij,bjk->ibk", ((2, 3, 4), (2, 4, 5))),
    ("bij,bjk->k", ((2, 3, 4), (2, 4, 5))),
    ("bij,jk->bik", ((1, 3, 4), (4, 5))),
    ("abij,abkj->abik", ((2, 2, 3, 4), (2, 2, 5, 4))),
    ("ij,jk,kl->il", ((2, 3), (3, 4), (4, 2))),
    ("ij,jk,k->i", ((2, 3), (3, 4), (4,))),
    ("ij,k,l->jl", ((2, 3), (4,), (2,))),
    ("a,ab,abc->abc", ((2,), (2, 3), (2, 3, 4))),
    ("...i->...", ((2, 3, 4),)),
    ("...ij->...ji", ((2, 3, 4),)),
    ("i...->...i", ((2, 3, 4),)),
    ("...ij,...jk->...ik", ((2, 3, 4), (2, 4, 5))),
    ("...ij,...jk", ((2, 3, 4), (4, 5))),
    ("...ij,...jk->...ik", ((3, 4), (2, 4, 5))),
    ("...i,...i->...i", ((2, 3, 4), (4,))),
    ("i...,j...->ij...", ((2, 3), (4, 3))),
    ("...,...->...", ((2, 3), (1, 3))),
    ("...i,i...->...", ((2, 3), (3, 2))),
    ("bij,bjk->bik", ((2, 3, 4), (1, 4, 5))),
    ("ij,ij->ij", ((2, 1), (2, 3))),
    ("bi,bi->b", ((2, 1), (2, 3))),
    (" i j , j k -> i k ", ((2, 3), (3, 4))),
)


def case(equation: str, shapes: Shapes, constants: bool = False) -> RuntimeCase:
    names = "abc"[: len(shapes)]
    ports = [f"float[{','.join(map(str, shape))}] {name}" for name, shape in zip(names, shapes, strict=True)]
    values = {name: normal(*shape, seed=i) for i, (name, shape) in enumerate(zip(names, shapes, strict=True))}
    body = f'y = Einsum<equation="{equation}">({", ".join(names)})'
    stored = {name: values[name] for name in names[1:] if constants}
    return RuntimeCase(body, ", ".join(ports[:1] if constants else ports), stored, values=values)


@pytest.mark.parametrize("constants", [False, True])
@pytest.mark.parametrize(("equation", "shapes"), EQUATIONS)
def test_einsum_computes_what_numpy_does(
    equation: str, shapes: Shapes, constants: bool, tmp_path: Path
) -> None:
    result = case(equation, shapes, constants)
    y = result.compute(tmp_path / "m.onnx")["y"]
    expected = np.einsum(equation.replace(" ", ""), *result.values.values())
    assert y.shape == expected.shape
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("equation", "shapes", "ops"),
    [
        ("ij->ij", ((2, 3),), []),
        ("ij->ji", ((2, 3),), ["Transpose"]),
        ("ij,jk->ik", ((2, 3), (3, 4)), ["Reshape", "Reshape", "MatMul", "Reshape"]),
        ("bij,bjk->bik", ((2, 3, 4), (2, 4, 5)), ["MatMul", "Reshape"]),
        ("ij,ij->ij", ((2, 3), (2, 3)), ["Mul"]),
        ("ij,j->ij", ((2, 3), (3,)), ["Reshape", "Mul", "Transpose", "Transpose"]),
        ("ij,k->i", ((2, 3), (4,)), ["ReduceSum", "ReduceSum", "Reshape", "Mul"]),
    ],
)
def test_which_ops_an_equation_becomes(equation: str, shapes: Shapes, ops: list[str], tmp_path: Path) -> None:
    """An axis that nothing needs is summed before the product, and nothing is transposed in vain."""
    graph = case(equation, shapes).load(tmp_path / "m.onnx")
    results = [node.op.name for node in graph.nodes if node.op.name != "Identity"]
    assert sorted(results) == sorted(ops)


@pytest.mark.parametrize(
    ("equation", "shapes", "message"),
    [
        ("ij->i", ((2, 3), (3, 4)), "has 1 operands, the node 2"),
        ("ij,jk->i", ((2, 3),), "has 2 operands, the node 1"),
        ("ij->i", ((2, 3, 4),), "operand 0 has rank 3"),
        ("...ij->i", ((3,),), "does not fit its operands"),
        ("ij,jk->ik", ((2, 3), (4, 5)), "axis 'j' is 4 and 3 long"),
        ("ii->i", ((2, 3),), "a diagonal of axes 2 and 3 long"),
    ],
)
def test_equation_that_fits_nothing_is_refused(
    equation: str, shapes: Shapes, message: str, tmp_path: Path
) -> None:
    with pytest.raises(MaceError) as error:
        case(equation, shapes).load(tmp_path / "m.onnx")
    assert message in str(error.value).splitlines()[0]
