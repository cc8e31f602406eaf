"""What a run executes, counted by a stand-in: layers, multiply-adds, the bound, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from engine_stand_in import StandIn

from mace_core.commands import BuiltModels, load_job
from mace_core.compilation import Compilation, compile_model
from mace_core.errors import MaceError
from mace_core.json_types import JsonObject
from mace_core.rule_steps import benchmark_step
from mace_core.run.count import ModelCount, count_library, find_bound, find_counter, show_counts
from mace_core.run.runners import Native
from mace_core.toolchain import CountedRun, Counter
from mace_target_cpu import Cpu

DIGITS = Path(__file__).parents[2] / "models/digits/digits.yml"
OPENING, RUN, BETWEEN = 1000, 500, 3
"""Steps of the program: to the first reading of the clock, of a run, from one layer to the next."""


@dataclass(frozen=True)
class Steps(Counter):
    """Counts layer I as 10 * (I + 1) steps, and twice as many loads."""

    kernels: Sequence[str]
    missing_readings: int = 0
    names = ("steps", "loads")
    max_macs = 4
    limit = "by a stand-in"

    def count(self, command: Sequence[str]) -> CountedRun:
        assert {"--model=digits", "--rounds=1", "--warmup=0", "--layers=1"} < {*command}
        layers = [
            {"name": f"layer{i}", "kernel": kernel, "ns": 7, "number": i}
            for i, kernel in enumerate(self.kernels)
        ]
        steps = [OPENING, OPENING + 1, OPENING + 2, OPENING + 2 + RUN, OPENING + 3 + RUN]
        for i in range(len(layers)):
            steps.append(steps[-1] + 10 * (i + 1))
            steps.append(steps[-1] + BETWEEN)
        printed = {"model": "digits", "ns": [9], "threads": 1, "device": "cpu: sse2", "layers": layers}
        readings = tuple((step, 2 * step) for step in steps)
        return CountedRun(json.dumps(printed), readings[: len(readings) - self.missing_readings])


def count(models: BuiltModels, counter: Counter) -> list[ModelCount]:
    parsed, choice, registry = models.open()
    return count_library(parsed, models.builds / parsed.library, choice, registry, counter)


@pytest.fixture
def models(tmp_path: Path) -> BuiltModels:
    stand_in = StandIn(*load_job(DIGITS, ""))
    stand_in.install(tmp_path)
    return BuiltModels(DIGITS, builds=tmp_path)


@pytest.fixture
def kernels(models: BuiltModels) -> list[str]:
    parsed, choice, registry = models.open()
    program = compile_model(parsed.models[0], Compilation(choice, registry)).plan.program
    return [call.kernel.name for call in program.calls if call.is_made_at("sse2")]


def test_layers_are_what_lies_between_readings_of_the_clock(models: BuiltModels, kernels: list[str]) -> None:
    (counted,) = count(models, Steps(kernels))
    assert counted.counts == (RUN, 2 * RUN)
    assert [layer.counts for layer in counted.layers] == [
        (10 * (i + 1), 20 * (i + 1)) for i in range(len(kernels))
    ]
    assert counted.macs == sum(layer.macs for layer in counted.layers) > 0
    assert all(layer.bytes > 0 for layer in counted.layers)
    described = JsonObject(counted.as_json(), "count")
    assert described.string("timing") == "counted"
    assert (described.integer("steps"), described.integer("loads")) == (RUN, 2 * RUN)
    assert described.integer("bound") == find_bound(counted.macs, counted.counter) == -(-counted.macs // 4)


def test_the_table_says_that_nothing_was_timed(models: BuiltModels, kernels: list[str]) -> None:
    counts = count(models, Steps(kernels))
    text = show_counts(counts, layers=False)
    assert "counted, not timed" in text
    assert f"{RUN / counts[0].macs:.4f}" in text
    assert "layer0" not in text
    assert "layer0" in show_counts(counts, layers=True)


@pytest.mark.parametrize(
    ("kernel", "missing", "problem"),
    [("", 1, "read the clock"), ("another", 0, "the library makes other calls")],
)
def test_a_library_of_another_build_is_refused(
    models: BuiltModels, kernels: list[str], kernel: str, missing: int, problem: str
) -> None:
    with pytest.raises(MaceError, match=problem):
        count(models, Steps([*kernels, kernel] if kernel else kernels, missing))


def test_the_counter_is_that_of_a_target(models: BuiltModels, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = models.open()
    assert find_counter(*opened) is None
    counter = Steps(())
    monkeypatch.setattr(Cpu, "counter", lambda self: counter)
    assert find_counter(*opened) is None, "this machine measures times"
    monkeypatch.setattr(Native, "timing", "simulated")
    assert find_counter(*opened) is None, "a simulator has times"
    monkeypatch.setattr(Native, "timing", "emulated")
    assert find_counter(*opened) is counter


def test_scons_benchmark_counts_too(
    models: BuiltModels,
    kernels: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(Cpu, "counter", lambda self: Steps(kernels))
    monkeypatch.setattr(Native, "timing", "emulated")
    parsed, choice, registry = models.open()
    folder = models.builds / parsed.library
    step = benchmark_step(parsed, folder, choice, registry, 5)
    step.run(print)
    (row,) = JsonObject.parse_list((folder / step.products[0]).read_text(), step.products[0])
    assert (row.string("timing"), row.integer("steps"), "ns" in row) == ("counted", RUN, False)
    text = capsys.readouterr().out
    assert "counted, not timed" in text
    assert "ms" not in text.split(), "no column of times"
    assert "layer0" in text
