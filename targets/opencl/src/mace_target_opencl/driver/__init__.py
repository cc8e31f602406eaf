"""The driver in C, as the files that every library with a part for the GPU is compiled with."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from mace_core.api import Manifest, Unit

SYMBOL = "mace_opencl_driver"
LIBRARY = "libOpenCL.so.1"
"""The loader of the system; `opencl_library.c` lists the vendors' own files, which are tried behind it."""

_SOURCES = (
    "opencl_blob.c",
    "opencl_build.c",
    "opencl_check.c",
    "opencl_context.c",
    "opencl_device.c",
    "opencl_driver.c",
    "opencl_enqueue.c",
    "opencl_images.c",
    "opencl_inflate.c",
    "opencl_library.c",
    "opencl_memory.c",
    "opencl_notice.c",
    "opencl_observe.c",
    "opencl_part.c",
    "opencl_pool.c",
)
_HEADERS = ("opencl_api.h", "opencl_blob.h", "opencl_part.h")


def manifests(library: str) -> tuple[Manifest, ...]:
    """Return the driver's share of a library, and what it looks for at run time."""
    folder = Path(str(files("mace_target_opencl.driver")))
    remedy = (
        "install the OpenCL driver of the device's vendor; "
        "an application for Android declares the library with <uses-native-library>"
    )
    return (
        Manifest(
            library,
            copies={name: folder / name for name in (*_SOURCES, *_HEADERS)},
            units=tuple(Unit(name, reads=_HEADERS) for name in _SOURCES),
            # dlopen, by which the driver finds OpenCL, has a library of its own in older C libraries.
            libraries=("dl",),
            loads={LIBRARY: remedy},
            drivers=(SYMBOL,),
        ),
    )
