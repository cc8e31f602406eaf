"""Calls `ncc-tflite` of the vendor's NeuroPilot SDK, with the options that its own help advertises."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import tflite as schema

from mace_core.errors import MaceError
from mace_core.run.command import Command
from mace_target_mdla.compilers.compiled import STAMP, Compiled, VendorCompiler
from mace_target_mdla.network import NetworkKind
from mace_target_mdla.options import MdlaOptions

PROGRAM = "ncc-tflite"
SDK = "NEUROPILOT_SDK"
"""Environment variable: the folder of the SDK."""
FOLDERS = ("host/bin", "neuron_sdk/host/bin")
"""Where in the SDK the compiler lies."""
VERSION = re.compile(r"\d+\.\d+(?:\.\d+)*")
FLAG = re.compile(r"(?<![\w-])--?[a-z][\w-]*")
ARCHITECTURE = re.compile(r"\bmdla\d\.\d\b")
SOURCE, PRODUCT = "network.tflite", "network.dla"


@dataclass(frozen=True)
class Advertised:
    """What a compiler says of itself.

    flags: every option in its help.  architectures: generations that the help names; () if it names none.
    """

    version: str
    flags: frozenset[str]
    architectures: tuple[str, ...]


@dataclass(frozen=True)
class NccCompiler(VendorCompiler):
    """The compiler of one folder. program: None if there is none.  sdk: the folder of the SDK that has it."""

    name = "ncc"
    options: MdlaOptions
    program: Path | None
    sdk: Path | None

    @classmethod
    def of(cls, options: MdlaOptions, environment: Mapping[str, str] = os.environ) -> NccCompiler:
        """Return the compiler that the option `ncc` names, else the SDK's, else that in PATH."""
        if options.ncc:
            return cls(options, Path(options.ncc), None)
        folder = environment.get(SDK)
        if folder:
            candidates = [Path(folder) / inner / PROGRAM for inner in FOLDERS]
            program = next((path for path in candidates if path.is_file()), None)
            return cls(options, program, Path(folder))
        in_path = shutil.which(PROGRAM, path=environment.get("PATH", ""))
        return cls(options, Path(in_path) if in_path else None, None)

    def find_fault(self) -> str | None:
        """Return where it was looked for; None if it is there."""
        if self.program is not None:
            return None
        if self.sdk is not None:
            places = " or ".join(f"{folder}/{PROGRAM}" for folder in FOLDERS)
            return f"{SDK} is {self.sdk}, which has no {places}"
        return f"{PROGRAM} is not in PATH, and {SDK} is not set"

    def compile(self, tflite: bytes, place: str) -> Compiled:
        """Compile a file for the generation; MaceError with the compiler's words, or if it wrote nothing."""
        # Options change between versions of the SDK, so none is used that this compiler's help does not name.
        advertised = self.probe(place)
        self._check(advertised, place)
        arguments = self._arguments(advertised, tflite)
        with TemporaryDirectory() as folder:
            (Path(folder) / SOURCE).write_bytes(tflite)
            self._run(arguments, Path(folder), place)
            product = Path(folder) / PRODUCT
            content = product.read_bytes() if product.is_file() else b""
        if not content:
            raise MaceError(
                place, f"{PROGRAM} {advertised.version} wrote no network", "look at what it prints"
            )
        return Compiled(
            content,
            NetworkKind.DLA,
            PROGRAM,
            advertised.version,
            (PROGRAM, *arguments),
            _version_in(self.sdk.name) if self.sdk else "",
        )

    def probe(self, place: str) -> Advertised:
        """Ask the program for version and help; MaceError if it tells no version."""
        with TemporaryDirectory() as folder:
            printed = " ".join(self._run(["--version"], Path(folder), place))
            help_text = "\n".join(self._run(["--help"], Path(folder), place))
        if not VERSION.search(printed):
            problem = f"{self.program} --version tells no version: {printed[:80]!r}"
            raise MaceError(place, problem, f"install the SDK again, or name its {PROGRAM} by the option ncc")
        # Whatever stands beside the number is kept, because a stamp of a test double would.
        described = printed.strip()[:80] if STAMP.decode() in printed else _version_in(printed)
        architectures = tuple(dict.fromkeys(ARCHITECTURE.findall(help_text)))
        return Advertised(described, frozenset(FLAG.findall(help_text)), architectures)

    def _check(self, advertised: Advertised, place: str) -> None:
        """Raise MaceError if compiler, SDK and chip do not fit together."""
        architecture = _architecture(self.options)
        if advertised.architectures and architecture not in advertised.architectures:
            problem = f"{PROGRAM} {advertised.version} does not compile for {architecture}"
            known = ", ".join(advertised.architectures)
            raise MaceError(place, problem, f"it knows {known}: install the SDK of this chip")
        if missing := {"--arch", "-d"} - advertised.flags:
            problem = f"{PROGRAM} {advertised.version} has no option {', '.join(sorted(missing))}"
            raise MaceError(place, problem, "install an SDK of NeuroPilot 5 to 8")
        sdk = _version_in(self.sdk.name) if self.sdk else ""
        if sdk and sdk.split(".")[0] != _version_in(advertised.version).split(".")[0]:
            problem = (
                f"{PROGRAM} {advertised.version} does not belong to the SDK {sdk} "
                "(inferred: no source says that parts of one SDK share a major version)"
            )
            raise MaceError(place, problem, f"set {SDK} to the folder of one SDK")

    def _arguments(self, advertised: Advertised, tflite: bytes) -> list[str]:
        """Return the command line behind the program."""
        arguments = [f"--arch={_architecture(self.options)}"]
        if _has_floats(tflite) and "--relax-fp32" in advertised.flags:
            arguments.append("--relax-fp32")
        # NeuroPilot 6 has `-o` for the outputs of its mode of execution.
        return [*arguments, "-d", PRODUCT, SOURCE]

    def _run(self, arguments: list[str], folder: Path, place: str) -> list[str]:
        lines: list[str] = []
        words = (str(self.program), *arguments)
        Command(words, folder, os.environ, place, slow="the vendor's compiler").execute(lines.append)
        return lines


def _architecture(options: MdlaOptions) -> str:
    return f"mdla{options.generation}"


def _version_in(text: str) -> str:
    """Return the first version number in a text; "" without one."""
    match = VERSION.search(text)
    return match[0] if match else ""


def _has_floats(tflite: bytes) -> bool:
    """Tell whether a file has tensors of single precision, which the hardware computes in half precision."""
    graph = schema.Model.GetRootAs(tflite, 0).Subgraphs(0)
    types = {graph.Tensors(i).Type() for i in range(graph.TensorsLength())}
    return schema.TensorType.FLOAT32 in types
