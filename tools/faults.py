"""Finds the small changes that can be planted in a source file, and chooses some of them by a seed."""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Mult, ast.Div: ast.Mult,
    ast.Mod: ast.Mult, ast.LShift: ast.RShift, ast.RShift: ast.LShift, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip
C_CHANGES = (
    *((" < ", " <= "), (" <= ", " < "), (" > ", " >= "), (" >= ", " > "), (" == ", " != "), (" != ", " == ")),
    *((" + ", " - "), (" - ", " + "), (" * ", " + "), (" && ", " || "), (" || ", " && "), ("++", "--")),
)
NUMBER = re.compile(r"(?<![\w.%])\d+(?![\w.%])")

EXTREME = re.compile(
    r"(?:(?<=[({])|(?<=[=,;:?] )|(?<=return )|(?<=  ))(?P<a>[\w(][^?:;={}]*?)(?P<operator> [<>]=? )"
    r"(?=(?P<b>[^?:;={}]*?) \? (?:\(\w+\))?(?:"
    r"(?:\((?P=a)\)|(?P=a)) : (?P=b)(?=[;,)}])"
    r"|(?P=b) : (?:(?P=a)(?=[;,)}])|(?P=a) [<>]=? )"
    r"))"
)
"""The comparison of C in `a < b ? a : b`, in `a < b ? b : a` and in `a < b ? b : a > c ? c : a`.

Either of two equal numbers is the lesser, so that `<=` in place of `<` changes nothing: there, `>` is planted.
"""

OTHER_EXTREME = {" < ": " > ", " > ": " < ", " <= ": " >= ", " >= ": " <= "}

LENGTH = re.compile(r"(?:\b(?!return)(?:\w+|\*const) \*?|, \*?)\w+\[(?P<length>\d+)\](?= = \{|[;,)])")
"""The length in the declaration of an array of C: nobody reads what a longer one holds."""

IGNORED_C = (
    re.compile(r"\{#.*?#\}|\{%.*?%\}|\{\{.*?\}\}|/\*.*?\*/", re.DOTALL),
    re.compile(r"//[^\n]*|^ *#[^\n]*", re.MULTILINE),
)

IGNORED_KEYWORDS = {"zip": ("strict",), "field": ("repr", "compare", "hash"), "warn": ("stacklevel",)}
"""Function -> keywords whose values guard or describe: no input of a correct program tells one from another."""

Change = tuple[int, int, str]
"""Bytes [start, end) of a file, and what stands there instead."""


@dataclass(frozen=True)
class Fault:
    """Describes one change of one file."""

    area: str
    file: str
    line: int
    before: str
    after: str
    change: Change
    function: int
    """First line of the innermost function that executes the change; 0: the module, when it is imported."""
    text: str
    """The line of the source, without the blanks around it."""

    def change_bytes(self, data: bytes) -> bytes:
        """Return the bytes of the file with the change."""
        start, end, after = self.change
        return data[:start] + after.encode() + data[end:]


def find_changes(path: Path) -> list[Change]:
    """Return every change that can be made to a file, in its order."""
    data = path.read_bytes()
    return sorted(set(python_changes(data) if path.suffix == ".py" else c_changes(data)))


def python_changes(data: bytes) -> Iterator[Change]:
    """Yield changes of a Python module; texts, annotations and messages of errors are left alone."""
    tree = ast.parse(data)
    starts = starts_of_lines(data)
    skipped = {id(inner) for node in ast.walk(tree) for part in untouched(node) for inner in ast.walk(part)}
    for node in ast.walk(tree):
        if id(node) not in skipped and isinstance(node, ast.expr | ast.stmt):
            start = starts[node.lineno - 1] + node.col_offset
            end = starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
            yield from ((start, end, text) for text in replacements(node))


def starts_of_lines(data: bytes) -> list[int]:
    """Return at which byte each line starts."""
    starts = [0]
    for line in data.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    return starts


def untouched(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the parts of a node whose change no test is expected to see."""
    if isinstance(node, ast.JoinedStr | ast.Raise | ast.Assert | ast.Import | ast.ImportFrom):
        yield node
    if isinstance(node, ast.arg | ast.AnnAssign) and node.annotation:
        yield node.annotation
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        yield from node.decorator_list
    if isinstance(node, ast.FunctionDef) and node.returns:
        yield node.returns
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        yield node
    if isinstance(node, ast.Call):
        function = ast.unparse(node.func).rpartition(".")[2]
        ignored = IGNORED_KEYWORDS.get(function, ())
        yield from (keyword.value for keyword in node.keywords if keyword.arg in ignored)
        if function == "reshape":
            yield from open_lengths(node)


def open_lengths(call: ast.Call) -> Iterator[ast.AST]:
    """Yield each -1 in the shape of a `reshape`: NumPy takes every negative length as the one that is left."""
    for argument in call.args:
        for length in argument.elts if isinstance(argument, ast.Tuple | ast.List) else [argument]:
            if isinstance(length, ast.UnaryOp) and isinstance(length.op, ast.USub):
                yield length


def replacements(node: ast.expr | ast.stmt) -> Iterator[str]:
    """Yield what may stand in the place of a node."""
    match node:
        case ast.Compare(ops=[op], left=left, comparators=right) if type(op) in COMPARISONS:
            yield f"({ast.unparse(ast.Compare(left, [COMPARISONS[type(op)]()], right))})"
        case ast.BoolOp(op=op, values=values):
            other = ast.And() if isinstance(op, ast.Or) else ast.Or()
            yield f"({ast.unparse(ast.BoolOp(other, values))})"
        case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
            yield f"({ast.unparse(ast.BinOp(left, OPERATORS[type(op)](), right))})"
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield f"({ast.unparse(operand)})"
        case ast.Constant(value=bool() as value):
            yield str(not value)
        case ast.Constant(value=int() as value):
            yield str(value + 1)
        case ast.IfExp(test=test, body=body, orelse=orelse):
            yield f"({ast.unparse(ast.IfExp(test, orelse, body))})"
        case ast.Expr(value=ast.Call()) | ast.AugAssign() | ast.Continue():
            yield "pass"


def c_changes(data: bytes) -> Iterator[Change]:
    """Yield changes of a template of C; comments, Jinja's directives and the preprocessor's are left alone."""
    text = data.decode()
    for left_alone in IGNORED_C:
        # Blanks of the same length keep the positions of what is left.
        text = left_alone.sub(lambda found: " " * len(found.group().encode()), text)
    extremes = {found.start("operator") for found in EXTREME.finditer(text)}
    for old, new in C_CHANGES:
        for found in re.finditer(re.escape(old), text):
            yield found.start(), found.end(), OTHER_EXTREME[old] if found.start() in extremes else new
    lengths = {found.start("length") for found in LENGTH.finditer(text)}
    for found in NUMBER.finditer(text):
        if found.start() not in lengths:
            yield found.start(), found.end(), str(int(found.group()) + 1)


def choose(checkout: Path, area: str, files: list[str], seed: int, count: int) -> list[Fault]:
    """Choose so many faults of the files of an area: the same for the same seed and sources."""
    every = [(name, change) for name in files for change in find_changes(checkout / name)]
    chosen = random.Random(f"{seed} {area}").sample(every, min(count, len(every)))  # noqa: S311  # repeatable
    return [describe(checkout, area, name, change) for name, change in chosen]


def describe(checkout: Path, area: str, name: str, change: Change) -> Fault:
    """Return a fault with the place and the texts that a reader needs."""
    data = (checkout / name).read_bytes()
    start, end, after = change
    line = data[:start].count(b"\n") + 1
    function = function_at(data, start) if name.endswith(".py") else 0
    text = data.splitlines()[line - 1].decode().strip()
    return Fault(area, name, line, data[start:end].decode(), after, change, function, text)


def function_at(data: bytes, position: int) -> int:
    """Return the first line of the innermost function whose body has this byte; 0 if none has.

    Defaults of parameters and decorators belong to what is around the function.
    """
    starts = starts_of_lines(data)
    first = 0
    for node in ast.walk(ast.parse(data)):  # what is inside comes after what is around it
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body: tuple[ast.stmt | ast.expr, ast.stmt | ast.expr] = node.body[0], node.body[-1]
        elif isinstance(node, ast.Lambda):
            body = node.body, node.body
        else:
            continue
        start = starts[body[0].lineno - 1] + body[0].col_offset
        end = starts[(body[1].end_lineno or 0) - 1] + (body[1].end_col_offset or 0)
        if start <= position < end:
            decorators = getattr(node, "decorator_list", [])
            first = min([node.lineno, *(d.lineno for d in decorators)])
    return first
