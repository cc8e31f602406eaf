"""Convolutions and products of real networks, in gigaflops and as a share of what one core can do.

Run: python bench_gemm.py [COMPILER ...], each compiler one argument ("cc -O3"); this machine's must be an
x86-64 with AVX2.
"""

from __future__ import annotations

import ctypes as c
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np

from mace_core.api import Compiler
from mace_core.emit import code
from mace_core.ir import Graph
from mace_core.plan import plan_calls
from mace_core.run import native
from mace_core.run.compile import shared_library
from mace_core.run.tables import table
from mace_core.testing.compiled import case, random_inputs
from mace_target_cpu import Cpu

ROUNDS = 15
MOST_SECONDS = 0.5


@dataclass(frozen=True)
class Case:
    """A graph of one node and the floating-point operations that it stands for."""

    graph: Graph
    flops: int


def conv(size: int, channels: tuple[int, int], kernel: int, stride: int = 1, group: int = 1) -> Case:
    """Return a square convolution from so many channels to so many, that keeps its size but for the stride."""
    rng = np.random.default_rng(0)
    before, results = channels
    shape = (results, kernel, kernel, before // group)
    arrays = [rng.standard_normal(s).astype("f4") for s in ((1, size, size, before), shape, (results,))]
    pads = (kernel // 2,) * 2
    attrs = {
        "strides": (stride,) * 2,
        "pads_before": pads,
        "pads_after": pads,
        "dilations": (1, 1),
        "group": group,
    }
    depth = f"_g{group}" if group > 1 else ""
    name = f"conv{kernel}x{kernel}s{stride}_{size}_{before}_{results}{depth}"
    graph = case(name, "Conv", arrays, {**attrs, "low": 0.0, "high": 6.0}, constants=(1, 2))
    return Case(graph, 2 * prod(graph.tensors["y0"].shape) * prod(shape[1:]))


def matmul(rows: int, depth: int, columns: int) -> Case:
    """Return a product with a constant right factor."""
    arrays = [np.ones(s, np.float32) for s in ((rows, depth), (depth, columns))]
    return Case(
        case(f"matmul_{rows}_{depth}_{columns}", "MatMul", arrays, constants=(1,)), 2 * rows * depth * columns
    )


def cases() -> list[Case]:
    """Return layers of MobileNet, ResNet, VGG and BERT."""
    return [
        conv(224, (3, 32), 3, 2), conv(224, (3, 64), 7, 2), conv(112, (32, 32), 3), conv(56, (64, 64), 3), conv(28, (128, 128), 3),
        conv(14, (256, 256), 3), conv(7, (512, 512), 3), conv(112, (32, 64), 1), conv(56, (128, 128), 1), conv(14, (512, 512), 1),
        conv(7, (1024, 1024), 1), conv(56, (256, 512), 1, 2), conv(28, (96, 24), 1), conv(56, (128, 128), 3, 1, 32),
        conv(112, (32, 32), 3, 1, 32), conv(112, (64, 64), 3, 2, 64), conv(56, (128, 128), 3, 1, 128),
        conv(14, (512, 512), 3, 1, 512), conv(7, (960, 960), 5, 1, 960), matmul(128, 768, 768), matmul(128, 768, 3072),
        matmul(1024, 1024, 1024),
        matmul(1, 1024, 1000), matmul(1, 4096, 4096), matmul(4, 1024, 1000),
    ]  # fmt: skip


def built(cc: tuple[str, ...], all_cases: list[Case], folder: Path) -> dict[str, native.LoadedModel]:
    """Return the models of all cases, compiled by one compiler."""
    target = Cpu()
    placed = []
    for one in all_cases:
        program = target.lower(one.graph)
        placed.append(plan_calls(program))
    sources = code.library("bench", placed, target.levels("host"))
    level = tuple(flag for flag in cc if flag.startswith("-O")) or ("-O2",)
    return native.load(shared_library(sources, Compiler(cc, ("ar",)), folder, level), "bench")


def best(run: Callable[[], object]) -> float:
    """Return the least seconds of many runs: what the machine does when nobody else uses it."""
    run()
    least, started = float("inf"), time.perf_counter()
    for done in range(10 * ROUNDS):
        start = time.perf_counter()
        run()
        least = min(least, time.perf_counter() - start)
        if done >= 3 and time.perf_counter() - started > MOST_SECONDS:
            break
    return least


def runner(model: native.LoadedModel, graph: Graph) -> Callable[[], object]:
    """Return a call that runs the model on memory prepared once."""
    given = random_inputs(graph)
    made = [np.zeros(t.shape, t.dtype.numpy) for t in model.outputs]
    inputs = native._pointers([given[t.name] for t in model.inputs])
    outputs = native._pointers(made)
    kept = (given, made)
    return lambda: (model._functions.run(model._session, inputs, outputs), kept)


def peak(cc: tuple[str, ...], folder: Path) -> float:
    """Return the gigaflops of peak.c."""
    source, library = Path(__file__).with_name("peak.c"), folder / "peak.so"
    command = [*cc, "-O2", "-mavx2", "-mfma", "-shared", "-fPIC", str(source), "-o", str(library)]
    subprocess.run(command, check=True)  # noqa: S603  # the compiler that the caller names
    function = c.CDLL(str(library)).peak
    function.restype = c.c_double
    return float(function(20))


def main(compilers: list[str]) -> None:
    """Print one table for each compiler."""
    for compiler in compilers or ["cc"]:
        cc = tuple(compiler.split())
        with tempfile.TemporaryDirectory() as folder:
            top = peak(cc, Path(folder))
            models = built(cc, cases(), Path(folder))
            rows = []
            for one in cases():
                seconds = best(runner(models[one.graph.name], one.graph))
                rate = one.flops / seconds / 1e9
                rows.append(
                    (one.graph.name, f"{seconds * 1e6:.0f}", f"{rate:.1f}", f"{100 * rate / top:.0f}")
                )
        sys.stdout.write(
            f"{compiler}: one core does {top:.1f} Gflop/s\n{table(('name', 'us', 'Gflop/s', '% of peak'), rows)}\n"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
