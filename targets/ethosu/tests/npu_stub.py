"""An NPU for tests: a stub of the vendor's driver, in which LiteRT computes the network of each command stream."""

from __future__ import annotations

import contextlib
import ctypes as c
import io
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
import pytest

from mace_target_ethosu import vela
from mace_target_ethosu.options import EthosUOptions
from mace_target_ethosu.vela import CompiledNetwork, Place

SOURCE = Path(__file__).parent / "stub/ethosu_stub.c"
COMPUTE = c.CFUNCTYPE(c.c_int, c.c_void_p, c.c_int, c.POINTER(c.c_uint64), c.POINTER(c.c_size_t), c.c_int)
WEIGHTS = 0
"""The region in which Vela lays constants, in every memory mode."""
compile_with_vela = vela.compile_network


class State(c.Structure):
    """`struct ethosu_stub`."""

    _fields_ = (
        ("reserves", c.c_int),
        ("releases", c.c_int),
        ("invokes", c.c_int),
        ("fault", c.c_int),
        ("polls", c.c_int),
        ("wrong", c.c_char_p),
        ("function", COMPUTE),
    )


@dataclass
class Npu:
    """The stub, and what Vela compiled: stream and constants -> network as a file, and as Vela placed it."""

    state: State
    library: Path
    networks: dict[tuple[bytes, bytes], tuple[bytes, CompiledNetwork]] = field(default_factory=dict)

    def compile(self, tflite: bytes, options: EthosUOptions, name: str) -> CompiledNetwork:
        """Compile in this process, which saves the second that another one takes to start."""
        network = compile_with_vela(tflite, options, name)
        assert network.weight_region == WEIGHTS
        self.networks[network.stream, network.weights] = (tflite, network)
        return network

    def reset(self) -> None:
        self.state.reserves = self.state.releases = self.state.invokes = self.state.fault = 0
        self.state.polls = 0
        self.state.wrong = None

    def compute(self, payload: int, size: int, bases: Sequence[int], sizes: Sequence[int], count: int) -> int:
        stream = c.string_at(payload, size)
        found = self.networks.get((stream, c.string_at(bases[WEIGHTS], sizes[WEIGHTS])))
        if found is None:
            return -1
        tflite, network = found
        inputs = [c.string_at(bases[p.region] + p.offset, p.bytes) for p in network.inputs]
        # The NPU uses the arena for everything: nothing in it lasts.
        for region in {network.scratch_region, *([network.fast_region] if network.fast_bytes else [])}:
            c.memset(bases[region], 0xA5, sizes[region])
        for place, result in zip(network.outputs, execute(tflite, inputs), strict=True):
            self._store(bases, place, result)
        return 0

    @staticmethod
    def _store(bases: Sequence[int], place: Place, result: bytes) -> None:
        assert len(result) == place.bytes
        c.memmove(bases[place.region] + place.offset, result, place.bytes)


def execute(tflite: bytes, inputs: Sequence[bytes]) -> list[bytes]:
    """Run a file with LiteRT's reference kernels."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    interpreter = Interpreter(
        model_content=tflite, experimental_op_resolver_type=OpResolverType.BUILTIN_REF, num_threads=1
    )
    interpreter.allocate_tensors()
    for described, data in zip(interpreter.get_input_details(), inputs, strict=True):
        array = np.frombuffer(data, described["dtype"]).reshape(described["shape"])
        interpreter.set_tensor(described["index"], array)
    interpreter.invoke()
    return [interpreter.get_tensor(d["index"]).tobytes() for d in interpreter.get_output_details()]


@cache
def build_stub() -> Path:
    """Compile the stub once for this process."""
    library = Path(mkdtemp(prefix="mace-ethosu-")) / "libethosu_stub.so"
    command = [
        "gcc",
        "-std=c11",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-g",
        "-fPIC",
        "-shared",
        SOURCE,
        "-o",
        library,
    ]
    subprocess.run(command, check=True)
    return library


def run_vela_here(
    tflite: bytes, options: EthosUOptions, folder: Path, arguments: Sequence[str], name: str
) -> list[str]:
    """Do what `vela._run` does, without a process of its own."""
    from ethosu.vela import vela as program

    (folder / "network.tflite").write_bytes(tflite)
    words = [str(folder / "network.tflite"), "--output-dir", str(folder / "output")]
    with contextlib.redirect_stdout(io.StringIO()) as printed, contextlib.redirect_stderr(io.StringIO()):
        program.main([*words, *vela._arguments(options), *arguments])
    return printed.getvalue().splitlines()


@contextlib.contextmanager
def plugged_in(patch: pytest.MonkeyPatch) -> Iterator[Npu]:
    """An NPU that the libraries of this process find, and that knows what Vela compiles meanwhile."""
    library = build_stub()
    loaded = c.CDLL(str(library), mode=c.RTLD_GLOBAL)
    npu = Npu(State.in_dll(loaded, "ethosu_stub"), library)
    function = COMPUTE(npu.compute)
    npu.reset()
    npu.state.function = function
    patch.setattr(vela, "compile_network", npu.compile)
    patch.setattr(vela, "_run", run_vela_here)
    yield npu
    npu.state.function = COMPUTE()
    assert npu.state.wrong is None, npu.state.wrong
    assert npu.state.reserves == npu.state.releases
