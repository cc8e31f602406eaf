"""YAML text -> a tree that knows its lines.

The tree is built from the parser's events without recursion, and scalars stay text until the schema tells
their type: a tensor may be called `495`, `12:0` or `no`, and a checksum may look like a number.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import yaml

from mace_core.deployment.faults import Faults, shorten
from mace_core.errors import MaceError

LARGEST = 1 << 18
"""Bytes of the largest file; the parser takes some seconds for a megabyte."""

VALUES = 20_000
"""Maximum of values in a list or mapping with all below, aliases counted each time: a guard against bombs."""

DEPTH = 16
"""Deepest nesting; a deployment file needs 7."""

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_NO_TEXT = re.compile("[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")
_STR = "tag:yaml.org,2002:str"


@dataclass(frozen=True)
class Written:
    """A value as it stands in the file.

    line: of its key if it has one, from 1.
    content: a scalar's text, a list's items or a mapping's values.
    quoted: whether a scalar is text by its quotes.
    """

    line: int
    content: str | tuple[Written, ...] | Mapping[str, Written]
    quoted: bool = False


@dataclass
class _Open:
    """A list or mapping whose end is still to come; a mapping's keys and values alternate in `items`."""

    line: int
    is_mapping: bool
    anchor: str | None
    items: list[Written] = field(default_factory=list)
    size: int = 1
    height: int = 1


@dataclass(frozen=True)
class _Anchored:
    value: Written
    size: int
    height: int


def read_source(path: Path, faults: Faults) -> Written:
    """Read a YAML file with one document; duplicate keys and unset variables go to `faults`.

    Raises MaceError for a file that cannot be read, is no YAML, or is too large or too deep.
    """
    text = _text(path, faults)
    tree = _Tree(faults)
    try:
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            tree.take(event)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise _no_yaml(faults, mark.line + 1 if mark else 1, error.problem or error.context or "") from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise _no_yaml(faults, line, f"character {error.character!r} is not allowed") from None
    # Escapes and directives with numbers out of range.
    except (ValueError, OverflowError, IndexError) as error:
        raise _no_yaml(faults, 1, str(error)) from None
    if tree.root is None:
        raise MaceError(
            faults.place(1), "the file is empty", "write library_name and models, or copy an example"
        )
    return tree.root


def _text(path: Path, faults: Faults) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)
    except (OSError, ValueError) as error:
        reason = (error.strerror or "") if isinstance(error, OSError) else str(error)
        raise MaceError(
            shorten(str(path), 200), f"cannot be read: {reason}", "give the path of a YAML file"
        ) from None
    if len(data) > LARGEST:
        raise MaceError(
            path, f"is larger than {LARGEST >> 10} KiB", "split it: each library can have a file of its own"
        )
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise MaceError(faults.place(line), "the file is not UTF-8", "save it as UTF-8") from None


def _no_yaml(faults: Faults, line: int, problem: str) -> MaceError:
    return MaceError(
        faults.place(line),
        f"not valid YAML: {problem}",
        "check indentation, colons and quotes near this line",
    )


def _is_remote(text: str) -> bool:
    """Tell whether a string names something on another machine, in any scheme."""
    return "://" in text or text.lstrip().lower().startswith(("http:", "https:"))


class _Tree:
    """Builds the tree from the parser's events."""

    def __init__(self, faults: Faults) -> None:
        self.root: Written | None = None
        self._faults = faults
        self._open: list[_Open] = []
        self._anchors: dict[str, _Anchored] = {}

    def take(self, event: yaml.Event) -> None:
        """Take one event."""
        assert event.start_mark  # the parser marks every event of a text
        line = event.start_mark.line + 1
        if isinstance(event, yaml.ScalarEvent):
            value = Written(line, self._substitute(event.value, line), quoted=not event.implicit[0])
            self._tag(event.tag, line)
            self._place(value, event.anchor, 1, 1)
        elif isinstance(event, yaml.AliasEvent):
            self._alias(event.anchor or "", line)
        elif isinstance(event, (yaml.SequenceStartEvent, yaml.MappingStartEvent)):
            self._tag(event.tag, line)
            self._open.append(_Open(line, isinstance(event, yaml.MappingStartEvent), event.anchor))
            self._limit(len(self._open), line)
        elif isinstance(event, (yaml.SequenceEndEvent, yaml.MappingEndEvent)):
            done = self._open.pop()
            content = self._mapping(done.items) if done.is_mapping else tuple(done.items)
            self._place(Written(done.line, content), done.anchor, done.size, done.height)

    def _tag(self, tag: str | None, line: int) -> None:
        if tag not in (None, "!", _STR):
            raise MaceError(
                self._faults.place(line), f"tag {tag!r} is not allowed", "remove the tag; values need none"
            )

    def _alias(self, name: str, line: int) -> None:
        if name not in self._anchors:
            raise MaceError(
                self._faults.place(line),
                f"alias *{name} has no anchor above",
                f"write &{name} before the value it repeats",
            )
        anchored = self._anchors[name]
        self._place(replace(anchored.value, line=line), None, anchored.size, anchored.height)

    def _place(self, value: Written, anchor: str | None, size: int, height: int) -> None:
        """Put a complete value where it belongs; size and height are those of its tree."""
        self._limit(len(self._open) + height, value.line)
        if anchor:
            self._anchors[anchor] = _Anchored(value, size, height)
        if not self._open:
            if self.root is not None:
                raise MaceError(
                    self._faults.place(value.line),
                    "a second document begins",
                    "keep one document in the file",
                )
            self.root = value
            return
        around = self._open[-1]
        around.items.append(value)
        around.size += size
        around.height = max(around.height, height + 1)
        if around.size > VALUES:
            raise MaceError(
                self._faults.place(value.line),
                f"more than {VALUES} values",
                "remove aliases or split the file",
            )

    def _limit(self, depth: int, line: int) -> None:
        if depth > DEPTH:
            raise MaceError(self._faults.place(line), f"nested deeper than {DEPTH} levels", "write it flat")

    def _mapping(self, items: list[Written]) -> dict[str, Written]:
        """Values by key; what `<<` merges in gives way to the mapping's own keys."""
        values: dict[str, Written] = {}
        merged: dict[str, Written] = {}
        for key, value in zip(items[::2], items[1::2], strict=True):
            if not isinstance(key.content, str):
                self._faults.add(key.line, "a key is a list or a mapping", "use a word as the key")
            elif key.content == "<<" and not key.quoted:
                for name, entry in self._merge(value):
                    merged.setdefault(name, entry)
            elif key.content in values:
                first = values[key.content].line
                self._faults.add(
                    key.line,
                    f"{key.content}: duplicate key, first in line {first}",
                    "keep one of them",
                )
            else:
                values[key.content] = replace(value, line=key.line)
        return {**merged, **values}

    def _merge(self, value: Written) -> Iterator[tuple[str, Written]]:
        for source in value.content if isinstance(value.content, tuple) else (value,):
            if isinstance(source.content, Mapping):
                yield from source.content.items()
            else:
                self._faults.add(
                    value.line, "<<: merges something that is no mapping", "give it an alias of a mapping"
                )

    def _substitute(self, text: str, line: int) -> str:
        """The text with each ${NAME} replaced by the environment variable; never in a URL.

        A deployment file may come from anywhere: what an environment holds, such as a token, must not be sent
        to a host that it names.
        """
        if _VARIABLE.search(text) and _is_remote(text):
            return self._refuse_variable(text, line)
        replaced = _VARIABLE.sub(lambda match: self._variable(match[1], line), text)
        if replaced != text and _is_remote(replaced):
            return self._refuse_variable(text, line)
        if odd := _NO_TEXT.search(replaced):
            self._faults.add(line, f"character {odd[0]!r} is not allowed", "remove it")
            return _NO_TEXT.sub("", replaced)
        return replaced

    def _refuse_variable(self, text: str, line: int) -> str:
        remedy = "write the URL out, or download the file by hand and give its path"
        self._faults.add(
            line, f"{text[:60]}: a URL takes no environment variables, which could be secrets", remedy
        )
        return _VARIABLE.sub("", text)

    def _variable(self, name: str, line: int) -> str:
        value = os.environ.get(name)
        if value is None:
            self._faults.add(
                line, f"${{{name}}}: the environment variable is not set", f"set it: export {name}=..."
            )
        return value or ""
