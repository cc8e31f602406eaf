"""The files of a described network, and the sample that a target reads the description with."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mace_core.deployment import Model, Port
from mace_core.errors import MaceError
from mace_frontend_ai8x.described_model import DescribedModel

FILES = (Path("net.yaml"), Path("net.pth.tar"))


def test_a_sample_of_a_stated_shape_is_the_same_in_each_build() -> None:
    """The sample takes every value from -128 to 127, and its shape leaves out the axis of the batch."""
    model = Model("net", FILES, inputs=(Port("input", shape=(1, 3, 40, 50)),))
    described = DescribedModel.of(model)
    assert (described.description, described.checkpoint) == FILES
    assert described.sample.shape == (3, 40, 50)
    assert np.array_equal(described.sample, np.random.default_rng(0).integers(-128, 128, (3, 40, 50)))
    assert (described.sample.min(), described.sample.max()) == (-128, 127)


def test_the_first_of_the_validation_data_is_the_sample(tmp_path: Path) -> None:
    samples = np.arange(2 * 4 * 4).reshape(2, 4, 4).astype(np.int8)
    np.save(tmp_path / "x.npy", samples)
    port = Port("input", shape=(1, 2, 4, 4), data=(tmp_path / "x.npy",))
    assert DescribedModel.of(Model("net", FILES, inputs=(port,))).sample.size == samples.size


@pytest.mark.parametrize("inputs", [(), (Port("input"),)])
def test_a_model_without_sample_and_shape_is_refused(inputs: tuple[Port, ...]) -> None:
    with pytest.raises(MaceError) as error:
        DescribedModel.of(Model("net", FILES, inputs=inputs))
    assert str(error.value) == (
        "model 'net': neither a sample nor the shape of the input is stated; name a .npy file under "
        "validation_inputs_data, or the shape under input_shapes, of the input_tensors `input`"
    )


@pytest.mark.parametrize("files", [FILES[:1], (*FILES, Path("more"))])
def test_a_description_has_one_checkpoint(files: tuple[Path, ...]) -> None:
    with pytest.raises(MaceError) as error:
        DescribedModel.of(Model("net", files, inputs=(Port("input", shape=(1, 3, 4, 4)),)))
    assert str(error.value) == "model 'net': has no checkpoint; name the .pth.tar file under weight_file_path"
