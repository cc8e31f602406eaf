"""Parses NNEF's flat syntax (NNEF 1.0.5, chapter 3): one operation a line.

Khronos's own parser, PyPI's `nnef`, is C++ that crashes on damaged text, and a description may come from a
stranger. So this parser reads it, and the tests compare the two. The only recursion is that of nested
brackets, which is bounded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import isfinite
from types import MappingProxyType
from typing import Any, NamedTuple

from mace_frontend_nnef.signatures import GENERIC, MISSING, OperationSignature, Parameter, signature

MAX_BRACKETS = 32
"""How deep lists may be nested. NNEF needs 2: a list of pairs."""

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
"""Letter of a type of lists in `signatures` -> the letter of its items."""


class NnefSyntaxError(ValueError):
    """The text is no flat NNEF; the message says where and why."""


class Name(str):
    """The name of a tensor, as opposed to a string in quotes."""

    __slots__ = ()


TYPES: Mapping[str, tuple[type, ...]] = MappingProxyType(
    {"T": (Name, bool, int, float), "f": (int, float), "i": (int,), "b": (bool,)}
)
"""Letter of a type of single values in `signatures` -> Python's types for it."""


class Token(NamedTuple):
    """A word of the text.

    kind: the name of the group of TOKEN that matched; "end" after the last word.
    """

    kind: str
    text: str
    line: int


@dataclass(frozen=True)
class NnefOperation:
    """One line of a graph.

    attribs, inputs: by the names of the signature, with defaults; a tensor is a `Name`, or a number in its
    place.  outputs: names of tensors; those of a list one by one.
    dtype: the type in angle brackets; "scalar" where there is none.
    """

    name: str
    attribs: Mapping[str, Any]
    inputs: Mapping[str, Any]
    outputs: tuple[str, ...]
    dtype: str = "scalar"


@dataclass
class NnefDescription:
    """A graph as its description states it.

    operations: in the order of the text, which is an order of execution.  kinds: NNEF's type of each tensor.
    """

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    operations: list[NnefOperation] = field(default_factory=list)
    kinds: dict[str, str] = field(default_factory=dict)


def parse(text: str) -> NnefDescription:
    """Return what a text describes; NnefSyntaxError with the line if it is not flat NNEF."""
    return _Parser(text).document()


def tokens(text: str) -> Iterator[Token]:
    """Yield the words of a text, without spaces and comments."""
    offset, line = 0, 1
    while offset < len(text):
        match = TOKEN.match(text, offset)
        if match is None:
            raise NnefSyntaxError(f"line {line}: {text[offset : offset + 12]!r} is no word of NNEF")
        kind = match.lastgroup or ""
        if match["number"] is not None:
            kind = "number"
        if kind != "space":
            yield Token(kind, match[0], line)
        line += match[0].count("\n")
        offset = match.end()
    yield Token("end", "the end", line)


class _Parser:
    """Reads one word of a text after another; `position` is the index of the next."""

    def __init__(self, text: str) -> None:
        self.words = list(tokens(text))
        self.position = 0

    @property
    def word(self) -> Token:
        return self.words[self.position]

    def fault(self, text: str) -> NnefSyntaxError:
        return NnefSyntaxError(f"line {self.word.line}: {text}")

    def take(self, text: str) -> None:
        """Skip a word; NnefSyntaxError if another one is next."""
        if not self.skip(text):
            raise self.fault(f"expected {text!r}, found {self.word.text!r}")

    def skip(self, text: str) -> bool:
        """Skip a word if it is the next one; return whether it was."""
        # A string in quotes is never a word of the syntax, whatever it says.
        if self.word.text != text or self.word.kind == "text":
            return False
        self.position += 1
        return True

    def kind(self, kind: str) -> str:
        """Return the next word; NnefSyntaxError if it is of another kind."""
        word = self.word
        if word.kind != kind:
            raise self.fault(f"expected a {kind}, found {word.text!r}")
        self.position += 1
        return word.text

    def document(self) -> NnefDescription:
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
        graph = NnefDescription(name, inputs, self.names())
        self.take("{")
        while not self.skip("}"):
            self.assignment(graph)
        if self.word.kind != "end":
            raise self.fault(f"{self.word.text!r} after the graph")
        self.check_ports(graph)
        return graph

    def check_ports(self, graph: NnefDescription) -> None:
        """NnefSyntaxError unless the graph's inputs are externals, and its outputs are computed."""
        externals: set[str] = set()
        for operation in graph.operations:
            if operation.name == "external":
                externals.update(operation.outputs)
        for name in graph.inputs:
            if name not in externals:
                raise self.fault(f"input {name!r} is not declared by `external`")
        for name in graph.outputs:
            if name not in graph.kinds:
                raise self.fault(f"output {name!r} is never computed")

    def names(self) -> tuple[str, ...]:
        """Return names in parentheses."""
        self.take("(")
        names = [self.kind("name")]
        while self.skip(","):
            names.append(self.kind("name"))
        self.take(")")
        return tuple(names)

    def assignment(self, graph: NnefDescription) -> None:
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
        """Return the names before the equals sign; those in brackets one by one."""
        names: list[str] = []
        while True:
            close = ""
            if self.skip("["):
                close = "]"
            elif self.skip("("):
                close = ")"
            names.append(self.kind("name"))
            while close and self.skip(","):
                names.append(self.kind("name"))
            if close:
                self.take(close)
            if not self.skip(","):
                return names

    def arguments(self) -> list[tuple[str, Any]]:
        """Return the arguments of an operation with their names; "" for those known by their order."""
        self.take("(")
        arguments: list[tuple[str, Any]] = []
        while not self.skip(")"):
            if arguments:
                self.take(",")
            key = ""
            if self.word.kind == "name" and self.words[self.position + 1].text == "=":
                key = self.kind("name")
                self.take("=")
            arguments.append((key, self.value(0)))
        return arguments

    def value(self, depth: int) -> Any:
        """Return a value: a number, a string, a boolean, a Name, a list, or a tuple of two."""
        if depth > MAX_BRACKETS:
            raise self.fault(f"brackets are nested more than {MAX_BRACKETS} deep")
        word = self.word
        if word.kind == "name":
            self.position += 1
            return {"true": True, "false": False}.get(word.text, Name(word.text))
        if word.kind == "text":
            self.position += 1
            return word.text[1:-1]
        if self.skip("["):
            return self.values("]", depth)
        if self.skip("("):
            return tuple(self.values(")", depth))
        negative = self.skip("-")
        number = self.number(self.kind("number"))
        return -number if negative else number

    def values(self, close: str, depth: int) -> list[Any]:
        values: list[Any] = []
        while not self.skip(close):
            if values:
                self.take(",")
            values.append(self.value(depth + 1))
        return values

    def number(self, text: str) -> int | float:
        """Return a number; NnefSyntaxError if it is larger than those of a library."""
        if text.isdigit():
            # The length comes first: Python refuses, or takes minutes for, integers of very many digits.
            if len(text) > len(str(MAX_INTEGER)) or int(text) > MAX_INTEGER:
                raise self.fault(f"the integer {text[:24]} has more than 64 bits")
            return int(text)
        number = float(text)
        if not isfinite(number):
            raise self.fault(f"the number {text[:24]} is too large")
        return number


def _operation(
    named: tuple[str, str],
    outputs: list[str],
    arguments: list[tuple[str, Any]],
    known: OperationSignature | None,
) -> NnefOperation:
    """Return an operation with its arguments by name; NnefSyntaxError if they do not fit its signature.

    named: the name of the operation, and the type in angle brackets.
    """
    name, dtype = named
    if known is None:
        # The importer reports it together with all other operations that nothing here knows.
        values = {key or str(position): value for position, (key, value) in enumerate(arguments)}
        return NnefOperation(name, {}, values, tuple(outputs), dtype)
    if not any(result.endswith("*") for result in known.results) and len(outputs) != len(known.results):
        raise NnefSyntaxError(f"it has {len(known.results)} results, {len(outputs)} are named")
    stated: dict[str, Any] = {}
    by_name = {parameter.name: parameter for parameter in known.parameters}
    for position, (key, value) in enumerate(arguments):
        if not key and position >= len(known.parameters):
            raise NnefSyntaxError(f"it takes {len(known.parameters)} arguments, {len(arguments)} are given")
        parameter_name = key or known.parameters[position].name
        if parameter_name not in by_name or parameter_name in stated:
            fault = "given twice" if parameter_name in stated else "unknown"
            raise NnefSyntaxError(f"argument {parameter_name!r} is {fault}")
        stated[parameter_name] = value
    values = {p.name: _check_argument(p, stated.get(p.name, p.default)) for p in known.parameters}
    inputs = {p.name: values[p.name] for p in known.parameters if p.is_operand}
    attribs = {key: value for key, value in values.items() if key not in inputs}
    return NnefOperation(name, attribs, inputs, tuple(outputs), dtype)


def _check_argument(parameter: Parameter, value: Any) -> Any:
    """Return an argument; NnefSyntaxError if it is missing or of another type than its parameter."""
    if value is MISSING:
        raise NnefSyntaxError(f"argument {parameter.name!r} is missing")
    if not _fits(parameter.kind, value):
        raise NnefSyntaxError(f"argument {parameter.name!r} is of another type")
    return value


def _fits(kind: str, value: Any) -> bool:
    """Return whether a value has a type; `kind` is its letter in `signatures`."""
    if kind in ITEMS:
        return isinstance(value, list) and all(_fits(ITEMS[kind], item) for item in value)
    if kind == "pair":
        return isinstance(value, tuple) and len(value) == 2 and all(_fits("i", item) for item in value)
    if kind == "s":
        return isinstance(value, str) and not isinstance(value, Name)
    # To Python a bool is an int.
    return isinstance(value, TYPES[kind]) and (kind in "Tb" or not isinstance(value, bool))


def _result_kind(operation: NnefOperation, known: OperationSignature | None, kinds: Mapping[str, str]) -> str:
    """Return NNEF's type of the results: stated, or that of the signature, or that of the operands."""
    if known is None or known.kind == GENERIC:
        return operation.dtype
    if known.kind:
        return known.kind
    values = list(operation.inputs.values())
    # The last operand has the type of the results: of `select` a value, not the condition. `gather` is the
    # exception, whose last operand are the indices.
    operand = values[0] if operation.name == "gather" else values[-1]
    first = operand[0] if isinstance(operand, list) and operand else operand
    if isinstance(first, bool):
        return "logical"
    return kinds.get(first, "scalar") if isinstance(first, Name) else "scalar"


def names_in(values: Iterable[Any]) -> Iterator[str]:
    """Yield the names of tensors among operands, of which each may be a list."""
    for value in flatten(values):
        if isinstance(value, Name):
            yield str(value)


def flatten(values: Iterable[Any]) -> Iterator[Any]:
    """Yield values, those of lists one by one."""
    for value in values:
        yield from value if isinstance(value, list) else (value,)
