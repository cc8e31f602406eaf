"""QuantizeLinear and DequantizeLinear with every form of scale against ONNX Runtime: equal, or refused by both."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from runtime_cases import RuntimeCase

from mace_core.deployment import Model
from mace_core.errors import MaceError
from mace_core.ir import Array, Shape
from mace_core.ops import core_ops
from mace_core.run.reference import execute
from mace_core.verify import verify
from mace_frontend_onnx import Onnx


@dataclass(frozen=True)
class Case:
    op: str
    shape: Shape
    scale: Shape
    axis: int | None = None
    block: int = 0
    has_zero: bool = True
    constant: bool = True
    opset: int = 21


PARTS = 7
"""Of the forms of scale, each a test of its own; no multiple of the four cases of each form."""

SHAPES: tuple[Shape, ...] = ((), (6,), (4, 6), (2, 4, 6))


def forms(shape: Shape) -> Iterator[tuple[Shape, int | None, int]]:
    """Shape of a scale, axis and block size: one for all with any axis, one for each index of an axis, one for each block."""
    yield from (((), None, 0), ((1,), None, 0), ((1,), 0, 0), ((1,), 5, 0))
    for axis, length in enumerate(shape):
        yield from (((length,), axis, 0), ((length,), axis - len(shape), 0), ((length + 1,), axis, 0))
        for block in (2, 3, 4):
            yield tuple(-(-n // block) if i == axis else n for i, n in enumerate(shape)), axis, block


def cases() -> Iterator[Case]:
    for op in ("QuantizeLinear", "DequantizeLinear"):
        for shape in SHAPES:
            for scale, axis, block in forms(shape):
                yield from (
                    Case(op, shape, scale, axis, block, zero, constant)
                    for zero in (True, False)
                    for constant in (True, False)
                )


def computed(case: Case, folder: Path) -> tuple[Array | None, Array | None]:
    """What the graph and what ONNX Runtime compute; None where it is refused."""
    rng = np.random.default_rng(0)
    down = case.op == "DequantizeLinear"
    x = np.asarray(
        rng.integers(-100, 100, case.shape) if down else rng.random(case.shape) * 4 - 2,
        np.int8 if down else np.float32,
    )
    scale = np.asarray(rng.random(case.scale) * 0.1 + 0.01, np.float32)
    zero = np.asarray(rng.integers(-9, 9, case.scale), np.int8)
    attrs = {} if case.axis is None else {"axis": case.axis}
    attrs |= {"block_size": case.block} if case.block else {}
    node = helper.make_node(case.op, ["x", "s", *(["z"] if case.has_zero else [])], ["y"], **attrs)
    nodes, given = [node], {"x": x}
    if not case.constant:
        nodes.insert(0, helper.make_node("Abs", ["runtime"], ["s"]))
        given["runtime"] = scale
    inputs = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in given.items()
    ]
    kind = TensorProto.FLOAT if down else TensorProto.INT8 if case.has_zero else TensorProto.UINT8
    held = [numpy_helper.from_array(scale, "s")] * case.constant + [
        numpy_helper.from_array(zero, "z")
    ] * case.has_zero
    graph = helper.make_graph(
        nodes, "g", inputs, [helper.make_tensor_value_info("y", kind, case.shape)], held
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", case.opset)], ir_version=10)
    path = folder / "m.onnx"
    path.write_bytes(model.SerializeToString())
    return _ours(path, given), _theirs(path, given)


def _ours(path: Path, given: dict[str, Array]) -> Array | None:
    try:
        return execute(verify(Onnx().load((path,), Model("m", (path,)), core_ops())), given)["y"]
    except MaceError:
        return None


def _theirs(path: Path, given: dict[str, Array]) -> Array | None:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        return np.asarray(onnxruntime.InferenceSession(str(path), options).run(None, given)[0])
    except Exception:  # noqa: BLE001  # ONNX Runtime derives its errors from nothing narrower
        return None


@pytest.mark.sampled(every=9)
@pytest.mark.parametrize("op", ["QuantizeLinear", "DequantizeLinear"])
@pytest.mark.parametrize("part", range(PARTS))
def test_every_form_of_scale(part: int, op: str, tmp_path: Path) -> None:
    count = 0
    for case in [c for c in cases() if c.op == op][part::PARTS]:
        ours, theirs = computed(case, tmp_path)
        assert (ours is None) == (theirs is None), case
        if ours is not None and theirs is not None:
            assert ours.dtype == theirs.dtype, case
            np.testing.assert_allclose(ours, theirs, atol=1e-6, err_msg=str(case))
            count += 1
    assert count > 150 // PARTS


HALF_SCALE = {"s": np.float16(0.3), "t": np.float16(0.01), "u": np.float16(0.001)}
REAL = np.random.default_rng(0).normal(0, 20, 4000).astype(np.float16)
FORMS_OF_HALF = {
    "bytes": RuntimeCase("y = QuantizeLinear(x, s, z)", "float16[4000] x", {"z": np.uint8(3)}, 21),
    "signed bytes": RuntimeCase("y = QuantizeLinear(x, s, z)", "float16[4000] x", {"z": np.int8(-3)}, 21),
    "words": RuntimeCase("y = QuantizeLinear(x, t, z)", "float16[4000] x", {"z": np.uint16(32769)}, 21),
    "real numbers of words": RuntimeCase(
        "y = DequantizeLinear(x, t, z)", "uint16[4] x", {"z": np.uint16(32769)}, 21
    ),
    "real numbers of sums": RuntimeCase("y = DequantizeLinear(x, u)", "int32[4] x", {}, 21),
}


@pytest.mark.parametrize("is_constant", [True, False])
@pytest.mark.parametrize("name", FORMS_OF_HALF)
def test_half_precision_is_computed_in_single(name: str, is_constant: bool, tmp_path: Path) -> None:
    """Half precision holds neither every 16-bit integer nor quotients of four digits."""
    form = FORMS_OF_HALF[name]
    used = {key: value for key, value in HALF_SCALE.items() if f", {key}" in form.body}
    values = {"x": np.array([1, 20001, 32771, 65535]) if "uint16" in form.ports else REAL}
    if "int32" in form.ports:
        values["x"] = np.array([-100001, -3, 2049, 2**24])
    constants, ports = {**form.constants, **used}, form.ports
    if not is_constant:
        ((key, scale),) = used.items()
        del constants[key]
        values[key], ports = np.asarray(scale), f"{ports}, float16 {key}"
    case = RuntimeCase(form.body, ports, constants, 21, values=values)
    case.check(tmp_path / "m.onnx", rtol=0, atol=0)


@pytest.mark.parametrize("opset", [10, 13, 19, 21, 23])
def test_one_scale_in_a_list_holds_for_a_vector(opset: int, tmp_path: Path) -> None:
    ours, theirs = computed(Case("DequantizeLinear", (6,), (1,), opset=opset), tmp_path)
    assert ours is not None
    np.testing.assert_allclose(ours, theirs)


STORED = np.random.default_rng(2).integers(0, 65536, (2, 3, 4))
CONTRIB = {
    "words": RuntimeCase(
        "y = com.microsoft.DequantizeLinear(x, s, z)",
        "uint16[2,3,4] x",
        {"s": np.float32(0.01), "z": np.uint16(32769)},
        values={"x": STORED},
    ),
    # Without the attribute several scales belong to axis 1.
    "axis": RuntimeCase(
        "y = com.microsoft.DequantizeLinear(x, s, z)",
        "int16[2,3,4] x",
        {"s": np.array([0.1, 0.2, 0.3], np.float32), "z": np.array([3, 2, 1], np.int16)},
        values={"x": STORED - 32768},
    ),
    "last_axis": RuntimeCase(
        "y = com.microsoft.QuantizeLinear<axis=-1>(x, s, z)",
        "float[2,3,4] x",
        {"s": np.array([0.1, 0.2, 0.3, 0.4], np.float32), "z": np.array([3, 2, 1, 0], np.uint16)},
        values={"x": np.random.default_rng(2).normal(0, 9, (2, 3, 4))},
    ),
    "no_zero_point": RuntimeCase(
        "y = com.microsoft.QuantizeLinear(x, s)",
        "float[2,3,4] x",
        {"s": np.float32(0.07)},
        values={"x": np.random.default_rng(2).normal(0, 9, (2, 3, 4))},
    ),
}


@pytest.mark.parametrize("name", CONTRIB)
def test_operators_of_onnx_runtime_are_those_of_onnx(name: str, tmp_path: Path) -> None:
    CONTRIB[name].check(tmp_path / "m.onnx", rtol=0, atol=0)
