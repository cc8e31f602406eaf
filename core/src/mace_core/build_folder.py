"""The folder of a build: one build at a time works in it, and one that was killed is noticed by the next."""

from __future__ import annotations

import atexit
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

    Beside the libraries lie the build system's signatures (what each product was made from), and while a
    build is at work a mark. The signatures are written at the end. Had a build been killed before, they would
    tell of older products than those that are there, and a product that is wrong could count as up to date;
    so the next build forgets them.
    """

    path: Path

    @property
    def signatures(self) -> Path:
        """The signatures' file, without the suffix that SCons adds."""
        return self.path / ".sconsign"

    @property
    def mark(self) -> Path:
        """The file that is there while products and signatures may disagree."""
        return self.path / ".building"

    def open(self, say: Say) -> None:
        """Make the folder, wait for a build that works in it, and forget the signatures of one that was killed.

        Raises MaceError where the folder cannot be written.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock(self.path, say)
            if self.mark.exists():
                say("the last build did not come to its end: everything is built anew")
                self.signatures.with_name(".sconsign.dblite").unlink(missing_ok=True)
                self.mark.unlink()
        except OSError as error:
            raise MaceError(
                f"builds={self.path}", f"cannot be written: {error.strerror}", "choose another folder"
            ) from None

    def begin(self) -> None:
        """Note that products are about to change; the note goes when this process ends by itself."""
        if not self.mark.exists():
            self.mark.touch()
            atexit.register(self.mark.unlink, missing_ok=True)


@cache
def lock(folder: Path, say: Say) -> None:
    """Lock a folder until this process ends, once however often it is asked, where the system has locks of folders.

    The lock is on the folder itself: it leaves no file behind, and the system takes it from a process that is
    killed.
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
