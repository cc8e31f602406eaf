"""Activation functions that are operators of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from types import MappingProxyType

import numpy as np

from mace_frontend_tflite.node import TfliteNode
from mace_frontend_tflite.ops import Handler


def _clip(low: float, high: float) -> Handler:
    return lambda node: node.done("Clip", [node.input(0)], {"min": low, "max": high})


def _unary(op: str) -> Handler:
    return lambda node: node.done(op, [node.input(0)])


def _leaky_relu(node: TfliteNode) -> Sequence[str]:
    return node.done("LeakyRelu", [node.input(0)], {"alpha": node.options("LeakyReluOptions").Alpha()})


def _gelu(node: TfliteNode) -> Sequence[str]:
    # Both forms differ by up to 5e-4, so the file's choice is kept.
    approximate = node.options("GeluOptions").Approximate()
    return node.done("Gelu", [node.input(0)], {"approximate": "tanh" if approximate else "none"})


def _softmax(node: TfliteNode) -> Sequence[str]:
    beta = node.options("SoftmaxOptions").Beta()
    x = node.input(0)
    # The kernel computes exp(beta * x) (kernels/internal/reference/softmax.h). Converters write 1, which
    # needs no node.
    if beta != 1.0:
        scaled = node.add_constant(np.float32(beta), tag="beta")
        x = node.emit("Mul", [x, scaled], tag="scaled")
    # The format has no axis: the kernels take the last one, as for LOG_SOFTMAX below.
    return node.done("Softmax", [x], {"axis": -1})


HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        "RELU": _clip(0.0, inf),
        "RELU6": _clip(0.0, 6.0),
        "RELU_N1_TO_1": _clip(-1.0, 1.0),
        "RELU_0_TO_1": _clip(0.0, 1.0),
        "LOGISTIC": _unary("Sigmoid"),
        "TANH": _unary("Tanh"),
        "HARD_SWISH": _unary("HardSwish"),
        "ELU": _unary("Elu"),
        "LEAKY_RELU": _leaky_relu,
        "GELU": _gelu,
        "SOFTMAX": _softmax,
        "LOG_SOFTMAX": lambda node: node.done("LogSoftmax", [node.input(0)], {"axis": -1}),
        "PRELU": lambda node: node.done("PRelu", [node.input(0), node.input(1)]),
    }
)
