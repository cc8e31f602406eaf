"""`mace tune`: what is chosen from measured times, and what is written of it."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from candidates_target import Grouping, network

from mace_core.api import GeneratedFiles, Target
from mace_core.calibration import CalibratedTarget, Measure, Numbers, tuned_costs
from mace_core.compilation import Compilation, CompiledModel, compile_graph
from mace_core.deployment import Deployment, Model
from mace_core.device_choice import ChoosingTarget
from mace_core.emit.text import CIdentifier
from mace_core.errors import MaceError
from mace_core.program import Call, Kernel
from mace_core.registry import Registry
from mace_core.run import tune, tuning_job
from mace_core.run.built_library import BuiltLibrary
from mace_core.run.results import LayerTime, Timing
from mace_core.run.tables import show_tuning
from mace_core.run.tuning_trials import Series, Trial
from mace_core.tuning import TUNING, read_tuning, write_tuning

DEVICES = ("grouping: fast",)
TIMES = {"plain": 10, "turned": 20, "copy": 1, "relu": 5}


class Calibrated(Grouping, CalibratedTarget):
    """The same target, with a cost model of two numbers."""

    def calibrate(self, measure: Measure) -> Numbers:
        """Return the time of the network here, and the share of the processor's that its layers take."""
        (here,), (processor,) = measure([network()], self), measure([network()], None)
        return {"run_ns": here.ns, "share": sum(here.layers) / processor.ns}


class Choosing(Grouping, ChoosingTarget):
    """The same target, whose driver takes the device that it is asked for."""

    def select_device(self, name: str) -> str:
        return f"grouping.device={name}"


def run(
    folder: Path,
    patch: pytest.MonkeyPatch,
    times: Mapping[str, int],
    whole: tuple[int, ...] = (100, 90),
    kind: type[Grouping] = Grouping,
) -> tuple[tune.TuningResult, list[str]]:
    """Tune the network of the test target, whose kernels take `times`.

    times: a library with a kernel that is not among them does not run.
    whole: of the library without and with a tuning file, and of that with measured costs alone where it differs.
    Returns the result, and what it said it does.
    """
    sources = folder / "target"
    sources.mkdir()
    registry = Registry.load()
    registry = replace(registry, targets={"grouping": kind(sources)})
    choice = replace(registry.select("host")[0], targets=tuple(registry.targets.values()))
    steps: list[str] = []

    def compile_network(model: Model, compilation: Compilation) -> CompiledModel:
        return compile_graph(model, network(), compilation)

    def skip_link(made: GeneratedFiles, *_: object) -> None:
        """Nothing is executed: the times are those of the test."""

    def tell_times(built: BuiltLibrary, name: str, threads: int, rounds: int, layers: bool) -> Timing:
        report = built.figures(name)
        made = [(n, layer) for n, layer in enumerate(report.layers) if layer.levels in ((), ("fast",))]
        for _, layer in made:
            if layer.kernel not in times:
                raise MaceError("mace_benchmark", f"kernel {layer.kernel} wants groups of 256", "tune")
        each = tuple(LayerTime(layer.node, layer.kernel, times[layer.kernel], n) for n, layer in made)
        kinds = {"tuned": whole[1], "base": (whole[2:] or whole)[0]}
        total = kinds.get(built.programs.name.rpartition("-")[2], whole[0])
        return Timing(name, (total, total + 50), threads, each, devices=DEVICES)

    patch.setattr(tune, "compile_model", compile_network)
    patch.setattr(tuning_job, "link", skip_link)
    patch.setattr(BuiltLibrary, "time", tell_times)
    model = Model("network", (), keys={TUNING: "earlier.yml"})
    job = tuning_job.TuningJob(Deployment("lib", (model,)), choice, registry, device="fast", seconds=0)
    builds = folder / "builds"
    builds.mkdir()
    return tune.tune_model(job, model, tune.TuningFolders(builds, folder), steps.append), steps


def test_the_faster_candidate_is_written_for_the_level_that_ran(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result, steps = run(tmp_path, monkeypatch, {"plain": 10, "turned": 20, "copy": 1, "relu": 5})
    assert result.file == tmp_path / "network.tuning.yml"
    (entry,) = read_tuning(result.file).entries
    assert (entry.op, entry.level, entry.target, entry.candidate) == ("Add", "fast", "grouping", "plain")
    (decision,) = result.decisions
    # Two nodes of one op and shape; a node that `turned` computes takes a copy as well.
    assert decision.ns == {"plain": 20.0, "turned": 42.0}
    assert (result.ns, result.tuned_ns, result.devices) == (100, 90, DEVICES)
    assert "grouping: fast" in result.file.read_text(encoding="utf-8")
    assert steps == [
        "network: building it without a tuning file",
        # The second one is the default, which is there already.
        "network: building candidates 1 of 2",
        "network: measuring 2 libraries, less than 10 s left",
        "network: measuring 2 libraries, less than 10 s left",
        "network: comparing the library with and without 1 entries",
        "network: measuring 2 libraries, less than 10 s left",
        "network: measuring 2 libraries, less than 10 s left",
    ]
    assert "plain" in show_tuning([result])
    assert str(result.file) in show_tuning([result])
    assert "network: computed by grouping: fast\n" in show_tuning([result])
    assert result.as_json()["file"] == str(result.file)


def test_a_candidate_that_the_device_cannot_run_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result, steps = run(tmp_path, monkeypatch, {"turned": 20, "copy": 1, "relu": 5})
    (decision,) = result.decisions
    assert (decision.ns, decision.candidate) == ({"turned": 42.0}, "turned")
    (told,) = [step for step in steps if "is left out" in step]
    assert "kernel plain wants groups of 256" in told
    assert result.file is None


def test_a_library_without_candidates_has_to_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(MaceError, match="kernel turned wants groups of 256"):
        run(tmp_path, monkeypatch, {"plain": 10, "copy": 1, "relu": 5})


class Pairing(Grouping):
    """Computes Relu in the kernel of the sum behind it, if that is `plain`."""

    def fuse(self, first: Call, second: Call, tensor: str) -> Call | None:
        if (first.kernel.name, second.kernel.name) != ("relu", "plain"):
            return None
        pair = replace(second.kernel, name=CIdentifier("pair"))
        return replace(second, kernel=pair, reads=(*first.reads, second.reads[1]), inplace=False)


def test_what_one_candidate_computes_in_its_call_counts_for_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = {"pair": 12, "plain": 10, "turned": 9, "copy": 1, "relu": 5}
    result, _ = run(tmp_path, monkeypatch, times, kind=Pairing)
    (decision,) = result.decisions
    # The sums alone take 22 by `plain` and 20 by `turned`, but there Relu before the first is a call.
    assert decision.ns == {"plain": 22.0, "turned": 25.0}
    assert decision.candidate == "plain"


def test_costs_are_written_even_if_no_candidate_is_faster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = {"plain": 1010, "turned": 1000, "copy": 10, "relu": 5}
    result, steps = run(tmp_path, monkeypatch, times, kind=Calibrated)
    assert steps[0] == "network: measuring what grouping costs"
    assert result.file == tmp_path / "network.tuning.yml"
    tuning = read_tuning(result.file)
    # Two sums by `turned` with a copy each, and two Relu: 2030 ns.
    assert (tuning.entries, tuning.costs) == ((), {"grouping": {"run_ns": 100.0, "share": 20.3}})
    assert "measured costs of grouping: run_ns 100, share 20.3" in show_tuning([result])
    assert "has the costs alone" in show_tuning([result])
    assert result.as_json()["costs"] == {"grouping": {"run_ns": 100.0, "share": 20.3}}


def test_costs_stand_beside_candidates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    times = {"plain": 10, "turned": 20, "copy": 1, "relu": 5}
    result, _ = run(tmp_path, monkeypatch, times, kind=Calibrated)
    assert result.file
    tuning = read_tuning(result.file)
    assert [entry.candidate for entry in tuning.entries] == ["plain"]
    assert tuning.costs["grouping"]["run_ns"] == 100


def test_costs_that_move_nodes_are_written_only_if_the_model_is_faster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each library seems to have its nodes elsewhere.
    monkeypatch.setattr(Trial, "computation", property(lambda trial: str(id(trial))))
    times = {"plain": 1010, "turned": 1000, "copy": 10, "relu": 5}
    result, steps = run(tmp_path, monkeypatch, times, kind=Calibrated)
    assert "network: comparing the library with and without 0 entries" in steps
    assert (result.file, result.ns, result.tuned_ns) == (None, 100, 100)


class Choosy(Calibrated):
    """Computes Relu by another kernel where it has measured costs."""

    has_costs = False

    def configure(self, model: Model) -> Target:
        configured = type(self)(self.folder)
        configured.has_costs = bool(tuned_costs(model, self.name))
        return configured

    def kernel(self, name: str, *fields: str) -> Kernel:
        kernel = super().kernel(name, *fields)
        is_other = self.has_costs and name == "relu"
        return replace(kernel, name=CIdentifier("other")) if is_other else kernel


@pytest.mark.parametrize("tuned_ns", [100, 90])
def test_costs_that_choose_kernels_are_written_only_if_the_model_is_faster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tuned_ns: int
) -> None:
    times = {"plain": 1010, "turned": 1000, "copy": 10, "relu": 5, "other": 5}
    result, _ = run(tmp_path, monkeypatch, times, whole=(100, 90, tuned_ns), kind=Choosy)
    assert (result.file is not None) == (tuned_ns < 100)
    assert (result.ns, result.tuned_ns) == (100, tuned_ns)
    text = "measured costs and candidates that win alone make it 0.000 ms, so no file is written"
    assert (text in show_tuning([result])) == (tuned_ns == 100)


def test_candidates_that_there_is_no_time_to_build_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tune, "MIN_BUILDS", 0)
    result, steps = run(tmp_path, monkeypatch, TIMES)
    text = "no time for the last 2 of 2 candidates: run it again, which goes on"
    assert f"network: {text}" in steps
    assert f"network: {text}\n" in show_tuning([result])
    (decision,) = result.decisions
    assert decision.ns == {}
    assert result.file is None


def test_a_later_run_measures_what_an_earlier_one_has_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path, monkeypatch, TIMES)
    # Kernels seem to take no time now: what is known is not measured again.
    again = tmp_path / "again"
    again.mkdir()
    shutil.copy(tmp_path / "network.times.json", again)
    result, steps = run(again, monkeypatch, {**TIMES, "plain": 10**6})
    assert not any("building candidates" in step for step in steps)
    (decision,) = result.decisions
    assert decision.ns["plain"] == 20.0
    assert result.file == again / "network.tuning.yml"
    # On another device everything is.
    monkeypatch.setitem(globals(), "DEVICES", ("grouping: fast", "acme: fast"))
    other = tmp_path / "other"
    other.mkdir()
    shutil.copy(tmp_path / "network.times.json", other)
    assert "network: building candidates 1 of 2" in run(other, monkeypatch, TIMES)[1]


@pytest.mark.parametrize(
    "text", ["", "[]", '{"libraries": {"a": {"layers": [1], "ns": []}}}', '{"libraries": {"a": 1}}']
)
def test_a_file_that_holds_no_times_is_refused(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "network.times.json").write_text(text)
    with pytest.raises(MaceError, match="holds no times that mace tune has written; delete it"):
        run(tmp_path, monkeypatch, TIMES)


def test_an_interrupt_keeps_what_has_been_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    time_in_turn = tune._Tuner.time_in_turn
    turns: list[float] = []

    def interrupt_first(tuner: tune._Tuner, running: Sequence[Series], seconds: float) -> None:
        turns.append(seconds)
        if len(turns) == 1:
            raise KeyboardInterrupt
        time_in_turn(tuner, running, seconds)

    monkeypatch.setattr(tune._Tuner, "time_in_turn", interrupt_first)
    result, steps = run(tmp_path, monkeypatch, TIMES)
    assert result.is_interrupted
    assert result.file == tmp_path / "network.tuning.yml"
    assert (tmp_path / "network.times.json").exists()
    assert f"network: {tune.INTERRUPTED}" in steps
    assert f"network: {tune.INTERRUPTED}\n" in show_tuning([result])


def test_a_second_interrupt_ends_it_and_leaves_the_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(tuner: tune._Tuner, running: Sequence[Series], seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(tune._Tuner, "time_in_turn", interrupt)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, monkeypatch, TIMES)
    assert (tmp_path / "network.times.json").exists()
    assert not (tmp_path / "network.tuning.yml").exists()


@pytest.mark.parametrize(
    ("plain", "whole", "text"),
    [
        (1010, (100, 90), "no candidate is faster"),
        # 2 % are no reason: two measurements of one library differ by as much.
        (990, (100, 90), "no candidate is faster"),
        (500, (100, 100), "no file is written"),
    ],
)
def test_nothing_is_written_that_does_not_make_the_model_faster(
    plain: int, whole: tuple[int, int], text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = {"plain": plain, "turned": 1000, "copy": 10, "relu": 5}
    result, _ = run(tmp_path, monkeypatch, times, whole)
    assert result.file is None
    assert not list(tmp_path.glob("*.yml"))
    assert text in show_tuning([result])


def test_another_device_than_the_one_that_was_named_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "DEVICES", ("grouping: base",))
    with pytest.raises(MaceError, match="--device fast: no part was computed by it, but by grouping: base"):
        run(tmp_path, monkeypatch, {"plain": 10, "turned": 20, "copy": 1, "relu": 5})


def test_a_driver_that_chooses_has_the_device_that_it_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kind of device, which the driver knows, is in no name."""
    monkeypatch.setitem(globals(), "DEVICES", ("grouping: base",))
    result, _ = run(tmp_path, monkeypatch, TIMES, kind=Choosing)
    assert result.devices == ("grouping: base",)


def test_hostile_names_stay_names_in_the_file(tmp_path: Path) -> None:
    """A device or a model may be called anything; the file says the same when it is read."""
    file = tmp_path / "t.yml"
    write_tuning(file, [{"node": "a: [b]\n- c\u2028", "candidate": "x"}], "a device\nchoices: [")
    (entry,) = read_tuning(file).entries
    assert (entry.node, entry.candidate) == ("a: [b]\n- c\u2028", "x")
