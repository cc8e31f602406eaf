"""Archives that nobody vouches for: each ends in one MaceError or a valid graph, soon, and within its memory."""

import io
import json
import random
import resource
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from pytorch_cases import load, model_of, saved, torch

from mace_core.errors import MaceError

SECONDS, BYTES = 10, 1 << 30
SHAPES = {"x": (1, 3, 6, 6)}
Members = Mapping[str, bytes]


def members(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def packed(parts: Members) -> bytes:
    """An archive with right checksums, as torch writes it: nothing compressed."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as made:
        for name, data in parts.items():
            made.writestr(name, data)
    return buffer.getvalue()


def flipped(rng: random.Random, data: bytes) -> bytes:
    made = bytearray(data)
    for _ in range(rng.choice((1, 1, 4, 30)) if made else 0):
        made[rng.randrange(len(made))] ^= 1 << rng.randrange(8)
    return bytes(made)


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every place in a structure: the holder and the key."""
    for key in value if isinstance(value, dict) else range(len(value)):
        yield value, key
        if isinstance(value[key], dict | list):
            yield from places(value[key])


VALUES = (None, True, -1, 0, 7, 10**12, 1.5, "", "x", "../x", [], {}, [[]], "__import__('os')")


def changed(rng: random.Random, text: bytes) -> bytes:
    """A program with another value somewhere."""
    result = json.loads(text)
    holder, key = rng.choice(list(places(result)))
    if rng.random() < 0.2 and isinstance(holder, dict):
        del holder[key]
    else:
        holder[key] = rng.choice(VALUES)
    return json.dumps(result).encode()


def without(rng: random.Random, parts: Members) -> dict[str, bytes]:
    """An archive that lacks a member, or has two exchanged."""
    made = dict(parts)
    a, b = rng.sample(sorted(made), 2)
    if rng.random() < 0.5:
        made[a], made[b] = made[b], made[a]
    else:
        del made[a]
    return made


def sized(rng: random.Random, data: bytes) -> bytes:
    """An archive whose headers state other sizes."""
    made = bytearray(data)
    at = made.find(b"PK\x01\x02")
    for _ in range(rng.randrange(12)):
        at = max(made.find(b"PK\x01\x02", at + 1), made.find(b"PK\x01\x02"))
    place = at + 20 + rng.choice((0, 4))
    made[place : place + 4] = rng.choice(
        (b"\xff\xff\xff\x7f", b"\xff\xff\xff\xff", b"\0\0\0\0", b"\0\0\0\x10")
    )
    return bytes(made)


def mutations(script: bytes, program: bytes) -> Iterator[tuple[str, bytes]]:
    rng = random.Random(5)
    code, parts = members(script), members(program)
    graph = next(name for name in parts if "models/" in name and name.endswith(".json"))
    for i in range(120):
        yield f"flip-{i}.pt", flipped(rng, script)
        yield f"flip-{i}.pt2", flipped(rng, program)
    for i in range(40):
        yield f"cut-{i}.pt", script[: rng.randrange(len(script))]
        yield f"cut-{i}.pt2", program[: rng.randrange(len(program))]
    for i in range(40):
        name = rng.choice([n for n in code if n.endswith((".py", ".pkl"))])
        yield f"inside-{i}.pt", packed({**code, name: flipped(rng, code[name])})
        yield f"inside-{i}.pt2", packed({**parts, graph: changed(rng, parts[graph])})
    for i in range(30):
        yield f"members-{i}.pt", packed(without(rng, code))
        yield f"members-{i}.pt2", packed(without(rng, parts))
        yield f"size-{i}.pt2", sized(rng, program)
    for depth in (150, 500, 100_000):
        for text in (b"[" * depth, b"[" * depth + b"]" * depth, b'{"a":' * depth + b"1" + b"}" * depth):
            yield f"depth-{depth}.pt2", packed({**parts, graph: text})
    for name in ("../outside", "/etc/outside", "a/../../outside", "a\\..\\outside"):
        yield "outside.pt2", packed({**parts, name: b"x"})
        yield "outside.pt", packed({**code, name: b"x"})
    yield "same.pt", script + script
    yield "pickle.pt", b"\x80\x02cos\nsystem\n(S'exit 1'\ntR."
    yield "bomb.pt2", bomb(parts)


def bomb(parts: Members) -> bytes:
    """An archive with half a gigabyte of zeros, packed."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as made:
        for name, data in parts.items():
            made.writestr(name, data)
        with made.open("model/data/weights/zeros", "w") as stream:
            for _ in range(512):
                stream.write(bytes(1 << 20))
    return buffer.getvalue()


def fault(file: Path) -> str | None:
    """What the one error says; None for a valid graph."""
    try:
        load(model_of(file, SHAPES))
    except MaceError as error:
        return str(error)
    return None


@pytest.mark.exhaustive
def test_mutations(tmp_path: Path) -> None:
    t = torch()
    module = t.nn.Sequential(t.nn.Conv2d(3, 2, 3), t.nn.ReLU(), t.nn.Flatten(), t.nn.Linear(32, 3))
    whole = [saved(module, SHAPES, tmp_path / name) for name in ("whole.scripted.pt", "whole.pt2")]
    assert all(fault(file) is None for file in whole)
    before, count, errors = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, 0, 0
    for name, data in mutations(*(file.read_bytes() for file in whole)):
        file = tmp_path / name
        file.write_bytes(data)
        start = time.process_time()  # other work on the machine is not this file's doing
        told = fault(file)
        assert time.process_time() - start < SECONDS, name
        assert told is None or name.partition(".")[0] in told, f"{name}: {told}"
        errors += bool(told)
        count += 1
        file.unlink()
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    assert count >= 500
    assert errors > 400
    assert grown < BYTES


@pytest.mark.parametrize(
    "make", [lambda d: d[:-30], lambda d: d.replace(b"PK\x05\x06", b"PK\x05\x07")], ids=["cut", "no-end"]
)
def test_archives_are_checked_before_torch_sees_them(
    make: Callable[[bytes], bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mace_frontend_pytorch import program

    monkeypatch.setattr(program, "find_spec", lambda _: None)
    file = tmp_path / "model.pt"
    file.write_bytes(make(packed({"model/constants.pkl": b"", "model/code/x.py": b""})))
    assert "is no PyTorch model, or a damaged one" in (fault(file) or "")
