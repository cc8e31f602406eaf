"""The proof plugins keep the contract of targets.

That they are named after the rule is tested where they are installed.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

import pytest
from proof_plugins import build_capsule_runtime, target

from mace_core.testing.compiled import host
from mace_core.testing.requirements import require
from mace_core.testing.target import TargetContract


class InProcess(TargetContract):
    """The contract but for what only an installed plugin has."""

    __test__ = False
    seeds = 4

    def test_naming_rule(self) -> None:
        assert self.module == type(self.target).__module__

    def test_import_is_light_and_silent(self) -> None:
        """Tested with the wheel."""


class TestIsland(InProcess):
    __test__ = True
    target = target("island")


@pytest.fixture(scope="module")
def vendor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Load the vendor's library into this process: dlopen finds by its name what is loaded already.

    Programs that tests start find it in its folder.
    """
    folder = build_capsule_runtime(
        tmp_path_factory.mktemp("vendor"), host(), flags=["-Wl,-soname,libcapsule_rt.so.2"]
    )
    ctypes.CDLL(str(folder / "libcapsule_rt.so.2"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LD_LIBRARY_PATH", str(folder))
        yield


@pytest.mark.usefixtures("vendor")
class TestCapsule(InProcess):
    __test__ = True
    target = target("capsule")


@pytest.mark.exhaustive  # test_proof_plugins.py has its kernels in the plain run
class TestCpuWide(InProcess):
    __test__ = True
    target = target("cpu-wide")


@pytest.mark.slow
@pytest.mark.exhaustive
class TestRemote(InProcess):
    __test__ = True
    target = target("remote")
    seeds = 1

    @pytest.fixture(autouse=True)
    def ready(self) -> None:
        require(self.target.missing())
