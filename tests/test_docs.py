"""Pages that come from the code are up to date, and links lead somewhere."""

from __future__ import annotations

import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from mace_core.cli import main
from mace_core.graph_builder import Builder
from mace_core.ir import DType
from mace_core.scaffold import HARDWARE, write_plugin
from mace_core.transforms import PHASES

ROOT = Path(__file__).parents[1]
PAGES = runpy.run_path(str(ROOT / "docs/generate.py"))["PAGES"]


@pytest.mark.slow
@pytest.mark.parametrize("name", PAGES)
def test_generated_pages_are_up_to_date(name: str) -> None:
    assert (ROOT / "docs" / name).read_text(encoding="utf-8") == PAGES[name](), (
        "run: uv run python docs/generate.py"
    )


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))], ids=lambda p: p.name
)
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)#:]+)\)", text):
        assert (page.parent / target).exists(), target


def test_the_transform_of_the_tutorial_keeps_what_it_says() -> None:
    (snippet,) = re.findall(
        r"```python\n(.*?)```", (ROOT / "docs/tutorial-transform.md").read_text(encoding="utf-8"), re.DOTALL
    )
    offered: dict[str, Any] = {}
    exec(snippet, offered)
    (transform,) = offered["mace_transforms"]()
    new = Builder("net")
    twice = new.one("Neg", [new.one("Neg", [new.input("x", DType.F32, (2,))])])
    graph = new.finish([new.one("Relu", [twice])])
    assert [node.op.name for node in transform.apply(graph).nodes] == ["Relu"]
    assert transform.phase in {phase.name for phase in PHASES}


def test_the_tutorial_lists_every_phase_in_order() -> None:
    rows = re.findall(
        r"^\| `(\w+)` \|", (ROOT / "docs/tutorial-transform.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert rows == [phase.name for phase in PHASES]


@pytest.mark.parametrize(
    ("page_name", "kind", "plugin", "hardware_kinds"),
    [
        ("target", "target", "acme", tuple(HARDWARE)),
        ("processor", "target", "acme-core", ("cpu",)),
        ("frontend", "frontend", "acme", ("",)),
    ],
)
def test_the_code_of_the_tutorial_is_what_mace_new_writes(
    tmp_path: Path, page_name: str, kind: str, plugin: str, hardware_kinds: tuple[str, ...]
) -> None:
    """Every block of Python and C stands in a file of one of the new plugins, but for the indentation."""
    page = (ROOT / f"docs/tutorial-{page_name}.md").read_text(encoding="utf-8")
    written = ""
    for hardware in hardware_kinds:
        folder = write_plugin(kind, plugin, tmp_path / hardware, hardware)
        written += "".join(
            path.read_text(encoding="utf-8") for path in sorted(folder.rglob("*")) if path.is_file()
        )
    # Blocks of the page stand at the left margin.
    written = "\n".join(line.strip() for line in written.splitlines())
    blocks = re.findall(r"^```(?:python|c)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 3
    for block in blocks:
        lines = "\n".join(line.strip() for line in block.splitlines())
        assert lines in written, f"mace new writes something else than:\n{block}"


def test_the_architecture_names_every_module_of_core() -> None:
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    table = page.partition("| module of `mace_core` | owns |")[2].partition("\n\n")[0]
    first_column = "".join(re.findall(r"^\|[^|]*\|", table, re.MULTILINE))
    named = set(re.findall(r"`([\w/]+(?:\.py|/))`", first_column))
    core = ROOT / "core/src/mace_core"
    files = {path.name for path in core.glob("*.py")} - {"__init__.py"}
    assert files - named == set(), "the table of the page says nothing about these modules"
    assert [name for name in named if not (core / name).exists()] == []


RUN_ELSEWHERE = {
    "tutorial-frontend.md": "its blocks are parts of what `mace new` writes, with which they are compared",
    "tutorial-processor.md": "its blocks are parts of what `mace new` writes, with which they are compared",
    "tutorial-target.md": "its blocks are parts of what `mace new` writes, with which they are compared",
    "tutorial-transform.md": "the transform is applied to a graph",
}
DOCS = sorted((ROOT / "docs").glob("*.md"))
PYTHON = [p for p in DOCS if "```python" in p.read_text(encoding="utf-8") and p.name not in RUN_ELSEWHERE]


@pytest.mark.parametrize("page", PYTHON, ids=lambda p: p.name)
def test_the_python_of_a_page_runs_from_top_to_bottom(page: Path) -> None:
    """The blocks share their names, as a reader who types them one after another does; they hold assertions."""
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    code = "\n".join(blocks)
    assert "assert " in code, "a block that asserts nothing may be wrong unnoticed"
    exec(compile(code, page.name, "exec"), {"__name__": page.stem.replace("-", "_")})


def command_lines() -> list[tuple[str, str]]:
    """Every line of a code block, or text in backquotes, that starts the `mace` command; and the page's name."""
    found = []
    for page in [ROOT / "README.md", *DOCS]:
        text = page.read_text(encoding="utf-8")
        found += [
            (page.name, line)
            for line in re.findall(r"^ *(?:uv run )?(mace [a-z][^\n`]*)$", text, re.MULTILINE)
        ]
        found += [(page.name, line) for line in re.findall(r"`(?:uv run )?(mace [a-z][^`\n]*)`", text)]
    return found


def test_commands_of_the_pages_exist_with_their_options() -> None:
    lines = command_lines()
    assert len(lines) > 20
    for page, line in lines:
        words = shlex.split(line.partition("  #")[0], comments=True)
        if words[1] not in main.commands:
            assert words[1].isupper(), f"{page}: {line}: there is no such command"
            continue
        command = main.commands[words[1]]
        options = {
            name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)
        }
        for word in words[2:]:
            name = word.partition("=")[0]
            assert not name.startswith("--") or name in {*options, "--help"}, f"{page}: {line}: {name}"


def test_every_page_has_its_place_in_the_site() -> None:
    site = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    listed = re.findall(r"[\w-]+\.md", str(site["nav"]))
    assert sorted(listed) == [page.name for page in DOCS]


@pytest.mark.exhaustive
def test_the_pages_become_a_site(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "--quiet",
        "--site-dir",
        str(tmp_path / "site"),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "site/contributing/index.html").is_file()
