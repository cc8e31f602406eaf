"""What a build says of how a network came to fit: results of 8 bits, depthwise convolutions as full ones."""

from __future__ import annotations

import numpy as np
import pytest

from mace_core.errors import MaceError
from mace_core.graph_builder import Builder
from mace_core.ir import DType, Graph
from mace_target_max78000.design import DesignedNetwork, design_network
from mace_target_max78000.device import MAX78000, Chip
from mace_target_max78000.options import Options
from mace_target_max78000.project import make_project
from mace_target_max78000.quantize.plan import QuantizationPolicy
from mace_target_max78002.device import MAX78002

SAME = {"strides": (1, 1), "dilations": (1, 1), "pads_before": (1, 1), "pads_after": (1, 1)}


def design(graph: Graph, device: Chip, policy: QuantizationPolicy | None = None) -> DesignedNetwork:
    samples = [{"x": np.random.default_rng(0).uniform(-1, 1, graph.tensors["x"].shape).astype(np.float32)}]
    return design_network(graph, samples, device, Options(), policy or QuantizationPolicy())


def images(size: int, outputs: int) -> Graph:
    """Two convolutions over an image; the results are as large."""
    random, builder = np.random.default_rng(1), Builder("images")
    x = builder.input("x", DType.F32, (1, size, size, 3))
    for channels, name in ((16, "a"), (outputs, "b")):
        w = random.normal(0, 0.2, (channels, 3, 3, builder.shape(x)[-1])).astype(np.float32)
        x = builder.one("Conv", [x, builder.weight(name, w)], SAME)
    return builder.finish([x])


@pytest.mark.slow
def test_results_have_8_bits_where_32_do_not_fit() -> None:
    # 72 * 72 * 4 words of 32 bits are more than the 32 KiB of a data memory.
    result = design(images(72, 4), MAX78000)
    assert not result.network.layers[-1].wide
    (note,) = (note for note in result.network.notes if "8 bits in place of 32" in note)
    assert "layer" in note


def test_results_have_32_bits_where_these_fit() -> None:
    result = design(images(32, 4), MAX78000)
    assert result.network.layers[-1].wide
    assert not any("8 bits in place of 32" in note for note in result.network.notes)


@pytest.mark.exhaustive
@pytest.mark.slow
def test_what_does_not_fit_with_8_bits_either_is_told_as_it_was_wanted() -> None:
    with pytest.raises(MaceError) as refused:
        design(images(96, 4), MAX78000)
    with pytest.raises(MaceError) as error:
        design(images(96, 4), MAX78000, QuantizationPolicy(wide=False))
    assert str(refused.value) != str(error.value)


@pytest.mark.parametrize(
    ("device", "told"), [(MAX78000, 1), (MAX78002, 0)], ids=lambda v: getattr(v, "name", "")
)
def test_expanded_depthwise_convolutions_are_told(device: Chip, told: int) -> None:
    random, builder = np.random.default_rng(1), Builder("depthwise")
    x = builder.input("x", DType.F32, (1, 12, 12, 8))
    x = builder.one(
        "Conv",
        [x, builder.weight("d", random.normal(0, 0.2, (8, 3, 3, 1)).astype(np.float32))],
        {**SAME, "group": 8},
    )
    x = builder.one("Relu", [x])
    x = builder.one(
        "Conv", [x, builder.weight("p", random.normal(0, 0.2, (4, 3, 3, 8)).astype(np.float32))], SAME
    )
    notes = [note for note in design(builder.finish([x]), device).network.notes if "depthwise" in note]
    assert len(notes) == told
    assert all("the MAX78002 computes" in note for note in notes)


def unet(size: int) -> Graph:
    """A U-Net of three levels: what each pools joins what comes up again.

    The results are as large as the input.
    """
    random, builder = np.random.default_rng(3), Builder("unet")

    def conv(x: str, channels: int, name: str, op: str = "Conv", **attrs: object) -> str:
        w = random.normal(
            0, 0.5 / builder.shape(x)[-1] ** 0.5, (channels, 3, 3, builder.shape(x)[-1])
        ).astype(np.float32)
        return builder.one(op, [x, builder.weight(name, w)], {**SAME, **attrs})

    x = builder.input("x", DType.F32, (1, size, size, 3))
    levels = []
    for number, channels in enumerate((8, 16, 32)):
        levels.append(builder.one("Relu", [conv(x, channels, f"down{number}")]))
        window = {"kernel": (2, 2), **SAME, "strides": (2, 2), "pads_before": (0, 0), "pads_after": (0, 0)}
        x = builder.one("MaxPool", [levels[-1]], window)
    x = builder.one("Relu", [conv(x, 64, "bottom")])
    for number, level in reversed(list(enumerate(levels))):
        channels = builder.shape(level)[-1]
        x = builder.one(
            "Relu", [conv(x, channels, f"up{number}", "ConvTranspose", strides=(2, 2), output_padding=(1, 1))]
        )
        x = builder.one("Concat", [x, level], {"axis": 3})
        x = builder.one("Relu", [conv(x, channels, f"joined{number}")])
    return builder.finish([conv(x, 4, "classes")])


@pytest.mark.exhaustive
def test_a_unet_of_48x48_gives_results_of_8_bits_on_the_first_generation() -> None:
    """The sums of 4 classes take 48 * 48 * 4 words of a data memory, which has 8,192.

    The second generation has room for them.
    """
    result = design(unet(48), MAX78000)
    assert not result.network.layers[-1].wide
    assert any("8 bits in place of 32" in note for note in result.network.notes)
    project = make_project(
        result.network, result.options, MAX78000
    )  # executed in the simulator, and compared
    assert project.results[-1].shape == (4, 48, 48)
    assert design(unet(48), MAX78002).network.layers[-1].wide
