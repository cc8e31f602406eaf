"""The driver in C, as the files that every library with a part on a DSP is compiled with."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from mace_core.api import Manifest, Unit

LIBRARIES = ("libcdsprpc.so", "libadsprpc.so")
"""In the order in which the driver looks for them; it takes the first that is complete."""
SOURCES = (
    "hexagon_driver.c",
    "hexagon_library.c",
    "hexagon_options.c",
    "hexagon_part.c",
    "hexagon_watchdog.c",
)
HEADERS = ("hexagon_fastrpc.h", "hexagon_interface.h", "hexagon_library.h", "hexagon_part.h")


def describe_driver(library: str) -> Manifest:
    """Return the driver's share of a library, and what it looks for at run time."""
    folder = Path(str(files("mace_target_hexagon.driver")))
    remedy = (
        f"use a device with a Hexagon DSP, which brings {' or '.join(LIBRARIES)}; an application for Android "
        "declares it with <uses-native-library>"
    )
    return Manifest(
        library,
        copies={name: folder / name for name in (*SOURCES, *HEADERS)},
        units=tuple(Unit(name, reads=HEADERS) for name in SOURCES),
        libraries=("dl",),
        loads={LIBRARIES[0]: remedy},
        drivers=("mace_hexagon_driver",),
    )
