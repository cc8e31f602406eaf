"""Packs products into an archive that has the same bytes whenever the files have."""

from __future__ import annotations

import gzip
import tarfile
from collections.abc import Iterable
from io import BytesIO
from pathlib import Path

from mace_core.run.files import write


def pack(archive: Path, root: Path, files: Iterable[Path]) -> None:
    """Write a .tar.gz of files below `root`, in the order of their names, without owners or dates."""
    packed = BytesIO()
    with (
        gzip.GzipFile(fileobj=packed, mode="wb", mtime=0) as stream,
        tarfile.open(fileobj=stream, mode="w") as tar,
    ):
        for path in sorted(set(files)):
            entry = tarfile.TarInfo(str(path.relative_to(root)))
            entry.size = path.stat().st_size
            entry.mode = 0o755 if path.parent.parent.name == "bin" else 0o644
            tar.addfile(entry, BytesIO(path.read_bytes()))
    write(archive, packed.getvalue())
