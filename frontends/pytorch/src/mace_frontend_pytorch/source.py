"""What a file is, found out and checked without torch, and without unpickling anything."""

from __future__ import annotations

import ast
import json
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile, ZipInfo

from mace_core.errors import MaceError

SCRIPT, EXPORTED = "TorchScript", "exported program"
LARGEST_RATIO = 20
SMALL = 1 << 24
"""Bytes up to which an archive may unpack to more than LARGEST_RATIO times its size."""
MOST_MEMBERS = 1 << 18
LARGEST_JSON = 1 << 28
DEEPEST = 200
EXPORT = "torch.onnx.export(model.eval(), example_inputs, 'model.onnx', dynamo=True)"

LONGEST = 1 << 14
"""Characters of a dimension's expression."""
SYMBOL = re.compile(r"[A-Za-z_]\w{0,63}")
FUNCTIONS = frozenset(
    (
        *(
            "Symbol",
            "Integer",
            "Rational",
            "Float",
            "Add",
            "Mul",
            "Pow",
            "Max",
            "Min",
            "Mod",
            "Abs",
            "And",
            "Or",
            "Not",
            "Xor",
            "Eq",
            "Ne",
        ),
        *(
            "Lt",
            "Le",
            "Gt",
            "Ge",
            "Equality",
            "Unequality",
            "StrictLessThan",
            "LessThan",
            "StrictGreaterThan",
            "GreaterThan",
            "Piecewise",
        ),
        *(
            "ExprCondPair",
            "FloorDiv",
            "CeilDiv",
            "CleanDiv",
            "ModularIndexing",
            "PythonMod",
            "Where",
            "IntTrueDiv",
            "FloatTrueDiv",
        ),
        *(
            "PowByNatural",
            "FloatPow",
            "LShift",
            "RShift",
            "CeilToInt",
            "FloorToInt",
            "RoundToInt",
            "RoundDecimal",
            "TruncToInt",
        ),
        *(
            "TruncToFloat",
            "ToFloat",
            "Identity",
            "OpaqueUnaryFn_sqrt",
            "floor",
            "ceiling",
            "IsNonOverlappingAndDenseIndicator",
        ),
    )
)
"""What a dimension's expression may call: torch hands these texts to Python's eval."""
ARITHMETIC = (
    ast.Expression,
    ast.BinOp,
    ast.UnaryOp,
    ast.BoolOp,
    ast.Compare,
    ast.operator,
    ast.unaryop,
    ast.boolop,
    ast.cmpop,
    ast.Load,
)


@dataclass(frozen=True)
class Source:
    """A file and what it is: SCRIPT or EXPORTED."""

    file: Path
    kind: str


def recognise(file: Path) -> Source:
    """Tell which kind of model a file holds.

    MaceError for one that holds none, with advice, and for a damaged archive.
    """
    try:
        with file.open("rb") as stream:
            start = stream.read(64)
        if start[:2] != b"PK":
            raise _no_archive(file, start)
        with ZipFile(file) as archive:
            kind = _kind(file, archive)
            _check(file, archive)
            if kind is EXPORTED:
                _check_expressions(file, archive)
    except OSError as error:
        raise MaceError(
            file.name, f"cannot be read: {error.strerror or error}", "correct the path in the deployment file"
        ) from error
    except (
        BadZipFile,
        zlib.error,
        ValueError,
        RuntimeError,
        NotImplementedError,
        EOFError,
        LookupError,
        RecursionError,
    ) as error:
        raise damaged(file, error) from error
    return Source(file, kind)


def damaged(file: Path, error: object) -> MaceError:
    """The error for an archive that cannot be right."""
    text = (str(error).strip() or type(error).__name__).splitlines()[0][:300]
    return MaceError(
        file.name, f"is no PyTorch model, or a damaged one: {text}", "save or download the model again"
    )


def _weights_alone(file: Path) -> MaceError:
    problem = "holds weights or a pickled module without the graph that computes with them"
    save = "torch.export.save(torch.export.export(model.eval(), inputs), 'model.pt2')"
    remedy = f"export the model where its Python code is: {save} or {EXPORT}"
    return MaceError(file.name, problem, remedy)


def _no_archive(file: Path, start: bytes) -> MaceError:
    """The error for what is no zip file; pickles start with the number of their protocol."""
    pickled = len(start) > 2 and start[0] == 0x80 and start[1] in range(2, 6)
    return _weights_alone(file) if pickled else damaged(file, "it is no archive")


def _kind(file: Path, archive: ZipFile) -> str:
    inner = {name.partition("/")[2] for name in archive.namelist()} | set(archive.namelist())
    if any(name.startswith("data/aotinductor/") for name in inner):
        problem = "holds a program that torch has compiled for one machine"
        raise MaceError(
            file.name, problem, "save the exported program itself: torch.export.save(program, 'model.pt2')"
        )
    if "serialized_exported_program.json" in inner or any(
        n.startswith("models/") and n.endswith(".json") for n in inner
    ):
        return EXPORTED
    if "constants.pkl" in inner and any(name.startswith("code/") for name in inner):
        return SCRIPT
    if "data.pkl" in inner:
        raise _weights_alone(file)
    raise damaged(file, "an archive of something else")


def _check(file: Path, archive: ZipFile) -> None:
    """MaceError for an archive that names files outside, names one twice, unpacks to too much, or whose checksums are wrong."""
    members, size = archive.infolist(), file.stat().st_size
    names = [info.filename for info in members]
    outside = [n for n in names if n.startswith(("/", "\\")) or ".." in re.split(r"[/\\]", n)]
    if outside or len(set(names)) != len(names) or len(names) > MOST_MEMBERS:
        raise damaged(file, f"it names {outside[0]!r}" if outside else "its list of files is wrong")
    if sum(info.file_size for info in members) > max(SMALL, LARGEST_RATIO * size):
        raise damaged(file, "it states more data than it can hold")
    wrong = archive.testzip()
    if wrong:
        raise damaged(file, f"the checksum of {wrong!r} is wrong")


def _check_expressions(file: Path, archive: ZipFile) -> None:
    """MaceError for a program with expressions of dimensions that are more than arithmetic."""
    for info in archive.infolist():
        if info.filename.endswith(".json"):
            for text in _expressions(_parsed(file, archive, info)):
                if not is_arithmetic(text):
                    raise damaged(file, f"the dimension {text[:80]!r} is no arithmetic")


def is_arithmetic(text: str) -> bool:
    """Whether an expression is made of numbers, symbols, operators and the FUNCTIONS of sympy and torch alone."""
    if len(text) > LONGEST:
        return False
    try:
        parts = list(ast.walk(ast.parse(text.strip(), mode="eval")))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    called = {id(part.func) for part in parts if isinstance(part, ast.Call)}
    return all(_is_plain(part, id(part) in called) for part in parts)


def _is_plain(part: ast.AST, called: bool) -> bool:
    """Whether a part of an expression can do nothing but compute."""
    match part:
        case ast.Name():
            return part.id in FUNCTIONS if called else bool(SYMBOL.fullmatch(part.id)) and "__" not in part.id
        case ast.Constant():
            return not isinstance(part.value, str) or (
                bool(SYMBOL.fullmatch(part.value)) and "__" not in part.value
            )
        case ast.Call() | ast.keyword() | ast.Tuple():
            return True
        case _:
            return isinstance(part, ARITHMETIC)


def _parsed(file: Path, archive: ZipFile, info: ZipInfo) -> Any:
    if info.file_size > LARGEST_JSON:
        raise damaged(file, f"{info.filename} is too large")
    data = archive.read(info)
    depth = deepest = 0
    for byte in data:
        depth += (byte in b"{[") - (byte in b"}]")
        deepest = max(deepest, depth)
    if deepest > DEEPEST:
        raise damaged(file, f"{info.filename} is {deepest} brackets deep")
    return json.loads(data)


def _expressions(value: Any) -> Iterator[str]:
    open_: list[Any] = [value]
    while open_:
        item = open_.pop()
        if isinstance(item, dict):
            yield from (str(v) for k, v in item.items() if k == "expr_str")
            open_.extend(item.values())
        elif isinstance(item, list):
            open_.extend(item)


def joined(names: Sequence[str]) -> str:
    """Names in words."""
    return ", ".join(repr(n) for n in names) or "none"
