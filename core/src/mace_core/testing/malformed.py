"""Damaged model files: each ends in one MaceError or in a valid graph, soon and in little memory, whatever is in it.

    damaged = [Damaged(f"bytes {i}", {"m.bin": data}) for i, data in enumerate((good, *mutations(good, seed=1,
    count=500)))] holds("acme", damaged, tmp_path)

The files are read by another process with a limit on its memory, so that a crash, a hang or a greedy
allocation is a finding and not the end of the tests. The first model ought to be sound: what is loaded with
it only once does not count.
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
"""Of processor time that one file may take."""

PATIENCE = 60.0
"""Seconds after which a process is given up that may share the machine with others."""

MEMORY = 1 << 30
"""Bytes that reading one file may take, more than the interpreter with its packages."""

NUMBERS = (0, 1, -1, 127, 255, 1 << 16, (1 << 31) - 1, -(1 << 31), (1 << 32) - 1, (1 << 63) - 1, -(1 << 63))
"""What numbers become."""


@dataclass(frozen=True)
class Damaged:
    """A model that is damaged: its files by name, None for a folder.

    The frontend is given those that are `named`, else all.
    """

    what: str
    files: Mapping[str, bytes | None]
    named: tuple[str, ...] = ()


def mutations(data: bytes, seed: int, count: int) -> Iterator[bytes]:
    """So many damaged copies of a file, the same for the same seed."""
    kinds = (
        _flipped,
        _cut,
        _overwritten,
        _removed,
        _doubled,
        _swapped,
        _renumbered,
        _cleared,
        _lengthened,
        _retold,
    )
    for i in range(count):
        rng = random.Random(f"{seed} {i}")  # noqa: S311  (repeatable, no secret)
        yield kinds[i % len(kinds)](bytearray(data), rng) if data else b""


def _flipped(data: bytearray, rng: random.Random) -> bytes:
    for _ in range(rng.randint(1, 4)):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(data)


def _cut(data: bytearray, rng: random.Random) -> bytes:
    return bytes(data[: rng.randrange(len(data))])


def _overwritten(data: bytearray, rng: random.Random) -> bytes:
    for _ in range(rng.randint(1, 4)):
        data[rng.randrange(len(data))] = rng.randrange(256)
    return bytes(data)


def _span(data: bytearray, rng: random.Random) -> slice:
    start = rng.randrange(len(data))
    return slice(start, start + rng.randint(1, 64))


def _removed(data: bytearray, rng: random.Random) -> bytes:
    del data[_span(data, rng)]
    return bytes(data)


def _doubled(data: bytearray, rng: random.Random) -> bytes:
    span, at = _span(data, rng), rng.randrange(len(data))
    data[at:at] = data[span] * rng.choice((1, 1, 50))
    return bytes(data)


def _swapped(data: bytearray, rng: random.Random) -> bytes:
    one, two = _span(data, rng), _span(data, rng)
    data[one], data[two] = data[two], data[one]
    return bytes(data)


def _renumbered(data: bytearray, rng: random.Random) -> bytes:
    """A number of 4 or 8 bytes that lies where compilers would put it."""
    size = rng.choice((4, 8))
    at = rng.randrange(len(data)) // 4 * 4
    data[at : at + size] = (rng.choice(NUMBERS) % (1 << 8 * size)).to_bytes(size, "little")
    return bytes(data)


def _cleared(data: bytearray, rng: random.Random) -> bytes:
    span = _span(data, rng)
    data[span] = bytes(len(data[span]))
    return bytes(data)


def _lengthened(data: bytearray, rng: random.Random) -> bytes:
    """A number of variable length made huge, as protobuf has them for sizes."""
    at = rng.randrange(len(data))
    data[at : at + 1] = rng.choice(
        (
            b"\xff\x7f",
            b"\xff\xff\xff\x7f",
            b"\xff\xff\xff\xff\x0f",
            b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        )
    )
    return bytes(data)


def _retold(data: bytearray, rng: random.Random) -> bytes:
    """A number or word of a text made another."""
    words = [m.span() for m in re.finditer(rb"-?\d+(\.\d+)?|[A-Za-z_]{3,}", bytes(data))]
    if not words:
        return _flipped(data, rng)
    (start, end), other = rng.choice(words), rng.choice(words)
    number = str(rng.choice(NUMBERS)).encode()
    data[start:end] = number if data[start : start + 1].isdigit() else data[slice(*other)]
    return bytes(data)


def message_mutations(message: Any, seed: int, count: int) -> Iterator[Any]:
    """So many copies of a protobuf message that can be read and make no sense: fields lost, doubled, of other numbers and names."""
    texts = sorted({str(value_of(*place)) for place in places(message) if isinstance(value_of(*place), str)})
    for i in range(count):
        rng = random.Random(f"{seed} {i}")  # noqa: S311  (repeatable, no secret)
        made = type(message)()
        made.CopyFrom(message)
        for _ in range(rng.choice((1, 1, 2, 3))):
            found = list(places(made))
            if found:
                _disturb(rng.choice(found), texts, rng)
        yield made


Place = tuple[Any, Any, int]
"""A field of a message: the message, the field's descriptor, the number in a repeated field or -1."""


def value_of(owner: Any, field: Any, index: int) -> Any:
    """What a field holds."""
    value = getattr(owner, field.name)
    return value if index < 0 else value[index]


def places(message: Any) -> Iterator[Place]:
    """Every field of a message and of those in it that holds something."""
    for field, value in message.ListFields():
        repeated = (
            not isinstance(value, str | bytes)
            and hasattr(value, "__len__")
            and not hasattr(value, "ListFields")
        )
        if repeated and hasattr(value, "items"):  # a map
            for key in value:
                if hasattr(value[key], "ListFields"):
                    yield from places(value[key])
            continue
        for index, item in enumerate(value) if repeated else ((-1, value),):
            yield message, field, index
            if hasattr(item, "ListFields"):
                yield from places(item)


def _disturb(place: Place, texts: Sequence[str], rng: random.Random) -> None:
    """Change one field of a message; values that it cannot hold are left."""
    owner, field, index = place
    value, held = value_of(*place), getattr(owner, field.name)
    if rng.random() < 0.25 or hasattr(value, "ListFields"):
        if index < 0:
            owner.ClearField(field.name)
        elif rng.random() < 0.5:
            del held[index]
        else:
            held.extend([value] * rng.choice((1, 3)))
        return
    for _ in range(8):
        made = _other(value, texts, rng)
        try:
            if index < 0:
                setattr(owner, field.name, made)
            else:
                held[index] = made
        except (ValueError, TypeError):  # out of the field's range: try another
            continue
        return


def _other(value: Any, texts: Sequence[str], rng: random.Random) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return rng.choice((*NUMBERS, *range(24)))
    if isinstance(value, float):
        return rng.choice((0.0, -1.0, 1e30, float("inf"), float("nan")))
    if isinstance(value, str):
        return rng.choice((*texts, "", "../../etc/passwd", "\u202e\x00"))
    return b"".join(mutations(value, rng.randrange(1 << 30), 1)) if value else b"\xff"


def holds(frontend: str, damaged: Sequence[Damaged], folder: Path) -> Counter[str]:
    """Assert that each of the models is read as it should be; how many gave a graph and how many an error.

    folder: an empty one, for the files.
    """
    named = place(damaged, folder)
    (folder / "files.json").write_text(json.dumps(named))
    results = _results(frontend, folder, len(damaged))
    whole = zip(damaged, named, results, strict=True)
    faults = [
        f"{case.what} ({' '.join(files)}): {text}" for case, files, (kind, text) in whole if kind == "fault"
    ]
    assert not faults, f"{len(faults)} of {len(damaged)}:\n" + "\n".join(faults[:20])
    return Counter(kind for kind, _ in results)


def place(damaged: Sequence[Damaged], folder: Path) -> list[list[str]]:
    """Write the files of each model into a folder of its own.

    The paths of those that the frontend is given.
    """
    for i, case in enumerate(damaged):
        own = folder / str(i)
        own.mkdir(parents=True)
        for name, data in case.files.items():
            if data is None:
                (own / name).mkdir()
            else:
                (own / name).write_bytes(data)
    return [
        [str(folder / str(i) / name) for name in case.named or case.files] for i, case in enumerate(damaged)
    ]


def _results(frontend: str, folder: Path, count: int) -> list[tuple[str, str]]:
    """What became of each: "graph", "error" with its text, or "fault" with what is wrong.

    A process that ends is started again.
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
            made, late = listen(process)
            results += [(kind, text) for kind, text in made]
            if len(results) < count:
                why = (
                    "it takes for ever"
                    if late
                    else f"the process ends with {process.wait()}: {process.stderr.read()[-2000:]}"
                )
                results.append(("fault", why))
                assert sum(why.startswith("the process ends with 1") for _, why in results) < 5, results[-1][
                    1
                ]
    return results


def listen(process: subprocess.Popen[str], patience: float = PATIENCE) -> tuple[list[list[Any]], bool]:
    """What a process says, a JSON list a line, before it ends or is silent for too long."""
    made: list[list[Any]] = []
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
            return made, bool(late)
        made.append(json.loads(line))


def _tried(load: Callable[[], object]) -> tuple[str, str]:
    """What becomes of one model."""
    start = time.process_time()
    try:
        load()
        result = ("graph", "")
    except MaceError as error:
        result = ("error", str(error)) if str(error).strip() else ("fault", "an error that says nothing")
    except Exception:  # noqa: BLE001  (which one is the finding)
        result = ("fault", traceback.format_exc()[-3000:])
    if (took := time.process_time() - start) > SECONDS:
        return "fault", f"it takes {took:.0f} s, and then: {result[1][:300]}"
    return result


def _main(name: str, files: str, first: str) -> None:
    """Read the models from number `first` on and tell line by line what becomes of each."""
    registry = Registry.load()
    models = [tuple(map(Path, named)) for named in json.loads(Path(files).read_text())]

    def load(paths: tuple[Path, ...]) -> Graph:
        return verify(registry.frontends[name].load(paths, Model("damaged", paths), registry.ops))

    _tried(partial(load, models[0]))
    if (status := Path("/proc/self/statm")).exists():  # elsewhere than on Linux memory is not watched
        used = int(status.read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
    for paths in models[int(first) :]:
        sys.stdout.write(json.dumps(_tried(partial(load, paths))) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    _main(*sys.argv[1:])
