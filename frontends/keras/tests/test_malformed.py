"""Files that nobody vouches for: each ends in one MaceError or a valid graph, soon, and within its memory."""

import copy
import json
import random
import resource
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from keras_files import Json, archive, described, encoded, functional, network, old, ref, stored

from mace_core.deployment import Model
from mace_core.errors import MaceError
from mace_core.ops import core_ops
from mace_core.verify import verify
from mace_frontend_keras import Keras
from mace_frontend_keras.hdf5 import SMALL

SECONDS, BYTES = 10, 1 << 30


VALUES = (
    None,
    True,
    -1,
    0,
    3,
    10**9,
    10**30,
    1.5,
    float("nan"),
    "",
    "x",
    "../x",
    [],
    [[]],
    [0, 0, 0],
    ["x", 0, 0],
    {},
    {"class_name": "Dense"},
)


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every place in a structure: the holder and the key."""
    for key in value if isinstance(value, dict) else range(len(value)):
        yield value, key
        if isinstance(value[key], dict | list):
            yield from places(value[key])


def flipped(rng: random.Random, data: bytes) -> bytes:
    made = bytearray(data)
    for _ in range(rng.choice((1, 1, 4, 30))):
        made[rng.randrange(len(made))] ^= 1 << rng.randrange(8)
    return bytes(made)


def changed(rng: random.Random) -> Json:
    result = copy.deepcopy(network())
    for _ in range(rng.choice((1, 1, 2, 5))):
        holder, key = rng.choice(list(places(result)))
        if rng.random() < 0.2 and isinstance(holder, dict):
            del holder[key]
        else:
            holder[key] = copy.deepcopy(rng.choice(VALUES))
    return result


def nested(depth: int, kind: str) -> Json:
    """Models in models, or wrappers in wrappers."""
    result = functional(
        "net",
        [described("InputLayer", "i", batch_shape=[1, 4]), described("ReLU", "r", ref("i"))],
        ["i", 0, 0],
        ["r", 0, 0],
    )
    for level in range(depth):
        if kind == "wrapper":
            layer = described(
                "TimeDistributed",
                "w",
                ref("i"),
                layer={k: result[k] for k in ("module", "class_name", "config")},
            )
        else:
            calls = [
                {"args": [ref("i") if kind == "model" or i == 0 else ref("m", i - 1)], "kwargs": {}}
                for i in range(1 + (kind == "double"))
            ]
            layer = {**result, "name": "m", "inbound_nodes": calls}
        result = functional(
            f"n{level}",
            [described("InputLayer", "i", batch_shape=[1, 4]), layer],
            ["i", 0, 0],
            [layer["name"], 1 + (kind == "double"), 0],
        )
    return result


def cyclic(rng: random.Random) -> Json:
    result = network()
    layers = result["config"]["layers"]
    a, b = rng.choice(layers[1:]), rng.choice(layers[1:])
    a["inbound_nodes"] = [{"args": [ref(b["name"])], "kwargs": {}}]
    b["inbound_nodes"] = [{"args": [ref(a["name"])], "kwargs": {}}]
    return result


def huge(made: h5py.File) -> None:
    del made["model_weights/c/c/w0"]
    made.create_dataset("model_weights/c/c/w0", (1 << 16, 1 << 16, 3, 4), "f4", chunks=(64, 64, 3, 4))


def wide(made: h5py.File) -> None:
    del made["model_weights/c/c/w0"]
    made.create_dataset("model_weights/c/c/w0", (1 << 28,), "f4", chunks=(1 << 16,), compression="gzip")


def outside(made: h5py.File) -> None:
    del made["model_weights/c"]
    made["model_weights/c"] = h5py.ExternalLink("/etc/passwd", "/")


def circle(made: h5py.File) -> None:
    del made["model_weights/c"]
    made["model_weights/c"] = h5py.SoftLink("/model_weights/c")


def raw(made: h5py.File) -> None:
    del made["model_weights/c/c/w0"]
    made.create_dataset("model_weights/c/c/w0", (3, 3, 3, 4), "f4", external=[("/etc/passwd", 0, 432)])


def virtual(made: h5py.File) -> None:
    del made["model_weights/c/c/w0"]
    layout = h5py.VirtualLayout((3, 3, 3, 4), "f4")
    layout[:] = h5py.VirtualSource("/etc/passwd", "x", (3, 3, 3, 4))
    made.create_virtual_dataset("model_weights/c/c/w0", layout)


def upwards(made: h5py.File) -> None:
    made["model_weights/c"].attrs["weight_names"] = [b"../inner/inner/w0", b"/model_weights/c/c/w1"]


def words(made: h5py.File) -> None:
    del made["model_weights/c/c/w0"]
    made["model_weights/c/c/w0"] = np.array([b"text"] * 108).reshape(3, 3, 3, 4)


def endless(data: bytes) -> bytes:
    """A heap of texts with an entry for free space of no length: the HDF5 library never comes to its end."""
    made = bytearray(data)
    heap = made.find(b"GCOL\x01")
    made[heap + 16 : heap + 32] = bytes(16)
    return bytes(made)


def sized(rng: random.Random, data: bytes) -> bytes:
    """An archive whose headers state other sizes."""
    made = bytearray(data)
    for mark in (b"PK\x01\x02", b"PK\x03\x04"):
        at = made.find(mark, rng.randrange(len(made) // 2) if rng.random() < 0.5 else 0)
        if at >= 0:
            place = at + (20 if mark == b"PK\x01\x02" else 18) + rng.choice((0, 4))
            made[place : place + 4] = rng.choice(
                (b"\xff\xff\xff\xff", b"\xff\xff\xff\x7f", b"\0\0\0\0", b"\0\0\0\x10")
            )
    return bytes(made)


def bomb(size: int) -> bytes:
    """A member of nothing but zeros, packed to a thousandth."""
    return archive(json.dumps(network()).encode(), b"\0" * size)


def mutations() -> Iterator[tuple[str, bytes]]:
    rng = random.Random(5)
    whole, weights = encoded(network()), stored()
    new, before = archive(whole, weights), old(network())
    for i in range(100):
        yield f"flip-{i}.keras", flipped(rng, new)
        yield f"flip-{i}.h5", flipped(rng, before)
    for i in range(40):
        yield f"weights-{i}.keras", archive(whole, flipped(rng, weights))
    for i in range(30):
        yield f"cut-{i}.keras", new[: rng.randrange(len(new))]
        yield f"cut-{i}.h5", before[: rng.randrange(len(before))]
    for i in range(60):
        yield f"config-{i}.keras", archive(encoded(changed(rng)), weights)
        yield f"config-{i}.h5", old(changed(rng))
    for i in range(20):
        yield f"size-{i}.keras", sized(rng, new)
        yield f"cycle-{i}.keras", archive(encoded(cyclic(rng)), weights)
    for depth in (40, 1000, 100_000):
        for text in (b"[" * depth, b"[" * depth + b"]" * depth, b'{"a":' * depth + b"1" + b"}" * depth):
            yield f"depth-{depth}.keras", archive(text, weights)
            yield f"depth-{depth}.h5", old(text) if depth < 5000 else archive(text, text)
    for depth in (3, 12, 25):
        for kind in ("model", "double", "wrapper"):
            yield f"{kind}-{depth}.keras", archive(encoded(nested(depth, kind)), weights)
    for change in (huge, wide, outside, circle, raw, virtual, upwards, words):
        yield f"{change.__name__}.h5", old(network(), change)
    for names in (
        ("../config.json", "model.weights.h5"),
        ("config.json", "../../model.weights.h5"),
        ("config.json", "/etc/passwd"),
    ):
        yield "traversal.keras", archive(whole, weights, names)
    yield (
        "endless.h5",
        endless(old(network(), lambda made: made.attrs.update(model_config=json.dumps(network())))),
    )
    yield "bomb.keras", bomb(1 << 28)
    yield "bomb-config.keras", archive(b" " * (1 << 27), weights)


def load(file: Path) -> None:
    verify(Keras().load((file,), Model("m", (file,)), core_ops()))


def fault(file: Path) -> str | None:
    """What the one error says; None for a valid graph."""
    try:
        load(file)
    except MaceError as error:
        return str(error)
    return None


@pytest.mark.parametrize("suffix", [".keras", ".h5"])
def test_unharmed_it_is_a_valid_graph(suffix: str, tmp_path: Path) -> None:
    file = tmp_path / f"model{suffix}"
    file.write_bytes(archive(encoded(network()), stored()) if suffix == ".keras" else old(network()))
    load(file)


@pytest.mark.slow
@pytest.mark.exhaustive
def test_mutations(tmp_path: Path) -> None:
    before, kinds, errors = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, 0, 0
    for name, data in mutations():
        file = tmp_path / name
        file.write_bytes(data)
        start = time.process_time()  # other work on the machine is not this file's doing
        told = fault(file)
        errors += bool(told)
        assert told is None or name in told or told.startswith("m: "), f"{name}: {told}"
        assert time.process_time() - start < SECONDS, name
        file.unlink()
        kinds += 1
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    assert kinds >= 500
    assert errors > 350
    assert grown < BYTES


@pytest.mark.parametrize(
    "change", [huge, outside, circle, raw, virtual, upwards, words], ids=lambda c: c.__name__
)
def test_weights_from_elsewhere_are_refused(change: Callable[[h5py.File], None], tmp_path: Path) -> None:
    file = tmp_path / "model.h5"
    file.write_bytes(old(network(), change))
    with pytest.raises(
        MaceError, match=r"layer 'c'|is a link|lies in another file|holds no numbers|states .* bytes"
    ):
        load(file)


def test_cycle_is_told(tmp_path: Path) -> None:
    result = network()
    result["config"]["layers"][1]["inbound_nodes"] = [{"args": [ref("c")], "kwargs": {}}]
    file = tmp_path / "model.keras"
    file.write_bytes(archive(encoded(result), stored()))
    with pytest.raises(MaceError, match="layer 'c' reads, in the end, its own result"):
        load(file)


def test_heap_without_end_is_told(tmp_path: Path) -> None:
    file = tmp_path / "model.h5"
    file.write_bytes(endless(old(network())))
    with pytest.raises(MaceError, match=r"the heap at byte \d+ is damaged"):
        load(file)


@pytest.mark.parametrize(
    ("place", "value"), [(17, b"\x05"), (64, b"\xff\xff\xff\x7f")], ids=["no-text", "too-long"]
)
def test_texts_that_bring_the_library_down_are_told(place: int, value: bytes, tmp_path: Path) -> None:
    def texts(made: h5py.File) -> None:
        made["model_weights/c"].attrs["weight_names"] = ["c/w0", "c/w1"]

    made = bytearray(old(network(), texts))
    at = next(i for i in range(len(made)) if made[i : i + 12] == b"weight_names" and made[i + 16] == 0x19)
    made[at + place : at + place + len(value)] = value
    file = tmp_path / "model.h5"
    file.write_bytes(made)
    with pytest.raises(MaceError, match=r"the attribute at byte \d+ is damaged"):
        load(file)


@pytest.mark.slow
def test_bombs_are_told(tmp_path: Path) -> None:
    file = tmp_path / "model.keras"
    file.write_bytes(bomb(SMALL + 1))
    with pytest.raises(
        MaceError, match=rf"model.weights.h5 unpacks to {SMALL + 1} bytes from \d+; save the model again"
    ):
        load(file)
    file.write_bytes(archive(encoded(nested(25, "double")), stored()))
    with pytest.raises(MaceError, match="it calls more than 20000 layers"):
        load(file)
