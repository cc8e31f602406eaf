"""Text that may stand in a generated file.

A template prints numbers and the types of this module, nothing else (see `render`). Each type checks or
escapes what it is made of, so that a name from a model or a deployment file stays a name wherever it is
printed, whoever wrote the template.
"""

from __future__ import annotations

import html
import re
from typing import ClassVar, Self

from mace_core.errors import MaceError

MAX_LINE = 200
"""Characters of a line of a comment or of a plain text; names of models may have thousands."""

MAX_IDENTIFIER = 230
MAX_WORD = 230
MAX_PREFIX = 100

_KEYWORDS = """
alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t char32_t char8_t
class co_await co_return co_yield compl concept const const_cast consteval constexpr constinit continue
decltype default delete do double dynamic_cast else enum explicit export extern false float for friend
goto if inline int long mutable namespace new noexcept not not_eq nullptr operator or or_eq private
protected public register reinterpret_cast requires restrict return short signed sizeof static
static_assert static_cast struct switch template this thread_local throw true try typedef typeid typename
typeof typeof_unqual union unsigned using virtual void volatile wchar_t while xor xor_eq
"""
_MACROS = """
assert errno linux unix i386 arm mips sparc sun vax hpux NULL EOF NAN INFINITY HUGE_VAL HUGE_VALF stdin
stdout stderr offsetof va_list va_start va_arg va_end va_copy setjmp complex imaginary I INT8_MIN
INT8_MAX UINT8_MAX INT16_MIN INT16_MAX UINT16_MAX INT32_MIN INT32_MAX UINT32_MAX INT64_MIN INT64_MAX
UINT64_MAX SIZE_MAX INT_MIN INT_MAX UINT_MAX CHAR_BIT BUFSIZ RAND_MAX EXIT_SUCCESS EXIT_FAILURE SEEK_SET
SEEK_END isnan isinf isfinite signbit fpclassify M_PI M_E FLT_MAX FLT_MIN DBL_MAX DBL_MIN
"""

KEYWORDS = frozenset(_KEYWORDS.split())
"""Keywords of C23 and C++23.

Those that begin with _ and a capital are left out, because no such name is accepted.
"""

MACROS = frozenset(_MACROS.split())
"""Names that headers or compilers of some system define as macros."""


class Text(str):
    """Text that is safe where it is printed.  language: of the files that may hold it; None for all."""

    __slots__ = ()
    language: ClassVar[str | None] = None


class Code(Text):
    """Text that the author of a plugin wrote or `render` returned, never from a model or deployment file."""

    __slots__ = ()


class CIdentifier(Text):
    """An identifier of C and C++: no keyword, no macro of common headers, no name reserved for compilers."""

    __slots__ = ()

    def __new__(cls, name: str) -> Self:
        """Check the name; raises MaceError if it is invalid."""
        if not is_identifier(name):
            raise MaceError(
                quote_name(name),
                "is not a name in C",
                "use letters, digits and _, a letter first, and no keyword or macro of C",
            )
        return super().__new__(cls, name)


class CPrefix(Text):
    """The beginning of names in C, before an underscore.

    Alone it may be a keyword or a macro (`int_models` is a good name).
    """

    __slots__ = ()

    def __new__(cls, name: str) -> Self:
        """Check the beginning; raises MaceError if no name can have it."""
        if len(name) > MAX_PREFIX or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise MaceError(
                quote_name(name),
                "cannot begin names in C",
                f"use letters, digits and _, a letter first, at most {MAX_PREFIX}",
            )
        return super().__new__(cls, name)


class Word(Text):
    """A word that needs no quotes in C strings, Makefiles, shells, XML and JSON, and that can name a file."""

    __slots__ = ()

    def __new__(cls, word: str) -> Self:
        """Check the word; raises MaceError if it is invalid."""
        if len(word) > MAX_WORD or not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*", word):
            raise MaceError(
                quote_name(word),
                "is not a plain word",
                f"use letters, digits and _ . + -, at most {MAX_WORD} of them",
            )
        return super().__new__(cls, word)


class CDefine(Text):
    """A macro for a compiler's command line: NAME, or NAME=VALUE with a value that is a number or a name."""

    __slots__ = ()

    def __new__(cls, text: str) -> Self:
        """Check the macro; raises MaceError if it is invalid."""
        if len(text) > MAX_WORD or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*(=[A-Za-z0-9_.+-]*)?", text):
            raise MaceError(
                quote_name(text),
                "is not a macro",
                "write NAME, or NAME=VALUE with a number or a name as its value",
            )
        return super().__new__(cls, text)


class CString(Text):
    """A string literal of C with its quotes: the text's UTF-8, everything but plain ASCII escaped.

    Octal escapes end after three digits, whatever follows, and a question mark is escaped because two of them
    begin a trigraph. What C strings or UTF-8 cannot hold (NUL, a lone surrogate) becomes a question mark.
    """

    __slots__ = ()
    language = "c"

    def __new__(cls, text: str) -> Self:
        """Escape the text."""
        return super().__new__(cls, '"' + "".join(map(_escape, text.replace("\0", "?"))) + '"')


class CComment(Text):
    """A complete comment of C, of one line or of several.

    No text in it can end or continue it: `*/`, `/*`, `??/` and backslashes are split or replaced, and
    characters that are unprintable or change text direction become question marks.
    """

    __slots__ = ()
    language = "c"

    def __new__(cls, *lines: str) -> Self:
        """Make the comment."""
        safe = [_in_comment(line) for line in lines]
        if len(safe) == 1:
            return super().__new__(cls, f"/* {safe[0]} */")
        return super().__new__(cls, "\n".join(("/*", *(f" * {line}".rstrip() for line in safe), " */")))


class XmlText(Text):
    """The content of an element or of an attribute of XML."""

    __slots__ = ()
    language = "xml"

    def __new__(cls, text: str) -> Self:
        """Escape the text."""
        return super().__new__(cls, html.escape(visible(text), quote=True))


class Line(Text):
    """A line of a plain text."""

    __slots__ = ()
    language = "text"

    def __new__(cls, text: str) -> Self:
        """Make it one line that can be shown."""
        return super().__new__(cls, shorten(visible(text)))


def is_identifier(name: str) -> bool:
    """Tell whether a name is an identifier of C and C++."""
    if len(name) > MAX_IDENTIFIER or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        return False
    reserved = name.startswith("__") or re.match(r"_[A-Z]", name) is not None
    return not reserved and name not in KEYWORDS and name not in MACROS


def visible(text: str) -> str:
    """Return the text with a question mark for each character that is unprintable or changes direction."""
    # Marks that change the direction of text are not printable either: class Cf of Unicode.
    return "".join(c if c.isprintable() else "?" for c in text)


def shorten(text: str, limit: int = MAX_LINE) -> str:
    """Return the text, or its beginning if it is longer than the limit."""
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def quote_name(name: str) -> str:
    """Return a name with quotes for a message, shortened and without unprintable characters."""
    return repr(shorten(visible(name), 60))


def _escape(char: str) -> str:
    if char.isascii() and char.isprintable() and char not in '"\\?':
        return char
    return "".join(f"\\{byte:03o}" for byte in char.encode("utf-8", "replace"))


def _in_comment(line: str) -> str:
    line = visible(line).replace("\\", "/").replace("??", "? ?")
    while "*/" in line or "/*" in line:  # splitting one may not make another
        line = line.replace("*/", "* /").replace("/*", "/ *")
    return shorten(line)
