"""Small networks, saved every way, beside torch itself."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pytorch_cases import FORMATS, arrays, compared, cosine, load, model_of, saved, torch

from mace_core.deployment import Model, Port
from mace_core.errors import MaceError
from mace_core.ir import Array
from mace_core.registry import Registry
from mace_core.run.reference import execute
from mace_core.testing.compiled import compile_graphs
from mace_core.transforms import run_phases
from mace_frontend_pytorch import PyTorch

EACH = pytest.mark.parametrize("ending", FORMATS)


def cnn(nn: Any) -> Any:
    first = [
        nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU6(),
        nn.Conv2d(8, 8, 3, groups=8),
        nn.Hardswish(),
    ]
    last = [
        nn.MaxPool2d(2),
        nn.Dropout(0.2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 5),
        nn.Softmax(-1),
    ]
    return nn.Sequential(*first, *last)


def lstm(nn: Any) -> Any:
    class Tagger(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.lstm = nn.LSTM(4, 6, batch_first=True, bidirectional=True)
            self.head = nn.Linear(12, 3)

        def forward(self, x):  # type: ignore[no-untyped-def]
            y, (h, _) = self.lstm(x)
            return self.head(y), h

    return Tagger()


def transformer(nn: Any) -> Any:
    class Block(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.qkv, self.out = nn.Linear(8, 24), nn.Linear(8, 8)
            self.norm, self.norm2 = nn.LayerNorm(8), nn.LayerNorm(8)
            self.wide, self.narrow = nn.Linear(8, 16), nn.Linear(16, 8)

        def forward(self, x):  # type: ignore[no-untyped-def]
            y = self.qkv(self.norm(x)).reshape(1, 6, 3, 2, 4).permute(2, 0, 3, 1, 4)
            weights = (y[0] @ y[1].transpose(-2, -1) * 0.5).softmax(-1)
            x = x + self.out((weights @ y[2]).transpose(1, 2).reshape(1, 6, 8))
            return x + self.narrow(nn.functional.gelu(self.wide(self.norm2(x))))

    return Block()


MODELS: tuple[tuple[Callable[[Any], Any], tuple[int, ...]], ...] = (
    (cnn, (1, 3, 16, 16)),
    (lstm, (1, 7, 4)),
    (transformer, (1, 6, 8)),
)


def made(build: Callable[[Any], Any]) -> Any:
    t = torch()
    t.manual_seed(0)
    module = build(t.nn)
    for part in module.modules():
        if isinstance(part, t.nn.BatchNorm2d):
            part.running_mean.normal_()
            part.running_var.uniform_(0.5, 1.5)
    return module


@pytest.mark.slow
@pytest.mark.sampled(cases="^cnn|^lstm--.traced")
@EACH
@pytest.mark.parametrize(("build", "shape"), MODELS, ids=lambda v: getattr(v, "__name__", ""))
def test_model(build: Callable[[Any], Any], shape: tuple[int, ...], ending: str, tmp_path: Path) -> None:
    module = made(build)
    file = saved(module, {"x": shape}, tmp_path / f"model{ending}")
    graph, pairs = compared(model_of(file, {"x": shape}), module)
    assert graph.inputs == ("x",)
    for found, expected in pairs:
        assert cosine(found, expected) > 0.9999
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.sampled(cases="scripted")
@EACH
def test_reference_names_outputs_as_the_graph_does(ending: str, tmp_path: Path) -> None:
    shapes = {"samples": (1, 7, 4)}
    file = saved(made(lstm), shapes, tmp_path / f"model{ending}")
    for outputs in ((), ("tags",), ("tags", "state"), ("output1",)):
        model = model_of(file, shapes, outputs)
        graph, run = load(model), PyTorch().reference((file,), model)
        assert run is not None
        assert graph.inputs == ("samples",)
        assert graph.outputs == (outputs or ("output0", "output1"))
        values, found = execute(graph, arrays(graph)), run(arrays(graph))
        for name in graph.outputs:
            np.testing.assert_allclose(values[name], found[name], rtol=1e-4, atol=1e-5)


@pytest.mark.exhaustive
@pytest.mark.slow
def test_generated_code_computes_what_torch_does(tmp_path: Path) -> None:
    from mace_target_cpu import Cpu

    registry = Registry.load()
    module = made(cnn)
    file = saved(module, {"x": (1, 3, 16, 16)}, tmp_path / "model.pt2")
    model = model_of(file, {"x": (1, 3, 16, 16)})
    graph = run_phases(load(model), registry)
    run = PyTorch().reference((file,), model)
    assert run is not None
    actual = compile_graphs(Cpu(), [graph], tmp_path)["case"].run(arrays(graph))
    assert cosine(actual["output"], run(arrays(graph))["output"]) > 0.9999


def two_inputs(nn: Any) -> Any:
    class Difference(nn.Module):  # type: ignore[misc,name-defined]
        def forward(self, left, right):  # type: ignore[no-untyped-def]
            return left - 2 * right

    return Difference()


def difference(model: Model, first: str, second: str) -> Array:
    graph = load(model)
    return execute(graph, {first: np.full((2, 3), 10, np.float32), second: np.full((2, 3), 1, np.float32)})[
        graph.outputs[0]
    ]


@pytest.mark.sampled(cases="scripted")
@EACH
def test_names_of_inputs(ending: str, tmp_path: Path) -> None:
    """Those of forward() in any order, or others in its order."""
    shape = (2, 3)
    file = saved(made(two_inputs), {"left": shape, "right": shape}, tmp_path / f"model{ending}")
    for first, second, names in (
        ("left", "right", ("right", "left")),
        ("a", "b", ("a", "b")),
        ("right", "b", ("right", "b")),
    ):
        model = model_of(file, dict.fromkeys(names, shape))
        np.testing.assert_array_equal(difference(model, first, second), np.full(shape, 8))
    with pytest.raises(
        MaceError,
        match="has 2 inputs, the deployment file names 'a', 'b', 'c'; name each once, in the order of forward",
    ):
        load(model_of(file, dict.fromkeys("abc", shape)))
    with pytest.raises(MaceError, match="has 1 outputs, the deployment file names 'y', 'z'"):
        load(model_of(file, {"left": shape, "right": shape}, ("y", "z")))


@pytest.mark.exhaustive
@pytest.mark.slow
def test_shapes_that_an_exported_program_leaves_open(tmp_path: Path) -> None:
    t = torch()
    dims = ({0: t.export.Dim("batch"), 2: t.export.Dim("height", min=4, max=64)},)
    pool = t.nn.Sequential(t.nn.Conv2d(3, 2, 3), t.nn.ReLU())
    file = saved(pool, {"input": (2, 3, 8, 8)}, tmp_path / "model.pt2", dims)
    with pytest.raises(MaceError, match=r"input 'input' leaves dimension 2 .* open"):
        load(Model("case", (file,)))
    graph, pairs = compared(model_of(file, {"image": (3, 3, 12, 8)}), pool)
    assert graph.tensors["image"].shape == (3, 3, 12, 8)
    np.testing.assert_allclose(*pairs[0], rtol=1e-4, atol=1e-5)


def test_shapes_that_torchscript_does_not_tell(tmp_path: Path) -> None:
    file = saved(made(cnn), {"x": (1, 3, 16, 16)}, tmp_path / "model.traced.pt")
    with pytest.raises(
        MaceError,
        match=r"(?s)TorchScript does not tell the shape of .*; write them in the deployment file.*input_shapes",
    ):
        load(Model("case", (file,)))


def test_integers_go_in(tmp_path: Path) -> None:
    from mace_core.ir import DType

    t = torch()
    table = t.nn.Embedding(9, 4)
    file = tmp_path / "model.pt"
    from mace_frontend_pytorch.program import silence_torch

    with silence_torch():
        t.jit.save(t.jit.script(table), str(file))
    graph = load(Model("case", (file,), inputs=(Port("places", (1, 5), DType.I64),)))
    x = np.array([[1, 0, 8, 3, 3]])
    np.testing.assert_array_equal(execute(graph, {"places": x})["output"], table.weight.detach().numpy()[x])


def test_a_training_model_is_exported_as_it_is_used(tmp_path: Path) -> None:
    """Dropout does nothing, and norms use what they have learnt."""
    t = torch()
    module = made(cnn)
    file = tmp_path / "model.pt"
    from mace_frontend_pytorch.program import silence_torch

    with silence_torch():
        t.jit.save(t.jit.script(module.train()), str(file))
    _, pairs = compared(model_of(file, {"input": (1, 3, 16, 16)}), module)
    np.testing.assert_allclose(*pairs[0], rtol=1e-4, atol=1e-5)
