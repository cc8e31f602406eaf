"""Archives have the same bytes whenever their files have."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path

from mace_core.run.archive import pack


def test_dates_owners_and_order_do_not_show(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "bin/host").mkdir(parents=True)
    (root / "bin/host/program").write_bytes(b"\x7fELF")
    (root / "header.h").write_text("int x;\n")
    files = [root / "header.h", root / "bin/host/program"]
    pack(tmp_path / "one.tar.gz", root, files)
    os.utime(root / "header.h", (1, 1))
    (root / "header.h").chmod(0o600)
    pack(tmp_path / "two.tar.gz", root, [*reversed(files), files[0]])
    assert (tmp_path / "one.tar.gz").read_bytes() == (tmp_path / "two.tar.gz").read_bytes()
    with tarfile.open(tmp_path / "one.tar.gz") as tar:
        entries = {entry.name: (entry.mode, entry.size, entry.mtime, entry.uid) for entry in tar}
    assert entries == {"bin/host/program": (0o755, 4, 0, 0), "header.h": (0o644, 7, 0, 0)}
    (root / "header.h").write_text("int y;\n")
    pack(tmp_path / "two.tar.gz", root, files)
    assert (tmp_path / "one.tar.gz").read_bytes() != (tmp_path / "two.tar.gz").read_bytes()
