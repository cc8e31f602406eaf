"""Networks of a few layers, computed by the numpy references and by OpenCV's `dnn`: what the layers' tests are made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from mace_core.deployment import Model
from mace_core.ir import Array, Graph, Shape
from mace_core.ops import core_ops
from mace_core.run.reference import execute
from mace_core.testing.requirements import require
from mace_core.verify import verify
from mace_frontend_caffe import Caffe, schema

Oracle = Callable[..., Array | tuple[Array, ...]]
"""(*input arrays) -> what the tops hold, by the layer's definition."""


def floats(*shape: int, seed: int = 0, low: float = -1.0, high: float = 1.0) -> Array:
    """Random numbers."""
    return np.random.default_rng(seed).uniform(low, high, shape).astype(np.float32)


@dataclass(frozen=True)
class Case:
    """A layer.

    layer: its type, and what follows it in the text form.  inputs: shapes of its bottoms.  blobs: its
    weights.  tops: how many.
    oracle: for layers that OpenCV lacks, or computes otherwise than Caffe.  low, high: of random inputs,
    which are `whole` numbers or any, unless `arrays` has them.
    """

    name: str
    layer: str
    inputs: Sequence[Shape]
    blobs: Sequence[Array] = ()
    tops: int = 1
    oracle: Oracle | None = None
    low: float = -2.0
    high: float = 2.0
    whole: bool = False
    tolerance: float = 5e-6
    arrays: Mapping[str, Array] = field(default_factory=dict)

    def text(self) -> str:
        """The network in the text form."""
        names = [f"x{i}" for i in range(len(self.inputs))]
        kind, _, parameters = self.layer.partition(" ")
        lines = [entry(name, shape) for name, shape in zip(names, self.inputs, strict=True)]
        bottoms = " ".join(f'bottom: "{name}"' for name in names)
        tops = " ".join(f'top: "y{i}"' for i in range(self.tops))
        return "\n".join(
            [*lines, f'layer {{ name: "layer" type: "{kind}" {parameters} {bottoms} {tops} }}', ""]
        )

    def given(self) -> dict[str, Array]:
        """Arrays for the inputs by name."""
        rng, made = np.random.default_rng(3), {}
        for i, shape in enumerate(self.inputs):
            numbers = (
                rng.integers(int(self.low), int(self.high), shape)
                if self.whole
                else rng.uniform(self.low, self.high, shape)
            )
            made[f"x{i}"] = self.arrays.get(f"x{i}", numbers.astype(np.float32))
        return made


def entry(name: str, shape: Shape) -> str:
    """An input in the text form."""
    dims = " ".join(f"dim: {d}" for d in shape)
    return f'layer {{ name: "{name}" type: "Input" top: "{name}" input_param {{ shape {{ {dims} }} }} }}'


def weights(blobs: Mapping[str, Sequence[Array]], *, old: bool = False) -> bytes:
    """A .caffemodel with the blobs of each layer; old: in the form of 2014, every shape of four axes."""
    model = schema.create_model()
    for name, arrays in blobs.items():
        layer = (model.layers if old else model.layer).add(name=name)
        for array in arrays:
            blob = layer.blobs.add(data=array.astype("<f4").tobytes())
            if old:
                blob.num, blob.channels, blob.height, blob.width = (1,) * (4 - array.ndim) + array.shape
            else:
                blob.shape.dim.extend(array.shape)
    return bytes(model.SerializeToString())


def write_network(folder: Path, text: str, data: bytes | None = None) -> tuple[Path, ...]:
    """A network's files."""
    described, held = folder / "case.prototxt", folder / "case.caffemodel"
    described.write_text(text)
    if data is None:
        return (described,)
    held.write_bytes(data)
    return described, held


def files_of(case: Case, folder: Path) -> tuple[Path, ...]:
    """A case's files."""
    return write_network(folder, case.text(), weights({"layer": case.blobs}))


def load(files: tuple[Path, ...], model: Model | None = None) -> Graph:
    """The graph that the frontend makes of a network."""
    return verify(Caffe().load(files, model or Model("case", files), core_ops()))


def expected(files: tuple[Path, ...], arrays: Mapping[str, Array]) -> Mapping[str, Array]:
    """What OpenCV computes."""
    run = Caffe().reference(files, Model("case", files))
    require(None if run else "OpenCV is not installed: pip install opencv-python-headless")
    assert run is not None
    return run(arrays)


def expect_outputs(case: Case, files: tuple[Path, ...]) -> dict[str, Array]:
    """What a case computes by its oracle, else by OpenCV."""
    arrays = case.given()
    if case.oracle is None:
        return dict(expected(files, arrays))
    result = case.oracle(*arrays.values())
    return {f"y{i}": array for i, array in enumerate(result if isinstance(result, tuple) else (result,))}


def check(case: Case, folder: Path) -> None:
    """Assert that the graph computes what the case's oracle or OpenCV does."""
    files = files_of(case, folder)
    graph = load(files)
    values, right = execute(graph, case.given()), expect_outputs(case, files)
    assert list(graph.outputs) == list(right)
    for name in graph.outputs:
        assert_close(values[name], right[name], case)


def assert_close(found: Array, right: Array, case: Case) -> None:
    """Assert that two arrays are the same as far as the case demands."""
    assert found.shape == right.shape, f"shape {found.shape}, expected {right.shape}"
    np.testing.assert_allclose(found, right, rtol=case.tolerance, atol=case.tolerance)
