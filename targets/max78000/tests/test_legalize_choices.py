"""Which layers a rule chooses where several would compute the same, and what rules refuse."""

from __future__ import annotations

import pytest
from automatic_graphs import Writer, assert_same

from mace_core.errors import MaceError
from mace_frontend_ai8x.network import LayerActivation, Operation
from mace_target_max78000.device import MAX78000, Chip
from mace_target_max78000.legalize.convolutions import share_stride
from mace_target_max78000.legalize.pipeline import legalize_graph
from mace_target_max78000.legalize.window_plans import WindowAxis
from mace_target_max78002.device import MAX78002

DEVICES = pytest.mark.parametrize("device", [MAX78000, MAX78002], ids=lambda d: d.name)


@DEVICES
def test_a_pointwise_convolution_with_a_stride_is_one_layer(device: Chip) -> None:
    """It reads every second position; a kernel of 3x3 or copies would compute the same with more."""
    writer = Writer()
    y = writer.conv(writer.input(8, 8, 4), 5, (1, 1), strides=(2, 2))
    (layer,) = assert_same(writer.graph(y), device).layers
    assert (layer.operation, layer.kernel, layer.stride) == (Operation.CONV2D, (1, 1), 2)


@DEVICES
@pytest.mark.parametrize("kernel", [(1, 1), (3, 3)])
def test_a_kernel_of_the_hardware_stays_one_layer(kernel: tuple[int, int], device: Chip) -> None:
    writer = Writer()
    pad = (kernel[0] // 2,) * 2
    y = writer.conv(writer.input(6, 7, 4), 5, kernel, pads_before=pad, pads_after=pad)
    (layer,) = assert_same(writer.graph(y), device).layers
    assert (layer.kernel, layer.pad, layer.stride) == (kernel, pad, 1)


@DEVICES
def test_results_of_32_bits_are_the_sums_themselves(device: Chip) -> None:
    """They are not shifted, and no activation follows."""
    writer = Writer()
    y = writer.conv(writer.input(4, 4, 4), 5, (1, 1), power=None)
    (layer,) = assert_same(writer.graph(y), device).layers
    assert layer.wide
    assert (layer.shift, layer.activation) == (0, LayerActivation.NONE)


@pytest.mark.parametrize("side", ["before", "after"])
def test_padding_of_channels_is_refused(side: str) -> None:
    writer = Writer()
    x = writer.conv(writer.input(4, 4, 4), 4, (1, 1))
    counts = {name: tuple(int(name == side and i == 3) for i in range(4)) for name in ("before", "after")}
    y = writer.one("Pad", [x], {**counts, "mode": "constant", "value": 0.0})
    z = writer.conv(y, 4, (1, 1))
    with pytest.raises(MaceError, match="it pads channels or batches; pad rows and columns only"):
        legalize_graph(writer.graph(z), MAX78000)


def crop(writer: Writer, x: str, before: tuple[int, ...], after: tuple[int, ...]) -> str:
    """A part of the rows and columns of data, or of its channels."""
    shape = writer.shape(x)
    starts = (0, *before)
    sizes = (1, *(n - b - a for n, b, a in zip(shape[1:], before, after, strict=True)))
    return writer.one("Slice", [x], {"starts": starts, "sizes": sizes, "steps": (1,) * len(shape)})


@DEVICES
@pytest.mark.parametrize(
    ("before", "after", "layers"),
    [
        ((1, 1, 0), (1, 1, 0), 1),
        ((2, 0, 0), (0, 2, 0), 1),
        ((0, 2, 0), (0, 0, 0), 1),
        ((2, 2, 0), (2, 2, 0), 2),
    ],
)
def test_rows_and_columns_are_cut_off_two_by_two(
    before: tuple[int, ...], after: tuple[int, ...], layers: int, device: Chip
) -> None:
    writer = Writer()
    x = writer.conv(writer.input(8, 9, 4), 4, (1, 1))
    y = writer.conv(crop(writer, x, before, after), 4, (1, 1))
    assert len(assert_same(writer.graph(y), device).layers) == 2 + layers


@DEVICES
@pytest.mark.parametrize(
    ("before", "after"), [((1, 0, 0), (0, 0, 0)), ((0, 0, 0), (0, 1, 0)), ((0, 1, 0), (1, 2, 0))]
)
def test_an_odd_row_or_column_is_cut_off_by_doubling(
    before: tuple[int, ...], after: tuple[int, ...], device: Chip
) -> None:
    writer = Writer()
    x = writer.conv(writer.input(8, 9, 4), 4, (1, 1))
    y = writer.conv(crop(writer, x, before, after), 4, (1, 1))
    layers = assert_same(writer.graph(y), device).layers
    assert any(layer.operation is Operation.CONV_TRANSPOSE2D for layer in layers)


@DEVICES
@pytest.mark.parametrize(("before", "after", "layers"), [(3, 5, 1), (1, 0, 1), (0, 1, 1), (9, 0, 2)])
def test_a_line_loses_up_to_eight_elements_in_a_layer(
    before: int, after: int, layers: int, device: Chip
) -> None:
    writer = Writer()
    x = writer.conv(writer.input(20, 4), 4, (1,))
    y = writer.conv(crop(writer, x, (before, 0), (after, 0)), 4, (1,))
    assert len(assert_same(writer.graph(y), device).layers) == 2 + layers


@DEVICES
@pytest.mark.parametrize("shape", [(5, 6, 12), (9, 12)])
def test_channels_are_selected_by_a_layer_that_copies(shape: tuple[int, ...], device: Chip) -> None:
    writer = Writer()
    kernel = (1,) * (len(shape) - 1)
    x = writer.conv(writer.input(*shape), shape[-1], kernel)
    zeros = (0,) * (len(shape) - 1)
    y = writer.conv(crop(writer, x, (*zeros, 3), (*zeros, 4)), 4, kernel)
    formed = assert_same(writer.graph(y), device)
    assert formed.layers[-1].channels == 5


def test_a_part_of_the_batch_or_of_every_second_row_is_refused() -> None:
    for attrs in (
        {"starts": (0, 0, 0, 0), "sizes": (1, 4, 8, 4), "steps": (1, 2, 1, 1)},
        {"starts": (0, 0, 0, 1), "sizes": (1, 4, 8, 2), "steps": (1, 1, 1, 1)},
    ):
        writer = Writer()
        x = writer.conv(writer.input(8, 8, 4), 4, (1, 1))
        y = writer.conv(writer.one("Slice", [x], attrs), 4, (1, 1))
        with pytest.raises(MaceError, match="it takes a part that the hardware cannot take"):
            legalize_graph(writer.graph(y), MAX78000)


@pytest.mark.parametrize(
    ("axes", "strides"),
    [
        (((4, 2), (4, 2)), (2, 2)),
        (((4, 2), (4, 3)), None),
        (((2, 2), (4, 3)), None),
        (((4, 2), (2, 3)), None),
        (((1, 2), (4, 3)), (3, 3)),
        (((4, 2), (1, 3)), (2, 2)),
        (((1, 2), (1, 3)), (1, 1)),
    ],
)
def test_an_axis_of_one_result_takes_the_stride_of_the_other(
    axes: tuple[tuple[int, int], ...], strides: tuple[int, int] | None
) -> None:
    """Pairs of results and stride along each axis."""
    shared = share_stride([WindowAxis(9, count, stride, (0, 1)) for count, stride in axes])
    assert (shared and tuple(axis.stride for axis in shared)) == strides
