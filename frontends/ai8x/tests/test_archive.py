"""Checkpoint files of both formats of PyTorch, and each way in which one is damaged or of another kind."""

from __future__ import annotations

import pickle
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from mace_core.errors import MaceError
from mace_core.ir import Array
from mace_frontend_ai8x.checkpoint import archive
from mace_frontend_ai8x.checkpoint.archive import STREAM_START, VERSION, Archive, read_archive
from mace_frontend_ai8x.checkpoint.names import StridedTensor, TensorStorage
from mace_frontend_ai8x.checkpoint.state import CheckpointState
from mace_frontend_ai8x.checkpoint.write import write_state

WEIGHTS = np.arange(12, dtype=np.float32).reshape(3, 2, 2)
COUNTS = np.array([5, -6], np.int64)


def entries_of(folder: Path) -> dict[str, bytes]:
    """Return the entries of a small archive by their names below its top folder."""
    tensors = {"conv.op.weight": WEIGHTS, "conv.count": COUNTS}
    write_state(CheckpointState(folder, tensors, "small", 1, {}), folder / "made")
    with zipfile.ZipFile(folder / "made") as made:
        return {name.partition("/")[2]: made.read(name) for name in made.namelist()}


def write_archive(
    path: Path, entries: Mapping[str, bytes], top: str = "other", compression: int = zipfile.ZIP_STORED
) -> Path:
    with zipfile.ZipFile(path, "w", compression) as made:
        for name, content in entries.items():
            made.writestr(f"{top}/{name}", content)
    return path


def write_stream(
    path: Path,
    entries: Mapping[str, bytes],
    keys: object = ("0", "1"),
    version: object = VERSION,
    counts: Sequence[int] = (12, 2),
) -> Path:
    """The same content as PyTorch wrote it before 1.6: four pickles, then each storage's count and numbers."""
    content = STREAM_START + pickle.dumps(version, 2) + pickle.dumps({"little_endian": True}, 2)
    content += entries["data.pkl"] + pickle.dumps(list(keys) if isinstance(keys, tuple) else keys, 2)
    for key, count in zip("01", counts, strict=False):
        content += count.to_bytes(8, "little") + entries[f"data/{key}"]
    path.write_bytes(content)
    return path


def arrays(found: Archive) -> list[Array]:
    state = found.root["state_dict"]
    return [found.array(state[name]) for name in ("conv.op.weight", "conv.count")]


def test_an_archive_may_have_been_renamed(tmp_path: Path) -> None:
    result = read_archive(write_archive(tmp_path / "x", entries_of(tmp_path)))
    assert result.size == (tmp_path / "x").stat().st_size
    for array, expected in zip(arrays(result), (WEIGHTS, COUNTS), strict=True):
        assert array.dtype == expected.dtype
        assert np.array_equal(array, expected)
        assert not array.flags.writeable


def test_a_stream_of_older_versions(tmp_path: Path) -> None:
    result = read_archive(write_stream(tmp_path / "x", entries_of(tmp_path)))
    assert result.size == (tmp_path / "x").stat().st_size
    for array, expected in zip(arrays(result), (WEIGHTS, COUNTS), strict=True):
        assert np.array_equal(array, expected)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"version": 1002}, "is of an unknown version of PyTorch"),
        ({"keys": ("0", "7")}, "its contents are damaged: its numbers have no type"),
        ({"keys": ("0", 1)}, "its contents are damaged: its numbers have no type"),
        ({"keys": ("0", "1"), "counts": (12,)}, "its contents are damaged: its numbers have no type"),
        ({"counts": (12, 3)}, "its contents are damaged: its numbers are cut off"),
        ({"keys": 5}, "its contents are damaged: the numbers of a tensor are missing"),
        ({"keys": ("0",)}, "its contents are damaged: the numbers of a tensor are missing"),
    ],
)
def test_damaged_streams(changes: dict[str, object], problem: str, tmp_path: Path) -> None:
    path = write_stream(tmp_path / "x", entries_of(tmp_path), **changes)  # type: ignore[arg-type]
    with pytest.raises(MaceError) as error:
        arrays(read_archive(path))
    assert str(error.value).startswith(f"{path}: {problem}; ")


@pytest.mark.parametrize("order", [b"little", b"big", None])
def test_numbers_in_either_order_of_bytes(order: bytes | None, tmp_path: Path) -> None:
    entries = {name: content for name, content in entries_of(tmp_path).items() if name != "byteorder"}
    if order is not None:
        entries["byteorder"] = order
    path = write_archive(tmp_path / "x", entries)
    if order != b"big":
        assert np.array_equal(arrays(read_archive(path))[0], WEIGHTS)
        return
    with pytest.raises(MaceError) as error:
        read_archive(path)
    remedy = "save it on a machine with an x86 or ARM processor"
    assert str(error.value) == f"{path}: holds numbers in big-endian order; {remedy}"


def test_an_archive_has_one_stream(tmp_path: Path) -> None:
    entries = entries_of(tmp_path)
    stream = entries.pop("data.pkl")
    for streams in ({}, {"data.pkl": stream, "second/data.pkl": stream}):
        path = write_archive(tmp_path / "x", {**entries, **streams})
        with pytest.raises(MaceError, match="is a zip archive without a checkpoint in it"):
            read_archive(path)


def test_an_archive_without_numbers_or_with_packed_ones(tmp_path: Path) -> None:
    entries = entries_of(tmp_path)
    packed = write_archive(tmp_path / "packed", entries, compression=zipfile.ZIP_DEFLATED)
    with pytest.raises(
        MaceError, match=r"damaged: entry 'other/[a-z./]+' is not stored plainly, as PyTorch writes it"
    ):
        read_archive(packed)
    del entries["data/1"]
    result = read_archive(write_archive(tmp_path / "x", entries))
    state = result.root["state_dict"]
    assert np.array_equal(result.array(state["conv.op.weight"]), WEIGHTS)
    with pytest.raises(
        MaceError, match="damaged: entry 'other/data/1' cannot be read; copy or download it again"
    ):
        result.array(state["conv.count"])


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"PK\x03\x04", "its contents are damaged: it is not a complete zip archive"),
        (b"", "is no PyTorch checkpoint; name a checkpoint file (.pth.tar)"),
        (STREAM_START[:-1], "is no PyTorch checkpoint; name a checkpoint file (.pth.tar)"),
        (STREAM_START, "its contents are damaged: "),
    ],
)
def test_files_of_another_kind(data: bytes, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(data)
    with pytest.raises(MaceError) as error:
        read_archive(path)
    assert str(error.value).startswith(f"{path}: {problem}")


def test_a_file_that_is_not_there_or_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(MaceError, match="cannot be read: No such file or directory; name a checkpoint file"):
        read_archive(tmp_path / "x")
    path = write_archive(tmp_path / "x", entries_of(tmp_path))
    monkeypatch.setattr(archive, "MAX_FILE_BYTES", path.stat().st_size)
    read_archive(path)
    monkeypatch.setattr(archive, "MAX_FILE_BYTES", path.stat().st_size - 1)
    with pytest.raises(MaceError, match="is larger than a checkpoint for this target can be"):
        read_archive(path)
    assert archive.MAX_FILE_BYTES < 1 << 30


def tensor(
    shape: Sequence[int], stride: Sequence[int], offset: int = 0, kind: str = "IntStorage"
) -> StridedTensor:
    return StridedTensor(TensorStorage(kind, "0", 6), offset, tuple(shape), tuple(stride))


@pytest.mark.parametrize(
    ("described", "expected"),
    [
        (tensor((2, 3), (3, 1)), [[0, 1, 2], [3, 4, 5]]),
        (tensor((3, 2), (1, 3)), [[0, 3], [1, 4], [2, 5]]),
        (tensor((2,), (1,), 4), [4, 5]),
        (tensor((2,), (5,)), [0, 5]),
        (tensor((), (), 5), 5),
        (tensor((1, 2), (10**9, 1)), [[0, 1]]),
        (tensor((0, 2), (1, 1), 10**9), []),
        (tensor((1,) * 8, (1,) * 8), [[[[[[[[0]]]]]]]]),
        (tensor((2,), (1,), 5), "of shape [2] does not lie within its 6 numbers"),
        (tensor((2,), (6,)), "of shape [2] does not lie within its 6 numbers"),
        (tensor((7,), (0,)), "of shape [7] does not lie within its 6 numbers"),
        (tensor((1,) * 9, (1,) * 9), "does not lie within its 6 numbers"),
        (tensor((2,), (1,), kind="QInt8Storage"), "a tensor has type QInt8Storage; save it as 32-bit floats"),
    ],
)
def test_where_a_tensor_lies_in_its_storage(described: StridedTensor, expected: object) -> None:
    numbers = np.arange(6, dtype="<i4").tobytes()
    opened = Archive(Path("x"), 0, None, lambda _: numbers)
    if isinstance(expected, str):
        with pytest.raises(MaceError) as error:
            opened.array(described)
        assert expected in str(error.value)
        return
    assert opened.array(described).tolist() == expected
