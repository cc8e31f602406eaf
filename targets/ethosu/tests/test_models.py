"""A real model through library, driver and stub: what arrives is what LiteRT computes of the original file."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from npu_stub import execute, plugged_in

from mace_core.compilation import read_file
from mace_core.registry import Registry
from mace_core.testing.compiled import compile_graphs
from mace_core.testing.requirements import require
from mace_target_ethosu import EthosU, vela
from mace_target_ethosu.options import EthosUOptions

MODELS = Path(os.environ.get("MACE_MODELS") or Path(__file__).parents[4] / "shared" / "models")


@pytest.mark.slow
@pytest.mark.sampled(cases="^mlperf_kws/kws_int8-ethos-u65-256$")
@pytest.mark.parametrize("accelerator", ["ethos-u55-128", "ethos-u65-256", "ethos-u85-256"])
@pytest.mark.parametrize("model", ["mlperf_kws/kws_int8", "mlperf_ic/ic_int8", "mlperf_ad/ad_int8"])
def test_a_library_with_the_npu_computes_what_litert_does(
    model: str, accelerator: str, tmp_path: Path
) -> None:
    require(vela.find_fault())
    path = MODELS / f"{model}.tflite"
    if not path.exists():
        pytest.skip(f"no {path}; set MACE_MODELS to the folder of real models")
    graph = read_file(path, Registry.load()).with_name("m")
    with pytest.MonkeyPatch.context() as patch, plugged_in(patch) as npu:
        # U65 and U85 keep a part of the arena in faster memory by default, which is the vendor's driver's here.
        target = EthosU(EthosUOptions(accelerator))
        (loaded,) = compile_graphs(target, [graph], tmp_path).values()
        (name,), (output,) = graph.inputs, graph.outputs
        for seed in range(3):
            tensor = graph.tensors[name]
            inputs = np.random.default_rng(seed).integers(-128, 128, tensor.shape).astype(np.int8)
            (expected,) = execute(path.read_bytes(), [inputs.tobytes()])
            assert loaded.run({name: inputs})[output].tobytes() == expected
        assert npu.state.invokes == 3
