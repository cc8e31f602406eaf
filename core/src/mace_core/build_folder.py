"""Protects the output folder of a build: locks it, and detects a build that was killed."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from mace_core.errors import MaceError
from mace_core.run.command import Say


@dataclass(frozen=True)
class BuildFolder:
    """The output folder of a build.

    Besides libraries it contains the build system's signatures (what each product was made from), and a mark
    while a build runs. Signatures are written at the end of a build. After a build that was killed, or whose
    signatures found no space on the disk, they describe older products than those in the folder, so a wrong
    product could count as up to date; the next build therefore deletes them.
    """

    path: Path

    @property
    def signatures(self) -> Path:
        """The signatures' file, without the suffix that SCons adds."""
        return self.path / ".sconsign"

    @property
    def mark(self) -> Path:
        """The file that exists while products and signatures may disagree."""
        return self.path / ".building"

    def open(self, say: Say) -> None:
        """Create the folder, wait for another build in it, and delete the signatures of a killed one.

        Raises MaceError if the folder cannot be written.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock(self.path, say)
            if self.mark.exists():
                say("the last build was interrupted: everything is built again")
                self.signatures.with_name(".sconsign.dblite").unlink(missing_ok=True)
                self.mark.unlink()
        except OSError as error:
            raise MaceError(
                f"builds={self.path}", f"cannot be written: {error.strerror}", "choose another folder"
            ) from None

    def begin(self) -> None:
        """Set the mark before products change."""
        if not self.mark.exists():
            self.mark.touch()

    def finish(self) -> None:
        """Remove the mark once the signatures of all products are written."""
        self.mark.unlink(missing_ok=True)


@cache
def lock(folder: Path, say: Say) -> None:
    """Lock a folder until this process ends; repeated calls have no effect.

    The lock is on the folder itself, so it leaves no file behind, and the system releases it when a process
    is killed. Windows cannot lock folders; there nothing happens.
    """
    if sys.platform == "win32":
        return
    import fcntl

    handle = os.open(folder, os.O_RDONLY)  # closed by the end of the process
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        say(f"waiting for another build in {folder}")
        fcntl.flock(handle, fcntl.LOCK_EX)
    except OSError:
        os.close(handle)  # a file system without locks
