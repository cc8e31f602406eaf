"""Compiles TFLite files before they are deployed, by the newest compiler of the vendor that is installed.

LiteRT's ahead-of-time path comes first, then `ncc-tflite`. Without either, the device's runtime compiles when
the library is loaded. Nothing here stands in for a compiler: what no compiler wrote is never called compiled.
"""

from __future__ import annotations

from mace_core.errors import MaceError
from mace_target_mdla.compilers.aot import AotCompiler
from mace_target_mdla.compilers.compiled import STAMP, Compiled, VendorCompiler
from mace_target_mdla.compilers.ncc import NccCompiler
from mace_target_mdla.options import MdlaOptions

__all__ = ["Compiled", "compile_network"]


def compile_network(tflite: bytes, options: MdlaOptions, place: str) -> Compiled | None:
    """Return what a compiler made of a file; None if the device's runtime is to compile it.

    place: the region, for messages. MaceError if the compiler that the options name is missing, and if one
    that is installed fails: to take another one, or none, would hide that.
    """
    compiler = _choose(options, place)
    if compiler is None:
        return None
    compiled = compiler.compile(tflite, place)
    if any(STAMP in text for text in (compiled.content, compiled.version.encode())):
        raise MaceError(
            place,
            f"{compiled.tool} is a test double, which compiles nothing",
            "install the vendor's SDK, or write compiler: none",
        )
    return compiled


def _choose(options: MdlaOptions, place: str) -> VendorCompiler | None:
    """Return the first compiler that is ready and allowed; MaceError if the one that is named is not."""
    if options.compiler == "none":
        return None
    compilers: tuple[VendorCompiler, ...] = (AotCompiler(options), NccCompiler.of(options))
    for compiler in compilers:
        if options.compiler not in ("auto", compiler.name):
            continue
        fault = compiler.find_fault()
        if fault is None:
            return compiler
        if options.compiler != "auto":
            raise MaceError(
                f"{place}: compiler: {compiler.name}", fault, "install it, or write compiler: none"
            )
    return None
