"""The toolchain keeps the contract."""

from mace_core.testing.toolchain import ToolchainContract
from mace_toolchain_gnu import Gnu


class TestGnu(ToolchainContract):
    toolchain = Gnu()
