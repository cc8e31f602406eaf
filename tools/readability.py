"""Count how readable a checkout of the project is: `uv run python tools/readability.py [FOLDER]`.

It reads shipped Python files only, without tests. To compare with an earlier commit:

    git worktree add ../before COMMIT && uv run python tools/readability.py ../before

--faults PATH prints every place below a path that breaks a rule of `tools/language.py`.
"""

from __future__ import annotations

import argparse
import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import language
from language import Source, check, distribution, source_files

ROOT = Path(__file__).parents[1]
DIRECTIVE = re.compile(r"(noqa|type:|pragma|pylint|mypy|fmt|ruff)")
MIN_WORDS = 4
LOOSE = re.compile(r"\b(?:dict|Mapping|MutableMapping|defaultdict)\[[^\[\]]*,\s*(?:Any|object)\]")
ANY_ARGUMENTS = ("Any", "object")


@dataclass(frozen=True)
class Figures:
    """What a set of files shows: counts, and sums from which means are made."""

    files: int
    lines: int
    code_lines: int
    counts: Mapping[str, int]
    name_letters: int
    names: int

    def per_thousand(self, name: str) -> float:
        """Return how often something occurs in 1,000 lines of code."""
        return 1000 * self.counts[name] / max(self.code_lines, 1)

    @property
    def mean_name(self) -> float:
        """Return the mean length of the names of local variables and parameters."""
        return self.name_letters / max(self.names, 1)


def measure(sources: Iterable[Source]) -> Figures:
    """Count everything that one file after another shows."""
    counts: Counter[str] = Counter()
    files = lines = code_lines = letters = names = 0
    for source in sources:
        files += 1
        lines += source.text.count("\n")
        code_lines += _code_lines(source)
        found = list(local_names(source))
        names += len(found)
        letters += sum(map(len, found))
        counts.update(_count(source))
    return Figures(files, lines, code_lines, counts, letters, names)


def _code_lines(source: Source) -> int:
    """Count the lines that are neither empty nor only a comment."""
    stripped = (line.strip() for line in source.text.splitlines())
    return sum(bool(line) and not line.startswith("#") for line in stripped)


def _count(source: Source) -> Counter[str]:
    nodes = source.nodes
    counts = Counter(rule for rule, find in language.RULES.items() for _ in find(source))
    counts["ternaries"] = sum(isinstance(node, ast.IfExp) for node in nodes)
    counts["comprehensions"] = sum(isinstance(node, language.COMPREHENSIONS) for node in nodes)
    counts["reasons"] = sum(is_reason(text) for _, text in language.comments(source.text))
    counts["loose dictionaries"] = sum(len(LOOSE.findall(text)) for text in annotation_texts(nodes))
    counts["**arguments of Any"] = sum(_takes_anything(node) for node in nodes)
    counts["assert isinstance"] = sum(
        isinstance(node, ast.Assert) and "isinstance(" in ast.unparse(node.test) for node in nodes
    )
    return counts


def is_reason(comment: str) -> bool:
    """Tell whether a comment may give a reason: a line of some words that is no directive to a tool."""
    return len(comment.split()) >= MIN_WORDS and not DIRECTIVE.match(comment)


def annotation_texts(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Yield the text of every annotation."""
    for node in nodes:
        annotation = getattr(node, "annotation", None) or getattr(node, "returns", None)
        if isinstance(annotation, ast.expr):
            yield ast.unparse(annotation)


def _takes_anything(node: ast.AST) -> bool:
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or node.args.kwarg is None:
        return False
    annotation = node.args.kwarg.annotation
    return annotation is not None and ast.unparse(annotation) in ANY_ARGUMENTS


def local_names(source: Source) -> Iterator[str]:
    """Yield each name of a parameter or local variable, once for each function that has it."""
    for function in source.nodes:
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        names = {node.arg for node in ast.walk(function.args) if isinstance(node, ast.arg)}
        for node in ast.walk(function):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names.add(node.id)
        yield from names - {"self", "cls", "_"}


def duplicate_classes(sources: Iterable[Source]) -> dict[str, list[Path]]:
    """Return the names of public classes that several files define, with the files."""
    files: defaultdict[str, list[Path]] = defaultdict(list)
    for source in sources:
        for node in source.nodes:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                files[node.name].append(source.file)
    return {name: found for name, found in sorted(files.items()) if len(found) > 1}


def read_imports(sources: Iterable[Source]) -> dict[str, set[str]]:
    """Return which of these modules each of them imports, also in functions and for types alone."""
    modules = {_module(source.file): source for source in sources}
    return {name: _imports(source, modules) - {name} for name, source in modules.items()}


def import_cycles(edges: Mapping[str, set[str]]) -> list[list[str]]:
    """Return the groups of modules that import each other in a circle.  edges: see `read_imports`."""
    order: list[str] = []
    seen: set[str] = set()
    for name in edges:
        _visit(name, edges, seen, order)
    reverse: dict[str, set[str]] = {name: set() for name in edges}
    for name, targets in edges.items():
        for target in targets:
            reverse[target].add(name)
    seen.clear()
    groups: list[list[str]] = []
    for name in reversed(order):
        group: list[str] = []
        _visit(name, reverse, seen, group)
        if len(group) > 1:
            groups.append(sorted(group))
    return groups


def _visit(start: str, edges: Mapping[str, set[str]], seen: set[str], order: list[str]) -> None:
    """Append what can be reached, each module after those that it reaches; without recursion, for long chains."""
    stack = [(start, False)]
    while stack:
        name, is_done = stack.pop()
        if is_done:
            order.append(name)
        elif name not in seen:
            seen.add(name)
            stack.append((name, True))
            stack += [(target, False) for target in sorted(edges[name]) if target not in seen]


def _module(file: Path) -> str:
    parts = file.with_suffix("").parts
    inner = parts[parts.index("src") + 1 :]
    return ".".join(inner[:-1] if inner[-1] == "__init__" else inner)


def _imports(source: Source, known: Mapping[str, Source]) -> set[str]:
    """Return the modules that a file imports; `from package import module` imports the module."""
    found: set[str] = set()
    for node in source.nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                found.add(inner if inner in known else node.module)
    return found & known.keys()


def read_sources(root: Path) -> list[Source]:
    """Read all shipped Python files of a checkout."""
    return [Source.read(file) for file in source_files(root)]


def report(root: Path) -> str:
    """Return the counts of a checkout as text."""
    sources = read_sources(root)
    by_distribution: defaultdict[str, list[Source]] = defaultdict(list)
    for source in sources:
        by_distribution[distribution(source.file, root)].append(source)
    lines = [
        f"{'':22}{'files':>6}{'lines':>8}{'ternaries':>11}{'comprehensions':>16}{'reasons':>9}{'name':>6}",
        f"{'':22}{'':6}{'':8}{'per 1,000 lines of code':>36}{'length':>6}",
    ]
    for name, members in sorted(by_distribution.items()):
        lines.append(_row(name, measure(members)))
    total = measure(sources)
    lines += [_row("all", total), ""]
    for name in ("loose dictionaries", "**arguments of Any", "assert isinstance", *language.RULES):
        lines.append(f"{name:24}{total.counts[name]:6}")
    duplicates = duplicate_classes(sources)
    cycles = import_cycles(read_imports(sources))
    lines.append(f"{'duplicate class names':24}{len(duplicates):6}")
    lines.append(f"{'import cycles':24}{len(cycles):6}   of {sum(map(len, cycles))} modules")
    lines += [f"  {' '.join(cycle)}" for cycle in cycles]
    return "\n".join(lines)


def _row(name: str, figures: Figures) -> str:
    ternaries, comprehensions, reasons = (
        figures.per_thousand(kind) for kind in ("ternaries", "comprehensions", "reasons")
    )
    return (
        f"{name:22}{figures.files:6}{figures.lines:8}{ternaries:11.1f}{comprehensions:16.1f}"
        f"{reasons:9.1f}{figures.mean_name:6.1f}"
    )


def main() -> None:
    """Print what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT, help="a checkout; this one by default")
    parser.add_argument("--faults", type=Path, help="print every place below this path that breaks a rule")
    options = parser.parse_args()
    if options.faults:
        below = options.faults.resolve()
        for file in source_files(ROOT):
            if file.is_relative_to(below):
                print(*check(Source.read(file)), sep="\n")
    else:
        print(report(options.folder))


if __name__ == "__main__":
    main()
