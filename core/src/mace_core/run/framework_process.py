"""Runs frameworks in processes of their own: native code that fails there ends no command of ours.

A framework's runtime is foreign native code, which may abort on a model that it half supports. In this
process it would take the command with it, without a message. A child process computes instead, and this one
asks it through pipes.
"""

from __future__ import annotations

import os
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from io import BytesIO
from types import MappingProxyType
from typing import Literal, Protocol, TypeAlias

from mace_core.api import Files, Frontend, Reference
from mace_core.deployment import Model
from mace_core.errors import MaceError
from mace_core.ir import Array
from mace_core.run.command import name_end

REMEDY = "name files under validation_inputs_data and validation_outputs_data to validate without it"

CHILD = "mace_core.run.framework_child"

Method: TypeAlias = Literal["reference", "recurrent"]


class ReferenceSource(Protocol):
    """Gives a model in its framework: a frontend, or a process that asks one."""

    def reference(self, files: Files, model: Model) -> Reference | None:
        """Return the model in its framework; None if that is not installed."""

    def recurrent(self, files: Files, model: Model) -> Reference | None:
        """Return the model in its framework, which keeps its states; None if it cannot."""


@dataclass(frozen=True)
class OpenRequest:
    """Asks the child process for a model in its framework, by a method of the frontend."""

    frontend: Frontend
    method: Method
    files: Files
    model: Model


@dataclass(frozen=True)
class RunRequest:
    """Asks the child process for one run of the reference with a number."""

    number: int
    arrays: Mapping[str, Array]


@dataclass(frozen=True)
class OpenReply:
    """Answers an OpenRequest.

    number: of the reference, None if the frontend gives none.  runtime: what computes.
    """

    number: int | None
    runtime: str = ""


@dataclass(frozen=True)
class RunReply:
    """Answers a RunRequest with arrays by output name."""

    arrays: Mapping[str, Array]


Request: TypeAlias = OpenRequest | RunRequest
Reply: TypeAlias = OpenReply | RunReply | Exception


@dataclass(frozen=True)
class FrameworkProcesses:
    """Holds a process for each frontend that needs one: a framework is imported once for several models.

    The processes end with this object and the references that they gave.
    """

    children: dict[str, FrameworkProcess] = field(default_factory=dict)

    def source(self, frontend: Frontend) -> ReferenceSource:
        """Return what gives the references of a frontend."""
        if not frontend.is_native:
            return frontend
        return self.children.setdefault(frontend.name, FrameworkProcess(frontend))


class FrameworkProcess:
    """Gives the references of a frontend, which compute in a child process; it starts with the first."""

    def __init__(self, frontend: Frontend) -> None:
        self._frontend = frontend
        self._child: _Child | None = None

    def reference(self, files: Files, model: Model) -> Reference | None:
        """Return the model in its framework; None if that is not installed."""
        return self._open("reference", files, model)

    def recurrent(self, files: Files, model: Model) -> Reference | None:
        """Return the model in its framework, which keeps its states; None if it cannot."""
        return self._open("recurrent", files, model)

    def _open(self, method: Method, files: Files, model: Model) -> Reference | None:
        # A child that a model has killed is replaced for the next model.
        if self._child is None or not self._child.is_alive():
            self._child = _Child()
        child, place = self._child, f"model {model.name!r}"
        framework = f"the framework behind {self._frontend.name!r}"
        opened = child.ask(OpenRequest(self._frontend, method, files, model), place, framework)
        assert isinstance(opened, OpenReply)
        if opened.number is None:
            return None
        number, computes = opened.number, f"{framework} ({opened.runtime})"

        def run(arrays: Mapping[str, Array]) -> Mapping[str, Array]:
            reply = child.ask(RunRequest(number, arrays), place, computes)
            assert isinstance(reply, RunReply)
            return reply.arrays

        return Reference(run, opened.runtime)


class _Child:
    """A child process with pipes.

    It is killed, and its temporary files are deleted, with the last use of this object.
    """

    def __init__(self) -> None:
        # A killed framework deletes nothing that it has unpacked: its temporary files get their own folder.
        folder = tempfile.mkdtemp(prefix="mace-framework-")
        paths = os.pathsep.join(path or os.getcwd() for path in sys.path)
        places = {"PYTHONPATH": paths, **dict.fromkeys(("TMPDIR", "TEMP", "TMP"), folder)}
        self._process = subprocess.Popen(  # noqa: S603  # our own module
            [sys.executable, "-P", "-m", CHILD],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **places},
        )
        self._end = weakref.finalize(self, _end, self._process, folder)

    def is_alive(self) -> bool:
        """Tell whether the process has not ended."""
        return self._process.poll() is None

    def ask(self, request: Request, place: str, framework: str) -> Reply:
        """Return the reply to a request.

        Raises what the frontend raises, and MaceError where the process ends instead.
        """
        message = _encode(request)
        if not self._end.alive:
            raise self._report_end(place, framework)
        requests, replies = self._process.stdin, self._process.stdout
        assert requests is not None
        assert replies is not None
        try:
            requests.write(message)
            requests.flush()
            # The child runs as the same user on files of his, as the framework would in this process: pickles
            # from there may do no more than it.
            reply: Reply = pickle.load(replies)  # noqa: S301
        except (EOFError, BrokenPipeError, pickle.UnpicklingError):
            self._process.wait()
            self._end()
            raise self._report_end(place, framework) from None
        if isinstance(reply, Exception):
            raise reply
        return reply

    def _report_end(self, place: str, framework: str) -> MaceError:
        status = self._process.wait()
        problem = f"{framework} {name_end(status)}"
        if status == -signal.SIGKILL:
            problem += ", perhaps because memory is short"
        return MaceError(place, problem, REMEDY)


def _end(process: subprocess.Popen[bytes], folder: str) -> None:
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout):
        # What is left in the buffer of a request has no reader any more.
        with suppress(BrokenPipeError):
            if stream is not None:
                stream.close()
    shutil.rmtree(folder, ignore_errors=True)


def freeze(values: dict[object, object]) -> MappingProxyType[object, object]:
    """Return a read-only mapping of these values: pickle cannot name that class."""
    return MappingProxyType(values)


def _encode(request: Request) -> bytes:
    buffer = BytesIO()
    pickler = pickle.Pickler(buffer, pickle.HIGHEST_PROTOCOL)
    pickler.dispatch_table = {MappingProxyType: lambda mapping: (freeze, (dict(mapping),))}
    try:
        pickler.dump(request)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        if not isinstance(request, OpenRequest):
            raise
        problem = f"cannot be sent to another process: {error}"
        remedy = "define its class in a module; set its `is_native` to False if it runs no native code"
        raise MaceError(f"frontend {request.frontend.name!r}", problem, remedy) from error
    return buffer.getvalue()
