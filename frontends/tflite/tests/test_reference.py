"""What runs a model in LiteRT: which kernels, from which inputs to which outputs, and what begins anew."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tflite
from tflite_cases import f32, state
from tflite_write import Step, Value, Written, write

from mace_core.api import Reference
from mace_core.deployment import Model, Port
from mace_core.errors import MaceError
from mace_core.ir import DType
from mace_frontend_tflite import TfLite, reference

interpreter = pytest.importorskip("ai_edge_litert.interpreter")


def value(name: str, *shape: int) -> Value:
    return replace(f32(*shape), name=name)


CHAIN = Written(
    [value("x", 1, 4), value("m", 1, 4), value("y", 1, 4)],
    [Step("EXP", ["x"], ["m"]), Step("NEG", ["m"], ["y"])],
    ["x"],
    ["y"],
)
X = np.float32([[0, 1, 2, -1]])


def save(folder: Path, *graphs: Written) -> Path:
    file = folder / "case.tflite"
    file.write_bytes(write(*graphs))
    return file


def run(found: Reference | None) -> Reference:
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("name", "kernels"), [("reference", "reference kernels"), ("fast_reference", "XNNPACK")]
)
def test_the_kernels_are_named(name: str, kernels: str, tmp_path: Path) -> None:
    file = save(tmp_path, CHAIN)
    actual = run(getattr(TfLite(), name)((file,), Model("case", (file,))))
    assert actual.runtime.startswith("LiteRT ")
    assert actual.runtime.endswith(f", {kernels}")
    (result,) = actual({"x": X}).items()
    assert result[0] == "y"
    np.testing.assert_allclose(result[1], -np.exp(X), rtol=1e-6)


def test_an_operator_without_reference_kernel_is_computed_by_an_optimized_one(tmp_path: Path) -> None:
    file = save(tmp_path, replace(CHAIN, steps=[Step("CEIL", ["x"], ["m"]), CHAIN.steps[1]]))
    actual = run(TfLite().reference((file,), Model("case", (file,))))
    assert actual.runtime.endswith(", optimized kernels without XNNPACK")


def test_one_thread_computes_and_keeps_inner_tensors_where_outputs_are_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file, options = save(tmp_path, CHAIN), []

    class Recorded(interpreter.Interpreter):  # type: ignore[misc, name-defined]
        def __init__(
            self,
            path: str,
            num_threads: int,
            experimental_preserve_all_tensors: bool | None = None,
            **resolver: object,
        ) -> None:
            options.append((num_threads, experimental_preserve_all_tensors))
            keep = bool(experimental_preserve_all_tensors)
            super().__init__(
                path, num_threads=num_threads, experimental_preserve_all_tensors=keep, **resolver
            )

    monkeypatch.setattr(interpreter, "Interpreter", Recorded)
    whole, cut = Model("case", (file,)), Model("case", (file,), outputs=(Port("m"),))
    TfLite().reference((file,), whole)
    inner = run(TfLite().reference((file,), cut))({"x": X})
    TfLite().fast_reference((file,), whole)
    assert options == [(1, False), (1, True), (1, None)]
    assert list(inner) == ["m"]
    np.testing.assert_allclose(inner["m"], np.exp(X), rtol=1e-6)


def test_inputs_have_the_shapes_that_are_stated(tmp_path: Path) -> None:
    file = save(tmp_path, CHAIN)
    actual = run(TfLite().reference((file,), Model("case", (file,), inputs=(Port("x", shape=(3, 5)),))))
    assert actual({"x": np.zeros((3, 5), np.float32)})["y"].shape == (3, 5)


def test_a_graph_that_begins_inside_is_not_run(tmp_path: Path) -> None:
    file = save(tmp_path, CHAIN)
    ports = (Port("m", shape=(1, 4)), Port("c"), Port("x"))
    with pytest.raises(MaceError, match=r"LiteRT cannot begin at c, m; validate against stored data instead"):
        TfLite().reference((file,), Model("case", (file,), inputs=ports))


def test_what_litert_refuses_is_told(tmp_path: Path) -> None:
    file = save(tmp_path, replace(CHAIN, steps=[Step("custom Own", ["x"], ["y"])]))
    with pytest.raises(
        MaceError, match=r"(?s)case.tflite: LiteRT refuses it: .*; validate against stored data"
    ):
        TfLite().reference((file,), Model("case", (file,)))


def test_there_is_no_reference_without_litert(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file, asked = save(tmp_path, CHAIN), []
    monkeypatch.setattr(reference, "find_spec", asked.append)
    for name in ("reference", "fast_reference", "recurrent"):
        assert getattr(TfLite(), name)((file,), Model("case", (file,))) is None
    assert asked == ["ai_edge_litert"] * 3


RNN = Written(
    [
        *(value("x", 1, 2), replace(state(1, 2), name="h"), value("y", 1, 2)),
        *(Value.constant(name, np.eye(2, dtype=np.float32)) for name in "wr"),
        Value.constant("b", np.zeros(2, np.float32)),
    ],
    [Step("RNN", ["x", "w", "r", "b", "h"], ["y"], ("RNNOptions", {"FusedActivationFunction": 0}))],
    ["x"],
    ["y"],
)


def test_states_are_set_read_and_kept(tmp_path: Path) -> None:
    """y = x + h, and h is y from then on."""
    file, one = save(tmp_path, RNN), np.ones((1, 2), np.float32)
    ports = {"inputs": (Port("x"), Port("h")), "outputs": (Port("y"), Port("h.next"))}
    model = Model("case", (file,), **ports)  # type: ignore[arg-type]
    single = run(TfLite().reference((file,), model))
    for _ in range(2):
        result = single({"x": one, "h": 2 * one})
        assert list(result) == ["y", "h.next"]
        assert [array.tolist() for array in result.values()] == [[[3, 3]], [[3, 3]]]
    lasting = run(TfLite().recurrent((file,), model))
    assert [lasting({"x": one})["h.next"].tolist() for _ in range(3)] == [[[n, n]] for n in (1, 2, 3)]


def test_a_name_with_next_of_no_state_is_no_output(tmp_path: Path) -> None:
    file = save(tmp_path, CHAIN)
    actual = run(TfLite().reference((file,), Model("case", (file,), outputs=(Port("x.next"),))))
    assert list(actual({"x": X})) == ["y"]


def test_variables_begin_anew_in_each_run(tmp_path: Path) -> None:
    """y = x + v, and v is y from then on; it begins with 0."""
    handle = Value("h", DType.I32, (), kind=tflite.TensorType.RESOURCE)
    declare = Step("VAR_HANDLE", [], ["h"], ("VarHandleOptions", {"SharedName": "v", "Container": ""}))
    main = Written(
        [handle, value("x", 2), value("v", 2), value("y", 2)],
        [
            *(declare, Step("CALL_ONCE", [], [], ("CallOnceOptions", {"InitSubgraphIndex": 1}))),
            *(Step("READ_VARIABLE", ["h"], ["v"]), Step("ADD", ["x", "v"], ["y"], ("AddOptions", {}))),
            Step("ASSIGN_VARIABLE", ["h", "y"], []),
        ],
        ["x"],
        ["y"],
    )
    first = Written(
        [handle, Value.constant("zero", np.zeros(2, np.float32))],
        [declare, Step("ASSIGN_VARIABLE", ["h", "zero"], [])],
        [],
        [],
    )
    file, one = save(tmp_path, main, first), np.ones(2, np.float32)
    model = Model("case", (file,))
    for name, results in (("reference", [1, 1, 1]), ("recurrent", [1, 2, 3])):
        actual = run(getattr(TfLite(), name)((file,), model))
        assert [actual({"x": one})["y"][0] for _ in range(3)] == results


def test_names_of_ports_are_those_of_the_file(tmp_path: Path) -> None:
    twice = replace(CHAIN, inputs=["x", "m", "x"], steps=CHAIN.steps[1:], outputs=["y", "m"])
    assert TfLite().port_names((save(tmp_path, twice),)) == (("x", "m"), ("y", "m"))
