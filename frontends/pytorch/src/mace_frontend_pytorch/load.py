"""Reads a PyTorch model as a graph: exported to ONNX, which ONNX's frontend reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import entry_points
from pathlib import Path
from tempfile import TemporaryDirectory

from mace_core.api import Files, Frontend
from mace_core.deployment import Model, Port
from mace_core.errors import MaceError
from mace_core.graph_builder import NEXT
from mace_core.hookspecs import GROUP
from mace_core.ir import Graph, State, frozen
from mace_core.ops.op import Op
from mace_core.registry import Registry
from mace_frontend_pytorch.archive import quote_names
from mace_frontend_pytorch.exports import CachedModel, ModelSignature
from mace_frontend_pytorch.states import read_starts


def load(files: Files, model: Model, ops: Mapping[str, Op]) -> Graph:
    """Read a model; its inputs and outputs have the names that the deployment file states, see `name_ports`.

    Raises MaceError if the file holds no graph, torch is missing or refuses it, or the IR cannot represent
    what it computes.
    """
    cached = CachedModel(only_file(files, model))
    inputs, outputs = name_ports(cached, model)
    ports = stated_ports(cached, model)
    with TemporaryDirectory(prefix="mace-pytorch-") as folder:
        target = Path(folder) / f"{cached.path.stem}.onnx"
        cached.write(target, (inputs, outputs), ports)
        stated = tuple(replace(port, name=name) for name, port in zip(inputs, ports, strict=True) if port)
        starts = read_starts(target)
        listed = model.outputs or tuple(Port(name) for name in outputs)
        listed += tuple(Port(name + NEXT) for name in starts)
        onnx_model = replace(model, files=(target,), inputs=stated, outputs=listed)
        graph = _onnx_frontend(cached.path).load((target,), onnx_model, ops)
        states = tuple(State(name, name + NEXT, frozen(start)) for name, start in starts.items())
        return replace(graph, states=(*graph.states, *states))


def only_file(files: Files, model: Model) -> Path:
    """Return the one file of a model; MaceError if there are several."""
    if len(files) != 1:
        problem = f"a PyTorch model is one file, {len(files)} are named"
        raise MaceError(model.name, problem, "name the .pt or .pt2 file alone")
    return files[0]


def name_ports(program: ModelSignature, model: Model) -> tuple[list[str], list[str]]:
    """Return the names of the inputs and outputs.

    Inputs have the names of forward()'s arguments. If the deployment file states others, they get those in
    its order. Outputs have no names in torch: they are "output", or "output0", "output1" ... if there are
    several, or in the same way get the names of the deployment file.
    """
    stated_inputs, stated_outputs = [p.name for p in model.inputs], [p.name for p in model.outputs]
    arguments = list(program.inputs)
    inputs = arguments
    if not set(stated_inputs) <= set(arguments):
        inputs = stated_inputs + arguments[len(stated_inputs) :]
    numbered = ["output"] if program.outputs == 1 else [f"output{i}" for i in range(program.outputs)]
    outputs = numbered
    if not set(stated_outputs) <= set(numbered):
        outputs = stated_outputs + numbered[len(stated_outputs) :]
    for direction, names, stated, count in (
        ("inputs", inputs, stated_inputs, len(arguments)),
        ("outputs", outputs, stated_outputs, program.outputs),
    ):
        if len(names) != count or len(set(names)) != count:
            listed = quote_names(names[: len(stated)])
            problem = f"has {count} {direction}, the deployment file names {listed}"
            remedy = f"name each once, in the order of forward(): {quote_names(arguments)}"
            raise MaceError(program.path.name, problem, remedy)
    return inputs, outputs


def stated_ports(program: ModelSignature, model: Model) -> list[Port | None]:
    """Return what the deployment file states of each input."""
    inputs, _ = name_ports(program, model)
    stated = {port.name: port for port in model.inputs}
    return [stated.get(name) for name in inputs]


def _onnx_frontend(path: Path) -> Frontend:
    """Return ONNX's frontend from the plugins that are installed; MaceError if it is not."""
    # By its entry point and not by an import: plugins depend on core alone.
    frontend = Registry.load(entry_points(group=GROUP, name="frontend-onnx")).frontends.get("onnx")
    if frontend is None:
        problem = "needs ONNX's frontend, which is not installed"
        raise MaceError(path.name, problem, "pip install mace-frontend-onnx")
    return frontend
