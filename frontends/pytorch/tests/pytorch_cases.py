"""Small modules of torch, saved both ways: what the tests are made of."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from mace_core.deployment import Model, Port
from mace_core.ir import Array, Graph, Shape
from mace_core.ops import core_ops
from mace_core.run.reference import execute
from mace_core.testing.requirements import require
from mace_core.verify import verify
from mace_frontend_pytorch import PyTorch
from mace_frontend_pytorch.program import missing_packages, silence_torch

FORMATS = (".pt2", ".traced.pt", ".scripted.pt")


@cache
def torch() -> Any:
    """Torch itself; a test without it is skipped."""
    lack = missing_packages()
    require(f"{lack}: pip install 'mace-frontend-pytorch[torch]'" if lack else None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what it warns of at import is nobody's concern here
        import torch as found
    return found


def saved(module: Any, shapes: Mapping[str, Shape], file: Path, dynamic: Any = None) -> Path:
    """Write a module in one of FORMATS, by the ending of the file's name."""
    t = torch()
    module = module.eval()
    examples = tuple(t.zeros(shape) for shape in shapes.values())
    with silence_torch(), warnings.catch_warnings(), t.no_grad():
        warnings.simplefilter("ignore")  # a tracer warns of every shape that it makes a constant
        if file.suffix == ".pt2":
            t.export.save(t.export.export(module, examples, dynamic_shapes=dynamic), file)
        elif ".traced" in file.name:
            t.jit.save(t.jit.trace(module, examples), str(file))
        else:
            t.jit.save(t.jit.script(module), str(file))
    return file


def model_of(file: Path, shapes: Mapping[str, Shape], outputs: tuple[str, ...] = ()) -> Model:
    """The deployment of a file with inputs of these shapes."""
    ports = tuple(Port(name, shape) for name, shape in shapes.items())
    return Model("case", (file,), inputs=ports, outputs=tuple(map(Port, outputs)))


def load(model: Model) -> Graph:
    """The graph that the frontend makes of a model."""
    return verify(PyTorch().load(model.files, model, core_ops()))


def arrays(graph: Graph, seed: int = 0) -> dict[str, Array]:
    """Random inputs by name."""
    rng = np.random.default_rng(seed)
    return {
        n: rng.standard_normal(graph.tensors[n].shape).astype(graph.tensors[n].dtype.numpy)
        for n in graph.inputs
    }


def compared(model: Model, module: Any) -> tuple[Graph, list[tuple[Array, Array]]]:
    """The graph of a model, and of each output what it computes beside what the module does, in order."""
    t = torch()
    graph = load(model)
    inputs = arrays(graph)
    values = execute(graph, inputs)
    with t.no_grad():
        result = module.eval()(*(t.from_numpy(a) for a in inputs.values()))
    expected = [m.numpy() for m in (result if isinstance(result, tuple) else (result,))]
    return graph, [(values[name], array) for name, array in zip(graph.outputs, expected, strict=True)]


def cosine(a: Array, b: Array) -> float:
    """Cosine of the angle between two arrays as vectors."""
    x, y = a.reshape(-1).astype(np.float64), b.reshape(-1).astype(np.float64)
    return float(x @ y / np.linalg.norm(x) / np.linalg.norm(y))


def installed() -> bool:
    """Whether torch is there, for samples that do without."""
    return find_spec("torch") is not None
