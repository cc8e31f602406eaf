"""Trained scikit-learn pipelines as ONNX models: what tests/test_sklearn.py compiles.

Data sets are those that come with scikit-learn; models are small, so that all are trained in seconds.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import onnx
from sklearn import (
    calibration,
    cluster,
    compose,
    datasets,
    decomposition,
    discriminant_analysis,
    ensemble,
    feature_selection,
    impute,
    linear_model,
    mixture,
    multiclass,
    multioutput,
    naive_bayes,
    neighbors,
    neural_network,
    pipeline,
    preprocessing,
    svm,
    tree,
)

from mace_core.ir import Array

SAMPLES = 60


@dataclass(frozen=True)
class Pipeline:
    """A model to train.

    data: which of the data sets below.  options: for the converter.
    opsets: of the file, where the converter asks for some.
    """

    make: Callable[[], Any]
    data: str = "classes"
    options: dict[Any, Any] | None = None
    opsets: dict[str, int] = field(default_factory=lambda: {"": 18, "ai.onnx.ml": 3})


@dataclass(frozen=True)
class Trained:
    """A trained model, its file, and the samples on which it is compared."""

    name: str
    model: Any
    file: onnx.ModelProto
    x: Array


def _scaled(model: Any) -> Any:
    return pipeline.make_pipeline(preprocessing.StandardScaler(), model)


def _then(*steps: Any) -> Callable[[], Any]:
    """Steps, and behind them a logistic regression."""
    return lambda: pipeline.make_pipeline(*steps, linear_model.LogisticRegression())


SVC_KERNELS: Mapping[str, dict[str, Any]] = {
    "linear": {},
    "poly": {"degree": 2, "coef0": 1.0},
    "rbf": {},
    "sigmoid": {},
}
SEED = {"random_state": 0}
RAW = {svm.LinearSVC: {"raw_scores": False}}

PIPELINES: Mapping[str, Pipeline] = {
    "tree": Pipeline(lambda: tree.DecisionTreeClassifier(max_depth=4, **SEED)),
    "tree of two classes": Pipeline(lambda: tree.DecisionTreeClassifier(max_depth=4, **SEED), "two"),
    "tree regressor": Pipeline(lambda: tree.DecisionTreeRegressor(max_depth=5, **SEED), "values"),
    "forest": Pipeline(lambda: ensemble.RandomForestClassifier(10, **SEED)),
    "forest of two classes": Pipeline(lambda: ensemble.RandomForestClassifier(10, **SEED), "two"),
    "forest of doubles": Pipeline(lambda: ensemble.RandomForestClassifier(10, **SEED), "doubles"),
    "forest regressor of two targets": Pipeline(
        lambda: ensemble.RandomForestRegressor(5, max_depth=4, **SEED), "targets"
    ),
    "extra trees": Pipeline(lambda: ensemble.ExtraTreesClassifier(10, **SEED)),
    "extra trees regressor": Pipeline(
        lambda: ensemble.ExtraTreesRegressor(10, max_depth=6, **SEED), "values"
    ),
    "gradient boosting": Pipeline(lambda: ensemble.GradientBoostingClassifier(n_estimators=8, **SEED)),
    "gradient boosting of two classes": Pipeline(
        lambda: ensemble.GradientBoostingClassifier(n_estimators=8, **SEED), "two"
    ),
    "gradient boosting regressor": Pipeline(
        lambda: ensemble.GradientBoostingRegressor(n_estimators=8, **SEED), "values"
    ),
    "histogram boosting": Pipeline(lambda: ensemble.HistGradientBoostingClassifier(max_iter=5), "holes"),
    "histogram boosting of two classes": Pipeline(
        lambda: ensemble.HistGradientBoostingClassifier(max_iter=5), "two"
    ),
    "histogram boosting regressor": Pipeline(
        lambda: ensemble.HistGradientBoostingRegressor(max_iter=5), "values"
    ),
    "ada boost": Pipeline(lambda: ensemble.AdaBoostClassifier(n_estimators=6, **SEED)),
    "ada boost regressor": Pipeline(lambda: ensemble.AdaBoostRegressor(n_estimators=6, **SEED), "values"),
    "bagging": Pipeline(lambda: ensemble.BaggingClassifier(n_estimators=4, **SEED)),
    "bagging regressor": Pipeline(lambda: ensemble.BaggingRegressor(n_estimators=4, **SEED), "values"),
    **{
        f"SVC {kernel}": Pipeline(lambda k=kernel, a=attrs: _scaled(svm.SVC(kernel=k, **a)))
        for kernel, attrs in SVC_KERNELS.items()
    },
    **{
        f"SVR {kernel}": Pipeline(lambda k=kernel, a=attrs: _scaled(svm.SVR(kernel=k, **a)), "values")
        for kernel, attrs in SVC_KERNELS.items()
    },
    "SVC of two classes": Pipeline(lambda: _scaled(svm.SVC()), "two"),
    "NuSVC": Pipeline(lambda: _scaled(svm.NuSVC(nu=0.3))),
    "NuSVR": Pipeline(lambda: _scaled(svm.NuSVR()), "values"),
    "linear SVC": Pipeline(lambda: _scaled(svm.LinearSVC()), options=RAW),
    "linear SVC of two classes": Pipeline(lambda: _scaled(svm.LinearSVC()), "two", RAW),
    "linear SVR": Pipeline(lambda: _scaled(svm.LinearSVR()), "values"),
    "SVM of one class": Pipeline(lambda: _scaled(svm.OneClassSVM())),
    "linear": Pipeline(linear_model.LinearRegression, "values"),
    "ridge": Pipeline(linear_model.Ridge, "values"),
    "lasso of two targets": Pipeline(lambda: linear_model.MultiTaskLasso(0.01), "targets"),
    "logistic": Pipeline(lambda: _scaled(linear_model.LogisticRegression())),
    "logistic without maps": Pipeline(
        lambda: _scaled(linear_model.LogisticRegression()), "two", {"zipmap": False}
    ),
    "logistic with columns": Pipeline(
        lambda: _scaled(linear_model.LogisticRegression()), "classes", {"zipmap": "columns"}
    ),
    "one against the rest": Pipeline(
        lambda: multiclass.OneVsRestClassifier(_scaled(linear_model.LogisticRegression()))
    ),
    "gradient descent": Pipeline(lambda: _scaled(linear_model.SGDClassifier(loss="log_loss", **SEED))),
    "gradient descent regressor": Pipeline(lambda: _scaled(linear_model.SGDRegressor(**SEED)), "values"),
    "perceptron layers": Pipeline(lambda: _scaled(neural_network.MLPClassifier((8,), max_iter=60, **SEED))),
    "perceptron layers of two classes": Pipeline(
        lambda: _scaled(neural_network.MLPClassifier((8,), "tanh", max_iter=60, **SEED)), "two"
    ),
    "perceptron layers regressor": Pipeline(
        lambda: _scaled(
            neural_network.MLPRegressor(hidden_layer_sizes=(8,), activation="logistic", max_iter=60, **SEED)
        ),
        "values",
    ),
    "neighbors": Pipeline(lambda: neighbors.KNeighborsClassifier(5)),
    "neighbors by sums of differences": Pipeline(
        lambda: neighbors.KNeighborsClassifier(4, metric="manhattan")
    ),
    "neighbors regressor": Pipeline(lambda: neighbors.KNeighborsRegressor(3), "values"),
    "normal bayes": Pipeline(naive_bayes.GaussianNB),
    "bernoulli bayes": Pipeline(lambda: naive_bayes.BernoulliNB(binarize=2.0)),
    "multinomial bayes": Pipeline(naive_bayes.MultinomialNB),
    "between 0 and 1": Pipeline(_then(preprocessing.MinMaxScaler())),
    "by quartiles": Pipeline(_then(preprocessing.RobustScaler())),
    "rows of length 1": Pipeline(_then(preprocessing.Normalizer())),
    "principal components": Pipeline(_then(preprocessing.StandardScaler(), decomposition.PCA(2))),
    "imputed": Pipeline(_then(impute.SimpleImputer()), "holes"),
    "above a threshold": Pipeline(_then(preprocessing.Binarizer(threshold=2.0))),
    "bins": Pipeline(
        _then(
            preprocessing.KBinsDiscretizer(4, encode="onehot-dense", quantile_method="averaged_inverted_cdf")
        )
    ),
    "products": Pipeline(
        lambda: pipeline.make_pipeline(preprocessing.PolynomialFeatures(2), linear_model.Ridge()), "values"
    ),
    "categories": Pipeline(_then(preprocessing.OneHotEncoder(handle_unknown="ignore")), "integers"),
    "ordinals": Pipeline(_then(preprocessing.OrdinalEncoder()), "integers"),
    "columns": Pipeline(
        _then(
            compose.make_column_transformer(
                (preprocessing.StandardScaler(), [0, 1]), (preprocessing.MinMaxScaler(), [2, 3])
            )
        )
    ),
    "best features": Pipeline(_then(feature_selection.SelectKBest(k=2))),
    "vote": Pipeline(
        lambda: ensemble.VotingClassifier(
            [
                ("a", linear_model.LogisticRegression(max_iter=500)),
                ("b", tree.DecisionTreeClassifier(max_depth=3, **SEED)),
            ],
            voting="soft",
            flatten_transform=False,
        )
    ),
    "stack": Pipeline(
        lambda: ensemble.StackingClassifier(
            [
                ("a", linear_model.LogisticRegression(max_iter=500)),
                ("b", tree.DecisionTreeClassifier(max_depth=3, **SEED)),
            ]
        )
    ),
    "calibrated": Pipeline(lambda: calibration.CalibratedClassifierCV(naive_bayes.GaussianNB(), cv=2)),
    "calibrated by steps": Pipeline(
        lambda: calibration.CalibratedClassifierCV(
            tree.DecisionTreeClassifier(max_depth=3, **SEED), cv=2, method="isotonic"
        )
    ),
    "discriminants": Pipeline(discriminant_analysis.LinearDiscriminantAnalysis),
    "clusters": Pipeline(lambda: cluster.KMeans(3, n_init=1, **SEED)),
    "mixture": Pipeline(lambda: mixture.GaussianMixture(3, **SEED)),
    "regressors": Pipeline(lambda: multioutput.MultiOutputRegressor(linear_model.Ridge()), "targets"),
    "classifiers": Pipeline(
        lambda: multioutput.MultiOutputClassifier(tree.DecisionTreeClassifier(max_depth=3, **SEED)), "labels"
    ),
}
"""Of every kind that the converter writes with operators of numbers alone."""


@cache
def data(kind: str) -> tuple[Array, Array]:
    """Features and what to learn from them."""
    if kind == "two":
        x, y = datasets.load_breast_cancer(return_X_y=True)
    elif kind in ("values", "targets"):
        x, y = datasets.load_diabetes(return_X_y=True)
    else:
        x, y = datasets.load_iris(return_X_y=True)
    rng = np.random.default_rng(0)
    order = rng.permutation(len(x))  # so that the first samples are of all classes
    x, y = np.float32(x[order]), y[order]
    if kind == "targets":
        return x, np.column_stack([y, y[::-1]])
    if kind == "labels":
        return x, np.column_stack([y, x[:, 0] > 5.5]).astype(np.int64)
    if kind == "integers":
        return np.round(2 * x).astype(np.int64), y
    if kind == "holes":
        x = np.where(rng.random(x.shape) < 0.1, np.float32(np.nan), x)
    if kind == "text":
        return x, np.array(["setosa", "versicolor", "virginica"])[y]
    return (x.astype(np.float64), y) if kind == "doubles" else (x, y)


def trained(name: str, given: Pipeline | None = None) -> Trained:
    """Train one of the pipelines, or another one, and convert it."""
    from skl2onnx import to_onnx

    given = given or PIPELINES[name]
    x, y = data(given.data)
    with warnings.catch_warnings(), plain_attributes():
        warnings.simplefilter("ignore")  # of short training and of the converter's own calls
        model = given.make().fit(x, y)
        file = to_onnx(model, x[:1], options=given.options, target_opset=given.opsets)
    return Trained(name, model, file, x[:SAMPLES])


@contextmanager
def plain_attributes() -> Iterator[None]:
    """Let onnx take booleans as attributes, which the converter writes for histogram boosting and newer releases of onnx refuse."""
    original = onnx.helper.make_attribute

    def make(key: str, value: Any, *args: Any, **kwargs: Any) -> onnx.AttributeProto:
        if isinstance(value, list):
            value = [int(v) if isinstance(v, bool | np.bool_) else v for v in value]
        return original(key, value, *args, **kwargs)

    onnx.helper.make_attribute = make
    try:
        yield
    finally:
        onnx.helper.make_attribute = original
