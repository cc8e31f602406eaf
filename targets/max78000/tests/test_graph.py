"""Networks as graphs of the core's ops: the ops' own references give the vendor's known answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from references import MODELS, Reference, references

from mace_core.deployment import Model, Port
from mace_core.errors import MaceError
from mace_core.lowering import Lowering, Refused
from mace_core.pipeline import load
from mace_core.registry import Registry
from mace_core.run.reference import execute
from mace_core.transforms import run_phases
from mace_core.verify import verify
from mace_frontend_ai8x.described_model import DescribedModel
from mace_frontend_ai8x.frontend import Ai8x
from mace_frontend_ai8x.graph import as_any_graph, as_graph
from mace_frontend_ai8x.network import Eltwise
from mace_target_max78000.encode.data_memory import make_known_answer
from mace_target_max78000.encode.hardware_layers import make_hardware_layers

# Its ops' references take a minute.
REFERENCES = [r for r in references() if r.path.parent.name != "camvid_unet"]
BITWISE = (Eltwise.OR, Eltwise.XOR)


@pytest.mark.sampled(every=9)
@pytest.mark.parametrize("reference", REFERENCES, ids=lambda r: r.name)
def test_known_answer(reference: Reference) -> None:
    network = reference.network
    if any(layer.eltwise in BITWISE for layer in network.layers):
        with pytest.raises(MaceError, match="bits of stored numbers"):
            as_graph(network)
    graph = verify(as_any_graph(network))
    values = execute(graph, {"input": network.sample[None].astype(np.int8)})
    results = [u for u in make_hardware_layers(network, reference.device) if network.layers[u.index].output]
    pairs = [(u, values[name][0].astype(np.int64)) for u, name in zip(results, graph.outputs, strict=True)]
    result = make_known_answer(pairs, reference.options, reference.device)
    assert result == reference.known_answer


@pytest.mark.skipif(not REFERENCES, reason=f"the vendor's networks are not in {MODELS}: set MACE_MODELS")
def test_frontend_reads_description_and_checkpoint() -> None:
    """The graph and the arithmetic agree on data that neither was made for."""
    reference = next(r for r in REFERENCES if r.path.parent.name == "mnist")
    folder, content = reference.path.parent, reference.content
    files = (folder / content["network"], folder / content["checkpoint"])
    model = Model("mnist", files, inputs=(Port("input", data=(str(folder / content["sample"]),)),))
    frontend = Ai8x()
    assert frontend.claims(files[0])
    graph = frontend.load(files, model, Registry.load().ops)
    data = np.random.default_rng(1).integers(-128, 128, (1, 1, 28, 28)).astype(np.int8)
    expected = frontend.reference(files, model)({"input": data})
    actual = execute(graph, {"input": data})
    assert list(expected) == list(graph.outputs)
    for name in graph.outputs:
        np.testing.assert_array_equal(actual[name], expected[name])


@pytest.mark.slow
@pytest.mark.skipif(not REFERENCES, reason=f"the vendor's networks are not in {MODELS}: set MACE_MODELS")
def test_what_only_the_accelerator_computes_is_one_node_that_targets_of_kernels_refuse() -> None:
    """They tell which layers it is about; the graph still says what the network computes."""
    network = next(
        r for r in REFERENCES if any(layer.eltwise in BITWISE for layer in r.network.layers)
    ).network
    graph = as_any_graph(network)
    (node,) = graph.nodes
    assert node.op.name == "ai8x::Network"
    (layer,) = (layer for layer in network.layers if layer.eltwise in BITWISE)
    assert node.op.lower is not None
    with pytest.raises(Refused, match=f"layer '{layer.name}': bits of stored numbers have no meaning"):
        node.op.lower(node, Lowering(graph))


@pytest.mark.skipif(not REFERENCES, reason=f"the vendor's networks are not in {MODELS}: set MACE_MODELS")
def test_the_graph_remembers_the_description_through_the_transforms() -> None:
    reference = next(r for r in REFERENCES if r.path.parent.name == "mnist")
    folder, content = reference.path.parent, reference.content
    files = (folder / content["network"], folder / content["checkpoint"])
    model = Model("mnist", files, inputs=(Port("input", data=(str(folder / content["sample"]),)),))
    registry = Registry.load()
    graph = run_phases(load(model, registry), registry)
    assert isinstance(graph.origin, DescribedModel)
    placed = graph.origin.network(reference.options)
    assert [*placed.places] == [*reference.network.places]


def mnist(folder: Path | None = None, **changes: Any) -> Model:
    """The deployment's entry of a small network; folder: has another description."""
    reference = next(r for r in REFERENCES if r.path.parent.name == "mnist")
    home, content = reference.path.parent, reference.content
    files = ((folder or home) / content["network"], home / content["checkpoint"])
    return Model("mnist", files, inputs=(Port("input", data=(str(home / content["sample"]),)),), **changes)


@pytest.mark.skipif(not REFERENCES, reason=f"the vendor's networks are not in {MODELS}: set MACE_MODELS")
def test_options_that_say_which_layers_are_the_network_hold_for_every_target() -> None:
    plain = Ai8x().load((), mnist(), {})
    placed = Ai8x().load(
        (), mnist(keys={"target_options": {"max78000": {"no-bias": True, "output-width": 8}}}), {}
    )
    assert [str(node) for node in placed.nodes] == [str(node) for node in plain.nodes]
    assert placed.weights.keys() == plain.weights.keys()
    with pytest.raises(MaceError, match="lower skip-checkpoint-layers"):
        Ai8x().load((), mnist(keys={"target_options": {"max78000": {"skip-checkpoint-layers": 99}}}), {})


@pytest.mark.skipif(not REFERENCES, reason=f"the vendor's networks are not in {MODELS}: set MACE_MODELS")
def test_faults_of_a_description_come_with_the_limits_of_the_part_that_the_model_is_for(
    tmp_path: Path,
) -> None:
    description = mnist().files[0]
    text = description.read_text()
    wrong = text.replace("out_offset: 0x2000", "out_offset: 0x2001", 1).replace(
        "pool_stride: 2", "pool_strides: 2", 1
    )
    (tmp_path / description.name).write_text(wrong)
    for runtimes, limits in (((), False), (("max78000",), True)):
        with pytest.raises(MaceError, match="pool_strides") as error:
            Ai8x().load((), mnist(tmp_path, runtimes=runtimes), {})
        assert ("out_offset" in str(error.value)) is limits, str(error.value)


def test_a_model_without_a_checkpoint_is_told() -> None:
    with pytest.raises(MaceError, match="weight_file_path"):
        Ai8x().load((Path("net.yaml"),), Model("net", (Path("net.yaml"),)), {})
