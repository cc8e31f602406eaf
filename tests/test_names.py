"""Names of libraries and models that mean something in C, in MACE or on some system: they build, or are refused with one message."""

from __future__ import annotations

import shutil
import subprocess
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
import yaml

from mace_core.deployment import load_deployment
from mace_core.deployment.names import OWN, c_name
from mace_core.emit import code
from mace_core.emit.text import KEYWORDS, MACROS
from mace_core.errors import MaceError
from mace_core.plan import plan_calls
from mace_core.run import native
from mace_core.run.compile import shared_library
from mace_core.testing.compiled import case, host
from mace_core.testing.requirements import require
from mace_target_cpu import Cpu

WORDS = (
    *(
        "int",
        "char",
        "float",
        "double",
        "void",
        "struct",
        "union",
        "static",
        "const",
        "return",
        "if",
        "for",
        "while",
        "switch",
        "inline",
    ),
    *(
        "class",
        "new",
        "delete",
        "this",
        "template",
        "namespace",
        "operator",
        "virtual",
        "bool",
        "true",
        "false",
        "and",
        "asm",
        "typeof",
    ),
)
PREDEFINED = (
    "linux",
    "unix",
    "i386",
    "NULL",
    "errno",
    "EOF",
    "NAN",
    "INFINITY",
    "assert",
    "stdin",
    "stdout",
    "offsetof",
    "signbit",
    "I",
)
CLASHING = (
    *(
        "kernels",
        "model",
        "models",
        "model_count",
        "choose",
        "kernels_avx2",
        "kernels_sse2",
        "weights",
        "program",
    ),
    *("a", "a_weights", "a_program"),
    *("main", "run", "args_0", "inputs", "outputs", "layers", "memcpy", "malloc", "printf", "strlen"),
    *("relu_f32", "vf", "observe_layer", "t", "in", "out"),
)
MADE = ("mobilenet-v1", "squeezenet.v1.1", "3d-pose", "1", "_x", "__x", "_X", "x" * 100)
NAMES = (*WORDS, *PREDEFINED, *CLASHING, *MADE)

REFUSED = (
    "mace",
    "MACE",
    "mace_run",
    "mace-threads",
    "con",
    "NUL",
    "lpt1",
    "aux",
    "x" * 101,
    "x" * 5000,
    "-x",
    ".x",
    "a b",
    "a/b",
)
REFUSED_TOO = ("../a", "é", "a*/", 'a"', "a\nb", "$x", "`x`", "a\\", "", "a;b")


def deployment(folder: Path, library: str, models: list[str]) -> Path:
    (folder / "m.onnx").touch()
    file = folder / "d.yml"
    content = {"library_name": library, "models": {m: {"model_file_path": "m.onnx"} for m in models}}
    file.write_text(yaml.safe_dump(content, width=10_000, sort_keys=False))
    return file


def test_there_are_enough_names() -> None:
    assert len(set(NAMES)) >= 60
    assert {*WORDS} <= KEYWORDS
    assert {*PREDEFINED} <= MACROS


@pytest.mark.exhaustive
@pytest.mark.slow
def test_models_of_every_name_in_one_library(tmp_path: Path) -> None:
    """No model's symbols or files clash with another's or with what the library has once."""
    read = load_deployment(deployment(tmp_path, "linux", [*NAMES]))
    names = [model.name for model in read.models]
    assert names == [c_name(n) for n in NAMES]
    graphs = [case("Relu", "Relu", [np.zeros(4, np.float32)]).with_name(name) for name in names]
    target = Cpu()
    programs = [target.lower(graph) for graph in graphs]
    sources = code.library("linux", [plan_calls(p) for p in programs], target.levels("host"))
    assert sorted(sources.files) == sorted(
        code.manifest("linux", names, {"cpu": target.levels("host")}).generated
    )
    assert len({file.lower() for file in sources.files}) == len(sources.files)
    models = native.load(shared_library(sources, host(), tmp_path / "out", ("-O0",)), "linux")
    assert [*models] == names
    x = np.array([-1, 2, -3, 4], np.float32)
    for model in models.values():
        np.testing.assert_array_equal(model.run({"x0": x})["y0"], [0, 2, 0, 4])


@pytest.mark.exhaustive
def test_libraries_of_every_name(tmp_path: Path) -> None:
    """The library's own sources, its header in C and in C++, and the programs beside it."""
    require(
        None
        if shutil.which("gcc") and shutil.which("g++")
        else "gcc and g++ are not installed: apt-get install g++"
    )
    target, runtime = Cpu(), files("mace_core") / "runtime"
    programs = [target.lower(case(name, "Relu", [np.zeros(4, np.float32)])) for name in ("kernels", "int")]
    for tool in ("mace_run.c", "mace_tool.h", "mace_threads.h"):
        (tmp_path / tool).write_text((runtime / tool).read_text())
    includes = []
    for written in NAMES:
        name = c_name(written)
        sources = code.library(name, [plan_calls(p) for p in programs], target.levels("host"))
        for file in ("mace.h", "mace_types.h", f"{name}.h", f"{name}.c", f"{name}_cpu_kernels.h"):
            (tmp_path / file).write_text(str(sources.files[file]))
        unit = tmp_path / f"unit_{len(includes)}.c"
        lines = (
            f'#include "{name}.c"',
            f"#define MACE_MODELS {name}_models",
            f"#define MACE_MODEL_COUNT {name}_model_count",
        )
        unit.write_text("\n".join((*lines, '#include "mace_run.c"\n')))
        includes.append(f'#include "{name}.h"\n')
    units = [f"unit_{i}.c" for i in range(len(includes))]
    subprocess.run(
        ["gcc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", *units],
        cwd=tmp_path,
        check=True,
    )
    (tmp_path / "all.cc").write_text(
        "".join(includes) + "int main() { return linux_model_count + int_model_count; }\n"
    )
    subprocess.run(
        ["g++", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "all.cc"], cwd=tmp_path, check=True
    )


@pytest.mark.parametrize("name", [*REFUSED, *REFUSED_TOO])
def test_names_that_cannot_be_are_one_message(name: str, tmp_path: Path) -> None:
    for library, model in ((name, "m"), ("lib", name)):
        file = deployment(tmp_path, library, [model])
        with pytest.raises(MaceError) as error:
            load_deployment(file)
        text = str(error.value)
        assert len(text.splitlines()) == 1
        assert len(text) < 400
        assert "d.yml:" in text


def test_names_that_change_are_noted(tmp_path: Path) -> None:
    read = load_deployment(deployment(tmp_path, "mobilenet-v1", ["mobilenet-v1.0", "plain"]))
    assert read.library == "mobilenet_v1"
    assert [m.name for m in read.models] == ["mobilenet_v1_0", "plain"]
    notes = [note.partition(": ")[2] for note in read.notes]
    assert "library_name: 'mobilenet-v1' is 'mobilenet_v1' in C and in file names" in notes
    assert "models: 'mobilenet-v1.0' is 'mobilenet_v1_0' in C and in file names" in notes
    assert not any("plain" in note for note in notes)
    for written, name in (("3d", "net_3d"), ("__x", "net__x"), ("_X", "net_X"), ("_x", "_x"), ("int", "int")):
        assert load_deployment(deployment(tmp_path, written, ["m"])).library == name
    with pytest.raises(MaceError, match="more than 100 characters"):
        load_deployment(deployment(tmp_path, "9" * 100, ["m"]))


@pytest.mark.parametrize("models", [["a-b", "a.b"], ["a-b", "a_b"], ["Net", "net"], ["3d", "net_3d"]])
def test_models_of_one_name_in_c_are_refused(models: list[str], tmp_path: Path) -> None:
    with pytest.raises(MaceError, match=f"'{models[0]}' and '{models[1]}' have one name in C"):
        load_deployment(deployment(tmp_path, "lib", models))


def test_names_of_our_own_are_all_that_clash() -> None:
    """No library but those in OWN has a symbol or a file that all libraries have."""
    import re

    runtime, templates = files("mace_core") / "runtime", files("mace_core") / "emit" / "templates"
    headers = [entry for entry in runtime.iterdir() if entry.name.endswith(".h")]
    headers += [templates / name for name in ("kernels.h.in", "kernels.c.in")]
    known = {
        word for header in headers for word in re.findall(r"\bmace_\w+", header.read_text(encoding="utf-8"))
    }
    suffixes = (
        "_models",
        "_model",
        "_model_count",
        "_functions",
        "_kernels",
        "_choose",
        "_no_level",
        "_levels",
        "_devices",
    )
    clashing = {word.removesuffix(s) for word in known for s in suffixes if word.endswith(s)}
    clashing |= {
        name.rpartition(".")[0]
        for name in (entry.name for entry in runtime.iterdir())
        if name.startswith("mace")
    } | {"mace"}
    assert clashing <= OWN
