"""A small network of eight bits as a TensorFlow Lite file, whose results show how it rounds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from interpreter_cases import Draw, product, value
from tflite_write import Scales, Step, TableFields, Value, Written, write

from mace_core.ir import Array, DType, Shape

SIZE, CHANNELS = 12, 3
INPUT = (1, SIZE, SIZE, CHANNELS)
OUTPUTS = ("sum", "classes")
I8 = DType.I8
CONV: TableFields = {"StrideH": 1, "StrideW": 1, "DilationHFactor": 1, "DilationWFactor": 1, "Padding": 0}


class Network:
    """Operators that are added one after another, with random weights."""

    def __init__(self) -> None:
        self.draw = Draw(np.random.default_rng(7))
        self.values: dict[str, Value] = {}
        self.steps: list[Step] = []

    def tensor(self, name: str, shape: Shape, scales: Scales) -> str:
        """Add a computed tensor."""
        self.values[name] = _named(name, value(I8, shape, scales))
        return name

    def product(self, name: str, x: str, weights: tuple[Shape, int], options: tuple[str, TableFields]) -> str:
        """Add CONV_2D, DEPTHWISE_CONV_2D or FULLY_CONNECTED, named by its options.

        weights: their shape, and the axis of their outputs.
        """
        shape, axis = weights
        depth = int(np.prod(shape)) // shape[axis]
        w, b, y = product(self.draw, I8, self.values[x], (shape, axis, len(shape) == len(INPUT)), depth)
        self.values[f"{name}/w"], self.values[f"{name}/b"] = _named(f"{name}/w", w), _named(f"{name}/b", b)
        before = self.values[x].shape
        stride = int(options[1].get("StrideH", 1))
        out = (*before[:1], *(-(-n // stride) for n in before[1:-1]), shape[axis])
        code = {"Conv2DOptions": "CONV_2D", "DepthwiseConv2DOptions": "DEPTHWISE_CONV_2D"}
        self.tensor(name, out, y)
        operator = code.get(options[0], "FULLY_CONNECTED")
        self.steps.append(Step(operator, [x, f"{name}/w", f"{name}/b"], [name], options, version=3))
        return name


def _named(name: str, tensor: Value) -> Value:
    return Value(name, tensor.dtype, tensor.shape, tensor.data, tensor.scales)


def write_network(file: Path) -> None:
    """Write it: convolutions, a depthwise one, a sum, a mean, a product and Softmax."""
    net = Network()
    net.tensor("x", INPUT, Scales((2.0**-16,), (-5,)))
    relu6 = {**CONV, "FusedActivationFunction": 3}
    first = net.product("first", "x", ((21, 3, 3, CHANNELS), 0), ("Conv2DOptions", relu6))
    strided = {**CONV, "StrideH": 2, "StrideW": 2, "DepthMultiplier": 1}
    middle = net.product("middle", first, ((1, 3, 3, 21), 3), ("DepthwiseConv2DOptions", strided))
    left = net.product("left", middle, ((37, 1, 1, 21), 0), ("Conv2DOptions", CONV))
    right = net.product("right", left, ((37, 1, 1, 37), 0), ("Conv2DOptions", CONV))
    scale = max(float(y.scale[0]) for side in (left, right) if (y := net.values[side].scales))
    net.tensor("sum", net.values[left].shape, Scales((float(np.float32(1.3 * scale)),), (9,)))
    net.steps.append(Step("ADD", [left, right], ["sum"], ("AddOptions", {}), version=2))
    net.tensor("mean", (1, 37), Scales((float(np.float32(0.6 * scale)),), (-3,)))
    net.values["axes"] = _named("axes", Value.constant("", np.array([1, 2], np.int32)))
    net.steps.append(
        Step("MEAN", ["sum", "axes"], ["mean"], ("ReducerOptions", {"KeepDims": False}), version=2)
    )
    logits = net.product("logits", "mean", ((10, 37), 0), ("FullyConnectedOptions", {}))
    net.tensor("classes", (1, 10), Scales((1 / 256,), (-128,)))
    net.steps.append(Step("SOFTMAX", [logits], ["classes"], ("SoftmaxOptions", {"Beta": 1.0}), version=2))
    file.write_bytes(write(Written([*net.values.values()], net.steps, ["x"], list(OUTPUTS))))


def draw_inputs(count: int) -> Array:
    """Random inputs, and the ends of their type, in a leading axis."""
    arrays = np.random.default_rng(11).integers(-128, 128, (count, *INPUT), np.int8)
    arrays[0], arrays[1] = -128, 127
    return arrays
