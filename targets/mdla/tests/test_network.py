"""Networks as bytes: what the encoder writes, what the C that reads them accepts, and what the encoder refuses."""

from __future__ import annotations

import struct
import subprocess
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
import tflite
from neuron_session import SANITIZED, STUB, small_graph

from mace_core.errors import MaceError
from mace_core.graph_builder import Builder
from mace_core.ir import DType
from mace_core.testing.compiled import case, host
from mace_target_mdla.lite_model import LiteModel, LiteTensor
from mace_target_mdla.network import (
    NetworkKind,
    encode_compiled,
    encode_network,
    find_tflite,
    refuse_encoding,
)
from mace_target_mdla.network_table import NetworkTable
from mace_tflite_writer import write_tflite

RUNTIME = Path(str(files("mace_core") / "runtime"))
DRIVER = Path(str(files("mace_target_mdla.driver")))


def test_a_network_holds_the_file_and_is_the_same_each_time() -> None:
    graph = small_graph()
    file = write_tflite(graph)
    network = encode_network(graph, file)
    assert find_tflite(network) == file
    assert encode_network(graph, file) == network
    magic, version, _, size = struct.unpack_from("<8s2IQ", network)
    assert (magic, version, size) == (b"MACEMDLA", 1, len(network))


def test_weights_are_in_a_network_once() -> None:
    weights = np.random.default_rng(0).normal(size=(64, 64)).astype(np.float32)
    builder = Builder("m")
    x = builder.input("x", DType.F32, (1, 64))
    graph = builder.finish(list(builder.add("MatMul", [x, builder.weight("w", weights)], {})))
    network = encode_network(graph, write_tflite(graph))
    assert network.count(weights.T.tobytes()) + network.count(weights.tobytes()) == 1
    assert len(network) < weights.nbytes + 4096


def test_filters_that_two_operations_read_are_in_a_network_once() -> None:
    """Also where they do not lie aligned in the file, so that they are copied behind it."""
    model = LiteModel(write_tflite(small_graph()))
    filters = LiteTensor("w", tflite.TensorType.INT8, (2, 3), (0.1, 0.2), (0, 0), 0, 13, 6)
    model.__dict__["tensors"] = (filters,)
    table = NetworkTable(model)
    first, size = table.weights(0, 0), len(table.data)
    assert (table.weights(0, 0), len(table.data), len(table.operands)) == (first, size, 1)


def test_whether_floats_may_be_computed_with_16_bits_is_a_flag() -> None:
    graph = small_graph()
    file = write_tflite(graph)
    strict, relaxed = (encode_network(graph, file, relax) for relax in (False, True))
    flags = [struct.unpack_from("<I", network, 28)[0] for network in (strict, relaxed)]
    assert flags == [0, 1]


def test_a_compiled_network_is_wrapped() -> None:
    graph = small_graph()
    network = encode_compiled(graph, b"compiled", NetworkKind.DLA)
    assert network.endswith(b"compiled")
    assert find_tflite(network) == b""
    for compiled, kind in ((b"", NetworkKind.DLA), (b"compiled", NetworkKind.OPERATIONS)):
        with pytest.raises(MaceError, match="there are no compiled bytes"):
            encode_compiled(graph, compiled, kind)


def test_a_file_of_another_graph_is_refused() -> None:
    graph = small_graph()
    other = replace(graph, outputs=graph.outputs[:1])
    with pytest.raises(MaceError, match=r"ports of \[400, 400\] bytes, and the graph of \[400\]"):
        encode_network(other, write_tflite(graph))


def test_nodes_that_the_adapter_lacks_are_refused_one_by_one() -> None:
    image = np.zeros((1, 4, 4, 2), np.float32)
    pads = {"before": (0, 1, 1, 0), "after": (0, 1, 1, 0), "mode": "reflect"}
    mirrored = case("mirror", "Pad", [image], pads)
    refusal = refuse_encoding(mirrored.nodes[0], mirrored)
    assert refusal is not None
    assert refusal.code == "unsupported-op"
    assert "the adapter has no MIRROR_PAD" in refusal.reason
    relu = case("relu", "Relu", [image])
    assert refuse_encoding(relu.nodes[0], relu) is None
    with pytest.raises(MaceError, match="the adapter has no MIRROR_PAD"):
        encode_network(mirrored, write_tflite(mirrored))


@pytest.mark.slow
def test_no_number_of_a_network_leads_out_of_it(tmp_path: Path) -> None:
    """Each word of the tables is changed in nine ways, the checksum made right, and what is accepted is walked under a sanitizer."""
    (tmp_path / "network").write_bytes(encode_network(small_graph(), write_tflite(small_graph())))
    sources = [str(STUB / "read_network.c"), str(DRIVER / "mdla_network.c")]
    includes = [f"-I{RUNTIME}", f"-I{DRIVER}"]
    strict = ["-std=gnu11", "-Wall", "-Wextra", "-Werror"]
    program = str(tmp_path / "read_network")
    subprocess.run([*host().cc, *strict, *SANITIZED, *includes, *sources, "-o", program], check=True)
    done = subprocess.run(
        [program, str(tmp_path / "network")], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr[-2000:]
    accepted, refused, _ = map(int, done.stdout.split())
    assert refused > 400
    assert accepted > 100, "values such as scales and codes are the adapter's business"
