"""A framework in a child process: what it returns, raises and prints, and that its crash is an error."""

from __future__ import annotations

import gc
import os
import signal
import tempfile
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from mace_core.api import Frontend
from mace_core.deployment import Model, Port
from mace_core.errors import MaceError
from mace_core.run.framework_process import FrameworkProcess, FrameworkProcesses

MODULE = '''
import os
import signal
import sys
import tempfile

import numpy as np

from mace_core.api import Frontend, Reference
from mace_core.errors import MaceError


class Rough(Frontend):
    """Does what its model is named after."""

    name = "rough"
    suffixes = (".rough",)

    def load(self, files, model, ops):
        raise NotImplementedError

    def reference(self, files, model):
        if model.name == "absent":
            return None
        if model.name == "refused":
            raise MaceError("m.rough", "Rough refuses it", "train it again")
        if model.name == "abort at open":
            os.abort()

        def run(arrays):
            if model.name == "abort":
                print("check failed: scale > 0", file=sys.stderr, flush=True)
                os.abort()
            if model.name == "exit":
                sys.exit(4)
            if model.name == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            if model.name == "defect":
                raise KeyError("weights")
            if model.name == "files":
                tempfile.mkstemp()
            print("this is no reply", flush=True)
            os.write(1, b"nor is this")
            return {"y": arrays["x"] * model.keys["factor"], "pid": np.array(os.getpid())}

        return Reference(run, "Rough 1.0")

    def recurrent(self, files, model):
        states = []

        def run(arrays):
            states.append(arrays["x"])
            return {"y": sum(states)}

        return Reference(run, "Rough 1.0, recurrent")
'''

KEYS = {"factor": 2}
X = {"x": np.arange(3, dtype=np.float32)}


@pytest.fixture
def rough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Frontend]:
    """A frontend of a module that the child process can import; no process leaves temporary files."""
    (tmp_path / "rough_frontend.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    frontend: Frontend = import_module("rough_frontend").Rough()
    yield frontend
    gc.collect()  # errors hold the frames that hold the processes
    assert list(temporary.iterdir()) == []


def model(name: str) -> Model:
    return Model(name, (Path("m.rough"),), inputs=(Port("x"),), keys=KEYS)


def test_a_process_computes_for_several_models_and_ends(
    rough: Frontend, capfd: pytest.CaptureFixture[str]
) -> None:
    processes = FrameworkProcesses()
    first = processes.source(rough).reference((), model("m"))
    second = processes.source(rough).reference((), model("files"))
    recurrent = processes.source(rough).recurrent((), model("m"))
    assert first is not None
    assert second is not None
    assert recurrent is not None
    assert first.runtime == "Rough 1.0"
    outputs = first(X)
    np.testing.assert_array_equal(outputs["y"], 2 * X["x"])
    assert outputs["y"].dtype == np.float32
    assert outputs["pid"] == second(X)["pid"] != os.getpid()
    assert [recurrent(X)["y"].tolist() for _ in range(2)] == [[0, 1, 2], [0, 2, 4]]
    assert processes.source(rough).reference((), model("absent")) is None
    assert capfd.readouterr().out == "", "lines of a framework are no results of the command"
    del processes, second, recurrent
    assert first(X)["pid"] == outputs["pid"], "a reference keeps its process"
    del first
    with pytest.raises(ProcessLookupError):
        os.kill(int(outputs["pid"]), 0)


def test_large_arrays_cross_whole(rough: Frontend) -> None:
    reference = FrameworkProcess(rough).reference((), model("m"))
    assert reference is not None
    image = np.random.default_rng(0).standard_normal((1, 1024, 1024, 3), np.float32)
    np.testing.assert_array_equal(reference({"x": image})["y"], 2 * image)


@pytest.mark.parametrize(
    ("name", "end"),
    [
        ("abort", "(Rough 1.0) was killed by SIGABRT"),
        ("exit", "(Rough 1.0) failed with exit status 4"),
        ("killed", "(Rough 1.0) was killed by SIGKILL, perhaps because memory is short"),
    ],
)
def test_a_crash_is_an_error_and_the_next_model_computes(
    rough: Frontend, capfd: pytest.CaptureFixture[str], name: str, end: str
) -> None:
    process = FrameworkProcess(rough)
    reference = process.reference((), model(name))
    assert reference is not None
    remedy = "name files under validation_inputs_data and validation_outputs_data to validate without it"
    for _ in range(2):
        with pytest.raises(MaceError) as error:
            reference(X)
        assert str(error.value) == f"model {name!r}: the framework behind 'rough' {end}; {remedy}"
    assert ("check failed" in capfd.readouterr().err) == (name == "abort")
    following = process.reference((), model("m"))
    assert following is not None
    np.testing.assert_array_equal(following(X)["y"], 2 * X["x"])


def test_a_crash_while_a_model_is_opened(rough: Frontend) -> None:
    with pytest.raises(
        MaceError, match="model 'abort at open': the framework behind 'rough' was killed by SIGABRT;"
    ):
        FrameworkProcess(rough).reference((), model("abort at open"))


def test_errors_arrive_as_they_were_raised(rough: Frontend) -> None:
    process = FrameworkProcess(rough)
    with pytest.raises(MaceError) as refused:
        process.reference((), model("refused"))
    assert str(refused.value) == "m.rough: Rough refuses it; train it again"
    assert refused.value.relocate("model 'm'") == "model 'm': Rough refuses it; train it again"
    reference = process.reference((), model("defect"))
    assert reference is not None
    with pytest.raises(RuntimeError, match=r"^KeyError: 'weights'") as defect:
        reference(X)
    assert "rough_frontend.py" in defect.value.__notes__[0], "the report has the traceback of the child"


def test_an_interrupt_ends_the_process_without_a_word(
    rough: Frontend, capfd: pytest.CaptureFixture[str]
) -> None:
    reference = FrameworkProcess(rough).reference((), model("m"))
    assert reference is not None
    os.kill(int(reference(X)["pid"]), signal.SIGINT)
    with pytest.raises(MaceError, match="was killed by SIGINT"):
        reference(X)
    assert "Traceback" not in capfd.readouterr().err


def test_frontends_of_plain_python_stay_in_this_process(
    rough: Frontend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(rough), "is_native", False)
    assert FrameworkProcesses().source(rough) is rough


def test_a_frontend_that_no_process_can_import_is_refused(rough: Frontend) -> None:
    class Local(type(rough)):  # type: ignore[misc]
        name = "local"

    with pytest.raises(
        MaceError, match=r"frontend 'local': cannot be sent .*; define its class in a module; set"
    ):
        FrameworkProcess(Local()).reference((), model("m"))
