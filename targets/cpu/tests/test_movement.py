"""Ops that move elements, against their numpy references: the same bits for every element size."""

from itertools import permutations, product
from pathlib import Path

import numpy as np
import pytest

from mace_core.graph_builder import Builder
from mace_core.ir import Array, DType, Graph
from mace_core.run.reference import execute
from mace_core.testing.compiled import case, run_merged
from mace_target_cpu import Cpu

pytestmark = pytest.mark.slow

DTYPES = (np.bool_, np.int8, np.float16, np.float32, np.int64)
SHAPES = ((7,), (3, 5), (37, 41), (2, 3, 4), (1, 5, 1), (2, 1, 3, 5), (3, 4, 1, 2, 2), (2, 3, 2, 1, 3, 2))


NO_CUT = {"starts": (), "sizes": (), "steps": ()}


def counted(shape: tuple[int, ...], dtype: type[np.generic] = np.float32) -> Array:
    """Elements that differ as far as the type lets them."""
    return (np.arange(np.prod(shape, dtype=int)) % 251).reshape(shape).astype(dtype)


def check_bits(graphs: list[Graph], folder: Path) -> None:
    inputs = {graph.name: inputs_of(graph) for graph in graphs}
    actual = run_merged(Cpu(), graphs, folder, inputs)
    for graph in graphs:
        expected = execute(graph, inputs[graph.name])
        for name in graph.outputs:
            result = actual[graph.name][name]
            np.testing.assert_array_equal(result, expected[name], err_msg=f"{graph.name}/{name}")


def inputs_of(graph: Graph) -> dict[str, Array]:
    tensors = [graph.tensors[name] for name in graph.inputs]
    return {tensor.name: counted(tensor.shape, tensor.dtype.numpy.type) for tensor in tensors}


def test_transpose_of_every_rank_and_size(tmp_path: Path) -> None:
    graphs: list[Graph] = []
    for shape in ((), *SHAPES):
        perms = list(permutations(range(len(shape))))
        for i, perm in enumerate(perms[:: max(1, len(perms) // 8)]):
            dtype = DTYPES[(i + len(graphs)) % len(DTYPES)]
            graphs.append(case(f"t{len(graphs)}", "Transpose", [counted(shape, dtype)], {"perm": perm}))
    check_bits(graphs, tmp_path)


def test_transpose_inner_tiles(tmp_path: Path) -> None:
    shapes = [(33, 70), (2, 35, 66), (64, 3), (3, 64), (5, 9, 2), (4, 4)]
    graphs = [
        case(
            f"t{i}_{np.dtype(d).name}",
            "Transpose",
            [counted(s, d)],
            {"perm": (*range(len(s) - 2), len(s) - 1, len(s) - 2)},
        )
        for i, s in enumerate(shapes)
        for d in DTYPES
    ]
    check_bits(
        [*graphs, case("mid", "Transpose", [counted((4, 33, 5, 2))], {"perm": (0, 2, 1, 3)})], tmp_path
    )


def test_transpose_of_unit_axes_moves_nothing() -> None:
    new = Builder("unit")
    x = new.input("x", DType.F32, (1, 4, 1, 5))
    moved = new.one("Transpose", [new.one("Relu", [x])], {"perm": (2, 1, 3, 0)})
    graph = new.finish([new.one("Relu", [moved])])
    assert [c.kernel.name.split("_")[0] for c in Cpu().lower(graph).calls] == ["relu", "relu"]


def random_cut(rng: np.random.Generator, dim: int) -> tuple[int, int, int]:
    """A start, a size, most often above zero, and a step."""
    size = int(rng.integers(0 if rng.random() < 0.1 else 1, dim + 1)) if dim else 0
    step = int(rng.choice([1, 1, -1, 2, -2])) if size * 2 <= dim else int(rng.choice([1, -1]))
    low = int(rng.integers(0, dim - (max(size, 1) - 1) * abs(step))) if dim else 0
    return (low if step > 0 else low + (max(size, 1) - 1) * -step), size, step


def test_slice(tmp_path: Path) -> None:
    graphs: list[Graph] = []
    for seed in range(2):
        rng = np.random.default_rng(seed)
        for shape, dtype in product(((), *SHAPES, (2, 0, 3)), DTYPES[seed:]):
            cuts = [random_cut(rng, dim) for dim in shape]
            attrs = (
                dict(zip(("starts", "sizes", "steps"), zip(*cuts, strict=True), strict=True))
                if cuts
                else NO_CUT
            )
            graphs.append(case(f"s{len(graphs)}", "Slice", [counted(shape, dtype)], attrs))
    check_bits(graphs, tmp_path)


def test_slice_all_reversed(tmp_path: Path) -> None:
    attrs = {"starts": (3, 4, 1), "sizes": (4, 5, 2), "steps": (-1, -1, -1)}
    whole = {"starts": (0, 0, 0), "sizes": (4, 5, 2), "steps": (1, 1, 1)}
    rows = {"starts": (3, 0, 0), "sizes": (2, 5, 2), "steps": (-2, 1, 1)}
    x = counted((4, 5, 2))
    check_bits([case(f"s{i}", "Slice", [x], a) for i, a in enumerate((attrs, whole, rows))], tmp_path)


def test_concat(tmp_path: Path) -> None:
    graphs: list[Graph] = []
    for shape in SHAPES:
        for axis in range(-1, len(shape) - 1):
            dtype = DTYPES[len(graphs) % len(DTYPES)]
            sizes = [shape[axis], 1, 0, 20][: 2 + len(graphs) % 3]
            parts = [np.moveaxis(counted(shape, dtype), axis, 0)[:1].repeat(n, 0) for n in sizes]
            graphs.append(
                case(f"c{len(graphs)}", "Concat", [np.moveaxis(p, 0, axis) for p in parts], {"axis": axis})
            )
    one = case("one", "Concat", [counted((2, 3)), counted((2, 0))], {"axis": 1})
    none = case("none", "Concat", [counted((2, 0)), counted((2, 0))], {"axis": 1})
    check_bits([*graphs, one, none], tmp_path)


def test_split(tmp_path: Path) -> None:
    graphs: list[Graph] = []
    for shape in SHAPES:
        for axis in range(len(shape)):
            dtype = DTYPES[len(graphs) % len(DTYPES)]
            sizes = (0, shape[axis] // 2, shape[axis] - shape[axis] // 2)
            graphs.append(
                case(
                    f"p{len(graphs)}",
                    "Split",
                    [counted(shape, dtype)],
                    {"axis": axis, "sizes": sizes},
                    outputs=3,
                )
            )
    check_bits(graphs, tmp_path)


MODES = ("constant", "reflect", "edge", "wrap")


def test_pad(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    graphs = [
        case(f"scalar_{m}", "Pad", [counted(())], {"before": (), "after": (), "mode": m}) for m in MODES
    ]
    for mode, shape, dtype in product(MODES, SHAPES, DTYPES):
        before, after = (
            tuple(int(v) for v in rng.integers(0, 3, len(shape)) * rng.integers(0, 2, len(shape)))
            for _ in "ba"
        )
        value = 1.0 if dtype is np.bool_ else -3.0
        attrs = {"before": before, "after": after, "mode": mode, "value": value}
        graphs.append(case(f"p{len(graphs)}", "Pad", [counted(shape, dtype)], attrs))
    for value in (2**63 - 1, -(2**63), 2**53 + 1):  # not all of them are doubles
        ends = {"before": (1,), "after": (2,), "value": value}
        graphs.append(case(f"p{len(graphs)}", "Pad", [counted((3,), np.int64)], ends))
    empty = {"before": (1, 1), "after": (0, 2), "value": 2.5}
    check_bits([*graphs, case("empty", "Pad", [counted((2, 0))], empty)], tmp_path)


def test_pad_channels_last_image(tmp_path: Path) -> None:
    x = counted((1, 9, 11, 3))
    image = {"before": (0, 1, 2, 0), "after": (0, 0, 1, 0), "value": np.inf}
    check_bits(
        [case("image", "Pad", [x], image), case("mirror", "Pad", [x], {**image, "mode": "reflect"})], tmp_path
    )


def test_tile_and_expand(tmp_path: Path) -> None:
    graphs: list[Graph] = []
    for shape in SHAPES:
        dtype = DTYPES[len(graphs) % len(DTYPES)]
        for repeats in (
            (2,) * len(shape),
            (1,) * (len(shape) - 1) + (3,),
            (3,) + (1,) * (len(shape) - 1),
            (0,) * len(shape),
        ):
            graphs.append(case(f"t{len(graphs)}", "Tile", [counted(shape, dtype)], {"repeats": repeats}))
        graphs.append(case(f"e{len(graphs)}", "Expand", [counted(shape, dtype)], {"shape": (3, *shape)}))
        ones = tuple(1 if i % 2 else d for i, d in enumerate(shape))
        graphs.append(case(f"e{len(graphs)}", "Expand", [counted(ones, dtype)], {"shape": shape}))
    graphs.append(case("scalar", "Expand", [counted(())], {"shape": (4, 5)}))
    graphs.append(case("nothing", "Expand", [counted((1, 3))], {"shape": (0, 3)}))
    check_bits(graphs, tmp_path)


def test_depth_and_space(tmp_path: Path) -> None:
    graphs: list[Graph] = []
    for dtype in DTYPES:
        for spatial in ((3,), (3, 2), (2, 3, 1)):
            block = 2
            deep = counted((2, *spatial, 3 * block ** len(spatial)), dtype)
            wide = counted((2, *(d * block for d in spatial), 3), dtype)
            number = len(graphs)
            graphs += [
                case(f"d{number}{m}", "DepthToSpace", [deep], {"block": block, "mode": m})
                for m in ("DCR", "CRD")
            ]
            graphs.append(case(f"s{number}", "SpaceToDepth", [wide], {"block": block}))
    graphs.append(case("same", "DepthToSpace", [counted((1, 2, 2, 4))], {"block": 1}))
    check_bits(graphs, tmp_path)


def test_reshape_shares_or_copies(tmp_path: Path) -> None:
    empty = case("empty", "Reshape", [counted((0, 3))], {"shape": (3, 0, 2)})
    check_bits([case("r", "Reshape", [counted((2, 6))], {"shape": (3, 4)}), empty], tmp_path)


def test_large_copies_are_shared_out(tmp_path: Path) -> None:
    x = counted((3, 200, 130))
    graphs = [
        case("transpose", "Transpose", [x], {"perm": (2, 1, 0)}),
        case("slice", "Slice", [x], {"starts": (0, 1, 2), "sizes": (3, 150, 100), "steps": (1, 1, 1)}),
        case("pad", "Pad", [x], {"before": (1, 1, 1), "after": (1, 1, 1)}),
        case("concat", "Concat", [x, x], {"axis": 2}),
    ]
    assert all(c.args["grain"] < c.args["rows"] for g in graphs for c in Cpu().lower(g).calls)  # type: ignore[operator]
    check_bits(graphs, tmp_path)


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge", "wrap"])
def test_a_pad_needs_no_table_however_long_its_axes_are(mode: str) -> None:
    image = case(
        "image",
        "Pad",
        [np.zeros((1, 480, 640, 3), np.float32)],
        {"before": (0, 0, 0, 1), "after": (0, 0, 0, 0), "mode": mode},
    )
    sound = case(
        "sound",
        "Pad",
        [np.zeros((1, 160_000), np.int16)],
        {"before": (0, 200), "after": (0, 200), "mode": mode},
    )
    for graph in (image, sound):  # a table of merged axes was 1.2 MB for this image
        assert not Cpu().lower(graph).weights


def test_a_nearest_resize_has_a_table_as_long_as_the_axes_that_change() -> None:
    x = np.zeros((1, 300, 200, 3), np.float32)
    graph = case(
        "up", "Resize", [x], {"sizes": (1, 300, 400, 3), "scales": (1.0, 1.0, 2.0, 1.0), "mode": "nearest"}
    )
    assert [w.bytes for w in Cpu().lower(graph).weights.values()] == [4 * 400]
