"""The toolchain keeps the contract."""

from mace_core.testing.toolchain import ToolchainContract
from mace_toolchain_zig import Zig


class TestZig(ToolchainContract):
    toolchain = Zig()
