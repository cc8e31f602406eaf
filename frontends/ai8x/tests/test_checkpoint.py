"""Checkpoints: what PyTorch reads is what is read here, and nothing else happens."""

from __future__ import annotations

import io
import json
import os
import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from manifest import MODELS

from mace_core.errors import MaceError
from mace_core.ir import Array
from mace_frontend_ai8x.checkpoint import load_checkpoint
from mace_frontend_ai8x.checkpoint.names import Foreign
from mace_frontend_ai8x.checkpoint.state import CheckpointState, read_state
from mace_frontend_ai8x.checkpoint.unpickle import read_pickle
from mace_frontend_ai8x.checkpoint.write import write_state

FILES = tuple(sorted((MODELS / "ai8x").glob("*/*.pth.tar")))
QUANTIZED = tuple(path for path in FILES if "-q." in path.name)

real = pytest.mark.skipif(not FILES, reason=f"no models in {MODELS}/ai8x; MACE_MODELS names another folder")


def small() -> dict[str, Array]:
    """A quantized network of a convolution and a linear layer."""
    rng = np.random.default_rng(5)
    return {
        "conv1.output_shift": np.array([-1], np.float32),
        "conv1.weight_bits": np.array([4], np.int64),
        "conv1.op.weight": rng.integers(-8, 8, (3, 2, 3, 3)).astype(np.float32),
        "fc.output_shift": np.array([2], np.float32),
        "fc.op.weight": rng.integers(-128, 128, (2, 12)).astype(np.float32),
        "fc.op.bias": np.array([128 * 5 + 3, -128 * 7 - 3], np.float32),
    }


def state(path: Path, **changes: Any) -> CheckpointState:
    """The small network, with changes of its tensors, None for one left out.

    Dots of names are double underscores.
    """
    tensors = small() | {name.replace("__", "."): values for name, values in changes.items()}
    return CheckpointState(
        path,
        {name: values for name, values in tensors.items() if values is not None},
        "small",
        7,
        {"best_top1": 99.5},
    )


def file(path: Path, **changes: Any) -> Path:
    """The small network as a file."""
    write_state(state(path, **changes), path)
    return path


def archive(path: Path, stream: bytes) -> Path:
    """A zip archive like PyTorch's with this pickle stream."""
    with zipfile.ZipFile(path, "w") as made:
        made.writestr("archive/data.pkl", stream)
    return path


@pytest.mark.sampled(every=3)
@real
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name.removesuffix(".pth.tar"))
def test_real_tensors(path: Path) -> None:
    torch = pytest.importorskip("torch")
    expected = torch.load(path, map_location="cpu", weights_only=False)
    read = read_state(path)
    assert list(read.tensors) == list(expected["state_dict"])
    for name, values in expected["state_dict"].items():
        assert read.tensors[name].dtype == values.numpy().dtype
        np.testing.assert_array_equal(read.tensors[name], values.numpy())
    assert (read.arch, read.epoch, read.extras) == (expected["arch"], expected["epoch"], expected["extras"])


@pytest.mark.sampled(every=5)
@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [{}, {"pickle_protocol": 4}, {"_use_new_zipfile_serialization": False}],
    ids=["zip", "protocol 4", "stream"],
)
@pytest.mark.parametrize("wrapped", [True, False])
def test_torch_writes(tmp_path: Path, options: dict[str, Any], wrapped: bool) -> None:
    """All types, views, shared numbers and parameters; alone and beside what training leaves."""
    torch = pytest.importorskip("torch")
    base = torch.arange(24.0).reshape(4, 6)
    tensors = OrderedDict(
        {
            "a.op.weight": torch.nn.Parameter(base),
            "a.op.bias": base[1:3, 2],
            "b.op.weight": base.T[1:5:2],
            "half": base.half(),
            "double": base.double(),
            "none": torch.empty(0),
            "scalar": torch.tensor(3),
            **{
                str(kind): base.to(kind)
                for kind in (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)
            },
        }
    )
    optimizer = torch.optim.SGD([tensors["a.op.weight"]], 0.1)
    around = {
        "epoch": 3,
        "arch": "x",
        "state_dict": tensors,
        "optimizer_type": type(optimizer),
        "optimizer_state_dict": optimizer.state_dict(),
        "extras": {"top1": np.float64(3), "ok": True, "set": {1}, "big": 1 << 40},
    }
    torch.save(around if wrapped else tensors, tmp_path / "x.pth.tar", **options)
    read = read_state(tmp_path / "x.pth.tar")
    for name, values in tensors.items():
        np.testing.assert_array_equal(read.tensors[name], values.detach().numpy())
    assert (read.arch, read.epoch, read.extras) == (
        ("x", 3, {"ok": True, "big": 1 << 40}) if wrapped else (None, None, {})
    )


def test_written_files(tmp_path: Path) -> None:
    """They are read back here and by PyTorch, which allows no objects, and the same network gives the same bytes."""
    one, two = file(tmp_path / "one"), file(tmp_path / "two")
    assert one.read_bytes() == two.read_bytes()
    read = read_state(one)
    assert list(read.tensors) == list(small())
    assert (read.arch, read.epoch, read.extras) == ("small", 7, {"best_top1": 99.5})
    torch = pytest.importorskip("torch")
    loaded = torch.load(one, weights_only=True)
    assert (loaded["arch"], loaded["epoch"], loaded["extras"]) == ("small", 7, {"best_top1": 99.5})
    for name, values in small().items():
        assert read.tensors[name].dtype == values.dtype == loaded["state_dict"][name].numpy().dtype
        np.testing.assert_array_equal(read.tensors[name], values)
        np.testing.assert_array_equal(loaded["state_dict"][name].numpy(), values)


@pytest.mark.sampled(every=3)
@real
@pytest.mark.parametrize("path", QUANTIZED, ids=lambda path: path.parent.name)
def test_real_biases(path: Path) -> None:
    """Each layer's bias lies in a bias memory as the maker's program has it."""
    layers = load_checkpoint(path).layers
    for reference in path.parent.glob("reference-*.json"):
        memories = [bytes(memory) for memory in json.loads(reference.read_text())["bias"].values()]
        biases = [
            layer.bias.astype(np.int8).tobytes()
            for layer in layers
            if layer.bias is not None and layer.bias.any()
        ]
        assert all(any(bias in memory for memory in memories) for bias in biases)
        assert bool(biases) == bool(memories)


def test_layers(tmp_path: Path) -> None:
    read = load_checkpoint(file(tmp_path / "small"))
    assert (read.arch, read.epoch, read.quantized, read.notes) == ("small", 7, True, ())
    conv, fc = read.layers
    assert (conv.name, conv.weight_bits, conv.output_shift, conv.bias) == ("conv1", 4, -1, None)
    assert (fc.name, fc.weight_bits, fc.output_shift) == ("fc", 8, 2)
    assert fc.bias is not None
    assert fc.bias.tolist() == [5, -8]
    for layer, values in ((conv, small()["conv1.op.weight"]), (fc, small()["fc.op.weight"])):
        assert layer.weights.dtype == np.int64
        np.testing.assert_array_equal(layer.weights, values)


def test_layers_twice(tmp_path: Path) -> None:
    """Of a model's two copies the first is used, as the maker's loader does, and what the other has besides is told."""
    once = small()
    first = {f"module.{name}": values for name, values in once.items() if not name.endswith("bias")}
    write_state(CheckpointState(tmp_path, first | once), tmp_path / "twice")
    read = load_checkpoint(tmp_path / "twice")
    assert [(layer.name, layer.bias) for layer in read.layers] == [("conv1", None), ("fc", None)]
    assert read.notes == (
        "the checkpoint holds 2 layers twice, with and without 'module.'; those from module.conv1.op on are used,"
        " which lack 1 biases that the others have",
    )
    write_state(CheckpointState(tmp_path, once | first), tmp_path / "plain first")
    read = load_checkpoint(tmp_path / "plain first")
    assert [layer.bias is None for layer in read.layers] == [True, False]
    write_state(CheckpointState(tmp_path, first), tmp_path / "parallel")
    read = load_checkpoint(tmp_path / "parallel")
    assert ([layer.name for layer in read.layers], read.notes) == (["conv1", "fc"], ())


def test_faults_of_layers(tmp_path: Path) -> None:
    """All of them at once."""
    path = file(
        tmp_path / "bad",
        conv1__output_shift=np.array([0.5], np.float32),
        conv1__weight_bits=np.array([3], np.int64),
        conv1__op__weight=np.full((1, 1, 3, 3), 200, np.float32),
        fc__op__bias=np.array([np.inf, 0], np.float32),
        fc__output_shift=np.array([99], np.float32),
    )
    with pytest.raises(MaceError) as error:
        load_checkpoint(path)
    assert str(error.value).splitlines() == [
        f"{path}: conv1 has weights of 3 bits; quantize it to 1, 2, 4 or 8",
        f"{path}: conv1.op.weight is from 200 to 200, wider than 8 bits; quantize again",
        f"{path}: conv1.output_shift is 0.5; it must be an integer from -30 to 30, quantize again",
        f"{path}: fc.op.bias is from 0 to inf, wider than 8 bits; quantize again",
        f"{path}: fc.output_shift is 99; it must be an integer from -30 to 30, quantize again",
    ]


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda path: path / "missing", "cannot be read: No such file or directory"),
        (lambda path: path, "cannot be read: Is a directory"),
        (lambda path: _written(path / "x", b""), "is no PyTorch checkpoint"),
        (
            lambda path: _written(path / "x", b"PK\3\4"),
            "its contents are damaged: it is not a complete zip archive",
        ),
        (lambda path: archive(path / "x", b"\x80\2}."), "holds no state_dict with weights"),
        (lambda path: archive(path / "x", b"\x80\2}"), "its contents are damaged: its stream has no end"),
        (lambda path: archive(path / "x", b"\x80\2r."), "its contents are damaged"),
    ],
)
def test_no_checkpoint(tmp_path: Path, make: Callable[[Path], Path], problem: str) -> None:
    path = make(tmp_path)
    with pytest.raises(MaceError) as error:
        load_checkpoint(path)
    assert str(error.value).startswith(f"{path}: {problem}")
    assert "; " in str(error.value)


def _written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def test_plain_objects() -> None:
    """What Python pickles of containers, numbers and texts is read as Python reads it."""
    shared = ["é\ud800", 3.5]
    value = {
        "a": [1, -1, 255, 65536, -(1 << 31), 1 << 100, True, None, 1e300],
        "b": (),
        "c": ((1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)),
        5: shared,
    }
    value["d"] = [shared, shared, b"x" * 300, "y" * 300, {}, [], OrderedDict(x=1)] * 3
    for protocol in (2, 3, 4, 5):
        data = pickle.dumps(value, protocol)
        stream = read_pickle(b"..." + data, 3, "x")
        assert stream.root == pickle.loads(data)
        assert stream.end == len(data) + 3
    assert read_pickle(pickle.dumps({1, 2}, 4), 0, "x").root == Foreign("set")


class _Evil:
    """Calls a function when it is unpickled."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> Any:
        return self.call


@pytest.mark.parametrize("protocol", [2, 4])
@pytest.mark.parametrize("legacy", [False, True])
def test_malicious_streams(tmp_path: Path, protocol: int, legacy: bool) -> None:
    """They construct nothing, and the error names what they ask for."""
    trace = tmp_path / "trace"
    evils = {
        "posix.system": _Evil(os.system, f"touch {trace}"),
        "builtins.eval": _Evil(eval, f"open({str(trace)!r}, 'w')"),
        "builtins.exec": _Evil(exec, f"open({str(trace)!r}, 'w')"),
        "_io.open": _Evil(io.open, str(trace), "w"),
        "builtins.getattr": _Evil(getattr, trace, "touch"),
        "pathlib.Path": _Evil(Path, "x"),
    }
    for name, evil in evils.items():
        stream = pickle.dumps({"state_dict": {}, "extras": [evil]}, protocol)
        path = archive(tmp_path / "evil", stream)
        if legacy:
            header = [0x1950A86A20F9469CFC6C, 1001, {}]
            path.write_bytes(
                b"".join(pickle.dumps(part, 2) for part in header) + stream + pickle.dumps([], 2)
            )
        with pytest.raises(MaceError) as error:
            load_checkpoint(path)
        told = name.replace("builtins", "__builtin__") if protocol == 2 else name
        told = told.replace("_io.open", "io.open") if protocol == 2 else told
        assert str(error.value).startswith(f"{path}: it asks for ")
        assert told.rpartition(".")[2] in str(error.value)
        assert "nothing of the file was run; do not use it" in str(error.value)
        assert not trace.exists()


def test_calls_of_other_things() -> None:
    """Only names can be called, and those that are known only with what they take."""
    calls = (
        b"\x80\2K\1)R.",
        b"\x80\2ctorch._utils\n_rebuild_tensor_v2\n)R.",
        b"\x80\2ccollections\nOrderedDict\n]]a\x85R.",
        b"\x80\2c_codecs\nencode\nX\1\0\0\0aX\3\0\0\0hex\x86R.",
        b"\x80\2Q.",
        b"\x80\2}}K\1s.",
    )
    for data in calls:
        with pytest.raises(MaceError, match="x: its contents are damaged: "):
            read_pickle(data, 0, "x")
    assert read_pickle(b"\x80\2cargparse\nNamespace\n)\x81}X\1\0\0\0aK\1sb.", 0, "x").root == Foreign(
        "argparse.Namespace"
    )


def test_tensors_within_their_numbers(tmp_path: Path) -> None:
    """No tensor reaches beyond its numbers or repeats them, and the file's numbers are not used again and again."""
    whole = file(tmp_path / "whole").read_bytes()
    with zipfile.ZipFile(io.BytesIO(whole)) as entries:
        stream = entries.read("archive/data.pkl")
        numbers = {name: entries.read(name) for name in entries.namelist() if "/data/" in name}
    shape = b"(\x8a\1\2\x8a\1\x0ct"
    assert stream.count(shape) == 1

    def read(changed: bytes) -> CheckpointState:
        path = archive(tmp_path / "changed", changed)
        with zipfile.ZipFile(path, "a") as entries:
            for name, data in numbers.items():
                entries.writestr(name, data)
        return read_state(path)

    assert read(stream).tensors["fc.op.weight"].shape == (2, 12)
    for other in (
        b"(\x8a\1\3\x8a\1\x0ct",
        b"(\x8a\1\2\x8a\x08" + b"\xff" * 7 + b"\x7ft",
        b"(\x8a\1\x02\x8a\1\xfft",
        b"(\x8a\1\2t",
    ):
        with pytest.raises(
            MaceError, match=r"damaged: (a tensor|torch\._utils)|more weights than its size allows"
        ):
            read(stream.replace(shape, other))


def test_shared_numbers(tmp_path: Path) -> None:
    """Layers may share weights, but a small file becomes no large model."""
    torch = pytest.importorskip("torch")
    weights = torch.ones(100, 100)
    torch.save({f"layer{i}.op.weight": weights for i in range(3)}, tmp_path / "few")
    assert len(load_checkpoint(tmp_path / "few").layers) == 3
    torch.save({f"layer{i}.op.weight": weights for i in range(60)}, tmp_path / "many")
    with pytest.raises(MaceError, match="has more weights than its size allows; save the model again"):
        load_checkpoint(tmp_path / "many")


def test_no_bombs(tmp_path: Path) -> None:
    """Entries are stored as they are, and are read no more often than the file has them."""
    whole = file(tmp_path / "whole")
    with (
        zipfile.ZipFile(whole) as entries,
        zipfile.ZipFile(tmp_path / "packed", "w", zipfile.ZIP_DEFLATED) as packed,
    ):
        for name in entries.namelist():
            packed.writestr(name, entries.read(name))
    with pytest.raises(
        MaceError, match="is not stored plainly, as PyTorch writes it; copy or download it again"
    ):
        load_checkpoint(tmp_path / "packed")
    data = bytearray(whole.read_bytes())
    directory = data.rindex(b"PK\1\2", 0, data.index(b"archive/data/2", data.index(b"PK\1\2")))
    for size in (1 << 31, (1 << 32) - 2):
        data[directory + 20 : directory + 28] = size.to_bytes(4, "little") * 2
        (tmp_path / "large").write_bytes(data)
        with pytest.raises(MaceError, match="entry 'archive/data/2' is not stored plainly"):
            load_checkpoint(tmp_path / "large")


def test_layers_are_weights_of_several_axes() -> None:
    shapes = {
        "conv.op.weight": (4, 3, 3, 3),
        "conv.op.bias": (4,),
        "norm.weight": (4,),
        "mixing.bias": (4, 4),
        "fc.weight": (2, 4),
        "weight": (2, 4),
    }
    state = CheckpointState(Path("a.pth.tar"), {name: np.zeros(shape) for name, shape in shapes.items()})
    assert list(state.layers()) == [("conv", "conv.op"), ("fc", "fc")]
