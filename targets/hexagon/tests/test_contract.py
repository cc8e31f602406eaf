"""The target keeps the contract."""

from __future__ import annotations

from importlib.metadata import entry_points
from pathlib import Path

import pytest

from mace_core.hookspecs import GROUP
from mace_core.testing.target import TargetContract
from mace_target_hexagon.processor import Hvx


@pytest.mark.exhaustive
class TestHvx(TargetContract):
    target = Hvx()
    abi = "hexagon-v66"

    @property
    def module(self) -> str:
        """The distribution's module: it is named after the hardware, not after this target."""
        return "mace_target_hexagon"

    def test_naming_rule(self) -> None:
        """The distribution is named after the hardware; `hvx` is what computes in libraries for itself."""
        (point,) = (p for p in entry_points(group=GROUP) if p.name == "target-hexagon")
        assert point.value == self.module
        assert point.dist is not None
        assert point.dist.name == "mace-target-hexagon"

    # Programs of the DSP run in an emulator: the kernels that are its own have tests of their own.
    @pytest.mark.exhaustive
    def test_accepted_nodes_compute_what_their_references_do(self, tmp_path: Path) -> None:
        super().test_accepted_nodes_compute_what_their_references_do(tmp_path)
