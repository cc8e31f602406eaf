"""Calls LiteRT's ahead-of-time compilation with the vendor's SDK, where both are installed."""

from __future__ import annotations

import contextlib
import io
import re
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from mace_core.errors import MaceError
from mace_target_mdla.compilers.compiled import Compiled, VendorCompiler
from mace_target_mdla.compilers.dispatch import DispatchedNetwork, read_dispatched
from mace_target_mdla.options import MdlaOptions

LITERT, SDK = "ai-edge-litert", "ai-edge-litert-sdk-mediatek"
CHIPS = (
    *("MT6895", "MT6897", "MT6983", "MT6985", "MT6989", "MT6991", "MT6993"),
    *("MT8171", "MT8188", "MT8189", "MT8196"),
)
"""The chips that the vendor's wheel compiles for; LiteRT's own list has older ones."""
LOG = re.compile(r"See (\S+) for details")


class AotCompiler(VendorCompiler):
    """`ai_edge_litert.aot` with the vendor's plugin, which is part of LiteRT, and the vendor's SDK."""

    name = "aot"

    def __init__(self, options: MdlaOptions) -> None:
        self.options = options

    def find_fault(self) -> str | None:
        """Return what is not installed, or that it does not know the chip; None if it is ready."""
        soc = self.options.soc
        if soc is None:
            return "it compiles for a chip, and only a generation is stated"
        if soc.name not in CHIPS:
            return f"the vendor's wheel does not compile for {soc.name}, but for {', '.join(CHIPS)}"
        for module, distribution in (
            ("ai_edge_litert", LITERT),
            ("ai_edge_litert_sdk_mediatek", SDK),
        ):
            if find_spec(module) is None:
                return f"{distribution} is not installed: pip install {LITERT} {SDK}"
        return self._compare_versions(soc.name)

    def compile(self, tflite: bytes, place: str) -> Compiled:
        """Compile a file for the chip; MaceError with the compiler's words, or if it leaves an operator."""
        chip = self.options.soc.name if self.options.soc else ""
        with TemporaryDirectory() as folder:
            network = read_dispatched(_compile(tflite, chip, Path(folder), place), place)
        _check_sdk(network, chip, place)
        return Compiled(
            network.content,
            network.kind,
            LITERT,
            version(LITERT),
            ("ai_edge_litert.aot.aot_compile", f"target=MediaTek_{chip}"),
            ".".join(map(str, network.version)),
        )

    def _compare_versions(self, chip: str) -> str | None:
        """Return a fault if the SDK was made for another LiteRT, or LiteRT does not know the chip."""
        from ai_edge_litert.aot.vendors.mediatek import target

        if chip not in set(target.SocModel):
            return f"{LITERT} {version(LITERT)} does not know {chip}: pip install --upgrade {LITERT} {SDK}"
        try:
            sdk = version(SDK)
        except PackageNotFoundError:
            return None  # an SDK of the user's own, whose version its libraries state
        if sdk.split(".")[0] != version(LITERT).split(".")[0]:
            pair = f"{SDK} {sdk} and {LITERT} {version(LITERT)}"
            rule = "inferred: no source says that both share a major version"
            return f"{pair} do not belong together ({rule}): install both in one major version"
        return None


def _compile(tflite: bytes, chip: str, folder: Path, place: str) -> bytes:
    """Return the file that LiteRT writes."""
    from ai_edge_litert.aot import aot_compile
    from ai_edge_litert.aot.core import aot_types
    from ai_edge_litert.aot.vendors.mediatek import target

    goal = target.Target(target.SocModel(chip))
    model = aot_types.Model.create_from_bytes(tflite)
    # LiteRT draws bars of progress; the build shows its own.
    with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
        try:
            result = aot_compile.aot_compile(model, output_dir=folder, target=goal, keep_going=False)
        except (ValueError, OSError, RuntimeError) as error:
            raise MaceError(
                place, _explain(error), "correct the installation, or write compiler: none"
            ) from None
    return _content_of(result, place)


def _content_of(result: Any, place: str) -> bytes:
    if len(result.models) != 1:
        raise MaceError(place, f"LiteRT compiled {len(result.models)} files", "write compiler: none")
    model = result.models[0]
    return bytes(model.model_bytes) if model.in_memory else Path(model.path).read_bytes()


def _explain(error: Exception) -> str:
    """Return what went wrong, with the lines of LiteRT's log that say ERROR; the log is removed."""
    text = f"LiteRT does not compile it: {error}"
    match = LOG.search(str(error))
    if not match or not Path(match[1]).is_file():
        return text
    log = Path(match[1])
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.startswith("ERROR")]
    log.unlink()
    return "LiteRT does not compile it: " + "; ".join(lines or ["its plugin failed"])


def _check_sdk(network: DispatchedNetwork, chip: str, place: str) -> None:
    """Raise MaceError if another major version of the SDK wrote it than the chip's runtime has."""
    from ai_edge_litert.aot.vendors.mediatek import target

    # LiteRT's own table says which NeuroPilot a chip has; that a network needs a runtime of its compiler's
    # major version is found in public software that pairs the two.
    expected = int(target.map_soc_to_np_version(target.SocModel(chip)).removeprefix("v"))
    if network.version and network.version[0] != expected:
        written = ".".join(map(str, network.version))
        problem = f"SDK {written} compiled it, and the runtime of {chip} is of version {expected}"
        raise MaceError(place, problem, f"install the SDK of NeuroPilot {expected}")
