"""What the handlers refuse: a table of layers, each with the message that names its fault and what to do."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from caffe_cases import Case, entry, files_of, floats, load, weights, write_network

from mace_core.errors import MaceError
from mace_core.ir import Array, Shape
from mace_frontend_caffe.node import CORRECT_DESCRIPTION as CORRECT
from mace_frontend_caffe.node import CUT_BEFORE as CUT
from mace_frontend_caffe.node import MATCHING_WEIGHTS as MATCH

IMAGE = ((1, 4, 9, 8),)
ROWS = ((2, 12),)
SEQUENCE = ((4, 2, 3), (4, 2))
DETECTION = ((1, 32), (1, 16), (1, 2, 32))
SIZES = "num_classes: 2 nms_param"

REFUSALS: Sequence[tuple[str, Sequence[Shape], str, str]] = (
    ("ReLU", (), "it has no bottom 0", CORRECT),
    ("Softmax softmax_param { axis: 2 }", ROWS, "axis 2 of a tensor of rank 2", CORRECT),
    ("Softmax softmax_param { axis: -3 }", ROWS, "axis -3 of a tensor of rank 2", CORRECT),
    # elementwise
    ("Eltwise", ROWS, "it has 0 coefficients for 1 bottoms", CORRECT),
    (
        "Eltwise eltwise_param { coeff: 1 }",
        (*ROWS, *ROWS),
        "it has 1 coefficients for 2 bottoms",
        CORRECT,
    ),
    (
        "Eltwise",
        ((2, 1), (2, 3)),
        "its bottoms have shapes [2, 1], [2, 3]; they must be the same",
        CORRECT,
    ),
    ("Add", ROWS, "it has one bottom, but needs two", CORRECT),
    ("Axpy", ((1, 3), (1, 4, 2, 2), (1, 4, 2, 2)), "it has a scale of shape [1, 3]", CORRECT),
    (
        "Scale scale_param { axis: 1 num_axes: 2 }",
        ROWS,
        "its scale covers 2 axes from axis 1 on of a bottom of rank 2",
        CORRECT,
    ),
    (
        "Bias",
        ((2, 3, 4), (4,)),
        "its second bottom has shape [4], which is no part of [2, 3, 4] from axis 1 on",
        CORRECT,
    ),
    ("PReLU", IMAGE, "the weights hold no slope of it", MATCH),
    # norms
    ("LRN lrn_param { local_size: 4 }", IMAGE, "it has a local size of 4", CORRECT),
    ("LRN", ROWS, "its input has rank 2; it needs a batch, channels and spatial axes", CORRECT),
    ("MVN", ROWS, "its bottom of rank 2 has no axes to normalize over", CORRECT),
    ("Reduction reduction_param { operation: NONE }", ROWS, "NONE is no reduction", CORRECT),
    (
        "ArgMax argmax_param { top_k: 13 }",
        ROWS,
        "it asks for the largest 13 of 12 elements",
        CORRECT,
    ),
    ("ArgMax argmax_param { top_k: 0 }", ROWS, "it asks for the largest 0 of 12 elements", CORRECT),
    # movement
    (
        "Slice slice_param { slice_point: 2 slice_point: 4 }",
        ROWS,
        "it has 2 slice points for 1 tops",
        CORRECT,
    ),
    ("Flatten flatten_param { axis: 2 end_axis: 1 }", IMAGE, "it flattens the axes from 2 to 1", CORRECT),
    (
        "Reshape reshape_param { axis: 1 num_axes: 2 }",
        ROWS,
        "it reshapes 2 axes from axis 1 on of a bottom of rank 2",
        CORRECT,
    ),
    (
        "Reshape reshape_param { shape { dim: 1 dim: 2 dim: 0 } }",
        ROWS,
        "a dimension of 0 copies one that a bottom of rank 2 lacks",
        CORRECT,
    ),
    (
        "Reshape reshape_param { shape { dim: -1 dim: -1 } }",
        ROWS,
        "its new shape is [-1, -1]",
        CORRECT,
    ),
    ("Reshape reshape_param { shape { dim: -2 } }", ROWS, "its new shape is [-2]", CORRECT),
    (
        "Reshape reshape_param { shape { dim: 5 dim: -1 } }",
        ROWS,
        "24 elements do not fill a shape of [5, -1]",
        CORRECT,
    ),
    (
        "Crop crop_param { axis: 1 offset: 0 offset: 1 }",
        (*IMAGE, *IMAGE),
        "it has 2 offsets for 3 axes",
        CORRECT,
    ),
    (
        "ShuffleChannel shuffle_channel_param { group: 3 }",
        IMAGE,
        "4 channels cannot be cut into 3 groups",
        CORRECT,
    ),
    ("Reorg reorg_param { reverse: true }", IMAGE, "it reorders in the reverse direction", CUT),
    (
        "Reorg reorg_param { stride: 2 }",
        IMAGE,
        "a bottom of shape [1, 4, 9, 8] cannot be cut into blocks of 2",
        CORRECT,
    ),
    ("Interp", ROWS, "its bottom has rank 2; it needs 4", CORRECT),
    (
        "Interp interp_param { pad_beg: 1 }",
        IMAGE,
        "its bottom of [9, 8] is padded by 1 and 0, shrunk by 1 and zoomed by 1",
        CORRECT,
    ),
    (
        "Interp interp_param { zoom_factor: 0 }",
        IMAGE,
        "its bottom of [9, 8] is padded by 0 and 0, shrunk by 1 and zoomed by 0",
        CORRECT,
    ),
    ("Upsample", ROWS, "its bottom has rank 2; it needs 4", CORRECT),
    (
        "Upsample",
        (*IMAGE, (1, 4, 9, 9)),
        "it has indices of shape [1, 4, 9, 9] for a bottom of shape [1, 4, 9, 8]",
        CORRECT,
    ),
    (
        "ResizeNearest resize_nearest_param { height_scale: 0.1 }",
        IMAGE,
        "a blob of shape [1, 4, 9, 8] is resized to [0, 16]",
        CORRECT,
    ),
    # windows
    (
        "Convolution convolution_param { num_output: 2 kernel_size: 3 kernel_size: 3 kernel_size: 3 }",
        IMAGE,
        "it has a parameter of [3, 3, 3] for 2 spatial axes",
        CORRECT,
    ),
    (
        "Im2col convolution_param { kernel_size: 3 stride_h: 1 }",
        IMAGE,
        "its strides are [1, 0]",
        CORRECT,
    ),
    (
        "Im2col convolution_param { kernel_size: 3 axis: 2 }",
        IMAGE,
        "its channels are axis 2, not 1",
        CUT,
    ),
    (
        "Convolution convolution_param { num_output: 6 kernel_size: 3 group: 3 }",
        IMAGE,
        "it makes 6 channels of 4 in 3 groups",
        CORRECT,
    ),
    (
        "Deconvolution convolution_param { num_output: 3 kernel_size: 3 group: 2 }",
        IMAGE,
        "it makes 3 channels of 4 in 2 groups",
        CORRECT,
    ),
    (
        "Pooling pooling_param { pool: STOCHASTIC kernel_size: 2 }",
        IMAGE,
        "STOCHASTIC pooling is for training alone",
        "use MAX or AVE",
    ),
    ("Pooling pooling_param { kernel_size: 2 }", ROWS, "its bottom has rank 2", CORRECT),
    (
        "Pooling pooling_param { kernel_size: 10 stride: 2 }",
        IMAGE,
        "it has windows of [10, 10] with strides of [2, 2] on [9, 8] with a padding of [0, 0]",
        CORRECT,
    ),
    (
        "Pooling pooling_param { kernel_size: 1 stride: 5 }",
        IMAGE,
        "it has windows of [1, 1] with strides of [5, 5] on [9, 8], one of them beyond the end",
        CORRECT,
    ),
    ("SPP spp_param { pool: STOCHASTIC }", IMAGE, "STOCHASTIC pooling is for training", "use MAX or AVE"),
    ("SPP spp_param { pyramid_height: 1 }", ROWS, "its bottom has rank 2; it needs 4", CORRECT),
    (
        "SPP spp_param { pyramid_height: 5 }",
        IMAGE,
        "it has a pyramid of 5 levels on an image of [9, 8]",
        CORRECT,
    ),
    ("SPP spp_param { pyramid_height: 0 }", IMAGE, "it has a pyramid of 0 levels", CORRECT),
    ("InnerProduct", ROWS, "its num_output is 0", CORRECT),
    # sequences
    (
        "LSTM recurrent_param { num_output: 4 }",
        ((4, 2, 3), (4, 1)),
        "its second bottom has shape [4, 1]; it needs [4, 2]",
        CORRECT,
    ),
    ("LSTM", SEQUENCE, "its num_output is 0", CORRECT),
    (
        "RNN recurrent_param { num_output: 4 }",
        ((257, 1, 3), (257, 1)),
        "it has 257 steps; the maximum is 256",
        CUT,
    ),
    # detection
    ("PriorBox prior_box_param { min_size: 3 }", (*ROWS, *IMAGE), "its bottoms need rank 4", CORRECT),
    (
        "PriorBox prior_box_param { min_size: 3 max_size: 4 max_size: 5 }",
        (*IMAGE, *IMAGE),
        "it has 2 values of max_size for 1 of min_size",
        CORRECT,
    ),
    (
        "PriorBox prior_box_param { min_size: 3 aspect_ratio: 0 }",
        (*IMAGE, *IMAGE),
        "it has an aspect_ratio that is not positive",
        CORRECT,
    ),
    (
        "PriorBox prior_box_param { min_size: 3 variance: 1 variance: 1 }",
        (*IMAGE, *IMAGE),
        "it has 2 variances; it needs 1 or 4",
        CORRECT,
    ),
    ("PriorBox", (*IMAGE, *IMAGE), "it has 0 anchors; it needs 1 to 2097152", CORRECT),
    (
        "DetectionOutput detection_output_param { num_classes: 2 }",
        ((1, 32), (1, 16), (1, 1, 32)),
        "its anchors have shape [1, 1, 32]; they need [1, 2, 32]",
        CORRECT,
    ),
    (
        "DetectionOutput detection_output_param { num_classes: 3 }",
        DETECTION,
        "it has 32 locations and 16 scores for 8 boxes of 3 classes",
        CORRECT,
    ),
    (
        f"DetectionOutput detection_output_param {{ {SIZES} {{ eta: 0.9 }} }}",
        DETECTION,
        "its overlap threshold adapts (eta is not 1)",
        CUT,
    ),
    (
        "DetectionOutput detection_output_param { num_classes: 2 code_type: NO_CODE }",
        DETECTION,
        "its boxes are not coded",
        CUT,
    ),
    (
        "DetectionOutput detection_output_param { num_classes: 1 }",
        ((1, 32), (1, 8), (1, 2, 32)),
        "it has no class but the background",
        CORRECT,
    ),
    (
        "DetectionOutput detection_output_param { num_classes: 2 keep_top_k: 65537 }",
        DETECTION,
        "its keep_top_k is 65537; it needs -1 for all, or 1 to 65536",
        CORRECT,
    ),
    ("ROIPooling", (*IMAGE, (3, 4)), "its regions have shape [3, 4]; they need [n, 5]", CORRECT),
)


@pytest.mark.parametrize(
    ("layer", "inputs", "problem", "remedy"), REFUSALS, ids=[f"{r[0]} {r[2]}" for r in REFUSALS]
)
def test_layer_is_refused(
    layer: str, inputs: Sequence[Shape], problem: str, remedy: str, tmp_path: Path
) -> None:
    case = Case(layer, layer, inputs, blobs=sequence_blobs(layer))
    with pytest.raises(MaceError) as error:
        load(files_of(case, tmp_path) if inputs else without_bottoms(layer, tmp_path))
    message = str(error.value)
    assert message.startswith(f"case.prototxt: layer 'layer' ({layer.split(maxsplit=1)[0]}): {problem}"), (
        message
    )
    assert message.endswith(f"; {remedy}"), message
    assert "\n" not in message


def sequence_blobs(layer: str) -> list[Array]:
    """The weights that the layer reads before it is refused."""
    return [floats(6, 2, 3, 3)] if layer.startswith("RNN") else []


def without_bottoms(layer: str, folder: Path) -> tuple[Path, ...]:
    text = f'layer {{ name: "layer" type: "{layer}" top: "y" }}'
    return write_network(folder, entry("x", (2, 3)) + text, weights({"layer": [floats(1)]}))


@pytest.mark.parametrize(
    ("parameters", "count", "needed"),
    [("num_output: 3", 4, "2, or 3"), ("expose_hidden: true num_output: 3", 2, "4, or 5")],
)
def test_a_sequence_with_another_number_of_bottoms(
    parameters: str, count: int, needed: str, tmp_path: Path
) -> None:
    inputs = (*SEQUENCE, *((2, 3),) * (count - 2))
    case = Case("", f"LSTM recurrent_param {{ {parameters} }}", inputs, blobs=[floats(12, 3), floats(12)])
    with pytest.raises(
        MaceError, match=f"it has {count} bottoms; it needs . or . with|it has {count} bottoms"
    ):
        load(files_of(case, tmp_path))


def test_slices_of_unequal_parts(tmp_path: Path) -> None:
    case = Case("", "Slice", ((1, 5),), tops=2)
    with pytest.raises(MaceError, match="its axis 1 of 5 elements cannot be cut into 2 equal parts"):
        load(files_of(case, tmp_path))


def test_indices_of_averages(tmp_path: Path) -> None:
    case = Case("", "Pooling pooling_param { pool: AVE kernel_size: 2 }", IMAGE, tops=2)
    with pytest.raises(MaceError, match="it has two tops, but only MAX pooling has indices"):
        load(files_of(case, tmp_path))


def test_a_blob_that_no_layer_computes(tmp_path: Path) -> None:
    text = entry("x", (2, 3)) + 'layer { name: "r" type: "ReLU" bottom: "z" top: "y" }'
    with pytest.raises(MaceError, match=r"no layer before it computes blob 'z'; correct the \.prototxt"):
        load(write_network(tmp_path, text))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("name: 'empty'", "has no layers; give the .prototxt of the network as it is deployed"),
        (
            entry("x", (1, 4)) + 'layer { name: "s" type: "Slice" bottom: "x" top: "y" top: "y" }',
            "layer 's' has two tops of the same name; correct the .prototxt",
        ),
        (
            entry("x", (1, 4)) + 'layer { name: "r" type: "ReLU" bottom: "x" top: "x" }' * 4096,
            "has 4097 layers; the maximum is 4096; divide the network",
        ),
    ],
    ids=["no layers", "a top twice", "too many layers"],
)
def test_description_is_refused(text: str, problem: str, tmp_path: Path) -> None:
    with pytest.raises(MaceError) as error:
        load(write_network(tmp_path, text))
    assert str(error.value) == f"case.prototxt: {problem}"


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "has no layers; give the network's .caffemodel as weight_file_path"),
        (b"\x07", "holds no weights, or is damaged: "),
    ],
    ids=["empty", "damaged"],
)
def test_weights_are_refused(data: bytes, problem: str, tmp_path: Path) -> None:
    text = entry("x", (1, 4)) + 'layer { name: "r" type: "ReLU" bottom: "x" top: "y" }'
    with pytest.raises(MaceError) as error:
        load(write_network(tmp_path, text, data))
    assert str(error.value).startswith(f"case.caffemodel: {problem}")
