"""The rule by which a model rounds: from the deployment file to the lowering, or a refusal."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.resources import files

import pytest

from mace_core.compilation import refuse_unknown_forms
from mace_core.deployment import Deployment, Model
from mace_core.errors import MaceError
from mace_core.graph_builder import Builder
from mace_core.ir import DType, Quant, Storage, Tensor
from mace_core.job import SEPARATE_ROUNDING, with_features
from mace_core.lowering import Lowering
from mace_core.numerics import KEY, Numerics, read_numerics
from mace_core.ops import core_ops
from mace_core.partition import partition
from mace_core.registry import Registry
from mace_core.transforms import run_phases
from mace_target_cpu import Cpu

ASKED = Model("m", (), keys={KEY: Numerics.FIXED_POINT.value})


def test_each_value_of_the_key_is_a_rule() -> None:
    schema = json.loads((files("mace_core") / "schema" / "deployment.schema.json").read_text())
    assert f'"{KEY}": {{"type": "string", "enum": {json.dumps([n.value for n in Numerics])}' in json.dumps(
        schema
    )
    assert read_numerics({}) is Numerics.SINGLE_ROUNDING
    assert read_numerics(ASKED.keys) is Numerics.FIXED_POINT


def test_the_rule_stays_with_the_graph_until_it_is_lowered() -> None:
    builder = Builder("m", core_ops())
    builder.tensors["x"] = Tensor("x", DType.I8, (2, 3), Quant.of(0.5))
    builder.inputs.append("x")
    builder.reserve_output("y", Storage(DType.I8, Quant.of(0.5)))
    graph = builder.finish(builder.add("Mul", ["x", "x"], outputs=["y"]), ["y"])
    assert graph.numerics is Numerics.SINGLE_ROUNDING
    graph = run_phases(replace(graph, numerics=Numerics.FIXED_POINT), Registry.load())
    (region,) = partition(graph, [Cpu()]).regions
    assert Lowering(region.graph).numerics is Numerics.FIXED_POINT
    (call,) = Cpu().lower(region.graph).calls
    assert call.kernel.name == "mul_fixed_point_i8"


def test_targets_that_round_otherwise_refuse_the_model() -> None:
    registry = Registry.load()
    refuse_unknown_forms(ASKED, [Cpu()])
    others = [t for t in registry.targets.values() if not isinstance(t, Cpu)]
    assert others
    for target in others:
        refuse_unknown_forms(Model("m", ()), [target])
        with pytest.raises(MaceError, match=f"target '{target.name}' does not round so; leave the key out"):
            refuse_unknown_forms(ASKED, [Cpu(), target])


def test_kernels_of_a_reproducible_model_have_no_multiply_add() -> None:
    registry = Registry.load()
    choice = registry.select("host")[0]
    for rule, flags in ((Numerics.REPRODUCIBLE, SEPARATE_ROUNDING), (Numerics.SINGLE_ROUNDING, ())):
        deployment = Deployment("lib", (Model("m", (), keys={KEY: rule.value}),))
        (target,) = registry.targets_for(with_features(choice, deployment), ())
        for level, plain in zip(target.levels("host"), Cpu().levels("host"), strict=True):
            assert level.flags == (*plain.flags, *flags)


def test_kernels_that_vary_are_refused() -> None:
    builder = Builder("m", core_ops())
    builder.tensors["x"] = Tensor("x", DType.F32, (2, 300))
    builder.inputs.append("x")
    names = {op: builder.one(op, ["x"]) for op in ("Sin", "Exp", "Elu", "Softmax", "Floor")}
    graph = replace(builder.finish([*names.values()], [*names]), numerics=Numerics.REPRODUCIBLE)
    refused = {n.op.name: r for n in graph.nodes if (r := Cpu().refuses(n, graph))}
    assert sorted(refused) == ["Elu", "Sin"]
    assert "kernel elu_f32 calls expm1f of the C library, whose last bit differs" in refused["Elu"].reason
    assert refused["Sin"].remedy == "leave numerics: reproducible out"
    assert not [n for n in graph.nodes if Cpu().refuses(n, replace(graph, numerics=Numerics.SINGLE_ROUNDING))]
