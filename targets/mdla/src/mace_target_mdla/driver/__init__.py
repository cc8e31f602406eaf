"""The driver in C, as the files that every library with an MDLA part is compiled with."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from mace_core.api import Manifest, Unit

SYMBOL = "mace_mdla_driver"
ADAPTERS = ("libneuronusdk_adapter.mtk.so", "libneuron_adapter_mgvi.so", "libneuron_adapter.so")
"""In the order in which the driver looks for them; it takes the first that is complete."""
RUNTIMES = ("libneuronusdk_runtime.mtk.so", "libneuron_runtime.so")
"""As ADAPTERS; only for networks that `ncc-tflite` has compiled."""

_SOURCES = ("mdla_adapter.c", "mdla_driver.c", "mdla_file.c", "mdla_library.c", "mdla_network.c")
_HEADERS = ("mdla_library.h", "mdla_network.h", "mdla_neuron.h", "mdla_part.h")


def manifests(library: str) -> tuple[Manifest, ...]:
    """Return the driver's share of a library, and what it looks for at run time."""
    folder = Path(str(files("mace_target_mdla.driver")))
    remedy = (
        f"install NeuroPilot on the device, which brings {', '.join(ADAPTERS[:-1])} or {ADAPTERS[-1]}; "
        "an application for Android declares it with <uses-native-library>"
    )
    return (
        Manifest(
            library,
            copies={name: folder / name for name in (*_SOURCES, *_HEADERS)},
            units=tuple(Unit(name, reads=_HEADERS) for name in _SOURCES),
            # The vendor's libraries are opened at run time, so that nothing of theirs is linked.
            libraries=("dl",),
            loads={ADAPTERS[0]: remedy},
            drivers=(SYMBOL,),
        ),
    )
