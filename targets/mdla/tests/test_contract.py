"""The target keeps the contract of targets, for each generation."""

from __future__ import annotations

import pytest

from mace_core.testing.target import TargetContract
from mace_target_mdla.options import MdlaOptions
from mace_target_mdla.target import Mdla

WAITING = pytest.mark.skipif(Mdla().missing() is not None, reason=f"not complete: {Mdla().missing()}")


@WAITING
class TestMdla(TargetContract):
    target = Mdla(MdlaOptions("3.0"))
