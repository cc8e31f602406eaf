"""Resize against its numpy reference: all modes and coordinates, on images, volumes and odd axes."""

from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from mace_core.attributes import Attribute
from mace_core.graph_builder import Builder
from mace_core.ir import DType, Graph
from mace_core.ops.resize import Coordinates, Nearest
from mace_core.refusal import Refusal
from mace_core.testing.compiled import case, check_graphs
from mace_target_cpu import Cpu
from mace_target_cpu.lower.resize import MAX_TABLE
from mace_target_cpu.lower.types import CAST

# (shape, sizes): channels-last image up, down and mixed; one axis; channels first; a volume; axes apart; one
# pixel; one element
SHAPES = (
    ((1, 4, 5, 3), (1, 8, 10, 3)),
    ((2, 7, 6, 16), (2, 3, 4, 16)),
    ((1, 5, 6, 9), (1, 3, 11, 9)),
    ((2, 5, 3), (2, 7, 3)),
    ((1, 2, 6, 5), (1, 2, 9, 4)),
    ((1, 3, 4, 5, 2), (1, 5, 2, 9, 2)),
    ((3, 2, 4), (5, 2, 3)),
    ((1, 6, 4, 2), (1, 1, 1, 2)),
    ((1, 1, 1, 4), (1, 3, 2, 4)),
    ((1, 3, 2, 1), (1, 1, 1, 1)),
    ((6,), (13,)),
)


def graphs(
    mode: str, coordinates: str, dtype: type[np.generic] = np.float32, **attrs: Attribute
) -> list[Graph]:
    results = []
    for number, (shape, sizes) in enumerate(SHAPES):
        given = {
            "sizes": sizes,
            "scales": tuple(o / n for o, n in zip(sizes, shape, strict=True)),
            "mode": mode,
            **attrs,
        }
        if coordinates == "tf_crop_and_resize":
            starts = tuple(0.0 if o == n else -0.25 for o, n in zip(sizes, shape, strict=True))
            given |= {"roi": (*starts, *(1.0 + s / 3 for s in starts)), "extrapolation": 7.0}
        name = f"r{number}_{mode}_{coordinates}_{attrs.get('nearest', '')}"
        results.append(case(name, "Resize", [np.zeros(shape, dtype)], {**given, "coordinates": coordinates}))
    return results


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_weighted(tmp_path: Path, mode: str) -> None:
    check_graphs(Cpu(), [g for c in get_args(Coordinates) for g in graphs(mode, c)], tmp_path)


@pytest.mark.slow
def test_cubic_without_what_is_outside(tmp_path: Path) -> None:
    check_graphs(Cpu(), graphs("cubic", "half_pixel", exclude_outside=True, cubic_a=-0.5), tmp_path)


@pytest.mark.slow
def test_nearest(tmp_path: Path) -> None:
    cases = [
        g for c in get_args(Coordinates) for n in get_args(Nearest) for g in graphs("nearest", c, nearest=n)
    ]
    check_graphs(Cpu(), cases[:: 2 if len(cases) > 200 else 1], tmp_path, tolerance=0)


@pytest.mark.slow
def test_nearest_of_any_type(tmp_path: Path) -> None:
    made = []
    for dtype in (np.bool_, np.uint8, np.float16, np.int64):
        typed = graphs("nearest", "asymmetric", dtype, nearest="floor")
        made += [g.with_name(f"{g.name}_{dtype.__name__}") for g in typed]
    check_graphs(Cpu(), made, tmp_path, tolerance=0)


@pytest.mark.slow
def test_scales_that_are_not_the_ratio_of_sizes(tmp_path: Path) -> None:
    attrs = {"sizes": (1, 2, 4, 3), "scales": (1.0, 0.6, 0.7, 1.0)}
    x = np.zeros((1, 4, 6, 3), np.float32)
    modes = [
        (m, c)
        for m in ("nearest", "linear", "cubic")
        for c in ("half_pixel", "half_pixel_symmetric", "asymmetric")
    ]
    check_graphs(
        Cpu(),
        [case(f"{m}_{c}", "Resize", [x], {**attrs, "mode": m, "coordinates": c}) for m, c in modes],
        tmp_path,
    )


def test_same_size_moves_nothing(tmp_path: Path) -> None:
    x = np.zeros((1, 4, 6, 3), np.float32)
    same = {"sizes": x.shape, "scales": (1.0,) * 4}
    results = [case(m, "Resize", [x], {**same, "mode": m}) for m in ("nearest", "linear", "cubic")]
    assert all([c.kernel.name for c in Cpu().lower(g).calls] == ["copy"] for g in results)
    check_graphs(Cpu(), results, tmp_path, tolerance=0)


def test_other_floats_are_refused_with_a_reason() -> None:
    attrs = {"sizes": (4,), "scales": (2.0,), "mode": "linear"}
    graph = case("r", "Resize", [np.zeros((2,), np.float64)], attrs)
    assert Cpu().refuses(graph.nodes[0], graph) == Refusal("dtype", "no kernel interpolates f64", CAST)


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize(("width", "refused"), [(MAX_TABLE, False), (MAX_TABLE + 1, True)])
def test_an_axis_is_as_long_as_its_table_may_be(mode: str, width: int, refused: bool) -> None:
    new = Builder("wide")
    x = new.input("x", DType.F32, (1, 1, 4, 1))
    attrs = {"sizes": (1, 1, width, 1), "scales": (1.0, 1.0, width / 4, 1.0), "mode": mode}
    graph = new.finish(new.add("Resize", [x], attrs, outputs=["y"]))
    reason = str(Cpu().refuses(graph.nodes[0], graph))
    assert ("its table of positions holds at most" in (reason or "")) is refused
