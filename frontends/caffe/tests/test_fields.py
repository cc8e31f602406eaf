"""Fields and bottoms that forks of Caffe gave layers: refused by name where nothing here reads them."""

from pathlib import Path

import pytest
from caffe_cases import Case, entry, files_of, floats, load, write_network

from mace_core.errors import MaceError
from mace_frontend_caffe import schema
from mace_frontend_caffe.fields import find_unknown_fields
from mace_frontend_caffe.node import CUT_BEFORE

IMAGE = (1, 4, 6, 6)


@pytest.mark.parametrize(
    ("layer", "names"),
    [
        ("Pooling pooling_param { kernel_size: 2 torch_pooling: true }", "pooling_param.torch_pooling"),
        ("Eltwise eltwise_param { coeff_blob: true }", "eltwise_param.coeff_blob"),
        ("ReLU relu_param { cap: 6 } new_param { a: 1 b { c: 2 } }", "relu_param.cap, new_param"),
        (
            "Convolution convolution_param { num_output: 4 kernel_size: 1 quant < bits: 8 > }",
            "convolution_param.quant",
        ),
    ],
)
def test_a_field_that_nothing_reads_is_refused(layer: str, names: str, tmp_path: Path) -> None:
    case = Case("fork", layer, [IMAGE, IMAGE] if layer.startswith("Eltwise") else [IMAGE])
    with pytest.raises(MaceError) as error:
        load(files_of(case, tmp_path))
    kind = layer.partition(" ")[0]
    problem = f"it has {names}, which no layer here reads; {CUT_BEFORE}"
    assert str(error.value) == f"case.prototxt: layer 'layer' ({kind}): {problem}"


def test_fields_without_effect_are_accepted(tmp_path: Path) -> None:
    layer = """InnerProduct # a comment: with { braces
    param { lr_mult: 1 decay_mult: 0 } param { lr_mult: 2 }  # another_param { of: 1 }
    include { phase: TEST not_stage: "deploy_param { x: 1 }" }
    inner_product_param {
        num_output: 2 weight_filler { type: 'gaussian {' std: 0.1 } bias_filler < type: "x" >
    }"""
    case = Case("plain", layer, [(1, 3)], [floats(2, 3), floats(2)])
    assert load(files_of(case, tmp_path)).outputs


def test_fields_belong_to_their_layers() -> None:
    text = """
    name: "net" state { stage: "x" }
    layer { name: "a" shape_param: [ { a: 1 }, { b: 2 } ] }
    layers [ { type: RELU relu_param { cap: MAX } }, { name: "e" } ]
    layer: < name: "b" reshape_param { shape { dim: [1, 2] dimension: 3 } } >
    layer # a comment: { x: 1 }
    { name: "c" top: "layer { x: 1 }" }
    [a.b/layer] { name: "d" }
    """
    expected = [["shape_param"], ["relu_param.cap"], [], ["reshape_param.shape.dimension"], []]
    assert find_unknown_fields(text, schema.create_net()) == expected


@pytest.mark.parametrize("kind", ["ReLU", "Permute permute_param { order: 0 }", "Flatten", "Dropout"])
def test_a_bottom_that_nothing_reads_is_refused(kind: str, tmp_path: Path) -> None:
    case = Case("fork", kind, [IMAGE, IMAGE])
    with pytest.raises(MaceError, match=rf"it has further bottoms: x1; {CUT_BEFORE}"):
        load(files_of(case, tmp_path))


def test_a_norm_of_each_batch_is_refused(tmp_path: Path) -> None:
    blobs = [floats(4), floats(4)]
    learned = Case("norm", "BN bn_param { bn_mode: LEARN }", [IMAGE], blobs)
    with pytest.raises(MaceError, match=r"it takes the statistics of each batch \(bn_mode: LEARN\); merge"):
        load(files_of(learned, tmp_path))
    stored = Case("norm", "BN bn_param { bn_mode: INFERENCE momentum: 0.9 }", [IMAGE], blobs)
    assert load(files_of(stored, tmp_path)).outputs


def test_fields_of_layers_that_are_not_deployed_do_not_matter(tmp_path: Path) -> None:
    text = (
        entry("x", IMAGE)
        + """
    layer { name: "relu" type: "ReLU" bottom: "x" top: "y" include { phase: TRAIN } relu_param { cap: 6 } }
    layer { name: "relu" type: "ReLU" bottom: "x" top: "y" include { phase: TEST } }
    """
    )
    assert load(write_network(tmp_path, text)).outputs == ("y",)
