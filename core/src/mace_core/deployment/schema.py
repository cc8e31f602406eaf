"""The schema of a file as the parser reads it, and what is at fault with a document that does not fit it.

Besides JSON Schema's words, the schemas use:
x-type: how `convert` turns the value into an object.  x-case, x-key-case: letters that do not matter are made
"lower" or "upper". x-aliases: other words for the same.  x-default-from: the key whose value is the default.
x-expects: what may be written, in words.  x-group: the chapter of the reference.
x-not-yet, x-no-effect: what happens instead of what the key asks for.  x-planned: the part of MACE that will
give it its effect.  x-ready: values that do work.
x-remote: what to do about a URL.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from mace_core.deployment.faults import LONGEST, Faults, shorten
from mace_core.json_types import Json

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError

Part = Mapping[str, Any]
Path = tuple[str | int, ...]


@dataclass(frozen=True)
class Schema:
    """A JSON Schema whose `$ref`s all point to its `$defs`."""

    root: Part

    @classmethod
    def read(cls, name: str) -> Schema:
        """The schema of "deployment" or "devices" files."""
        text = (files("mace_core") / "schema" / f"{name}.schema.json").read_text(encoding="utf-8")
        return cls(json.loads(text))

    def definition(self, name: str) -> Part:
        """One of the `$defs`, with its references followed."""
        return self.resolve({"$ref": f"#/$defs/{name}"})

    def resolve(self, part: Part) -> Part:
        """The part with its own reference followed.

        What stands beside a reference adds to it or wins over it.
        """
        if "$ref" not in part:
            return part
        target = self.resolve(self.root["$defs"][part["$ref"].removeprefix("#/$defs/")])
        stated = {k: v for k, v in part.items() if k != "$ref"}
        properties = {**target.get("properties", {}), **stated.get("properties", {})}
        return {**target, **stated, **({"properties": properties} if properties else {})}

    def inner(self, part: Part, key: str | int) -> Part:
        """Return the schema of a key or item of something that `part` describes; {} if there is none."""
        if isinstance(key, int):
            return self.resolve(self.form(part, is_list=True).get("items", {}))
        inner = part.get("properties", {}).get(key, part.get("additionalProperties", {}))
        return self.resolve(inner)

    def form(self, part: Part, is_list: bool) -> Part:
        """Of "one or a list of such" the one or the list; anything else as it is."""
        forms = [self.resolve(f) for f in part.get("anyOf", ())]
        return forms[is_list] if forms else part

    def find(self, path: Iterable[str | int]) -> Part:
        """Return the schema of the value at a path."""
        part = self.root
        for key in path:
            part = self.inner(part, key)
        return part


def check(schema: Schema, value: object, lines: Mapping[Path, int], faults: Faults) -> set[Path]:
    """Note everything in which a document does not fit its schema; returns where, for `without`."""
    from jsonschema import Draft202012Validator  # takes longer to import than all of the core

    bad: set[Path] = set()
    for error in Draft202012Validator(schema.root).iter_errors(value):
        bad.update(_Complaint(schema, lines, faults).tell(_deepest(error)))
    return bad


def remove_bad(value: Any, bad: set[Path], path: Path = ()) -> Any:
    """The document without the keys at or below which something is bad."""
    if not isinstance(value, dict):
        return value
    return {k: remove_bad(v, bad, (*path, k)) for k, v in value.items() if not _is_bad((*path, k), v, bad)}


def _is_bad(path: Path, value: object, bad: set[Path]) -> bool:
    if path in bad:
        return True
    return isinstance(value, list) and any(b[: len(path)] == path for b in bad)


def _deepest(error: ValidationError) -> ValidationError:
    """Of the reasons why neither form fits, the one that is about an item; else the error itself."""
    inner = max(error.context or (), key=lambda e: len(e.relative_path), default=None)
    return _deepest(inner) if inner is not None and inner.relative_path else error


@dataclass(frozen=True)
class _Complaint:
    """Turns a validator's error into faults."""

    schema: Schema
    lines: Mapping[Path, int]
    faults: Faults

    def tell(self, error: ValidationError) -> list[Path]:
        """Note what is wrong; returns the paths of what is."""
        path = tuple(error.absolute_path)
        part = self.schema.find(path)
        instance: Any = error.instance
        if error.validator == "unevaluatedProperties":
            return self._unknown(path, part, instance)
        if error.validator == "required":
            self._missing(path, part, instance)
            return []
        if "propertyNames" in error.absolute_schema_path:
            return self._name(path, part, instance)
        self._value(path, part, instance)
        return [path]

    def line(self, path: Path) -> int:
        """The line of the value at a path, or of what holds it."""
        while path not in self.lines and path:
            path = path[:-1]
        return self.lines.get(path, 1)

    def _name(self, path: Path, part: Part, name: str) -> list[Path]:
        expected = describe_expected(self.schema.resolve(part["propertyNames"]))
        self.faults.add(
            self.line((*path, name)), f"{label(path)}: {show(name)} is not allowed", f"write {expected}"
        )
        return [(*path, name)]

    def _unknown(self, path: Path, part: Part, instance: Json) -> list[Path]:
        known = part.get("properties", {})
        paths = [(*path, key) for key in instance if key not in known]
        for wrong in paths:
            key = str(wrong[-1])
            close = get_close_matches(key, known, 1) if len(key) < LONGEST else []
            remedy = (
                f"did you mean {close[0]!r}?"
                if close
                else "remove it; docs/deployment-file.md lists the keys"
            )
            self.faults.add(self.line(wrong), f"{shorten(key)}: unknown key", remedy)
        return paths

    def _missing(self, path: Path, part: Part, instance: Json) -> None:
        for key in part["required"]:
            if key not in instance:
                expected = describe_expected(self.schema.inner(part, key))
                self.faults.add(self.line(path), f"{label((*path, key))}: is missing", f"write {expected}")

    def _value(self, path: Path, part: Part, instance: object) -> None:
        part = {**part, "x-expects": self._describe_expected(path, part)}
        name = label(path)
        if instance is None:
            self.faults.add(
                self.line(path),
                f"{name}: has no value",
                f"write {describe_expected(part)}, or remove the key",
            )
            return
        words = part.get("enum", ())
        close = (
            get_close_matches(instance, map(str, words), 1)
            if isinstance(instance, str) and len(instance) < LONGEST
            else []
        )
        remedy = f"did you mean {close[0]!r}?" if close else f"write {describe_expected(part)}"
        problem = "is empty" if instance in ({}, []) else f"{show(instance)} is not allowed"
        self.faults.add(self.line(path), f"{name}: {problem}", remedy)

    def _describe_expected(self, path: Path, part: Part) -> str:
        """Describe the accepted values; an item without a description has that of its list."""
        while path and isinstance(path[-1], int) and "x-expects" not in part and "enum" not in part:
            path = path[:-1]
            part = self.schema.find(path)
        return describe_expected(part)


def describe_expected(part: Part) -> str:
    """Describe the accepted values in words."""
    if "x-expects" in part:
        return str(part["x-expects"])
    if "enum" in part:
        words = [str(word) or "nothing" for word in part["enum"]]
        return f"{', '.join(words[:-1])} or {words[-1]}" if len(words) > 1 else words[0]
    return "text"


def label(path: Path) -> str:
    """The name of a value: its key, and its number from 0 in a list."""
    keys = [i for i, key in enumerate(path) if isinstance(key, str)]
    if not keys:
        return "the file"
    return shorten(str(path[keys[-1]])) + "".join(f"[{i}]" for i in path[keys[-1] + 1 :])


def show(value: object) -> str:
    """A value as a message shows it."""
    return shorten(repr(value) if isinstance(value, str) else json.dumps(value, default=str))
