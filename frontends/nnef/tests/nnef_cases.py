"""NNEF models written for tests, and their graph held against the reference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import nnef
import numpy as np

from mace_core.deployment import Model
from mace_core.ir import Array, Graph
from mace_core.ops import core_ops
from mace_core.run.reference import execute
from mace_core.verify import verify
from mace_frontend_nnef import Nnef


@dataclass(frozen=True)
class Case:
    """One or several lines of a graph with the inputs x0, x1 ... and the results y, or those that are named.

    inputs: a shape each, of single precision, or an array.  low, high: between these lie random numbers.
    variables: by label.
    """

    body: str
    inputs: Sequence[Sequence[int] | Array] = ((2, 3, 5, 6),)
    variables: Mapping[str, Array] = field(default_factory=dict)
    outputs: Sequence[str] = ("y",)
    low: float = -2.0
    high: float = 2.0
    tolerance: float = 1e-5

    def arrays(self) -> dict[str, Array]:
        rng = np.random.default_rng(5)
        return {
            f"x{i}": given
            if isinstance(given, np.ndarray)
            else rng.uniform(self.low, self.high, tuple(given)).astype(np.float32)
            for i, given in enumerate(self.inputs)
        }

    def text(self) -> str:
        kinds = {"f": "scalar", "i": "integer", "b": "logical"}
        lines = [
            f"{name} = external<{kinds[array.dtype.kind]}>(shape = {list(array.shape)});"
            for name, array in self.arrays().items()
        ]
        lines += [
            f"{label.replace('/', '_')} = variable<{kinds[array.dtype.kind]}>"
            f"(shape = {list(array.shape)}, label = '{label}');"
            for label, array in self.variables.items()
        ]
        lines += [self.body]
        return graph_text(list(self.arrays()), self.outputs, lines)


def graph_text(inputs: Sequence[str], outputs: Sequence[str], lines: Sequence[str]) -> str:
    body = "\n    ".join(lines)
    return f"version 1.0;\n\ngraph net({', '.join(inputs)}) -> ({', '.join(outputs)})\n{{\n    {body}\n}}\n"


def floats(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).uniform(-1, 1, shape).astype(np.float32)


def dat(array: Array) -> bytes:
    """The content of a variable's file, by Khronos's own writer."""

    class Memory:
        def __init__(self) -> None:
            self.data = b""

        def seekable(self) -> bool:
            return False

        def write(self, data: bytes) -> None:
            self.data += data

    memory = Memory()
    nnef.write_tensor(memory, array)
    return memory.data


def write_model(folder: Path, text: str, variables: Mapping[str, Array] | None = None) -> tuple[Path, ...]:
    """Write a model into a folder; returns the folder."""
    folder.mkdir(exist_ok=True)
    (folder / "graph.nnef").write_text(text, "utf-8")
    for label, array in (variables or {}).items():
        file = folder / f"{label}.dat"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(dat(array))
    return (folder,)


def load(files: tuple[Path, ...], model: Model | None = None) -> Graph:
    return verify(Nnef().load(files, model or Model("case", files), core_ops()))


def check(case: Case, folder: Path) -> Graph:
    """Assert that the graph computes what the reference does."""
    files = write_model(folder / "model", case.text(), case.variables)
    graph = load(files)
    arrays = case.arrays()
    found, right = execute(graph, arrays), Nnef().reference(files, Model("case", files))(arrays)
    assert list(graph.outputs) == list(case.outputs) == list(right)
    for name in graph.outputs:
        assert found[name].shape == right[name].shape
        assert found[name].dtype == right[name].dtype
        np.testing.assert_allclose(
            found[name], right[name], rtol=case.tolerance, atol=case.tolerance, err_msg=name
        )
    return graph


WHOLE = (
    Case(
        "a = conv(x0, w, b, padding = [(1,1), (0,1)], stride = [2,1], groups = 1);\n"
        "    n = batch_normalization(a, b, 1.0, 0.0, b, epsilon = 0.001);\n"
        "    p = avg_pool(n, size = [1,1,2,2], border = 'ignore');\n"
        "    u = deconv(p, d, stride = [2,2]);\n"
        "    l = local_response_normalization(u, size = [1,3,1,1]);\n"
        "    y = softmax(l, axes = [1]);",
        ((1, 3, 6, 5),),
        {"w": floats(4, 3, 3, 3), "b": floats(1, 4), "d": floats(4, 2, 3, 3)},
    ),
    Case(
        "c = constant(shape = [2, 3], value = [1.0]);\n"
        "    s = slice(x0, axes = [1, 2], begin = [0, -2], end = [3, 0], stride = [1, 1]);\n"
        "    r = reshape(s, shape = [0, -1, 2], axis_start = 0);\n"
        "    t = transpose(r, axes = [0, 2, 1]);\n"
        "    [e, f] = split(t, axis = 1, ratios = [1, 1]);\n"
        "    k = pad(e, padding = [(0,0), (1,1), (2,0)], border = 'reflect-even');\n"
        "    g = sum_reduce(k, axes = [1, 2]);\n"
        "    q = squeeze(g, axes = [2]);\n"
        "    m = linear(q, w);\n"
        "    y = add(m, c);",
        ((2, 4, 5),),
        {"w": floats(3, 1)},
    ),
)
"""Models of several operations that depend on each other."""
