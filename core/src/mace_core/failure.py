"""The last resort of every command: one line for the user, and a file with the details for us."""

from __future__ import annotations

import os
import platform
import sys
import tempfile
import traceback
import warnings
from importlib.metadata import PackageNotFoundError, version
from typing import Any, TextIO

from mace_core.errors import MaceError, PluginWarning
from mace_core.terminal import escape_controls

MISTAKE, DEFECT = 2, 3
"""Exit statuses: the user can correct the input; the tool itself is at fault."""


def report_failure(error: BaseException, stream: TextIO | None = None) -> int:
    """Print one message for an error and return the exit status.

    A MaceError is the user's to correct and is printed as it is. Anything else is a defect of MACE or of a
    plugin: its traceback goes into a new file in the folder for temporary files, which the message names.
    """
    out = stream or sys.stderr
    if isinstance(error, MaceError):
        out.write(f"mace: {escape_controls(str(error))}\n")
        return MISTAKE
    summary = escape_controls(f"{type(error).__name__}: {error}".splitlines()[0][:200])
    out.write(
        f"mace: internal error ({summary}); please report it, with the details in {_write_details(error)}\n"
    )
    return DEFECT


def _write_details(error: BaseException) -> str:
    """Write versions, command line and traceback into a file that only this user can read.

    Return its path.
    """
    head = [
        f"mace-core {_core_version()}, Python {platform.python_version()}, {platform.platform()}",
        f"command: {sys.argv}",
        f"folder: {os.getcwd()}",
        "",
    ]
    try:
        handle, path = tempfile.mkstemp(prefix="mace-error-", suffix=".txt")
    except OSError as problem:
        return f"no file, because none can be written here ({problem})"
    with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
        file.write("\n".join(head) + "".join(traceback.format_exception(error)))
    return path


def _core_version() -> str:
    try:
        return version("mace-core")
    except PackageNotFoundError:
        return "without metadata"


def print_plugin_warnings() -> None:
    """Print each plugin that does not work as one line, instead of Python's form with a source line."""
    usual = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
        if issubclass(category, PluginWarning):
            sys.stderr.write(f"mace: warning: {escape_controls(str(message))}\n")
        else:
            usual(message, category, *place, **more)

    warnings.showwarning = show
    warnings.simplefilter("always", PluginWarning)
