"""The contract of targets, kept by a DSP beside this machine: every region is called remotely, under QEMU."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from dsp_session import make_emulator

from mace_core.api import Compiler, GeneratedFiles
from mace_core.ir import Graph
from mace_core.run.compile import device_libraries
from mace_core.run.native import LoadedModel
from mace_core.testing import compiled
from mace_core.testing import target as contract
from mace_core.testing.compiled import check_merged
from mace_core.testing.target import TargetContract
from mace_target_hexagon.emulator import STAND_IN, EmulatedDsp
from mace_target_hexagon.interface import MAX_BUFFERS
from mace_target_hexagon.isa import HVX
from mace_target_hexagon.processor import Hvx
from mace_target_hexagon.target import Hexagon


@pytest.fixture(scope="module")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> EmulatedDsp:
    result = make_emulator(tmp_path_factory.mktemp("emulator"))
    # The driver looks the library up by its name, and finds what this process has loaded already.
    ctypes.CDLL(str(result.folder / STAND_IN))
    return result


def compile_quickly(
    sources: GeneratedFiles, find_compiler: Callable[[str], Compiler], folder: Path, flags: tuple[str, ...]
) -> list[Path]:
    """Compile without optimization: what takes long is the compiler."""
    return device_libraries(sources, find_compiler, folder, (*flags, "-O0"))


@pytest.fixture(autouse=True)
def dsp(emulator: EmulatedDsp, tmp_path: Path) -> Iterator[None]:
    """Let every library find its DSP libraries in its own folder, also in the programs that a test starts.

    They have the kernels of one level: those of the other are tested without remote calls.
    """
    load = compiled.load_library
    with pytest.MonkeyPatch.context() as patch:

        def load_there(
            sources: GeneratedFiles, folder: Path, flags: tuple[str, ...] = ()
        ) -> dict[str, LoadedModel]:
            patch.setenv("ADSP_LIBRARY_PATH", str(folder))
            return load(sources, folder, flags)

        for name, value in emulator.environment([tmp_path]).items():
            patch.setenv(name, value)
        patch.setattr(compiled, "device_libraries", compile_quickly)
        patch.setattr(Hvx, "levels", lambda self, abi: (HVX,))
        for module in (compiled, contract):
            patch.setattr(module, "load_library", load_there)
        yield


@pytest.mark.exhaustive
class TestHexagon(TargetContract):
    target = Hexagon()
    seeds = 1

    # Half a minute of the compiler, in nine libraries.
    def test_accepted_nodes_compute_what_their_references_do(self, tmp_path: Path) -> None:
        """In groups, because a remote call passes no more than 254 tensors each way."""
        groups: list[list[Graph]] = [[]]
        ports = 0
        for graph in self.accepted_graphs():
            ports += max(len(graph.inputs), len(graph.outputs))
            if ports > MAX_BUFFERS:
                groups.append([])
                ports = max(len(graph.inputs), len(graph.outputs))
            groups[-1].append(graph)
        for number, graphs in enumerate(groups):
            check_merged(self.target, graphs, tmp_path / str(number), self.tolerance)
