"""Reads pickle streams into plain containers, numbers, strings and descriptions of tensors, and nothing else.

Python's own pickle runs code that a file names; a checkpoint may come from a stranger.

    stream = read_pickle(data, 0, "best.pth.tar")
    stream.root

The streams are those of protocol 2 and later.  Source of the format: the descriptions of the opcodes in
Python's `pickletools`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from mace_core.errors import MaceError
from mace_frontend_ai8x.checkpoint.names import (
    RESAVE,
    ForbiddenError,
    Foreign,
    Global,
    MalformedError,
    TensorStorage,
    call_known,
    check_name,
)

MAX_NAME_LENGTH = 400
"""Characters of the name of a module or a class."""


@dataclass(frozen=True)
class PickleStream:
    """What a stream describes.

    root: the object.  storages: by key.  end: the position in the data after the stream.
    """

    root: Any
    storages: Mapping[str, TensorStorage]
    end: int


def read_pickle(data: bytes, position: int, place: object) -> PickleStream:
    """Return what the stream at a position describes.

    place: names the file in errors.
    MaceError if the stream is damaged, of another protocol, or names an object that no checkpoint needs.
    """
    reader = _Reader(data, position)
    try:
        return PickleStream(reader.run(), reader.storages, reader.position)
    except ForbiddenError as error:
        problem = f"it asks for {error}, which no checkpoint needs; nothing of the file was run"
        raise MaceError(
            place, problem, f"do not use it unless you know where it is from; then {RESAVE}"
        ) from None
    except (MalformedError, struct.error, UnicodeDecodeError) as error:
        raise MaceError(place, f"its contents are damaged: {error}", "copy or download it again") from None


class _Reader:
    """The machine whose program a stream is: a stack, marks in it, and a memory (Python's pickletools)."""

    def __init__(self, data: bytes, position: int) -> None:
        self.data, self.position = data, position
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memory: dict[int, Any] = {}
        self.storages: dict[str, TensorStorage] = {}

    def run(self) -> Any:
        """Execute the stream to its end; return the object that it makes."""
        while (code := self.take(1)[0]) != _STOP:
            if (step := _STEPS.get(code)) is None:
                raise MalformedError(f"code {code:#04x} of its stream is not one that PyTorch writes")
            step(self)
        return self.pop()

    def take(self, size: int) -> bytes:
        """Return the next bytes."""
        start, self.position = self.position, self.position + size
        if self.position > len(self.data):
            raise MalformedError("its stream has no end")
        return self.data[start : self.position]

    def number(self, form: str) -> Any:
        """Return the next number of a format of `struct`."""
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def line(self) -> str:
        """Return the string up to the end of the line."""
        end = self.data.find(b"\n", self.position, self.position + MAX_NAME_LENGTH)
        if end < 0:
            raise MalformedError("a name of its stream has no end")
        return self.take(end + 1 - self.position)[:-1].decode()

    def pop(self) -> Any:
        """Remove and return the topmost object above the last mark."""
        self.top()
        return self.stack.pop()

    def top(self) -> Any:
        """Return the topmost object above the last mark."""
        if len(self.stack) <= (self.marks[-1] if self.marks else 0):
            raise MalformedError("an object of its stream is missing")
        return self.stack[-1]

    def since_mark(self) -> list[Any]:
        """Remove the last mark with all objects above it; return these."""
        if not self.marks:
            raise MalformedError("a mark of its stream is missing")
        mark = self.marks.pop()
        values = self.stack[mark:]
        del self.stack[mark:]
        return values

    def recall(self, index: int) -> None:
        """Push an object of the memory onto the stack."""
        if index not in self.memory:
            raise MalformedError("its stream recalls an object that it never stored")
        self.stack.append(self.memory[index])


def _skip(size: int, reader: _Reader) -> None:
    reader.take(size)


def _push(value: Any, reader: _Reader) -> None:
    reader.stack.append(value)


def _pop(reader: _Reader) -> None:
    reader.pop()


def _pop_mark(reader: _Reader) -> None:
    reader.since_mark()


def _push_new(kind: Callable[[], Any], reader: _Reader) -> None:
    reader.stack.append(kind())


def _push_number(form: str, reader: _Reader) -> None:
    reader.stack.append(reader.number(form))


def _push_long(reader: _Reader) -> None:
    # At most 255 bytes: the form with a length of four bytes, which could ask for any memory, is not read.
    reader.stack.append(int.from_bytes(reader.take(reader.number("<B")), "little", signed=True))


def _push_text(length: str, reader: _Reader) -> None:
    reader.stack.append(reader.take(reader.number(length)).decode("utf-8", "surrogatepass"))


def _push_bytes(length: str, reader: _Reader) -> None:
    reader.stack.append(reader.take(reader.number(length)))


def _push_tuple(count: int, reader: _Reader) -> None:
    # The stack gives the last item first.
    reader.stack.append(tuple(reader.pop() for _ in range(count))[::-1])


def _mark(reader: _Reader) -> None:
    reader.marks.append(len(reader.stack))


def _tuple_since_mark(reader: _Reader) -> None:
    reader.stack.append(tuple(reader.since_mark()))


def _append(reader: _Reader) -> None:
    _extend(reader, [reader.pop()])


def _appends(reader: _Reader) -> None:
    _extend(reader, reader.since_mark())


def _extend(reader: _Reader, values: list[Any]) -> None:
    """Add values to the list on the stack; what is added to a set or another foreign object is dropped."""
    target = reader.top()
    if isinstance(target, list):
        target.extend(values)
    elif not isinstance(target, Foreign):
        raise MalformedError("something is added to an object that is not a list")


def _set_item(reader: _Reader) -> None:
    value = reader.pop()
    _update(reader, [reader.pop(), value])


def _set_items(reader: _Reader) -> None:
    _update(reader, reader.since_mark())


def _update(reader: _Reader, pairs: list[Any]) -> None:
    target = reader.top()
    if isinstance(target, Foreign):
        return
    if not isinstance(target, dict) or len(pairs) % 2:
        raise MalformedError("keys and values do not match")
    # Other objects of a stream may be lists and dictionaries, which Python cannot hash.
    if not all(isinstance(key, str | bytes | int | float | Global | None) for key in pairs[::2]):
        raise MalformedError("a key is neither a string nor a number")
    target.update(zip(pairs[::2], pairs[1::2], strict=True))


def _global(reader: _Reader) -> None:
    module = reader.line()
    reader.stack.append(check_name(f"{module}.{reader.line()}"))


def _stack_global(reader: _Reader) -> None:
    # The stack gives the name first, because it was pushed last.
    name, module = reader.pop(), reader.pop()
    if not isinstance(name, str) or not isinstance(module, str):
        raise MalformedError("a name is not a string")
    reader.stack.append(check_name(f"{module}.{name}"))


def _call(reader: _Reader) -> None:
    arguments = reader.pop()
    reader.stack.append(call_known(reader.pop(), arguments))


def _call_with_names(reader: _Reader) -> None:
    reader.pop()
    _call(reader)


def _build(reader: _Reader) -> None:
    """Drop the further state of an object: plain containers need none."""
    reader.pop()
    reader.top()


def _persistent(reader: _Reader) -> None:
    """Replace PyTorch's reference to numbers: ("storage", type, key, device, count).

    Files of old versions add a view, which none of them used.
    """
    match reader.pop():
        case ("storage", Global(kind), str(key), str(), int(count), *_) if count >= 0:
            reader.storages[key] = TensorStorage(kind.removeprefix("torch."), key, count)
            reader.stack.append(reader.storages[key])
        case _:
            raise MalformedError("the description of a storage is malformed")


def _remember(form: str, reader: _Reader) -> None:
    reader.memory[reader.number(form)] = reader.top()


def _remember_next(reader: _Reader) -> None:
    # Protocol 4 numbers the memory by itself.
    reader.memory[len(reader.memory)] = reader.top()


def _recall(form: str, reader: _Reader) -> None:
    reader.recall(reader.number(form))


_STOP = ord(".")

_STEPS: Mapping[int, Callable[[_Reader], None]] = {
    0x80: partial(_skip, 1),  # protocol
    0x95: partial(_skip, 8),  # length of a frame
    ord("("): _mark,
    ord("0"): _pop,
    ord("1"): _pop_mark,
    ord("N"): partial(_push, None),
    0x88: partial(_push, True),
    0x89: partial(_push, False),
    ord("J"): partial(_push_number, "<i"),
    ord("K"): partial(_push_number, "<B"),
    ord("M"): partial(_push_number, "<H"),
    ord("G"): partial(_push_number, ">d"),
    0x8A: _push_long,
    ord("X"): partial(_push_text, "<I"),
    0x8C: partial(_push_text, "<B"),
    ord("U"): partial(_push_text, "<B"),
    ord("B"): partial(_push_bytes, "<I"),
    ord("C"): partial(_push_bytes, "<B"),
    ord("]"): partial(_push_new, list),
    ord("}"): partial(_push_new, dict),
    0x8F: partial(_push, Foreign("set")),
    ord(")"): partial(_push_tuple, 0),
    0x85: partial(_push_tuple, 1),
    0x86: partial(_push_tuple, 2),
    0x87: partial(_push_tuple, 3),
    ord("t"): _tuple_since_mark,
    ord("a"): _append,
    ord("e"): _appends,
    0x90: _appends,  # to a set
    ord("s"): _set_item,
    ord("u"): _set_items,
    ord("c"): _global,
    0x93: _stack_global,
    ord("R"): _call,
    0x81: _call,
    0x92: _call_with_names,
    ord("b"): _build,
    ord("Q"): _persistent,
    ord("q"): partial(_remember, "<B"),
    ord("r"): partial(_remember, "<I"),
    0x94: _remember_next,
    ord("h"): partial(_recall, "<B"),
    ord("j"): partial(_recall, "<I"),
}
