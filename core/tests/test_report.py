"""Reports of builds: what is written into a library's folder comes back as it was, and is shown to people."""

from __future__ import annotations

import json
from dataclasses import fields, replace

import pytest

from mace_core.explain import Explanation, LedgerLine, describe_selection, show_explanations
from mace_core.graph_builder import Builder
from mace_core.ir import DType, Quant, Tensor
from mace_core.json_types import JsonObject
from mace_core.part import BlobBody, Part, PartFigures, PartPort
from mace_core.plan import Transfer, make_plan
from mace_core.refusal import NodeRefusal, Refusal
from mace_core.report import (
    OWN_KEYS,
    LayerReport,
    LibraryReport,
    ModelReport,
    PartReport,
    StateReport,
    arena_line,
    report_plan,
    tensor_json,
)
from mace_core.run.results import Failure, Timing, Validation, result_of
from mace_core.run.similarity import Similarity
from mace_core.selection import CandidateChoice, NodeKey, Selection

X = Tensor("x", DType.F32, (1, 2))
Q = Tensor("q", DType.I8, (), Quant.of(0.5, 3))
BY_AXIS = Tensor("w", DType.I8, (2,), Quant((0.5, 1.0), (0, 0), 0))
REFUSED = NodeRefusal("n", "Exp", "npu", Refusal("unsupported-op", "no Exp", "replace it"))
CHOICES = Selection(
    NodeKey("cpu", "n", "Conv", "1x2"),
    "cycles",
    (
        CandidateChoice("fast", "a", "cheapest", {"b": 3.5, "a": 2.0}),
        CandidateChoice("base", "b", "named", {"b": 3.5}),
    ),
    {"c": "too small"},
)
MODEL = ModelReport(
    arena_bytes=640, arena_lower_bound=512, worker_bytes=3, weight_bytes=4, inputs=(X,), outputs=(Q, X),
    layers=(LayerReport("n", X, "conv", ("a", "b"), ("fast",)), LayerReport("l", Q)),
    parts=(PartReport("cpu0", "cpu", ("n", "l")), PartReport("npu1", "npu", ("m",), "acme")),
    transfers=(Transfer("x", "host", "island", 8),), spaces={"island": 9}, refusals=(REFUSED,), notes=("a note",),
    transposes=5, fallback_bytes=6, states=(StateReport(X, "0.0"),), selections=(CHOICES,), summary="fits",
    details={"cycles": 7},
)  # fmt: skip
SMALL = ModelReport(0, 0, 0, 0, (X,), (X,), ())


@pytest.mark.parametrize("model", [MODEL, SMALL], ids=["all", "least"])
def test_a_report_comes_back_as_it_was(model: ModelReport) -> None:
    report = LibraryReport({"m": model}, ["of the file"])
    text = json.dumps(report.as_json())
    assert LibraryReport.of_json(JsonObject.parse(text, "report")) == replace(report, notes=("of the file",))


def test_keys_of_a_report() -> None:
    written = MODEL.as_json()
    assert (written["calls"], written["cycles"], written["summary"]) == (1, 7, "fits")
    assert set(SMALL.as_json()) == OWN_KEYS - {"details", "selections", "summary", "candidates"}
    assert "levels" not in SMALL.as_json()
    assert [key for key in MODEL.layers[1].as_json() if key == "levels"] == []
    assert MODEL.layers[0].as_json()["levels"] == ["fast"]
    assert tensor_json(Q) == {"name": "q", "dtype": "i8", "shape": [], "scale": 0.5, "zero_point": 3}
    assert tensor_json(BY_AXIS) == {"name": "w", "dtype": "i8", "shape": [2]}
    assert replace(MODEL, details={"calls": 99, "arena_bytes": 1}).as_json()["calls"] == 1
    assert {field.name for field in fields(ModelReport)} <= OWN_KEYS


def test_a_report_that_states_nothing_else() -> None:
    assert (SMALL.transposes, SMALL.fallback_bytes, SMALL.summary, SMALL.details, SMALL.spaces) == (
        0,
        0,
        "",
        {},
        {},
    )
    assert (SMALL.parts, SMALL.transfers, SMALL.refusals, SMALL.notes, SMALL.states, SMALL.selections) == (
        (),
    ) * 6


def test_validations_and_failures_come_back() -> None:
    one = Validation("m", "host", Similarity(1.0, 2.0, 3.0, 4.0), 0.5, 6.0, "measured", 7, 8, "files", True)
    for result in (one, replace(one, accuracy=None, passed=False), Failure("m", "host", "no data")):
        assert result_of(JsonObject.parse(json.dumps(result.as_json()), "row")) == result


def test_times_come_back() -> None:
    printed = {"model": "m", "ns": [3, 1.5], "threads": 2, "layers": [{"name": "a", "kernel": "k", "ns": 4}]}
    timing = Timing.of_json(JsonObject.parse(json.dumps(printed), "x"), "emulated", "arm64")
    assert (timing.model, timing.ns, timing.threads, timing.timing, timing.target) == (
        "m",
        (3, 1.5),
        2,
        "emulated",
        "arm64",
    )
    assert [(layer.name, layer.kernel, layer.ns) for layer in timing.layers] == [("a", "k", 4)]
    del printed["layers"]
    assert Timing.of_json(JsonObject.parse(json.dumps(printed), "x"), "measured", "").layers == ()


@pytest.mark.parametrize(
    ("size", "bound", "text"),
    [(640, 512, "arena 640 bytes (1.250 x the largest live set)"), (0, 0, "arena 0 bytes (0.000 x the largest live set)"),
     (64, 0, "arena 64 bytes (64.000 x the largest live set)")],
)  # fmt: skip
def test_the_line_of_the_arena(size: int, bound: int, text: str) -> None:
    assert arena_line(replace(SMALL, arena_bytes=size, arena_lower_bound=bound)) == text


def test_the_line_of_the_arena_counts_what_devices_hold_and_what_is_copied() -> None:
    assert arena_line(MODEL).endswith(" live set), 9 bytes of 'island' memory, 1 copies of 8 bytes")


def test_everything_that_was_decided_is_told() -> None:
    ledger = (LedgerLine("n", "Exp", "cpu", (REFUSED,)), LedgerLine("m", "Relu", "npu", ()))
    text = show_explanations([Explanation("net", replace(MODEL, summary=""), ledger)])
    lines = [" ".join(line.split()) for line in text.splitlines() if line.strip() and "─" not in line]
    assert lines == [
        "net kernel computes",
        "n conv a, b",
        "l",
        "part target driver nodes",
        "cpu0 cpu plain calls 2",
        "npu1 npu acme 1",
        "n (Exp): on cpu; not on npu: no Exp; replace it [unsupported-op]",
        "note: a note",
        "state x: f32 1 x 2, at first 0.0",
        "n (Conv of 1x2) at fast: a, cheapest; costs: a 2, b 3.5 cycles",
        "n (Conv of 1x2) at base: b, named; costs: b 3.5 cycles",
        "n (Conv of 1x2): not c: too small",
        "copy x: host -> island, 8 bytes",
        "arena 640 bytes (largest live set 512), weights 4 bytes, 5 transposes",
        "island: 9 bytes",
    ]
    summarized = show_explanations([Explanation("net", MODEL, ledger)])
    assert summarized == text.replace("  n (Exp): on cpu", "  fits\n  n (Exp): on cpu"), (
        "a line more, behind the parts"
    )
    project = replace(MODEL, parts=MODEL.parts[:1])
    assert show_explanations([Explanation("net", project, ledger)]) == "net\nfits\n"
    device = show_explanations([Explanation("net", replace(MODEL, layers=()), ledger)])
    assert device.startswith("net\n"), "no empty table of kernels"
    assert Explanation("net", SMALL, ledger).as_json()["nodes"] == [
        {"node": "n", "op": "Exp", "target": "cpu"}, {"node": "m", "op": "Relu", "target": "npu"}
    ]  # fmt: skip


def test_parts_are_listed_where_there_is_a_choice() -> None:
    one = (LedgerLine("n", "Exp", "cpu", ()),)
    cpu, npu = MODEL.parts
    for parts, ledger, is_shown in (
        ((cpu,), one, False),
        ((npu,), one, True),
        ((cpu,), (*one, replace(one[0], target="npu")), True),
    ):
        text = show_explanations([Explanation("net", replace(SMALL, parts=parts), ledger)])
        assert ("driver" in text) == is_shown


def test_a_single_candidate_is_not_worth_a_line() -> None:
    alone = replace(CHOICES, choices=CHOICES.choices[1:], refused={})
    assert list(describe_selection(alone)) == []
    assert len(list(describe_selection(replace(alone, refused={"c": "too small"})))) == 2
    assert len(list(describe_selection(replace(CHOICES, refused={}, unit="")))) == 2
    assert next(describe_selection(replace(CHOICES, unit=""))).endswith("costs: a 2, b 3.5\n")


def test_what_could_not_be_compared_did_not_pass() -> None:
    assert Failure("m", "host", "no data").passed is False


def test_parts_with_drivers_tell_their_details_under_their_names() -> None:
    """Two parts of one target tell the same things of different calls."""
    builder = Builder("m")
    x = builder.input("x", DType.F32, (4,))
    y = builder.one("Relu", [x], outputs=["y"])
    graph = builder.finish([builder.one("Neg", [y], outputs=["z"])])
    ports = [PartPort(graph.tensors[name]) for name in ("x", "y", "z")]
    parts = [
        Part(
            f"acme{i}",
            "acme",
            (ports[i],),
            (ports[i + 1],),
            BlobBody(b"code"),
            driver="acme_driver",
            nodes=(graph.nodes[i].name,),
            figures=PartFigures(details={"cycles": 10 + i}),
        )
        for i in range(2)
    ]
    assert report_plan(make_plan(graph, parts)).details == {"acme0": {"cycles": 10}, "acme1": {"cycles": 11}}
