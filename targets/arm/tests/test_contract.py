"""The target keeps the contract."""

import pytest

from mace_core.testing.target import TargetContract
from mace_target_arm import Arm


@pytest.mark.slow
class TestArm(TargetContract):
    target = Arm()
    abi = "arm64-v8a"
