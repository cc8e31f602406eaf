"""A description beside the model that it should describe: what no tool noticed before is told, by layer."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from as_onnx import write_onnx
from references import MODELS, Reference, references

from mace_core.compilation import read_file
from mace_core.errors import MaceError
from mace_core.registry import Registry
from mace_frontend_ai8x.checkpoint import load_checkpoint
from mace_frontend_ai8x.description import read_description
from mace_target_max78000.trained_model import check_trained_model

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
    with pytest.raises(MaceError) as caught:
        check_trained_model(
            network, "model.onnx", read_file(tmp_path / "model.onnx", Registry.load()), reference.device
        )
    assert re.search(told, str(caught.value)), str(caught.value)
