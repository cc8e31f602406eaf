"""The toolchain keeps the contract."""

import pytest

from mace_core.testing.toolchain import ToolchainContract
from mace_toolchain_zig import Zig
from mace_toolchain_zig.abis import ABIS

pytestmark = [pytest.mark.slow, pytest.mark.sampled(cases="host|arm64$|cortex-m4")]


class TestZig(ToolchainContract):
    toolchain = Zig()
    emulated = frozenset({"host", *(name for name, abi in ABIS.items() if abi.hosted)})
    """Before it links the first program for an ABI, zig builds that ABI's musl: the host's takes 65 s of a processor."""
