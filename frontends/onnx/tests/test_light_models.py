"""The light models of the onnx package through transforms and generated C, against ONNX Runtime and the outputs beside them.

All their weights are the same number, so that most of them give the same whatever they compute; those of
moderate size are computed with weights of many numbers as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper

from mace_core.deployment import Model, Port
from mace_core.emit import code
from mace_core.ir import Array, Graph
from mace_core.ops import core_ops
from mace_core.plan import plan_calls
from mace_core.registry import Registry
from mace_core.run import native
from mace_core.run.compile import shared_library
from mace_core.testing.compiled import host
from mace_core.testing.processor import levels_here
from mace_core.transforms import run_phases
from mace_core.verify import verify
from mace_frontend_onnx import Onnx

FOLDER = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
FILES = tuple(sorted(FOLDER.glob("*.onnx")))
MODERATE = ("densenet121", "inception_v1", "inception_v2", "resnet50", "shufflenet", "squeezenet")


def load(path: Path, name: str, outputs: tuple[str, ...] = ()) -> Graph:
    model = Model(name, (path,), outputs=tuple(map(Port, outputs)))
    return run_phases(verify(Onnx().load((path,), model, core_ops())), Registry.load()).with_name(name)


def compiled(graphs: Iterable[Graph], folder: Path) -> Mapping[str, native.LoadedModel]:
    """The graphs as one library."""
    target, placed = pytest.importorskip("mace_target_cpu").Cpu(), []
    for graph in graphs:
        assert [r for n in graph.nodes if (r := target.refuses(n, graph))] == [], graph.name
        program = target.lower(graph)
        placed.append(plan_calls(program))
    return native.load(
        shared_library(
            code.library("light", placed, levels_here(target.levels("host"))[:1]), host(), folder, ("-O1",)
        ),
        "light",
    )


def picture(graph: Graph) -> dict[str, Array]:
    rng = np.random.default_rng(4)
    return {name: rng.standard_normal(graph.tensors[name].shape).astype(np.float32) for name in graph.inputs}


def runtime(path: Path, arrays: Mapping[str, Array], outputs: tuple[str, ...] = ()) -> Array:
    """The first output as ONNX Runtime computes it."""
    run = Onnx().reference((path,), Model("m", (path,), outputs=tuple(map(Port, outputs))))
    assert run is not None
    return next(iter(run(arrays).values()))


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.timeout(300)
def test_light_models(tmp_path: Path) -> None:
    assert len(FILES) == 9
    graphs = {path: load(path, path.stem) for path in FILES}
    models = compiled(graphs.values(), tmp_path)
    for path, graph in graphs.items():
        arrays = picture(graph)
        actual = models[path.stem].run(arrays)[graph.outputs[0]]
        stored = TensorProto.FromString(path.with_name(f"{path.stem}_output_0.pb").read_bytes())
        for expected in (numpy_helper.to_array(stored), runtime(path, arrays)):
            np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-7, err_msg=path.stem)


def filled(path: Path, made: Path) -> str:
    """Write the model with weights of many numbers; what it computes before a last Softmax."""
    model = onnx.load(path)
    model.ir_version = 8  # before 4, initializers must be inputs as well
    rng, shapes = (
        np.random.default_rng(7),
        {t.name: numpy_helper.to_array(t) for t in model.graph.initializer},
    )
    kept = [n for n in model.graph.node if n.op_type != "ConstantOfShape"]
    for node in (n for n in model.graph.node if n.op_type == "ConstantOfShape"):
        shape = tuple(shapes[node.input[0]])
        wide = (
            rng.standard_normal(shape) * np.sqrt(2 / np.prod(shape[1:]))
            if len(shape) > 1
            else rng.uniform(0.5, 1.5, shape)
        )
        model.graph.initializer.append(numpy_helper.from_array(wide.astype(np.float32), node.output[0]))
    del model.graph.node[:]
    model.graph.node.extend(kept)
    made.write_bytes(model.SerializeToString())
    last = next(n for n in kept if model.graph.output[0].name in n.output)
    return last.input[0] if last.op_type == "Softmax" else last.output[0]


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.timeout(300)
def test_light_models_with_weights(tmp_path: Path) -> None:
    outputs = {name: filled(FOLDER / f"light_{name}.onnx", tmp_path / f"{name}.onnx") for name in MODERATE}
    graphs = {name: load(tmp_path / f"{name}.onnx", name, (output,)) for name, output in outputs.items()}
    models = compiled(graphs.values(), tmp_path)
    for name, output in outputs.items():
        arrays = picture(graphs[name])
        actual, expected = (
            models[name].run(arrays)[output],
            runtime(tmp_path / f"{name}.onnx", arrays, (output,)),
        )
        assert actual.shape == expected.shape
        assert np.ptp(expected) > 0
        assert np.abs(actual - expected).max() <= 2e-5 * np.abs(expected).max(), name
