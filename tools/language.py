"""The rules of names, sentences and density, as checks of one Python file.

`tests/test_language.py` holds the project to them; `tools/readability.py` counts what they find. The words
are those that readers of the code stumbled over most often, not all that could be better.
"""

from __future__ import annotations

import ast
import gc
import io
import re
import tokenize
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

LINE_LENGTH = 110

RIDDLES = {
    "accuse": "report",
    "again": "the thing that is repeated",
    "alike": "is_equal, same_shapes ...",
    "alone": "is_single",
    "along": "axis, by_axis",
    "asked": "options, requested",
    "at": "offset, index, position",
    "beside": "the thing that lies there",
    "bear": "has",
    "either": "the two things",
    "ends": "inputs and outputs, bounds",
    "feed": "inputs, bind_inputs",
    "found": "match, candidate, the thing itself",
    "fronts": "input_ops",
    "given": "value, the thing itself",
    "greatest": "max",
    "harms": "conflicts, breaks",
    "heard": "check_started",
    "held": "value, values",
    "how": "options, mode",
    "joined": "merge, joint, the thing itself",
    "kept": "keep, propagated, cached",
    "least": "min",
    "made": "outputs, the thing itself",
    "maker": "vendor, factory",
    "makers": "producers, factories",
    "most": "max",
    "new": "builder, copy, the thing itself",
    "now": "current, renamed, the thing itself",
    "own": "the thing itself",
    "over": "the axis, the range",
    "rubbish": "invalid_file",
    "said": "message",
    "shown": "visible, printed, the thing itself",
    "spoilt": "corrupt",
    "stored": "store, quantized, the thing itself",
    "texts": "strings",
    "ties": "constraints",
    "to": "lowering, destination",
    "told": "report, describe, message",
    "trifle": "tolerance",
    "truth": "expected, boolean",
    "truths": "booleans",
    "turned": "transpose, rotate, the thing itself",
    "wanted": "expected, required",
    "what": "the thing itself, subject",
    "whole": "the thing itself, is_complete",
    "work": "the thing itself",
}
"""Identifiers that explain nothing -> what such a name should say in their place."""

VERBS = {"bleed", "embed", "exceed", "feed", "need", "proceed", "seed", "shed", "speed", "succeed"}
IRREGULAR = {
    *("begun", "bent", "bound", "broken", "brought", "built", "chosen", "cut", "drawn", "driven", "found"),
    *("given", "grown", "heard", "held", "kept", "known", "left", "lost", "made", "met", "retold", "said"),
    *("seen", "sent", "shown", "spoilt", "sunk", "taken", "thrown", "told", "undone", "unread", "written"),
}
PREPOSITIONS = {
    *("about", "above", "after", "ahead", "along", "apart", "at", "before", "behind", "below", "beside"),
    *("between", "by", "for", "inside", "off", "on", "over", "through", "to", "together", "under"),
    *("with", "within", "without"),
}

WORD_START = r"\b"
PHRASES = {
    r"\bthe makers?\b": "the vendor",
    r"\bwhole numbers?\b": "integer",
    r"\btexts\b": "strings",
    r"\btruths?\b": "booleans, the expected values",
    r"\bgreatest\b": "largest, maximum",
    r"\bended with \d": "exited with status",
    r"\b(?:is|are|was|were|been) told\b": "is reported",
    r"\bin (?:its|their|whose) stead\b": "instead",
    r"\b(?:choose of|say (?:one )?of)\b": "choose one of, supported:",
    r"\bsits? behind\b": "supports",
    r"\bhad better\b": "should",
    r"\banew\b": "again",
    r"\blest\b": "so that ... not",
    r"\bwithout a word\b": "silently",
    r"\bon its way\b": "say where it is",
    r"\bheeds?\b": "honors, reads",
    r"\bhow alike\b": "similarity",
    r"\bof it\b[;,.]? if it be\b": "if it is",
    r"\bbears?\b(?! no)": "has",
    r"\bis there a second time\b": "duplicate",
    r"\bwhat is (?:said|asked|told)\b": "the message, the request",
    r"\brubbish\b": "invalid data",
    r"\bsenseless\b": "invalid",
}
"""Regular expressions of prose that readers stumble over -> what to write."""

ANY_PHRASE = re.compile(rf"\b(?:{'|'.join(pattern.removeprefix(WORD_START) for pattern in PHRASES)})")
"""Any of them in lower-case text. The start of a word is searched for once, not once for each phrase."""

BRITISH = re.compile(
    r"(?:quantis|normalis|optimis|recognis|initialis|serialis|organis|minimis|maximis|specialis|summaris"
    r"|generalis|utilis|parallelis|vectoris|randomis|customis|prioritis|capitalis)(?:e|ing|ation)"
    r"|synthesis(?:e|ing)|realis(?:e|ing)|colour|behaviour|neighbour|favour|centre|grey(?!hound)|modelled|modelling"
    r"|labelled|labelling|travell|analyse(?!s)|artefact|licence|fulfil\b|whilst",
    # Texts are searched in lower case, which is several times as fast as to ignore the case.
)


@dataclass(frozen=True)
class Fault:
    """One place where a file breaks a rule."""

    rule: str
    file: Path
    line: int
    text: str

    def __str__(self) -> str:
        """Return it as compilers print an error."""
        return f"{self.file}:{self.line}: {self.rule}: {self.text}"


@dataclass(frozen=True)
class Source:
    """A Python file, read and parsed once for all rules."""

    file: Path
    text: str
    tree: ast.Module
    nodes: tuple[ast.AST, ...]

    @classmethod
    def read(cls, file: Path) -> Source:
        """Read and parse a file."""
        text = file.read_text(encoding="utf-8")
        # A tree has no garbage, and the collector would go through the trees of all files for each new one.
        gc.disable()
        try:
            tree = ast.parse(text)
            return cls(file, text, tree, tuple(ast.walk(tree)))
        finally:
            gc.enable()


Findings = Iterator[tuple[int, str]]


def find_riddles(source: Source) -> Findings:
    """Find names that explain nothing.

    Attributes of operators keep the names of ONNX, such as Cast's `to`. Names with two underscores on both sides
    are Python's.
    """
    fields: set[int] = set()
    for node in source.nodes:
        if isinstance(node, ast.ClassDef) and node.name.endswith("Attributes"):
            fields |= {field.lineno for field in node.body if isinstance(field, ast.AnnAssign)}
    for line, name in defined_names(source):
        plain = name.strip("_")
        is_python = name.startswith("__") and name.endswith("__")
        if plain in RIDDLES and line not in fields and not is_python:
            yield line, f"{name!r} explains nothing; better: {RIDDLES[plain]}"


def find_participles(source: Source) -> Findings:
    """Find functions named by one participle or preposition; a property may be an adjective."""
    for node in source.nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not _is_property(node):
            name = node.name.strip("_")
            is_participle = name in IRREGULAR or (name.endswith("ed") and "_" not in name)
            if (is_participle and name not in VERBS) or name in PREPOSITIONS:
                yield node.lineno, f"function {node.name!r}: name it by an imperative verb"


def _is_property(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(ast.unparse(decorator).endswith("property") for decorator in function.decorator_list)


def defined_names(source: Source) -> Iterator[tuple[int, str]]:
    """Yield the line and the name of everything that a file gives a name: functions, classes, variables."""
    for node in source.nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id if isinstance(node, ast.Name) else node.attr
        elif isinstance(node, ast.alias) and node.asname:
            yield node.lineno, node.asname


def find_phrases(source: Source) -> Findings:
    """Find sentences of another century in docstrings, messages and comments."""
    # Few files have one at all, and to find the comments of a file takes longer than to search it.
    if not ANY_PHRASE.search(source.text.lower()):
        return
    for line, text in prose(source):
        for pattern, better in PHRASES.items():
            for match in re.finditer(pattern, text, re.IGNORECASE):
                yield line, f"{match.group()!r}; better: {better}"


def prose(source: Source) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of every comment and of every string of more than one word."""
    yield from comments(source.text)
    for node in source.nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.lineno, node.value


def comments(text: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of every comment."""
    if "#" not in text:
        return
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string.lstrip("# ")


def find_british_spelling(source: Source) -> Findings:
    """Find British spelling anywhere in a file."""
    lowered = source.text.lower()
    if not BRITISH.search(lowered):
        return
    for number, line in enumerate(lowered.splitlines(), 1):
        for match in BRITISH.finditer(line):
            yield number, f"{match.group()!r} is not spelled as in the US"


def find_nested_conditionals(source: Source) -> Findings:
    """Find conditional expressions inside of conditional expressions."""
    for node in source.nodes:
        if not isinstance(node, ast.IfExp):
            continue
        if sum(isinstance(child, ast.IfExp) for child in ast.walk(node)) > 1:
            yield node.lineno, "a conditional expression inside of another"


COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def find_dense_comprehensions(source: Source) -> Findings:
    """Find comprehensions of several loops or conditions, and assignments inside of one."""
    for node in source.nodes:
        if not isinstance(node, COMPREHENSIONS):
            continue
        if len(node.generators) > 1:
            yield node.lineno, "a comprehension with several `for`"
        if sum(len(generator.ifs) for generator in node.generators) > 1:
            yield node.lineno, "a comprehension with several `if`"
        if any(isinstance(child, ast.NamedExpr) for child in ast.walk(node)):
            yield node.lineno, "an assignment inside of a comprehension"


def find_long_lines(source: Source) -> Findings:
    """Find lines that are too long."""
    for number, line in enumerate(source.text.splitlines(), 1):
        if len(line) > LINE_LENGTH:
            yield number, f"{len(line)} characters"


RULES: dict[str, Callable[[Source], Findings]] = {
    "riddles": find_riddles,
    "participles": find_participles,
    "phrases": find_phrases,
    "spelling": find_british_spelling,
    "nested-conditionals": find_nested_conditionals,
    "dense-comprehensions": find_dense_comprehensions,
    "long-lines": find_long_lines,
}
"""Name of a rule -> what finds the places where a file breaks it."""


def check(source: Source) -> Iterator[Fault]:
    """Yield every place where a file breaks a rule."""
    for rule, find in RULES.items():
        for line, text in find(source):
            yield Fault(rule, source.file, line, text)


def source_files(root: Path) -> list[Path]:
    """Return the Python files that are shipped, of a checkout: what tests and benchmarks are not."""
    kinds = ("core", "frontends/*", "targets/*", "toolchains/*", "plugins/*")
    return sorted(file for kind in kinds for file in root.glob(f"{kind}/src/**/*.py"))


def distribution(file: Path, root: Path) -> str:
    """Return the folder of the distribution that a file belongs to, such as "targets/cpu"."""
    parts = file.relative_to(root).parts
    return "/".join(parts[: parts.index("src")])
