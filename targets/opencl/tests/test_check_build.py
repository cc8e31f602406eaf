"""Check builds on a device: they compute the same, and say which kernel leaves which tensor."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from opencl_device import load_on_device, measure_error, require_device

from mace_core.emit.text import Code
from mace_core.errors import MaceError
from mace_core.graph_builder import Builder
from mace_core.ir import DType, Graph
from mace_core.run.reference import execute
from mace_core.testing.compiled import random_inputs
from mace_target_opencl import blob
from mace_target_opencl.enqueue import render_program
from mace_target_opencl.options import OpenclOptions
from mace_target_opencl.target import Opencl

pytestmark = pytest.mark.device
RARE = pytest.mark.exhaustive


def checked(storage: str = "f32") -> Opencl:
    return Opencl(OpenclOptions(storage=storage, checks_bounds=True))


@pytest.fixture(autouse=True)
def _device() -> None:
    require_device()


def stacked_graph() -> Graph:
    """Layers of which each is a kernel of its own: a convolution, a mean over its rows, and a curve."""
    builder = Builder("stacked")
    x = builder.input("x", DType.F32, (1, 6, 6, 3))
    filters = builder.weight("filters", np.linspace(-1, 1, 5 * 9 * 3, dtype=np.float32).reshape(5, 3, 3, 3))
    windows = {"strides": (1, 1), "pads_before": (1, 1), "pads_after": (1, 1), "dilations": (1, 1)}
    first = builder.one("Conv", [x, filters], windows)
    second = builder.one("Softmax", [first], {"axis": 3})
    return builder.finish([builder.one("Transpose", [second], {"perm": (0, 3, 1, 2)})])


def inject(monkeypatch: pytest.MonkeyPatch, change: Callable[[str], str]) -> None:
    """Let the library be built with changed kernels."""
    monkeypatch.setattr(blob, "render_program", lambda kernels: Code(change(render_program(kernels))))


@pytest.mark.exhaustive
@pytest.mark.parametrize("storage", ["f32", "f16"])
def test_a_check_build_computes_what_others_do(storage: str, tmp_path: Path) -> None:
    graph = stacked_graph()
    model = load_on_device([graph], tmp_path, checked(storage))["stacked"]
    inputs = random_inputs(graph)
    (expected,), (actual,) = (
        [values[name] for name in graph.outputs] for values in (execute(graph, inputs), model.run(inputs))
    )
    assert measure_error(actual, expected) < (1e-5 if storage == "f32" else 2e-3)


@pytest.mark.parametrize(
    ("operand", "shift", "text"),
    [
        pytest.param("x", "4096", "reads element \\d{4} of x, tensor 'x', which has 108", marks=RARE),
        ("w", "-2", "reads element -2 of w, tensor 'filters_packed', which has 135"),
        pytest.param("y", "1", "reaches element 180 of y, tensor '\\w+', which has 180", marks=RARE),
    ],
)
def test_a_kernel_that_leaves_a_tensor_is_named(
    operand: str, shift: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def change(source: str) -> str:
        # The index of each access of the operand in the convolution.
        head = rf"(#define (?:LOAD|STORE)\w*_{operand}\([^)]*\) [^\n]*\(long\))\(i\)"
        kernels = re.split(r"(?=#define LOAD_x\()", source)
        wrong = [re.sub(head, rf"\1((long)(i) + {shift})", k) if "void product_" in k else k for k in kernels]
        return "".join(wrong)

    inject(monkeypatch, change)
    graph = stacked_graph()
    model = load_on_device([graph], tmp_path, checked())["stacked"]
    with pytest.raises(MaceError) as error:
        model.run(random_inputs(graph))
    assert re.search(rf"kernel product_\w+ {text}; report this with the model", str(error.value))


@pytest.mark.exhaustive
@pytest.mark.parametrize("storage", ["f32", "f16"])
def test_observers_see_every_layer(storage: str, tmp_path: Path) -> None:
    graph = stacked_graph()
    target = Opencl(OpenclOptions(storage=storage))
    model = load_on_device([graph], tmp_path, target)["stacked"]
    inputs = random_inputs(graph)
    expected = execute(graph, inputs)
    by_node = {node.name: expected[node.outputs[0]] for node in graph.nodes}
    seen = {}
    outputs = model.run(inputs, lambda name, array: seen.update({name: array}))
    assert [*seen] == [*by_node]
    for name, array in seen.items():
        assert measure_error(array.astype(np.float32), by_node[name]) < (
            1e-5 if storage == "f32" else 2e-3
        ), name
    assert outputs[graph.outputs[0]].tobytes() == seen[graph.nodes[-1].name].tobytes()
