"""Work that is shared out gives the same bits, whichever worker does which part and in whatever order."""

import ctypes as c
import random
from pathlib import Path

import numpy as np
import pytest

from mace_core.ir import Array, Graph
from mace_core.run import native
from mace_core.testing.compiled import case, compile_graphs, random_inputs
from mace_target_cpu import Cpu

pytestmark = pytest.mark.slow

TASK = c.CFUNCTYPE(None, c.c_void_p, c.c_int32, c.c_int32)
PARALLEL = c.CFUNCTYPE(None, c.c_void_p, TASK, c.c_void_p, c.c_int32)
WORKERS = 3


class Threads(c.Structure):
    _fields_ = (
        ("struct_bytes", c.c_uint32),
        ("workers", c.c_int32),
        ("pool", c.c_void_p),
        ("parallel", PARALLEL),
    )


def shuffled(model: native.LoadedModel, given: dict[str, Array]) -> tuple[dict[str, Array], int]:
    """The outputs of a run whose tasks come in another order, on one of WORKERS each.

    And the number of tasks.
    """
    order = random.Random(1)
    done = []

    def parallel(_: object, task: object, context: int, tasks: int) -> None:
        assert callable(task)
        for index in order.sample(range(tasks), tasks):
            task(context, index, order.randrange(WORKERS))
            done.append(index)

    threads = Threads(c.sizeof(Threads), WORKERS, None, PARALLEL(parallel))
    config = native.Config(c.sizeof(native.Config), 0, c.cast(c.pointer(threads), c.c_void_p))
    outputs = native.LoadedModel(model._raw, model._functions, config).run(given)
    return outputs, len(done)


def graphs() -> list[Graph]:
    x, at = np.zeros((2, 90, 91, 5), np.float32), np.zeros((2000,), np.int64)
    up = {"sizes": (2, 120, 130, 5), "scales": (1.0, 120 / 90, 130 / 91, 1.0)}
    made: dict[str, tuple[list[Array], dict[str, object]]] = {
        "Transpose": ([x], {"perm": (3, 1, 2, 0)}),
        "Slice": ([x], {"starts": (0, 1, 90, 4), "sizes": (2, 80, 91, 5), "steps": (1, 1, -1, -1)}),
        "Pad": ([x], {"before": (0, 1, 1, 0), "after": (1, 0, 2, 1)}),
        "Concat": ([x, x[..., :3]], {"axis": 3}),
        "Tile": ([x], {"repeats": (1, 2, 1, 3)}),
        "Gather": ([x[0], at], {"axis": 1}),
        "GatherElements": ([x, np.zeros((2, 90, 91, 5), np.int32)], {"axis": 1}),
        "GatherND": ([x, np.zeros((2, 3000, 1), np.int32)], {"batch_dims": 1}),
        "Trilu": ([x], {"k": 1}),
        "ReverseSequence": ([x, np.zeros(91, np.int64)], {"batch_axis": 2, "time_axis": 1}),
        "SpaceToDepth": ([x[:, :, :90]], {"block": 3}),
    }
    single = [case(op.lower(), op, inputs, attrs) for op, (inputs, attrs) in made.items()]
    resized = [case(f"resize_{m}", "Resize", [x], {**up, "mode": m}) for m in ("nearest", "linear", "cubic")]
    split = case("split", "Split", [x], {"axis": 3, "sizes": (2, 3)}, outputs=2)
    return [*single, *resized, split, case("topk", "TopK", [x], {"k": 20, "axis": 2}, outputs=2)]


def test_results_do_not_depend_on_the_workers(tmp_path: Path) -> None:
    made = graphs()
    models = compile_graphs(Cpu(), made, tmp_path)
    for graph in made:
        given = random_inputs(graph)
        alone = models[graph.name].run(given)
        together, tasks = shuffled(models[graph.name], given)
        assert tasks > WORKERS, graph.name
        for name in graph.outputs:
            np.testing.assert_array_equal(together[name], alone[name], err_msg=f"{graph.name}/{name}")
