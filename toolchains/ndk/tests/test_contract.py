"""The toolchain keeps the contract."""

from mace_core.testing.toolchain import ToolchainContract
from mace_toolchain_ndk import Ndk


class TestNdk(ToolchainContract):
    toolchain = Ndk()
