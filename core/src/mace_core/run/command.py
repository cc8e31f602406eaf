"""Runs a command of a toolchain without a shell, and reports progress while it runs."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from mace_core.errors import MaceError

Say = Callable[[str], None]
"""Takes a line for the user."""

FIRST_REPORT, NEXT_REPORT = 10.0, 15.0
"""Seconds until a command that is still running is reported, the first time and then again."""


@dataclass(frozen=True)
class Command:
    """A command line and where it runs.

    words: the program and its arguments; no shell interprets them.  folder: its working folder.
    environment: all variables that it sees.
    product: what it makes, as messages show it.  slow: why it may take a minute, as a clause; "" if it should
    not.
    """

    words: tuple[str, ...]
    folder: Path
    environment: Mapping[str, str]
    product: str
    slow: str = ""

    def execute(self, say: Say) -> None:
        """Run the command; MaceError with its output if it fails."""
        try:
            process = subprocess.Popen(  # noqa: S603  # a list of words, of a toolchain
                self.words,
                cwd=self.folder,
                env=dict(self.environment),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                encoding="utf-8",
                errors="replace",
            )
        except OSError as error:
            raise MaceError(
                self.words[0], f"cannot be started: {error.strerror}", "`mace doctor` shows what to install"
            ) from None
        with process:
            printed = self._wait(process, say)
        if process.returncode:
            raise MaceError(self.product, *self._failure(process.returncode, printed))
        for line in printed.splitlines():
            say(line)

    def _wait(self, process: subprocess.Popen[str], say: Say) -> str:
        """Wait for the process and return its output; report now and then how long it has been running."""
        start, patience = time.monotonic(), FIRST_REPORT
        while True:
            try:
                return process.communicate(timeout=patience)[0]
            except subprocess.TimeoutExpired:
                reason = f"; {self.slow}" if self.slow else ""
                say(f"{self.product}: {time.monotonic() - start:.0f} s{reason}")
                patience = NEXT_REPORT

    def _failure(self, status: int, printed: str) -> tuple[str, str]:
        """Return the problem and the remedy for a command that failed."""
        tool = Path(self.words[0]).name
        if status < 0:
            return f"{tool} {name_end(status)}", "if memory is short, build with fewer jobs (-j1)"
        output = printed.strip() or "it printed nothing"
        return (
            f"{tool} {name_end(status)}\n{output}\ncommand: {' '.join(self.words)}",
            "correct it, or report a bug",
        )


def name_end(status: int) -> str:
    """Say how a process failed, as the end of a sentence; status: as `subprocess` returns it."""
    if status >= 0:
        return f"failed with exit status {status}"
    name = signal.Signals(-status).name if -status in set(signal.Signals) else f"signal {-status}"
    return f"was killed by {name}"
