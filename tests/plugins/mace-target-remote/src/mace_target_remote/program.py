"""A region as a program of another ABI: the library of one model, and a main function that computes whatever it is sent."""

from __future__ import annotations

import struct
import tempfile
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

from mace_core.api import BuildConfig, Compiler, Region
from mace_core.compilation import compile_region
from mace_core.deployment import Model
from mace_core.emit import code
from mace_core.errors import MaceError
from mace_core.manifest import Manifest, Product, Unit
from mace_core.plan import make_plan
from mace_core.registry import Registry
from mace_core.run.compile import link
from mace_target_cpu import Cpu

MAGIC = 0x544D4552
LIBRARY = "remote"
MAIN = "remote_main.c"


def find_missing(abi: str) -> str | None:
    """Return what to install for programs of an ABI; None if all is there."""
    try:
        choice = Registry.load().select(abi)[0]
    except MaceError as problem:
        return str(problem)
    return choice.runner.missing() if choice.runner else f"nothing here executes programs for {abi}"


def build_program(region: Region, abi: str) -> bytes:
    """Return a header, which the driver reads, and the program.

    The header: the magic number, how many inputs and outputs there are, and the bytes of each; numbers of 64
    bits.
    """
    graph = region.graph.with_name("region")
    cpu = Cpu()
    part = compile_region(Region(cpu, graph), BuildConfig(abi, abi, Model(graph.name, ())))
    sources = code.library(LIBRARY, [make_plan(graph, [part])], cpu.levels(abi))
    tool = Manifest(
        "remote_program", Product.PROGRAM, generated=(MAIN,), units=(Unit(MAIN),), needs=(LIBRARY,)
    )
    main = (files("mace_target_remote") / "driver" / MAIN).read_text(encoding="utf-8")
    sources = replace(sources, files={**sources.files, MAIN: main}, manifests=(*sources.manifests, tool))
    compiler: Compiler = Registry.load().select(abi)[0].compiler
    with tempfile.TemporaryDirectory(prefix="mace-remote-") as folder:
        program = link(sources, compiler, Path(folder), ("-O2", "-s")).read_bytes()
    sizes = [graph.tensors[name].bytes for name in (*graph.inputs, *graph.outputs)]
    header = (MAGIC, len(graph.inputs), len(graph.outputs), *sizes)
    return struct.pack(f"<{len(header)}q", *header) + program
