"""Arrays of users beside the tensors that they are for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mace_core.deployment import Port
from mace_core.errors import MaceError
from mace_core.ir import DType, Tensor
from mace_core.run.files import read_array, read_samples
from mace_core.run.samples import fit, fit_inputs, stored_samples

IMAGE = Tensor("image", DType.F32, (1, 4, 5, 3))
ROW = Tensor("row", DType.U8, (7,))
NUMBER = Tensor("number", DType.I64, ())


@pytest.mark.parametrize(
    ("tensor", "shape", "samples"),
    [
        (IMAGE, (1, 4, 5, 3), 1),
        (IMAGE, (6, 1, 4, 5, 3), 6),
        (IMAGE, (6, 4, 5, 3), 6),
        (ROW, (7,), 1),
        (ROW, (1, 7), 1),
        (ROW, (9, 7), 9),
        (NUMBER, (), 1),
        (NUMBER, (3,), 3),
    ],
)
def test_one_sample_and_a_batch_of_samples_are_both_taken(
    tensor: Tensor, shape: tuple[int, ...], samples: int
) -> None:
    array = np.arange(int(np.prod(shape)), dtype=tensor.dtype.numpy).reshape(shape)
    fitted = fit(tensor, array)
    assert fitted.shape == (samples, *tensor.shape)
    np.testing.assert_array_equal(fitted.ravel(), array.ravel())


@pytest.mark.parametrize(
    ("array", "said"),
    [
        (
            np.zeros((1, 4, 5, 3)),
            r"input 'image': expected float32\[1, 4, 5, 3\], found float64\[1, 4, 5, 3\]; .*astype\(numpy\.float32\)",
        ),
        (np.zeros((1, 4, 5, 3), np.uint8), "found uint8"),
        (
            np.zeros((1, 3, 4, 5), np.float32),
            r"expected float32\[1, 4, 5, 3\] for each sample, found float32\[1, 3, 4, 5\]",
        ),
        (np.zeros(60, np.float32), r"found float32\[60\]"),
        (np.zeros((2, 2, 4, 5, 3), np.float32), r"found float32\[2, 2, 4, 5, 3\]"),
        (np.zeros((), np.float32), r"found float32\[\]"),
        (np.array(["a"]), "found str"),
    ],
)
def test_another_type_or_shape_is_refused(array: np.ndarray, said: str) -> None:
    with pytest.raises(MaceError, match=said):
        fit(IMAGE, array)


def test_other_orders_of_bytes_and_of_axes_in_memory_hold_the_same_numbers() -> None:
    array = np.random.default_rng(0).standard_normal(IMAGE.shape).astype(np.float32)
    for same in (array.astype(">f4"), np.asfortranarray(array)):
        np.testing.assert_array_equal(fit(IMAGE, same)[0], array)


def test_all_faults_of_the_inputs_are_told_together() -> None:
    with pytest.raises(MaceError) as error:
        fit_inputs([IMAGE, ROW, NUMBER], {"image": np.zeros(3), "rwo": np.zeros(7)})
    lines = str(error.value).splitlines()
    assert lines[0] == "input 'rwo': the model has no such input; it has 'image', 'row', 'number'"
    assert lines[1].startswith("input 'image': expected float32[1, 4, 5, 3], found float64[3]")
    assert lines[2].startswith("input 'row': no data given")
    assert lines[3].startswith("input 'number': no data given")


def test_different_numbers_of_samples_are_refused() -> None:
    given = {"row": np.zeros((3, 7), np.uint8), "number": np.zeros((2,), np.int64)}
    with pytest.raises(MaceError, match="different numbers of samples: 'row' 3, 'number' 2"):
        fit_inputs([ROW, NUMBER], given)


def test_expected_outputs_may_be_of_any_type_of_numbers() -> None:
    assert fit(ROW, np.zeros((2, 7)), "output").shape == (2, 7)
    with pytest.raises(MaceError, match="output 'row'"):
        fit(ROW, np.zeros((2, 8)), "output")


def test_an_archive_holds_several_inputs(tmp_path: Path) -> None:
    file = str(tmp_path / "all.npz")
    np.savez(file, image=np.ones((2, 4, 5, 3), np.float32), own_row=np.full((2, 7), 3, np.uint8))
    ports = [Port("image", data=(file,)), Port("own_row", alias="row", data=(file,))]
    result = stored_samples(ports, [IMAGE, ROW])
    assert {n: a.shape for n, a in result.items()} == {"image": (2, 1, 4, 5, 3), "row": (2, 7)}
    assert (result["row"] == 3).all()
    with pytest.raises(MaceError, match="has no array 'number'; it holds image, own_row"):
        read_array(file, NUMBER)
    with pytest.raises(MaceError, match="holds 2 arrays"):
        read_samples(file)
    np.savez(file, anything=np.ones(7, np.uint8))
    assert read_array(file, ROW).shape == read_samples(file).shape == (7,)


def test_raw_files_hold_the_elements_alone(tmp_path: Path) -> None:
    array = np.random.default_rng(0).standard_normal((2, 1, 4, 5, 3)).astype("<f4")
    (tmp_path / "data").write_bytes(array.tobytes())
    np.testing.assert_array_equal(read_array(str(tmp_path / "data"), IMAGE), array)
    (tmp_path / "data").write_bytes(array.tobytes()[:-1])
    with pytest.raises(MaceError, match="has 479 bytes; raw data of 'image' has 240 for each sample"):
        read_array(str(tmp_path / "data"), IMAGE)
    none = Tensor("none", DType.F32, (1, 0))
    with pytest.raises(MaceError, match="has 479 bytes; raw data of 'none' has 0 for each sample"):
        read_array(str(tmp_path / "data"), none)
    with (tmp_path / "named").open("wb") as file:
        np.save(file, array)
    np.testing.assert_array_equal(read_array(str(tmp_path / "named"), IMAGE), array)


@pytest.mark.parametrize(
    "name",
    [
        "gone.npy",
        "gone.npz",
        "gone.raw",
        "x" * 5000 + ".npy",
        "folder.npy",
        "folder.npz",
        "folder",
        "a\0b.npy",
    ],
)
def test_what_is_no_file_is_told(tmp_path: Path, name: str) -> None:
    for folder in ("folder.npy", "folder.npz", "folder"):
        (tmp_path / folder).mkdir()
    with pytest.raises(MaceError, match="cannot be read as an array") as error:
        read_array(f"{tmp_path}/{name}", IMAGE)
    assert len(str(error.value)) < 500


@pytest.mark.parametrize("suffix", ["npy", "npz"])
@pytest.mark.parametrize("content", [b"", b"PK\3\4 no archive", b"\x93NUMPY\1\0v\0{'descr'", b"text"])
def test_damaged_and_pickled_files_are_refused(tmp_path: Path, suffix: str, content: bytes) -> None:
    file = tmp_path / f"data.{suffix}"
    file.write_bytes(content)
    with pytest.raises(MaceError, match="cannot be read as an array"):
        read_array(str(file), IMAGE)
    np.save(tmp_path / "objects.npy", np.array([{}], object), allow_pickle=True)
    with pytest.raises(MaceError, match="cannot be read as an array"):
        read_array(str(tmp_path / "objects.npy"), IMAGE)
    np.savez(tmp_path / "objects.npz", np.array([{}], object))
    with pytest.raises(MaceError, match="cannot be read as an array"):
        read_array(str(tmp_path / "objects.npz"), IMAGE)
