"""Reads what devices compiled, so that a library has kernels that need no compiler on the device.

The files are entries of a `mace_cache`, as `mace tune` writes them: the engine checks device, driver and
digest.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mace_core.api import BlobBody
from mace_core.compiled_entry import MAGIC
from mace_core.deployment import Model
from mace_core.errors import MaceError


def read_binaries(model: Model, names: Sequence[str]) -> list[bytes]:
    """Return the content of the files; one MaceError with every file that cannot be used."""
    place = f"model {model.name!r}: target_options: opencl: binaries"
    folder = model.files[0].parent if model.files else Path()
    contents, faults = [], []
    for name in names:
        try:
            contents.append((folder / name).read_bytes())
        except (OSError, ValueError) as error:
            faults.append(f"{place}: {name!r:.200} cannot be read: {error}; correct its path")
            continue
        if not contents[-1].startswith(MAGIC):
            faults.append(f"{place}: {name!r:.200} holds no compiled kernels; write it by mace tune")
    if faults:
        raise MaceError.of(faults)
    return contents


def select_binaries(contents: Sequence[bytes], body: BlobBody) -> tuple[bytes, ...]:
    """Return those that were compiled of a part: they name its digest."""
    return tuple(content for content in contents if body.digest.encode() in content)


def describe_stale(part: str, count: int) -> str:
    """Return what the build says of a part that none of the files is for."""
    remedy = "devices compile them, until mace tune writes new ones"
    return f"{part}: none of the {count} binaries is of its kernels; {remedy}"
