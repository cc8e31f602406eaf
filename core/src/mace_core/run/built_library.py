"""Runs the programs of a built library on samples, here or in an emulator."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path

import numpy as np

from mace_core.api import Runner, Target
from mace_core.device_choice import SEPARATOR, select_devices
from mace_core.errors import MaceError
from mace_core.ir import Array, Tensor
from mace_core.json_types import JsonObject
from mace_core.report import LibraryReport, ModelReport
from mace_core.run.results import SessionResult, Timing
from mace_core.run.samples import Samples, fit_inputs


@dataclass(frozen=True)
class BuiltLibrary:
    """A built library for one choice: its programs, how to execute them, and the report of its build.

    compiled: a folder that keeps what devices compile from one timing to the next; None to compile each time.
    device_options: options of sessions that ask for a device, by the target of a part.
    """

    programs: Path
    runner: Runner
    report: LibraryReport
    compiled: Path | None = field(default=None, kw_only=True)
    device_options: Mapping[str, str] = field(default_factory=dict, kw_only=True)

    @classmethod
    def open(cls, folder: Path, variant: str, runner: Runner | None) -> BuiltLibrary:
        """Open what was built in a library's folder for a choice.

        MaceError if it is not built or cannot run on this machine.
        """
        report = folder / "model" / f"{variant}.json"
        # Unlike Path.is_file, this takes a path that is too long for one that is not there.
        if not os.path.isfile(report):
            raise MaceError(
                folder,
                f"is not built for {variant}",
                f"run: scons target={variant}, or mace build FILE --target {variant}",
            )
        if runner is None:
            raise MaceError(
                variant,
                "no runner is available for this ABI on this machine",
                "install an emulator, or run it on the device",
            )
        if reason := runner.missing():
            raise MaceError(variant, f"{runner.name} is not ready", reason)
        return cls(
            folder / "bin" / variant,
            runner,
            LibraryReport.of_json(JsonObject.parse(report.read_text(encoding="utf-8"), report)),
        )

    def select_device(self, device: str, targets: Iterable[Target]) -> BuiltLibrary:
        """Return the library whose sessions ask for a device; "" for any.

        MaceError where no part of any model is computed by a target that has several.
        """
        options = select_devices(targets, device)
        parts = chain.from_iterable(report.parts for report in self.report.models.values())
        if device and not any(part.target in options for part in parts):
            problem = f"no part of {self.programs.name} is computed by a target with several devices"
            raise MaceError(f"--device {device}", problem, "leave it out, or build for one that has")
        return replace(self, device_options=options)

    def model(self, name: str) -> dict[str, list[Tensor]]:
        """Return the descriptions of a model's inputs and outputs, under "inputs" and "outputs"."""
        report = self.figures(name)
        return {"inputs": list(report.inputs), "outputs": list(report.outputs)}

    def figures(self, name: str) -> ModelReport:
        """Return the build's report of a model; MaceError if the library has none of that name."""
        if name not in self.report.models:
            raise MaceError(
                name, "no such model in the library", f"its models: {', '.join(self.report.models)}"
            )
        return self.report.models[name]

    def run(self, model: str, samples: Samples, threads: int = 1, *, reset: int = 0) -> dict[str, Array]:
        """Return the outputs of `run_session`."""
        return dict(self.run_session(model, samples, threads, reset=reset).outputs)

    def run_session(self, model: str, samples: Samples, threads: int = 1, *, reset: int = 0) -> SessionResult:
        """Run a model on samples one after another in one session.

        reset: number of samples after which the states are reset to their start values, again and again; 0
        for never.
        """
        outputs = self.model(model)["outputs"]
        with tempfile.TemporaryDirectory() as folder:
            options = [f"--threads={threads}", *([f"--reset={reset}"] if reset else [])]
            printed = self._execute(model, samples, options, Path(folder))
            contents = [Path(folder, f"output_{i}.bin").read_bytes() for i in range(len(outputs))]
        arrays = {
            t.name: np.frombuffer(data, t.dtype.numpy).reshape(-1, *t.shape)
            for t, data in zip(outputs, contents, strict=True)
        }
        # A firmware prints what its console shows, or nothing.
        is_told = printed.startswith("{")
        devices = JsonObject.parse(printed, "mace_run").strings("devices") if is_told else ()
        return SessionResult(arrays, devices)

    def _execute(self, model: str, samples: Samples, options: Sequence[str], folder: Path) -> str:
        """Run a model on samples by the program mace_run, and return what it prints."""
        paths = []
        for i, array in enumerate(fit_inputs(self.model(model)["inputs"], samples).values()):
            path = folder / f"input_{i}.bin"
            path.write_bytes(array.tobytes())
            paths.append(str(path))
        options = [*options, *self.list_session_options(model)]
        return self.execute("mace_run", [f"--model={model}", *options, f"--output={folder}", *paths])

    def list_session_options(self, model: str) -> list[str]:
        """Return the arguments by which the programs ask for the device; none where a model has no choice."""
        if not self.device_options:
            return []
        targets = dict.fromkeys(part.target for part in self.figures(model).parts)
        options = [self.device_options[name] for name in targets if name in self.device_options]
        return [f"--options={SEPARATOR.join(options)}"] if options else []

    def layers(self, model: str, sample: Samples) -> dict[str, Array]:
        """Return the result of every layer for one sample, by the name of the tensor."""
        tensors: dict[str, Array] = {}
        with tempfile.TemporaryDirectory() as folder:
            self._execute(model, sample, [f"--layers={folder}"], Path(folder))
            for number, layer in enumerate(self.figures(model).layers):
                file = Path(folder, f"layer_{number}.bin")
                # A call that only other levels than this processor's make writes nothing.
                if layer.levels and not file.exists():
                    continue
                tensors[layer.result.name] = np.frombuffer(
                    file.read_bytes(), layer.result.dtype.numpy
                ).reshape(layer.result.shape)
        return tensors

    def time(self, model: str, threads: int = 1, rounds: int = 20, layers: bool = False) -> Timing:
        """Time a model with the program mace_benchmark."""
        arguments = [
            f"--model={model}",
            f"--threads={threads}",
            f"--rounds={rounds}",
            f"--layers={int(layers)}",
            *([f"--compiled={self.compiled}"] if self.compiled else []),
            *self.list_session_options(model),
        ]
        printed = JsonObject.parse(self.execute("mace_benchmark", arguments), "mace_benchmark")
        return Timing.of_json(printed, self.runner.timing, self.programs.name)

    def execute(self, program: str, arguments: Sequence[str]) -> str:
        """Run a program of the library and return what it prints; MaceError with its stderr if it fails."""
        command = self.runner.command(self.programs / program, arguments)
        try:
            done = subprocess.run(  # noqa: S603  # we built the program
                command, capture_output=True, text=True, encoding="utf-8", errors="replace", check=False
            )
        except FileNotFoundError:
            raise self._refuse_missing(program) from None
        if not done.returncode:
            return done.stdout
        message = done.stderr.strip()
        # An emulator may fail silently where there is no program. Runners of projects start another file, so
        # that a missing one alone is no fault.
        if not message and not (self.programs / program).is_file():
            raise self._refuse_missing(program)
        # A program says what to do behind the last semicolon, as every message does.
        message, _, remedy = message.rpartition("; ") if "; " in message else (message, "", "")
        problem = f"exited with status {done.returncode}: {message or 'it printed nothing'}"
        raise MaceError(program, problem, remedy or "correct its input, or report a bug")

    def _refuse_missing(self, program: str) -> MaceError:
        """Return the error for a program that is not built."""
        choice = self.programs.name
        build = f"run: scons target={choice}, or mace build FILE --target {choice}"
        return MaceError(self.programs / program, "is not there: its build is not finished, or failed", build)
