"""Writes a first deployment file for a model: `mace init`."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from mace_core.deployment import Model, Port, load_deployment
from mace_core.deployment.names import refusal
from mace_core.errors import MaceError
from mace_core.ir import Graph, Shape, Tensor
from mace_core.registry import Registry
from mace_core.run.files import write

NOTES = """\
        # Without the next two lines `mace validate` compares with the model's own framework on random input:
        # validation_inputs_data: [INPUT.npy]
        # validation_outputs_data: [OUTPUT.npy]
"""


@dataclass(frozen=True)
class InitRequest:
    """The request of `mace init`.

    files: the model's file, and that of its weights where the framework keeps them apart.
    shapes: of inputs whose shapes the file leaves open, in the framework's order of axes.
    platform: the frontend's name, or None to go by the file's suffix.
    """

    files: tuple[Path, ...]
    output: Path
    shapes: Mapping[str, Shape]
    platform: str | None = None
    overwrite: bool = False


def write_deployment(request: InitRequest, registry: Registry) -> list[str]:
    """Write a deployment file that names every input and output of the model.

    Return notes and what to run next.

    Raises MaceError where the model cannot be read, where its file's name cannot stand in a deployment file,
    or where the output exists already; nothing is left behind then.
    """
    if request.output.exists() and not request.overwrite:
        raise MaceError(request.output, "exists already", "give another --output, or --force to replace it")
    graph = _read_graph(request, registry)
    write(request.output, _deployment_text(request, graph))
    try:
        _check_written(request, registry)
    except MaceError:
        request.output.unlink()
        raise
    next_command = f"next: mace check {request.output} && mace build {request.output}"
    return [*(f"note: {note}" for note in graph.notes), f"wrote {request.output}", next_command]


def _read_graph(request: InitRequest, registry: Registry) -> Graph:
    for file in request.files:
        if not file.exists():
            raise MaceError(file, "no such file")
    ports = tuple(Port(name, shape) for name, shape in request.shapes.items())
    model = Model(_identifier(request), request.files, request.platform, inputs=ports)
    try:
        return registry.frontend(model).load(request.files, model, registry.ops)
    except MaceError as error:
        if "input_shapes" not in str(error):
            raise
        raise MaceError.of(
            [str(error), "mace init: give the shapes as --shape NAME=1,2,3, once for each input"]
        ) from None


def _check_written(request: InitRequest, registry: Registry) -> None:
    """Read the file back, so that a path or name that YAML reads differently does not go unnoticed."""
    (model,) = load_deployment(request.output, tuple(registry.frontends)).models
    if any(
        not read.exists() or not read.samefile(file)
        for read, file in zip(model.files, request.files, strict=True)
    ):
        place = ", ".join(map(str, request.files))
        raise MaceError(
            place,
            "this path cannot be written in a deployment file",
            "rename it without ${...} and control characters",
        )


def _deployment_text(request: InitRequest, graph: Graph) -> str:
    """Return the YAML; every name stands in it as a JSON string, which YAML reads alike whatever is in it."""
    name = _identifier(request)
    paths = [os.path.relpath(file, request.output.absolute().parent) for file in request.files]
    lines = [f"library_name: {name}", "models:", f"  {name}:", f"    model_file_path: {json.dumps(paths[0])}"]
    lines += [f"    weight_file_path: {json.dumps(path)}" for path in paths[1:]]
    lines += [f"    platform: {request.platform}"] if request.platform else []
    inputs = [graph.tensors[n] for n in graph.port_inputs]
    outputs = [graph.tensors[n] for n in graph.port_outputs]
    lines += [*_state_lines(graph, inputs, outputs)]
    lines += [
        "    subgraphs:",
        f"      - input_tensors: {_names(inputs)}{_types(inputs)}",
        f"        input_shapes: {json.dumps([','.join(map(str, t.shape)) for t in inputs])}",
        f"        output_tensors: {_names(outputs)}{_types(outputs)}",
    ]
    return "\n".join(lines) + "\n" + NOTES


def _state_lines(graph: Graph, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> Iterator[str]:
    """Yield comments on the states of the model, and on ports that look like states of the application."""
    if graph.states:
        yield "    # Sessions keep these states. `states: application` makes them ports,"
        yield "    # `states: reset` gives them their start values before every run:"
        yield from (
            f"    #   {json.dumps(state.input)}: {_describe(graph.tensors[state.input])}"
            for state in graph.states
        )
    pairs = {
        before.name: after.name
        for before, after in product(inputs, outputs)
        if _looks_like_state(before, after)
    }
    if pairs and len(set(pairs.values())) == len(pairs):
        yield "    # The application has to copy these outputs to the inputs of the next run."
        yield "    # With the next line the session does so:"
        yield f"    # states: {json.dumps(pairs)}"


AFFIXES = re.compile(
    r"(?<![a-z])(in|input|out|output|prev|previous|past|present|new|next|old|cur|current|n|i|o)(?![a-z])"
)
"""Words in the name of a state that say before or after a run."""


def _looks_like_state(before: Tensor, after: Tensor) -> bool:
    """Tell whether an output may be the next value of an input: same type and shape, similar names."""
    is_same_type = (before.dtype, before.shape, before.quant) == (after.dtype, after.shape, after.quant)
    stems = [
        AFFIXES.sub("", re.sub(r"(?<=[a-z0-9])N$", " n", name).lower()) for name in (before.name, after.name)
    ]
    first, second = (re.sub(r"[^a-z0-9]", "", stem) for stem in stems)
    return is_same_type and bool(first) and first == second


def _names(tensors: Sequence[Tensor]) -> str:
    return json.dumps([t.name for t in tensors])


def _types(tensors: Sequence[Tensor]) -> str:
    """Return a comment with the element types and shapes, which are facts of the model and no names."""
    return "  # " + "; ".join(_describe(t) for t in tensors) if tensors else ""


def _describe(tensor: Tensor) -> str:
    return f"{tensor.dtype.value} {' x '.join(map(str, tensor.shape)) or 'scalar'}"


def _identifier(request: InitRequest) -> str:
    """Return a C identifier for library and model, made of the name of the model's file."""
    words = re.sub(r"[^A-Za-z0-9]+", "_", request.files[0].stem).strip("_").lower()[:60]
    if not words[:1].isalpha() or refusal(words):
        words = f"model_{words}".rstrip("_")
    return words


def parse_shapes(strings: Sequence[str]) -> dict[str, Shape]:
    """Return shapes by input from NAME=1,2,3; MaceError for what is not of that form."""
    return dict(_parse_shape(text) for text in strings)


def _parse_shape(text: str) -> tuple[str, Shape]:
    name, equals, numbers = text.rpartition("=")
    dims = tuple(_positive(numbers))
    if not equals or not name or not all(dims):
        raise MaceError(
            "--shape",
            f"{text!r} is not NAME=1,2,3",
            "write the input's name, an equals sign, positive integers",
        )
    return name, dims


def _positive(numbers: str) -> Iterator[int]:
    """Yield the numbers of a list with commas; 0 for what is none."""
    for word in numbers.split(",") if numbers else ():
        yield int(word) if word.strip().isdecimal() and len(word) < 10 else 0
