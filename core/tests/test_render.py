"""Templates print numbers and marked text, and nothing else.

Compiled ones come from a folder that only the user can write to.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import jinja2
import numpy as np
import pytest

from mace_core.cache import is_own, private_folder
from mace_core.emit import render as render_module
from mace_core.emit.render import _keeping, render
from mace_core.emit.text import CComment, CIdentifier, Code, CPrefix, CString, Line, Word, XmlText
from mace_core.errors import PluginError

ATTACK = "x*/ int pwned; /*"


@pytest.fixture
def fill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Render a text as the template of a file of the given name."""
    count = iter(range(100))

    def filled(text: str, file: str = "file.c.in", /, **values: object) -> str:
        template = tmp_path / str(next(count)) / file
        template.parent.mkdir()
        template.write_text(text)
        return render(template, **values)

    return filled


@pytest.mark.parametrize(
    "text",
    [
        "{{ name }}",
        "{{ name|upper }}",
        "{{ 'f_' ~ name }}",
        "{{ name + '_args' }}",
        "{{ '%s' % name }}",
        "{{ '%s'|format(name) }}",
        "{{ name|replace('x', 'y') }}",
        "{{ name|e }}",
        "{{ name|safe }}",
        "{{ [name]|join(', ') }}",
        "{{ [1, 2]|join(name) }}",
        "{{ 'a b'|replace(' ', name) }}",
        "{{ ['a', name]|list }}",
        "{{ {'a': name} }}",
        "{{ ident|replace('a', name) }}",
        "{{ 'a'|indent(name) }}",
        "{% macro m(x) %}{{ x }}{% endmacro %}{{ m(name) }}",
        "{% set y %}{{ name }}{% endset %}{{ y }}",
        "{% set y = name %}{{ y }}",
        "{% for c in [name] %}{{ c }}{% endfor %}",
        "{% filter upper %}{{ name }}{% endfilter %}",
        "{{ name if true }}",
        "{{ ident ~ name }}",
        "{{ ident.replace('a', name) }}",
        "{{ code + name }}",
    ],
)
def test_no_way_of_printing_text_without_a_type(text: str, fill: Callable[..., str]) -> None:
    with pytest.raises(PluginError, match="cannot be printed"):
        fill(text, name=ATTACK, ident=CIdentifier("a"), code=Code("a"))


def test_values_without_a_form_in_c_are_refused(fill: Callable[..., str]) -> None:
    for value in (None, True, float("nan"), float("inf"), b"x", [1], {"a": 1}, object(), np.float32(0.1)):
        with pytest.raises(PluginError, match="cannot be printed"):
            fill("{{ value }}", value=value)


def test_numbers_and_the_text_of_the_author_are_printed(fill: Callable[..., str]) -> None:
    assert fill("{{ a }} {{ b }} {{ c }}", a=1, b=np.int64(-2), c=0.1) == "1 -2 0.1"
    assert fill("{{ 'a' }}{{ 'b' ~ 1 }}{{ ', ' if false }}{{ 'y' if true else 'n' }}") == "ab1y"
    assert (
        fill("{% macro m(x) %}<{{ x }}>{% endmacro %}{{ m('a') }}{{ m(1)|indent(2) }}{{ m(2)|trim }}")
        == "<a><1><2>"
    )
    assert (
        fill("{% set y %}int {{ n|upper }};{% endset %}{{ y }}{{ range(3)|join(', ') }}", n=CIdentifier("a"))
        == "int A;0, 1, 2"
    )
    assert isinstance(fill("x"), Code)
    with pytest.raises(jinja2.UndefinedError):
        fill("{{ nobody }}")


def test_text_of_one_language_stays_in_its_files(fill: Callable[..., str]) -> None:
    assert fill("{{ c }}{{ s }}", c=CComment("a"), s=CString('"')) == '/* a */"\\042"'
    assert fill("{{ x }}", "a.svg.in", x=XmlText('<"')) == "&lt;&quot;"
    for text, name in (
        (XmlText("a"), "a.c.in"),
        (Line("a"), "a.h.in"),
        (CString("a"), "a.svg.in"),
        (CComment("a"), "Makefile.in"),
    ):
        with pytest.raises(PluginError, match="printed into another"):
            fill("{{ x }}", name, x=text)
    for name in ("a.c.in", "Makefile.in", "a.json.in", "a.svg.in"):
        assert fill("{{ w }}{{ p }}", name, w=Word("a.c"), p=CPrefix("int")) == "a.cint"


def test_the_cache_of_templates_is_the_users_own(tmp_path: Path) -> None:
    """What lies there is executed: a folder that others can write to, or can put in its place, is not used."""
    assert private_folder(tmp_path / "new" / "templates") == (tmp_path / "new" / "templates").resolve()
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o777)
    assert private_folder(tmp_path / "shared") is None
    assert private_folder(tmp_path / "shared" / "deep" / "templates") is None  # its parent can be renamed
    (tmp_path / "group").mkdir()
    (tmp_path / "group").chmod(0o770)
    assert private_folder(tmp_path / "group") is None
    (tmp_path / "link").symlink_to(tmp_path / "shared")
    assert private_folder(tmp_path / "link") is None
    (tmp_path / "file").write_text("")
    assert private_folder(tmp_path / "file" / "templates") is None


def test_the_cache_of_another_owner_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 4711)
    if os.getuid() != 0:  # what belongs to root counts as safe
        assert private_folder(tmp_path / "templates") is None
    result = os.stat_result((0o40755, 1, 1, 1, 12345, 0, 0, 0, 0, 0))
    assert not is_own(result)
    assert is_own(os.stat_result((0o40755, 1, 1, 1, 0, 0, 0, 0, 0, 0)))


def test_a_planted_template_is_not_executed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiled template that others may have written is compiled anew."""
    from mace_core.emit import render as module

    cache = tmp_path / "cache"
    monkeypatch.setenv("MACE_CACHE", str(cache))
    template = tmp_path / "a.c.in"
    template.write_text("good")
    other = tmp_path / "b.c.in"
    other.write_text("evil")
    module._environment.cache_clear()
    try:
        assert render(template) == "good"
        planted = next(cache.glob("templates-*/*"))  # a folder for each version of the renderer
        module._environment.cache_clear()
        bucket = module._environment().bytecode_cache.get_bucket(
            module._environment(), str(other), None, "evil"
        )  # type: ignore[union-attr]
        bucket.code = module._environment().compile("evil")
        bucket.checksum = module._environment().bytecode_cache.get_source_checksum("good")  # type: ignore[union-attr]
        with planted.open("wb") as file:
            bucket.write_bytecode(file)
        assert render(template) == "evil"  # the user's own file is believed
        planted.chmod(0o666)
        module._environment.cache_clear()
        assert render(template) == "good"
    finally:
        module._environment.cache_clear()


def test_what_another_version_compiled_is_not_executed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name of a compiled template depends on the module that compiled it."""
    cache = render_module._Bytecode(str(tmp_path))
    before = cache.get_cache_key("model.c.in")
    other = tmp_path / "render.py"
    other.write_text("# another version")
    monkeypatch.setattr(render_module, "__file__", str(other))
    assert cache.get_cache_key("model.c.in") != before


@pytest.mark.parametrize(
    ("text", "mark", "expected"),
    [
        (Code("a"), Code("b"), Code),
        (Code("a"), "b", str),
        ("a", Code("b"), str),
        (Code("a"), 3, Code),
    ],
)
def test_a_filter_keeps_the_type_of_code_if_all_that_it_adds_is_code(
    text: str, mark: str | int, expected: type
) -> None:
    result = _keeping(lambda left, right: f"{left}{right}")(text, mark)
    assert type(result) is expected
    assert str(result) == f"{text}{mark}"
