"""Options of the vendor's command line: what each changes, and that those which are refused say why and what to do instead."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from test_checkpoint import file
from test_simulator import network

from mace_core.errors import MaceError
from mace_frontend_ai8x.checkpoint import Checkpoint, LayerParameters, load_checkpoint
from mace_frontend_ai8x.described_model import parameter_reader
from mace_frontend_ai8x.description import read_description
from mace_frontend_ai8x.network import LayerActivation, Network
from mace_target_max78000.device import MAX78000, Chip
from mace_target_max78000.encode import synthesize
from mace_target_max78000.firmware import emit_project
from mace_target_max78000.firmware.clock import choose_clock
from mace_target_max78000.image import Image, Write
from mace_target_max78000.options import Options
from mace_target_max78000.project import make_project
from mace_target_max78000.vendor_options import REFUSED, SAME, SWITCHED_OFF, WITHOUT_EFFECT
from mace_target_max78002.device import MAX78002

DESCRIPTION = """arch: net
dataset: data
layers:
  - {name: first, processors: 0x1, operation: Conv2d, kernel_size: 1x1, pad: 0, activate: ReLU, out_offset: 0x1000}
  - {name: second, processors: 0xf, operation: Conv2d, kernel_size: 3x3, pad: 1, activate: Abs, out_offset: 0x2000}
  - {name: third, processors: 0xf, operation: Conv2d, kernel_size: 1x1, pad: 0, out_offset: 0x3000}
"""
SHAPES = ((4, 1, 1, 1), (4, 4, 3, 3), (4, 4, 1, 1))


def read(folder: Path, *arguments: str, skipped: int = 0, channels: int = 1) -> Network:
    """Read the description with parameters for all layers but the first ones."""
    path = folder / "net.yaml"
    path.write_text(DESCRIPTION)
    layers = tuple(LayerParameters(f"p{i}", np.full(shape, 1)) for i, shape in enumerate(SHAPES))
    sample = np.zeros((channels, 8, 8), np.int64)
    return read_description(
        path, Checkpoint(layers[skipped:], arch="net"), sample, Options.of_arguments(arguments)
    )


def image(device: Chip, *arguments: str) -> Image:
    return synthesize(network(), Options.of_arguments(arguments), device).image


def files_of(device: Chip, *arguments: str) -> dict[str, str]:
    options = Options.of_arguments(arguments)
    result = emit_project(synthesize(network(), options, device).image, network(), options, "")
    return {
        path: content if isinstance(content, str) else content.decode() for path, content in result.items()
    }


@pytest.mark.parametrize(
    ("refused", "name"), [(refused, name) for refused in REFUSED for name in refused.names]
)
def test_a_refused_option_says_why_and_what_to_do(refused: object, name: str) -> None:
    written = name.replace("_", "-")
    with pytest.raises(MaceError) as error:
        Options.of_arguments([f"--{written}", "1"])
    (entry,) = [entry for entry in REFUSED if entry is refused]
    assert str(error.value) == f"options: {written}: {entry.reason}; {entry.remedy}"
    assert all(len(text) > 10 for text in (entry.reason, entry.remedy))


def test_an_option_is_in_one_table() -> None:
    refused = [name for entry in REFUSED for name in entry.names]
    tables = [
        refused,
        list(WITHOUT_EFFECT),
        list(SAME),
        list(SWITCHED_OFF),
        list(Options.__dataclass_fields__),
    ]
    names = [name for table in tables for name in table]
    assert len(names) == len(set(names))


def test_streaming_layers_are_added_to_those_of_the_description(tmp_path: Path) -> None:
    plain = read(tmp_path)
    asked = read(tmp_path, "--ignore-streaming", "--streaming-layers", "0,2")
    assert [place.streaming for place in plain.places] == [False] * 3
    assert [place.streaming for place in asked.places] == [True, False, True]


def test_a_streaming_layer_that_is_not_there_is_a_fault(tmp_path: Path) -> None:
    with pytest.raises(MaceError, match=r"streaming-layers: there is no layer 3; name layers from 0 to 2"):
        read(tmp_path, "--streaming-layers", "3")


@pytest.mark.parametrize("name", ["read_ahead", "calcx4"])
def test_a_switch_of_layers_holds_for_all_layers(tmp_path: Path, name: str) -> None:
    argument = f"--{name.replace('_', '-')}"
    assert [getattr(place, name) for place in read(tmp_path).places] == [False] * 3
    assert [getattr(place, name) for place in read(tmp_path, argument).places] == [True] * 3
    with pytest.raises(MaceError, match=f"{argument[2:]}: the MAX78000 does not have this"):
        make_project(network(), Options.of_arguments([argument]), MAX78000)


def test_activations_are_ignored(tmp_path: Path) -> None:
    kinds = [layer.activation for layer in read(tmp_path).layers]
    assert kinds == [LayerActivation.RELU, LayerActivation.ABS, LayerActivation.NONE]
    assert {layer.activation for layer in read(tmp_path, "--ignore-activation").layers} == {
        LayerActivation.NONE
    }


def test_layers_of_the_description_are_skipped(tmp_path: Path) -> None:
    result = read(tmp_path, "--skip-yaml-layers", "1", skipped=1, channels=4)
    assert [layer.name for layer in result.layers] == ["second", "third"]
    assert result.layers[0].channels == 4


def test_layers_keep_their_numbers_where_those_before_are_skipped(tmp_path: Path) -> None:
    result = read(tmp_path, "--skip-yaml-layers", "1", "--stop-after", "1", skipped=1, channels=4)
    assert [layer.name for layer in result.layers] == ["second"]


def test_a_description_cannot_be_skipped_whole(tmp_path: Path) -> None:
    with pytest.raises(MaceError, match="there are 3, the first 3 are to be skipped; lower skip-yaml-layers"):
        read(tmp_path, "--skip-yaml-layers", "3")


def test_layers_of_the_checkpoint_are_skipped(tmp_path: Path) -> None:
    path = file(tmp_path / "net.pth.tar")
    whole = parameter_reader(path, Options())(())
    rest = parameter_reader(path, Options.of_arguments(["--skip-checkpoint-layers", "1"]))(())
    assert [layer.name for layer in rest.layers] == [layer.name for layer in whole.layers][1:]
    with pytest.raises(
        MaceError, match=f"has {len(whole.layers)} layers with weights.*lower skip-checkpoint-layers"
    ):
        parameter_reader(path, Options(skip_checkpoint_layers=len(whole.layers)))(())


def test_batch_normalization_beside_quantized_weights_is_refused_or_ignored_when_asked(
    tmp_path: Path,
) -> None:
    normalization = {
        f"conv1__bn__{kind}": np.ones(3, np.float32)
        for kind in ("running_mean", "running_var", "weight", "bias")
    }
    path = file(tmp_path / "net.pth.tar", **normalization)
    with pytest.raises(
        MaceError, match=r"holds batch normalization beside quantized weights.*or give ignore-bn"
    ):
        load_checkpoint(path)
    result = load_checkpoint(path, ignore_bn=True)
    plain = load_checkpoint(file(tmp_path / "plain.pth.tar"))
    assert [layer.weights.tolist() for layer in result.layers] == [
        layer.weights.tolist() for layer in plain.layers
    ]
    assert any("ignored" in note for note in result.notes)


def test_the_external_ready_signal_is_bit_4_while_the_network_runs() -> None:
    control = MAX78000.control_register(0, 0)
    plain, asked = (
        [
            step.value
            for step in image(MAX78000, *arguments).start
            if isinstance(step, Write) and step.address == control
        ]
        for arguments in ((), ("--ext-rdy",))
    )
    assert asked == [value | 1 << 4 for value in plain]


@pytest.mark.parametrize(
    ("device", "arguments", "enabled", "inference", "hertz"),
    [
        (MAX78000, (), "PCLK, DIV1", None, 50e6),
        (MAX78000, ("--clock-divider", "8"), "PCLK, DIV8", None, 6.25e6),
        (MAX78002, (), "IPLL, DIV4", "IPLL, DIV1", 200e6),
        (MAX78002, ("--clock-divider", "2"), "IPLL, DIV4", "IPLL, DIV2", 100e6),
        (MAX78002, ("--max-speed",), "IPLL, DIV1", None, 200e6),
        (MAX78002, ("--no-pipeline",), "IPLL, DIV4", None, 50e6),
        (MAX78002, ("--no-pll",), "PCLK, DIV1", None, 60e6),
        (MAX78002, ("--apb", "--no-pipeline"), "PCLK, DIV2", None, 30e6),
    ],
)
def test_the_clock(
    device: Chip, arguments: tuple[str, ...], enabled: str, inference: str | None, hertz: float
) -> None:
    files = files_of(device, *arguments)
    calls = [
        f"BOARD_CNN_CLOCK_{text.replace(', ', ', BOARD_CNN_CLOCK_')}"
        for text in (enabled, inference or "")
        if text
    ]
    assert f"cnn_enable({calls[0]});" in files["main.c"]
    assert (f"board_cnn_clock({calls[-1]});" in files["cnn.c"]) == (inference is not None)
    assert choose_clock(Options.of_arguments(arguments), device).hertz == hertz


def test_a_divider_that_the_clock_lacks_is_refused() -> None:
    with pytest.raises(MaceError, match=r"clock-divider: '3' is not allowed; write one of 1, 2, 4, 8, 16"):
        Options.of_arguments(["--clock-divider", "3"])


def test_full_speed_needs_the_pll() -> None:
    options = Options.of_arguments(["--max-speed", "--no-pll"])
    assert list(options.refusals(MAX78002)) == [
        "max-speed: the PLL alone is faster than the processor's clock; leave out no-pll"
    ]


@pytest.mark.parametrize(
    ("device", "arguments", "delay"),
    [(MAX78000, (), 0), (MAX78002, (), 10), (MAX78000, ("--switch-delay", "25"), 25)],
)
def test_the_delay_of_load_switches(device: Chip, arguments: tuple[str, ...], delay: int) -> None:
    assert f"#define BOARD_CNN_POWER_DELAY {delay}\n" in files_of(device, *arguments)["board/board.h"]


@pytest.mark.parametrize("name", ["switch-delay", "skip-yaml-layers", "skip-checkpoint-layers"])
def test_counts_are_not_negative(name: str) -> None:
    with pytest.raises(MaceError, match=f"{name}: '-1' is not allowed"):
        Options.of_arguments([f"--{name}=-1"])


def test_default_macros_of_each_core() -> None:
    made = files_of(MAX78000)["msdk.mk"]
    assert "-DBOARD_MSDK -DMXC_ASSERT_ENABLE -DARM_MATH_CM4\n" in made
    arguments = ("--riscv", "--define-default-arm", "A=1 B", "--define-default-riscv", "C")
    assert "$(if $(filter 1,$(RISCV_CORE)),-DC,-DA=1 -DB)\n" in files_of(MAX78000, *arguments)["msdk.mk"]


def test_the_old_loader_copies_an_array_for_each_run() -> None:
    assert Options.of_arguments(["--old-kernel-loader"]) == replace(
        Options(compact_weights=True), requested=frozenset(("old_kernel_loader",))
    )


def test_kernels_are_verified_by_either_name() -> None:
    assert Options.of_arguments(["--verify-kernels"]).verify_weights
