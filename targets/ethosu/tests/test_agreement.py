"""Rules and Vela place the operators of real models alike."""

from __future__ import annotations

import json
import os
from pathlib import Path

import int8_graphs
import pytest

from mace_core.errors import MaceError
from mace_core.testing.requirements import require
from mace_target_ethosu import agreement, vela
from mace_target_ethosu.agreement import compare
from mace_target_ethosu.command import main
from mace_target_ethosu.options import EthosUOptions
from mace_target_ethosu.vela import OperatorRefusal
from mace_tflite_writer import write_tflite

MODELS = Path(os.environ.get("MACE_MODELS") or Path(__file__).parents[4] / "shared" / "models")
INT8 = (
    "mlperf_ic/ic_int8.tflite",
    "mlperf_kws/kws_int8.tflite",
    "mlperf_ad/ad_int8.tflite",
    "tflm_mnist_lstm/trained_lstm_int8.tflite",
    "coral_mobilenet_v2_1.0_224_quant/mobilenet_v2_1.0_224_quant.tflite",
    "onnxzoo_shufflenetv2_int8/shufflenet-v2-12-int8.onnx",
)
"""Every model there whose activations are integers of 8 bits."""


ACCELERATORS = ("ethos-u55-128", "ethos-u65-256", "ethos-u85-256")


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize("model", INT8, ids=lambda model: Path(model).stem)
@pytest.mark.parametrize("accelerator", ACCELERATORS)
def test_rules_and_vela_agree_on_every_int8_model(
    model: str, accelerator: str, capsys: pytest.CaptureFixture[str]
) -> None:
    require(vela.find_fault())
    path = MODELS / model
    if not path.exists():
        pytest.skip(f"no {path}; set MACE_MODELS to the folder of real models")
    status = main([str(path), "--json", "--accelerator", accelerator])
    results = json.loads(capsys.readouterr().out)
    assert status == 0
    assert {result["accelerator"] for result in results} == {accelerator}
    assert all(result["operators"] and not result["failure"] for result in results)


CONTENT = write_tflite(int8_graphs.chain(2))
"""Two convolutions, whose results are y and y.1."""


def test_a_difference_is_told_with_both_reasons(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        agreement, "list_refusals", lambda *_: [OperatorRefusal("CONV_2D", "y_act", "too warm")]
    )
    compared = compare(CONTENT, EthosUOptions(), "small")
    assert [verdict.vela for verdict in compared.verdicts] == ["too warm", None]
    assert len(compared.differences) == 1
    assert compared.describe() == [
        "small, ethos-u55-128: 2 operators, 1 on the NPU by Vela, 1 agree",
        "  CONV_2D ('y'): rules: NPU; Vela: too warm",
    ]


def test_a_file_that_vela_does_not_read_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> list[OperatorRefusal]:
        raise MaceError("small", "Vela does not compile it: no", "write another")

    monkeypatch.setattr(agreement, "list_refusals", fail)
    compared = compare(CONTENT, EthosUOptions(), "small")
    assert compared.describe() == ["small, ethos-u55-128: small: Vela does not compile it: no; write another"]
    assert compared.differences == ()


def test_without_vela_the_command_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("mace_target_ethosu.command.find_fault", lambda: "pip install it")
    assert main(["model.tflite"]) == 2
    assert capsys.readouterr().err == "target 'ethosu': Vela is needed to compare with; pip install it\n"
