"""The toolchain keeps the contract, with a stand-in for the SDK."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from yocto_double import set_environment

from mace_core.testing.toolchain import ToolchainContract
from mace_toolchain_neuropilot import Neuropilot

pytestmark = pytest.mark.slow  # a compiler of another processor


@pytest.fixture(autouse=True, scope="module")
def sdk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("sdk")
    with pytest.MonkeyPatch.context() as patch:
        set_environment(folder, patch)
        yield folder


class TestNeuropilot(ToolchainContract):
    toolchain = Neuropilot()
