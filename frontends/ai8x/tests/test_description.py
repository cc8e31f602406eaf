"""The maker's network description: every key, defaults that depend on others, and faults with their lines."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mace_core.errors import MaceError
from mace_core.ir import Array
from mace_frontend_ai8x.arithmetic import outputs
from mace_frontend_ai8x.checkpoint import Checkpoint, LayerParameters
from mace_frontend_ai8x.description import read_description
from mace_frontend_ai8x.network import BUFFER, INPUT, STOP, Activation, Eltwise, Network, Operation, Pool
from mace_frontend_ai8x.options import NetworkOptions
from mace_target_max78000.check import find_faults
from mace_target_max78000.device import MAX78000
from mace_target_max78000.options import Options

HEAD = "arch: net\ndataset: data\n"


def parameters(
    *shapes: tuple[int, ...], bits: int | None = None, shift: int = 0, bias: bool = False
) -> Checkpoint:
    layers = [
        LayerParameters(f"p{i}", np.full(shape, 1), np.arange(shape[0]) if bias else None, bits, shift)
        for i, shape in enumerate(shapes)
    ]
    return Checkpoint(tuple(layers), arch="net")


class Files:
    """Writes descriptions."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "net.yaml"

    def read(
        self,
        layers: str,
        given: Checkpoint,
        sample: Array,
        options: NetworkOptions | None = None,
        head: str = HEAD,
    ) -> Network:
        self.path.write_text(head + layers)
        return read_description(self.path, given, sample, options or NetworkOptions())

    def faults(self, text: str, given: Checkpoint | None = None, sample: Array | None = None) -> list[str]:
        """Each without the file's path."""
        self.path.write_text(text)
        with pytest.raises(MaceError) as error:
            read_description(
                self.path,
                given or Checkpoint(()),
                np.zeros((1, 4, 4)) if sample is None else sample,
                NetworkOptions(),
            )
        return [
            line.removeprefix(f"{self.path}:").removeprefix(" ") for line in str(error.value).splitlines()
        ]


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def zeros(*shape: int) -> Array:
    return np.zeros(shape, np.int64)


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
    files: Files, key: str, word: str, operation: Operation, eltwise: Eltwise | None
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


def test_a_layer_without_anything_is_a_3x3_convolution(files: Files) -> None:
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
        Activation.NONE,
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


def test_every_key(files: Files) -> None:
    given = parameters((2, 1, 1, 1), (8, 2, 3, 3), shift=1, bias=True)
    network = files.read(EVERYTHING, given, zeros(1, 9, 6))
    first, middle, second = network.layers
    assert [layer.name for layer in network.layers] == ["first", "layer7", "second"]
    assert (first.inputs, middle.inputs, second.inputs) == ((INPUT,), (0,), (0,))
    assert (first.shift, first.activation, first.output, first.kernel) == (-2, Activation.RELU, True, (1, 1))
    assert (second.shift, second.activation, second.output) == (1 + 4, Activation.ABS, False)
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


def test_defaults_of_one_dimensional_layers(files: Files) -> None:
    text = "layers:\n  - processors: 0x7\n    op: conv1d\n    max_pool: 2\n    pool_stride: 2\n    pad: 1\n"
    text += "  - processors: 0x3\n    op: none\n    avg_pool: 3\n"
    conv, pool = files.read(text, parameters((2, 3, 4)), zeros(3, 20)).layers
    assert (conv.kernel, conv.pad, conv.pool, conv.dim) == ((4, 1), (1, 0), Pool(False, (2, 1), 2), (20, 1))
    assert (pool.dim, pool.pool, pool.out_dim) == ((9, 1), Pool(True, (3, 1), 1), (7, 1))


def test_inputs_joined_and_combined(files: Files) -> None:
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


def test_weights_are_shared_quantized_and_binary(files: Files) -> None:
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


def test_linear_weights_of_one_by_one_kernels_and_matrices_for_convolutions(files: Files) -> None:
    text = "layers:\n  - {processors: 0x3, op: conv2d, kernel_size: 1x1, pad: 0}\n"
    text += "  - {processors: 0xf, op: fc, flatten: true, output_width: 32}\n"
    first, last = files.read(text, parameters((4, 2), (3, 16, 1, 1)), zeros(2, 2, 2)).layers
    assert first.weights
    assert last.weights
    assert first.weights.values.shape == (4, 2, 1, 1)
    assert last.weights.values.shape == (3, 16)
    assert (last.flatten, last.wide, last.out_dim) == (True, True, (1, 1))


def test_options_change_what_is_read(files: Files) -> None:
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


def test_rolling_buffers(files: Files) -> None:
    network = files.read(BUFFERED, parameters((1, 2, 4)), np.array([[5], [7]]))
    (buffer,) = network.buffers
    assert (buffer.name, buffer.dim, buffer.offset, buffer.end) == ("memory", (4, 1), 0x100, 0x110)
    assert [layer.inputs for layer in network.layers] == [(BUFFER,), (INPUT,), (BUFFER,)]
    assert find_faults(network, MAX78000, Options()) == []
    assert outputs(network, NetworkOptions())[-1].ravel().tolist() == [12]


def test_buffers_that_lie_elsewhere(files: Files) -> None:
    text = HEAD + BUFFERED.replace("0x104", "0x108").replace("0x10c", "0x108")
    assert files.faults(text, parameters((1, 2, 4)), np.array([[5], [7]])) == [
        "18: layer 0: buffer_shift: in_offset 0x0108 is not 1 positions behind out_offset; write in_offset: 0x0104",
        "25: layer 1: buffer_insert: out_offset 0x0108 is not 1 positions before the end of memory; write out_offset: 0x010c",
    ]


def test_all_faults_of_keys_and_values_are_told_together(files: Files) -> None:
    text = (
        HEAD
        + """archi: other
layers:
  - processors: 15
    ouput: true
    op: conv3d
    pad: x
    output_width: 16
    bias_group: 5
    in_sequences: []
    streaming: maybe
    kernel_size: [1, 2, 3]
    activate: reluu
    activation: relu
    name: {a: b}
  - out_offset: 0x100000000
    pad: 1
    pad: 2
"""
    )
    assert files.faults(text) == [
        "3: unknown key 'archi'; did you mean arch?",
        "5: layer 0: processors: '15' is not a hexadecimal number that shows what it is: 0x15, or 0xf for decimal 15; correct the value",
        "6: layer 0: unknown key 'ouput'; did you mean output?",
        "7: layer 0: op: 'conv3d' is not one of conv1d, conv2d, convtranspose2d, none, passthrough, linear, fc, mlp, add, sub, xor,"
        " bitwisexor, bitwise_xor, or, bitwiseor, bitwise_or; did you mean conv2d?",
        "8: layer 0: pad: 'x' is not one integer or two [rows, columns], from 0 to 4096; correct the value",
        "9: layer 0: output_width: '16' is not one of 8, 32; correct the value",
        "10: layer 0: bias_group: '5' is not quadrants, from 0 to 3; correct the value",
        "11: layer 0: in_sequences: a list is not a layer's name or sequence number, or a list of them; correct the value",
        "12: layer 0: streaming: 'maybe' is not true or false; correct the value",
        "13: layer 0: kernel_size: a list is not one integer or two [rows, columns], from 1 to 4096; correct the value",
        "14: layer 0: activate: 'reluu' is not one of relu, abs, none; did you mean relu?",
        "15: layer 0: activation: says again what line 14 says; keep one of them",
        "16: layer 0: name: a mapping is not a word; correct the value",
        "17: layer 1: out_offset: '0x100000000' is not a number of bytes such as 0x2000; correct the value",
        "17: layer 1: processors: is missing; write processors: ...",
        "19: pad: duplicate key, first in line 18; keep one of them",
    ]


def test_faults_of_names_are_told_together(files: Files) -> None:
    text = (
        HEAD
        + """layers:
  - {name: stop, processors: 0x1}
  - {name: conv, processors: 0x1, in_sequences: [later]}
  - {name: later, processors: 0x1, in_sequences: con, next_sequence: conv}
  - {name: conv, processors: 0x1, weight_source: 9, sequence: 1}
"""
    )
    assert files.faults(text) == [
        "4: name: 'stop' is reserved; choose another name",
        "5: layer 1 (conv): in_sequences: 'later' does not come before this layer; name an earlier layer",
        "6: layer 2 (later): in_sequences: there is no layer 'con'; did you mean conv?",
        "6: layer 2 (later): next_sequence: 'conv' does not come after this layer; name a later layer, or stop",
        "7: sequence: 1 belongs to the layer in line 5; give each layer its own number",
    ]


@pytest.mark.parametrize(
    ("layer", "fault"),
    [
        (
            "op: add, eltwise: sub",
            "4: layer 0: eltwise: is sub, the operation is add; name the operation once",
        ),
        (
            "operands: 2",
            "4: layer 0: operands: is given without an element-wise operation; write eltwise: add, or remove operands",
        ),
        (
            "op: add, operands: 3",
            "4: layer 0: the input has 2 channels, which are not 3 operands of equal size;",
        ),
        ("max_pool: 2, avg_pool: 2", "4: layer 0: avg_pool: is given beside max_pool; keep one of them"),
        ("stride: 2", "4: layer 0: stride: is 2; convolutions have stride 1;"),
        (
            "max_pool: 2, pool_stride: [1, 2]",
            "4: layer 0: pool_stride: is [1, 2]; rows and columns have one stride; write one number",
        ),
        (
            "op: none, output_shift: 1",
            "4: layer 0: output_shift: has no effect in a layer without weights; remove it",
        ),
    ],
)
def test_keys_that_contradict_each_other(files: Files, layer: str, fault: str) -> None:
    text = f"{HEAD}layers:\n  - {{processors: 0x3, {layer}}}\n"
    (found,) = files.faults(text, parameters((2, 2, 3, 3)), zeros(2, 6, 6))
    assert found.startswith(fault)


def test_parameters_and_description_of_different_models(files: Files) -> None:
    text = HEAD.replace("net", "other") + "layers:\n  - {processors: 0x1}\n  - {processors: 0x1}\n"
    assert files.faults(text, parameters((1, 1, 3, 3))) == [
        "1: arch: is 'other', the checkpoint holds 'net'; name the files of one model",
    ]
    assert files.faults(text.replace("other", "net"), parameters((1, 1, 3, 3))) == [
        "5: layer 1: needs weights, which are missing; the parameters hold those of 1 layers, 2 need them;"
        " remove the layer, or name the one whose weights it shares as weight_source",
    ]
    network = files.read("layers:\n  - {processors: 0x1}\n", parameters((1, 1, 3, 3), (4, 4)), zeros(1, 4, 4))
    assert network.notes == (
        "the checkpoint's last layers have no description, and their weights are not used: p1",
    )


def test_samples_of_any_type_are_checked(files: Files) -> None:
    text, given = "layers:\n  - {processors: 0x1}\n", parameters((1, 1, 3, 3))
    floats = np.array([[[-128.0, 1.4], [1.6, 127.0]]])
    network = files.read(text, given, floats)
    assert network.sample.dtype == np.int64
    assert network.sample.ravel().tolist() == [-128, 1, 2, 127]
    assert network.notes == ("the sample's values were rounded to integers",)
    assert files.read(text, given, floats.astype(np.int8)).notes == ()
    for wrong in (
        np.full((1, 2, 2), 200, np.uint8),
        np.full((1, 2, 2), np.nan),
        zeros(4),
        np.zeros((1, 2, 0)),
        np.array([["a"]]),
    ):
        with pytest.raises(MaceError, match=r"the sample (has values from|is) "):
            files.read(text, given, wrong)


def test_aliases_do_not_unfold_without_end(files: Files) -> None:
    bomb = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"{n}: &{n} [{', '.join(['*' + p] * 10)}]\n" for p, n in zip("abcdef", "bcdefg", strict=True)
    )
    (found,) = files.faults(HEAD + bomb)
    assert "more than 20000 values" in found


@pytest.mark.parametrize(
    "text",
    [
        "",
        "- 1\n",
        "layers: 3\n",
        "arch: net\nlayers:\n  - 4\n",
        "layers: []\n",
        "arch: [\n",
        "!!python/object:os x\n",
    ],
)
def test_other_files_are_refused(files: Files, text: str) -> None:
    assert files.faults(text)
