"""Activation functions: as layers, and as settings of others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf
from types import MappingProxyType
from typing import Any

from mace_core.importer import RefusedError
from mace_frontend_keras.layer import read_layer
from mace_frontend_keras.network import LayerCall, Ref
from mace_frontend_keras.node import KerasNode
from mace_frontend_keras.ops import Handler, handlers

Attrs = Mapping[str, Any]
Composite = Callable[[KerasNode, str], Sequence[str]]

SIMPLE: Mapping[str, tuple[str, Attrs]] = MappingProxyType(
    {
        "relu": ("Relu", {}),
        "relu6": ("Clip", {"min": 0.0, "max": 6.0}),
        "elu": ("Elu", {}),
        "selu": ("Selu", {}),
        "celu": ("Celu", {}),
        "gelu": ("Gelu", {}),
        "tanh": ("Tanh", {}),
        "sigmoid": ("Sigmoid", {}),
        "hard_sigmoid": ("HardSigmoid", {"alpha": 1 / 6}),
        "silu": ("Swish", {}),
        "swish": ("Swish", {}),
        "hard_silu": ("HardSwish", {}),
        "hard_swish": ("HardSwish", {}),
        "softplus": ("Softplus", {}),
        "softsign": ("Softsign", {}),
        "exponential": ("Exp", {}),
        "mish": ("Mish", {}),
        # The function has another slope than the layer LeakyReLU, 0.3.
        "leaky_relu": ("LeakyRelu", {"alpha": 0.2}),
        "softmax": ("Softmax", {}),
        "log_softmax": ("LogSoftmax", {}),
        "soft_shrink": ("Shrink", {"bias": 0.5, "lambd": 0.5}),
        "hard_shrink": ("Shrink", {"bias": 0.0, "lambd": 0.5}),
        "hard_tanh": ("Clip", {"min": -1.0, "max": 1.0}),
        "sparse_sigmoid": ("HardSigmoid", {"alpha": 0.5}),
        "linear": ("Identity", {}),
    }
)
"""Functions that are one op of the IR."""

OLD_HARD_SIGMOID: tuple[str, Attrs] = ("HardSigmoid", {"alpha": 0.2})
"""Keras 2 computes 0.2 x + 0.5, Keras 3 x / 6 + 0.5."""


def _log_sigmoid(node: KerasNode, x: str) -> Sequence[str]:
    """Add log(sigmoid(x)) as -softplus(-x), which neither overflows nor loses small results."""
    return node.done("Neg", [node.emit("Softplus", [node.emit("Neg", [x])])])


def _tanh_shrink(node: KerasNode, x: str) -> Sequence[str]:
    return node.done("Sub", [x, node.emit("Tanh", [x])])


def squareplus(node: KerasNode, x: str, b: float = 4.0) -> Sequence[str]:
    """Add (x + sqrt(x * x + b)) / 2."""
    root = node.emit("Sqrt", [node.emit("Add", [node.emit("Mul", [x, x]), node.add_float(b)])])
    return node.done("Mul", [node.emit("Add", [x, root]), node.add_float(0.5)])


def _sparse_plus(node: KerasNode, x: str) -> Sequence[str]:
    """Add the function that is 0 up to -1, (x + 1) ** 2 / 4 up to 1, and x from there on."""
    # The clamped square is 1 from 1 on, where x is 1 + (x - 1): so both pieces add up without a choice.
    near = node.emit("Clip", [node.emit("Add", [x, node.add_float(1.0)])], {"min": 0.0, "max": 2.0})
    square = node.emit("Mul", [node.emit("Mul", [near, near]), node.add_float(0.25)])
    return node.done("Add", [square, node.emit("Relu", [node.emit("Sub", [x, node.add_float(1.0)])])])


def glu(node: KerasNode, x: str, axis: int = -1) -> Sequence[str]:
    """Add the first half of an axis times the sigmoid of the second."""
    shape = node.shape(x)
    axis = node.axis(axis, len(shape))
    node.require_consistent(shape[axis] % 2 == 0, f"it multiplies halves of {shape[axis]} elements")
    half = shape[axis] // 2
    names = [node.builder.fresh(f"{node.name}/half{i}") for i in range(2)]
    first, second = node.builder.add(
        "Split", [x], {"axis": axis, "sizes": (half, half)}, outputs=names, like=node.origin
    )
    return node.done("Mul", [first, node.emit("Sigmoid", [second])])


COMPOSITE: Mapping[str, Composite] = MappingProxyType(
    {
        "log_sigmoid": _log_sigmoid,
        "tanh_shrink": _tanh_shrink,
        "squareplus": squareplus,
        "sparse_plus": _sparse_plus,
        "glu": glu,
    }
)


def function_name(setting: Any) -> str | None:
    """Return the name of the function that a setting means; None if it means a layer."""
    # Keras 3 writes a function as a dictionary, some registered ones with their package: "keras>relu".
    if isinstance(setting, dict):
        named = setting.get("class_name") == "function" and isinstance(setting.get("config"), str)
        return str(setting["config"]).rpartition(">")[2] if named else None
    return str(setting)


def simple_op(node: KerasNode, name: str | None) -> tuple[str, Attrs] | None:
    """Return the op of a function that is one, as the version of Keras that wrote the file computes it."""
    if name == "hard_sigmoid" and node.importer.source.version == 2:
        return OLD_HARD_SIGMOID
    return SIMPLE.get(name or "")


def activate(node: KerasNode, x: str, setting: Any) -> Sequence[str]:
    """Add the call's result: an activation of a tensor."""
    name = function_name(setting)
    known = simple_op(node, name)
    if known:
        op, attrs = known
        return node.done(op, [x], attrs)
    if name is not None and name in COMPOSITE:
        return COMPOSITE[name](node, x)
    if name is None and isinstance(setting, dict) and setting.get("class_name") in HANDLERS:
        # A layer as an activation: its handler reads its input by name, as that of any call.
        before = Ref(f"{node.name}/before")
        node.importer.results.values[before.name] = x
        layer = read_layer(setting, f"{node.layer.name}/activation", f"{node.layer.path}/activation")
        inner = KerasNode(LayerCall(node.name, layer, [before]), node.importer)
        results = handlers()[layer.kind](inner)
        inner.refuse_unread()
        return results
    remedy = "use one of Keras's own, or cut the graph before it with output_tensors"
    raise RefusedError(f"activation {name or setting.get('class_name')!r} is not supported; {remedy}")


def done_with_activation(
    node: KerasNode, op: str, inputs: Sequence[str], attrs: Mapping[str, Any] | None = None
) -> Sequence[str]:
    """Add the call's result: an op, then the layer's activation."""
    setting = node.get("activation", "linear")
    if setting == "linear" or function_name(setting) == "linear":
        return node.done(op, inputs, attrs)
    return activate(node, node.emit(op, inputs, attrs), setting)


def _activation(node: KerasNode) -> Sequence[str]:
    return activate(node, node.float_input(), node.get("activation", "linear"))


def done_rectified(node: KerasNode, x: str, settings: tuple[float, float | None, float]) -> Sequence[str]:
    """Add x from the threshold up to the maximum; below the threshold, slope * (x - threshold).

    settings: slope, maximum (None for none), threshold.
    """
    slope, maximum, threshold = settings
    # Most layers are one op of the IR, which can be fused with the layer before.
    if slope == 0 and threshold == 0:
        if maximum is None:
            return node.done("Relu", [x])
        return node.done("Clip", [x], {"min": 0.0, "max": maximum})
    if maximum is None and slope and threshold == 0:
        return node.done("LeakyRelu", [x], {"alpha": slope})
    if maximum is None and slope == 0:
        return node.done("ThresholdedRelu", [x], {"alpha": threshold})
    above = node.emit("ThresholdedRelu", [x], {"alpha": threshold}) if threshold else node.emit("Relu", [x])
    if maximum is not None:
        above = node.emit("Clip", [above], {"min": 0.0, "max": maximum})
    below = node.emit("Relu", [node.emit("Sub", [node.add_float(threshold), x])])
    return node.done("Sub", [above, node.emit("Mul", [below, node.add_float(slope)])])


def _relu(node: KerasNode) -> Sequence[str]:
    maximum = None if node.get("max_value") is None else node.real("max_value", inf)
    settings = (node.real("negative_slope", 0.0), maximum, node.real("threshold", 0.0))
    return done_rectified(node, node.float_input(), settings)


def _leaky(node: KerasNode) -> Sequence[str]:
    # Keras 2 calls the slope alpha.
    key = "negative_slope" if node.get("negative_slope") is not None else "alpha"
    return node.done("LeakyRelu", [node.float_input()], {"alpha": node.real(key, 0.3)})


def _prelu(node: KerasNode) -> Sequence[str]:
    return node.done("PRelu", [node.float_input(), node.weight("alpha")])


def softmax(node: KerasNode, x: str, axis: Any) -> Sequence[str]:
    """Add the softmax along an axis, or along several as one."""
    axes = node.axes(axis, len(node.shape(x)))
    if len(axes) == 1:
        return node.done("Softmax", [x], {"axis": axes[0]})
    # The IR's Softmax has one axis. The logarithm of the sum of exponentials is computed without overflow, as
    # the softmax.
    return node.done("Exp", [node.emit("Sub", [x, node.emit("ReduceLogSumExp", [x], {"axes": axes})])])


def _softmax(node: KerasNode) -> Sequence[str]:
    node.refuse_unless(
        len(node.call.args) < 2 and node.keyword("mask") is None,
        "it is given a mask; apply it before the layer",
    )
    return softmax(node, node.float_input(), node.get("axis", -1))


HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        "Activation": _activation,
        "ReLU": _relu,
        "LeakyReLU": _leaky,
        "PReLU": _prelu,
        "ELU": lambda node: node.done("Elu", [node.float_input()], {"alpha": node.real("alpha", 1.0)}),
        "ThresholdedReLU": lambda node: node.done(
            "ThresholdedRelu", [node.float_input()], {"alpha": node.real("theta", 1.0)}
        ),
        "Softmax": _softmax,
    }
)
