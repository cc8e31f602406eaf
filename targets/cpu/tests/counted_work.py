"""Counts what kernels do: passes of loops, and conditions that hold or do not, for each call of a program.

Many faults of a kernel change no result: a loop that goes once too often over what is there already, a fast way that
is never taken, a share of work that two tasks do. They change these counts, which no compiler and no machine decides.
"""

from __future__ import annotations

import ctypes as c
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from mace_core.api import Content, GeneratedFiles

MAX_CALLS = 4096

COUNTERS = """
typedef struct work_counts {
  int64_t passes, held, failed, tasks;
} work_counts;
static work_counts work_now;
work_counts work_log[%d];
int32_t work_calls;
#define WORK_PASS(...) ((__VA_ARGS__) ? (++work_now.passes, 1) : 0)
#define WORK_ASK(...) ((__VA_ARGS__) ? (++work_now.held, 1) : (++work_now.failed, 0))
static void work_note(void) {
  work_log[work_calls++] = work_now;
  work_now = (work_counts){0};
}
"""

COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
SHARING = " int32_t tasks) {\n"
"""How the definition of `mace_parallel` ends, the only function through which kernels share their work."""

KEYWORD = re.compile(r"(?<!#)\b(for|while|if) \(")
ENTRY = re.compile(r"^    \.(\w+) = (\w+),$", re.MULTILINE)
TABLE = re.compile(r"^const (\w+)_kernels \w+ = \{$", re.MULTILINE)
INCLUDES = re.compile(r'#include "\w+_kernels\.h"\n')


class Counts(c.Structure):
    """What one call did."""

    _fields_ = tuple((name, c.c_int64) for name in ("passes", "held", "failed", "tasks"))


@dataclass(frozen=True)
class Work:
    """What the calls of one kernel did: passes of loops, conditions that held and that did not, tasks."""

    passes: int = 0
    held: int = 0
    failed: int = 0
    tasks: int = 0

    def __add__(self, other: Work) -> Work:
        return Work(
            self.passes + other.passes,
            self.held + other.held,
            self.failed + other.failed,
            self.tasks + other.tasks,
        )

    def __str__(self) -> str:
        tasks = f" in {self.tasks} tasks" if self.tasks > 1 else ""
        return f"{self.passes} passes, {self.held} of {self.held + self.failed} conditions{tasks}"


def count_work(sources: GeneratedFiles) -> GeneratedFiles:
    """Return the sources of a library of one level whose kernels count what they do."""
    names = [name for name in sources.files if re.search(r"_kernels_\w+\.c$", name)]
    assert len(names) == 1, "the library has kernels of one level"
    files: dict[str, Content] = dict(sources.files)
    text = files[names[0]]
    assert isinstance(text, str)
    files[names[0]] = _add_counters(COMMENT.sub("", text))
    return replace(sources, files=files)


def read_work(library: Path) -> list[Work]:
    """Return what each call did since the last time."""
    loaded = c.CDLL(str(library))
    calls = c.c_int32.in_dll(loaded, "work_calls")
    log = (Counts * MAX_CALLS).in_dll(loaded, "work_log")
    done = [Work(each.passes, each.held, each.failed, each.tasks) for each in log[: calls.value]]
    calls.value = 0
    return done


def _add_counters(text: str) -> str:
    """Return a unit of kernels in which each condition counts, and the kernels of the table note their counts."""
    start = INCLUDES.search(text)
    table = TABLE.search(text)
    assert start
    assert table
    head, body, entries = text[: start.end()], text[start.end() : table.start()], text[table.start() :]
    wrappers = [
        f"static void {name}_counted(const mace_workers *run, const {name}_args *a, void *const *t) {{\n"
        f"  {name}(run, a, t);\n  work_note();\n}}\n"
        for name, _ in ENTRY.findall(entries)
    ]
    assert body.count(SHARING) == 1
    counted = "".join(_count_conditions(body)).replace(SHARING, f"{SHARING}  work_now.tasks += tasks;\n")
    entries = ENTRY.sub(r"    .\1 = \2_counted,", entries)
    return f"{head}{COUNTERS % MAX_CALLS}{counted}{''.join(wrappers)}{entries}"


def _count_conditions(text: str) -> Iterator[str]:
    """Yield the pieces of C without comments, with counters around the conditions of loops and of `if`."""
    position = 0
    while keyword := KEYWORD.search(text, position):
        start, end = keyword.end(), _closing(text, keyword.end())
        yield text[position:start]
        inside = "".join(_count_conditions(text[start:end]))
        if keyword[1] == "for":
            first, condition, step = _split_clauses(inside)
            yield f"{first}; WORK_PASS({condition.strip() or 1});{step}"
        else:
            yield f"{'WORK_PASS' if keyword[1] == 'while' else 'WORK_ASK'}({inside})"
        position = end
    yield text[position:]


def _closing(text: str, start: int) -> int:
    """Return where the parenthesis closes that opens before `start`."""
    depth = 1
    for position in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[position], 0)
        if not depth:
            return position
    raise AssertionError(f"no parenthesis closes {text[start - 20 : start + 60]!r}")


def _split_clauses(text: str) -> list[str]:
    """Return the three clauses of a `for`."""
    clauses = text.split(";")
    assert len(clauses) == 3, f"a `for` has three clauses: {text!r}"
    return clauses
