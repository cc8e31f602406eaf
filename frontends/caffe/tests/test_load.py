"""Boundaries, forms, phases and faults of network files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from caffe_cases import entry, expected, floats, load, weights, write_network

from mace_core.deployment import Model, Port
from mace_core.errors import MaceError
from mace_core.run.reference import execute
from mace_frontend_caffe import Caffe
from mace_frontend_caffe.source import MAX_TEXT_BYTES

SMALL = """
layer { name: "conv" type: "Convolution" bottom: "x" top: "conv" convolution_param { num_output: 3 kernel_size: 3 } }
layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }
layer { name: "pool" type: "Pooling" bottom: "conv" top: "pool" pooling_param { pool: MAX kernel_size: 2 stride: 2 } }
layer { name: "fc" type: "InnerProduct" bottom: "pool" top: "fc" inner_product_param { num_output: 4 } }
layer { name: "prob" type: "Softmax" bottom: "fc" top: "prob" }
"""
OLD = """
name: "old"
input: "x"
input_dim: 1 input_dim: 2 input_dim: 6 input_dim: 6
layers { name: "conv" type: CONVOLUTION blobs_lr: 1 bottom: "x" top: "conv" convolution_param { num_output: 3 kernel_size: 3 } }
layers { name: "relu" type: RELU bottom: "conv" top: "conv" }
layers { name: "pool" type: POOLING bottom: "conv" top: "pool" pooling_param { pool: MAX kernel_size: 2 stride: 2 } }
layers { name: "fc" type: INNER_PRODUCT bottom: "pool" top: "fc" inner_product_param { num_output: 4 } }
layers { name: "loss" type: SOFTMAX_LOSS bottom: "fc" bottom: "label" top: "loss" include { phase: TRAIN } }
layers { name: "prob" type: SOFTMAX bottom: "fc" top: "prob" }
"""
BLOBS = {"conv": [floats(3, 2, 3, 3), floats(3)], "fc": [floats(4, 12), floats(4)]}
X = {"x": floats(1, 2, 6, 6, seed=9)}
RELU = 'layer {{ name: "{0}" type: "ReLU" bottom: "{1}" top: "{2}" {3} }}'


def model(files: tuple[Path, ...], inputs: tuple[Port, ...] = (), outputs: tuple[str, ...] = ()) -> Model:
    return Model("m", files, inputs=inputs, outputs=tuple(Port(o) for o in outputs))


def fault(files: tuple[Path, ...], inputs: tuple[Port, ...] = (), outputs: tuple[str, ...] = ()) -> str:
    with pytest.raises(MaceError) as error:
        load(files, model(files, inputs, outputs))
    return str(error.value)


def small(folder: Path, text: str = SMALL) -> tuple[Path, ...]:
    return write_network(folder, entry("x", (1, 2, 6, 6)) + text, weights(BLOBS))


def test_layers_in_place(tmp_path: Path) -> None:
    files = small(tmp_path)
    graph = load(files)
    assert [n.sources for n in graph.nodes if n.op.name != "Transpose"] == [
        ("conv",),
        ("relu",),
        ("pool",),
        ("fc",),
        ("fc",),
        ("prob",),
    ]
    np.testing.assert_allclose(execute(graph, X)["prob"], expected(files, X)["prob"], rtol=1e-5)


def test_a_layer_in_place_on_the_input(tmp_path: Path) -> None:
    text = (
        entry("x", (2, 3))
        + 'layer { name: "p" type: "Power" bottom: "x" top: "x" power_param { shift: 2 } }'
        + RELU.format("r", "x", "y", "")
    )
    x = {"x": floats(2, 3)}
    np.testing.assert_array_equal(execute(load(write_network(tmp_path, text)), x)["y"], x["x"] + 2)


def test_the_form_of_2014(tmp_path: Path) -> None:
    """Layers by their old names, weights by theirs, every blob of four axes."""
    files = write_network(tmp_path, OLD, weights(BLOBS, old=True))
    graph = load(files)
    assert graph.outputs == ("prob",)
    actual = execute(graph, X)["prob"]
    np.testing.assert_allclose(actual, execute(load(small(tmp_path)), X)["prob"], rtol=1e-6)
    deployed = "\n".join(line for line in OLD.splitlines() if "LOSS" not in line)
    np.testing.assert_allclose(
        actual, expected(write_network(tmp_path, deployed, weights(BLOBS, old=True)), X)["prob"], rtol=1e-5
    )


def test_the_form_of_2013_gets_advice(tmp_path: Path) -> None:
    text = 'layers { layer { name: "conv" type: "conv" num_output: 3 } bottom: "x" top: "y" }'
    assert "upgrade_net_proto_text" in fault(write_network(tmp_path, text))


def test_forms_do_not_mix(tmp_path: Path) -> None:
    assert "mixes" in fault(write_network(tmp_path, OLD + SMALL))


@pytest.mark.parametrize(
    ("rules", "runs"),
    [
        ("include { phase: TRAIN }", False),
        ("include { phase: TEST }", True),
        ("exclude { phase: TRAIN }", True),
        ("exclude { phase: TEST }", False),
        ("phase: TRAIN", False),
        ("include { phase: TRAIN } include { phase: TEST }", True),
        ('include { stage: "deploy" }', False),
        ('exclude { stage: "deploy" }', True),
        ("include { min_level: 1 }", False),
        ("include { phase: TEST not_stage: 'x' }", True),
    ],
)
def test_phases(rules: str, runs: bool, tmp_path: Path) -> None:
    text = entry("x", (2, 3)) + RELU.format("a", "x", "y", "") + RELU.format("b", "y", "z", rules)
    assert load(write_network(tmp_path, text)).outputs == (("z",) if runs else ("y",))


def test_what_trains_is_left_out(tmp_path: Path) -> None:
    text = entry("x", (2, 3)) + RELU.format("a", "x", "y", "")
    text += 'layer { name: "l" type: "SoftmaxWithLoss" bottom: "y" bottom: "label" top: "loss" }'
    assert load(write_network(tmp_path, text)).outputs == ("y",)


def test_cut_on_both_sides(tmp_path: Path) -> None:
    files = small(tmp_path)
    graph = load(files, model(files, (Port("conv", (1, 3, 4, 4)),), ("fc",)))
    assert (graph.inputs, graph.outputs) == (("conv",), ("fc",))
    conv = floats(1, 3, 4, 4)
    pool = conv.reshape(1, 3, 2, 2, 2, 2).max((3, 5)).reshape(1, 12)
    np.testing.assert_allclose(
        execute(graph, {"conv": conv})["fc"], pool @ BLOBS["fc"][0].T + BLOBS["fc"][1], rtol=1e-5
    )


def test_opencv_knows_no_cut(tmp_path: Path) -> None:
    files = small(tmp_path)
    run = Caffe().reference(files, model(files, (Port("conv", (1, 3, 4, 4)),), ("fc",)))
    assert run is not None
    with pytest.raises(MaceError, match=r"OpenCV does not run it: .*; validate against stored data instead"):
        run({"conv": floats(1, 3, 4, 4)})


def test_opencv_returns_an_output_that_a_layer_in_place_wrote(tmp_path: Path) -> None:
    text = entry("x", (2, 3)) + RELU.format("a", "x", "y", "") + RELU.format("b", "y", "y", "")
    x = {"x": floats(2, 3)}
    np.testing.assert_array_equal(expected(write_network(tmp_path, text), x)["y"], np.maximum(x["x"], 0))


def test_another_shape(tmp_path: Path) -> None:
    files = small(tmp_path)
    graph = load(files, model(files, (Port("x", (3, 2, 6, 6)),)))
    assert graph.tensors["prob"].shape == (3, 4)


def test_messages_of_boundaries(tmp_path: Path) -> None:
    files = small(tmp_path)
    assert (
        fault(files, outputs=("prbo",))
        == "case.prototxt: no tensor 'prbo' for the deployment file's output; did you mean 'prob'?"
    )
    assert fault(files, (Port("conv"),)).endswith('\n  input_tensors: [conv]\n  input_shapes: ["?"]')
    assert "has no input" in fault(write_network(tmp_path, SMALL, weights(BLOBS)))
    unsized = 'layer { name: "x" type: "Input" top: "x" }' + SMALL
    assert "input 'x' has no shape" in fault(write_network(tmp_path, unsized, weights(BLOBS)))
    text = fault(write_network(tmp_path, unsized, weights(BLOBS)), (Port("x"), Port("conv", (1, 4, 6, 6))))
    assert text.endswith('\n  input_tensors: [x, conv]\n  input_shapes: ["?", "1,4,6,6"]')


def test_messages_of_weights(tmp_path: Path) -> None:
    described = write_network(tmp_path, entry("x", (1, 2, 6, 6)) + SMALL)
    assert (
        fault(described)
        == "case.prototxt: has layers with weights, but no .caffemodel is given; name it: weight_file_path"
    )
    missing = tmp_path / "none.caffemodel"
    assert "none.caffemodel: cannot be read" in fault((*described, missing))
    other = write_network(tmp_path, entry("x", (1, 2, 6, 6)) + SMALL, weights({"other": [floats(1)]}))
    assert (
        "layer 'conv' (Convolution): the weights hold no filters of it; give the .caffemodel that belongs"
        in fault(other)
    )
    wrong = write_network(
        tmp_path, entry("x", (1, 2, 6, 6)) + SMALL, weights({**BLOBS, "fc": [floats(4, 10), floats(4)]})
    )
    text = "case.prototxt: layer 'fc' (InnerProduct): its weights have shape [4, 10], but the .prototxt makes them [4, 12]; give"
    assert fault(wrong).startswith(text)


def test_messages_of_the_description(tmp_path: Path) -> None:
    broken = fault(small(tmp_path, SMALL.replace("num_output: 3", "num_output: three")))
    assert broken.startswith("case.prototxt, line 2: is no network, or a damaged one:")
    assert "case.prototxt, line 7: is no network" in fault(small(tmp_path, SMALL + "layer {"))
    assert "damaged" in fault(write_network(tmp_path, OLD.replace("RELU", "RELUU")))
    unknown = fault(
        small(tmp_path, SMALL.replace('"Softmax"', '"SoftMin"').replace('"ReLU"', '"Yolov3DetectionOutput"'))
    )
    assert unknown.splitlines() == [
        f"case.prototxt: layer '{name}' ({kind}): this type is not supported; "
        f"cut the graph before it with output_tensors, or add 'caffe::{kind}' by a plugin"
        for name, kind in (("relu", "Yolov3DetectionOutput"), ("prob", "SoftMin"))
    ]


def test_faults_of_single_layers_are_told_together(tmp_path: Path) -> None:
    text = entry("x", (1, 2, 6, 6))
    text += (
        'layer { name: "a" type: "Reshape" bottom: "x" top: "a" reshape_param { shape { dim: 7 dim: -1 } } }'
    )
    text += 'layer { name: "b" type: "Pooling" bottom: "x" top: "b" pooling_param { pool: STOCHASTIC kernel_size: 2 } }'
    text += RELU.format("c", "a", "c", "")
    assert [line.split(": ")[1] for line in fault(write_network(tmp_path, text)).splitlines()] == [
        "layer 'a' (Reshape)",
        "layer 'b' (Pooling)",
    ]


def test_two_descriptions_or_none(tmp_path: Path) -> None:
    files = small(tmp_path)
    assert "one .prototxt and one .caffemodel" in fault((files[1],))
    assert "one .prototxt and one .caffemodel" in fault((files[0], files[0]))


def test_a_description_is_parsed_up_to_a_size(tmp_path: Path) -> None:
    text = entry("x", (1, 2, 6, 6)) + RELU.format("relu", "x", "y", "")
    full = text + "#" * (MAX_TEXT_BYTES - len(text))
    assert len(load(write_network(tmp_path, full)).nodes) == 1
    problem = "case.prototxt: is a description of 1048577 bytes; the maximum is 1048576; give the .prototxt"
    assert fault(write_network(tmp_path, full + "#")).startswith(problem)


@pytest.mark.parametrize(("depth", "refused"), [(32, False), (33, True)])
def test_braces_are_counted_before_they_are_parsed(depth: int, refused: bool, tmp_path: Path) -> None:
    unknown = "unknown " + "{ a " * (depth - 1) + "{ a: 1 }" + "}" * (depth - 1)
    files = write_network(tmp_path, entry("x", (1, 2, 6, 6)) + RELU.format("relu", "x", "y", "") + unknown)
    if refused:
        assert fault(files).startswith("case.prototxt: is no network: it nests 33 braces; the maximum is 32;")
    else:
        assert len(load(files).nodes) == 1
