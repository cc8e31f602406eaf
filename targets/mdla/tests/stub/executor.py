"""Executes what the stub of the Neuron adapter was told: `executor.py FOLDER` reads `network` and `inputs` there, and writes `outputs`.

Operands are read in the order of Android's page of NNAPI operations (NeuralNetworks.h of the NDK, API level 30), which is another source
than that of the package. What the page demands of types and scales is checked. Each operation becomes an operator of a new TFLite
file, which LiteRT's reference kernels execute: operations of NNAPI are defined as TFLite's are.

With NEURON_STUB_ROUNDING=once, the references of this project's operators execute that file instead: LiteRT multiplies and shifts where
they round the exact result once, so that the last bits of quantized tensors differ. NNAPI leaves both open.

With NEURON_STUB_HALF=1, a network that may be computed with 16 bits has every real tensor rounded to 16 bits behind each operation; sums
inside of an operation stay as they are. That is what is published of the hardware: numbers of 16 bits, and nothing of its sums.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from neuron_network import T_FLOAT32, Network, Writer
from neuron_operations import OPERATIONS, Call


def translate(network: bytes, half: bool = False) -> bytes:
    """The TFLite file of a network that the stub has written; half: with real numbers of 16 bits, where the network allows it."""
    parsed = Network(network)
    writer = Writer(parsed)
    half = half and bool(parsed.relaxed)
    if half:
        round_constants(parsed)
    ports = [writer.tensor(i) for i in parsed.inputs]
    for i, port in zip(parsed.inputs, ports, strict=True):
        round_tensor(writer, i, port, half)
    for code, inputs, outputs in parsed.operations:
        OPERATIONS[code](Call(writer, inputs, outputs))
        for i in outputs:
            round_tensor(writer, i, writer.known[i], half)
    return writer.finish(ports)


def round_constants(network: Network) -> None:
    for operand in network.operands:
        if operand.type == T_FLOAT32 and operand.data:
            operand.data = operand.value.astype("<f2").astype("<f4").tobytes()


def round_tensor(writer: Writer, index: int, tensor: int, half: bool) -> None:
    """Let all that follows read a tensor with 16 bits."""
    if half and writer.network.operands[index].type == T_FLOAT32:
        writer.known[index] = writer.round_to_half(tensor)


def run(model: bytes, inputs: bytes) -> bytes:
    """The bytes of all outputs for the bytes of all inputs."""
    try:
        interpreter = Interpreter(
            model_content=model, experimental_op_resolver_type=OpResolverType.BUILTIN_REF
        )
    except ValueError as error:
        if "Didn't find op" not in str(error):
            raise
        # Some versions of operators have optimized kernels only.
        interpreter = Interpreter(
            model_content=model,
            experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
        )
    interpreter.allocate_tensors()
    at = 0
    for detail in interpreter.get_input_details():
        array = np.zeros(detail["shape"], detail["dtype"])
        array[...] = np.frombuffer(inputs, array.dtype, array.size, at).reshape(array.shape)
        at += array.nbytes
        interpreter.set_tensor(detail["index"], array)
    assert at == len(inputs)
    interpreter.invoke()
    return b"".join(
        interpreter.get_tensor(detail["index"]).tobytes() for detail in interpreter.get_output_details()
    )


def run_rounding_once(model: bytes, inputs: bytes, folder: Path) -> bytes:
    """As `run`, by the references of operators."""
    from mace_core.compilation import read_file
    from mace_core.registry import Registry
    from mace_core.run.reference import execute

    file = folder / "model.tflite"
    file.write_bytes(model)
    graph = read_file(file, Registry.load())
    file.unlink()
    arrays = {}
    at = 0
    for name in graph.inputs:
        tensor = graph.tensors[name]
        arrays[name] = np.frombuffer(inputs, tensor.dtype.numpy, tensor.elements, at).reshape(tensor.shape)
        at += tensor.bytes
    values = execute(graph, arrays)
    return b"".join(np.ascontiguousarray(values[name]).tobytes() for name in graph.outputs)


def main(folder: Path) -> None:
    half = os.environ.get("NEURON_STUB_HALF") == "1"
    model, inputs = translate((folder / "network").read_bytes(), half), (folder / "inputs").read_bytes()
    rounds_once = os.environ.get("NEURON_STUB_ROUNDING") == "once"
    outputs = run_rounding_once(model, inputs, folder) if rounds_once else run(model, inputs)
    (folder / "outputs").write_bytes(outputs)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
