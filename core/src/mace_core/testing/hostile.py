"""Names of a hostile model, and the check that none of them becomes code in a generated file.

Every name contains MARK, so that `escapes` finds it where it should not be.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from xml.etree import ElementTree

import numpy as np

from mace_core.api import Content, Stream
from mace_core.graph_builder import Builder
from mace_core.ir import DType, Graph

MARK = "pwn3d"

NAMES = (
    f"image*/ __attribute__((constructor)) static void {MARK}(void) {{ for (;;); }} /*",
    f'a"; int {MARK}; //',
    f"a\nint {MARK};",
    f"a\r\nint {MARK};\r",
    f"a\u2028int {MARK};\x85\x0b\x0c",
    f"??/\nint {MARK};",
    f"*??/\n/ int {MARK}; /??/\n*",
    f"*\\\n/ int {MARK}; /\\\n*",
    f"{MARK}\\",
    f"{MARK}??/",
    f"{MARK}*",
    f"/{MARK}",
    f"{MARK}*/*/*",
    f"'{MARK}",
    f"%n%s%{MARK}",
    f"#define {MARK}\n#error {MARK}",
    f"$(touch {MARK})`touch {MARK}`${{{MARK}}}",
    f"{MARK};>/{MARK};",
    f"../../../{MARK}",
    f"</title><script>{MARK}</script>]]>&{MARK};",
    f'"}}, {{"{MARK}": "',
    f"\x1b[31m\x07{MARK}",
    f"\u202e\u2066{MARK}\u2069",
    f"模型é🎉{MARK}",
    f"{MARK}, {MARK},",
    MARK + "x" * 10_000,
    MARK,
)
"""None is longer than 10 kB, and none contains NUL, which formats store in different ways."""

_COMMENTS_AND_STRINGS = re.compile(
    r"""//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'""", re.DOTALL
)
_C = (".c", ".h", ".S", ".ld")
_XML = (".svg", ".project", ".cproject")
_BARE = ("Makefile", ".mk")


def escapes(files: Mapping[str, Content]) -> list[str]:
    """Return a message for each file in which a hostile name is more than a comment, a string or a label."""
    messages = []
    for path, content in files.items():
        if isinstance(content, Stream) or MARK in path:
            messages += [f"{path}: the name of a file"] if MARK in path else []
            continue
        text = content if isinstance(content, str) else content.decode("latin-1")
        if problem := _problem(PurePosixPath(path), text):
            messages.append(f"{path}: {problem}")
    return messages


def _problem(path: PurePosixPath, text: str) -> str | None:
    kind = path.suffix or path.name
    if kind in _C:
        code = without_comments_and_strings(text)
        return f"code: {code[code.index(MARK) - 40 :][:80]!r}" if MARK in code else None
    if kind in _XML:
        return _problem_of_xml(text)
    if kind == ".json":
        json.loads(text)
        return None
    if kind in _BARE:
        return "a name in it" if MARK in text else None
    hidden = next((c for c in text if not c.isprintable() and c != "\n"), None)
    return f"an unprintable character: {hidden!r}" if hidden else None


def _problem_of_xml(text: str) -> str | None:
    for element in ElementTree.fromstring(text).iter():  # noqa: S314  # generated here, not from outside
        if MARK in element.tag or any(MARK in key for key in element.attrib):
            return f"an element {element.tag!r}"
    return None


def without_comments_and_strings(text: str) -> str:
    """Return C text without comments and literals, as a compiler that knows trigraphs reads it.

    Lines that end with a backslash are merged first, because the merged line may begin or end a comment.
    """
    merged = re.sub(r"\\[ \t]*\r?\n", "", text.replace("??/", "\\"))
    return _COMMENTS_AND_STRINGS.sub(" ", merged)


def branches(names: Sequence[str] = NAMES) -> Graph:
    """Return a graph with a branch for each name, used for its input, constant, node and output."""
    builder = Builder("names")
    outputs: list[str] = []
    for name in names:
        x = builder.input(f"{name} in", DType.F32, (1, 4))
        w = builder.weight(f"{name} weight", np.ones((1, 4), np.float32))
        outputs += builder.add("Add", [builder.one("Relu", [x], outputs=[name]), w], outputs=[f"{name} out"])
    return builder.finish(outputs)


def relus(names: Sequence[str] = NAMES) -> Graph:
    """Return a graph of two Relu nodes for each name, for targets that know no other op."""
    builder = Builder("names")
    outputs: list[str] = []
    for name in names:
        x = builder.input(f"{name} in", DType.F32, (1, 4))
        outputs += builder.add("Relu", [builder.one("Relu", [x], outputs=[name])], outputs=[f"{name} out"])
    return builder.finish(outputs)


def chain(names: Sequence[str] = NAMES) -> Graph:
    """Return a graph with a convolution for each name, one after another."""
    builder = Builder("names")
    value = builder.input(f"{names[0]} in", DType.F32, (1, 8, 8, 4))
    windows = {"strides": (1, 1), "pads_before": (1, 1), "pads_after": (1, 1), "dilations": (1, 1)}
    rng = np.random.default_rng(0)
    for name in names:
        weights = builder.weight(f"{name} weight", rng.normal(0, 0.2, (4, 3, 3, 4)).astype(np.float32))
        (value,) = builder.add("Conv", [value, weights], {**windows, "low": 0.0}, outputs=[name])
    return builder.finish([value])
