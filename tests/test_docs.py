"""Pages that come from the code are up to date, and links lead somewhere."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest

from mace_core.graph_builder import Builder
from mace_core.ir import DType
from mace_core.scaffold import HARDWARE, write_plugin
from mace_core.transforms import PHASES

ROOT = Path(__file__).parents[1]
PAGES = runpy.run_path(str(ROOT / "docs/generate.py"))["PAGES"]


@pytest.mark.parametrize("name", PAGES)
def test_generated_pages_are_up_to_date(name: str) -> None:
    assert (ROOT / "docs" / name).read_text(encoding="utf-8") == PAGES[name](), (
        "run: uv run python docs/generate.py"
    )


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))], ids=lambda p: p.name
)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
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


def test_the_code_of_the_tutorial_is_what_mace_new_writes(tmp_path: Path) -> None:
    """Every block of Python and C stands in a file of one of the new plugins, but for the indentation."""
    page = (ROOT / "docs/tutorial-target.md").read_text(encoding="utf-8")
    written = ""
    for hardware in HARDWARE:
        folder = write_plugin("target", "acme", tmp_path / hardware, hardware)
        written += "".join(
            path.read_text(encoding="utf-8") for path in sorted(folder.rglob("*")) if path.is_file()
        )
    # Blocks of the page stand at the left margin.
    written = "\n".join(line.strip() for line in written.splitlines())
    blocks = re.findall(r"^```(?:python|c)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 5
    for block in blocks:
        lines = "\n".join(line.strip() for line in block.splitlines())
        assert lines in written, f"mace new writes something else than:\n{block}"
