"""The child process of `framework_process`: reads requests from its input and answers each on its output."""

from __future__ import annotations

import os
import pickle
import signal
import traceback
from typing import BinaryIO

from mace_core.api import Reference
from mace_core.errors import MaceError
from mace_core.run.framework_process import OpenReply, OpenRequest, Reply, Request, RunReply


def main() -> None:
    """Answer requests until there are no more."""
    # Ctrl-C reaches the whole process group. The command reports it; a traceback of the child would be noise.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    requests, replies = _take_pipes()
    references: list[Reference] = []
    while True:
        try:
            request: Request = pickle.load(requests)  # noqa: S301  # from the process that started this one
        except EOFError:
            return
        pickle.dump(_answer(request, references), replies, pickle.HIGHEST_PROTOCOL)
        replies.flush()


def _take_pipes() -> tuple[BinaryIO, BinaryIO]:
    """Return the pipes under numbers of their own: frameworks print, and a line of theirs is no reply."""
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return requests, replies


def _answer(request: Request, references: list[Reference]) -> Reply:
    try:
        if not isinstance(request, OpenRequest):
            return RunReply(dict(references[request.number](request.arrays)))
        reference = getattr(request.frontend, request.method)(request.files, request.model)
        if reference is None:
            return OpenReply(None)
        references.append(reference)
        return OpenReply(len(references) - 1, reference.runtime)
    except MaceError as error:
        return error
    except Exception as error:  # noqa: BLE001  # of a frontend or its framework
        # The class may be the framework's own, which the command does not import. The note is for the report.
        defect = RuntimeError(f"{type(error).__name__}: {error}")
        defect.add_note("".join(traceback.format_exception(error)))
        return defect


if __name__ == "__main__":
    main()
