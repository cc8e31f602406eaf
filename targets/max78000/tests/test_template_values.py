"""What the templates of a firmware are filled with: input arrays, results, layers and macros in words."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from check_networks import C1, C2, NO, eltwise, layer, network

from mace_core.emit.text import CDefine
from mace_core.errors import MaceError
from mace_frontend_ai8x.network import Layer, LayerActivation, Pool, Weights
from mace_target_max78000.device import MAX78000, Chip
from mace_target_max78000.encode import synthesize
from mace_target_max78000.firmware import template_values
from mace_target_max78000.image import Block
from mace_target_max78000.options import Options
from mace_target_max78002.device import MAX78002

WORDS = tuple(range(6))
IMAGE = synthesize(network(layer(C2, (4, 4, 5), output=True)), Options(), MAX78000).image


def test_an_input_is_written_word_by_word() -> None:
    array = template_values._input(Block(0x50400000, WORDS, 4), Options())
    assert (array.number, array.address, array.sample, array.length) == (4, 0x50400000, WORDS, 6)
    assert (str(array.value), str(array.about)) == (
        "input_4[i]",
        "/* 6 words for the data memory of processor 4 */",
    )


def test_an_input_that_is_synthesized_has_one_group_of_words() -> None:
    options = Options(synthesize_input=0x10203, synthesize_words=3)
    array = template_values._input(Block(0x50000008, WORDS, 4, fifo=1), options)
    assert (array.number, array.sample, array.length) == (1, (0, 1, 2), 6)
    assert str(array.value) == "input_1[i % 3] + 0x00010203 * (i / 3)"
    assert str(array.about) == "/* 6 words for the FIFO 1 */"
    for block, words in ((Block(0, WORDS, 4, fifo=1), 4), (Block(0, WORDS, 4), 3)):
        with pytest.raises(
            MaceError, match=f"synthesize_input: 6 words of input in groups of {words}; use a FIFO"
        ):
            template_values._input(block, replace(options, synthesize_words=words))


@pytest.mark.parametrize(
    ("bits", "wide", "shift", "results"),
    [(8, True, 0, "ml_data"), (4, True, 4, "ml_data"), (1, True, 7, "ml_data"), (4, False, 0, "ml_data32")],
)
def test_sums_of_narrow_weights_are_shifted_for_softmax(
    bits: int, wide: bool, shift: int, results: str
) -> None:
    weights = Weights(np.zeros((5, 4, 3, 3), np.int64), bits)
    values = template_values._results(
        network(layer(C2, (4, 2, 3), 5, weights=weights, wide=wide, output=True)), Options()
    )
    assert (values["softmax_shift"], str(values["results"]), values["wide"]) == (shift, results, wide)
    # 5 channels of 6 positions: a word each as sums, else a byte each.
    assert (values["outputs"], values["unload_words"]) == (30, 30 if wide else 8)


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (layer(C2, (4, 5, 6)), "4 x 5 x 6, conv2d 3x3 pad 1, 4 x 5 x 6, 8 bits"),
        (
            layer(C1, (4, 9), 5, activation=LayerActivation.RELU, wide=True),
            "4 x 9 x 1, conv1d 3 pad 0, relu, 5 x 7 x 1, 32 bits",
        ),
        (
            layer(NO, (4, 6, 8), pool=Pool(False, (2, 3), 2)),
            "4 x 6 x 8, max pool 2x3 stride 2, passthrough, 4 x 3 x 3, 8 bits",
        ),
        (
            eltwise((4, 6, 8), pool=Pool(True, (2, 2), 2)),
            "4 x 6 x 8, average pool 2x2 stride 2, add of 2, passthrough, 4 x 3 x 4, 8 bits",
        ),
    ],
)
def test_a_layer_in_words(made: Layer, words: str) -> None:
    assert template_values._describe_layer(7, made) == f"layer 7 (one): {words}"


def test_numbers_and_macros_as_c_writes_them() -> None:
    assert str(template_values._array((0, 0xABC))) == "  0x00000000, 0x00000abc"
    lines = str(template_values._array(tuple(range(9)))).split(", \\\n")
    assert [line.count("0x") for line in lines] == [8, 1]
    assert str(template_values._bytes(b"\x07\xff")) == "  0x07, 0xff"
    lines = str(template_values._bytes(bytes(17))).split(", \\\n")
    assert [line.count("0x") for line in lines] == [16, 1]
    assert str(template_values._macros((CDefine("A"), CDefine("B=2")))) == "-DA -DB=2"


PERIPHERAL, PLL = "the peripheral clock of the processor", "PLL"


@pytest.mark.parametrize(
    ("device", "options", "clock", "words", "delay"),
    [
        (MAX78000, Options(), "PCLK/1", f"{PERIPHERAL}, 50 MHz", 0),
        (MAX78000, Options(clock_divider=4, switch_delay=7), "PCLK/4", f"{PERIPHERAL}, 12 MHz", 7),
        (MAX78002, Options(max_speed=True), "IPLL/1", f"{PLL}, 200 MHz", 10),
        (MAX78002, Options(max_speed=True, clock_divider=4), "IPLL/4", f"{PLL}, 50 MHz", 10),
        (MAX78002, Options(pll=False), "PCLK/1", f"{PERIPHERAL}, 60 MHz", 10),
        # Without the pipeline the accelerator follows 50 MHz at most.
        (MAX78002, Options(pipeline=False), "IPLL/4", f"{PLL}, 50 MHz", 10),
        (MAX78002, Options(pipeline=False, pll=False), "PCLK/2", f"{PERIPHERAL}, 30 MHz", 10),
    ],
)
def test_clocks_that_stay(device: Chip, options: Options, clock: str, words: str, delay: int) -> None:
    values = template_values._clock(replace(IMAGE, device=device), options)
    source, divider = clock.split("/")
    assert str(values["clock"]) == f"BOARD_CNN_CLOCK_{source}, BOARD_CNN_CLOCK_DIV{divider}"
    assert (str(values["clock_words"]), values["fast_clock"], values["switch_delay"]) == (words, None, delay)


def test_the_pll_is_divided_less_for_the_inference() -> None:
    values = template_values._clock(replace(IMAGE, device=MAX78002), Options())
    assert str(values["clock"]) == "BOARD_CNN_CLOCK_IPLL, BOARD_CNN_CLOCK_DIV4"
    assert str(values["clock_words"]) == "PLL, 200 MHz for the inference, divided by 4 before and after it"
    assert str(values["fast_clock"]) == "BOARD_CNN_CLOCK_IPLL, BOARD_CNN_CLOCK_DIV1"


def test_the_control_register_of_the_first_quadrant_that_works() -> None:
    result = network(layer(C2, (70, 4, 5), 6, output=True))
    values = template_values._control(synthesize(result, Options(), MAX78002).image, result)
    assert (values["quadrants"], values["quadrant_mask"], values["streaming"]) == ((0, 1, 2), 7, False)
    assert values["master"] == MAX78002.control_register(0, 0)
