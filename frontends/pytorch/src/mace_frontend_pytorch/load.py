"""A PyTorch model as a graph: exported to ONNX, which ONNX's frontend reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import entry_points
from pathlib import Path
from tempfile import TemporaryDirectory

from mace_core.api import Files, Frontend
from mace_core.deployment import Model, Port
from mace_core.errors import MaceError
from mace_core.hookspecs import GROUP
from mace_core.ir import Graph
from mace_core.ops.op import Op
from mace_core.registry import Registry
from mace_frontend_pytorch.exports import Facts, Known
from mace_frontend_pytorch.source import joined


def load(files: Files, model: Model, ops: Mapping[str, Op]) -> Graph:
    """Read a model; its inputs and outputs bear the names that the deployment file states, see `names`.

    MaceError if the file holds no graph, torch is missing or refuses it, or the IR cannot represent what it
    computes.
    """
    known = Known(only(files, model))
    inputs, outputs = names(known, model)
    ports = ports_of(known, model)
    with TemporaryDirectory(prefix="mace-pytorch-") as folder:
        target = Path(folder) / f"{known.file.stem}.onnx"
        known.write(target, (inputs, outputs), ports)
        stated = tuple(replace(port, name=name) for name, port in zip(inputs, ports, strict=True) if port)
        wanted = model.outputs or tuple(Port(name) for name in outputs)
        return _onnx(known.file).load(
            (target,), replace(model, files=(target,), inputs=stated, outputs=wanted), ops
        )


def only(files: Files, model: Model) -> Path:
    """The one file of a model."""
    if len(files) != 1:
        raise MaceError(
            model.name,
            f"a PyTorch model is one file, {len(files)} are named",
            "name the .pt or .pt2 file alone",
        )
    return files[0]


def names(program: Facts, model: Model) -> tuple[list[str], list[str]]:
    """What the inputs and outputs are called.

    Inputs: the names of forward()'s arguments if the deployment file states no others, else its names, in its
    order. Outputs have no
    names in torch: they are "output", or "output0", "output1" ... if there are several; if the deployment
    file states other names, they get those in its order.
    """
    given, wanted = [p.name for p in model.inputs], [p.name for p in model.outputs]
    own = list(program.inputs)
    inputs = own if set(given) <= set(own) else given + own[len(given) :]
    default = ["output"] if program.outputs == 1 else [f"output{i}" for i in range(program.outputs)]
    outputs = default if set(wanted) <= set(default) else wanted + default[len(wanted) :]
    for what, listed, count in (("inputs", inputs, len(own)), ("outputs", outputs, program.outputs)):
        if len(listed) != count or len(set(listed)) != count:
            problem = f"has {count} {what}, the deployment file names {joined(listed[: len(given if what == 'inputs' else wanted)])}"
            raise MaceError(
                program.file.name, problem, f"name each once, in the order of forward(): {joined(own)}"
            )
    return inputs, outputs


def ports_of(program: Facts, model: Model) -> list[Port | None]:
    """What the deployment file states of each input."""
    inputs, _ = names(program, model)
    stated = {p.name: p for p in model.inputs}
    return [stated.get(name) for name in inputs]


def _onnx(file: Path) -> Frontend:
    """ONNX's frontend, from the plugins that are installed."""
    found = Registry.load(entry_points(group=GROUP, name="frontend-onnx")).frontends.get("onnx")
    if found is None:
        raise MaceError(
            file.name, "needs ONNX's frontend, which is not installed", "pip install mace-frontend-onnx"
        )
    return found
