"""Programs of a built library: files and options that they get, and what is said where one is missing or fails."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest

from mace_core.errors import MaceError
from mace_core.ir import DType, Tensor
from mace_core.report import LayerReport, LibraryReport, ModelReport
from mace_core.run.built_library import BuiltLibrary
from mace_core.run.results import LayerTime
from mace_core.run.runners import Native, Runner


class Scripted(Runner):
    """Runs a line of Python in the place of each program, as emulators do."""

    name = "scripted"

    def __init__(self, line: str) -> None:
        self.line = line

    def command(self, program: Path, arguments: Iterable[str]) -> list[str]:
        return [sys.executable, "-P", "-c", self.line]


def execute(folder: Path, runner: Runner) -> str:
    return BuiltLibrary(folder / "arm64", runner, LibraryReport({})).execute("mace_run", [])


@pytest.mark.parametrize(
    "runner", [Native(), Scripted("raise SystemExit(1)")], ids=["native", "silent emulator"]
)
def test_a_missing_program_is_named_with_the_command_that_builds_it(tmp_path: Path, runner: Runner) -> None:
    with pytest.raises(MaceError) as error:
        execute(tmp_path, runner)
    assert str(error.value) == (
        f"{tmp_path / 'arm64' / 'mace_run'}: is not there: its build is not finished, or failed; "
        "run: scons target=arm64, or mace build FILE --target arm64"
    )


def test_a_program_that_fails_is_quoted(tmp_path: Path) -> None:
    with pytest.raises(
        MaceError, match="mace_run: exited with status 1: known-answer test; correct its input"
    ):
        execute(tmp_path, Scripted("raise SystemExit('known-answer test')"))
    with pytest.raises(MaceError) as error:
        execute(tmp_path, Scripted("raise SystemExit('model: status 6: no device; install its driver')"))
    assert str(error.value).endswith("exited with status 1: model: status 6: no device; install its driver")
    (tmp_path / "arm64").mkdir()
    (tmp_path / "arm64" / "mace_run").write_text("")
    with pytest.raises(MaceError, match="exited with status 3: it printed nothing"):
        execute(tmp_path, Scripted("raise SystemExit(3)"))


def test_what_a_program_prints_is_returned(tmp_path: Path) -> None:
    assert execute(tmp_path, Scripted("print('done')")) == "done\n"


@dataclass(frozen=True)
class Recorded(BuiltLibrary):
    """A library whose programs are a function: it gets the options and the bytes of the inputs."""

    write: Callable[[dict[str, str], list[bytes]], str] = lambda options, inputs: ""
    calls: list[tuple[str, dict[str, str], list[bytes]]] = field(default_factory=list)

    def execute(self, program: str, arguments: Sequence[str]) -> str:
        options = dict(word[2:].split("=", 1) for word in arguments if word.startswith("--"))
        inputs = [Path(word).read_bytes() for word in arguments if not word.startswith("--")]
        folders = {key: value for key, value in options.items() if key in ("output", "layers")}
        shown = {key: value for key, value in options.items() if key not in ("output",) and "/" not in value}
        self.calls.append((program, shown, inputs))
        return self.write(folders, inputs)


A, B = Tensor("a", DType.F32, (2,)), Tensor("b", DType.U8, (1, 3))
Y, Z = Tensor("y", DType.I16, (2, 2)), Tensor("z", DType.F32, ())
A_DATA = np.array([[1, 2], [3, 4]], np.float32)
B_DATA = np.array([[[5, 6, 7]], [[8, 9, 10]]], np.uint8)


def recorded(write: Callable[[dict[str, str], list[bytes]], str], *layers: LayerReport) -> Recorded:
    model = ModelReport(0, 0, 0, 0, (A, B), (Y, Z), layers)
    return Recorded(Path("arm64"), Native(), LibraryReport({"m": model, "n": model}), write)


def test_samples_become_files_and_files_become_outputs() -> None:
    def write(folders: dict[str, str], inputs: list[bytes]) -> str:
        Path(folders["output"], "output_0.bin").write_bytes(np.arange(8, dtype=np.int16).tobytes())
        Path(folders["output"], "output_1.bin").write_bytes(np.array([0.5, 1.5], np.float32).tobytes())
        return ""

    library = recorded(write)
    outputs = library.run("m", {"b": B_DATA, "a": A_DATA})
    assert {name: (array.dtype.name, array.tolist()) for name, array in outputs.items()} == {
        "y": ("int16", [[[0, 1], [2, 3]], [[4, 5], [6, 7]]]),
        "z": ("float32", [0.5, 1.5]),
    }
    library.run("n", {"a": A_DATA, "b": B_DATA}, 3, reset=1)
    inputs = [A_DATA.tobytes(), B_DATA.tobytes()]
    assert library.calls == [
        ("mace_run", {"model": "m", "threads": "1"}, inputs),
        ("mace_run", {"model": "n", "threads": "3", "reset": "1"}, inputs),
    ]


def test_layers_of_other_levels_may_write_nothing() -> None:
    def write(folders: dict[str, str], inputs: list[bytes]) -> str:
        for number in numbers:
            Path(folders["layers"], f"layer_{number}.bin").write_bytes(bytes([number, 0, 1, 0, 2, 0, 3, 0]))
        return ""

    layers = [
        LayerReport("first", replace(Y, name="l0")),
        LayerReport("wide", replace(Y, name="l1"), levels=("avx2",)),
        LayerReport("narrow", replace(Y, name="l2"), levels=("sse2",)),
    ]
    library = recorded(write, *layers)
    sample = {"a": A_DATA[:1], "b": B_DATA[:1]}
    numbers = [0, 2]
    results = library.layers("m", sample)
    assert {name: array.tolist() for name, array in results.items()} == {
        "l0": [[0, 1], [2, 3]],
        "l2": [[2, 1], [2, 3]],
    }
    assert library.calls[0][1:] == ({"model": "m"}, [A_DATA[:1].tobytes(), B_DATA[:1].tobytes()])
    # What every level computes must be there.
    numbers = [1]
    with pytest.raises(FileNotFoundError):
        library.layers("m", sample)


def test_a_model_is_timed_by_rounds_and_threads() -> None:
    printed = (
        '{"model": "m", "ns": [3, 1, 2], "threads": 2, "layers": [{"name": "c", "kernel": "k", "ns": 7}, '
        '{"name": "d", "kernel": "k", "number": 3, "ns": 8, "is_of_device": true}]}'
    )
    library = recorded(lambda folders, inputs: printed)
    timing = library.time("m", 2, 3, layers=True)
    assert (timing.median, timing.threads, timing.layers, timing.target, timing.timing) == (
        2, 2, (LayerTime("c", "k", 7), LayerTime("d", "k", 8, 3, True)), "arm64", Native.timing,
    )  # fmt: skip
    library.time("m")
    assert [call[:2] for call in library.calls] == [
        ("mace_benchmark", {"model": "m", "threads": "2", "rounds": "3", "layers": "1"}),
        ("mace_benchmark", {"model": "m", "threads": "1", "rounds": "20", "layers": "0"}),
    ]


class NotReady(Native):
    def missing(self) -> str:
        return "start the board"


def test_what_is_built_is_opened_and_what_is_missing_named(tmp_path: Path) -> None:
    folder = tmp_path / "lib"
    with pytest.raises(MaceError) as error:
        BuiltLibrary.open(folder, "arm64", Native())
    remedy = "run: scons target=arm64, or mace build FILE --target arm64"
    assert str(error.value) == f"{folder}: is not built for arm64; {remedy}"
    with pytest.raises(MaceError, match="is not built for"):
        BuiltLibrary.open(tmp_path / ("x" * 5000), "arm64", Native())
    (folder / "model").mkdir(parents=True)
    report = recorded(lambda folders, inputs: "").report
    (folder / "model" / "arm64.json").write_text(json.dumps(report.as_json()))
    library = BuiltLibrary.open(folder, "arm64", Native())
    assert (library.programs, library.model("n")) == (
        folder / "bin" / "arm64",
        {"inputs": [A, B], "outputs": [Y, Z]},
    )
    for runner, said in (
        (None, "arm64: no runner is available for this ABI on this machine; install an emulator"),
        (NotReady(), "arm64: native is not ready; start the board"),
    ):
        with pytest.raises(MaceError, match=said):
            BuiltLibrary.open(folder, "arm64", runner)
    with pytest.raises(MaceError, match="o: no such model in the library; its models: m, n"):
        library.figures("o")
