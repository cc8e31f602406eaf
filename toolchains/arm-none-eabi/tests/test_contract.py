"""The toolchain keeps the contract."""

from mace_core.testing.toolchain import ToolchainContract
from mace_toolchain_arm_none_eabi import ArmNoneEabi


class TestArmNoneEabi(ToolchainContract):
    toolchain = ArmNoneEabi()
