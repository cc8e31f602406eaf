"""The target keeps the contract."""

from dataclasses import replace
from pathlib import Path

import pytest

from mace_core.api import Target
from mace_core.levels import with_levels
from mace_core.testing.target import TargetContract
from mace_target_arm import Arm
from mace_target_arm.isa import NEON


@pytest.mark.slow
class TestArm(TargetContract):
    target = Arm()
    abi = "arm64-v8a"

    # Only compilers for ARM know its intrinsics: what they compute is compared in QEMU (test_byte_levels.py,
    # test_depthwise_bytes.py).
    def portable(self) -> Target:
        return with_levels(
            self.target, [replace(NEON, name="portable", dot="pairs", helpers=(), replaces=())]
        )

    # The kernels are the CPU target's, whose own contract is in the plain run.
    @pytest.mark.exhaustive
    def test_accepted_nodes_compute_what_their_references_do(self, tmp_path: Path) -> None:
        super().test_accepted_nodes_compute_what_their_references_do(tmp_path)
