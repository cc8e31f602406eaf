"""Runs a firmware as mace_run and mace_benchmark do: the same arguments, on an emulated microcontroller.

The emulator executes a core with its memories, the peripherals that the board layer uses, and the
accelerator. It does not model interrupt controllers (there is one interrupt, taken between two basic blocks
whenever the program lets it in; a WFI ends at once if it is pending) nor time (each read of the system timer
returns a value 1000 cycles later than the one before).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mace_core.errors import MaceError
from mace_core.ir import Array, DType, Quant, Storage
from mace_core.quantization import dequantize, quantize
from mace_target_max78000.device import Chip
from mace_target_max78000.emulator.machine import Accelerator, Machine, load_firmware
from mace_target_max78000.firmware.tensor_words import TensorBinding
from mace_target_max78000.simulate import Simulator

RESULTS = ("ml_data", "ml_data32")
"""Where main() keeps what cnn_unload() gave, 32 bits wide or 8."""


@dataclass(frozen=True)
class Outcome:
    """How a run ended.

    console: its text.  status: what main() returned.  results: the words that cnn_unload() gave; None if the
    program has none.
    """

    console: str
    status: int
    results: tuple[int, ...] | None

    @property
    def passed(self) -> bool:
        """Whether the known-answer test said so."""
        return self.status == 0 and "*** PASS ***" in self.console


def run_firmware(
    elf: bytes, device: Chip, accelerator: Accelerator, inputs: Mapping[int, Sequence[int]] | None = None
) -> Outcome:
    """Execute a firmware from reset to the end of main().

    inputs: words of other input than the program's own, by the number of the program's array; the known
    answer is then not asked. MaceError if it faults, waits for what never comes, or takes longer than two
    minutes.
    """
    firmware = load_firmware(elf)
    machine = Machine(firmware, device, accelerator)
    for number, words in (inputs or {}).items():
        machine.patch(f"input_{number}", words)
    # The known answer is that of the program's own sample; an empty one switches the comparison off.
    if inputs and "sample_output" in firmware.symbols:
        machine.patch("sample_output", (0,))
    status = machine.run()
    symbol = next((firmware.symbols[n] for n in RESULTS if n in firmware.symbols), None)
    results = machine.words(symbol) if symbol else None
    return Outcome(machine.console, status, results)


PROGRAMS = ("mace_run", "mace_benchmark")
DEPTH = 4
"""Parents that the path of a program has: bin/LIBRARY below the folder of a build, and the root."""


def main(device: Chip, arguments: Sequence[str]) -> int:
    """Run one program; the exit status, 2 with a message where it cannot."""
    try:
        options = _parse_arguments(arguments)
        program = Path(options.program)
        model, report = _read_report(program, options.model)
        runner = _Runner(device, _read_firmware(program.parent / f"{model}.elf"), report)
        sys.stdout.write(
            runner.benchmark(options) if program.name == "mace_benchmark" else runner.run(options)
        )
    except MaceError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


def _parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="mace_run", description="Execute a firmware without its board.")
    parser.add_argument(
        "program", help="FOLDER/mace_run or FOLDER/mace_benchmark; the firmware lies beside it as MODEL.elf"
    )
    parser.add_argument("--model", default="")
    parser.add_argument("--output", default="", help="folder for the results")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument(
        "--layers", default="", help="folder for what can be read of the first sample's inference"
    )
    parser.add_argument("--threads")
    parser.add_argument("inputs", nargs="*", help="a raw file of one or more samples")
    return parser.parse_intermixed_args(arguments)


def _read_report(program: Path, model: str) -> tuple[str, Mapping[str, Any]]:
    """Read what the report of a build says of a model.

    model: its name; empty for the first one. MaceError where `program` is none of a build, or the build has
    no such model.
    """
    program = program.absolute()
    remedy = f"name {' or '.join(PROGRAMS)} in the folder bin/LIBRARY of a build, as `mace convert` writes it"
    if program.name not in PROGRAMS or len(program.parents) < DEPTH:
        raise MaceError(program, "is no program of a firmware", remedy)
    path = program.parents[2] / "model" / f"{program.parent.name}.json"
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise MaceError(program, f"is no program of a firmware: {path}: {error.strerror}", remedy) from error
    except ValueError as error:
        raise MaceError(path, "is no report of a build", "build the firmware again") from error
    models = report.get("models") if isinstance(report, dict) else None
    if not isinstance(models, dict) or not models:
        raise MaceError(path, "lists no models", "build the firmware again")
    name = model or next(iter(models))
    if name not in models:
        raise MaceError(program, f"has no model {name!r}", f"name one of {', '.join(models)}")
    return name, models[name]


def _read_firmware(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise MaceError(
            path, f"the firmware cannot be read: {error.strerror}", "build it for this target"
        ) from error


def _storage(described: Mapping[str, Any]) -> Storage | None:
    """How a tensor of the report is stored; None for real numbers."""
    if "scale" not in described:
        return None
    return Storage(DType(described["dtype"]), Quant.of(described["scale"], described["zero_point"]))


class _Runner:
    """One model's firmware and what its report says of it."""

    def __init__(self, device: Chip, elf: bytes, report: Mapping[str, Any]) -> None:
        self.device = device
        self.elf = elf
        self.report = report
        self.binding = TensorBinding.read(report["feed"])

    def benchmark(self, options: argparse.Namespace) -> str:
        """Return the estimated time of an inference, as mace_benchmark writes what it measured."""
        nanoseconds = round(self.report["cycles"] * 1e9 / self.report["hertz"])
        return (
            json.dumps(
                {"model": options.model, "threads": 1, "ns": [nanoseconds] * options.rounds, "layers": []}
            )
            + "\n"
        )

    def run(self, options: argparse.Namespace) -> str:
        """Run the known-answer test, then every sample of the input file; write results to output_I.bin."""
        console = self._known_answer()
        if not options.inputs:
            return console
        (described,) = self.report["inputs"]
        samples = np.fromfile(options.inputs[0], DType(described["dtype"]).numpy).reshape(
            -1, *described["shape"]
        )
        outcomes = [self._sample(sample, described) for sample in samples]
        for i in range(len(self.report["outputs"])):
            Path(options.output, f"output_{i}.bin").write_bytes(b"".join(o[i].tobytes() for o in outcomes))
        if options.layers:
            for i, (value, layer) in enumerate(zip(outcomes[0], self.report["layers"], strict=True)):
                Path(options.layers, f"layer_{i}.bin").write_bytes(
                    value.astype(DType(layer["dtype"]).numpy).tobytes()
                )
        return console

    def _known_answer(self) -> str:
        outcome = self._execute(None)
        if not outcome.passed:
            raise MaceError(
                "known-answer test",
                f"failed: {outcome.console.strip()}",
                "the firmware does not compute what it was made for",
            )
        return outcome.console

    def _sample(self, sample: Array, described: Mapping[str, Any]) -> list[Array]:
        """Run one sample; return the outputs, each stored as the model stores it.

        Then the accelerator's results, if outputs are made of them.
        """
        storage = _storage(described) if self.binding.entry else None
        outcome = self._execute(
            self.binding.words(dequantize(sample, storage.quant) if storage else sample, self.device)
        )
        assert outcome.results is not None
        results = self.binding.arrays(outcome.results)
        if not self.binding.outputs:
            return results
        storages = map(_storage, self.report["outputs"])
        outputs = [quantize(value, s) if s else value for value, s in zip(results, storages, strict=True)]
        return [*outputs, *self.binding.blocks_of(outcome.results)]

    def _execute(self, words: Mapping[int, Sequence[int]] | None) -> Outcome:
        return run_firmware(
            self.elf, self.device, Simulator(self.device, documented=self.report["documented"]), words
        )
