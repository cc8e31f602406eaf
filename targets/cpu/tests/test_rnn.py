"""RNN, GRU and LSTM against their numpy references."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mace_core.ir import Array, Graph
from mace_core.kernel_target import KernelTarget
from mace_core.levels import with_levels
from mace_core.ops.rnn import ACTIVATIONS
from mace_core.refusal import Refusal
from mace_core.testing.compiled import case, check_graphs
from mace_core.testing.processor import levels_here
from mace_target_cpu import Cpu
from mace_target_cpu.lower.types import CAST

GATES: Mapping[str, int] = {"RNN": 1, "GRU": 3, "LSTM": 4}
OUTPUTS: Mapping[str, int] = {"RNN": 2, "GRU": 2, "LSTM": 3}
NAMES = ("x", "w", "r", "b", "lengths", "h0", "c0", "p")
OPTIONAL = NAMES[3:]

BEST, LAST = (with_levels(Cpu(), [levels_here(Cpu().levels("host"))[i]]) for i in (0, -1))
"""One level each, so that all three ops can stand in one library: a compiler takes most of the time."""


class Cases:
    """Graphs of one node with the data to run them on."""

    def __init__(self) -> None:
        self.graphs: list[Graph] = []
        self.inputs: dict[str, dict[str, Array]] = {}

    def add(self, op: str, size: tuple[int, int, int, int], attrs: Mapping[str, Any], **how: Any) -> None:
        """size: time, batch, inputs, hidden.

        without: optional inputs left out.  constants: as for `case`.
        """
        arrays = [
            None if n in how.get("without", ()) else a
            for n, a in data(op, size, str(attrs.get("direction"))).items()
        ]
        name = f"{op.lower()}{len(self.graphs)}"
        constants = how.get("constants", (1, 2, 3))
        given = {"hidden": size[-1], **attrs}
        self.graphs.append(
            case(name, op, arrays, given, constants=constants, outputs=how.get("outputs", OUTPUTS[op]))
        )
        self.inputs[name] = {f"x{i}": a for i, a in enumerate(arrays) if a is not None and i not in constants}

    def check(self, folder: Path, target: KernelTarget) -> None:
        """Assert that the generated C computes what the references do."""
        check_graphs(target, self.graphs, folder, self.inputs, tolerance=5e-6)


def data(op: str, size: tuple[int, int, int, int], direction: str) -> dict[str, Any]:
    """Everything that the op can be given.

    Sequences end anywhere, some before they begin, one beyond the last step.
    """
    time, batch, width, hidden = size
    count, gates = 2 if direction == "bidirectional" else 1, GATES[op]
    rng = np.random.default_rng(sum(size) + gates)

    def normal(*shape: int) -> Any:
        return (rng.standard_normal(shape) / np.sqrt(shape[-1])).astype(np.float32)

    arrays = {
        "x": rng.standard_normal((time, batch, width)).astype(np.float32),
        "w": normal(count, gates * hidden, width),
        "r": normal(count, gates * hidden, hidden),
        "b": rng.standard_normal((count, 2 * gates * hidden)).astype(np.float32),
        "lengths": np.resize([time, 0, time + 3, time // 2, 1, -2, time - 1], batch).astype(np.int32),
        "h0": rng.standard_normal((count, batch, hidden)).astype(np.float32),
    }
    if op == "LSTM":
        arrays["c0"] = rng.standard_normal((count, batch, hidden)).astype(np.float32)
        arrays["p"] = rng.standard_normal((count, 3 * hidden)).astype(np.float32)
    return arrays


SIZES = ((1, 1, 1, 1), (5, 1, 3, 8), (4, 3, 7, 5), (20, 2, 16, 33), (9, 9, 2, 12), (3, 4, 40, 64))


@pytest.mark.slow
def test_sizes_and_directions(tmp_path: Path) -> None:
    cases = Cases()
    for op, size, direction in product(GATES, SIZES, ("forward", "reverse", "bidirectional")):
        cases.add(op, size, {"direction": direction})
        cases.add(op, size, {"direction": direction}, without=OPTIONAL)
    cases.check(tmp_path, BEST)


@pytest.mark.slow
def test_optional_inputs_and_computed_weights(tmp_path: Path) -> None:
    cases = Cases()
    for op, name in product(GATES, OPTIONAL):
        if op == "LSTM" or name not in ("c0", "p"):
            cases.add(op, (6, 5, 4, 11), {}, without=(name,))
            others = tuple(n for n in OPTIONAL if n != name)
            cases.add(op, (6, 5, 4, 11), {"direction": "bidirectional"}, without=others)
    for op in GATES:
        cases.add(op, (6, 5, 4, 11), {"direction": "bidirectional"}, constants=())
        cases.add(op, (3, 2, 4, 40), {"direction": "reverse"}, constants=(2,))
        cases.add(op, (6, 5, 4, 11), {}, outputs=1)
    cases.check(tmp_path, BEST)


VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "RNN": {},
    "GRU": {"linear_before_reset": True},
    "LSTM": {"coupled": True, "cell_clip": 0.1},
}


@pytest.mark.slow
def test_clip_and_variants(tmp_path: Path) -> None:
    cases = Cases()
    for op, direction, clip in product(GATES, ("forward", "bidirectional"), (0.0, 0.3)):
        attrs = {"direction": direction, "clip": clip}
        cases.add(op, (7, 6, 5, 19), attrs)
        cases.add(op, (7, 6, 5, 19), {**attrs, **VARIANTS[op]})
        cases.add(op, (7, 6, 5, 19), {**attrs, **VARIANTS[op]}, without=OPTIONAL)
    cases.check(tmp_path, LAST)


@pytest.mark.slow
@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("op", GATES)
def test_activations(op: str, tmp_path: Path) -> None:
    """Clipped, for a gate without bounds makes states grow without bounds, and with them every rounding."""
    per = {"RNN": 1, "GRU": 2, "LSTM": 3}[op]
    names = list(ACTIVATIONS)
    given = {"alphas": (0.3, 0.7, 0.5), "betas": (0.6, 0.4)}
    cases = Cases()
    for i in range(0, len(names), per):
        chosen = {"activations": tuple((names + names)[i : i + per]), "clip": 1.1}
        cases.add(op, (3, 2, 3, 9), chosen)
        cases.add(op, (3, 2, 3, 9), {**chosen, **given})
    both = {"activations": tuple((names + names)[2 : 2 + 2 * per]), "direction": "bidirectional", "clip": 1.1}
    cases.add(op, (3, 2, 3, 9), both)
    cases.add(op, (3, 2, 3, 9), {**both, **given})
    # One function for all gates: only its numbers tell gates and directions apart.
    slopes = {"activations": ("LeakyRelu",) * 2 * per, "alphas": tuple(0.1 * (i + 1) for i in range(2 * per))}
    cases.add(op, (3, 2, 3, 9), {**both, **slopes})
    cases.check(tmp_path, BEST if op == "GRU" else LAST)


@pytest.mark.slow
def test_nothing_to_do(tmp_path: Path) -> None:
    cases = Cases()
    for op in GATES:
        cases.add(op, (0, 2, 3, 4), {}, without=("lengths",))
        cases.add(op, (3, 0, 3, 4), {}, without=("lengths",))
    cases.check(tmp_path, Cpu())


def test_other_types_are_refused() -> None:
    graph = case(
        "double",
        "RNN",
        [np.zeros((2, 1, 3)), np.zeros((1, 4, 3)), np.zeros((1, 4, 4))],
        {"hidden": 4},
        outputs=2,
    )
    assert Cpu().refuses(graph.nodes[0], graph) == Refusal("dtype", "no kernel computes RNN of f64", CAST)


@pytest.mark.parametrize("op", GATES)
def test_the_scratch_grows_with_the_hidden_size(op: str) -> None:
    scratch = []
    for hidden in (32, 64):
        cases = Cases()
        cases.add(op, (3, 2, 5, hidden), {})
        (call,) = Cpu().lower(cases.graphs[0]).calls
        scratch.append(call.scratch)
    assert scratch[1] == 2 * scratch[0] > 0
