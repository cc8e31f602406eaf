"""Convolution against its numpy reference, on every instruction-set level."""

from pathlib import Path

import numpy as np
import pytest
from emulated_levels import SEEN_FLOATS

from mace_core.attributes import Attribute
from mace_core.ir import Graph
from mace_core.levels import Level
from mace_core.run.reference import execute
from mace_core.testing.compiled import assert_close, case, check_graphs, plan_graph, random_inputs
from mace_core.testing.processor import levels_here
from mace_core.testing.sanitized import Sanitized
from mace_target_cpu import Cpu
from mace_target_cpu.isa import GENERIC, X86

LEVELS = {level.name: level for level in levels_here((*X86, *GENERIC))}


class OneLevel(Cpu):
    """The CPU target with a single level."""

    def __init__(self, level: Level) -> None:
        self.level = level

    def levels(self, abi: str) -> tuple[Level, ...]:
        return (self.level,)


def conv(
    name: str,
    x: tuple[int, ...],
    w: tuple[int, ...],
    bias: bool = True,
    dynamic: bool = False,
    **attrs: Attribute,
) -> Graph:
    """A convolution; dynamic: its weights and bias are inputs of the model."""
    rank = len(x) - 2
    full: dict[str, Attribute] = {
        "strides": (1,) * rank,
        "pads_before": (0,) * rank,
        "pads_after": (0,) * rank,
        "dilations": (1,) * rank,
    } | attrs
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(s).astype(np.float32) for s in (x, w, w[:1])]
    arrays[1] /= np.float32(np.sqrt(np.prod(w[1:])))  # results of about 1, however deep the sums
    return case(name, "Conv", arrays if bias else arrays[:2], full, constants=() if dynamic else (1, 2))


GRAPHS = [
    conv("pointwise", (1, 5, 7, 33), (17, 1, 1, 33)),
    conv(
        "first", (1, 13, 11, 3), (32, 3, 3, 3), strides=(2, 2), pads_before=(1, 1), pads_after=(1, 1), low=0.0
    ),
    conv("five", (2, 9, 9, 5), (16, 5, 5, 5), bias=False, pads_before=(2, 2), pads_after=(2, 2)),
    conv("dilated", (1, 12, 12, 4), (7, 3, 3, 4), dilations=(2, 3), pads_before=(2, 3), pads_after=(2, 3)),
    conv("uneven", (1, 8, 9, 2), (3, 2, 3, 2), pads_before=(1, 0), pads_after=(0, 2), strides=(1, 2)),
    conv(
        "groups",
        (1, 6, 6, 12),
        (18, 3, 3, 4),
        group=3,
        pads_before=(1, 1),
        pads_after=(1, 1),
        low=0.0,
        high=6.0,
    ),
    conv(
        "depthwise", (2, 9, 8, 41), (41, 3, 3, 1), group=41, pads_before=(1, 1), pads_after=(1, 1), high=1.0
    ),
    conv(
        "depthwise2",
        (1, 9, 9, 64),
        (64, 5, 5, 1),
        bias=False,
        group=64,
        strides=(2, 2),
        pads_before=(2, 2),
        pads_after=(2, 2),
    ),
    conv("multiplier", (1, 6, 6, 5), (15, 3, 3, 1), group=5),
    conv("line", (1, 20, 6), (8, 3, 6), pads_before=(1,), pads_after=(1,), dilations=(2,)),
    conv(
        "cube",
        (1, 5, 6, 7, 3),
        (4, 2, 3, 3, 3),
        strides=(2, 1, 2),
        pads_before=(1, 1, 1),
        pads_after=(0, 1, 1),
    ),
    # Padded on every side, every axis shorter than the next: no limit is that of another axis.
    conv("around", (2, 3, 4, 5, 6), (7, 2, 2, 3, 6), pads_before=(2, 2, 2), pads_after=(2, 2, 2)),
    conv(
        "around_deep",
        (2, 3, 4, 5, 20),
        (20, 2, 2, 3, 1),
        group=20,
        pads_before=(2, 2, 2),
        pads_after=(2, 2, 2),
    ),
    conv("deep", (1, 30, 30, 64), (64, 3, 3, 64), pads_before=(1, 1), pads_after=(1, 1)),
    conv("one", (1, 7, 7, 1), (1, 3, 3, 1), pads_before=(1, 1), pads_after=(1, 1)),
    conv("narrow", (1, 7, 11, 17), (24, 1, 1, 17), bias=False, high=1.0),
    conv("skipping", (1, 9, 9, 33), (33, 1, 1, 33), strides=(2, 2)),
    conv("row", (1, 1, 1, 300), (130, 1, 1, 300)),
    conv("groups_apart", (1, 5, 5, 34), (34, 1, 1, 17), group=2),
    conv("unrolled5", (1, 6, 12, 24), (24, 5, 5, 1), group=24, pads_before=(2, 2), pads_after=(2, 2)),
    conv(
        "unrolled3_2",
        (1, 7, 13, 17),
        (17, 3, 3, 1),
        group=17,
        strides=(2, 2),
        pads_before=(0, 0),
        pads_after=(1, 1),
    ),
    conv("depthwise_narrow", (1, 6, 9, 3), (3, 3, 3, 1), group=3, pads_before=(1, 1), pads_after=(1, 1)),
    conv("depthwise_eight", (2, 12, 15, 8), (8, 3, 3, 1), group=8, strides=(2, 2), high=1.0),
    conv(
        "depthwise_dilated",
        (1, 9, 12, 20),
        (20, 3, 3, 1),
        group=20,
        dilations=(2, 2),
        pads_before=(2, 2),
        pads_after=(2, 2),
    ),
    conv(
        "depthwise_all_padding", (1, 2, 2, 20), (20, 3, 3, 1), group=20, pads_before=(4, 4), pads_after=(4, 4)
    ),
    conv(
        "depthwise_cube",
        (1, 4, 5, 8, 18),
        (18, 3, 2, 3, 1),
        group=18,
        pads_before=(1, 0, 1),
        pads_after=(1, 1, 1),
    ),
    # The unrolled taps are chosen by the last axis: the other one is of another size, step or dilation here.
    *(
        conv(f"depthwise_uneven{number}", (1, 11, 12, 20), (20, *kernel, 1), group=20, **attrs)
        for number, (kernel, attrs) in enumerate(
            [
                ((5, 3), {}),
                ((3, 5), {"strides": (2, 1)}),
                ((3, 3), {"strides": (1, 2)}),
                ((3, 3), {"dilations": (1, 2)}),
                ((3, 3), {"dilations": (2, 1)}),
            ]
        )
    ),
    # The weights of a tile's columns leave the second-level cache: sums in between go through the result.
    conv(
        "weights_beyond_cache",
        (1, 3, 5, 512),
        (88, 3, 3, 512),
        pads_before=(1, 1),
        pads_after=(1, 1),
        low=0.0,
    ),
    conv("runtime_groups", (1, 6, 6, 6), (8, 3, 3, 3), dynamic=True, group=2),
    conv("runtime", (1, 6, 6, 5), (18, 3, 3, 5), dynamic=True),
    conv("runtime_depthwise", (1, 6, 6, 5), (5, 3, 3, 1), dynamic=True, group=5),
]


@pytest.mark.slow
@pytest.mark.sampled(cases="avx2")
@pytest.mark.parametrize("level", LEVELS)
def test_conv(tmp_path: Path, level: str) -> None:
    check_graphs(OneLevel(LEVELS[level]), GRAPHS, tmp_path)


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.parametrize("level", SEEN_FLOATS)
def test_conv_reads_nothing_beside_its_tensors(tmp_path: Path, level: str) -> None:
    target = OneLevel(SEEN_FLOATS[level])
    library = Sanitized({g.name: plan_graph(target, g) for g in GRAPHS}, (target.level,), tmp_path)
    for graph in GRAPHS:
        inputs = random_inputs(graph)
        expected = execute(graph, inputs)
        for name, found in library.run(graph.name, inputs).items():
            assert_close(found, expected[name], graph.name)
