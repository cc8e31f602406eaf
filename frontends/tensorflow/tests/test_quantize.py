"""Ranges that training found: kept as integers, which the library computes with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensorflow_cases import Case, RawAttribute, check, f32, floats, freeze, raw

from mace_core.emit import code
from mace_core.errors import MaceError
from mace_core.ir import DType, Graph
from mace_core.plan import plan_calls
from mace_core.registry import Registry
from mace_core.run import native
from mace_core.run.compile import shared_library
from mace_core.testing.compiled import host, with_quick_flags
from mace_core.transforms import run_phases
from mace_target_cpu import Cpu

WIDE = np.random.default_rng(1).uniform(-3, 3, (40, 3)).astype(np.float32)
ZEROS = np.zeros(3, np.float32)
LOW, HIGH = np.float32([-1.3, -0.2, -2.0]), np.float32([1.7, 2.5, 0.4])


def fake(name: str, low: Any, high: Any, **attrs: RawAttribute) -> tuple[Case, Case]:
    """Of numbers that are computed, and of constants."""
    channels = "FakeQuantWithMinMaxVarsPerChannel" if np.ndim(low) else "FakeQuantWithMinMaxVars"
    ends = (np.asarray(low, np.float32), np.asarray(high, np.float32))
    computed = raw(channels, f32(40, 3, low=-3, high=3), *ends, name=name, **attrs)
    return computed, Case(
        f"{name} constant",
        lambda tf, x: x + getattr(tf.raw_ops, channels)(inputs=WIDE, min=ends[0], max=ends[1], **attrs),
        [f32(40, 3)],
    )


CASES = (
    *fake("tensor", -1.3, 1.7),
    *fake("nudged", -0.001, 3.0),
    *fake("positive", 0.0, 2.0),
    *fake("narrow", -1.0, 1.0, narrow_range=True),
    *fake("few bits", -1.0, 2.0, num_bits=4),
    *fake("many bits", -1.0, 2.0, num_bits=16),
    *fake("channels", LOW, HIGH),
    *fake("narrow channels", LOW, HIGH, narrow_range=True),
    *fake("an empty channel", np.float32([-1, 0, -1]), np.float32([1, 0, 2])),
    raw("FakeQuantWithMinMaxArgs", f32(40, 3, low=-9, high=9)),
    *(
        raw(
            "QuantizeAndDequantizeV2",
            f32(40, 3),
            np.float32(-1.3),
            np.float32(1.7),
            range_given=True,
            name=f"both {attrs}",
            **attrs,
        )
        for attrs in ({}, {"narrow_range": True}, {"num_bits": 6})
    ),
    raw(
        "QuantizeAndDequantizeV2",
        f32(40, 3),
        np.float32(0),
        np.float32(1.7),
        range_given=True,
        signed_input=False,
        name="both unsigned",
    ),
    Case(
        "both channels",
        lambda tf, x: (
            x + tf.quantization.quantize_and_dequantize_v2(WIDE, ZEROS, ZEROS, range_given=False, axis=1)
        ),
        [f32(40, 3)],
    ),
    Case(
        "both constant",
        lambda tf, x: x + tf.quantization.quantize_and_dequantize_v2(WIDE, 0, 0, range_given=False),
        [f32(40, 3)],
    ),
)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_range(case: Case, tmp_path: Path, tf: Any) -> None:
    graph = check(case, tmp_path, tf)
    assert [t for t in graph.tensors.values() if t.quant], "the range is lost"


def test_ranges_without_zero_are_refused(tmp_path: Path, tf: Any) -> None:
    with pytest.raises(MaceError, match=r"range from 0\.5 to 1\.5 does not hold zero; train the model"):
        freeze(raw("FakeQuantWithMinMaxVars", f32(3), np.float32(0.5), np.float32(1.5)), tmp_path, tf).graph()


def network(tf: Any, x: Any, per_channel: bool = True) -> Any:
    """Two convolutions as quantization-aware training leaves them, and a layer of units."""

    def weights(*shape: int, seed: int) -> Any:
        array = floats(*shape, seed=seed)
        if not per_channel:
            return tf.quantization.fake_quant_with_min_max_vars(array, -1.0, 1.0, narrow_range=True)
        ends = np.abs(array).max(axis=tuple(range(array.ndim - 1)))
        return tf.quantization.fake_quant_with_min_max_vars_per_channel(array, -ends, ends, narrow_range=True)

    def kept(y: Any, low: float, high: float) -> Any:
        return tf.quantization.fake_quant_with_min_max_vars(y, low, high)

    x = kept(x, -2.0, 2.0)
    x = kept(tf.nn.relu6(tf.nn.conv2d(x, weights(3, 3, 3, 8, seed=1), 2, "SAME") + floats(8)), 0.0, 6.0)
    x = kept(tf.nn.relu(tf.nn.depthwise_conv2d(x, weights(3, 3, 8, 1, seed=2), [1] * 4, "SAME")), 0.0, 8.0)
    x = tf.reshape(tf.nn.max_pool2d(x, 2, 2, "VALID"), (1, -1))
    return kept(x @ weights(32, 5, seed=3) + floats(5), -20.0, 20.0)


@pytest.mark.slow
@pytest.mark.sampled(cases="True")
@pytest.mark.parametrize("per_channel", [True, False])
def test_a_network_is_computed_in_integers(per_channel: bool, tmp_path: Path, tf: Any) -> None:
    case = Case("aware", lambda tf, x: network(tf, x, per_channel), [f32(1, 8, 8, 3)])
    frozen, arrays = freeze(case, tmp_path, tf), case.arrays()
    graph = run_phases(frozen.graph(), Registry.load())
    for op in ("Conv", "MatMul"):
        assert all(
            integers(graph, node.inputs[:2]) and integers(graph, node.outputs)
            for node in graph.nodes
            if node.op.name == op
        )
    kernels, (found,) = built(graph, arrays, tmp_path)
    assert not any(name.startswith(("conv", "matmul")) and name.endswith("f32") for name in kernels), kernels
    (expected,) = frozen.expected(arrays).values()
    step = 40 / 255
    assert np.abs(found - expected).max() <= 1.01 * step
    assert (np.abs(found - expected) < 0.01 * step).mean() >= 0.8


def integers(graph: Graph, names: Any) -> bool:
    return all(graph.tensors[n].quant and graph.tensors[n].dtype is DType.I8 for n in names)


def built(graph: Graph, arrays: Any, folder: Path) -> tuple[list[str], list[Any]]:
    """Names of the kernels, and what the library computes."""
    program = Cpu().lower(graph)
    sources = code.library("aware", [plan_calls(program)], Cpu().levels("host"))
    model = native.load(shared_library(with_quick_flags(sources), host(), folder, ()), "aware")[graph.name]
    return [call.kernel.name for call in program.calls], list(model.run(arrays).values())
