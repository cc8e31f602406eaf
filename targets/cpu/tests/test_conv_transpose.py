"""Transposed convolution against its numpy reference."""

from pathlib import Path

import numpy as np
import pytest

from mace_core.attributes import Attribute
from mace_core.ir import Graph
from mace_core.testing.compiled import case, check_graphs
from mace_target_cpu import Cpu

pytestmark = pytest.mark.slow


def graph(
    name: str,
    x: tuple[int, ...],
    w: tuple[int, ...],
    bias: bool = True,
    constants: tuple[int, ...] = (1, 2),
    **attrs: Attribute,
) -> Graph:
    rank = len(x) - 2
    full: dict[str, Attribute] = {
        "strides": (1,) * rank,
        "pads_before": (0,) * rank,
        "pads_after": (0,) * rank,
        "dilations": (1,) * rank,
    }
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(s).astype(np.float32) for s in (x, w, w[:1])]
    full["output_padding"] = (0,) * rank
    return case(name, "ConvTranspose", arrays if bias else arrays[:2], full | attrs, constants=constants)


def test_conv_transpose(tmp_path: Path) -> None:
    graphs = [
        graph("double", (1, 5, 6, 3), (17, 2, 2, 3), strides=(2, 2)),
        graph(
            "overlap",
            (2, 4, 5, 2),
            (9, 3, 3, 2),
            bias=False,
            strides=(2, 1),
            pads_before=(1, 1),
            pads_after=(1, 0),
            low=0.0,
        ),
        graph("padded", (1, 4, 4, 4), (4, 3, 3, 4), strides=(3, 2), output_padding=(1, 1), dilations=(1, 2)),
        graph("groups", (1, 4, 4, 6), (8, 3, 3, 3), group=2, strides=(2, 2)),
        graph("line", (1, 7, 3), (4, 3, 3), strides=(2,)),
        graph("cube", (1, 3, 2, 4, 2), (3, 2, 3, 2, 2), strides=(2, 1, 2)),
        graph(
            "still",
            (1, 6, 5, 4),
            (6, 3, 3, 4),
            strides=(1, 1),
            pads_before=(1, 0),
            pads_after=(1, 0),
            dilations=(1, 2),
        ),
        graph(
            "cube_groups",
            (2, 3, 2, 4, 4),
            (6, 3, 2, 3, 2),
            group=2,
            strides=(2, 3, 2),
            pads_before=(1, 0, 1),
            output_padding=(1, 0, 0),
        ),
        graph("narrow", (1, 4, 4, 3), (5, 2, 2, 3), strides=(3, 3), output_padding=(2, 1)),
        graph(
            "deep",
            (1, 5, 5, 7),
            (7, 4, 4, 1),
            group=7,
            strides=(2, 2),
            pads_before=(1, 1),
            pads_after=(1, 1),
            high=0.5,
        ),
        graph(
            "over_padded", (1, 6, 6, 3), (5, 2, 2, 3), strides=(2, 2), pads_before=(3, 2), pads_after=(3, 2)
        ),
        graph("runtime", (1, 5, 6, 3), (7, 2, 2, 3), strides=(2, 2), constants=()),
        graph("runtime_cube", (1, 4, 2, 2, 4), (6, 2, 1, 2, 2), group=2, strides=(1, 1, 2), constants=()),
    ]
    check_graphs(Cpu(), graphs, tmp_path)
