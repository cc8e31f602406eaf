"""Runs of a loaded library: what is handed to it, and who sees the layers."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from mace_core.emit import code
from mace_core.errors import MaceError
from mace_core.ir import DType, Tensor
from mace_core.levels import Level
from mace_core.plan import plan_calls
from mace_core.program import Call, Kernel, Program
from mace_core.run import native
from mace_core.run.compile import shared_library
from mace_core.testing.compiled import host

TWICE = """static void {{ name }}(const mace_workers *run, const {{ name }}_args *a, void *const *t) {
  const float *x = t[0];
  float *y = t[1];
  (void)run;
  for (int32_t i = 0; i < a->n; i++) y[i] = 2 * x[i];
}
"""


def build(folder: Path, factor: int = 2) -> Path:
    """Return a library in the folder, whose model m multiplies by a factor."""
    template = folder / f"by_{factor}.c.in"
    template.write_text(TWICE.replace("2 * x", f"{factor} * x"))
    (folder / "none.h.in").write_text("\n")
    kernel = Kernel("twice_f32", template, (("n", "i32"),))
    tensors = {name: Tensor(name, DType.F32, (2, 3)) for name in ("x", "y")}
    call = Call(kernel, {"n": 6}, ["x"], ["y"], node="twice")
    program = Program("m", (call,), tensors, {}, {}, ("x",), ("y",))
    level = Level("generic", (), "", folder / "none.h.in")
    sources = code.library("twice", [plan_calls(program)], [level])
    return shared_library(sources, host(), folder / "out")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> native.LoadedModel:
    return native.load(build(tmp_path_factory.mktemp("native")), "twice")["m"]


X = np.arange(6, dtype=np.float32).reshape(2, 3)


def test_an_input_may_be_read_only_strided_or_of_another_type(model: native.LoadedModel) -> None:
    protected = X.copy()
    protected.flags.writeable = False
    for array in (X, protected, np.repeat(X, 2, axis=1)[:, ::2], X.astype(np.int64)):
        y = model.run({"x": array})["y"]
        assert y.shape == (2, 3)
        assert y.dtype == np.float32
        assert y.tolist() == (2 * X).tolist()


@pytest.mark.slow
def test_a_library_that_was_built_anew_is_loaded_anew(tmp_path: Path) -> None:
    first = native.load(build(tmp_path), "twice")["m"]
    shutil.rmtree(tmp_path / "out")
    second = native.load(build(tmp_path, 3), "twice")["m"]
    assert first.run({"x": X})["y"].tolist() == (2 * X).tolist()
    assert second.run({"x": X})["y"].tolist() == (3 * X).tolist()


def test_results_of_one_run_stay_when_the_next_has_others(model: native.LoadedModel) -> None:
    first = model.run({"x": X})["y"]
    second = model.run({"x": X + 1})["y"]
    assert first.tolist() == (2 * X).tolist()
    assert second.tolist() == (2 * X + 2).tolist()


def test_an_observer_sees_the_layers_of_its_run_only(model: native.LoadedModel) -> None:
    seen: list[tuple[str, list[float]]] = []
    model.run({"x": X}, lambda layer, array: seen.append((layer, array.ravel().tolist())))
    model.run({"x": X + 1})
    assert seen == [("twice", [0, 2, 4, 6, 8, 10])]


def test_an_interrupted_run_leaves_no_observer_behind(
    model: native.LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> int:
        raise KeyboardInterrupt

    seen: list[str] = []
    with monkeypatch.context() as patch:
        patch.setattr(model, "_run", interrupt)
        with pytest.raises(KeyboardInterrupt):
            model.run({"x": X}, lambda layer, array: seen.append(layer))
    assert model.run({"x": X})["y"].tolist() == (2 * X).tolist()
    assert not seen


def test_a_wrong_input_is_refused(model: native.LoadedModel) -> None:
    with pytest.raises(MaceError, match=r"no input 'x' given; give x"):
        model.run({"z": X})
    with pytest.raises(MaceError, match=r"input 'x' has shape \[6, 2\]; give \[2, 3\]"):
        model.run({"x": np.zeros((6, 2), np.float32)})
