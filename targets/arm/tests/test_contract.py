"""The target keeps the contract."""

from mace_core.testing.target import TargetContract
from mace_target_arm import Arm


class TestArm(TargetContract):
    target = Arm()
    abi = "arm64-v8a"
