"""A description beside the model that it should describe: what no tool noticed before is told, by layer."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from as_onnx import write_onnx
from check_networks import C1, C2, FC, NO, T2, eltwise, layer
from references import MODELS, Reference, references

from mace_core.compilation import read_file
from mace_core.errors import MaceError
from mace_core.registry import Registry
from mace_frontend_ai8x.checkpoint import load_checkpoint
from mace_frontend_ai8x.described_model import DescribedModel
from mace_frontend_ai8x.description import read_description
from mace_frontend_ai8x.network import Eltwise, Layer, LayerActivation, Pool
from mace_frontend_ai8x.targets import TrainedModel
from mace_target_max78000.target import Max78000
from mace_target_max78000.trained_model import check_trained_model, find_differences

REAL = [
    r for r in references() if r.path.parent.parent.name != "unit" and r.path.parent.name != "camvid_unet"
]
here = pytest.mark.skipif(not REAL, reason=f"the vendor's networks are not in {MODELS}: set MACE_MODELS")


@pytest.mark.slow
@pytest.mark.sampled(every=5)
@pytest.mark.parametrize("reference", REAL, ids=lambda r: r.name)
def test_descriptions_are_those_of_their_models(reference: Reference, tmp_path: Path) -> None:
    write_onnx(reference.network, tmp_path / "model.onnx")
    check_trained_model(
        reference.network, "model.onnx", read_file(tmp_path / "model.onnx", Registry.load()), reference.device
    )


@pytest.mark.slow
@here
@pytest.mark.parametrize(
    ("mistake", "told"),
    [
        (
            ("activate: ReLU\n    out_offset: 0x2000\n    proc", "out_offset: 0x2000\n    proc"),
            "layer 0 .*activation: none",
        ),
        (
            ("avg_pool: 2", "max_pool: 2"),
            "layer 3 .*pooling: max 2x2 stride 2 is described, .* has average 2x2",
        ),
        (
            ("max_pool: 2\n    pool_stride: 2\n    pad: 1", "avg_pool: 2\n    pool_stride: 2\n    pad: 1"),
            "layer 2 .*pooling: average",
        ),
        (("activate: None", "activate: Abs\n    output_shift: 1"), "layer 4 .*activation: abs"),
    ],
)
def test_mistakes_that_still_fit(mistake: tuple[str, str], told: str, tmp_path: Path) -> None:
    """Sizes agree, and a known answer made of the wrong description would pass on the chip."""
    reference = next(r for r in REAL if r.name == "mnist-MAX78000")
    folder, content = reference.path.parent, reference.content
    write_onnx(reference.network, tmp_path / "model.onnx")
    text = (folder / content["network"]).read_text()
    assert mistake[0] in text
    wrong = text.replace(*mistake, 1).replace(
        "output_width: 32", "output_width: 8" if "Abs" in mistake[1] else "output_width: 32"
    )
    (tmp_path / "wrong.yaml").write_text(wrong)
    network = read_description(
        tmp_path / "wrong.yaml",
        load_checkpoint(folder / content["checkpoint"]),
        reference.network.sample,
        reference.options,
    )
    with pytest.raises(MaceError) as error:
        check_trained_model(
            network, "model.onnx", read_file(tmp_path / "model.onnx", Registry.load()), reference.device
        )
    assert re.search(told, str(error.value)), str(error.value)


TWO, MEAN = Pool(False, (2, 2), 2), Pool(True, (3, 2), 1)


@pytest.mark.parametrize(
    ("described", "trained", "told"),
    [
        (layer(C2, (4, 6, 6)), layer(C2, (4, 6, 6)), []),
        (layer(C2, (4, 6, 6)), layer(T2, (4, 6, 6)), ["operation: conv2d", "convtranspose2d"]),
        # A linear layer on one position and a 1x1 convolution are the same.
        (layer(FC, (4, 1, 1), 5), layer(C2, (4, 1, 1), 5, kernel=(1, 1), pad=(0, 0)), []),
        (
            layer(FC, (4, 2, 1), 5),
            layer(C2, (4, 2, 1), 5, kernel=(1, 1), pad=(0, 0)),
            ["operation: linear", "conv2d"],
        ),
        (layer(NO, (4, 1, 1), pool=TWO), layer(NO, (4, 1, 1), pool=TWO), []),
        (
            layer(NO, (4, 2, 2), pool=TWO),
            layer(FC, (4, 2, 2), 4, pool=TWO),
            ["operation: passthrough", "linear"],
        ),
        (layer(C2, (4, 6, 6), pool=TWO), layer(C2, (4, 6, 6)), ["pooling: max 2x2 stride 2", "none"]),
        (
            layer(C2, (4, 6, 6), pool=MEAN),
            layer(C2, (4, 6, 6), pool=TWO),
            ["pooling: average 3x2 stride 1", "max 2x2 stride 2"],
        ),
        (layer(C2, (4, 6, 6), stride=2), layer(C2, (4, 6, 6), stride=3), ["pooling: every 2th", "every 3th"]),
        (
            layer(C1, (4, 12), pool=Pool(False, (2, 1), 2)),
            layer(C1, (4, 12)),
            ["pooling: max 2 stride 2", "none"],
        ),
        (
            eltwise((4, 6, 6)),
            eltwise((4, 6, 6), operands=3),
            ["element-wise operation: add of 2", "add of 3"],
        ),
        (
            eltwise((4, 6, 6), C2, eltwise=Eltwise.SUB),
            layer(C2, (4, 6, 6)),
            ["element-wise operation: sub of 2", "none"],
        ),
        (layer(C2, (4, 6, 6)), layer(C2, (4, 6, 6), kernel=(1, 1)), ["kernel: 3x3", "1x1"]),
        (layer(C2, (4, 6, 6)), layer(C2, (4, 6, 6), pad=(0, 1)), ["padding: 1", "0"]),
        (
            layer(C2, (4, 6, 6), activation=LayerActivation.ABS),
            layer(C2, (4, 6, 6)),
            ["activation: abs", "none"],
        ),
        (layer(C2, (4, 6, 6)), layer(C2, (4, 6, 6), groups=4), ["groups: 1", "4"]),
        (layer(C2, (4, 6, 6), 5), layer(C2, (4, 6, 6), 6), ["output channels: 5", "6"]),
        (layer(C2, (4, 6, 6), 5), layer(C2, (3, 6, 6), 5), ["input channels: 4", "3"]),
    ],
)
def test_each_property_is_compared(described: Layer, trained: Layer, told: list[str]) -> None:
    """Layers that only move data count on neither side."""
    moved = layer(NO, (4, 6, 6))
    actual = find_differences([moved, described], [trained, moved])
    if not told:
        assert actual == []
        return
    (aspect, ours), theirs = told[0].split(": "), told[1]
    expected = f"layer 0 (one): {aspect}: {ours} is described, the model's 'one' has {theirs}; correct the description"
    assert expected in actual


@pytest.mark.parametrize("described", [True, False])
def test_further_layers_of_either_side_are_told(described: bool) -> None:
    one = layer(C2, (4, 6, 6))
    lists = ([one, one], [one]) if described else ([one], [one, one])
    there, missing = ("description", "model") if described else ("model", "description")
    assert find_differences(*lists) == [
        f"layer 1: the {there} has 'one' here, the {missing} has no further layer; correct the list of layers"
    ]


@pytest.mark.parametrize(
    "computing", [layer(NO, (4, 6, 6), pool=TWO), layer(NO, (4, 6, 6), stride=2), eltwise((4, 6, 6))]
)
def test_layers_that_compute_something_count(computing: Layer) -> None:
    assert find_differences([computing], []) != []
    assert find_differences([layer(NO, (4, 6, 6))], []) == []


@pytest.mark.slow
@here
def test_a_project_is_made_of_a_description_that_its_model_does_not_contradict(tmp_path: Path) -> None:
    reference = next(r for r in REAL if r.name == "mnist-MAX78000")
    folder, content = reference.path.parent, reference.content
    described = DescribedModel(
        folder / content["network"], folder / content["checkpoint"], reference.network.sample
    )
    write_onnx(reference.network, tmp_path / "model.onnx")
    trained = TrainedModel("model.onnx", read_file(tmp_path / "model.onnx", Registry.load()))
    alone = Max78000.make_project(described, [], None)
    compared = Max78000.make_project(described, [], trained)
    assert alone.files == compared.files
    assert {"cnn.c", "main.c", "weights.h"} <= set(alone.files)
    first, *rest = reference.network.layers
    doubled = replace(first, activation=LayerActivation.NONE)
    write_onnx(replace(reference.network, layers=(doubled, *rest)), tmp_path / "other.onnx")
    other = TrainedModel("other.onnx", read_file(tmp_path / "other.onnx", Registry.load()))
    with pytest.raises(MaceError, match=r"layer 0 .*activation: relu is described"):
        Max78000.make_project(described, [], other)
