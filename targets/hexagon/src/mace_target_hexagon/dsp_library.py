"""The DSP library of a model: its regions as plain C calls, and the entry for remote calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path

from mace_core.api import Content, Manifest, Part, Product, Unit
from mace_core.emit.code import BANNER, bundle, bundle_manifest
from mace_core.emit.render import render
from mace_core.emit.text import CIdentifier, CString
from mace_core.errors import PluginError
from mace_core.levels import Level
from mace_core.plan import Plan
from mace_target_hexagon.interface import TEMPLATES, list_methods, write_interface
from mace_target_hexagon.processor import Hvx
from mace_target_hexagon.region import RegionBody, module_name

PACKAGE = Path(str(files("mace_target_hexagon")))
SOURCES = ("hexagon_dsp.c", "hexagon_power.c", "hexagon_threads.c", "hexagon_vtcm.c")
HEADERS: Mapping[str, Path] = {
    "hexagon_dsp.h": PACKAGE / "dsp/hexagon_dsp.h",
    "hexagon_fastrpc.h": PACKAGE / "driver/hexagon_fastrpc.h",
    "hexagon_qurt.h": PACKAGE / "dsp/hexagon_qurt.h",
    "hexagon_threads.h": PACKAGE / "dsp/hexagon_threads.h",
    "hexagon_vtcm.h": PACKAGE / "dsp/hexagon_vtcm.h",
    "hexagon_interface.h": PACKAGE / "driver/hexagon_interface.h",
}


@dataclass(frozen=True)
class RegionEntry:
    """What skeleton.c.in writes of one region: its digest, and the symbol of its program."""

    digest: CString
    symbol: CIdentifier


def describe_library(module: str, abi: str) -> Manifest:
    """Return the DSP library of a model, before it is known which regions it will have.

    abi: that of the DSP.
    """
    skeleton = Unit(f"{module}_skel.c", reads=("hexagon_dsp.h", f"{module}.h"))
    # Copied under a name for each library, because one object is made for each name.
    copies = {f"{module}_{name}": PACKAGE / "dsp" / name for name in SOURCES}
    # All generated files come at once, mace.h of the library of models among them, which these units include.
    units = tuple(Unit(name, reads=(*HEADERS, f"{module}.h")) for name in copies)
    programs = bundle_manifest(module, _levels(abi))
    return replace(
        programs,
        name=f"{module}_skel",
        product=Product.LIBRARY,
        generated=(*programs.generated, skeleton.source, f"{module}.idl"),
        copies={**copies, **HEADERS},
        units=(*programs.units, skeleton, *units),
        abi=abi,
    )


def write_library(model: str, parts: Sequence[Part], default_abi: str) -> Mapping[str, Content]:
    """Return the generated files of the DSP library with these parts of a model.

    default_abi: that of the DSP where there are no parts, which state it otherwise.
    """
    module = module_name(model)
    # FastRPC opens a library by one name, so that the regions of a model share one, weights and threads too.
    bodies = [_body_of(part) for part in parts]
    plans = [_plan_of(body) for body in bodies]
    # All regions of a model are compiled with its options, so the first one tells the ABI of all.
    abi = next((body.built_for for body in bodies), default_abi)
    entries = [
        RegionEntry(CString(body.digest), CIdentifier(f"{module}_{plan.name}_program"))
        for body, plan in zip(bodies, plans, strict=True)
    ]
    regions = [
        (part.name, [port.tensor for port in part.inputs], [port.tensor for port in part.outputs])
        for part in parts
    ]
    skeleton = render(
        TEMPLATES / "skeleton.c.in",
        banner=BANNER,
        module=CIdentifier(module),
        library=CIdentifier(module),
        regions=entries,
    )
    return {
        **bundle(module, plans, _levels(abi)).files,
        f"{module}_skel.c": skeleton,
        f"{module}.idl": write_interface(module, list_methods(regions)),
    }


def _levels(abi: str) -> dict[str, tuple[Level, ...]]:
    return {Hvx.name: Hvx().levels(abi)}


def _body_of(part: Part) -> RegionBody:
    if not isinstance(part.body, RegionBody):
        raise PluginError(f"part {part.name!r}", "was not made by the target hexagon", "report a bug")
    return part.body


def _plan_of(body: RegionBody) -> Plan:
    assert body.plan is not None, "compile_remote sets it"
    return body.plan
