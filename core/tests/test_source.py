"""The tree of a YAML file: lines, quotes, anchors, merges, variables, and what is refused with its line."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from mace_core.deployment import source
from mace_core.deployment.faults import Faults
from mace_core.deployment.source import Written, read_source
from mace_core.errors import MaceError


def read(folder: Path, content: str | bytes) -> tuple[Written, list[str]]:
    """The tree of a file, and the faults noted, without the file's own path."""
    path = folder / "f.yml"
    path.write_bytes(content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content)
    faults = Faults(Path("f"))
    return read_source(path, faults), faults.messages()


def flat(value: Written) -> Any:
    """A tree as plain data: [line, content], with a star at scalars in quotes."""
    if isinstance(value.content, str):
        return [value.line, value.content + "*" * value.quoted]
    assert not value.quoted
    if isinstance(value.content, Mapping):
        return [value.line, {key: flat(inner) for key, inner in value.content.items()}]
    return [value.line, [flat(inner) for inner in value.content]]


TREES = {
    "scalars keep their text": ("a: 1\nb: 'no'\nc: no\n", {"a": [1, "1"], "b": [2, "no*"], "c": [3, "no"]}),
    "text tags": ("a: !!str 1\nb: ! 2\n", {"a": [1, "1*"], "b": [2, "2"]}),
    "a value has its key's line": ("a:\n  1\nb:\n  - 2\n", {"a": [1, "1"], "b": [3, [[4, "2"]]]}),
    "nested": ("a:\n  b:\n    c: [1, 2]\n", {"a": [1, {"b": [2, {"c": [3, [[3, "1"], [3, "2"]]]}]}]}),
    "empty": ("a: []\nb: {}\nc:\n", {"a": [1, []], "b": [2, {}], "c": [3, ""]}),
    "an alias has its own line": (
        "a: &x\n  b: 1\nc:\n  - *x\nd: &y 2\ne: *y\n",
        {"a": [1, {"b": [2, "1"]}], "c": [3, [[4, {"b": [2, "1"]}]]], "d": [5, "2"], "e": [6, "2"]},
    ),
    "own keys before merged ones, the first merge before the next": (
        "a: &x {p: 1, q: 2}\nb: &y {q: 3, r: 4, s: 5}\nc:\n  <<: [*x, *y]\n  s: 6\n",
        {
            "a": [1, {"p": [1, "1"], "q": [1, "2"]}],
            "b": [2, {"q": [2, "3"], "r": [2, "4"], "s": [2, "5"]}],
            "c": [3, {"p": [1, "1"], "q": [1, "2"], "r": [2, "4"], "s": [5, "6"]}],
        },
    ),
    "a merge in quotes is a key": ("'<<': 1\n", {"<<": [1, "1"]}),
    "a mark of the order of bytes": ("\ufeffa: 1\n", {"a": [1, "1"]}),
}


@pytest.mark.parametrize(("text", "tree"), TREES.values(), ids=TREES)
def test_trees(tmp_path: Path, text: str, tree: Any) -> None:
    root, faults = read(tmp_path, text)
    assert (flat(root), faults) == ([1, tree], [])


NOTED = {
    "duplicate": ("a: 1\nb: 2\n\na: 3\n", {"a": [1, "1"], "b": [2, "2"]}, "f:4: a: duplicate key, first in line 1; keep one of them"),
    "key": ("a: 1\n? [b]\n: 2\n", {"a": [1, "1"]}, "f:2: a key is a list or a mapping; use a word as the key"),
    "merge": (
        "a: 1\n<<: 2\n", {"a": [1, "1"]}, "f:2: <<: merges something that is no mapping; give it an alias of a mapping"
    ),
    "merged list": (
        "a: &x {b: 1}\n<<: [*x, c]\n",
        {"b": [1, "1"], "a": [1, {"b": [1, "1"]}]},
        "f:2: <<: merges something that is no mapping; give it an alias of a mapping",
    ),
    "unset": (
        "a: 1\nb: x${MACE_NO}y\n",
        {"a": [1, "1"], "b": [2, "xy"]},
        "f:2: ${MACE_NO}: the environment variable is not set; set it: export MACE_NO=...",
    ),
    "URL": (
        "a: https://h/${MACE_SET}\n",
        {"a": [1, "https://h/"]},
        "f:1: https://h/${MACE_SET}: a URL takes no environment variables, which could be secrets; "
        "write the URL out, or download the file by hand and give its path",
    ),
    "URL by a variable": (
        "a: ${MACE_URL}${MACE_SET}\n",
        {"a": [1, ""]},
        "f:1: ${MACE_URL}${MACE_SET}: a URL takes no environment variables, which could be secrets; "
        "write the URL out, or download the file by hand and give its path",
    ),
    "URL in capitals": (
        "a: ' HTTP:${MACE_SET}'\n",
        {"a": [1, " HTTP:*"]},
        "f:1:  HTTP:${MACE_SET}: a URL takes no environment variables, which could be secrets; "
        "write the URL out, or download the file by hand and give its path",
    ),
    "character": ('a: "x\\by\\x0c"\n', {"a": [1, "xy*"]}, "f:1: character '\\x08' is not allowed; remove it"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "tree", "fault"), NOTED.values(), ids=NOTED)
def test_faults_that_let_reading_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, tree: Any, fault: str
) -> None:
    monkeypatch.setenv("MACE_SET", "secret")
    monkeypatch.setenv("MACE_URL", "ftp://h/")
    monkeypatch.delenv("MACE_NO", raising=False)
    root, faults = read(tmp_path, text)
    assert (flat(root), faults) == ([1, tree], [fault])


def test_variables_that_are_set_are_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MACE_SET", "s")
    monkeypatch.setenv("MACE_EMPTY", "")
    root, faults = read(tmp_path, "a: ${MACE_SET}/${MACE_SET}${MACE_EMPTY}.\nb: $MACE_SET ${} https://h/\n")
    assert (flat(root), faults) == ([1, {"a": [1, "s/s."], "b": [2, "$MACE_SET ${} https://h/"]}], [])


REFUSED = {
    "empty": ("", "f:1: the file is empty"),
    "only a comment": ("# nothing\n", "f:1: the file is empty"),
    "second document": ("a: 1\n---\nb: 2\n", "f:3: a second document begins"),
    "tag of a scalar": ("a: 1\nb: !!int 2\n", "f:2: tag 'tag:yaml.org,2002:int' is not allowed"),
    "tag of a list": ("a: 1\nb: !x [2]\n", "f:2: tag '!x' is not allowed"),
    "alias": ("a: 1\nb: *x\n", "f:2: alias *x has no anchor above; write &x before the value it repeats"),
    "syntax": ("a: 1\nb: [1\n", "f:3: not valid YAML: "),
    "character": ("a: 1\nb: \x01\n", "f:2: not valid YAML: character 1 is not allowed"),
    "bytes": (b"a: 1\nb: 2\nc: \xff\n", "f:3: the file is not UTF-8"),
    "character after an empty line": ("\n\x01", "f:2: not valid YAML: character 1 is not allowed"),
    "bytes after an empty line": (b"\n\xff", "f:2: the file is not UTF-8"),
    "lists without an end": ("[" * 17, "f:1: nested deeper than 16 levels"),
    "escape": ('a: "\\UFFFFFFFF"\n', "f:1: not valid YAML: "),
}


@pytest.mark.parametrize(("text", "said"), REFUSED.values(), ids=REFUSED)
def test_files_that_end_reading(tmp_path: Path, text: str | bytes, said: str) -> None:
    with pytest.raises(MaceError) as error:
        read(tmp_path, text)
    assert str(error.value).startswith(said)


@pytest.mark.parametrize(
    ("inside", "outside"),
    [
        (f"{'[' * 4}{']' * 4}", f"{'[' * 5}{']' * 5}"),
        ("[[[1]]]", "[[[[1]]]]"),
        ("{a: {b: {c: 1}}}", "{a: {b: {c: {d: 1}}}}"),
        ("a: &x [1]\nb: [*x]", "a: &x [1]\nb: [[*x]]"),
        ("a: &x [[1], 2]\nb: *x", "a: &x [[1], 2]\nb: [*x]"),
        ("a: &x [2, [1]]\nb: *x", "a: &x [2, [1]]\nb: [*x]"),
    ],
    ids=["lists", "scalar", "mappings", "alias", "first branch", "last branch"],
)
def test_depths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inside: str, outside: str) -> None:
    """The fourth level is the last one here: a scalar is a level of its own."""
    monkeypatch.setattr(source, "DEPTH", 4)
    read(tmp_path, inside)
    with pytest.raises(MaceError, match="nested deeper than 4 levels; write it flat"):
        read(tmp_path, outside)


@pytest.mark.parametrize(
    ("inside", "outside"),
    [
        ("[1, 2, 3, 4, 5, 6, 7, 8, 9]", "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]"),
        ("{a: 1, b: 2, c: 3, d: 4}", "{a: 1, b: 2, c: 3, d: 4, e: 5}"),
        ("[&x [1, 2], *x, *x]", "[&x [1, 2], *x, *x, 4]"),
    ],
    ids=["list", "mapping", "aliases"],
)
def test_numbers_of_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inside: str, outside: str
) -> None:
    """A list counts as a value beside its items, a mapping's keys as well."""
    monkeypatch.setattr(source, "VALUES", 10)
    read(tmp_path, inside)
    with pytest.raises(MaceError, match="f:1: more than 10 values"):
        read(tmp_path, outside)


def test_the_limits_are_those_that_messages_tell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (source.LARGEST, source.VALUES, source.DEPTH) == (256 * 1024, 20_000, 16)
    monkeypatch.setattr(source, "LARGEST", 2048)
    read(tmp_path, "a: 1".ljust(2048))
    with pytest.raises(MaceError, match=r"f\.yml: is larger than 2 KiB; split it"):
        read(tmp_path, "a: 1".ljust(2049))


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    for path, reason in (
        (tmp_path, "Is a directory"),
        (tmp_path / "no", "No such file"),
        (Path("a\0b"), "null byte"),
    ):
        with pytest.raises(MaceError, match=f"cannot be read: .*{reason}.*; give the path of a YAML file"):
            read_source(path, Faults(path))
