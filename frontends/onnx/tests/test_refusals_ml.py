"""What the handlers of ai.onnx.ml refuse, each with its message."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from refusal_cases import Refusal

TREE = (
    "nodes_treeids=[0,0,0], nodes_nodeids=[0,1,2], nodes_featureids=[0,0,0], nodes_truenodeids=[1,0,0], "
    'nodes_falsenodeids=[2,0,0], nodes_values=[0.5,0.0,0.0], nodes_modes=["BRANCH_LEQ","LEAF","LEAF"]'
)
LEAVES = "target_treeids=[0,0], target_nodeids=[1,2], target_ids=[0,0], target_weights=[1.0,2.0]"
CLASSES = "class_treeids=[0,0], class_nodeids=[1,2], class_weights=[1.0,2.0]"


FEATURES = (
    Refusal(
        "y = ai.onnx.ml.Scaler<offset=[0.0,1.0], scale=[1.0]>(x)",
        "its offset are 2; expected 1 or 3",
        "float[2,3] x",
    ),
    Refusal('y = ai.onnx.ml.Normalizer<norm="L3">(x)', "norm 'L3'; known are MAX, L1, L2", "float[2,3] x"),
    Refusal(
        'y = ai.onnx.ml.Normalizer<norm="L1">(x)',
        "its input has shape [1, 4, 6, 6]; it must be [N, features]",
    ),
    Refusal(
        "y = ai.onnx.ml.Imputer<imputed_value_floats=[0.0,1.0]>(x)",
        "its imputed values are 2; expected 1 or 3",
        "float[2,3] x",
    ),
    Refusal(
        "y = ai.onnx.ml.OneHotEncoder<cats_int64s=[1,2,1]>(x)",
        "two of its categories are the same",
        "float[2] x",
    ),
    Refusal(
        'y = ai.onnx.ml.OneHotEncoder<cats_strings=["a"]>(x)',
        "its categories are text, its input is not",
        "float[2] x",
    ),
    Refusal(
        "y = ai.onnx.ml.FeatureVectorizer<inputdimensions=[4]>(x)",
        "inputdimensions says 4 for input 0, which has 3",
        "float[2,3] x",
    ),
    Refusal(
        "y = ai.onnx.ml.ArrayFeatureExtractor(x, i)", "an index is none of 3", "float[2,3] x", {"i": [3]}
    ),
    Refusal(
        "y = ai.onnx.ml.LabelEncoder<keys_floats=[1.0], values_floats=[1.0,2.0]>(x)",
        "1 keys for 2 values",
        "float[2] x",
    ),
    Refusal(
        'y = ai.onnx.ml.LabelEncoder<keys_strings=["a"], values_floats=[1.0]>(x)',
        "its keys are not of its input's type",
        "float[2] x",
    ),
    Refusal(
        "y = ai.onnx.ml.LabelEncoder<keys_int64s=[1], values_floats=[1.0]>(x)",
        "its keys are int64, its input is f32",
        "float[2] x",
    ),
    Refusal("y = ai.onnx.ml.LabelEncoder<keys_int64s=[1]>(x)", "it has none of values_tensor", "float[2] x"),
)
MODELS = (
    Refusal(
        "l, y = ai.onnx.ml.LinearClassifier<coefficients=[1.0,2.0]>(x)",
        "it needs labels, either numbers or strings",
        "float[2,1] x",
    ),
    Refusal(
        "l, y = ai.onnx.ml.LinearClassifier<coefficients=[1.0,2.0], intercepts=[0.0,0.0], classlabels_ints=[0,1,2]>(x)",
        "3 labels for 2 scores",
        "float[2,1] x",
    ),
    Refusal(
        'y = ai.onnx.ml.LinearRegressor<coefficients=[1.0,2.0], targets=2, post_transform="ODD">(x)',
        "its post_transform is 'ODD'; known are",
        "float[2,1] x",
    ),
    Refusal(
        'y = ai.onnx.ml.LinearRegressor<coefficients=[1.0], post_transform="SOFTMAX">(x)',
        "post_transform SOFTMAX of a single target",
        "float[2,1] x",
    ),
    Refusal(
        "y = ai.onnx.ml.LinearRegressor<coefficients=[1.0,2.0]>(x)",
        "its coefficients are 2; expected 1",
        "float[2,1] x",
    ),
    Refusal(
        'y = ai.onnx.ml.SVMRegressor<rho=[0.0], coefficients=[1.0], post_transform="LOGISTIC">(x)',
        "post_transform LOGISTIC, which ONNX Runtime leaves out",
        "float[2,1] x",
    ),
    Refusal(
        'y = ai.onnx.ml.SVMRegressor<rho=[0.0], coefficients=[1.0], n_supports=1, support_vectors=[1.0], kernel_type="ODD", '
        "kernel_params=[1.0,0.0,1.0]>(x)",
        "kernel type 'ODD'; known are LINEAR, POLY, RBF, SIGMOID",
        "float[2,1] x",
    ),
    Refusal(
        "l, y = ai.onnx.ml.SVMClassifier<classlabels_ints=[0,1], coefficients=[1.0,2.0]>(x)",
        "a linear SVM without support vectors",
        "float[2,1] x",
    ),
    Refusal(
        "l, y = ai.onnx.ml.SVMClassifier<classlabels_ints=[0,1,2], vectors_per_class=[1,1], coefficients=[1.0,2.0]>(x)",
        "3 labels, vectors of 2 classes",
        "float[2,1] x",
    ),
)


def regressor(
    message: str, changes: Mapping[str, str] | None = None, attributes: str = "n_targets=1"
) -> Refusal:
    """A regressor of one tree, with pieces of its attributes replaced."""
    text = f"{TREE}, {LEAVES}"
    for old, changed in (changes or {}).items():
        assert old in text
        text = text.replace(old, changed)
    given = f", {attributes}" if attributes else ""
    return Refusal(f"y = ai.onnx.ml.TreeEnsembleRegressor<{text}{given}>(x)", message, "float[2,1] x")


def classifier(message: str, ids: str, attributes: str = "") -> Refusal:
    """A classifier of two classes whose leaves belong to the classes `ids`."""
    text = f"{TREE}, {CLASSES}, class_ids=[{ids}], classlabels_int64s=[0,1]{attributes}"
    return Refusal(f"l, y = ai.onnx.ml.TreeEnsembleClassifier<{text}>(x)", message, "float[2,1] x")


TREES = (
    regressor("n_targets is 0", attributes=""),
    regressor("aggregate_function ODD", attributes='n_targets=1, aggregate_function="ODD"'),
    regressor("modes ODD", {"BRANCH_LEQ": "ODD"}),
    regressor("two of its nodes have the same number", {"nodes_nodeids=[0,1,2]": "nodes_nodeids=[0,1,1]"}),
    regressor("its nodes_values are 1; expected 3", {"[0.5,0.0,0.0]": "[0.5]"}),
    regressor("a node reads feature 5 of 1", {"featureids=[0": "featureids=[5"}),
    regressor("a node leads to node -1 of 3; export the model again", {"truenodeids=[1": "truenodeids=[9"}),
    regressor("node 0 is reached twice, so that it is in no tree", {"truenodeids=[1": "truenodeids=[0"}),
    regressor(
        "a weight belongs to node 7 of tree 0, which does not exist",
        {"target_nodeids=[1,2]": "target_nodeids=[1,7]"},
    ),
    regressor("a weight belongs to none of 1 outputs", {"target_ids=[0,0]": "target_ids=[0,3]"}),
    regressor("2 base values for 1 outputs", attributes="n_targets=1, base_values=[1.0,2.0]"),
    classifier("class 5 of two", "5,5"),
    classifier("post_transform PROBIT of two classes with one score", "0,0", ', post_transform="PROBIT"'),
    classifier("1 base values for the weights of class 1 of two", "1,1", ", base_values=[0.5]"),
)
GROUPS = {"features": FEATURES, "models": MODELS, "trees": TREES}
REFUSALS = [
    pytest.param(refusal, id=f"{group}-{number}")
    for group, refusals in GROUPS.items()
    for number, refusal in enumerate(refusals)
]


@pytest.mark.parametrize("refusal", REFUSALS)
def test_handler_refuses_with_its_message(refusal: Refusal, tmp_path: Path) -> None:
    refusal.check(tmp_path / "m.onnx")
