"""The target keeps the contract."""

from pathlib import Path

import pytest

from mace_core.testing.target import TargetContract
from mace_target_arm import Arm


@pytest.mark.slow
class TestArm(TargetContract):
    target = Arm()
    abi = "arm64-v8a"

    # The kernels are the CPU target's, whose own contract is in the plain run.
    @pytest.mark.exhaustive
    def test_accepted_nodes_compute_what_their_references_do(self, tmp_path: Path) -> None:
        super().test_accepted_nodes_compute_what_their_references_do(tmp_path)
