"""Names of C functions in the kernels: none that an application's headers have for something else."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest

from mace_target_cpu.isa import KERNELS

HEADERS = [files("mace_core") / "runtime" / name for name in ("mace.h", "mace_types.h")]
TEMPLATES = sorted(
    (entry for entry in KERNELS.iterdir() if entry.name.endswith(".in")), key=lambda entry: entry.name
)


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda template: str(template.name))
def test_no_kernel_defines_a_name_of_the_public_headers(template: object) -> None:
    taken = {
        word for header in HEADERS for word in re.findall(r"\bmace_\w+", header.read_text(encoding="utf-8"))
    }
    assert "mace_session" in taken
    text = template.read_text(encoding="utf-8")  # type: ignore[attr-defined]
    assert not set(re.findall(r"^static[^;=(]*\b(mace_\w+)\(", text, flags=re.M)) & taken
