"""LSTM, GRU and RNN: the inputs' products for all steps at once, then one kernel that walks the steps."""

from __future__ import annotations

from collections.abc import Mapping

from mace_core.emit.text import Code
from mace_core.ir import DType, Node, Tensor
from mace_core.lowering import Lower, Lowering, Refused
from mace_core.ops import gru, lstm, rnn
from mace_core.ops.gru import GRUAttributes
from mace_core.ops.lstm import LSTMAttributes
from mace_core.ops.rnn import DIRECTIONS, RecurrentActivation, RecurrentAttributes, activations
from mace_target_opencl.enqueue import GROUP, Launch, enqueue
from mace_target_opencl.lower.packing import WeightOrder, pack
from mace_target_opencl.lower.product import MatrixProduct, enqueue_product
from mace_target_opencl.types import literal, need_floats
from mace_target_opencl.views import View

INPUTS = ("x", "w", "r", "b", "lengths", "h0", "c0", "p")
OUTPUTS = ("y", "yh", "yc")
GATES: Mapping[str, int] = {"LSTM": 4, "GRU": 3, "RNN": 1}
DEFAULTS: Mapping[str, tuple[str, ...]] = {"LSTM": lstm.DEFAULTS, "GRU": gru.DEFAULTS, "RNN": rnn.DEFAULTS}

EXPRESSIONS: Mapping[str, str] = {
    "Relu": "v < 0.0f ? 0.0f : v",
    "Tanh": "tanh(v)",
    "Sigmoid": "1.0f / (1.0f + exp(-v))",
    "Affine": "ALPHA * v + BETA",
    "LeakyRelu": "v < 0.0f ? ALPHA * v : v",
    "ThresholdedRelu": "v > ALPHA ? v : 0.0f",
    "ScaledTanh": "ALPHA * tanh(BETA * v)",
    # Not clamp, which makes a number of NaN.
    "HardSigmoid": "ALPHA * v + BETA < 0.0f ? 0.0f : ALPHA * v + BETA > 1.0f ? 1.0f : ALPHA * v + BETA",
    "Elu": "v < 0.0f ? ALPHA * expm1(v) : v",
    "Softsign": "v / (1.0f + fabs(v))",
    "Softplus": "fmax(v, 0.0f) + log1p(exp(-fabs(v)))",
}

MAX_HIDDEN = 1024
"""Hidden units whose states, four floats each for GRU, take 16 of the full profile's 32 KiB of local memory.

The embedded profile guarantees 1 KiB; the driver refuses a device with less than a kernel wants.
"""


def recurrent(node: Node, lowering: Lowering) -> None:
    """Any of the three, in f32."""
    op, attrs = node.op.name, node.attrs
    assert isinstance(attrs, RecurrentAttributes)
    operands = {name: tensor for name, tensor in zip(INPUTS, node.inputs, strict=False) if tensor}
    results = {name: tensor for name, tensor in zip(OUTPUTS, node.outputs, strict=False) if tensor}
    need_floats(*(lowering.tensors[tensor] for name, tensor in operands.items() if name != "lengths"))
    if attrs.hidden > MAX_HIDDEN:
        reason = f"has {attrs.hidden} hidden units; the OpenCL kernel keeps the states of {MAX_HIDDEN}"
        raise Refused(reason, code="too-large")
    if "y" not in results:
        results["y"] = lowering.temporary(_describe_y(node, lowering))
    gates = GATES[op]
    time, batch, width = lowering.shape(operands["x"])
    directions, rows, hidden = len(DIRECTIONS[attrs.direction]), gates * attrs.hidden, attrs.hidden
    products = lowering.temporary(Tensor(f"{node.inputs[0]}.w", DType.F32, (time, batch, directions, rows)))
    product = MatrixProduct(
        operands["x"],
        pack(lowering, node, operands["w"], WeightOrder((directions, rows, width), (0, 2, 1))),
        products,
        time * batch,
        rows,
        width,
        (width, rows, directions * rows),
        directions,
        # Both directions read the same inputs.
        (View((), ()), View.of([(directions, rows * width)]), View.of([(directions, rows)])),
    )
    enqueue_product(lowering, node, product)
    r = pack(lowering, node, operands["r"], WeightOrder((directions, rows, hidden), (0, 2, 1)))
    functions = tuple(tuple(map(_express, row)) for row in activations(attrs, DEFAULTS[op]))
    constants = {
        "time": time,
        "batch": batch,
        "hidden": hidden,
        "directions": directions,
        "gates": gates,
        "cell": Code(op),
        "has": (*operands, *results),
        "lanes": GROUP,
        "functions": functions,
        "distinct": tuple(dict.fromkeys(functions)),
        "backwards": tuple(int(is_backwards) for is_backwards in DIRECTIONS[attrs.direction]),
        **_options(attrs),
    }
    reads = {"xw": products, "r": r, **{k: v for k, v in operands.items() if k not in ("x", "w", "r")}}
    groups = directions * batch * GROUP
    enqueue(lowering, node, Launch("recurrent", reads, results, (groups,), constants, (GROUP,)))


def _options(attrs: RecurrentAttributes) -> dict[str, object]:
    return {
        "clip": literal(attrs.clip) if attrs.clip else 0,
        "linear": isinstance(attrs, GRUAttributes) and attrs.linear_before_reset,
        "coupled": isinstance(attrs, LSTMAttributes) and attrs.coupled,
        "cell_clip": literal(attrs.cell_clip) if isinstance(attrs, LSTMAttributes) and attrs.cell_clip else 0,
    }


def _describe_y(node: Node, lowering: Lowering) -> Tensor:
    """Return a tensor for the states of all steps, which the model does not want."""
    x, r = lowering.shape(node.inputs[0]), lowering.shape(node.inputs[2])
    return Tensor(f"{node.inputs[0]}.states", DType.F32, (x[0], r[0], x[1], r[-1]))


def _express(activation: RecurrentActivation) -> Code:
    """Return an activation as an expression of v."""
    text = EXPRESSIONS[activation.name]
    alpha, beta = literal(activation.alpha or 0.0), literal(activation.beta or 0.0)
    return Code(text.replace("ALPHA", alpha).replace("BETA", beta))


LOWERINGS: Mapping[str, Lower] = dict.fromkeys(GATES, recurrent)
