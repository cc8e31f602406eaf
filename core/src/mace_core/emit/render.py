"""The one way from a template to text: what a template prints is a number or text that is marked as safe."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable
from functools import cache, wraps
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path, PurePath
from typing import Any, TypeVar

import jinja2
import numpy as np
from jinja2 import nodes
from jinja2.bccache import Bucket, FileSystemBytecodeCache
from jinja2.compiler import CodeGenerator, Frame
from jinja2.runtime import Context

from mace_core.cache import cache_folder, is_own, private_folder
from mace_core.emit.text import CIdentifier, Code, CPrefix, Text, Word, quote_name
from mace_core.errors import PluginError

TEMPLATES = files("mace_core") / "emit" / "templates"

LANGUAGES = {"c": "c", "cl": "c", "h": "c", "svg": "xml", "txt": "text", "md": "text"}
"""The language of a file by its suffix before `.in`; text of another language may not be printed there.

What is safe in C is safe in the C of devices ("cl") as well.
"""


def render(template: Traversable, **values: Any) -> Code:
    """Fill a Jinja2 template.

    A template prints integers, finite floats (exactly) and the types of `mace_core.emit.text`. Literals of
    the template and results of its macros are text of its author. Raises PluginError for any other value, and
    jinja2.UndefinedError for a name without a value.
    """
    return Code(_environment().get_template(str(template)).render(**values))


def print_value(value: object, language: str | None) -> str:
    """Return the text of a value in a file of a language; raises PluginError for a value that is not safe."""
    if isinstance(value, Text):
        if value.language not in (None, language):
            raise PluginError(
                type(value).__name__,
                f"is text for files of {value.language}, printed into another",
                "use another type",
            )
        return value
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return str(int(value))
    if isinstance(value, float) and math.isfinite(value):
        return repr(float(value))  # the shortest number that is read back as the same
    if isinstance(value, jinja2.Undefined):
        return str(value)  # nothing for an `if` without `else`; a name that has no value raises here
    kind = "text without a type" if isinstance(value, str) else type(value).__name__
    remedy = "give a number or a type of mace_core.emit.text, such as CIdentifier, CString, CComment or Word"
    remedy += "; Code for text that the plugin's author wrote"
    raise PluginError(quote_name(str(value)), f"{kind} cannot be printed by a template", remedy)


@cache
def _language(template: str | None) -> str | None:
    return LANGUAGES.get(PurePath((template or "").removesuffix(".in")).suffix.removeprefix("."))


class _Generator(CodeGenerator):
    """Makes Python of templates; literals of a template are text of its author."""

    def visit_Const(self, node: nodes.Const, frame: Frame) -> None:  # noqa: N802  # Jinja's name
        value = node.as_const(frame.eval_ctx)
        if isinstance(value, str):
            self.write(f"environment.code({value!r})")
        else:
            super().visit_Const(node, frame)

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:  # noqa: N802  # Jinja's name
        self.write("environment.concatenate(context, (")
        for part in node.nodes:
            self.visit(part, frame)
            self.write(", ")
        self.write("))")


class _Environment(jinja2.Environment):
    """Prints nothing that is not marked.

    Text is unmarked by every operation that does not say otherwise here, so that a filter that nobody thought
    of is refused.
    """

    code_generator_class = _Generator
    code = Code

    @staticmethod
    def concat(parts: Iterable[str]) -> Code:
        """Concatenate the parts of an output: text of the template, and results of `print_value`."""
        return Code("".join(parts))

    @staticmethod
    def concatenate(context: Context, parts: Iterable[object]) -> Code:
        """Return what `~` makes of its operands."""
        return Code("".join(print_value(part, _language(context.name)) for part in parts))


@jinja2.pass_context
def _finalize(context: Context, value: object) -> str:
    # Nearly all that templates print, tens of thousands of times in a build, is safe in every language.
    if type(value) is Code:
        return value
    if type(value) is int:
        return str(value)
    return print_value(value, _language(context.name))


@jinja2.pass_context
def _join(context: Context, parts: Iterable[object], between: str = "") -> Code:
    language = _language(context.name)
    return Code(print_value(between, language).join(print_value(part, language) for part in parts))


_Result = TypeVar("_Result")


def _keeping(change: Callable[..., str]) -> Callable[..., str]:
    """Make a filter that changes only blanks or the case of letters return the type of its text."""

    @wraps(change)
    def keep_type(text: str, *args: Any, **options: Any) -> str:
        result = change(text, *args, **options)
        strings = [value for value in (*args, *options.values()) if isinstance(value, str)]
        is_safe = all(isinstance(value, Code) for value in strings)
        is_code = isinstance(text, Code | CIdentifier | CPrefix | Word)
        return type(text)(result) if is_safe and is_code else result

    return keep_type


@cache
def _environment() -> _Environment:
    """Return the environment of all templates, which are named by their paths.

    Compiled templates are stored in the user's cache, where nobody else can write.
    """
    # With its path, a template is named in tracebacks, and tools see which ones run.
    loader = jinja2.FunctionLoader(lambda path: (Path(path).read_text(encoding="utf-8"), path, None))
    # What Jinja makes of a template depends on the filters and the generator of this file: another version
    # compiles again.
    version = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:12]
    folder = private_folder(cache_folder(f"templates-{version}"))
    environment = _Environment(
        autoescape=False,  # of HTML; `finalize` refuses what is not escaped
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        loader=loader,
        finalize=_finalize,
        bytecode_cache=_Bytecode(str(folder)) if folder else None,
    )
    environment.filters["join"] = _join
    for name in ("trim", "indent", "upper", "lower", "capitalize"):
        environment.filters[name] = _keeping(environment.filters[name])
    return environment


class _Bytecode(FileSystemBytecodeCache):
    """Compiled templates; one that another user put there is not executed."""

    def get_cache_key(self, name: str, filename: str | None = None) -> str:
        """Name a compiled template by the text of this module as well."""
        # A template that an older version compiled calls filters that this one may not have.
        return hashlib.sha256(
            super().get_cache_key(name, filename).encode() + Path(__file__).read_bytes()
        ).hexdigest()

    def load_bytecode(self, bucket: Bucket) -> None:
        """Read a compiled template if it is this user's own."""
        file = Path(self._get_cache_filename(bucket))
        if file.is_file() and not file.is_symlink() and is_own(file.lstat()):
            super().load_bytecode(bucket)
