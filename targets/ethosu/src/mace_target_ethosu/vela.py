"""Runs Vela, Arm's compiler, on a TensorFlow Lite file, and reads what it wrote."""

from __future__ import annotations

import csv
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from io import BytesIO
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from mace_core.errors import MaceError
from mace_core.run.command import Command
from mace_target_ethosu.options import EthosUOptions

DISTRIBUTION = "ethos-u-vela"
OLDEST, NEWEST = (5, 2), (6, 0)
"""Versions whose output has been read: from the first on, below the second."""
INSTALL = "pip install 'mace-target-ethosu[vela]'"
FOURCC = b"COP1"
CRASHED = re.compile(r"was killed by ((?!SIGKILL|SIGTERM|SIGINT)\w.*?);")
"""What a command that ended by a signal of its own says; others come from outside, where memory is short."""
REFUSED = re.compile(r"^Warning \(supported operators\) operator: (\w+), ofm: '(.*)'$")


@dataclass(frozen=True)
class Place:
    """Where a tensor of the network lies: offset and size in bytes in a region of memory."""

    region: int
    offset: int
    bytes: int


@dataclass(frozen=True)
class CompiledNetwork:
    """What Vela makes of a network that the NPU computes completely.

    stream: the driver's payload, with the command stream.  weights: constants, compressed.
    weight_region, scratch_region, fast_region: the numbers of their regions.  scratch_bytes, fast_bytes: of
    memory; fast_bytes is 0 if tensors have one kind of memory.
    figures: Vela's summary by its own names of columns.
    """

    stream: bytes
    weights: bytes
    weight_region: int
    scratch_region: int
    scratch_bytes: int
    fast_region: int
    fast_bytes: int
    inputs: tuple[Place, ...]
    outputs: tuple[Place, ...]
    figures: Mapping[str, str]


@dataclass(frozen=True)
class OperatorRefusal:
    """An operator that Vela leaves to the CPU, by its result, with Vela's reason."""

    code: str
    output: str
    reason: str


def find_fault() -> str | None:
    """Return what to install so that Vela runs here; None if it does."""
    try:
        installed = version(DISTRIBUTION)
    except PackageNotFoundError:
        return f"Vela, Arm's compiler, is not installed: {INSTALL}"
    numbers = tuple(int(number) for number in re.findall(r"\d+", installed)[:2])
    if not OLDEST <= numbers < NEWEST or find_spec("ethosu") is None:
        return f"Vela {installed} is not one of 5.2 to 5.x, whose output is known here: {INSTALL}"
    return None


def vela_version() -> str:
    """Return the version of the installed Vela."""
    return version(DISTRIBUTION)


def compile_network(tflite: bytes, options: EthosUOptions, name: str) -> CompiledNetwork:
    """Compile a file; MaceError with Vela's words if it cannot, or would leave an operator to the CPU."""
    with TemporaryDirectory() as folder:
        lines = _run(tflite, options, Path(folder), ("--output-format", "raw"), name)
        raw = _find(Path(folder), "*_vela.npz", name, lines)
        summary = _find(Path(folder), "*_summary_*.csv", name, lines)
        return _read_network(raw.read_bytes(), _read_summary(summary), name)


def list_refusals(tflite: bytes, options: EthosUOptions, name: str) -> list[OperatorRefusal]:
    """Return every operator of a file that Vela leaves to the CPU."""
    with TemporaryDirectory() as folder:
        return read_refusals(_run(tflite, options, Path(folder), (), name))


def read_refusals(lines: Sequence[str]) -> list[OperatorRefusal]:
    """Return the operators that Vela's output says it leaves to the CPU."""
    refusals = []
    for number, line in enumerate(lines):
        if match := REFUSED.match(line):
            behind = lines[number + 1] if number + 1 < len(lines) else ""
            refusals.append(OperatorRefusal(match[1], match[2], behind.removeprefix("Reason: ")))
    return refusals


def _run(
    tflite: bytes, options: EthosUOptions, folder: Path, arguments: Sequence[str], name: str
) -> list[str]:
    """Run Vela on a file in a folder of its own; return the lines that it prints."""
    (folder / "network.tflite").write_bytes(tflite)
    # In a process of its own: a fault in Vela's C++ is an error of this region, not the end of the build.
    words = (sys.executable, "-P", "-m", "ethosu.vela", "network.tflite", "--output-dir", "output")
    lines: list[str] = []
    command = Command((*words, *_arguments(options), *arguments), folder, os.environ, name)
    try:
        command.execute(lines.append)
    except MaceError as error:
        raise _explain_failure(str(error), name) from None
    return lines


def _arguments(options: EthosUOptions) -> list[str]:
    """Return the options as Vela's command line has them."""
    arguments = ["--accelerator-config", options.accelerator]
    if options.system_config:
        arguments += ["--system-config", options.system_config]
    if options.memory_mode:
        arguments += ["--memory-mode", options.memory_mode]
    if options.arena_cache_size is not None:
        arguments += ["--arena-cache-size", str(options.arena_cache_size)]
    return arguments


def _explain_failure(printed: str, name: str) -> MaceError:
    """Return an error with Vela's reasons instead of its traceback."""
    if crash := CRASHED.search(printed):
        # A fault of Vela: no option of the user made it, and nothing that Vela printed tells where.
        problem = f"Vela {vela_version()} crashed ({crash[1]}) on this region"
        remedy = "give its nodes to another target or accelerator, and report it to Arm as a fault of Vela"
        return MaceError(name, problem, remedy)
    lines = printed.splitlines()
    refusals = [f"{r.code} ({r.output!r}): {r.reason}" for r in read_refusals(lines)]
    # The last line of a traceback, what Vela's parser of options prints, and Vela's own errors.
    errors = [line for line in lines if re.match(r"(\w+\.)*\w*Error: |.*vela: error: |Error: ", line)]
    complaint = "; ".join([*refusals, *errors]) or printed
    remedy = "correct the options of target 'ethosu', or give these nodes to another target"
    return MaceError(name, f"Vela does not compile it: {complaint}", remedy)


def _find(folder: Path, pattern: str, name: str, lines: Sequence[str]) -> Path:
    """Return the one file of a pattern that Vela wrote."""
    candidates = sorted((folder / "output").glob(pattern))
    if len(candidates) != 1:
        printed = "\n".join(lines)
        raise MaceError(
            name, f"Vela wrote {len(candidates)} files {pattern}\n{printed}", "report a bug of MACE"
        )
    return candidates[0]


def _read_summary(file: Path) -> Mapping[str, str]:
    with file.open(newline="", encoding="utf-8") as opened:
        return next(csv.DictReader(opened))


def _read_network(content: bytes, figures: Mapping[str, str], name: str) -> CompiledNetwork:
    """Read the arrays of Vela's raw output; those that hold Python objects are left alone."""
    # Vela pickles quantization into the file as dictionaries; they are not needed, and a pickle can run code.
    with np.load(BytesIO(content), allow_pickle=False) as raw:
        stream, weights = raw["cmd_data"].tobytes(), raw["weight_data"].tobytes()
        # With `--separate-io-regions` Vela writes COP2, which the driver does not read.
        if stream[:4] != FOURCC or len(stream) % 4:
            raise MaceError(name, "Vela wrote no payload of the form COP1", f"install Vela 5.2: {INSTALL}")
        if raw["variable_region"].size:
            raise MaceError(name, "the network keeps variables", "let the application keep its states")
        return CompiledNetwork(
            stream,
            weights,
            int(raw["weight_region"]),
            int(raw["scratch_region"]),
            int(raw["scratch_size"]),
            int(raw["scratch_fast_region"]),
            int(raw["scratch_fast_size"]),
            _read_places(raw, "input"),
            _read_places(raw, "output"),
            figures,
        )


def _read_places(raw: Mapping[str, np.ndarray], kind: str) -> tuple[Place, ...]:
    columns = (raw[f"{kind}_{column}"] for column in ("region", "offset", "shape", "elem_size"))
    return tuple(
        Place(int(region), int(offset), prod(map(int, shape)) * int(size))
        for region, offset, shape, size in zip(*columns, strict=True)
    )
