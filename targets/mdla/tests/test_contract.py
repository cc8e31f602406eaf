"""The target keeps the contract of targets, on the stub of the vendor's library, which LiteRT computes for."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

import pytest
from neuron_session import EXECUTOR, build_adapter

from mace_core.testing.target import TargetContract
from mace_target_mdla.driver import ADAPTERS
from mace_target_mdla.options import MdlaOptions
from mace_target_mdla.target import Mdla


@pytest.fixture(scope="module", autouse=True)
def adapter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Load the stub into this process: the driver's dlopen finds a loaded library by its name."""
    soname = f"-Wl,-soname,{ADAPTERS[-1]}"
    folder = build_adapter(tmp_path_factory.mktemp("vendor"), flags=(soname,))
    ctypes.CDLL(str(folder / ADAPTERS[-1]))
    with pytest.MonkeyPatch.context() as environment:
        for name, value in {**EXECUTOR, "LD_LIBRARY_PATH": str(folder)}.items():
            environment.setenv(name, value)
        yield


@pytest.mark.exhaustive  # test_models.py has a real model on the stub in the plain run
@pytest.mark.slow
class TestMdla(TargetContract):
    target = Mdla(MdlaOptions("3.0"))
