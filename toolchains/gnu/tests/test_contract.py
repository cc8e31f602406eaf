"""The toolchain keeps the contract."""

import pytest

from mace_core.testing.toolchain import ToolchainContract
from mace_toolchain_gnu import Gnu

pytestmark = pytest.mark.slow  # compilers of other processors


class TestGnu(ToolchainContract):
    toolchain = Gnu()
