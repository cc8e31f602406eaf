"""Damaged networks: each ends in one error or in a valid graph."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest
from caffe_cases import entry, floats, weights
from google.protobuf import text_format

from mace_core.ir import Array
from mace_core.testing.malformed import Damaged, check_damaged, message_mutations, mutations
from mace_frontend_caffe import schema
from mace_frontend_caffe.source import MAX_TEXT_BYTES

HEAD = entry("x", (1, 4, 9, 8))
CONVOLUTIONS = (
    HEAD
    + """
layer { name: "conv" type: "Convolution" bottom: "x" top: "conv" convolution_param { num_output: 6 kernel_size: 3 pad: 1 group: 2 } }
layer { name: "bn" type: "BatchNorm" bottom: "conv" top: "conv" batch_norm_param { use_global_stats: true eps: 1e-4 } }
layer { name: "scale" type: "Scale" bottom: "conv" top: "conv" scale_param { axis: 1 bias_term: true } }
layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" relu_param { negative_slope: 0.1 } include { phase: TEST } }
layer { name: "pool" type: "Pooling" bottom: "conv" top: "pool" pooling_param { pool: AVE kernel_size: 3 stride: 2 pad: 1 } }
layer { name: "up" type: "Deconvolution" bottom: "pool" top: "up"
  convolution_param { num_output: 6 kernel_size: 4 stride: 2 pad: 1 group: 6 } }
layer { name: "crop" type: "Crop" bottom: "up" bottom: "conv" top: "crop" crop_param { axis: 2 offset: 0 offset: 0 } }
layer { name: "sum" type: "Eltwise" bottom: "crop" bottom: "conv" top: "sum" eltwise_param { coeff: 1 coeff: -0.5 } }
layer { name: "fc" type: "InnerProduct" bottom: "sum" top: "fc" inner_product_param { num_output: 5 } }
layer { name: "prob" type: "Softmax" bottom: "fc" top: "prob" }
"""
)
MOVEMENT = (
    HEAD
    + """
layer { name: "slice" type: "Slice" bottom: "x" top: "a" top: "b" slice_param { axis: 1 slice_point: 1 } }
layer { name: "perm" type: "Permute" bottom: "b" top: "p" permute_param { order: 0 order: 2 order: 3 order: 1 } }
layer { name: "reshape" type: "Reshape" bottom: "p" top: "r" reshape_param { shape { dim: 0 dim: -1 dim: 12 } axis: 0 num_axes: -1 } }
layer { name: "flat" type: "Flatten" bottom: "r" top: "f" flatten_param { axis: 1 end_axis: -1 } }
layer { name: "tile" type: "Tile" bottom: "a" top: "t" tile_param { axis: 1 tiles: 4 } }
layer { name: "join" type: "Concat" bottom: "t" bottom: "x" top: "j" concat_param { axis: 1 } }
layer { name: "mix" type: "ShuffleChannel" bottom: "j" top: "m" shuffle_channel_param { group: 2 } }
layer { name: "interp" type: "Interp" bottom: "m" top: "i" interp_param { zoom_factor: 2 shrink_factor: 3 pad_beg: -1 pad_end: 0 } }
layer { name: "up" type: "Upsample" bottom: "i" top: "u" upsample_param { scale: 2 } }
layer { name: "lrn" type: "LRN" bottom: "u" top: "l" lrn_param { local_size: 5 alpha: 0.1 norm_region: WITHIN_CHANNEL } }
layer { name: "mvn" type: "MVN" bottom: "l" top: "v" mvn_param { across_channels: true } }
layer { name: "spp" type: "SPP" bottom: "v" top: "s" spp_param { pyramid_height: 2 pool: MAX } }
layer { name: "top" type: "ArgMax" bottom: "s" top: "k" argmax_param { top_k: 3 out_max_val: true } }
"""
)
OLD = """
name: "old" input: "x" input_dim: 1 input_dim: 4 input_dim: 9 input_dim: 8
layers { name: "conv" type: CONVOLUTION blobs_lr: 1 bottom: "x" top: "c" convolution_param { num_output: 6 kernel_size: 3 group: 2 } }
layers { name: "pool" type: POOLING bottom: "c" top: "p" pooling_param { pool: MAX kernel_size: 2 stride: 2 } }
layers { name: "power" type: POWER bottom: "p" top: "q" power_param { power: 2 scale: 0.5 shift: 1 } }
layers { name: "prob" type: SOFTMAX bottom: "q" top: "prob" include { phase: TEST } }
"""
RECURRENT = (
    entry("x", (4, 2, 3))
    + entry("on", (4, 2))
    + """
layer { name: "lstm" type: "LSTM" bottom: "x" bottom: "on" top: "h" recurrent_param { num_output: 4 } }
layer { name: "rnn" type: "RNN" bottom: "h" bottom: "on" top: "o" recurrent_param { num_output: 4 } }
layer { name: "sum" type: "Reduction" bottom: "o" top: "s" reduction_param { operation: MEAN axis: 1 coeff: 2 } }
"""
)
SQUARE = floats(4, 4)
NETWORKS: tuple[tuple[str, dict[str, list[Array]], bool], ...] = (
    (
        CONVOLUTIONS,
        {
            "conv": [floats(6, 2, 3, 3), floats(6)],
            "bn": [floats(6), floats(6, low=0.1), floats(1)],
            "scale": [floats(6), floats(6)],
            "up": [floats(6, 1, 4, 4), floats(6)],
            "fc": [floats(5, 432), floats(5)],
        },
        False,
    ),
    (MOVEMENT, {}, False),
    (OLD, {"conv": [floats(6, 2, 3, 3), floats(6)]}, True),
    (
        RECURRENT,
        {
            "lstm": [floats(16, 3), floats(16), floats(16, 4)],
            "rnn": [SQUARE, floats(4), SQUARE, SQUARE, floats(4)],
        },
        False,
    ),
)


def detector() -> tuple[str, bytes]:
    """A detector as the tests of them have it."""
    spec = spec_from_file_location("caffe_test_detection", Path(__file__).with_name("test_detection.py"))
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.network(*module.DETECTIONS[0]), weights({"none": [floats(1)]})


def sound() -> list[tuple[bytes, bytes]]:
    """Descriptions and weights without damage."""
    results = [(text, weights(blobs or {"none": [floats(1)]}, old=old)) for text, blobs, old in NETWORKS]
    return [(text.encode(), data) for text, data in (*results, detector())]


def pair(what: str, text: bytes | None, data: bytes | None = None) -> Damaged:
    return Damaged(what, {"m.prototxt": text, **({} if data is None else {"m.caffemodel": data})})


def random_damage() -> Iterator[Damaged]:
    for i, (text, data) in enumerate(sound()):
        yield from (pair(f"text {i}", t, data) for t in mutations(text, i, 45))
        if len(data) > 100:
            yield from (pair(f"weights {i}", text, d) for d in mutations(data, i, 30))
            model = type(schema.create_model()).FromString(data)
            yield from (
                pair(f"weights' fields {i}", text, m.SerializeToString())
                for m in message_mutations(model, i, 25)
            )
        network = text_format.Parse(text.decode(), schema.create_net(), allow_unknown_field=True)
        for made in message_mutations(network, i, 45):
            yield pair(
                f"fields {i}",
                text_format.MessageToString(made, as_utf8=True).encode(errors="surrogatepass"),
                data,
            )


def layer(kind: str, rest: str = "", *bottoms: str, top: str = "y") -> str:
    read = " ".join(f'bottom: "{b}"' for b in bottoms or ("x",))
    return f'layer {{ name: "{top}" type: "{kind}" {read} top: "{top}" {rest} }}'


ON = 'layer {{ name: "on" type: "Input" top: "on" input_param {{ shape {{ dim: {} dim: 1 }} }} }}'
SMALL = "recurrent_param { num_output: 4 }"
HUGE = 2**31 - 1
TEXTS = {
    "a cycle": HEAD + layer("ReLU", "", "b", top="a") + layer("ReLU", "", "a", top="b"),
    "a layer that reads itself": HEAD + layer("ReLU", "", "y"),
    "braces without end": "layer { " * 5000,
    "lists without end": HEAD + "layer { foo: " + "[" * 100000,
    "braces in braces": HEAD + "layer { foo " + "{ a " * 2000 + "}" * 2001,
    "a huge input": entry("x", (HUGE, HUGE, HUGE)) + layer("ReLU"),
    "a large input that is repeated": entry("x", (1, 1 << 20))
    + layer("Tile", f"tile_param {{ axis: 0 tiles: {HUGE} }}"),
    "an input of nothing": entry("x", (1, 0, 3)) + layer("ReLU"),
    "an input of less": entry("x", (1, -3, 3)) + layer("ReLU"),
    "a huge zoom": HEAD + layer("Interp", f"interp_param {{ zoom_factor: {HUGE} }}"),
    "a huge size": HEAD + layer("Interp", f"interp_param {{ height: {HUGE} width: {HUGE} }}"),
    "a huge scale": HEAD + layer("Upsample", f"upsample_param {{ scale: {HUGE} }}"),
    "a huge nearest scale": HEAD
    + layer("ResizeNearest", "resize_nearest_param { height_scale: 1e30 width_scale: nan }"),
    "a huge number of outputs": HEAD
    + layer("Convolution", f"convolution_param {{ num_output: {HUGE} kernel_size: {HUGE} }}"),
    "a huge pad": HEAD + layer("Pooling", f"pooling_param {{ kernel_size: 2 pad: {HUGE} }}"),
    "a huge pyramid": HEAD + layer("SPP", f"spp_param {{ pyramid_height: {HUGE} }}"),
    "columns of a huge kernel": HEAD + layer("Im2col", f"convolution_param {{ kernel_size: 2 pad: {HUGE} }}"),
    "anchors without end": HEAD
    + entry("i", (1, 3, 9, 9))
    + layer("PriorBox", f"prior_box_param {{ {'min_size: 3 ' * 20000} }}", "x", "i"),
    "a sequence without end": entry("x", (1 << 20, 1, 1))
    + ON.format(1 << 20)
    + layer("LSTM", SMALL, "x", "on"),
    "a long sequence": entry("x", (256, 1, 3)) + ON.format(256) + layer("LSTM", SMALL, "x", "on"),
    "many layers": HEAD + "".join(layer("ReLU", top="x") for _ in range(5000)),
    "many layers in a row": HEAD
    + "".join(layer("ReLU", "", f"x{i}" if i else "x", top=f"x{i + 1}") for i in range(4000)),
    "a top twice": HEAD + 'layer { name: "s" type: "Slice" bottom: "x" top: "y" top: "y" }',
    "an input twice": HEAD + HEAD + layer("ReLU"),
    "no name": HEAD + 'layer { type: "ReLU" bottom: "x" top: "" }',
    "names of nothing": HEAD + 'layer { bottom: "x" top: "y" }',
    "nothing": "",
    "no newline in a comment": "#" * 100000,
}


def known_damage() -> Iterator[Damaged]:
    text, data = sound()[0]
    yield from (pair(what, made.encode(), data) for what, made in TEXTS.items())
    blobs = [floats(16, 3), floats(16), floats(16, 4)]
    yield pair("a long sequence with weights", TEXTS["a long sequence"].encode(), weights({"y": blobs}))
    yield pair("a text as large as is read", (HEAD + layer("ReLU") * 25000).encode()[:MAX_TEXT_BYTES])
    yield pair("a text that is too large", (HEAD + layer("ReLU") * 100000).encode())
    yield pair("an empty file of weights", text, b"")
    yield Damaged("a folder of a description", {"m.prototxt": None})
    yield Damaged("a folder of weights", {"m.prototxt": text, "m.caffemodel": None})
    yield pair("names that are no text", text.replace(b'"conv"', b'"\xff\xfe"'), data)
    yield pair("a text of another coding", text.decode().encode("utf-16"), data)
    model = schema.create_model()
    blob = model.layer.add(name="conv").blobs.add(data=b"1234")
    blob.shape.dim.extend([1 << 40, 1 << 40])
    yield pair("weights of a huge shape", text, model.SerializeToString())
    blob.shape.dim[:] = [-1, -1]
    yield pair("weights of a shape below 0", text, model.SerializeToString())
    nested = b""
    for _ in range(3000):
        nested = b"\xa2\x06" + _length(nested) + nested
    yield pair("messages without end", text, nested)


def _length(data: bytes) -> bytes:
    size, made = len(data), bytearray()
    while size > 0x7F:
        made.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes((*made, size))


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.timeout(300)
def test_damaged_networks(tmp_path: Path) -> None:
    damaged = [*(pair("sound", *files) for files in sound()), *random_damage(), *known_damage()]
    assert len(damaged) >= 500
    result = check_damaged("caffe", damaged, tmp_path)
    assert result["graph"] >= len(sound())
    assert result["error"] > 200
