"""Commands of `mace`: what each does and prints, and the options that reach what it calls; no compiler runs."""

from __future__ import annotations

import json
import runpy
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from engine_stand_in import StandIn

from mace_core import commands
from mace_core.cli import main
from mace_core.commands import load_job
from mace_core.errors import MaceError
from mace_core.run import ready
from mace_core.run.built_library import BuiltLibrary
from mace_core.run.check import LibraryCheck, benchmark_library
from mace_core.run.results import Failure, Validation

DIGITS = Path(__file__).parents[2] / "models/digits"
STORED = "validation_outputs_data: test_outputs.npy"


@pytest.fixture(scope="module")
def stand_in() -> StandIn:
    return StandIn(*load_job(DIGITS / "digits.yml", ""))


@pytest.fixture
def folder(tmp_path: Path, stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Digits and its built library, in the current folder."""
    for file in ("digits.onnx", "digits.yml"):
        shutil.copy(DIGITS / file, tmp_path)
    for file in ("test_inputs.npy", "test_outputs.npy", "test_labels.npy"):
        np.save(tmp_path / file, np.load(DIGITS / file)[:4])  # references take their time
    stand_in.install(tmp_path / "builds")
    stand_in.calls.clear()
    stand_in.distort = lambda name, values: values
    monkeypatch.setattr(BuiltLibrary, "execute", stand_in.execute)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def mace(*words: str, status: int = 0) -> str:
    done: Result = CliRunner().invoke(main, words)
    assert done.exit_code == status, done.output
    return done.output


def change(folder: Path, old: str, new: str) -> None:
    text = (folder / "digits.yml").read_text()
    assert old in text
    (folder / "digits.yml").write_text(text.replace(old, new))


def test_validate_compares_with_stored_outputs(folder: Path, stand_in: StandIn) -> None:
    (row,) = json.loads(mace("validate", "digits.yml", "--threads", "3", "--json"))
    assert row == row | {
        "model": "digits", "target": "host", "compared_with": "stored outputs", "passed": True,
        "accuracy": None, "library_bytes": 10, "latency_ns": 10500.0, "timing": "measured",
        "arena_bytes": stand_in.report.models["digits"].arena_bytes, "pixels": 1.0,
    }  # fmt: skip
    assert (row["cosine"] > 0.999999, row["error"] < 1e-5, row["sqnr"] > 90) == (True, True, True)
    assert stand_in.calls == [
        "mace_run --model=digits --threads=3", "mace_benchmark --model=digits --threads=3 --rounds=20 --layers=0"
    ]  # fmt: skip
    text = mace("validate", "digits.yml")
    assert [word in text for word in ("passed", "digits: compared with stored outputs", "FAILED")] == [
        True,
        True,
        False,
    ]


def test_validate_fails_where_numbers_are_wrong(folder: Path, stand_in: StandIn) -> None:
    stand_in.distort = lambda name, values: values[..., ::-1]
    assert "FAILED" in mace("validate", "digits.yml", status=1)
    assert json.loads(mace("validate", "digits.yml", "--json", status=1))[0]["passed"] is False


def test_validate_compares_with_the_framework_where_nothing_is_stored(
    folder: Path, stand_in: StandIn
) -> None:
    change(folder, STORED, "")
    (row,) = json.loads(mace("validate", "digits.yml", "--json"))
    assert row["compared_with"].startswith("ONNX Runtime ")
    change(folder, "validation_inputs_data: test_inputs.npy", "")
    assert json.loads(mace("validate", "digits.yml", "--json", "--model", "digits"))[0]["passed"] is True


def test_a_model_that_cannot_be_compared_is_a_problem_of_its_own(folder: Path) -> None:
    change(folder, "validation_inputs_data: test_inputs.npy", "")
    said = mace("validate", "digits.yml", status=2)
    assert said.endswith(
        "mace: model 'digits': has validation_outputs_data without validation_inputs_data; name the inputs of these outputs\n"
    )


def test_validate_compares_layers(folder: Path, stand_in: StandIn) -> None:
    rows = json.loads(mace("validate", "digits.yml", "--layers", "--json"))
    assert {(row["stage"], row["passed"], row["model"], row["target"]) for row in rows} == {
        ("read", True, "digits", "host"), ("computed", True, "digits", "host")
    }  # fmt: skip
    layers = [layer.result.name for layer in stand_in.report.models["digits"].layers]
    assert [row["tensor"] for row in rows if row["stage"] == "computed"] == layers
    assert stand_in.calls == ["mace_run --model=digits --threads=1", "mace_run --model=digits"][1:]
    assert mace("validate", "digits.yml", "--layers").endswith("no layer is wrong\n")
    wrong = layers[1]
    stand_in.distort = lambda name, values: 1 - values if name == wrong else values
    said = mace("validate", "digits.yml", "--layers", status=1)
    op = next(row["op"] for row in rows if row["tensor"] == wrong and row["stage"] == "computed")
    assert said.endswith(f"first wrong: {wrong} ({op}), as computed\n")
    rows = json.loads(mace("validate", "digits.yml", "--layers", "--json", status=1))
    assert [row["tensor"] for row in rows if not row["passed"]] == layers[1:3], (
        "the next layer is fed what the wrong one gave"
    )


def test_layers_may_be_chosen_in_the_deployment_file(folder: Path, stand_in: StandIn) -> None:
    chosen = stand_in.report.models["digits"].layers[0].result.name
    change(folder, "    runtime: cpu\n", f"    runtime: cpu\n    check_tensors: [{chosen}]\n")
    rows = json.loads(mace("validate", "digits.yml", "--layers", "--json"))
    assert {row["tensor"] for row in rows} == {chosen}
    change(folder, f"[{chosen}]", f"[{chosen}, no_such:0]")
    said = mace("validate", "digits.yml", "--layers", status=2)
    assert "check_tensors: no_such: no tensor of the built model or of its framework" in said


def test_run_writes_each_output(folder: Path, stand_in: StandIn) -> None:
    text = mace("run", "digits.yml", "--threads", "2", "--output", "out")
    assert text == "probabilities: out/probabilities.npy\n"
    expected = np.load("test_outputs.npy")
    np.testing.assert_allclose(np.load("out/probabilities.npy"), expected.reshape(-1, 1, 10), atol=1e-5)
    np.save("one.npy", np.load("test_inputs.npy")[2:3])
    said = mace("run", "digits.yml", "--input", "image=one.npy", "--output", "one", "--json")
    assert json.loads(said) == {"probabilities": "one/probabilities.npy"}
    np.testing.assert_allclose(np.load("one/probabilities.npy")[0], expected[2:3].reshape(1, 10), atol=1e-5)
    assert stand_in.calls == ["mace_run --model=digits --threads=2", "mace_run --model=digits --threads=1"]


def test_benchmark_times_models_and_layers(folder: Path, stand_in: StandIn) -> None:
    (row,) = json.loads(mace("benchmark", "digits.yml", "--rounds", "3", "--threads", "2", "--json"))
    assert (row["model"], row["ns"], row["threads"], row["layers"]) == ("digits", [1000, 2000, 3000], 2, [])
    assert "0.001" in mace("benchmark", "digits.yml", "--layers")
    assert stand_in.calls == [
        "mace_benchmark --model=digits --threads=2 --rounds=3 --layers=0",
        "mace_benchmark --model=digits --threads=1 --rounds=50 --layers=1",
    ]


def test_benchmark_beside_the_framework(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mace_core.run import compare_speed as module
    from mace_core.run.results import Timing

    calls = []

    def compare(place: Path, choice: Any, model: Any, registry: Any, rounds: int) -> Timing:
        calls.append((place, choice.text, model.name, rounds))
        return Timing(model.name, (1e6,), framework="acme", framework_ns=(2e6,))

    monkeypatch.setattr(module, "compare_speed", compare)
    (row,) = json.loads(mace("benchmark", "digits.yml", "--against-framework", "--rounds", "4", "--json"))
    assert (row["framework"], calls) == ("acme", [(Path("builds/digits"), "host", "digits", 4)])
    assert "0.50" in mace("benchmark", "digits.yml", "--against-framework")


def test_benchmark_goes_on_where_one_framework_refuses_its_model(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mace_core.run import compare_speed as module
    from mace_core.run.results import Timing

    def compare(place: Path, choice: Any, model: Any, registry: Any, rounds: int) -> Timing:
        if model.name == "digits":
            raise MaceError("digits.onnx", "is refused", "validate against stored data instead")
        return Timing(model.name, (1e6,), framework="acme", framework_ns=(2e6,))

    monkeypatch.setattr(module, "compare_speed", compare)
    head, models, first = (folder / "digits.yml").read_text().partition("models:\n")
    assert "  digits:\n" in first
    second = first.replace("  digits:\n", "  other:\n")
    (folder / "two.yml").write_text(head + models + first + second)
    output = mace("benchmark", "two.yml", "--against-framework", status=2)
    assert "0.50" in output
    assert "digits.onnx: is refused; validate against stored data instead" in output


def test_the_rules_of_scons_check_and_time_the_same(folder: Path, stand_in: StandIn) -> None:
    parsed, choice, registry = load_job(folder / "digits.yml", "")
    place, labels = folder / "builds/digits", folder / "test_labels.npy"
    for accuracy, passed in ((0.5, True), (1.01, False)):
        (row,) = LibraryCheck(parsed, place, choice, labels, accuracy).run(registry)
        assert isinstance(row, Validation)
        assert (row.passed, 0.9 < (row.accuracy or 0) <= 1) == (passed, True)
    share = row.accuracy or 0
    (row,) = LibraryCheck(parsed, place, choice, labels, share).run(registry)
    assert row.passed, "the smallest share that passes"
    (row,) = LibraryCheck(parsed, place, choice).run(registry)
    assert isinstance(row, Validation)
    assert row.accuracy is None
    stand_in.calls.clear()
    (timing,) = benchmark_library(parsed, place, choice, registry, 5)
    assert (len(timing.ns), [layer.ns for layer in timing.layers]) == (5, [7, 9])
    assert stand_in.calls == ["mace_benchmark --model=digits --threads=1 --rounds=5 --layers=1"]


MISTAKES = """
run digits.yml --output o --model other | --model other: no such model; models in this deployment: digits
run digits.yml --output o --input image | --input: 'image' is not of the form NAME=FILE; write for example --input x=x.npy
run digits.yml --output o --reset 2 | --reset: model 'digits' keeps no states; leave it out
run digits.yml --output o --input x=test_inputs.npy | input 'x': the model has no such input; it has 'image'
run digits.yml --output o --reset -1 | Invalid value for '--reset'
run digits.yml --output o --threads 0 | Invalid value for '--threads'
run digits.yml --output o --threads 257 | Invalid value for '--threads'
validate digits.yml --builds no | no/digits: is not built for host; run: scons target=host, or mace build FILE
validate digits.yml --model other | --model other: no such model; models in this deployment: digits
validate digits.yml --target host,arm64 | target=host,arm64: names several choices; name one; only `scons target=...`
explain digits.yml --target nowhere | nowhere
explain | Missing argument 'DEPLOYMENT'; only --passes works without it.
explain --passes digits.yml | --passes takes no deployment file: the order is the same for all models.
init a.onnx b.bin c.bin | c.bin: too many files; give the model file, and the file of its weights if it is a
build digits.yml --jobs 0 | Invalid value for '--jobs'
benchmark digits.yml --rounds 0 | Invalid value for '--rounds'
new target a --kind x | --kind x: no such kind of targets; choose one of cpu, device, blob, project
new frontend a --kind cpu | --kind cpu: a frontend has no kinds; leave it out
new target A | name 'A': is not a plugin name; use small letters, digits and single hyphens, a letter first
"""


@pytest.mark.parametrize("row", MISTAKES.strip().splitlines())
def test_mistakes_are_one_message_and_status_2(folder: Path, row: str) -> None:
    words, _, said = row.partition(" | ")
    assert said in mace(*words.split(), status=2)
    assert not (folder / "o").exists()


def test_a_defect_has_status_3(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "explain_deployment", lambda *words: 1 / 0)
    assert "ZeroDivisionError" in mace("explain", "digits.yml", status=3)


def test_convert_writes_sources_and_headers(folder: Path) -> None:
    result = json.loads(mace("convert", "digits.yml", "--output", "c", "--json"))
    files = sorted(str(p) for p in Path("c").rglob("*") if p.is_file())
    assert sorted(result["files"]) == files
    assert {"c/digits.h", "c/digits.c", "c/mace.h"} & {
        f.replace("include/", "").replace("src/", "") for f in files
    }
    lines = mace("convert", "digits.yml", "--output", "c").splitlines()
    assert lines == [*(f"note: {note}" for note in result["notes"]), *result["files"]]


def test_explain_and_check_say_what_is_decided(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("check_syntax", "check_link"):  # the compiler's part
        monkeypatch.setattr(ready, name, lambda *words: None)
    (found,) = json.loads(mace("explain", "digits.yml", "--json"))
    text = mace("explain", "digits.yml")
    assert found["name"] if "name" in found else found["model"] in text
    assert "conv_f32" in text
    findings = json.loads(mace("check", "digits.yml", "--json", "--strict"))
    kinds = [finding["kind"] for finding in findings]
    assert (kinds[0], kinds[-1]) == ("computable", "ready")
    assert findings[0]["nodes"].keys() == {"cpu"}
    lines = mace("check", "digits.yml").splitlines()
    assert len(lines) == len(findings)
    assert lines[0].startswith(
        f"digits: {findings[0]['nodes']['cpu']} nodes, every one has a target for host: "
    )
    assert lines[-1].startswith("digits.yml: ready for target=host with toolchain ")


def test_init_writes_a_deployment_file(folder: Path) -> None:
    said = mace("init", "digits.onnx", "--output", "new.yml")
    assert "new.yml" in said
    assert 'model_file_path: "digits.onnx"' in Path("new.yml").read_text()
    assert "digits.yml" in mace("init", "digits.onnx", status=2), "exists already"


def test_a_deployment_and_its_choice_are_read_together() -> None:
    parsed, choice, _ = load_job(DIGITS / "digits.yml", "arm64")
    assert (parsed.library, choice.text) == ("digits", "arm64")
    with pytest.raises(MaceError, match="names several choices"):
        load_job(DIGITS / "digits.yml", "arm64,host")


def test_models_are_found_by_their_c_name_too() -> None:
    models = (SimpleNamespace(name="a_b"), SimpleNamespace(name="c"))
    find: Callable[..., Any] = commands._find_model
    assert [find(SimpleNamespace(models=models), name).name for name in ("", "c", "a-b")] == [
        "a_b",
        "c",
        "a_b",
    ]


def test_a_failure_beside_a_validation(folder: Path, stand_in: StandIn) -> None:
    parsed, choice, registry = load_job(folder / "digits.yml", "")
    (folder / "test_outputs.npy").unlink()
    (row,) = LibraryCheck(parsed, folder / "builds/digits", choice).run(registry)
    assert isinstance(row, Failure)
    assert (row.model, row.target, row.passed) == ("digits", "host", False)
    assert "cannot be read as an array" in row.problem


@pytest.mark.filterwarnings("ignore:'mace_core.cli' found in sys.modules")
def test_the_module_is_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["mace", "--version"])
    with pytest.raises(SystemExit) as error:
        runpy.run_module("mace_core.cli", run_name="__main__")
    assert error.value.code == 0
    assert capsys.readouterr().out.startswith("mace, version ")
