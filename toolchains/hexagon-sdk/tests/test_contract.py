"""The toolchain keeps the contract, with a stand-in for the SDK."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sdk_stand_in import make_sdk, set_sdk

from mace_core.testing.toolchain import ToolchainContract
from mace_toolchain_hexagon_sdk import HexagonSdk

pytestmark = pytest.mark.slow  # a compiler of another processor


@pytest.fixture(autouse=True, scope="module")
def sdk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = make_sdk(tmp_path_factory.mktemp("sdk"))
    with pytest.MonkeyPatch.context() as patch:
        set_sdk(folder, patch)
        yield folder


class TestHexagonSdk(ToolchainContract):
    toolchain = HexagonSdk()

    # Programs are for the SDK's simulator: to link one with the stand-in would build another C library.
    test_program = None  # type: ignore[assignment]
