"""The toolchain keeps the contract."""

import pytest

from mace_core.testing.toolchain import ToolchainContract
from mace_toolchain_host import Host

pytestmark = pytest.mark.slow  # a compiler makes libraries


class TestHost(ToolchainContract):
    toolchain = Host()
