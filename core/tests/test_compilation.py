"""One compilation: what it decides is what every command tells."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mace_core import compilation as compilation_module
from mace_core.api import BlobBody, BuildConfig, Part, Refusal, Region
from mace_core.compilation import Compilation, compile_graph, read_file, refuse_unknown_forms
from mace_core.deployment import Model
from mace_core.emit.addresses import Addresses
from mace_core.emit.text import CIdentifier
from mace_core.errors import MaceError
from mace_core.explain import explain, show_explanations
from mace_core.graph_builder import Builder
from mace_core.ir import DType, Graph, Node, State
from mace_core.json_types import JsonObject
from mace_core.registry import Registry
from mace_core.report import LibraryReport, report_plan
from mace_target_cpu import Cpu


class Picky(Cpu):
    """Takes Relu alone, and says why it takes nothing else."""

    name = "picky"
    device = "npu"

    def refuses(self, node: Node, graph: Graph) -> Refusal | None:
        if node.op.name == "Relu":
            return None
        return Refusal("unsupported-op", f"the chip has no {node.op.name}", "replace it by Relu")

    def compile(self, region: Region, config: BuildConfig) -> Part:
        return replace(super().compile(region, config), notes=("computed by something picky",))


def compilation(target: str = "host+picky", no_fallback: bool = False) -> Compilation:
    registry = Registry.load()
    registry = replace(registry, targets={**registry.targets, "picky": Picky()})
    return Compilation(registry.select(target)[0], registry, no_fallback)


def graph() -> Graph:
    new = Builder("m")
    x = new.input("x", DType.F32, (1, 8))
    a = new.one("Exp", [x], outputs=["a"])
    b = new.one("Relu", [a], outputs=["b"])
    return new.finish([new.one("Tanh", [b], outputs=["y"])])


def test_the_ledger_names_who_took_and_who_refused_each_node() -> None:
    result = compile_graph(Model("m", ()), graph(), compilation())
    found = explain(result)
    assert [(line.op, line.target) for line in found.ledger] == [
        ("Exp", "cpu"),
        ("Relu", "picky"),
        ("Tanh", "cpu"),
    ]
    assert [(r.op, r.target, r.refusal.code) for r in result.refusals] == [
        ("Exp", "picky", "unsupported-op"),
        ("Tanh", "picky", "unsupported-op"),
    ]
    text = show_explanations([found])
    assert "(Exp): on cpu; not on picky: the chip has no Exp; replace it by Relu [unsupported-op]" in text
    assert result.notes == ("computed by something picky",)
    (described,) = [found.as_json()]
    assert [node["target"] for node in described["nodes"]] == ["cpu", "picky", "cpu"]
    assert described["refusals"][0]["remedy"] == "replace it by Relu"


class Configured(Picky):
    """Takes Tanh instead of Relu where an option of the model says so."""

    def __init__(self, op: str = "Relu") -> None:
        self.op = op

    def configure(self, model: Model) -> Configured:
        return Configured(str(model.options(self.name).get("op", self.op)))

    def refuses(self, node: Node, graph: Graph) -> Refusal | None:
        return None if node.op.name == self.op else Refusal("unsupported-op", "not asked for")


def test_options_of_a_model_decide_what_a_target_refuses() -> None:
    settings = compilation()
    settings = replace(settings, choice=replace(settings.choice, targets=(Configured(),)))
    asked = Model("asked", (), keys={"target_options": {"picky": {"op": "Tanh"}}})
    taken = {
        model.name: [
            node.name
            for region in compile_graph(model, graph(), settings).regions
            if region.target.name == "picky"
            for node in region.graph.nodes
        ]
        for model in (asked, Model("plain", ()))
    }
    assert {name: len(nodes) for name, nodes in taken.items()} == {"asked": 1, "plain": 1}
    assert taken["asked"] != taken["plain"]


def test_without_fallback_every_node_outside_the_named_targets_is_a_fault() -> None:
    with pytest.raises(MaceError) as error:
        compile_graph(Model("m", ()), graph(), compilation(no_fallback=True))
    lines = str(error.value).splitlines()
    assert len(lines) == 2
    assert "(Exp): would fall back to cpu; picky: the chip has no Exp; replace it by Relu" in lines[0]
    compile_graph(Model("m", ()), graph(), compilation("host+picky+cpu", no_fallback=True))
    compile_graph(Model("m", (), runtimes=("cpu",)), graph(), compilation("host", no_fallback=True))


def test_weights_as_stored_are_refused_for_targets_that_cannot_restore_them() -> None:
    class Narrow(Cpu):
        name = "narrow"

        def widens_weights(self) -> bool:
            return False

    stored = Model("m", (), keys={"weights": "as-stored"})
    refuse_unknown_forms(stored, [Cpu()])
    refuse_unknown_forms(Model("m", ()), [Narrow()])
    with pytest.raises(
        MaceError, match="target 'narrow' has no kernels that widen weights; leave the key out"
    ):
        refuse_unknown_forms(stored, [Cpu(), Narrow()])


class OnDevice(Picky):
    """Computes Relu by a driver."""

    def compile(self, region: Region, config: BuildConfig) -> Part:
        inputs, outputs = region.ports()
        return Part(region.name, self.name, inputs, outputs, BlobBody(b"code"), "picky_driver")


@pytest.mark.parametrize(
    ("key", "found"), [({}, False), ({"fallback": "none"}, False), ({"fallback": "cpu"}, True)]
)
def test_a_fallback_for_the_cpu_is_planned_where_it_is_asked_for(key: dict[str, object], found: bool) -> None:
    work = compilation()
    registry = replace(work.registry, targets={**work.registry.targets, "picky": OnDevice()})
    work = Compilation(registry.select("host+picky")[0], registry)
    plan = compile_graph(Model("m", (), keys=key), graph(), work).plan
    assert plan.drivers == ("picky_driver",)
    assert (plan.fallback is not None) == found
    if plan.fallback:
        assert [part.target for part in plan.fallback.parts] == ["cpu"]
        assert (plan.fallback.inputs, plan.fallback.outputs) == (plan.inputs, plan.outputs)


def test_the_reports_bytes_are_those_of_the_generated_code() -> None:
    """Start values of states are constants too, unless they are zeros; what drivers load counts as well."""
    new = Builder("m")
    new.input("x", DType.F32, (1, 8))
    plain = compile_graph(Model("m", ()), graph(), compilation("host")).plan
    start = State("x", "y", np.full((1, 8), 2, np.float32))
    for states, more in (((), 0), ((start,), 64), ((replace(start, start=np.zeros((1, 8), np.float32)),), 0)):
        plan = replace(plain, states=states)
        assert plan.weight_bytes == plain.weight_bytes + more == report_plan(plan).weight_bytes
        assert plan.weight_bytes == Addresses(plan, CIdentifier("w"), 0).weight_bytes


def test_a_model_of_the_cpu_alone_needs_no_fallback() -> None:
    plan = compile_graph(Model("m", (), keys={"fallback": "cpu"}), graph(), compilation("host")).plan
    assert plan.fallback is None
    assert report_plan(plan).fallback_bytes == 0


def counting() -> Graph:
    """y = tanh(relu(total + x)), and total becomes total + x: parts of two targets read and write the state."""
    new = Builder("m")
    x, total = new.input("x", DType.F32, (1, 8)), new.state("total", np.full((1, 8), 2, np.float32))
    (added,) = new.add("Add", [total, x], outputs=["added"])
    new.set_next(total, added)
    return new.finish([new.one("Tanh", [new.one("Relu", [added])], outputs=["y"])])


def test_states_are_told_by_plan_and_report_and_are_no_ports() -> None:
    result = compile_graph(Model("m", ()), counting(), compilation())
    assert [part.target for part in result.plan.parts] == ["cpu", "picky", "cpu"]
    assert (result.plan.inputs, result.plan.outputs) == (("x",), ("y",))
    report = LibraryReport.of_json(
        JsonObject.parse(json.dumps(LibraryReport({"m": result.report()}).as_json()), "report")
    ).models["m"]
    assert [(state.tensor.name, state.start) for state in report.states] == [("total", "2.0")]
    assert [tensor.name for tensor in (*report.inputs, *report.outputs)] == ["x", "y"]
    assert "state total: f32 1 x 8, at first 2.0" in show_explanations([explain(result)])


class Whole(Cpu):
    """Takes models whole."""

    name = "whole"
    device = "npu"
    scope = "model"


def test_a_target_of_whole_models_keeps_no_states() -> None:
    registry = Registry.load()
    registry = replace(registry, targets={**registry.targets, "whole": Whole()})
    work = Compilation(registry.select("host+whole")[0], registry)
    with pytest.raises(
        MaceError,
        match=r"target 'whole' keeps no states, and the model has total:f32\[1, 8\].*`states: application`",
    ):
        compile_graph(Model("m", ()), counting(), work)


def test_a_report_survives_its_file() -> None:
    result = compile_graph(Model("m", ()), graph(), compilation())
    report = LibraryReport({"m": result.report()}, ("a note of the file",))
    again = LibraryReport.of_json(JsonObject.parse(json.dumps(report.as_json()), "report"))
    assert again.as_json() == report.as_json()
    model = again.models["m"]
    assert [part.target for part in model.parts] == ["cpu", "picky", "cpu"]
    assert model.refusals == result.refusals
    assert model.arena_bytes >= model.arena_lower_bound > 0


def test_regions_are_counted_from_0() -> None:
    assert Region(Cpu(), graph()).name == "cpu0"


def test_a_file_that_is_not_there_is_no_model(tmp_path: Path) -> None:
    registry = Registry.load()
    with pytest.raises(MaceError) as error:
        read_file(tmp_path / "m.onnx", registry)
    assert (
        str(error.value) == f"{tmp_path / 'm.onnx'}: no such file; correct its path, or leave the option out"
    )
    (tmp_path / "m.unheard_of").write_bytes(b"x")
    with pytest.raises(MaceError, match="unheard_of"):
        read_file(tmp_path / "m.unheard_of", registry)


def test_every_dimension_that_the_engine_cannot_hold_is_named() -> None:
    shapes = {"x": (2, 2**31), "y": (2**31 - 1, 1), "z": (), "w": (2**40,)}
    tensors = {name: SimpleNamespace(shape=shape) for name, shape in shapes.items()}
    plan: Any = SimpleNamespace(name="m", program=SimpleNamespace(tensors=tensors))
    with pytest.raises(MaceError) as error:
        compilation_module._with_small_dimensions(plan)
    remedy = f"a dimension above {2**31 - 1}; state a smaller one under input_shapes"
    assert str(error.value).splitlines() == [
        f"m: tensor 'x' has shape [2, {2**31}], {remedy}",
        f"m: tensor 'w' has shape [{2**40}], {remedy}",
    ]
