"""Reads NNEF's flat syntax (NNEF 1.0.5, chapter 3): one operation a line.

Khronos's own parser, PyPI's `nnef`, is C++ that crashes on damaged text; a description may come from anywhere, so
this one is used, and that one only holds it to account in tests. Nothing here calls itself deeper than brackets are
nested, and those are counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import isfinite
from types import MappingProxyType
from typing import Any, NamedTuple

from mace_frontend_nnef.signatures import GENERIC, MISSING, Parameter, Signature, signature

MAX_BRACKETS = 32
"""How deep lists may be nested."""

MAX_INTEGER = (1 << 63) - 1

TOKEN = re.compile(
    r"""(?P<space>(?:\s|\#[^\n]*)+)
    |(?P<number>\d+(?P<fraction>\.\d*)?(?P<exponent>[eE][+-]?\d+)?)
    |(?P<name>[A-Za-z_]\w*)
    |(?P<text>'[^'\n]*'|"[^"\n]*")
    |(?P<symbol>->|[][(){}<>=,;-])""",
    re.VERBOSE | re.ASCII,
)


ITEMS: Mapping[str, str] = MappingProxyType({"L": "T", "n": "i", "v": "T", "p": "pair"})
"""What lists hold, by the letters of `signatures`."""


class NnefSyntaxError(ValueError):
    """A text is no NNEF; the message says where and why."""


class Name(str):
    """The name of a tensor, as opposed to a text in quotes."""

    __slots__ = ()


TYPES: Mapping[str, tuple[type, ...]] = MappingProxyType(
    {"T": (Name, bool, int, float), "f": (int, float), "i": (int,), "b": (bool,)}
)
"""Python's types of single values, by the letters of `signatures`."""


class Token(NamedTuple):
    """kind: name of a group of TOKEN; "end" behind the last."""

    kind: str
    text: str
    line: int


@dataclass(frozen=True)
class Operation:
    """One line of a graph.

    attribs, inputs: by the names of the signature, defaults included; tensors are `Name`s, or numbers in their place.
    outputs: the tensors, those of a list one by one.  dtype: the type in angle brackets; "scalar" without.
    """

    name: str
    attribs: Mapping[str, Any]
    inputs: Mapping[str, Any]
    outputs: tuple[str, ...]
    dtype: str = "scalar"


@dataclass
class Description:
    """A graph: operations in the order of the file, and NNEF's type of each tensor."""

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    operations: list[Operation] = field(default_factory=list)
    kinds: dict[str, str] = field(default_factory=dict)


def parse(text: str) -> Description:
    """Return what a text describes; NnefSyntaxError with the line if it is no flat NNEF."""
    return _Parser(text).document()


def tokens(text: str) -> Iterator[Token]:
    """Yield the words of a text, without spaces and comments."""
    place, line = 0, 1
    while place < len(text):
        match = TOKEN.match(text, place)
        if match is None:
            raise NnefSyntaxError(f"line {line}: {text[place : place + 12]!r} is no word of NNEF")
        kind = match.lastgroup or ""
        if match["number"] is not None:
            kind = "number"
        if kind != "space":
            yield Token(kind, match[0], line)
        line += match[0].count("\n")
        place = match.end()
    yield Token("end", "the end", line)


class _Parser:
    """A text on its way into a description."""

    def __init__(self, text: str) -> None:
        self.words = list(tokens(text))
        self.place = 0

    @property
    def word(self) -> Token:
        return self.words[self.place]

    def fault(self, text: str) -> NnefSyntaxError:
        return NnefSyntaxError(f"line {self.word.line}: {text}")

    def take(self, text: str) -> None:
        """Go behind a word that must stand here."""
        if not self.skip(text):
            raise self.fault(f"expected {text!r}, found {self.word.text!r}")

    def skip(self, text: str) -> bool:
        """Go behind a word if it stands here; return whether it did."""
        if self.word.text != text or self.word.kind == "text":
            return False
        self.place += 1
        return True

    def kind(self, kind: str) -> str:
        """Return a word of a kind that must stand here."""
        word = self.word
        if word.kind != kind:
            raise self.fault(f"expected a {kind}, found {word.text!r}")
        self.place += 1
        return word.text

    def document(self) -> Description:
        self.take("version")
        version = self.kind("number")
        if version.partition(".")[0] != "1":
            raise self.fault(f"version {version} is not supported, 1.0 is")
        self.take(";")
        while self.skip("extension"):
            while not self.skip(";"):
                name = self.kind("name")
                if name.startswith("KHR_enable"):
                    raise self.fault(
                        f"extension {name} is not supported; write the graph flat, as nnef_tools does"
                    )
        self.take("graph")
        name = self.kind("name")
        inputs = self.names()
        self.take("->")
        graph = Description(name, inputs, self.names())
        self.take("{")
        while not self.skip("}"):
            self.assignment(graph)
        if self.word.kind != "end":
            raise self.fault(f"{self.word.text!r} behind the graph")
        self.check_ends(graph)
        return graph

    def check_ends(self, graph: Description) -> None:
        """NnefSyntaxError unless the graph's inputs are externals, and its outputs are computed."""
        externals = {name for o in graph.operations if o.name == "external" for name in o.outputs}
        for name in graph.inputs:
            if name not in externals:
                raise self.fault(f"input {name!r} is not declared by `external`")
        for name in graph.outputs:
            if name not in graph.kinds:
                raise self.fault(f"output {name!r} is never computed")

    def names(self) -> tuple[str, ...]:
        """Return names in parentheses."""
        self.take("(")
        found = [self.kind("name")]
        while self.skip(","):
            found.append(self.kind("name"))
        self.take(")")
        return tuple(found)

    def assignment(self, graph: Description) -> None:
        line = self.word.line
        outputs = self.left_side()
        self.take("=")
        name = self.kind("name")
        dtype = "scalar"
        if self.skip("<"):
            dtype = self.kind("name")
            self.take(">")
        arguments = self.arguments()
        self.take(";")
        known = signature(name)
        try:
            operation = _operation((name, dtype), outputs, arguments, known)
        except NnefSyntaxError as fault:
            raise NnefSyntaxError(f"line {line}: {name}: {fault}") from None
        for output in operation.outputs:
            if output in graph.kinds:
                raise NnefSyntaxError(f"line {line}: {output!r} is assigned twice")
            graph.kinds[output] = _result_kind(operation, known, graph.kinds)
        graph.operations.append(operation)

    def left_side(self) -> list[str]:
        """Return the names before the equals sign, those of lists one by one."""
        found: list[str] = []
        while True:
            close = "]" if self.skip("[") else ")" if self.skip("(") else ""
            found.append(self.kind("name"))
            while close and self.skip(","):
                found.append(self.kind("name"))
            if close:
                self.take(close)
            if not self.skip(","):
                return found

    def arguments(self) -> list[tuple[str, Any]]:
        """Return what an operation is given; "" for the name of what is known by its place."""
        self.take("(")
        found: list[tuple[str, Any]] = []
        while not self.skip(")"):
            if found:
                self.take(",")
            key = ""
            if self.word.kind == "name" and self.words[self.place + 1].text == "=":
                key = self.kind("name")
                self.take("=")
            found.append((key, self.value(0)))
        return found

    def value(self, depth: int) -> Any:
        """Return a value: a number, a text, a truth value, a Name, a list, or a tuple of two."""
        if depth > MAX_BRACKETS:
            raise self.fault(f"brackets are nested more than {MAX_BRACKETS} deep")
        word = self.word
        if word.kind == "name":
            self.place += 1
            return {"true": True, "false": False}.get(word.text, Name(word.text))
        if word.kind == "text":
            self.place += 1
            return word.text[1:-1]
        if self.skip("["):
            return self.values("]", depth)
        if self.skip("("):
            return tuple(self.values(")", depth))
        negative = self.skip("-")
        number = self.number(self.kind("number"))
        return -number if negative else number

    def values(self, close: str, depth: int) -> list[Any]:
        found: list[Any] = []
        while not self.skip(close):
            if found:
                self.take(",")
            found.append(self.value(depth + 1))
        return found

    def number(self, text: str) -> int | float:
        """Return a number that a library can hold."""
        if text.isdigit():
            if len(text) > len(str(MAX_INTEGER)) or int(text) > MAX_INTEGER:
                raise self.fault(f"the integer {text[:24]} has more than 64 bits")
            return int(text)
        number = float(text)
        if not isfinite(number):
            raise self.fault(f"the number {text[:24]} is too large")
        return number


def _operation(
    named: tuple[str, str], outputs: list[str], arguments: list[tuple[str, Any]], known: Signature | None
) -> Operation:
    """Return an operation, its arguments by the names of its signature; NnefSyntaxError if it has others."""
    name, dtype = named
    if known is None:  # reported by the importer, with all others that nothing here knows
        given = {key or str(place): value for place, (key, value) in enumerate(arguments)}
        return Operation(name, {}, given, tuple(outputs), dtype)
    if not any(result.endswith("*") for result in known.results) and len(outputs) != len(known.results):
        raise NnefSyntaxError(f"it has {len(known.results)} results, {len(outputs)} are named")
    stated: dict[str, Any] = {}
    by_name = {parameter.name: parameter for parameter in known.parameters}
    for place, (key, value) in enumerate(arguments):
        if not key and place >= len(known.parameters):
            raise NnefSyntaxError(f"it takes {len(known.parameters)} arguments, {len(arguments)} are given")
        chosen = key or known.parameters[place].name
        if chosen not in by_name or chosen in stated:
            raise NnefSyntaxError(
                f"argument {chosen!r} is {'given twice' if chosen in stated else 'unknown'}"
            )
        stated[chosen] = value
    whole = {p.name: _checked(p, stated.get(p.name, p.default)) for p in known.parameters}
    inputs = {p.name: whole[p.name] for p in known.parameters if p.is_operand}
    attribs = {key: value for key, value in whole.items() if key not in inputs}
    return Operation(name, attribs, inputs, tuple(outputs), dtype)


def _checked(parameter: Parameter, value: Any) -> Any:
    """Return an argument of the type that its parameter has; NnefSyntaxError for another."""
    if value is MISSING:
        raise NnefSyntaxError(f"argument {parameter.name!r} is missing")
    if not _fits(parameter.kind, value):
        raise NnefSyntaxError(f"argument {parameter.name!r} is of another type")
    return value


def _fits(kind: str, value: Any) -> bool:
    """Tell whether a value is of a type, by the letters of `signatures`."""
    if kind in ITEMS:
        return isinstance(value, list) and all(_fits(ITEMS[kind], item) for item in value)
    if kind == "pair":
        return isinstance(value, tuple) and len(value) == 2 and all(_fits("i", item) for item in value)
    if kind == "s":
        return isinstance(value, str) and not isinstance(value, Name)
    # A truth value is an int to Python.
    return isinstance(value, TYPES[kind]) and (kind in "Tb" or not isinstance(value, bool))


def _result_kind(operation: Operation, known: Signature | None, kinds: Mapping[str, str]) -> str:
    """Return NNEF's type of the results: stated, or by the signature, or that of the last operand."""
    if known is None or known.kind == GENERIC:
        return operation.dtype
    if known.kind:
        return known.kind
    values = list(operation.inputs.values())
    # Of `select` the values tell the type, and not the condition; of `gather` the input, and not the indices.
    chosen = values[0] if operation.name == "gather" else values[-1]
    first = chosen[0] if isinstance(chosen, list) and chosen else chosen
    if isinstance(first, bool):
        return "logical"
    return kinds.get(first, "scalar") if isinstance(first, Name) else "scalar"
