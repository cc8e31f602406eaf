"""remove-dead-channels on quantized and float networks, most of whose weights are zero."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from mace_core.attributes import Attribute
from mace_core.graph_builder import Builder
from mace_core.ir import Array, DType, Graph, Quant, Storage
from mace_core.run.reference import execute
from mace_core.verify import verify
from mace_transform_standard.quantize import remove_dead_channels as module
from mace_transform_standard.quantize.remove_dead_channels import remove_dead_channels

DEFAULT = module.GRANULE

PLAIN = {"strides": (1, 1), "pads_before": (0, 0), "pads_after": (0, 0), "dilations": (1, 1)}
PADDED = {**PLAIN, "pads_before": (1, 1), "pads_after": (1, 1)}


@pytest.fixture(autouse=True)
def single_channels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let any number of channels remain, so that small networks lose some."""
    monkeypatch.setattr(module, "GRANULE", 1)


class Network:
    """A quantized network under construction; activations are int8 with zero points of their own."""

    def __init__(self, seed: int, channels: int = 6, size: int = 5) -> None:
        self.rng = np.random.default_rng(seed)
        self.new = Builder(f"network{seed}")
        self.input = self.new.input("x", DType.I8, (1, size, size, channels), Quant.of(0.05, -3))

    def store(self, zero_point: int | None = None, scale: float | None = None) -> str:
        zero = int(self.rng.choice([-128, -128, 0, 17])) if zero_point is None else zero_point
        step = float(self.rng.uniform(0.02, 0.1)) if scale is None else scale
        return self.new.reserve_output("y", Storage(DType.I8, Quant.of(step, zero)))

    def add(self, op: str, *operands: str, **attrs: Attribute) -> str:
        return self.new.one(op, operands, attrs, outputs=[self.store()])

    def move(self, op: str, *operands: str, **attrs: Attribute) -> str:
        return self.new.one(op, operands, attrs)

    def weights(self, array: Array, axis: int, *, asymmetric: bool = False) -> str:
        count = 1 if asymmetric else array.shape[axis]
        scales = tuple(self.rng.uniform(0.005, 0.02, count).tolist())
        if asymmetric:
            return self.new.weight("w", (array.astype(int) + 128).astype(np.uint8), Quant(scales, (128,)))
        return self.new.weight("w", array.astype(np.int8), Quant(scales, (0,) * count, axis))

    def bias(self, x: str, w: str, values: Array) -> str:
        x_quant, w_quant = self.new.tensors[x].quant, self.new.tensors[w].quant
        assert x_quant is not None
        assert w_quant is not None
        scales = np.broadcast_to(x_quant.scale[0] * np.array(w_quant.scale), values.shape)
        quant = Quant(tuple(scales.tolist()), (0,) * values.size, 0)
        return self.new.weight("b", values.astype(np.int32), quant)

    def random_weights(self, results: int, *shape: int) -> Array:
        """Integers of which most are zero: single ones, whole rows, whole columns."""
        array = self.rng.integers(-128, 128, (results, *shape))
        array[self.rng.random(array.shape) < 0.5] = 0
        array[self.rng.random(results) < 0.5] = 0
        if shape[-1] > 1:
            array[..., self.rng.random(shape[-1]) < 0.3] = 0
        return np.maximum(array, -127)

    def conv(
        self, x: str, kernel: int, *, depthwise: bool = False, results: int = 0, **attrs: Attribute
    ) -> str:
        channels = self.new.shape(x)[-1]
        results = channels if depthwise else results or int(self.rng.integers(3, 9))
        array = self.random_weights(results, kernel, kernel, 1 if depthwise else channels)
        w = self.weights(array, 0, asymmetric=bool(self.rng.random() < 0.2))
        # A large negative bias and a low limit of 0: whatever x is, such a channel is 0.
        bias = self.rng.integers(-3000, 3000, results)
        bias[self.rng.random(results) < 0.2] -= 200_000
        inputs = [x, w, self.bias(x, w, bias)][: 3 if self.rng.random() < 0.8 else 2]
        low = float(self.rng.choice([0.0, -np.inf]))
        attrs = {
            **(PADDED if kernel == 3 else PLAIN),
            **attrs,
            "group": channels if depthwise else 1,
            "low": low,
        }
        return self.add("Conv", *inputs, **attrs)

    def finish(self, *outputs: str) -> Graph:
        return verify(self.new.finish(outputs))


def full_range(graph: Graph, seed: int) -> dict[str, Array]:
    """Return inputs that use the whole range of their type."""
    rng = np.random.default_rng(seed)
    arrays = {}
    for name in graph.inputs:
        tensor = graph.tensors[name]
        if tensor.dtype.is_float:
            arrays[name] = rng.standard_normal(tensor.shape).astype(np.float32)
        else:
            limits = np.iinfo(tensor.dtype.numpy)
            arrays[name] = rng.integers(
                limits.min, limits.max, tensor.shape, tensor.dtype.numpy, endpoint=True
            )
    return arrays


def shrink(before: Graph, tolerance: float = 0.0) -> Graph:
    """The graph after the transform, which computes the same on three inputs."""
    after = verify(remove_dead_channels(before))
    assert (after.inputs, after.outputs) == (before.inputs, before.outputs)
    for seed in range(3):
        inputs = full_range(before, seed)
        expected, actual = execute(before, inputs), execute(after, inputs)
        for name in before.outputs:
            assert after.tensors[name] == before.tensors[name]
            np.testing.assert_allclose(actual[name], expected[name], rtol=0, atol=tolerance)
    return after


def random_network(seed: int) -> Graph:
    """Convolutions, and between them all ops that work channel by channel."""
    net = Network(seed)
    x = net.conv(net.input, 3)
    steps: list[Callable[[str], str]] = [
        lambda x: net.conv(x, 1),
        lambda x: net.conv(x, 3),
        lambda x: net.conv(x, 3, depthwise=True),
        lambda x: net.add("Add", x, net.conv(net.conv(x, 1), 1, results=net.new.shape(x)[-1])),
        lambda x: net.add("Add", net.conv(x, 1, depthwise=True), net.conv(x, 3, depthwise=True)),
        lambda x: net.add("Mul", x, net.new.weight("c", net.rng.random(net.new.shape(x)[-1:]).astype("f4"))),
        lambda x: net.add("Concat", x, net.conv(x, 1), axis=-1),
        lambda x: net.add("Concat", *split(net, x, 1), axis=1),
        lambda x: net.add("Concat", *split(net, x, -1), axis=3),
        lambda x: net.add("HardSwish", x),
        lambda x: net.add("Quantize", x),
        lambda x: net.move("MaxPool", x, kernel=(2, 2), **PADDED),
        lambda x: net.add("AveragePool", x, kernel=(2, 2), count_pad=bool(net.rng.integers(2)), **PADDED),
        lambda x: net.move("Pad", x, before=(0, 1, 0, 0), after=(0, 1, 1, 0), value=0.0),
        lambda x: net.add("Softmax", x, axis=-1),
    ]
    for _ in range(6):
        x = steps[int(net.rng.integers(len(steps)))](x)
    x = net.add("ReduceMean", net.conv(x, 1), axes=(1, 2), keepdims=bool(net.rng.integers(2)))
    flat = net.move("Reshape", x, shape=(1, net.new.shape(x)[-1]))
    w = net.weights(net.random_weights(net.new.shape(x)[-1], 5), 1)
    return net.finish(net.add("MatMul", flat, w, net.bias(flat, w, net.rng.integers(-3000, 3000, 5))))


def split(net: Network, x: str, axis: int) -> tuple[str, ...]:
    return net.new.add("Split", [x], {"axis": axis, "sizes": (2, net.new.shape(x)[axis] - 2)}, outputs=2)


def count_channels(graph: Graph) -> dict[str, int]:
    """Count the channels of each op's results."""
    counts: Counter[str] = Counter()
    for node in graph.nodes:
        for name in node.outputs:
            counts[node.op.name] += graph.tensors[name].shape[-1]
    return dict(counts)


def lose_channels(seeds: range) -> Counter[str]:
    """Count by op the channels that random networks lose."""
    lost: Counter[str] = Counter()
    for seed in seeds:
        before = random_network(seed)
        after = shrink(before)
        lost.update(count_channels(before))
        lost.subtract(count_channels(after))
    return lost


def test_random_networks_keep_every_bit() -> None:
    lost = lose_channels(range(30))
    assert lost["Softmax"] == 0
    assert all(lost[op] > 0 for op in OPS), lost


@pytest.mark.exhaustive
def test_many_random_networks_keep_every_bit() -> None:
    assert lose_channels(range(30, 1500))["Conv"] > 1000


OPS = (
    *("Conv", "Add", "Mul", "Concat", "Split", "HardSwish", "Quantize"),
    *("MaxPool", "AveragePool", "Pad", "ReduceMean", "Reshape"),
)


def one_conv(zero_point: int, bias: int, *, padded: bool, low: float = 0.0) -> Graph:
    """Build three channels, of which the second is constant, and a 3x3 convolution that reads them."""
    net = Network(1, channels=2)
    array = net.rng.integers(1, 100, (3, 1, 1, 2))
    array[1] = 0
    w = net.weights(array, 0)
    bias_values = np.array([5, bias, -7])
    x = net.new.reserve_output("x", Storage(DType.I8, Quant.of(0.05, zero_point)))
    inputs = [net.input, w, net.bias(net.input, w, bias_values)]
    (x,) = net.new.add("Conv", inputs, {**PLAIN, "low": low}, outputs=[x])
    filters = net.weights(net.rng.integers(1, 100, (4, 3, 3, 3)), 0)
    attrs = PADDED if padded else PLAIN
    return net.finish(net.add("Conv", x, filters, **attrs))


@pytest.mark.parametrize(
    ("zero_point", "bias", "padded", "channels"),
    [
        (-128, -4000, True, 2),  # 0 after the limit, as the padding
        (-128, 4000, True, 3),  # another number than the padding: a border would show that it is gone
        (-128, 4000, False, 2),
        (9, 0, True, 2),
        (9, 4000, False, 2),
    ],
)
def test_a_constant_becomes_part_of_the_bias_unless_padding_shows_it(
    zero_point: int, bias: int, padded: bool, channels: int
) -> None:
    after = shrink(one_conv(zero_point, bias, padded=padded))
    assert [after.tensors[node.outputs[0]].shape[-1] for node in after.nodes] == [channels, 4]
    is_added = channels == 2 and ((bias > 0 and zero_point == 9) or not padded)
    assert len(after.nodes[-1].inputs) == (3 if is_added else 2)


def test_a_channel_between_two_steps_is_not_called_constant() -> None:
    """A kernel in single precision might round 2.5 steps up or down."""
    for bias, channels in ((5, 2), (4, 1)):
        net = Network(0, channels=1)
        w = net.new.weight("w", np.array([[[[3]]], [[[0]]]], np.int8), Quant((0.5, 0.5), (0, 0), 0))
        bias_values = net.new.weight("b", np.array([0, bias], np.int32), Quant((0.025,) * 2, (0, 0), 0))
        y = net.new.reserve_output("y", Storage(DType.I8, Quant.of(0.05, 0)))
        (y,) = net.new.add("Conv", [net.input, w, bias_values], PLAIN, outputs=[y])
        last = net.add("Conv", y, net.weights(np.array([[[[2, 3]]]]), 0), **PLAIN)
        after = shrink(net.finish(last))
        assert after.tensors[after.nodes[0].outputs[0]].shape[-1] == channels


def test_a_channel_that_is_only_multiplied_by_zero_goes_backwards() -> None:
    net = Network(0, channels=3)
    filters = net.weights(net.rng.integers(1, 9, (3, 1, 1, 3)), 0)
    x = net.add("HardSwish", net.add("Conv", net.input, filters, **PLAIN))
    array = net.rng.integers(1, 9, (2, 1, 1, 3))
    array[..., 1] = 0
    after = shrink(net.finish(net.add("Conv", x, net.weights(array, 0), **PLAIN)))
    assert [after.tensors[node.outputs[0]].shape[-1] for node in after.nodes] == [2, 2, 2]
    assert "1 channels of convolutions" in after.notes[0]
    assert "left out with 5 weights; 250 of 375 multiplications" in after.notes[0]


@pytest.mark.parametrize("both", [True, False])
def test_a_sum_loses_a_channel_only_if_both_sides_do(both: bool) -> None:
    net = Network(0, channels=3)
    sides = []
    for is_dead in (True, both):
        array = net.rng.integers(1, 9, (3, 1, 1, 3))
        array[2] *= not is_dead
        sides.append(net.add("Conv", net.input, net.weights(array, 0), **PLAIN))
    last = net.weights(net.rng.integers(1, 9, (2, 1, 1, 3)), 0)
    after = shrink(net.finish(net.add("Conv", net.add("Add", *sides), last, **PLAIN)))
    assert after.tensors[after.nodes[2].outputs[0]].shape[-1] == (2 if both else 3)


def test_a_tensor_of_dead_channels_keeps_one() -> None:
    net = Network(0, channels=2)
    x = net.add("Conv", net.input, net.weights(np.zeros((5, 1, 1, 2)), 0), **PLAIN)
    y = net.add("Conv", x, net.weights(net.rng.integers(1, 9, (2, 1, 1, 5)), 0), **PLAIN)
    after = shrink(net.finish(y))
    assert [after.tensors[node.outputs[0]].shape for node in after.nodes] == [(1, 5, 5, 1), (1, 5, 5, 2)]


def test_floats_lose_filters_of_zeros() -> None:
    net = Network(0)
    x = net.new.input("real", DType.F32, (1, 4, 4, 3))
    filters = net.rng.standard_normal((6, 3, 3, 3)).astype("f4")
    filters[[1, 4]] = 0
    bias = net.new.weight("b", np.array([1, -2, 3, 4, 5, 6], "f4"))
    x = net.move("Conv", x, net.new.weight("w", filters), bias, **PADDED, low=0.0)
    x = net.move(
        "Conv", x, net.new.weight("w", net.rng.standard_normal((6, 3, 3, 1)).astype("f4")), **PADDED, group=6
    )
    x = net.move("Conv", x, net.new.weight("w", net.rng.standard_normal((4, 1, 1, 6)).astype("f4")), **PLAIN)
    after = shrink(net.finish(x), tolerance=1e-4)
    # Channel 1 is 0 as the padding is; channel 4 is 5, and the padding shows.
    assert [after.tensors[node.outputs[0]].shape[-1] for node in after.nodes] == [5, 5, 4]


def test_some_channels_stay_so_that_kernels_meet_whole_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GRANULE", DEFAULT)
    net = Network(0, channels=2)
    array = net.rng.integers(1, 9, (24, 1, 1, 2))
    array[3:14] = 0
    x = net.add("Conv", net.input, net.weights(array, 0), **PLAIN)
    last = net.weights(net.rng.integers(1, 9, (2, 1, 1, 24)), 0)
    after = shrink(net.finish(net.add("Conv", x, last, **PLAIN)))
    assert after.tensors[after.nodes[0].outputs[0]].shape[-1] == 16


def test_a_graph_that_a_target_follows_layer_by_layer_stays() -> None:
    graph = replace(one_conv(-128, -4000, padded=True), origin=object())
    assert remove_dead_channels(graph) is graph


def test_sums_that_fill_32_bits_take_in_no_constant() -> None:
    for bias, channels in ((2**31 - 2000, 2), (1000, 1)):
        net = Network(0, channels=1)
        w = net.weights(np.array([[[[3]]], [[[0]]]]), 0)
        x = net.add("Conv", net.input, w, net.bias(net.input, w, np.array([0, 3000])), **PLAIN)
        filters = net.weights(np.full((1, 1, 1, 2), 100), 0)
        y = net.add("Conv", x, filters, net.bias(x, filters, np.array([bias])), **PLAIN)
        after = shrink(net.finish(y))
        assert after.tensors[after.nodes[0].outputs[0]].shape[-1] == channels


def test_a_second_run_finds_nothing() -> None:
    for seed in range(5):
        after = remove_dead_channels(random_network(seed))
        assert remove_dead_channels(after) is after
