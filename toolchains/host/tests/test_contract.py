"""The toolchain keeps the contract."""

from mace_core.testing.toolchain import ToolchainContract
from mace_toolchain_host import Host


class TestHost(ToolchainContract):
    toolchain = Host()
