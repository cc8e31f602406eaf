"""The vendor's network description: every key, and defaults that depend on others."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from described_files import HEAD, DescriptionFile, parameters, zeros

from mace_core.errors import MaceError
from mace_frontend_ai8x.arithmetic import outputs
from mace_frontend_ai8x.network import BUFFER, INPUT, STOP, Eltwise, LayerActivation, Operation, Pool
from mace_frontend_ai8x.options import NetworkOptions
from mace_target_max78000.check import find_faults
from mace_target_max78000.device import MAX78000
from mace_target_max78000.options import Options


@pytest.fixture
def files(tmp_path: Path) -> DescriptionFile:
    return DescriptionFile(tmp_path)


@pytest.mark.parametrize("key", ["op", "operation", "operator", "convolution"])
@pytest.mark.parametrize(
    ("word", "operation", "eltwise"),
    [
        ("Conv2d", Operation.CONV2D, None),
        ("ConvTranspose2d", Operation.CONV_TRANSPOSE2D, None),
        ("FC", Operation.LINEAR, None),
        ("mlp", Operation.LINEAR, None),
        ("Linear", Operation.LINEAR, None),
        ("None", Operation.PASSTHROUGH, None),
        ("passthrough", Operation.PASSTHROUGH, None),
        ("Add", Operation.PASSTHROUGH, Eltwise.ADD),
        ("sub", Operation.PASSTHROUGH, Eltwise.SUB),
        ("BitwiseXor", Operation.PASSTHROUGH, Eltwise.XOR),
        ("xor", Operation.PASSTHROUGH, Eltwise.XOR),
        ("bitwiseor", Operation.PASSTHROUGH, Eltwise.OR),
        ("or", Operation.PASSTHROUGH, Eltwise.OR),
    ],
)
def test_operations_by_all_their_names(
    files: DescriptionFile, key: str, word: str, operation: Operation, eltwise: Eltwise | None
) -> None:
    shape = (2, 2) if operation is Operation.LINEAR else (2, 2, 3, 3)
    (layer,) = files.read(
        f"layers:\n  - {key}: {word}\n    processors: 0x3\n",
        parameters(shape),
        zeros(2 if eltwise is None else 4, 8, 8),
    ).layers
    assert (layer.operation, layer.eltwise) == (operation, eltwise)
    assert layer.channels == 2
    assert layer.pad == {Operation.CONV2D: (1, 1), Operation.CONV_TRANSPOSE2D: (1, 1)}.get(operation, (0, 0))
    assert layer.operands == (1 if eltwise is None else 2)


def test_a_layer_without_anything_is_a_3x3_convolution(files: DescriptionFile) -> None:
    network = files.read(
        "layers:\n  - processors: 0000.0000.0000.00ff\n", parameters((6, 8, 3, 3)), zeros(8, 5, 6)
    )
    (layer,), (place,) = network.layers, network.places
    assert (layer.operation, layer.kernel, layer.pad, layer.out_dim) == (
        Operation.CONV2D,
        (3, 3),
        (1, 1),
        (5, 6),
    )
    assert (layer.name, layer.inputs, layer.output, layer.activation) == (
        "layer0",
        (INPUT,),
        True,
        LayerActivation.NONE,
    )
    assert (place.processors, place.output_processors, place.in_offset, place.out_offset) == (
        0xFF,
        0x3F,
        0,
        0,
    )


EVERYTHING = """
output_map: 0x0000.0000.0000.0ff0
bias: test
unload:
  - processors: 0x0ff0
    channels: 8
    dim: [4, 4]
    offset: 0x40
    width: 32
    write_gap: 1
layers:
  - name: first
    sequence: 3
    processors: 0x01
    out_offset: 0x100
    in_offset: 0x80
    data_format: big
    kernel_size: 1x1
    pad: 0
    activate: relu
    output_shift: -2
    bias_group: [0, 1]
    output: yes
  - name: second
    sequence: 10
    in_sequences: first
    next_sequence: stop
    processors: 0x3
    out_offset: 0x200
    max_pool: [2, 3]
    pool_stride: [2, 2]
    pool_dilation: [2, 1]
    read_gap: 1
    quantization: 4
    activation: Abs
  - sequence: 7
    processors: 0x3
    operation: none
    in_sequences: [3]
    write_gap: 1
    avg_pool: 2
    in_dim: [6, 6]
    in_crop: [1, 2]
"""


def test_every_key(files: DescriptionFile) -> None:
    given = parameters((2, 1, 1, 1), (8, 2, 3, 3), shift=1, bias=True)
    network = files.read(EVERYTHING, given, zeros(1, 9, 6))
    first, middle, second = network.layers
    assert [layer.name for layer in network.layers] == ["first", "layer7", "second"]
    assert (first.inputs, middle.inputs, second.inputs) == ((INPUT,), (0,), (0,))
    assert (first.shift, first.activation, first.output, first.kernel) == (
        -2,
        LayerActivation.RELU,
        True,
        (1, 1),
    )
    assert (second.shift, second.activation, second.output) == (1 + 4, LayerActivation.ABS, False)
    assert second.pool == Pool(False, (2, 3), 2, (2, 1))
    assert middle.pool == Pool(True, (2, 2), 1)
    assert second.weights is not None
    assert second.weights.bits == 4
    assert second.bias is not None
    assert second.bias.tolist() == list(range(8))
    places = network.places
    assert [p.in_offset for p in places] == [0x80, 0x100, 0]
    assert [p.out_offset for p in places] == [0x100, 0, 0x200]
    assert [p.output_processors for p in places] == [3, 3, 0xFF0]
    assert (places[0].chw, places[0].bias_groups) == (True, (0, 1))
    assert (places[1].write_gap, places[1].in_crop, middle.dim) == (1, (1, 2), (6, 6))
    assert (places[2].next, places[2].read_gap) == (STOP, 1)
    (unload,) = network.unloads
    assert (
        unload.processors,
        unload.channels,
        unload.dim,
        unload.offset,
        unload.width,
        unload.write_gap,
    ) == (0xFF0, 8, (4, 4), 64, 32, 1)


def test_defaults_of_one_dimensional_layers(files: DescriptionFile) -> None:
    text = "layers:\n  - processors: 0x7\n    op: conv1d\n    max_pool: 2\n    pool_stride: 2\n    pad: 1\n"
    text += "  - processors: 0x3\n    op: none\n    avg_pool: 3\n"
    conv, pool = files.read(text, parameters((2, 3, 4)), zeros(3, 20)).layers
    assert (conv.kernel, conv.pad, conv.pool, conv.dim) == ((4, 1), (1, 0), Pool(False, (2, 1), 2), (20, 1))
    assert (pool.dim, pool.pool, pool.out_dim) == ((9, 1), Pool(True, (3, 1), 1), (7, 1))


def test_inputs_joined_and_combined(files: DescriptionFile) -> None:
    text = """layers:
  - {name: a, processors: 0x1, op: conv2d}
  - {name: b, processors: 0x1, in_sequences: input, op: conv2d}
  - {name: both, processors: 0xff, in_sequences: [b, a], op: none}
  - {name: sum, processors: 0xf, in_sequences: [a, b], eltwise: add, kernel_size: 1x1, pad: 0, pool_first: false, max_pool: 2}
  - {name: three, processors: 0xf, in_sequences: [a, b, a], op: sub, operands: 3}
"""
    given = parameters((4, 1, 3, 3), (4, 1, 3, 3), (5, 4, 1, 1))
    _, b, both, total, three = files.read(text, given, zeros(1, 6, 6)).layers
    assert b.inputs == (INPUT,)
    assert (both.inputs, both.channels, both.operands) == ((1, 0), 8, 1)
    assert (total.inputs, total.channels, total.eltwise, total.operands) == ((0, 1), 4, Eltwise.ADD, 2)
    assert (total.pool_first, total.out_channels) == (False, 5)
    assert (three.eltwise, three.operands) == (Eltwise.SUB, 3)


def test_weights_are_shared_quantized_and_binary(files: DescriptionFile) -> None:
    text = """layers:
  - {name: a, processors: 0x3, op: conv2d, out_offset: 0x100}
  - {name: b, processors: 0x3, op: conv2d, weight_source: a, quantization: 8}
  - {name: c, processors: 0x3, op: conv2d, weight_source: b, quantization: binary}
"""
    network = files.read(text, parameters((2, 2, 3, 3), bits=2, bias=True), zeros(2, 6, 6))
    a, b, c = (layer.weights for layer in network.layers)
    assert a
    assert b
    assert c
    assert a.values is b.values is c.values
    assert [w.bits for w in (a, b, c)] == [2, 8, 1]
    assert [w.binary for w in (a, b, c)] == [False, False, True]
    assert [layer.shift for layer in network.layers] == [6, 0, 7]
    assert [p.weight_source for p in network.places] == [None, 0, 1]


def test_linear_weights_of_one_by_one_kernels_and_matrices_for_convolutions(files: DescriptionFile) -> None:
    text = "layers:\n  - {processors: 0x3, op: conv2d, kernel_size: 1x1, pad: 0}\n"
    text += "  - {processors: 0xf, op: fc, flatten: true, output_width: 32}\n"
    first, last = files.read(text, parameters((4, 2), (3, 16, 1, 1)), zeros(2, 2, 2)).layers
    assert first.weights
    assert last.weights
    assert first.weights.values.shape == (4, 2, 1, 1)
    assert last.weights.values.shape == (3, 16)
    assert (last.flatten, last.wide, last.out_dim) == (True, True, (1, 1))


def test_options_change_what_is_read(files: DescriptionFile) -> None:
    text = "layers:\n  - {processors: 0x1, op: conv2d, streaming: true}\n  - {name: last, processors: 0x1, op: conv2d}\n"
    given = parameters((1, 1, 3, 3), (1, 1, 3, 3))
    network = files.read(
        text, given, zeros(1, 6, 6), NetworkOptions(stop_after="0", ignore_streaming=True, input_offset=0x40)
    )
    assert len(network.layers) == 1
    assert network.layers[0].output
    assert (network.places[0].streaming, network.places[0].in_offset) == (False, 0x40)
    with pytest.raises(MaceError, match="stop-after names layer 'nowhere'"):
        files.read(text, given, zeros(1, 6, 6), NetworkOptions(stop_after="nowhere"))


BUFFERED = """
data_buffer:
  - processors: 0x3
    dim: 4
    channels: 2
    offset: 0x100
    name: memory
layers:
  - processors: 0x3
    output_processors: 0x3
    in_offset: 0x104
    in_dim: 3
    in_sequences: memory
    out_offset: 0x100
    operation: passthrough
    buffer_shift: 1
  - processors: 0x3
    output_processors: 0x3
    in_offset: 0
    in_sequences: input
    out_offset: 0x10c
    operation: passthrough
    buffer_insert: 1
  - processors: 0x3
    in_sequences: memory
    in_offset: 0x100
    in_dim: 4
    operation: conv1d
    kernel_size: 4
    pad: 0
    out_offset: 0x200
    output_width: 32
"""


def test_rolling_buffers(files: DescriptionFile) -> None:
    network = files.read(BUFFERED, parameters((1, 2, 4)), np.array([[5], [7]]))
    (buffer,) = network.buffers
    assert (buffer.name, buffer.dim, buffer.offset, buffer.end) == ("memory", (4, 1), 0x100, 0x110)
    assert [layer.inputs for layer in network.layers] == [(BUFFER,), (INPUT,), (BUFFER,)]
    assert find_faults(network, MAX78000, Options()) == []
    assert outputs(network, NetworkOptions())[-1].ravel().tolist() == [12]


def test_buffers_that_lie_elsewhere(files: DescriptionFile) -> None:
    text = HEAD + BUFFERED.replace("0x104", "0x108").replace("0x10c", "0x108")
    assert files.faults(text, parameters((1, 2, 4)), np.array([[5], [7]])) == [
        "18: layer 0: buffer_shift: in_offset 0x0108 is not 1 positions behind out_offset; write in_offset: 0x0104",
        "25: layer 1: buffer_insert: out_offset 0x0108 is not 1 positions before the end of memory; write out_offset: 0x010c",
    ]
