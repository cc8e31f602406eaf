"""Operators of ai.onnx.ml in every form, against ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from runtime_cases import RuntimeCase, normal

from mace_core.errors import MaceError

MATRIX, PORTS = normal(4, 3, seed=2), "float[4,3] x"
STEPS = np.float32([[0, 1, 2], [1, 1, 0], [2, -1, 0], [5, 0, 1]])
"""Few different numbers, some of them equal to keys, categories and thresholds."""

ZEROS = np.float32([[0, 0, 0], [1, -1, 2], [-3, -4, -1], [2, 0, 0]])


def ml(op: str, attributes: str, inputs: str = "x", outputs: str = "y") -> str:
    given = f"<{attributes}>" if attributes else ""
    return f"{outputs.replace(' ', ', ')} = ai.onnx.ml.{op}{given}({inputs})"


def on(x: np.ndarray, body: str, ports: str = PORTS, **other: object) -> RuntimeCase:
    return RuntimeCase(body, ports, values={"x": x}, **other)  # type: ignore[arg-type]


INTEGERS = "int64[4,3] x"
DOUBLES = "double[4,3] x"
FEATURES = {
    "scaler": on(MATRIX, ml("Scaler", "offset=[0.5,-1.0,2.0], scale=[2.0,3.0,0.25]")),
    "scaler of one": on(MATRIX, ml("Scaler", "offset=[0.5], scale=[2.0]")),
    "scaler of integers": on(STEPS, ml("Scaler", "offset=[0.5], scale=[2.0]"), INTEGERS),
    "scaler of doubles": on(MATRIX, ml("Scaler", "offset=[0.5,0.1,0.2], scale=[2.0,3.0,0.25]"), DOUBLES),
    "normalizer max": on(ZEROS, ml("Normalizer", 'norm="MAX"')),
    "normalizer l1": on(ZEROS, ml("Normalizer", 'norm="L1"')),
    "normalizer l2": on(ZEROS, ml("Normalizer", 'norm="L2"')),
    "normalizer of a vector": on(STEPS[0], ml("Normalizer", 'norm="L2"'), "int64[3] x"),
    "normalizer of integers": on(ZEROS, ml("Normalizer", 'norm="L2"'), INTEGERS),
    "imputer of nan": on(
        np.float32([[1, np.nan, 2], [np.nan, 3, np.nan], [0, 0, 0], [4, 5, 6]]),
        ml("Imputer", "imputed_value_floats=[7.0,8.0,9.0], replaced_value_float=nan"),
    ),
    "imputer of a number": on(STEPS, ml("Imputer", "imputed_value_floats=[7.0], replaced_value_float=1.0")),
    "imputer of integers": on(
        STEPS, ml("Imputer", "imputed_value_int64s=[7,8,9], replaced_value_int64=1"), INTEGERS
    ),
    "binarizer": on(STEPS, ml("Binarizer", "threshold=1.0")),
    "binarizer by default": on(STEPS, ml("Binarizer", "")),
    "one hot": on(STEPS, ml("OneHotEncoder", "cats_int64s=[1,0,5], zeros=1"), INTEGERS),
    "one hot of floats": on(STEPS + np.float32(0.7), ml("OneHotEncoder", "cats_int64s=[1,0,5], zeros=1")),
    "one hot of a vector": on(STEPS[0], ml("OneHotEncoder", "cats_int64s=[1,0,5], zeros=1"), "int64[3] x"),
    "vectorizer": RuntimeCase(
        ml("FeatureVectorizer", "inputdimensions=[3,4]", "x, v"), f"{PORTS}, float[4,2,2] v"
    ),
    "vectorizer of integers": RuntimeCase(
        ml("FeatureVectorizer", "inputdimensions=[3,2]", "x, v"), "int64[4,3] x, int64[4,2] v"
    ),
    "extractor": RuntimeCase(ml("ArrayFeatureExtractor", "", "x, i"), PORTS, {"i": [2, 0]}),
    "extractor of a cube": RuntimeCase(
        ml("ArrayFeatureExtractor", "", "x, i"), "float[2,4,3] x", {"i": [2, 0, 2, 1]}
    ),
    "extractor of a vector": RuntimeCase(
        ml("ArrayFeatureExtractor", "", "x, i"), "float[3] x", {"i": [2, 0]}
    ),
    "extractor at computed places": RuntimeCase(
        ml("ArrayFeatureExtractor", "", "x, i"), f"{PORTS}, int64[2] i", values={"i": np.array([2, 1])}
    ),
}
ENCODERS = {
    "integers to floats": on(
        STEPS,
        ml("LabelEncoder", "keys_int64s=[1,0,5], values_floats=[0.5,1.5,2.5], default_float=9.0"),
        INTEGERS,
    ),
    "integers to integers": on(
        STEPS, ml("LabelEncoder", "keys_int64s=[5,1,0], values_int64s=[7,8,9], default_int64=-4"), INTEGERS
    ),
    "floats to floats": on(STEPS, ml("LabelEncoder", "keys_floats=[1.0,0.0], values_floats=[0.5,1.5]")),
    "floats to integers": on(STEPS, ml("LabelEncoder", "keys_floats=[1.0,0.0], values_int64s=[5,6]")),
    "through strings": on(
        STEPS,
        ml("LabelEncoder", 'keys_int64s=[1,0,5], values_strings=["b","a","b"], default_string="z"', "x", "t")
        + " "
        + ml("LabelEncoder", 'keys_strings=["a","z"], values_int64s=[10,30], default_int64=-4', "t"),
        INTEGERS,
    ),
    "default among strings": on(
        STEPS,
        ml("LabelEncoder", 'keys_int64s=[1,0,5], values_strings=["b","a","c"], default_string="a"', "x", "t")
        + " "
        + ml("LabelEncoder", 'keys_strings=["a","b","c"], values_floats=[1.0,2.0,4.0]', "t"),
        INTEGERS,
    ),
    "default as a key": on(
        STEPS,
        ml("LabelEncoder", 'keys_int64s=[1,0], values_strings=["b","a"]', "x", "t")
        + " "
        + ml("LabelEncoder", 'keys_strings=["a","_Unused","b"], values_floats=[1.0,2.0,4.0]', "t"),
        INTEGERS,
    ),
    "strings to strings": on(
        STEPS,
        ml("LabelEncoder", 'keys_int64s=[1,0,5], values_strings=["b","a","c"]', "x", "t")
        + " "
        + ml("LabelEncoder", 'keys_strings=["a","b"], values_strings=["b","q"], default_string="w"', "t", "u")
        + " "
        + ml("LabelEncoder", 'keys_strings=["w","q","b"], values_int64s=[1,2,3]', "u"),
        INTEGERS,
    ),
    "strings to one hot": on(
        STEPS,
        ml("LabelEncoder", 'keys_int64s=[1,0,5], values_strings=["b","a","c"]', "x", "t")
        + " "
        + ml("OneHotEncoder", 'cats_strings=["c","a"], zeros=1', "t"),
        INTEGERS,
    ),
    "tensors of numbers": on(
        STEPS,
        ml("LabelEncoder", "keys_tensor=int64[3] {1,0,5}, values_tensor=float[3] {0.5,1.5,2.5}"),
        INTEGERS,
        ml=4,
    ),
    "tensors of strings": on(
        STEPS,
        ml("LabelEncoder", 'keys_int64s=[1,0,5], values_strings=["b","a","c"]', "x", "t")
        + " "
        + ml("LabelEncoder", 'keys_tensor=string[2] {"a","c"}, values_tensor=int64[2] {7,9}', "t"),
        INTEGERS,
        ml=4,
    ),
    "numbers by position": on(
        np.array([0, 2, 1, 7]),
        ml("LabelEncoder", 'classes_strings=["p","q","r"], default_string="s"', "x", "t")
        + " "
        + ml("LabelEncoder", 'classes_strings=["r","p"], default_int64=-7', "t"),
        "int64[4] x",
        ml=1,
    ),
}
LABELS = "classlabels_ints=[4,2,9]"
WEIGHTS = "coefficients=[1.0,-2.0,0.5,0.25,1.5,-1.0,-0.5,0.75,2.0], intercepts=[0.1,-0.2,0.3]"
ONE_ROW = "coefficients=[1.0,-2.0,0.5], intercepts=[0.1], classlabels_ints=[3,8]"
TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO")
LINEAR = {
    **{
        f"classifier {transform}": on(
            MATRIX,
            ml("LinearClassifier", f'{WEIGHTS}, {LABELS}, post_transform="{transform}"', outputs="l y"),
            outputs="l y",
        )
        for transform in TRANSFORMS
    },
    **{
        f"classifier of one score {transform}": on(
            MATRIX,
            ml("LinearClassifier", f'{ONE_ROW}, post_transform="{transform}"', outputs="l y"),
            outputs="l y",
        )
        for transform in TRANSFORMS
    },
    "classifier of two scores": on(
        MATRIX,
        ml(
            "LinearClassifier",
            "coefficients=[1.0,-2.0,0.5,0.25,1.5,-1.0], intercepts=[0.1,-0.2], classlabels_ints=[3,8]",
            outputs="l y",
        ),
        outputs="l y",
    ),
    "classifier of a vector": on(
        MATRIX[0], ml("LinearClassifier", f"{WEIGHTS}, {LABELS}", outputs="l y"), "float[3] x", outputs="l y"
    ),
    "classifier in order": on(
        MATRIX, ml("LinearClassifier", f"{WEIGHTS}, classlabels_ints=[0,1,2]", outputs="l y"), outputs="l y"
    ),
    "classifier of integers": on(
        STEPS,
        ml("LinearClassifier", f"{WEIGHTS}, {LABELS}", outputs="l y"),
        INTEGERS,
        outputs="l y",
    ),
    "regressor": on(MATRIX, ml("LinearRegressor", "coefficients=[1.0,-2.0,0.5], intercepts=[0.25]")),
    "regressor without intercepts": on(MATRIX, ml("LinearRegressor", "coefficients=[1.0,-2.0,0.5]")),
    "regressor of two": on(
        MATRIX,
        ml("LinearRegressor", 'targets=2, coefficients=[1.0,-2.0,0.5,3.0,0.0,1.0], post_transform="SOFTMAX"'),
    ),
    "regressor probit": on(
        np.float32([[0.1], [0.4], [0.9], [0.6]]),
        ml("LinearRegressor", 'coefficients=[1.0], post_transform="PROBIT"'),
        "float[4,1] x",
    ),
}
SUPPORT = "support_vectors=[1.0,0.0,-1.0,0.5,2.0,0.0,-1.0,-0.5,1.0,0.25,0.75,-2.0,1.5,1.0,0.5]"
"""Five vectors of three features."""

PARAMETERS = "kernel_params=[0.5,1.5,3.0]"
"""ONNX Runtime wants them for a linear kernel too, and reads none."""

REGRESSOR = f"{SUPPORT}, coefficients=[0.5,-1.0,0.75,0.3,-0.6], rho=[0.2], n_supports=5"
KERNELS = {
    "LINEAR": PARAMETERS,
    "RBF": "kernel_params=[0.3,7.0,7.0]",
    "POLY": PARAMETERS,
    "SIGMOID": "kernel_params=[0.25,0.5,7.0]",
}
PAIRS = (
    f"{SUPPORT}, vectors_per_class=[2,1,2], rho=[0.2,-0.3,0.1], classlabels_ints=[4,2,9], "
    "coefficients=[0.5,-1.0,0.75,0.3,-0.6,1.1,0.9,-0.8,-0.4,0.7]"
)
TWO = (
    f"{SUPPORT}, vectors_per_class=[2,3], rho=[0.2], classlabels_ints=[4,2], "
    "coefficients=[0.5,-1.0,0.75,0.3,-0.6]"
)
PLATT = ", prob_a=[-0.7,-1.3,-0.4], prob_b=[0.1,-0.2,0.3]"


def kernel_svm(attributes: str) -> RuntimeCase:
    return on(MATRIX, ml("SVMClassifier", attributes, outputs="l y"), outputs="l y")


def svm(attributes: str) -> RuntimeCase:
    return kernel_svm(f"{attributes}, {PARAMETERS}")


VECTORS = {
    **{
        f"regressor {kind}": on(MATRIX, ml("SVMRegressor", f'{REGRESSOR}, {more}, kernel_type="{kind}"'))
        for kind, more in KERNELS.items()
    },
    **{
        f"classifier {kind}": kernel_svm(f'{PAIRS}, {more}, kernel_type="{kind}"')
        for kind, more in KERNELS.items()
    },
    "regressor without vectors": on(
        MATRIX, ml("SVMRegressor", f"coefficients=[0.5,-1.0,0.75], rho=[0.2], {PARAMETERS}")
    ),
    "one class": on(MATRIX, ml("SVMRegressor", f"{REGRESSOR}, one_class=1, {PARAMETERS}")),
    "classifier of two": svm(TWO),
    "classifier of two LOGISTIC": svm(f'{TWO}, post_transform="LOGISTIC"'),
    "classifier of two SOFTMAX": svm(f'{TWO}, post_transform="SOFTMAX"'),
    "classifier of two SOFTMAX_ZERO": svm(f'{TWO}, post_transform="SOFTMAX_ZERO"'),
    "classifier SOFTMAX": svm(f'{PAIRS}, post_transform="SOFTMAX"'),
    "probabilities": svm(PAIRS + PLATT),
    "probabilities of two": svm(f"{TWO}, prob_a=[-0.7], prob_b=[0.1]"),
    "linear": svm(
        "coefficients=[1.0,-2.0,0.5,0.25,1.5,-1.0,-0.5,0.75,2.0], rho=[0.4], classlabels_ints=[4,2,9]"
    ),
    "linear SOFTMAX": svm(
        "coefficients=[1.0,-2.0,0.5,0.25,1.5,-1.0,-0.5,0.75,2.0], rho=[0.4,9.0,9.0], classlabels_ints=[4,2,9], "
        'post_transform="SOFTMAX"'
    ),
}
GROUPS = {"features": FEATURES, "encoders": ENCODERS, "linear": LINEAR, "vectors": VECTORS}


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=f"{group}: {name}")
        for group, cases in GROUPS.items()
        for name, case in cases.items()
    ],
)
def test_operator_computes_what_onnx_runtime_does(case: RuntimeCase, tmp_path: Path) -> None:
    case.check(tmp_path / "m.onnx", rtol=1e-4, atol=1e-5)


def test_vectorizer_without_stated_sizes(tmp_path: Path) -> None:
    values = {"x": MATRIX[:1], "v": MATRIX[1]}
    case = RuntimeCase(ml("FeatureVectorizer", "", "x, v"), "float[1,3] x, float[3] v", values=values)
    np.testing.assert_array_equal(case.compute(tmp_path / "m.onnx")["y"], MATRIX[:2].reshape(1, 6))


@pytest.mark.parametrize(("ports", "threshold"), [(DOUBLES, 0.7), (INTEGERS, 0.5)])
def test_binarizer_of_a_type_that_onnx_runtime_has_not(ports: str, threshold: float, tmp_path: Path) -> None:
    x = STEPS + np.float32(threshold) if ports == DOUBLES else STEPS
    x = x.astype(np.float64)
    x[0] = np.float32(threshold)  # equal to the attribute, which is of single precision
    graph_type = np.float64 if ports == DOUBLES else np.int64
    case = on(x, ml("Binarizer", f"threshold={threshold}"), ports)
    y = case.compute(tmp_path / "m.onnx")["y"]
    assert y.dtype == graph_type
    np.testing.assert_array_equal(y, x.astype(graph_type) > np.float32(threshold))


def test_extractor_takes_each_index_of_the_axis_and_no_other(tmp_path: Path) -> None:
    body = ml("ArrayFeatureExtractor", "", "x, i")
    for index in (0, 2):
        RuntimeCase(body, PORTS, {"i": [index]}).check(tmp_path / "m.onnx")
    for index in (-1, 3):
        with pytest.raises(MaceError, match="an index is none of 3"):
            RuntimeCase(body, PORTS, {"i": [index]}).load(tmp_path / "m.onnx")


@pytest.mark.parametrize(("count", "listed"), [(20, "17, 18, 19)"), (21, "17, 18, 19, ...)")])
def test_map_of_classes_is_a_tensor_and_a_note_lists_them(count: int, listed: str, tmp_path: Path) -> None:
    names = ",".join(map(str, range(count)))
    body = ml("ZipMap", f"classlabels_int64s=[{names}]")
    graph = RuntimeCase(body, f"float[2,{count}] x").load(tmp_path / "m.onnx")
    (note,) = graph.notes
    assert "output 'y' is a tensor with a column for each class (0, 1, 2, " in note
    assert f"{listed} in the place of a list of maps" in note
    named = RuntimeCase(ml("ZipMap", 'classlabels_strings=["p","q"]'), "float[2,2] x").load(
        tmp_path / "m.onnx"
    )
    assert "(p, q)" in named.notes[0]


def test_unknown_category_gives_zeros_where_onnx_runtime_stops(tmp_path: Path) -> None:
    case = on(STEPS, ml("OneHotEncoder", "cats_int64s=[1,0,5], zeros=0"), INTEGERS)
    (note,) = case.load(tmp_path / "m.onnx").notes
    assert "an unknown category gives zeros; ONNX Runtime stops there" in note
    y = case.compute(tmp_path / "m.onnx")["y"]
    np.testing.assert_array_equal(y, (STEPS[..., None] == [1, 0, 5]).astype(np.float32))
