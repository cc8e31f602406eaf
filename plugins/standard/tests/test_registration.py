"""Every transform lies in the folder of its phase, in a module of its name, and is on the package's page."""

from __future__ import annotations

from pathlib import Path

import pytest

from mace_core.api import Transform
from mace_core.registry import Registry
from mace_core.transforms import order_phases
from mace_transform_standard import mace_transforms

PACKAGE = Path(__file__).parents[1]
TRANSFORMS = tuple(mace_transforms())


@pytest.mark.parametrize("transform", TRANSFORMS, ids=lambda transform: transform.name)
def test_a_transform_is_where_its_name_and_phase_say(transform: Transform) -> None:
    function = transform.name.replace("-", "_")
    assert transform.apply.__name__ == function
    assert transform.apply.__module__ == f"mace_transform_standard.{transform.phase}.{function}"
    assert f"`{transform.name}`" in (PACKAGE / "README.md").read_text()


def test_no_module_of_a_phase_is_left_out() -> None:
    modules = {path.stem for path in PACKAGE.glob("src/*/*/*.py")} - {"__init__", "axis_groups"}
    assert modules == {transform.name.replace("-", "_") for transform in TRANSFORMS}


def test_the_order_of_the_phases_is_the_one_that_was_measured() -> None:
    """Written down so that a change of a constraint shows what it moves.

    The reasons are beside the constraints.
    """
    passes = [step for phase in order_phases(Registry.load()) for step in phase]
    ours = [
        (step.phase.name, step.transform.name)
        for step in passes
        if step.plugin.distribution == "mace-transform-standard"
    ]
    order: dict[str, str] = {}
    for phase, name in ours:
        order[phase] = f"{order.get(phase, '')} {name}".strip()
    assert order == {
        "layout": "remove-identity flatten-atrous fuse-group-norm layout",
        "canonicalize": "remove-identity remove-neutral merge-casts merge-concats cancel-splits merge-pads"
        " merge-slices remove-expands remove-duplicates reduce-strength",
        "fuse": "fuse-gates fuse-gelu fuse-norm fuse-affine fuse-pad fuse-crop fuse-prelu fuse-softmax"
        " sink-reshapes fuse-hard",
        "fold": "fold-batch-norm fold-scale fuse-bias",
        "combine": "fold-input fold-conv-conv fuse-scale-shift remove-limits fuse-activation",
        "quantize": "fuse-quantize remove-dead-channels",
        "cleanup": "layout merge-axes merge-transposes transposes-to-weights transposes-to-views remove-identity",
    }
