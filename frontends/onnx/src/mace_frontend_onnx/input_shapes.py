"""Completes types and shapes of a model's inputs from its file and the deployment file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import onnx
from onnx import TypeProto, ValueInfoProto

from mace_core.deployment import Port
from mace_core.errors import MaceError
from mace_core.hints import Dim, refuse_shapes, shape_lines
from mace_core.importer import RefusedError, shape_fault
from mace_core.ir import DType, Shape
from mace_frontend_onnx.model_file import OnnxFile, element_type, first_line

Dims = list[Dim]


@dataclass(frozen=True)
class PartInput:
    """An input of the part of a model that is read."""

    name: str
    dtype: DType
    shape: Shape


def complete_inputs(
    file: OnnxFile, names: Sequence[str], ports: Sequence[Port]
) -> tuple[tuple[PartInput, ...], tuple[str, ...]]:
    """Return the inputs with complete shapes, and a note if a batch size that the file leaves open becomes 1.

    Raises one MaceError for all inputs whose type or shape is unknown or contradicts the deployment file.
    """
    stated = {port.name: port.shape for port in ports if port.shape is not None}
    types = _find_types(file, names)
    symbols = _symbol_values(types, stated)
    known = {name: _merge_dims(declared_dims(types.get(name)), stated.get(name), symbols) for name in names}
    batched = _with_batch_of_one(known)
    faults = []
    for name in names:
        contradiction = _stated_fault(name, declared_dims(types.get(name)), stated.get(name))
        faults.append(contradiction or _type_fault(name, types.get(name)))
    faults += [shape_fault(name, dims, None) for name, dims in batched.items()]
    refuse_shapes(file.name, filter(None, faults), batched)
    shapes = {name: tuple(d for d in dims or () if isinstance(d, int)) for name, dims in batched.items()}
    inputs = tuple(PartInput(name, declared_dtype(types.get(name)), shape) for name, shape in shapes.items())
    changed = [name for name in names if batched[name] != known[name]]
    if not changed:
        return inputs, ()
    text = f"{file.name} leaves the first dimension of {', '.join(map(repr, changed))} open: taken as 1"
    return inputs, (f"{text}; for another, write in the deployment file:{shape_lines(shapes)}",)


def _merge_dims(dims: Dims | None, stated: Shape | None, symbols: Mapping[str, int]) -> Dims | None:
    """Return the dimensions of an input as far as the file and the stated shapes of all inputs tell."""
    if stated is not None and not (dims is not None and _is_scalar_stated(dims, stated)):
        return list(stated)
    if dims is None:
        return None
    return [symbols.get(d, d) if isinstance(d, str) else d for d in dims]


def _with_batch_of_one(known: Mapping[str, Dims | None]) -> dict[str, Dims | None]:
    """Return the shapes with 1 for a first dimension that is open, and wherever else its symbol stands.

    The other frontends take an open batch as 1 as well.
    """
    symbols = {dims[0] for dims in known.values() if dims and isinstance(dims[0], str)}

    def complete(dims: Dims) -> Dims:
        batched: Dims = [1 if d in symbols else d for d in dims]
        if batched and batched[0] is None:
            batched[0] = 1
        return batched

    return {name: None if dims is None else complete(dims) for name, dims in known.items()}


def _find_types(file: OnnxFile, names: Sequence[str]) -> dict[str, TypeProto]:
    """Return the types that the file declares or that ONNX infers for its inner tensors."""
    graph = file.model.graph
    types = declared_types((*graph.input, *graph.value_info, *graph.output))
    # Inference runs over the whole model, so it runs only for a cut at a tensor of unknown type.
    if all(name in types for name in names):
        return types
    try:
        inferred = onnx.shape_inference.infer_shapes(file.model).graph
    except (onnx.shape_inference.InferenceError, ValueError) as error:
        problem = f"its inner tensors have no known types: {first_line(error)}"
        raise MaceError(file.name, problem) from error
    return {**declared_types(inferred.value_info), **types}


def declared_types(values: Iterable[ValueInfoProto]) -> dict[str, TypeProto]:
    """Return declared types by name; of several declarations the last counts."""
    return {value.name: value.type for value in values}


def declared_dims(declared: TypeProto | None) -> Dims | None:
    """Return the declared dimensions; None where not even their number is known."""
    if declared is None or not declared.tensor_type.HasField("shape"):
        return None
    return [_read_dim(dim) for dim in declared.tensor_type.shape.dim]


def _read_dim(dim: onnx.TensorShapeProto.Dimension) -> Dim:
    # Exporters write an unknown dimension as nothing, as -1, or as "?", which names nothing.
    if dim.HasField("dim_value") and dim.dim_value >= 0:
        return int(dim.dim_value)
    return str(dim.dim_param) if any(c.isalnum() for c in dim.dim_param) else None


def declared_dtype(declared: TypeProto | None) -> DType:
    """Return the declared element type, float32 if there is none; RefusedError for an unsupported one."""
    if declared is None or not declared.tensor_type.elem_type:
        return DType.F32
    return element_type(declared.tensor_type.elem_type)


def _symbol_values(types: Mapping[str, TypeProto], stated: Mapping[str, Shape]) -> dict[str, int]:
    """Return the numbers that stated shapes give to symbols, which other inputs may share."""
    values: dict[str, int] = {}
    for name, shape in stated.items():
        dims = declared_dims(types.get(name)) or []
        values.update({d: n for d, n in zip(dims, shape, strict=False) if isinstance(d, str)})
    return values


def _type_fault(name: str, declared: TypeProto | None) -> str | None:
    if declared is not None and declared.WhichOneof("value") not in ("tensor_type", None):
        return f"input {name!r} is no tensor; cut the graph behind it: name inner tensors under input_tensors"
    try:
        declared_dtype(declared)
    except RefusedError as error:
        return f"input {name!r}: {error}"
    return None


def _stated_fault(name: str, dims: Dims | None, stated: Shape | None) -> str | None:
    """Return how the stated shape of an input contradicts the file, with the remedy."""
    if stated is None or (dims is not None and _is_scalar_stated(dims, stated)):
        return None
    # A dimension of 0 is one that the exporter did not know: no network computes from an empty input.
    return shape_fault(name, dims, stated, [i for i, d in enumerate(dims or ()) if d == 0])


def _is_scalar_stated(dims: Sequence[Dim], stated: Shape) -> bool:
    """Tell whether a scalar is stated as a deployment file can: it reads an empty shape as (1,)."""
    return not dims and stated == (1,)
