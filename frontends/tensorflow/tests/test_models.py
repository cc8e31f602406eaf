"""Trained networks beside the checkout: what they compute is what was stored."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mace_core.deployment import Model, Port
from mace_core.ops import core_ops
from mace_core.run.reference import execute
from mace_core.run.similarity import cosine
from mace_core.testing.arrays import load_arrays
from mace_core.verify import verify
from mace_frontend_tensorflow import TensorFlow

MODELS = Path(os.environ.get("MACE_MODELS", Path(__file__).parents[4] / "shared" / "models"))
MANIFEST = MODELS / "manifest.json"
ROWS = [r for r in json.loads(MANIFEST.read_text()) if r["frontend"] == "tf_pb"] if MANIFEST.is_file() else []

pytestmark = pytest.mark.skipif(not ROWS, reason=f"no models in {MODELS}; MACE_MODELS names another folder")


def stated(row: dict[str, Any]) -> tuple[Model, dict[str, Any]]:
    """A model between the tensors that its row names, and its samples."""
    file, samples = MODELS / row["file"], load_arrays(MODELS / row["golden"])
    given, made = re.search(r"in=(\S+)", row["note"]), re.search(r"out=\['(.+)'\]", row["note"])
    assert given is not None
    assert made is not None
    name = given[1].removesuffix(":0")
    return Model(
        "m",
        (file,),
        inputs=(Port(name, samples["in_0_0"].shape),),
        outputs=(Port(made[1].removesuffix(":0")),),
    ), samples


@pytest.mark.parametrize("row", ROWS, ids=lambda r: r["file"])
def test_model(row: dict[str, Any]) -> None:
    model, samples = stated(row)
    graph = verify(TensorFlow().load(model.files, model, core_ops()))
    for s in range(row["samples"]):
        actual = execute(graph, {graph.inputs[0]: samples[f"in_0_{s}"]})[graph.outputs[0]]
        assert cosine(actual, samples[f"out_0_{s}"].reshape(actual.shape)) > 0.9999


@pytest.mark.parametrize("row", ROWS, ids=lambda r: r["file"])
def test_tensorflow_gives_what_was_stored(row: dict[str, Any], tf: Any) -> None:
    model, samples = stated(row)
    run = TensorFlow().reference(model.files, model)
    assert run is not None
    (found,) = run({model.inputs[0].name: samples["in_0_0"]}).values()
    np.testing.assert_allclose(found, samples["out_0_0"], atol=1e-5)
