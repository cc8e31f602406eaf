"""Marked text: what it is made of stays inside its comment, string or name."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest

from mace_core.emit.text import (
    CComment,
    CDefine,
    CIdentifier,
    CPrefix,
    CString,
    Line,
    Word,
    XmlText,
    quote_name,
    shorten,
)
from mace_core.errors import MaceError
from mace_core.testing.requirements import require

HOSTILE = (
    "*/",
    "/*",
    "//",
    "*",
    "/",
    "**//**/",
    "a*/ int pwned; /*",
    "*\\\n/",
    "??/",
    "??/\n*/",
    "*??/\n/",
    "\\",
    "a\\",
    '"',
    '\\"',
    "a\nb",
    "a\r\nb",
    "a\x0bb\x0cc\x85d\u2028e\u2029f",
    "\x00",
    "a\x00b",
    "\x1b[31m",
    "\u202e\u2066evil\u2069",
    "é模型🎉",
    "\ud800",
    "??=??'??<??>??!??-??(??)",
    "\\u0022",
    "12345\x019",
    "%s%n",
    "x" * 10_000,
    "*/" * 5_000,
    "?" * 5_000,
    "",
)


@pytest.mark.parametrize("flags", [("-std=c99", "-trigraphs"), ("-std=gnu11",)])
def test_comments_and_strings_hold_whatever_is_in_them(flags: tuple[str, ...], tmp_path: Path) -> None:
    require(None if shutil.which("gcc") else "gcc is not installed: apt-get install gcc")
    lines = [f"{CComment(t)}\n{CComment('first', t, 'last')}\n" for t in HOSTILE]
    strings = [str(CString(t)) for t in HOSTILE]
    source = tmp_path / "a.c"
    text = "".join(lines) + "const char *const texts[] = {" + ",\n".join(strings) + "};\n"
    source.write_text(text, encoding="utf-8")
    command = [
        "gcc",
        *flags,
        "-Wall",
        "-Wextra",
        "-Wcomment",
        "-Wbidi-chars=any",
        "-Werror",
        "-shared",
        "-fPIC",
        "a.c",
        "-o",
        "a.so",
    ]
    subprocess.run(command, cwd=tmp_path, check=True)
    symbols = subprocess.run(
        ["nm", "-D", "--defined-only", "a.so"], cwd=tmp_path, check=True, capture_output=True, text=True
    ).stdout
    assert [line.split()[-1] for line in symbols.splitlines()] == ["texts"]
    library = ctypes.CDLL(str(tmp_path / "a.so"))
    actual = (ctypes.c_char_p * len(HOSTILE)).in_dll(library, "texts")
    expected = [t.replace("\0", "?").encode("utf-8", "replace") for t in HOSTILE]
    assert list(actual) == expected


def test_comments_are_bounded_and_show_their_signs() -> None:
    assert max(map(len, CComment(*HOSTILE).splitlines())) < 210
    assert CComment("plain text, 100 %") == "/* plain text, 100 % */"
    assert all(c.isprintable() or c == "\n" for c in CComment(*HOSTILE))
    assert "\u202e" not in CComment("\u202e")


def test_xml_and_lines() -> None:
    for text in HOSTILE:
        result = ElementTree.fromstring(f'<a b="{XmlText(text)}">{XmlText(text)}</a>'.encode())
        assert result.text == (result.get("b") or None)
        assert len(result) == 0
        line = Line(text)
        assert line.isprintable()
        assert len(line) <= 200


@pytest.mark.parametrize(
    "name",
    [*HOSTILE, "1a", "a-b", "a.b", "int", "class", "linux", "NULL", "errno", "_A", "__a", "é", "a" * 5000],
)
def test_what_is_no_identifier(name: str) -> None:
    with pytest.raises(MaceError, match="not a name in C"):
        CIdentifier(name)


def test_words_and_macros() -> None:
    assert CIdentifier("conv_f32") == "conv_f32"
    assert CPrefix("int") == "int"
    assert Word("main-2.c") == "main-2.c"
    assert [CDefine(d) for d in ("A", "A=", "A=-1", "A=0x1F", "A=b.c+d")] == [
        "A",
        "A=",
        "A=-1",
        "A=0x1F",
        "A=b.c+d",
    ]
    for text in ("../a", ".hidden", "-rf", "a b", "a/b", "a;b", "$(x)", "`x`", "a\n", "", "a" * 231):
        with pytest.raises(MaceError):
            Word(text)
        with pytest.raises(MaceError):
            CPrefix(text)
        with pytest.raises(MaceError):
            CDefine(text)
    for text in ("A=$(x)", "A=a b", "A=`x`", "A='x'", 'A="x"', "A=(1)", "A=1;rm", "=1", "1=1", "A=1\n"):
        with pytest.raises(MaceError):
            CDefine(text)


@pytest.mark.parametrize(
    ("kind", "most", "problem"),
    [
        (Word, 230, "is not a plain word"),
        (CDefine, 230, "is not a macro"),
        (CIdentifier, 230, "is not a name in C"),
        (CPrefix, 100, "at most 100"),
    ],
)
def test_the_longest_words(
    kind: type[Word | CDefine | CIdentifier | CPrefix], most: int, problem: str
) -> None:
    assert kind("a" * most) == "a" * most
    with pytest.raises(MaceError, match=problem):
        kind("a" * (most + 1))


@pytest.mark.parametrize(("length", "text"), [(10, "0123456789"), (11, "0123456...")])
def test_a_text_is_shortened_to_its_limit(length: int, text: str) -> None:
    assert shorten("0123456789a"[:length], 10) == text
    assert (shorten("n" * 200), shorten("n" * 201)) == ("n" * 200, "n" * 197 + "...")
    assert quote_name("n" * 60) == repr("n" * 60)
    assert quote_name("n" * 61) == repr("n" * 57 + "...")
    assert quote_name("a\x07\u202eb") == "'a??b'"
