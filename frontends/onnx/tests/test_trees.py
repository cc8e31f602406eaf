"""Tree ensembles of ai.onnx.ml in every form, against ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from mace_core.deployment import Model
from mace_core.errors import MaceError
from mace_core.importer import RefusedError
from mace_core.ir import Array, Graph
from mace_core.ops import core_ops
from mace_core.ops.tree_ensemble import LEAF, MAX_NODES, MISSING
from mace_core.run.reference import execute
from mace_core.verify import verify
from mace_frontend_onnx import Onnx
from mace_frontend_onnx.tree_arrays import EQUAL, MEMBER, TreeNodes, lay_out

X = np.float32([[0, 0], [1, 0], [0, 2], [1, 2], [3, 1], [-1, np.nan], [np.nan, 1], [2, 2]])
MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")


def nodes(mode: str = "BRANCH_LEQ", missing: tuple[int, ...] = ()) -> dict[str, object]:
    """Two trees of three leaves and two: tree 7 lies before tree 3, and its numbers are no indices."""
    described = {
        "nodes_treeids": [7, 7, 7, 7, 7, 3, 3, 3],
        "nodes_nodeids": [4, 0, 2, 1, 3, 0, 1, 2],
        "nodes_featureids": [0, 0, 1, 0, 0, 1, 0, 0],
        "nodes_modes": [mode, "LEAF", mode, "LEAF", "LEAF", mode, "LEAF", "LEAF"],
        "nodes_values": [1.0, 0, 2.0, 0, 0, 1.0, 0, 0],
        "nodes_truenodeids": [2, 0, 1, 0, 0, 1, 0, 0],
        "nodes_falsenodeids": [0, 0, 3, 0, 0, 2, 0, 0],
    }
    return described | ({"nodes_missing_value_tracks_true": list(missing)} if missing else {})


LEAVES = {"treeids": [3, 7, 7, 3, 7, 7], "nodeids": [2, 1, 3, 1, 0, 1]}
"""A leaf of two weights, which do not lie together, leaves in another order than the nodes, and 4 without weight.

ONNX Runtime takes one weight only of a leaf that has several for one single target.
"""

WEIGHTS = [0.5, -1.0, 2.0, 0.25, 4.0, 0.125]
PROBABILITIES = [0.125, 0.25, 0.5, 0.125, 0.375, 0.0]


def leaves(kind: str, ids: list[int], weights: list[float] = WEIGHTS) -> dict[str, object]:
    return {f"{kind}_{key}": value for key, value in LEAVES.items()} | {
        f"{kind}_ids": ids,
        f"{kind}_weights": weights,
    }


def save(
    path: Path, op: str, attributes: Mapping[str, object], kind: int = TensorProto.FLOAT, ml: int = 3
) -> None:
    outputs = ["l", "y"] if op.endswith("Classifier") else ["y"]
    graph = helper.make_graph(
        [helper.make_node(op, ["x"], outputs, domain="ai.onnx.ml", **attributes)],
        "g",
        [helper.make_tensor_value_info("x", kind, X.shape)],
        [onnx.ValueInfoProto(name=name) for name in outputs],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", ml)]
    path.write_bytes(helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString())


def load(path: Path) -> Graph:
    return verify(Onnx().load((path,), Model("m", (path,)), core_ops()))


def check(path: Path, x: Array = X) -> Graph:
    graph = load(path)
    run = Onnx().reference((path,), Model("m", (path,)))
    assert run is not None
    arrays = {"x": x.astype(graph.tensors["x"].dtype.numpy)}
    expected, values = run(arrays), execute(graph, arrays)
    for name in graph.outputs:
        assert (values[name].dtype, values[name].shape) == (expected[name].dtype, expected[name].shape)
        np.testing.assert_allclose(values[name], expected[name], rtol=1e-5, atol=1e-6, err_msg=name)
    return graph


ONE = leaves("target", [0] * 6, [*WEIGHTS[:4], 4.0, 0.0]) | {"n_targets": 1}
TWO = leaves("target", [0, 1, 1, 0, 0, 0]) | {"n_targets": 2}
REGRESSORS = {
    **{mode: nodes(mode) | ONE for mode in MODES},
    **{f"missing {mode}": nodes(mode, (1, 0, 0, 0, 0, 1, 0, 0)) | ONE for mode in MODES},
    **{
        f"{name} of one": nodes() | ONE | {"aggregate_function": name}
        for name in ("SUM", "AVERAGE", "MIN", "MAX")
    },
    **{
        f"{name} of two": nodes() | TWO | {"aggregate_function": name}
        for name in ("SUM", "AVERAGE", "MIN", "MAX")
    },
    "base value": nodes() | ONE | {"base_values": [10.0]},
    "softmax": nodes() | TWO | {"post_transform": "SOFTMAX"},
    "logistic": nodes() | TWO | {"post_transform": "LOGISTIC"},
    "probit": nodes()
    | leaves("target", [0] * 6, PROBABILITIES)
    | {"n_targets": 1, "post_transform": "PROBIT"},
}


@pytest.mark.parametrize("name", REGRESSORS)
def test_regressor(name: str, tmp_path: Path) -> None:
    save(tmp_path / "m.onnx", "TreeEnsembleRegressor", REGRESSORS[name])
    check(tmp_path / "m.onnx")


def test_base_values_are_added_to_each_target(tmp_path: Path) -> None:
    """ONNX Runtime leaves them out where no leaf has a weight for the target; the standard does not."""
    results = []
    for name, more in (("plain", {}), ("based", {"base_values": [10.0, -5.0]})):
        save(tmp_path / f"{name}.onnx", "TreeEnsembleRegressor", nodes() | TWO | more)
        results.append(execute(load(tmp_path / f"{name}.onnx"), {"x": X})["y"])
    np.testing.assert_allclose(results[1] - results[0], [[10, -5]] * len(X), rtol=1e-5)


@pytest.mark.parametrize("kind", [TensorProto.DOUBLE, TensorProto.INT64])
def test_features_of_another_type_give_the_same(kind: int, tmp_path: Path) -> None:
    x, values = np.nan_to_num(X, nan=-2), []
    for path, element in ((tmp_path / "m.onnx", kind), (tmp_path / "plain.onnx", TensorProto.FLOAT)):
        save(path, "TreeEnsembleRegressor", nodes() | ONE, element)
        graph = load(path)
        values.append(execute(graph, {"x": x.astype(graph.tensors["x"].dtype.numpy)})["y"])
    assert values[0].dtype == np.float32
    np.testing.assert_allclose(values[0], values[1], rtol=1e-6)


DOUBLES = {
    "nodes_values": [1.0, 0, 2.0, 0, 0, 1.0, 0, 0],
    "target_weights": ONE["target_weights"],
    "base_values": [1e-12],
}


@pytest.mark.parametrize("name", DOUBLES)
def test_numbers_in_double_precision_make_a_double_ensemble(name: str, tmp_path: Path) -> None:
    tensor = numpy_helper.from_array(np.float64(DOUBLES[name]), "t")
    attributes = {key: value for key, value in (nodes() | ONE).items() if key != name}
    save(tmp_path / "m.onnx", "TreeEnsembleRegressor", attributes | {f"{name}_as_tensor": tensor})
    graph = load(tmp_path / "m.onnx")
    (ensemble,) = (node for node in graph.nodes if node.op.name == "TreeEnsemble")
    assert graph.weights[ensemble.inputs[1]].dtype == np.float64
    plain = tmp_path / "plain.onnx"
    save(plain, "TreeEnsembleRegressor", nodes() | ONE)
    values = [execute(read, {"x": X})["y"] for read in (graph, load(plain))]
    np.testing.assert_allclose(values[0], values[1], rtol=1e-6)


def test_an_empty_tensor_leaves_the_list(tmp_path: Path) -> None:
    tensor = numpy_helper.from_array(np.zeros(0), "t")
    save(tmp_path / "m.onnx", "TreeEnsembleRegressor", nodes() | ONE | {"nodes_values_as_tensor": tensor})
    graph = load(tmp_path / "m.onnx")
    assert {array.dtype for array in graph.weights.values() if array.dtype.kind == "f"} == {
        np.dtype("float32")
    }


THREE = leaves("class", [0, 1, 2, 1, 0, 2]) | {"classlabels_int64s": [5, 1, 9]}
CLASSIFIERS = {
    **{
        f"three {transform}": THREE | {"post_transform": transform}
        for transform in ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO")
    },
    "three with base values": THREE | {"base_values": [0.5, -3.0, 0.25]},
    **{
        f"class {used} {sign} {transform}": leaves("class", [used] * 6, weights)
        | {"classlabels_int64s": [5, 1], "post_transform": transform}
        for used in (0, 1)
        for sign, weights in (("negative", WEIGHTS), ("positive", PROBABILITIES))
        for transform in ("NONE", "LOGISTIC", "SOFTMAX")
        if not (used and transform == "SOFTMAX")
    },
    "base of the first": leaves("class", [0] * 6) | {"classlabels_int64s": [5, 1], "base_values": [0.75]},
}


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_classifier(name: str, tmp_path: Path) -> None:
    save(tmp_path / "m.onnx", "TreeEnsembleClassifier", nodes() | CLASSIFIERS[name])
    assert load(tmp_path / "m.onnx").notes == ()
    check(tmp_path / "m.onnx")


def test_two_classes_with_weights_take_the_higher_score_and_say_so(tmp_path: Path) -> None:
    attributes = leaves("class", [0, 1, 1, 0, 0, 1]) | {"classlabels_int64s": [5, 1]}
    save(tmp_path / "m.onnx", "TreeEnsembleClassifier", nodes() | attributes)
    graph = load(tmp_path / "m.onnx")
    values = execute(graph, {"x": X})
    assert values["y"].shape == (8, 2)
    np.testing.assert_array_equal(values["l"], np.array([5, 1])[values["y"].argmax(1)])
    (note,) = graph.notes
    assert "ONNX Runtime labels two classes that both have weights otherwise" in note


def tensors(**arrays: Array) -> dict[str, object]:
    return {name: numpy_helper.from_array(array, name) for name, array in arrays.items()}


ENSEMBLE = {
    "n_targets": 2,
    "nodes_featureids": [0, 1, 1],
    "nodes_truenodeids": [1, 0, 4],
    "nodes_trueleafs": [0, 1, 1],
    "nodes_falsenodeids": [1, 2, 3],
    "nodes_falseleafs": [1, 1, 1],
    "leaf_targetids": [0, 1, 0, 1, 1],
    "tree_roots": [0, 2],
}
LEAF_WEIGHTS = np.float32([0.5, -1, 2, 4, 0.25])


def ensemble(
    codes: list[int], splits: Array, weights: Array = LEAF_WEIGHTS, **other: object
) -> dict[str, object]:
    arrays = tensors(nodes_modes=np.array(codes, np.uint8), nodes_splits=splits, leaf_weights=weights)
    return {**ENSEMBLE, **arrays, **other}


SPLITS = np.float32([1, 2, 1])
ENSEMBLES = {
    **{f"mode {code}": ensemble([code] * 3, SPLITS) for code in range(6)},
    **{f"aggregate {code}": ensemble([0] * 3, SPLITS, aggregate_function=code) for code in range(4)},
    **{f"transform {code}": ensemble([0] * 3, SPLITS, post_transform=code) for code in range(4)},
    "missing": ensemble([0] * 3, SPLITS, nodes_missing_value_tracks_true=[1, 0, 1]),
    "members": ensemble(
        [0, 6, 6], SPLITS, **tensors(membership_values=np.float32([0, 2, np.nan, 1, 2, 3, np.nan]))
    ),
}


def expected_of(attributes: Mapping[str, object], x: Array) -> Array:
    """The ensemble by its definition on the operator's page, row by row."""
    arrays = {k: numpy_helper.to_array(v) if isinstance(v, TensorProto) else v for k, v in attributes.items()}
    sets = np.split(arrays.get("membership_values", np.zeros(0)), [3])
    missing = arrays.get("nodes_missing_value_tracks_true", [0, 0, 0])
    tests = (np.less_equal, np.less, np.greater_equal, np.greater, np.equal, np.not_equal)

    def passes(node: int, value: np.float32) -> bool:
        code = arrays["nodes_modes"][node]
        if missing[node] and np.isnan(value):
            return True
        if code == 6:
            return bool((sets[node - 1] == value).any())
        return bool(tests[code](value, arrays["nodes_splits"][node]))

    rows = []
    for row in x:
        totals: list[list[float]] = [[], []]
        for root in arrays["tree_roots"]:
            node, is_leaf = root, 0
            while not is_leaf:
                side = "true" if passes(node, row[arrays["nodes_featureids"][node]]) else "false"
                node, is_leaf = arrays[f"nodes_{side}nodeids"][node], arrays[f"nodes_{side}leafs"][node]
            totals[arrays["leaf_targetids"][node]].append(float(arrays["leaf_weights"][node]))
        rows.append(totals)
    aggregates = (lambda t: sum(t) / 2, sum, lambda t: min(t, default=0), lambda t: max(t, default=0))
    scores = np.array([[aggregates[arrays.get("aggregate_function", 1)](t) for t in row] for row in rows])
    match arrays.get("post_transform", 0):
        case 1:
            powers = np.exp(scores)
            return powers / powers.sum(1, keepdims=True)
        case 2:
            return 1 / (1 + np.exp(-scores))
        case 3:
            powers = np.where(scores == 0, 0, np.exp(scores))
            return powers / powers.sum(1, keepdims=True)
    return scores


@pytest.mark.parametrize("is_double", [False, True])
@pytest.mark.parametrize("name", ENSEMBLES)
def test_ensemble_of_version_5(name: str, is_double: bool, tmp_path: Path) -> None:
    kind = TensorProto.DOUBLE if is_double else TensorProto.FLOAT
    save(tmp_path / "m.onnx", "TreeEnsemble", ENSEMBLES[name], kind, 5)
    y = execute(load(tmp_path / "m.onnx"), {"x": X.astype(np.float64 if is_double else np.float32)})["y"]
    assert y.dtype == (np.float64 if is_double else np.float32)
    np.testing.assert_allclose(y, expected_of(ENSEMBLES[name], X), rtol=1e-5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"leaf_targetids": [0, 1, 0, 1]}, "its lists differ in length"),
        (tensors(nodes_splits=np.float32([1, 2])), "its lists differ in length"),
        (tensors(nodes_modes=np.array([0, 7, 0], np.uint8)), "mode 7"),
        (tensors(nodes_modes=np.array([0, 6, 0], np.uint8)), "0 sets for 1 nodes that ask for members"),
        ({"nodes_truenodeids": [1, 5, 4]}, "a node leads to node -1 of 8"),
        ({"nodes_truenodeids": [3, 0, 4]}, "a node leads to node -1 of 8"),
        ({"nodes_truenodeids": [-1, 0, 4]}, "a node leads to node -1 of 8"),
        ({"nodes_truenodeids": [2, 0, 4]}, "node 2 is reached twice"),
        ({"nodes_featureids": [0, 1, 2]}, "a node reads feature 2 of 2"),
        ({"leaf_targetids": [0, 1, 0, 1, 2]}, "a weight belongs to none of 2 outputs"),
        ({"leaf_targetids": [0, 1, 0, 1, -1]}, "a weight belongs to none of 2 outputs"),
        ({"aggregate_function": 4}, "aggregate_function 4"),
        ({"aggregate_function": -1}, "aggregate_function -1"),
        ({"post_transform": 5}, "post_transform 5"),
        ({"tree_roots": [0, 8]}, "a node leads to node 8 of 8"),
        ({"nodes_trueleafs": [0, 1]}, "its nodes_trueleafs are 2; expected 3"),
        ({"nodes_missing_value_tracks_true": [1]}, "its nodes_missing_value_tracks_true are 1; expected 3"),
    ],
)
def test_ensemble_that_fits_nothing_is_refused(
    changes: Mapping[str, object], message: str, tmp_path: Path
) -> None:
    save(tmp_path / "m.onnx", "TreeEnsemble", ensemble([0] * 3, SPLITS) | dict(changes), ml=5)
    with pytest.raises(MaceError) as error:
        load(tmp_path / "m.onnx")
    assert message in str(error.value).splitlines()[0]


def chain(count: int) -> TreeNodes:
    """A tree of `count` nodes, each the child of the one before; the last is a leaf that all lead to else."""
    following = [*range(1, count), 0]
    return TreeNodes(
        [0] * count, [0] * count, [0.0] * count, [0] * count, [count - 1] * count, following,
        [False] * (count - 1) + [True],
    )  # fmt: skip


def test_nodes_are_laid_out_behind_their_parents() -> None:
    nodes = TreeNodes(
        features=[3, 0, 5, 0], codes=[MEMBER, 0, 1, 0], splits=[0, 0, 2.5, 0], missing=[1, 0, 0, 0],
        yes=[1, 0, 3, 0], no=[2, 0, 1, 0], leaves=[False, True, False, True], members={0: [4.0, 6.0]},
    )  # fmt: skip
    arrays = lay_out(nodes, [0], [(0, 0), (7, 9), (0, 0), (9, 10)])
    assert arrays.roots == [0]
    assert arrays.modes == [EQUAL + MISSING, EQUAL + MISSING, 0, 1, 0, 0]
    assert arrays.splits == [4.0, 6.0, 0.0, 2.5, 0.0, 0.0]
    assert arrays.links == [[3, 2, 1], [3, 2, 3], [LEAF, 7, 9], [5, 4, 5], [LEAF, 9, 10], [LEAF, 7, 9]]


def test_as_many_nodes_as_the_ir_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MAX_NODES > 1000
    monkeypatch.setattr("mace_frontend_onnx.tree_arrays.MAX_NODES", 9)
    ranges = [(0, 1)] * 6
    assert len(lay_out(chain(5), [0], ranges).links) == 9
    with pytest.raises(RefusedError, match="more than 9 nodes"):
        lay_out(chain(6), [0], ranges)


@pytest.mark.parametrize(("code", "members"), [(MEMBER + 1, {}), (-1, {}), (MEMBER, {0: []})])
def test_a_node_without_a_test_is_refused(code: int, members: dict[int, list[float]]) -> None:
    nodes = TreeNodes([0, 0], [code, 0], [0, 0], [0, 0], [1, 0], [1, 0], [False, True], members)
    with pytest.raises(RefusedError, match=f"node 0 has mode {code} with . values; export the model again"):
        lay_out(nodes, [0], [(0, 0), (0, 1)])


def test_an_inner_node_with_a_negative_feature_is_no_leaf() -> None:
    nodes = TreeNodes([LEAF, 0], [0, 0], [0, 0], [0, 0], [1, 0], [1, 0], [False, True])
    with pytest.raises(RefusedError, match="node 0 reads feature -1; export the model again"):
        lay_out(nodes, [0], [(0, 0), (0, 1)])
