"""Names of libraries and models: as they are written, and as C, files and folders have them."""

from __future__ import annotations

import re

PREFIX = "net"
"""Put in front of a name that begins with a digit, or with underscores that C reserves for compilers."""

MAX_LENGTH = 100
"""Characters; names of files are made of a library's and a model's, and file systems take 255."""

SHIPPED = "run benchmark threads tool types engine engine_cache engine_layout engine_ports engine_run"
OWN = frozenset(("mace", "driver", *(f"mace_{name}" for name in SHIPPED.split())))
"""Libraries whose headers or functions would be called like those that every library has."""

DEVICES = frozenset(
    ("con", "prn", "aux", "nul", *(f"com{i}" for i in range(1, 10)), *(f"lpt{i}" for i in range(1, 10)))
)
"""Names that no file can have on Windows, where applications are built from the generated sources as well."""


def c_name(written: str) -> str:
    """Return the name as C has it; everything that C does not take is an underscore there.

    It begins the names of variables, which may then be keywords or macros: `int_models` is a good name, as is
    `linux_model`.
    """
    name = re.sub(r"[^A-Za-z0-9_]", "_", written)
    if re.match(r"__|_[A-Z]", name):
        return f"{PREFIX}{name}"
    return f"{PREFIX}_{name}" if name[:1].isdigit() else name


def refusal(name: str) -> str | None:
    """Return why no library or model can have a name, None where it can."""
    if len(name) > MAX_LENGTH:
        return f"has more than {MAX_LENGTH} characters"
    if name.lower() in OWN:
        return "is what MACE calls a part of its own"
    return "is the name of a device on Windows" if name.lower() in DEVICES else None
