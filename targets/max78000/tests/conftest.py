"""Fixtures of the tests that build firmware."""

from __future__ import annotations

from pathlib import Path

import pytest
from project_images import Build, builder


@pytest.fixture(params=["arm-none-eabi", pytest.param("zig", marks=pytest.mark.exhaustive)])
def build(request: pytest.FixtureRequest, tmp_path: Path) -> Build:
    """Make a firmware, with each compiler."""
    return builder(request.param, tmp_path)


@pytest.fixture
def quick_build(tmp_path: Path) -> Build:
    """Make a firmware with the compiler that comes as a package."""
    return builder("zig", tmp_path)
