"""Runs written files in LiteRT and holds each operator to the reference of the node that it states."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from ai_edge_litert import _pywrap_analyzer_wrapper
from ai_edge_litert.interpreter import Interpreter, OpResolverType

from mace_core.ir import Array, DType, Graph, Node, Tensor
from mace_core.ops.pad import PadAttributes
from mace_core.quantization import compute, dequantize
from mace_core.registry import Registry
from mace_tflite_writer import write_tflite
from mace_tflite_writer.names import file_names

FLOAT_STEP = 2.0**-23
"""The distance of neighboring numbers of single precision, relative to them."""

HALF = 0.5 + 1e-3
"""Steps from the real result to the nearest integer, and what a multiplier of 31 bits adds."""


@cache
def registry() -> Registry:
    return Registry.load()


def verify(content: bytes) -> None:
    """Fail unless the verifier of LiteRT accepts every offset and field of a file."""
    text = _pywrap_analyzer_wrapper.ModelAnalyzer(content, False, False)
    assert "not a valid Flatbuffer" not in text, text


def interpreter(content: bytes, keep: bool = False) -> Any:
    """An interpreter of LiteRT's reference kernels, which round as the format's specification says.

    keep: whether inner tensors can be read after a run.
    """
    options = {"num_threads": 1, "experimental_preserve_all_tensors": keep}
    try:
        made = Interpreter(
            model_content=content, experimental_op_resolver_type=OpResolverType.BUILTIN_REF, **options
        )
    except ValueError as error:
        if "Didn't find op" not in str(error):
            raise
        # A few operators have optimized kernels only: CEIL, ROUND, ELU.
        made = Interpreter(
            model_content=content,
            experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
            **options,
        )
    made.allocate_tensors()
    return made


def run(content: bytes, inputs: Sequence[Array], keep: bool = False) -> Any:
    """Run a file once and return the interpreter."""
    result = interpreter(content, keep)
    details = result.get_input_details()
    assert len(details) == len(inputs)
    for detail, array in zip(details, inputs, strict=True):
        result.set_tensor(detail["index"], array)
    result.invoke()
    return result


def outputs(made: Any) -> list[Array]:
    return [made.get_tensor(detail["index"]) for detail in made.get_output_details()]


def random_inputs(graph: Graph, seed: int = 0) -> list[Array]:
    generator = np.random.default_rng(seed)
    return [random_elements(graph.tensors[name], generator) for name in graph.inputs]


def random_elements(tensor: Tensor, generator: np.random.Generator) -> Array:
    if tensor.dtype.is_float:
        return generator.normal(size=tensor.shape).astype(tensor.dtype.numpy)
    if tensor.dtype is DType.BOOL:
        return generator.integers(0, 2, tensor.shape).astype(bool)
    limits = np.iinfo(tensor.dtype.numpy)
    # The product of three plain integers of 64 bits must not wrap differently.
    low, high = (limits.min, limits.max) if tensor.quant else (max(limits.min, -999), min(limits.max, 999))
    return generator.integers(low, high + 1, tensor.shape).astype(tensor.dtype.numpy)


def check_graph(graph: Graph, inputs: Sequence[Array] | None = None) -> bytes:
    """Write a graph, run it in LiteRT, and hold each node's outputs to its reference; return the file."""
    content = write_tflite(graph)
    verify(content)
    actual = run(content, random_inputs(graph) if inputs is None else inputs, keep=True)
    names = file_names(graph)
    by_name = {detail["name"]: detail for detail in actual.get_tensor_details()}
    arrays = dict(graph.weights)
    for name in graph.tensors:
        if name not in arrays and names[name] in by_name:
            arrays[name] = actual.get_tensor(by_name[names[name]]["index"])
    for name, detail in zip(graph.outputs, actual.get_output_details(), strict=True):
        assert detail["name"] == names[name]
        arrays[name] = actual.get_tensor(detail["index"])
    for node in graph.nodes:
        check_node(node, graph, arrays)
    return content


def check_node(node: Node, graph: Graph, arrays: Mapping[str, Array]) -> None:
    """Fail unless the outputs that LiteRT computed of its own inputs are those of the node's reference.

    Integers that store real numbers must be a nearest one of the exact result (a tie may fall either way).
    """
    reals = [i and real(graph.tensors[i], arrays[i]) for i in node.inputs]
    expected = node.op.compute([None if isinstance(r, str) else r for r in reals], node.attrs)
    for name, wanted in zip(node.outputs, expected, strict=True):
        tensor, actual = graph.tensors[name], arrays[name]
        assert actual.shape == tensor.shape, f"{node}: {actual.shape}"
        assert actual.dtype == tensor.dtype.numpy, f"{node}: {actual.dtype}"
        where = f"{node} {node.attrs} of {[str(graph.tensors[i]) for i in node.inputs if i]}"
        if tensor.quant:
            check_integers(wanted, actual, tensor, margin(node, graph), where)
        elif tensor.dtype.is_float:
            check_floats(wanted, actual, bound(node, graph, arrays, wanted), where)
        else:
            np.testing.assert_array_equal(actual, wanted, where)


def real(tensor: Tensor, array: Array) -> Array:
    return dequantize(array, tensor.quant) if tensor.quant else array


def check_integers(wanted: Array, actual: Array, tensor: Tensor, steps: float, where: str) -> None:
    assert tensor.quant is not None
    limits = np.iinfo(tensor.dtype.numpy)
    exact = wanted / tensor.quant.scale[0] + tensor.quant.zero_point[0]
    far = np.abs(actual - np.clip(exact, limits.min, limits.max)).max(initial=0)
    assert far <= steps, f"{where}: {far} steps from the real result"


def check_floats(wanted: Array, actual: Array, limit: float, where: str) -> None:
    np.testing.assert_array_equal(np.isnan(actual), np.isnan(wanted), where)
    finite = np.isfinite(wanted)
    np.testing.assert_array_equal(actual[~finite], wanted[~finite], where)
    far = np.abs(actual[finite].astype(np.float64) - wanted[finite]).max(initial=0)
    assert far <= limit, f"{where}: {far} from the real result, allowed {limit}"


ROUNDS_TWICE = (
    *("Conv", "ConvTranspose", "MatMul", "Add", "Sub", "Mul", "Div", "Relu", "Clip", "LeakyRelu", "PRelu"),
    *("ReduceMean", "ReduceSum", "Quantize"),
)
"""Ops whose kernels round to 31 bits, then shift and round again: for a multiplier from 0.25 to 0.5 the two
roundings are up to three quarters of a step."""

MARGINS: Mapping[tuple[str, DType], float] = {
    # Tables of the exponential in fixed point (kernels/internal/reference/softmax.h).
    ("Softmax", DType.I8): 0.5,
    ("Softmax", DType.U8): 0.5,
    ("Softmax", DType.I16): 4.0,
    ("LogSoftmax", DType.I8): 0.5,
    ("LogSoftmax", DType.U8): 0.5,
    # Polynomials and tables of 16 bits.
    ("Tanh", DType.I16): 3.0,
    ("Sigmoid", DType.I16): 1.0,
    # Sums of 64 bits are multiplied by 15 bits of the scale.
    **{(op, DType.I16): 1.0 for op in ("Conv", "ConvTranspose", "MatMul")},
    # Products of 16 bits (kernels/internal/reference/hard_swish.h).
    ("HardSwish", DType.I8): 1.0,
    ("HardSwish", DType.U8): 1.0,
    # Weights of ten bits.
    ("Resize", DType.I8): 0.5,
    ("Resize", DType.U8): 0.5,
}
"""Ops and types of results -> steps beyond HALF that the kernels' arithmetic adds."""


def margin(node: Node, graph: Graph) -> float:
    attrs = node.attrs
    if node.op.moves and not (isinstance(attrs, PadAttributes) and attrs.value):
        return 0.0
    dtype = graph.tensors[node.outputs[0]].dtype
    return HALF + MARGINS.get((node.op.name, dtype), 0.25 if node.op.name in ROUNDS_TWICE else 0.0)


def bound(node: Node, graph: Graph, arrays: Mapping[str, Array], wanted: Array) -> float:
    """The error of single precision that the order of a sum explains."""
    if node.op.moves:
        return 0.0
    largest = float(np.abs(wanted[np.isfinite(wanted)]).max(initial=0))
    if node.op.name in ("Conv", "MatMul"):
        x, w = (np.abs(arrays[name].astype(np.float64)) for name in node.inputs[:2])
        products = w.size // wanted.shape[-1]
        return FLOAT_STEP * (products + 8) * (float(x.max(initial=0) * w.max(initial=0)) + largest)
    terms = math.prod(graph.tensors[node.inputs[0]].shape) // max(wanted.size, 1)
    operands = [float(np.abs(real(graph.tensors[i], arrays[i])).max(initial=0)) for i in node.inputs if i]
    return (16 + terms) * FLOAT_STEP * max(largest, *operands, 2.0**-100)


def evaluate(graph: Graph, inputs: Sequence[Array]) -> list[Array]:
    """The outputs of a graph by the references of its nodes."""
    arrays = {**graph.weights, **dict(zip(graph.inputs, inputs, strict=True))}
    for node in graph.nodes:
        operands = [(graph.tensors[i], arrays[i]) if i else None for i in node.inputs]
        results = compute(node.op, node.attrs, operands, graph.outputs_of(node))
        arrays.update(zip(node.outputs, results, strict=True))
    return [arrays[name] for name in graph.outputs]


def model_graph(path: Path) -> Graph:
    """The graph of a model as a target's region would see it."""
    from mace_core.compilation import read_file

    return read_file(path, registry())
