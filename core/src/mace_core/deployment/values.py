"""Types the scalars of a YAML tree as the schema says, and returns a document like those of JSON."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from mace_core.deployment.faults import Faults
from mace_core.deployment.schema import Part, Path, Schema, check, label, remove_bad
from mace_core.deployment.source import Written, read_source
from mace_core.json_types import Json, JsonValue

_INTEGER = re.compile(r"[-+]?[0-9]{1,18}")
_NUMBER = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]{1,3})?")
_NULL = ("", "~", "null", "Null", "NULL")
_BOOLS: Mapping[str, bool] = MappingProxyType(
    {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
)


@dataclass(frozen=True)
class Document:
    """A file's content without what is at fault.

    lines: path of each value -> its line.
    """

    value: JsonValue
    lines: Mapping[Path, int]
    schema: Schema
    faults: Faults

    def mapping(self, *path: str) -> Json:
        """Return the mapping at a path; empty where the document has none."""
        value = self.value
        for key in path:
            value = value.get(key) if isinstance(value, Mapping) else None
        return value if isinstance(value, Mapping) else {}

    def items(self, *path: str) -> tuple[Json, ...]:
        """Return the mappings of a list at a path; () where the document has none."""
        value = self.mapping(*path[:-1]).get(path[-1])
        return tuple(item for item in value if isinstance(item, Mapping)) if isinstance(value, list) else ()

    def line(self, *path: str | int) -> int:
        """The line of a value that is there, or that held one at fault."""
        return self.lines.get(path, 1)


def read_document(schema: Schema, faults: Faults) -> Document:
    """Read the file that the faults are about and check it against its schema.

    Raises MaceError for a file that is no YAML; all other faults are noted and what they spoil is left out.
    """
    lines: dict[Path, int] = {}
    value = _Typing(schema, lines, faults).convert(read_source(faults.path, faults), schema.root, ())
    bad = check(schema, value, lines, faults)
    return Document({} if () in bad else remove_bad(value, bad), lines, schema, faults)


@dataclass(frozen=True)
class _Typing:
    schema: Schema
    lines: dict[Path, int]
    faults: Faults

    def convert(self, written: Written, part: Part, path: Path) -> JsonValue:
        """The value as JSON has it; notes the lines of all below."""
        self.lines[path] = written.line
        content = written.content
        if isinstance(content, str):
            return _scalar(written, content, self.schema.form(part, is_list=False))
        if isinstance(content, tuple):
            return [
                self.convert(item, self.schema.inner(part, i), (*path, i)) for i, item in enumerate(content)
            ]
        result: dict[str, JsonValue] = {}
        for key, value in content.items():
            name = _change_case(key, part.get("x-key-case"))
            if name in result:
                self.faults.add(value.line, f"{label((*path, key))}: duplicate key", "keep one of them")
            result[name] = self.convert(value, self.schema.inner(part, name), (*path, name))
        return result


def _scalar(written: Written, text: str, part: Part) -> str | float | bool | None:
    """Text where the schema wants text; else what the text looks like."""
    if not written.quoted and text in _NULL:
        return None
    if "string" in part.get("type", ()):
        return _change_case(text, part.get("x-case"))
    if text.lower() in _BOOLS:
        return _BOOLS[text.lower()]
    if _INTEGER.fullmatch(text):
        return int(text)
    if not _NUMBER.fullmatch(text):
        return text
    number = float(text)
    # JSON Schema takes 1e3 for an integer, which it must then be for those who read it.
    return int(number) if "integer" in part.get("type", ()) and number.is_integer() else number


def _change_case(text: str, case: str | None) -> str:
    if case is None:
        return text
    return text.lower() if case == "lower" else text.upper()
