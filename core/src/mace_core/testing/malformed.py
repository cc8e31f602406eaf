"""Tests a frontend with damaged model files.

Each file must end in one MaceError or in a valid graph, within limits of time and memory:

    copies = (good, *mutations(good, seed=1, count=500))
    damaged = [Damaged(f"bytes {i}", {"m.bin": data}) for i, data in enumerate(copies)]
    check_damaged("acme", damaged, tmp_path)

Another process with limited memory reads the files, so that a crash, a hang or a huge allocation is a finding
and does not end the tests. The first model should be valid: the modules that it loads are not counted.
"""

from __future__ import annotations

import json
import random
import re
import resource
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Timer
from typing import Any

from mace_core.deployment import Model
from mace_core.errors import MaceError
from mace_core.ir import Graph
from mace_core.registry import Registry
from mace_core.verify import verify

SECONDS = 10.0
"""Limit of processor time for one file."""

PATIENCE = 60.0
"""Seconds of silence after which the process is killed; long, because tests share the machine."""

MEMORY = 1 << 30
"""Bytes that reading one file may allocate, on top of the interpreter with its packages."""

NUMBERS = (0, 1, -1, 127, 255, 1 << 16, (1 << 31) - 1, -(1 << 31), (1 << 32) - 1, (1 << 63) - 1, -(1 << 63))
"""Replacements of numbers: limits of integer types, and the numbers next to 0."""


@dataclass(frozen=True)
class Damaged:
    """A damaged model.

    description: what is damaged, for the message.  files: contents by name, None for a folder.
    named: the files that the frontend is given; () for all.
    """

    description: str
    files: Mapping[str, bytes | None]
    named: tuple[str, ...] = ()


def mutations(data: bytes, seed: int, count: int) -> Iterator[bytes]:
    """Yield `count` damaged copies of a file, the same for the same seed."""
    kinds = (
        _flip_bits,
        _truncate,
        _overwrite,
        _remove,
        _repeat,
        _swap,
        _replace_integer,
        _clear,
        _lengthen,
        _replace_word,
    )
    for i in range(count):
        rng = random.Random(f"{seed} {i}")  # noqa: S311  (repeatable, no secret)
        yield kinds[i % len(kinds)](bytearray(data), rng) if data else b""


def _flip_bits(data: bytearray, rng: random.Random) -> bytes:
    for _ in range(rng.randint(1, 4)):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(data)


def _truncate(data: bytearray, rng: random.Random) -> bytes:
    return bytes(data[: rng.randrange(len(data))])


def _overwrite(data: bytearray, rng: random.Random) -> bytes:
    for _ in range(rng.randint(1, 4)):
        data[rng.randrange(len(data))] = rng.randrange(256)
    return bytes(data)


def _span(data: bytearray, rng: random.Random) -> slice:
    start = rng.randrange(len(data))
    return slice(start, start + rng.randint(1, 64))


def _remove(data: bytearray, rng: random.Random) -> bytes:
    del data[_span(data, rng)]
    return bytes(data)


def _repeat(data: bytearray, rng: random.Random) -> bytes:
    span, offset = _span(data, rng), rng.randrange(len(data))
    data[offset:offset] = data[span] * rng.choice((1, 1, 50))
    return bytes(data)


def _swap(data: bytearray, rng: random.Random) -> bytes:
    one, two = _span(data, rng), _span(data, rng)
    data[one], data[two] = data[two], data[one]
    return bytes(data)


def _replace_integer(data: bytearray, rng: random.Random) -> bytes:
    """Replace an integer of 4 or 8 bytes; formats of structs align them to 4 bytes."""
    size = rng.choice((4, 8))
    offset = rng.randrange(len(data)) // 4 * 4
    data[offset : offset + size] = (rng.choice(NUMBERS) % (1 << 8 * size)).to_bytes(size, "little")
    return bytes(data)


def _clear(data: bytearray, rng: random.Random) -> bytes:
    span = _span(data, rng)
    data[span] = bytes(len(data[span]))
    return bytes(data)


def _lengthen(data: bytearray, rng: random.Random) -> bytes:
    """Replace a byte by a huge number of variable length, as protobuf writes sizes."""
    offset = rng.randrange(len(data))
    data[offset : offset + 1] = rng.choice(
        (
            b"\xff\x7f",
            b"\xff\xff\xff\x7f",
            b"\xff\xff\xff\xff\x0f",
            b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        )
    )
    return bytes(data)


def _replace_word(data: bytearray, rng: random.Random) -> bytes:
    """Replace a number or word of a text by another."""
    words = [m.span() for m in re.finditer(rb"-?\d+(\.\d+)?|[A-Za-z_]{3,}", bytes(data))]
    if not words:
        return _flip_bits(data, rng)
    (start, end), other = rng.choice(words), rng.choice(words)
    number = str(rng.choice(NUMBERS)).encode()
    data[start:end] = number if data[start : start + 1].isdigit() else data[slice(*other)]
    return bytes(data)


def message_mutations(message: Any, seed: int, count: int) -> Iterator[Any]:
    """Yield `count` copies of a protobuf message, readable but with fields removed, repeated or replaced."""
    names = sorted({str(value_of(*place)) for place in places(message) if isinstance(value_of(*place), str)})
    for i in range(count):
        rng = random.Random(f"{seed} {i}")  # noqa: S311  (repeatable, no secret)
        copied = type(message)()
        copied.CopyFrom(message)
        for _ in range(rng.choice((1, 1, 2, 3))):
            fields = list(places(copied))
            if fields:
                _disturb(rng.choice(fields), names, rng)
        yield copied


Place = tuple[Any, Any, int]
"""A field of a message: the message, the field's descriptor, the index in a repeated field or -1."""


def value_of(owner: Any, field: Any, index: int) -> Any:
    """Return the value of a field."""
    value = getattr(owner, field.name)
    return value if index < 0 else value[index]


def places(message: Any) -> Iterator[Place]:
    """Yield every field that has a value, of a message and of the messages in it."""
    for field, value in message.ListFields():
        repeated = (
            not isinstance(value, str | bytes)
            and hasattr(value, "__len__")
            and not hasattr(value, "ListFields")
        )
        if repeated and hasattr(value, "items"):  # a map field
            for key in value:
                if hasattr(value[key], "ListFields"):
                    yield from places(value[key])
            continue
        for index, item in enumerate(value) if repeated else ((-1, value),):
            yield message, field, index
            if hasattr(item, "ListFields"):
                yield from places(item)


def _disturb(place: Place, names: Sequence[str], rng: random.Random) -> None:
    """Change one field of a message; a value out of the field's range is not written."""
    owner, field, index = place
    value, container = value_of(*place), getattr(owner, field.name)
    if rng.random() < 0.25 or hasattr(value, "ListFields"):
        if index < 0:
            owner.ClearField(field.name)
        elif rng.random() < 0.5:
            del container[index]
        else:
            container.extend([value] * rng.choice((1, 3)))
        return
    for _ in range(8):
        replacement = _replacement(value, names, rng)
        try:
            if index < 0:
                setattr(owner, field.name, replacement)
            else:
                container[index] = replacement
        except (ValueError, TypeError):  # out of the field's range: try another value
            continue
        return


def _replacement(value: Any, names: Sequence[str], rng: random.Random) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return rng.choice((*NUMBERS, *range(24)))
    if isinstance(value, float):
        return rng.choice((0.0, -1.0, 1e30, float("inf"), float("nan")))
    if isinstance(value, str):
        return rng.choice((*names, "", "../../etc/passwd", "\u202e\x00"))
    return b"".join(mutations(value, rng.randrange(1 << 30), 1)) if value else b"\xff"


def check_damaged(frontend: str, damaged: Sequence[Damaged], folder: Path) -> Counter[str]:
    """Assert that each model ends in a graph or an error; return how many ended in which.

    folder: an empty one, for the files.
    """
    named = write_models(damaged, folder)
    (folder / "files.json").write_text(json.dumps(named))
    results = _results(frontend, folder, len(damaged))
    faults = [
        f"{case.description} ({' '.join(files)}): {text}"
        for case, files, (kind, text) in zip(damaged, named, results, strict=True)
        if kind == "fault"
    ]
    assert not faults, f"{len(faults)} of {len(damaged)}:\n" + "\n".join(faults[:20])
    return Counter(kind for kind, _ in results)


def write_models(damaged: Sequence[Damaged], folder: Path) -> list[list[str]]:
    """Write the files of each model into a separate folder; return the paths that the frontend is given."""
    for i, case in enumerate(damaged):
        model_folder = folder / str(i)
        model_folder.mkdir(parents=True)
        for name, data in case.files.items():
            if data is None:
                (model_folder / name).mkdir()
            else:
                (model_folder / name).write_bytes(data)
    return [
        [str(folder / str(i) / name) for name in case.named or case.files] for i, case in enumerate(damaged)
    ]


def _results(frontend: str, folder: Path, count: int) -> list[tuple[str, str]]:
    """Return for each model "graph", "error" with its message, or "fault" with what is wrong.

    A process that ended is started again, with the model after the one that ended it.
    """
    results: list[tuple[str, str]] = []
    while len(results) < count:
        command = [
            sys.executable,
            "-P",
            "-m",
            __name__,
            frontend,
            str(folder / "files.json"),
            str(len(results)),
        ]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            lines, is_late = listen(process)
            results += [(kind, text) for kind, text in lines]
            if len(results) < count:
                if is_late:
                    reason = f"nothing happens for {PATIENCE:.0f} s"
                else:
                    reason = (
                        f"the process exits with status {process.wait()}: {process.stderr.read()[-2000:]}"
                    )
                results.append(("fault", reason))
                # Status 1 is an exception of Python's: after several, the process itself is broken.
                failures = sum(text.startswith("the process exits with status 1:") for _, text in results)
                assert failures < 5, reason
    return results


def listen(process: subprocess.Popen[str], patience: float = PATIENCE) -> tuple[list[list[Any]], bool]:
    """Return what a process prints, a JSON list on each line, and whether it was silent for too long."""
    lines: list[list[Any]] = []
    late: list[bool] = []

    def give_up() -> None:
        late.append(True)
        process.kill()

    while True:
        timer = Timer(patience, give_up)
        timer.start()
        assert process.stdout is not None
        line = process.stdout.readline()
        timer.cancel()
        if not line:
            return lines, bool(late)
        lines.append(json.loads(line))


def _try_load(load: Callable[[], object]) -> tuple[str, str]:
    """Load one model and return the kind of its result with a message."""
    start = time.process_time()
    try:
        load()
        result = ("graph", "")
    except MaceError as error:
        result = ("error", str(error)) if str(error).strip() else ("fault", "an error without a message")
    except Exception:  # noqa: BLE001  (which one is the finding)
        result = ("fault", traceback.format_exc()[-3000:])
    took = time.process_time() - start
    if took > SECONDS:
        return "fault", f"it takes {took:.0f} s, and then: {result[1][:300]}"
    return result


def _main(name: str, files: str, first: str) -> None:
    """Read the models from index `first` on and print the result of each as a line."""
    registry = Registry.load()
    models = [tuple(map(Path, named)) for named in json.loads(Path(files).read_text())]

    def load(paths: tuple[Path, ...]) -> Graph:
        return verify(registry.frontends[name].load(paths, Model("damaged", paths), registry.ops))

    # What the first model loads, such as the framework's packages, is not counted against the others.
    _try_load(partial(load, models[0]))
    status = Path("/proc/self/statm")
    if status.exists():  # Linux; elsewhere memory is not limited
        used = int(status.read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
    for paths in models[int(first) :]:
        sys.stdout.write(json.dumps(_try_load(partial(load, paths))) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    _main(*sys.argv[1:])
