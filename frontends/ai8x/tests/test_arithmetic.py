"""What layers compute: the maker's known answers, and PyTorch where it has the same operation."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from references import Reference, references

from mace_core.ir import Array
from mace_frontend_ai8x.arithmetic import outputs
from mace_frontend_ai8x.network import (
    BUFFER,
    INPUT,
    Buffer,
    Eltwise,
    Layer,
    LayerActivation,
    LayerPlacement,
    Network,
    Operation,
    Pool,
    Weights,
)
from mace_frontend_ai8x.options import NetworkOptions
from mace_target_max78000.device import Chip

HWC = LayerPlacement(processors=0xF, output_processors=0xF)


def run(
    layers: list[Layer], sample: Array, options: NetworkOptions | None = None, **network: Any
) -> tuple[Array, ...]:
    places = network.pop("places", (HWC,) * len(layers))
    return outputs(Network("net", tuple(layers), places, sample, **network), options or NetworkOptions())


def passthrough(shape: tuple[int, ...], **changes: Any) -> Layer:
    channels, rows, columns = (*shape, 1)[:3]
    given = {
        "inputs": (INPUT,),
        "channels": channels,
        "dim": (rows, columns),
        "out_channels": channels,
        **changes,
    }
    return Layer("layer", Operation.PASSTHROUGH, **given)


def convolution(operation: Operation, sample: Array, weights: Array, **changes: Any) -> Layer:
    transposed = operation is Operation.CONV_TRANSPOSE2D
    base = passthrough(sample.shape)
    kernel = (*weights.shape[2:], 1, 1)[:2] if weights.ndim > 2 else (1, 1)
    bits, binary = changes.pop("bits", 8), changes.pop("binary", False)
    values = Weights(weights, bits, binary)
    return replace(
        base,
        operation=operation,
        kernel=kernel,
        weights=values,
        out_channels=weights.shape[1 if transposed else 0],
        **changes,
    )


def random(shape: tuple[int, ...], low: int = -128, high: int = 127, seed: int = 0) -> Array:
    return np.random.default_rng(seed).integers(low, high + 1, shape)


def bytes_of(layer: Layer, place: LayerPlacement, device: Chip, output: Array) -> Array:
    """A layer's output as the facts about data memory state it: rows of address, bytes in use and their value, one for each result."""
    slots = np.array([p for p in range(64) if place.output_processors >> p & 1])
    channels, width = layer.out_channels, layer.width // 8
    passes = -(-channels // 64)
    e, rank = np.divmod(np.arange(channels), len(slots))
    slot = slots[rank]
    base = (
        device.data
        + slot // 16 * device.quadrant_pitch
        + slot % 16 // 4 * device.data_pitch
        + place.out_offset
    )
    index = (np.arange(output[0].size) * passes + e[:, None]) * width * (place.write_gap + 1)
    values = output.reshape(channels, -1).astype(np.int64)
    lane = np.broadcast_to(slot[:, None] % 4, values.shape)
    if layer.wide:
        rows = base[:, None] + 4 * (index + lane), np.full(values.shape, 0xFFFFFFFF), values & 0xFFFFFFFF
    else:
        rows = base[:, None] + 4 * index, 0xFF << 8 * lane, (values & 0xFF) << 8 * lane
    return np.stack([row.ravel() for row in rows])


@pytest.mark.sampled(every=9)
@pytest.mark.parametrize(
    "reference", [r for r in references() if "known_answer" in r.content], ids=lambda r: r.name
)
def test_known_answer(reference: Reference) -> None:
    network, device = reference.network, reference.device
    results = outputs(network, reference.options)
    steps = list(zip(network.layers, network.places, results, strict=True))
    assert all(result.shape == (layer.out_channels, *layer.out_dim) for layer, _, result in steps)
    parts = np.concatenate(
        [bytes_of(layer, place, device, result) for layer, place, result in steps if layer.output], axis=1
    )
    addresses, where = np.unique(parts[0], return_inverse=True)
    actual = np.zeros((2, addresses.size), np.int64)
    np.add.at(actual[0], where, parts[1])
    np.add.at(actual[1], where, parts[2])
    checks = reference.known_answer
    expected = np.concatenate(
        [[[c.address + 4 * i, c.mask, v] for i, v in enumerate(c.values)] for c in checks]
    ).T
    if reference.options.max_checklines is None:
        assert expected.shape[1] == addresses.size
    at = np.searchsorted(addresses, expected[0])
    assert np.array_equal(addresses[at], expected[0])
    assert np.array_equal(actual[:, at], expected[1:])


@pytest.mark.exhaustive
@pytest.mark.slow
def test_convolutions_are_pytorchs() -> None:
    torch = pytest.importorskip("torch")
    functional = torch.nn.functional
    for seed, (pad, dilation, kernel) in enumerate(product((0, 1, 2), (1, 2), (1, 3))):
        x, w = random((5, 9, 8), seed=seed), random((7, 5, kernel, kernel), seed=seed + 50)
        layer = convolution(Operation.CONV2D, x, w, pad=(pad, pad), dilation=(dilation, dilation), wide=True)
        expected = functional.conv2d(torch.tensor(x)[None], torch.tensor(w), padding=pad, dilation=dilation)[
            0
        ]
        assert np.array_equal(run([layer], x)[0], expected.numpy())


def test_depthwise_is_pytorchs() -> None:
    torch = pytest.importorskip("torch")
    x, w = random((6, 5, 7)), random((6, 1, 3, 3), seed=1)
    layer = convolution(Operation.CONV2D, x, w, pad=(1, 1), groups=6, wide=True)
    expected = torch.nn.functional.conv2d(torch.tensor(x)[None], torch.tensor(w), padding=1, groups=6)[0]
    assert np.array_equal(run([layer], x)[0], expected.numpy())


@pytest.mark.parametrize("pad", [0, 1, 2])
def test_transposed_is_pytorchs(pad: int) -> None:
    torch = pytest.importorskip("torch")
    x, w = random((3, 4, 6)), random((3, 5, 3, 3), seed=1)
    layer = convolution(Operation.CONV_TRANSPOSE2D, x, w, pad=(pad, pad), wide=True)
    parameters = {"stride": 2, "padding": pad, "output_padding": 1}
    expected = torch.nn.functional.conv_transpose2d(
        torch.tensor(x)[None].double(), torch.tensor(w).double(), **parameters
    )[0]
    assert run([layer], x)[0].shape[1:] == layer.out_dim
    assert np.array_equal(run([layer], x)[0], expected.numpy())


@pytest.mark.parametrize(
    ("length", "dilation", "pad"), [(1, 1, 0), (2, 13, 0), (3, 7, 0), (9, 1, 3), (4, 2, 1)]
)
def test_one_dimensional_is_pytorchs(length: int, dilation: int, pad: int) -> None:
    torch = pytest.importorskip("torch")
    x, w = random((3, 40)), random((5, 3, length), seed=1)
    layer = convolution(Operation.CONV1D, x, w, pad=(pad, 0), dilation=(dilation, 1), wide=True)
    expected = torch.nn.functional.conv1d(
        torch.tensor(x)[None], torch.tensor(w), padding=pad, dilation=dilation
    )[0]
    assert np.array_equal(run([layer], x)[0][:, :, 0], expected.numpy())


def test_max_pool_is_pytorchs() -> None:
    torch = pytest.importorskip("torch")
    x = random((3, 12, 11))
    for size, stride, dilation in (((2, 3), 2, (1, 1)), ((3, 3), 3, (2, 1)), ((4, 1), 1, (1, 1))):
        layer = passthrough(x.shape, pool=Pool(False, size, stride, dilation))
        expected = torch.nn.functional.max_pool2d(torch.tensor(x)[None].double(), size, stride, 0, dilation)[
            0
        ]
        assert np.array_equal(run([layer], x)[0], expected.numpy())


def test_sums_beyond_single_precision_are_exact() -> None:
    x = np.full((1024, 3, 3), -128)
    w = np.full((2, 1024, 3, 3), -128)
    w[1, 0, 0, 0] = -127
    layer = convolution(Operation.CONV2D, x, w, bias=np.array([1, -1]), wide=True)
    exact = 1024 * 9 * 128 * 128
    assert run([layer], x)[0].ravel().tolist() == [exact + 128, exact - 128 - 128]


@pytest.mark.parametrize("shift", range(-15, 16))
def test_narrowing_rounds_halves_up_and_saturates(shift: int) -> None:
    x = random((1, 20, 20))
    bias = np.array([-3])
    layer = convolution(Operation.CONV2D, x, np.array([[[[77]]]]), bias=bias, shift=shift)
    exact = (x * 77 + 128 * bias[0]) * 2.0**shift / 128
    assert np.array_equal(run([layer], x)[0], np.clip(np.floor(0.5 + exact), -128, 127))


def test_activations() -> None:
    x = np.array([[[-128, -5, 0, 127]]])
    identity = convolution(Operation.CONV2D, x, np.array([[[[64]]]]), shift=1)
    assert run([replace(identity, activation=LayerActivation.RELU)], x)[0].ravel().tolist() == [0, 0, 0, 127]
    assert run([replace(identity, activation=LayerActivation.ABS)], x)[0].ravel().tolist() == [127, 5, 0, 127]
    assert run([identity], x)[0].ravel().tolist() == [-128, -5, 0, 127]


MEANS = np.array([[[-3, 0, 0, 3, 0, 0, -2, 0, 5, 0]]])
"""Pairs whose means are -1.5, 1.5, 0, -1, 2.5."""


@pytest.mark.parametrize(
    ("rounding", "documented", "expected"),
    [
        (False, False, [-1, 1, 0, -1, 2]),
        (False, True, [-2, 1, 0, -1, 2]),
        (True, False, [-2, 2, 0, -1, 3]),
        (True, True, [-1, 2, 0, -1, 3]),
    ],
)
def test_average_pool_follows_tool_or_document(rounding: bool, documented: bool, expected: list[int]) -> None:
    layer = passthrough(MEANS.shape, pool=Pool(True, (1, 2), 2))
    layer = replace(layer, dim=(1, 10))
    assert (
        run([layer], MEANS, NetworkOptions(avg_pool_rounding=rounding, documented=documented))[0]
        .ravel()
        .tolist()
        == expected
    )


def test_quirks_of_one_dimensional_layers() -> None:
    average = replace(
        convolution(Operation.CONV1D, MEANS[:, 0], np.array([[[64]]]), shift=1), pool=Pool(True, (2, 1), 2)
    )
    rounding = NetworkOptions(avg_pool_rounding=True)
    assert run([average], MEANS[:, 0], rounding)[0].ravel().tolist() == [-1, 1, 0, -1, 2]
    assert run([average], MEANS[:, 0], replace(rounding, documented=True))[0].ravel().tolist() == [
        -1,
        2,
        0,
        -1,
        3,
    ]
    x = np.array([[1, 2, 9, 4, 5]])
    largest = replace(
        convolution(Operation.CONV1D, x, np.array([[[64]]]), shift=1), pool=Pool(False, (2, 1), 1, (2, 1))
    )
    assert run([largest], x)[0].ravel().tolist() == [2, 9, 9]
    assert run([largest], x, NetworkOptions(documented=True))[0].ravel().tolist() == [9, 4, 9]


@pytest.mark.parametrize(
    ("eltwise", "expected"),
    [
        (Eltwise.ADD, [127, -128, 0]),
        (Eltwise.SUB, [0, 72, 20]),
        (Eltwise.OR, [100, -4, -2]),
        (Eltwise.XOR, [0, 120, -4]),
    ],
)
def test_operands_are_combined_exactly_and_saturated_once(eltwise: Eltwise, expected: list[int]) -> None:
    a, b = [100, -28, 10], [100, -100, -10]
    sample = np.array([a, b]).reshape(2, 1, 3)
    layer = passthrough((1, 1, 3), eltwise=eltwise, operands=2)
    assert run([layer], sample)[0].ravel().tolist() == expected


def test_three_operands_are_saturated_after_the_last() -> None:
    sample = np.array([100, 100, -100]).reshape(3, 1, 1)
    assert run([passthrough((1, 1, 1), eltwise=Eltwise.ADD, operands=3)], sample)[0].item() == 100
    assert run([passthrough((1, 1, 1), eltwise=Eltwise.SUB, operands=3)], sample)[0].item() == 100


def test_pool_before_and_after_the_element_wise_operation() -> None:
    sample = np.array([[1, 5], [7, 2]]).reshape(2, 1, 2)
    layer = passthrough((1, 1, 2), eltwise=Eltwise.ADD, operands=2, pool=Pool(False, (1, 2), 1))
    assert run([layer], sample)[0].item() == 5 + 7
    assert run([replace(layer, pool_first=False)], sample)[0].item() == max(1 + 7, 5 + 2)


def test_operands_in_one_layers_output_by_channel_or_by_position() -> None:
    sample = np.array([[1, 2, 3, 4]]).reshape(1, 1, 4)
    first = passthrough(sample.shape)
    total = passthrough((1, 1, 2), inputs=(0,), eltwise=Eltwise.ADD, operands=2)
    assert run([first, total], sample)[1].ravel().tolist() == [1 + 3, 2 + 4]
    assert run([first, total], sample, NetworkOptions(documented=True))[1].ravel().tolist() == [1 + 2, 3 + 4]


def test_joined_inputs_crop_and_flattening() -> None:
    x = random((2, 4, 3))
    layers = [passthrough(x.shape), passthrough((4, 2, 3), inputs=(INPUT, 0))]
    places = (HWC, replace(HWC, in_crop=(1, 1)))
    joined = run(layers, x, places=places)[1]
    assert np.array_equal(joined, np.concatenate((x, x))[:, 1:3])
    w = random((5, 24), seed=1)
    flat = convolution(Operation.LINEAR, x, w, flatten=True, wide=True)
    assert np.array_equal(run([flat], x)[0].ravel(), w @ x.ravel())


def test_buffers_begin_with_zeros_and_keep_what_layers_write() -> None:
    buffer = Buffer("last", 0xF, 2, (4, 1), 0x100)
    sample = np.array([[3], [4]])
    shift = passthrough((2, 3), inputs=(BUFFER,))
    insert = passthrough((2, 1), inputs=(INPUT,))
    read = passthrough((2, 4), inputs=(BUFFER,))
    places = (
        replace(HWC, in_offset=0x104, out_offset=0x100),
        replace(HWC, out_offset=0x10C),
        replace(HWC, in_offset=0x100),
    )
    results = run([shift, insert, read], sample, places=places, buffers=(buffer,))
    assert results[2].reshape(2, 4).tolist() == [[0, 0, 0, 3], [0, 0, 0, 4]]


def test_binary_weights_and_subsampling() -> None:
    x = random((2, 5, 5))
    w = np.array([[[[1]], [[-1]]]])
    layer = convolution(Operation.CONV2D, x, w, bits=1, binary=True, shift=7, stride=2)
    assert np.array_equal(run([layer], x)[0], np.clip(x[:1, ::2, ::2] - x[1:, ::2, ::2], -128, 127))


def test_a_layer_behind_one_that_a_condition_leaves_out_reads_the_data_before() -> None:
    sample = np.arange(-8, 8).reshape(1, 4, 4)
    double = convolution(Operation.CONV2D, sample, np.full((1, 1, 1, 1), 127), shift=1)
    layers = [
        passthrough(sample.shape),
        replace(double, inputs=(0,), name="left out"),
        passthrough(sample.shape, inputs=(1,)),
        passthrough(sample.shape, inputs=(2,)),
    ]
    all_run = run(layers, sample)
    assert np.array_equal(all_run[3], all_run[1])
    assert not np.array_equal(all_run[1], all_run[0])
    some_run = run(layers, sample, sampled=(0, 2, 3))
    assert np.array_equal(some_run[2], some_run[0])
    assert np.array_equal(some_run[3], some_run[0])
