"""Tells what a model file is and checks it, without torch and without unpickling anything."""

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
EXPORT_COMMAND = "torch.onnx.export(model.eval(), example_inputs, 'model.onnx', dynamo=True)"
SAVE_COMMAND = "torch.export.save(torch.export.export(model.eval(), inputs), 'model.pt2')"

# Bounds that no sound archive reaches; they stop an archive that unpacks to more than memory or stack hold.
MAX_RATIO = 20
"""How many times its size an archive may unpack to; torch compresses no weights, so it stays near 1."""
SMALL_ARCHIVE = 1 << 24
"""Bytes up to which an archive may unpack to in any case: small files of text compress well."""
MAX_MEMBERS = 1 << 18
MAX_JSON_SIZE = 1 << 28
MAX_JSON_DEPTH = 200
MAX_EXPRESSION = 1 << 14
"""Characters of a dimension's expression."""

MAX_ERROR_TEXT = 300
"""Characters of an exception's message that are printed."""

SYMBOL = re.compile(r"[A-Za-z_]\w{0,63}")
FUNCTIONS = frozenset(
    (
        *("Symbol", "Integer", "Rational", "Float", "Add", "Mul", "Pow", "Max", "Min", "Mod", "Abs"),
        *("And", "Or", "Not", "Xor", "Eq", "Ne", "Lt", "Le", "Gt", "Ge", "Equality", "Unequality"),
        *("StrictLessThan", "LessThan", "StrictGreaterThan", "GreaterThan", "Piecewise", "ExprCondPair"),
        *("FloorDiv", "CeilDiv", "CleanDiv", "ModularIndexing", "PythonMod", "Where", "IntTrueDiv"),
        *("FloatTrueDiv", "PowByNatural", "FloatPow", "LShift", "RShift", "CeilToInt", "FloorToInt"),
        *("RoundToInt", "RoundDecimal", "TruncToInt", "TruncToFloat", "ToFloat", "Identity"),
        *("OpaqueUnaryFn_sqrt", "floor", "ceiling", "IsNonOverlappingAndDenseIndicator"),
    )
)
"""What a dimension's expression may call: functions of sympy, and of torch.utils._sympy.functions."""

ARITHMETIC = (
    *(ast.Expression, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare),
    *(ast.operator, ast.unaryop, ast.boolop, ast.cmpop, ast.Load),
)


@dataclass(frozen=True)
class ModelArchive:
    """A model file and what it is. kind: SCRIPT or EXPORTED."""

    path: Path
    kind: str


def recognize(path: Path) -> ModelArchive:
    """Tell which kind of model a file holds.

    Raises MaceError for a file that holds no graph, with advice, and for a damaged archive.
    """
    try:
        with path.open("rb") as stream:
            start = stream.read(64)
        if start[:2] != b"PK":
            raise _no_archive(path, start)
        with ZipFile(path) as archive:
            kind = _find_kind(path, archive)
            _check_members(path, archive)
            if kind is EXPORTED:
                _check_expressions(path, archive)
    except OSError as error:
        problem = f"cannot be read: {error.strerror or error}"
        raise MaceError(path.name, problem, "correct the path in the deployment file") from error
    # zipfile raises all of these for damaged archives: RuntimeError for encrypted members,
    # NotImplementedError for unknown compressions; RecursionError is json's.
    except (
        *(BadZipFile, zlib.error, EOFError),
        *(ValueError, RuntimeError, NotImplementedError, LookupError, RecursionError),
    ) as error:
        raise damage_error(path, error) from error
    return ModelArchive(path, kind)


def damage_error(path: Path, reason: object) -> MaceError:
    """Return the error for an archive that cannot be right."""
    problem = f"is no PyTorch model, or a damaged one: {short_text(reason)}"
    return MaceError(path.name, problem, "save or download the model again")


def short_text(error: object) -> str:
    """Return the first line of a message, or the class of an exception without one."""
    return (str(error).strip() or type(error).__name__).splitlines()[0][:MAX_ERROR_TEXT]


def _weights_only(path: Path) -> MaceError:
    problem = "holds weights or a pickled module without the graph that computes with them"
    remedy = f"export the model where its Python code is: {SAVE_COMMAND} or {EXPORT_COMMAND}"
    return MaceError(path.name, problem, remedy)


def _no_archive(path: Path, start: bytes) -> MaceError:
    """Return the error for a file that is no zip file."""
    # A pickle starts with the opcode PROTO, 0x80, and the number of its protocol. Plain torch.save wrote
    # pickles until torch 1.6.
    is_pickle = len(start) > 2 and start[0] == 0x80 and start[1] in range(2, 6)
    return _weights_only(path) if is_pickle else damage_error(path, "it is no archive")


def _find_kind(path: Path, archive: ZipFile) -> str:
    # torch puts all members into a folder named after the file; older versions of torch.export.save did not.
    inner = {name.partition("/")[2] for name in archive.namelist()} | set(archive.namelist())
    if any(name.startswith("data/aotinductor/") for name in inner):
        problem = "holds a program that torch has compiled for one machine"
        remedy = "save the exported program itself: torch.export.save(program, 'model.pt2')"
        raise MaceError(path.name, problem, remedy)
    has_program = any(name.startswith("models/") and name.endswith(".json") for name in inner)
    if has_program or "serialized_exported_program.json" in inner:
        return EXPORTED
    if "constants.pkl" in inner and any(name.startswith("code/") for name in inner):
        return SCRIPT
    if "data.pkl" in inner:
        raise _weights_only(path)
    raise damage_error(path, "an archive of something else")


def _check_members(path: Path, archive: ZipFile) -> None:
    """Refuse an archive with members outside or twice, that unpacks to too much, or with a wrong checksum."""
    members, size = archive.infolist(), path.stat().st_size
    names = [info.filename for info in members]
    outside = [n for n in names if n.startswith(("/", "\\")) or ".." in re.split(r"[/\\]", n)]
    if outside:
        raise damage_error(path, f"it names {outside[0]!r}")
    if len(set(names)) != len(names) or len(names) > MAX_MEMBERS:
        raise damage_error(path, "its list of files is wrong")
    # By the sizes that the list states, before testzip unpacks anything.
    if sum(info.file_size for info in members) > max(SMALL_ARCHIVE, MAX_RATIO * size):
        raise damage_error(path, "it states more data than it can hold")
    corrupt = archive.testzip()
    if corrupt:
        raise damage_error(path, f"the checksum of {corrupt!r} is wrong")


def _check_expressions(path: Path, archive: ZipFile) -> None:
    """Refuse a program with expressions of dimensions that are more than arithmetic."""
    # torch.export.load passes these strings to sympy, which evaluates them with Python's eval.
    for info in archive.infolist():
        if not info.filename.endswith(".json"):
            continue
        for text in _find_expressions(_read_json(path, archive, info)):
            if not is_arithmetic(text):
                raise damage_error(path, f"the dimension {text[:80]!r} is no arithmetic")


def is_arithmetic(text: str) -> bool:
    """Tell whether an expression has only numbers, symbols, operators and calls of FUNCTIONS."""
    if len(text) > MAX_EXPRESSION:
        return False
    try:
        parts = list(ast.walk(ast.parse(text.strip(), mode="eval")))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    called = {id(part.func) for part in parts if isinstance(part, ast.Call)}
    return all(_is_plain(part, id(part) in called) for part in parts)


def _is_plain(part: ast.AST, is_called: bool) -> bool:
    """Tell whether a part of an expression can do nothing but compute."""
    match part:
        case ast.Name():
            return part.id in FUNCTIONS if is_called else _is_symbol(part.id)
        case ast.Constant():
            return not isinstance(part.value, str) or _is_symbol(part.value)
        case ast.Call() | ast.keyword() | ast.Tuple():
            return True
        case _:
            return isinstance(part, ARITHMETIC)


def _is_symbol(name: str) -> bool:
    # Names with "__" lead to Python's internals.
    return bool(SYMBOL.fullmatch(name)) and "__" not in name


def _read_json(path: Path, archive: ZipFile, info: ZipInfo) -> Any:
    if info.file_size > MAX_JSON_SIZE:
        raise damage_error(path, f"{info.filename} is too large")
    data = archive.read(info)
    # Counted before parsing: json's scanner recurses in C. Brackets in strings count as well, which no file
    # of torch has many of.
    depth = deepest = 0
    for byte in data:
        depth += (byte in b"{[") - (byte in b"}]")
        deepest = max(deepest, depth)
    if deepest > MAX_JSON_DEPTH:
        raise damage_error(path, f"{info.filename} is {deepest} brackets deep")
    return json.loads(data)


def _find_expressions(value: Any) -> Iterator[str]:
    """Yield the expressions of all symbolic dimensions in a parsed JSON file."""
    pending: list[Any] = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, dict):
            yield from (str(v) for k, v in item.items() if k == "expr_str")
            pending.extend(item.values())
        elif isinstance(item, list):
            pending.extend(item)


def quote_names(names: Sequence[str]) -> str:
    """Return names as a message lists them."""
    return ", ".join(map(repr, names)) or "none"
