"""Damaged checkpoints: each ends in one error or a valid result, soon and in little memory."""

from __future__ import annotations

import time
import tracemalloc
import zipfile
from collections import Counter
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from manifest import MODELS

from mace_core.errors import MaceError
from mace_core.testing.malformed import mutations
from mace_frontend_ai8x.checkpoint import Form, load_arrays, load_checkpoint
from mace_frontend_ai8x.checkpoint.state import CheckpointState
from mace_frontend_ai8x.checkpoint.write import write_state

REAL = MODELS / "ai8x" / "cats-dogs" / "ai85-catsdogs-qat8.pth.tar"
COUNT = 250
SECONDS, MEMORY = 2.0, 100 << 20


def written(folder: Path, *, quantized: bool) -> bytes:
    """A small checkpoint, of which damage hits all parts."""
    rng = np.random.default_rng(1)
    weights = rng.integers(-128, 128, (3, 2, 3, 3)) if quantized else rng.normal(0, 0.3, (3, 2, 3, 3))
    tensors = {
        "conv.weight_bits": np.array([8], np.float32),
        "conv.adjust_output_shift": np.array([1], np.float32),
        "conv.shift_quantile": np.array([0.99], np.float32),
        "conv.output_shift": np.array([1], np.float32),
        "conv.op.weight": weights.astype(np.float32),
        "conv.op.bias": np.array([0.5, -0.25, 0.125], np.float32),
    }
    if not quantized:
        tensors |= {
            f"conv.bn.running_{kind}": np.array([0.5, 0.25, 1], np.float32) for kind in ("mean", "var")
        }
    write_state(CheckpointState(folder, tensors, "small", 1, {"best_top1": 1.5}), folder / "made")
    return (folder / "made").read_bytes()


def within(data: bytes, seed: int) -> Iterator[bytes]:
    """The archive with its pickle stream damaged and all else in order."""
    with zipfile.ZipFile(BytesIO(data)) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    name = next(name for name in entries if name.endswith("/data.pkl"))
    for stream in mutations(entries[name], seed, COUNT):
        file = BytesIO()
        with zipfile.ZipFile(file, "w") as archive:
            for entry, content in (entries | {name: stream}).items():
                archive.writestr(entry, content)
        yield file.getvalue()


def legacy(folder: Path) -> bytes:
    """The same in the format of PyTorch before 1.6."""
    torch = pytest.importorskip("torch")
    written(folder, quantized=False)
    torch.save(
        torch.load(folder / "made", weights_only=True), folder / "old", _use_new_zipfile_serialization=False
    )
    return (folder / "old").read_bytes()


def holds(files: Iterator[bytes], path: Path) -> Counter[str]:
    """Assert that each file is read as it should be; how many gave a checkpoint and how many an error."""
    result: Counter[str] = Counter()
    for data in files:
        path.write_bytes(data)
        tracemalloc.start()
        start = time.process_time()
        try:
            layers = load_checkpoint(path).layers
        except MaceError as error:
            assert str(path) in str(error)  # noqa: PT017  (a checkpoint is as good)
            result["error"] += 1
        else:
            for layer in layers:
                assert layer.weights.dtype == np.int64
                assert abs(layer.weights).max(initial=0) <= 128
                assert layer.bias is None or abs(layer.bias).max(initial=0) <= 128
            result["checkpoint"] += 1
        assert time.process_time() - start < SECONDS
        assert tracemalloc.get_traced_memory()[1] < MEMORY
        tracemalloc.stop()
    return result


@pytest.mark.slow
@pytest.mark.sampled(cases="False")
@pytest.mark.parametrize("quantized", [True, False])
def test_damaged_archives(tmp_path: Path, quantized: bool) -> None:
    data = written(tmp_path, quantized=quantized)
    result = holds(mutations(data, 1, COUNT), tmp_path / "damaged")
    assert result["error"] > COUNT / 4


@pytest.mark.slow
@pytest.mark.sampled(cases="False")
@pytest.mark.parametrize("quantized", [True, False])
def test_damaged_streams(tmp_path: Path, quantized: bool) -> None:
    data = written(tmp_path, quantized=quantized)
    result = holds(within(data, 2), tmp_path / "damaged")
    assert result["error"] > COUNT / 4


@pytest.mark.slow
def test_damaged_old_files(tmp_path: Path) -> None:
    result = holds(mutations(legacy(tmp_path), 3, COUNT), tmp_path / "damaged")
    assert result["error"] > COUNT / 4


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.skipif(not REAL.exists(), reason=f"no models in {MODELS}/ai8x; MACE_MODELS names another folder")
def test_damaged_real_files(tmp_path: Path) -> None:
    data = REAL.read_bytes()
    found = holds(mutations(data, 4, COUNT), tmp_path / "damaged") + holds(
        within(data, 5), tmp_path / "damaged"
    )
    assert found["error"] > COUNT / 2


@pytest.mark.slow
def test_damaged_arrays(tmp_path: Path) -> None:
    path = tmp_path / "weights.npy"
    with path.open("wb") as file:
        for shape in ((2, 3, 2, 3, 3), (4, 18, 1, 1)):
            np.save(file, (np.arange(np.prod(shape)).reshape(shape) % 256 - 128).astype(np.int8))
    result: Counter[str] = Counter()
    for data in mutations(path.read_bytes(), 6, 2 * COUNT):
        path.write_bytes(data)
        tracemalloc.start()
        try:
            load_arrays(path, [Form(4), Form(4, 2), Form(2)])
        except MaceError as error:
            assert str(error).startswith(f"{path}: ")  # noqa: PT017  (arrays are as good)
            result["error"] += 1
        else:
            result["arrays"] += 1
        assert tracemalloc.get_traced_memory()[1] < MEMORY
        tracemalloc.stop()
    assert min(result.values()) > COUNT / 10
