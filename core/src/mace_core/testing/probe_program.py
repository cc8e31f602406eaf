"""Links a program in C with a library of models, so that a test or a benchmark sees what applications see."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mace_core.api import Compiler, GeneratedFiles, Target
from mace_core.compilation import Compilation, compile_graph
from mace_core.deployment import Deployment, Model
from mace_core.generation import encode
from mace_core.ir import Graph
from mace_core.job import Job
from mace_core.levels import with_levels
from mace_core.manifest import Manifest, Product, Unit
from mace_core.run.compile import link
from mace_core.testing.compiled import build_device_libraries, host, load_registry

SESSION = "session"
"""Name of the library of `generate_session`."""

FILE_CACHE = Path(__file__).with_name("file_cache.h")
"""A `mace_cache` of one entry, for programs of one model; see the header."""


@dataclass(frozen=True)
class ProbeProgram:
    """A program in C.

    source: its only unit.  headers: those that it includes besides the library's.  flags: of its unit alone.
    """

    source: Path
    headers: tuple[Path, ...] = ()
    flags: tuple[str, ...] = ()


def link_probe(
    program: ProbeProgram,
    sources: GeneratedFiles,
    folder: Path,
    flags: Sequence[str] = ("-O2",),
    compiler: Compiler | None = None,
) -> Path:
    """Compile a library and the program in a folder, and return the program's file.

    What parts call on processors of other ABIs is compiled into the same folder.
    flags: of all units.  compiler: None for the one that makes code for this machine.
    """
    library = tuple(manifest for manifest in sources.manifests if manifest.joins_library)
    paths = {path.name: path for path in (program.source, *program.headers)}
    unit = Unit(program.source.name, program.flags, reads=tuple(path.name for path in program.headers))
    manifest = Manifest(
        program.source.stem, Product.PROGRAM, copies=paths, units=(unit,), needs=(library[0].name,)
    )
    complete = replace(sources, manifests=(*library, manifest))
    build_device_libraries(sources, folder)
    return link(complete, compiler or host(), folder, tuple(flags))


def generate_session(graph: Graph, choice: str, target: Target | None = None) -> GeneratedFiles:
    """Return the sources of the library `session` with the model `m`, whose fallback is the CPU.

    choice: as after `target=`.  target: in the place of the installed one of its name.
    """
    installed = load_registry()
    targets = {**installed.targets, **({target.name: target} if target else {})}
    if choice.split("+", maxsplit=1)[0] == "host":
        # One level of instructions: the fallback's kernels take most of the time that the compiler needs.
        targets["cpu"] = with_levels(targets["cpu"], targets["cpu"].levels("host")[-1:])
    registry = replace(installed, targets=targets)
    (selected,) = registry.select(choice)
    model = Model("m", (), keys={"fallback": "cpu"})
    compiled = compile_graph(model, graph, Compilation(selected, registry))
    return encode(Job(Deployment(SESSION, (model,)), selected), [compiled], registry)
