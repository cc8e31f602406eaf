"""The text of the kernel templates: names that clash with nothing, and headers that leave nothing out."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest
from jinja2 import Environment
from jinja2.meta import find_undeclared_variables

from mace_target_cpu.isa import KERNELS

HEADERS = [files("mace_core") / "runtime" / name for name in ("mace.h", "mace_types.h")]
TEMPLATES = sorted(
    (entry for entry in KERNELS.iterdir() if entry.name.endswith(".in")), key=lambda entry: entry.name
)

MAX_COLUMNS = 110


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda template: str(template.name))
def test_no_kernel_defines_a_name_of_the_public_headers(template: object) -> None:
    taken = {
        word for header in HEADERS for word in re.findall(r"\bmace_\w+", header.read_text(encoding="utf-8"))
    }
    assert "mace_session" in taken
    text = template.read_text(encoding="utf-8")  # type: ignore[attr-defined]
    assert not set(re.findall(r"^static[^;=(]*\b(mace_\w+)\(", text, flags=re.M)) & taken


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda template: str(template.name))
def test_a_template_begins_with_what_its_reader_must_know(template: object) -> None:
    """What it computes, the tensors, its parameters and arguments, and who checks them: none left out."""
    text = template.read_text(encoding="utf-8")  # type: ignore[attr-defined]
    assert text.startswith("{#-\n"), (
        "begins with a comment for its reader, which generated code does not repeat"
    )
    header = text[: text.index("-#}")]
    kernel = template.name.endswith(".c.in")  # type: ignore[attr-defined]
    keys = ("Computes", "Tensors", "Parameters", "Arguments", "Checked") if kernel else ("Parameters",)
    sections = {key: _section(header, key) for key in keys}
    assert all(sections.values()), [key for key in keys if not sections[key]]
    parameters = find_undeclared_variables(Environment(autoescape=True).parse(text)) - {"level"}
    assert not [name for name in parameters if not _is_named(name, sections["Parameters"])]
    if kernel:
        arguments = set(re.findall(r"\ba->(\w+)", text))
        assert not [name for name in arguments if not _is_named(name, sections["Arguments"])]


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda template: str(template.name))
def test_lines_of_templates_fit_a_page(template: object) -> None:
    lines = template.read_text(encoding="utf-8").splitlines()  # type: ignore[attr-defined]
    assert not [line for line in lines if len(line) > MAX_COLUMNS]


def _section(header: str, key: str) -> str:
    result = re.search(rf"^{key}:.*(?:\n  .*)*", header, flags=re.M)
    return result.group() if result else ""


def _is_named(name: str, section: str) -> bool:
    return re.search(rf"\b{re.escape(name)}\b", section) is not None
