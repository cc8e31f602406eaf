"""What one layer cannot compute, and inputs that do not fit together: each limit by a layer that breaks it."""

from __future__ import annotations

import numpy as np
import pytest
from check_networks import C1, C2, FC, NO, T2, eltwise, layer, list_faults, network

from mace_frontend_ai8x.network import (
    Layer,
    LayerActivation,
    Pool,
    Weights,
)
from mace_target_max78000.device import MAX78000, Chip
from mace_target_max78002.device import MAX78002


@pytest.mark.parametrize(
    ("made", "device", "expected"),
    [
        (layer(C2, (3, 8, 8)), MAX78000, None),
        (layer(C2, (3, 8, 8), kernel=(1, 1), pad=(0, 0)), MAX78000, None),
        (layer(C2, (3, 8, 8), kernel=(5, 5)), MAX78000, "kernel_size"),
        (layer(C2, (3, 8, 8), kernel=(2, 2)), MAX78002, "kernel_size"),
        (layer(C2, (3, 8, 8), kernel=(1, 3)), MAX78000, "kernel_size"),
        (layer(C2, (3, 8, 8), pad=(3, 3)), MAX78000, "pad"),
        (layer(C2, (3, 2, 2), pad=(0, 0)), MAX78000, "pad"),
        (layer(C2, (3, 8, 8), dilation=(2, 2)), MAX78002, "dilation"),
        (layer(C2, (4, 8, 8), groups=4), MAX78000, "groups"),
        (layer(C2, (4, 8, 8), groups=4), MAX78002, None),
        (layer(C2, (4, 8, 8), groups=2), MAX78002, "groups"),
        (layer(T2, (4, 8, 8), 4, groups=4), MAX78002, "groups"),
        (layer(T2, (3, 8, 8)), MAX78000, None),
        (layer(T2, (3, 8, 8), kernel=(1, 1), pad=(0, 0)), MAX78000, "kernel_size"),
        (layer(C1, (3, 30), kernel=(9, 1)), MAX78000, None),
        (layer(C1, (3, 30), kernel=(10, 1)), MAX78000, "kernel_size"),
        (layer(C1, (3, 30), pad=(4, 0)), MAX78000, "pad"),
        (layer(C1, (80, 30), 8, pad=(1, 0)), MAX78000, None),
        (layer(C1, (80, 30), 8, pad=(1, 0)), MAX78002, "pad"),
        (layer(C1, (3, 100), dilation=(20, 1)), MAX78000, None),
        (layer(C1, (3, 100), dilation=(20, 1), pad=(1, 0)), MAX78000, "pad"),
        (layer(C1, (3, 100), dilation=(20, 1), pool=Pool(False, (2, 1), 1)), MAX78000, "dilation"),
        (layer(C1, (3, 100), kernel=(4, 1), dilation=(2, 1)), MAX78000, None),
        (layer(C1, (3, 100), kernel=(4, 1), dilation=(3, 1)), MAX78000, "dilation"),
        (layer(C1, (3, 4, 4)), MAX78000, "in_dim"),
        (layer(C1, (3, 1025)), MAX78000, "in_dim"),
        (layer(C1, (3, 1024)), MAX78002, None),
        (layer(C2, (3, 8, 8), pool=Pool(False, (17, 1), 1)), MAX78000, "max_pool"),
        (layer(C2, (3, 8, 8), pool=Pool(True, (9, 9), 1)), MAX78000, "avg_pool"),
        (layer(C2, (3, 40, 40), pool=Pool(False, (2, 2), 17)), MAX78000, "pool_stride"),
        (layer(C2, (3, 40, 40), stride=17), MAX78000, "pool_stride"),
        (layer(C2, (3, 40, 40), pool=Pool(False, (3, 3), 2, (2, 1))), MAX78000, "pool_dilation"),
        (layer(C2, (3, 40, 40), pool=Pool(False, (3, 3), 2, (2, 1))), MAX78002, None),
        (layer(C2, (3, 40, 40), pool=Pool(False, (3, 3), 2, (8, 1))), MAX78002, "pool_dilation"),
        (layer(NO, (80, 8, 8), pool=Pool(False, (2, 2), 2)), MAX78000, "max_pool"),
        (layer(NO, (80, 2, 2), pool=Pool(False, (2, 2), 2)), MAX78000, None),
        (layer(NO, (80, 8, 8), pool=Pool(False, (2, 2), 2)), MAX78002, None),
        (layer(NO, (4, 8, 8), wide=True), MAX78000, "output_width"),
        (layer(NO, (4, 8, 8), activation=LayerActivation.RELU), MAX78000, "activate"),
        (layer(C2, (4, 8, 8), activation=LayerActivation.ABS, wide=True), MAX78000, "activate"),
        (layer(FC, (4, 16, 16), 5, flatten=True), MAX78000, None),
        (layer(FC, (4, 17, 16), 5, flatten=True), MAX78000, "flatten"),
        (layer(FC, (80, 16, 16), 5, flatten=True), MAX78000, "flatten"),
        (
            layer(
                FC,
                (4, 4, 4),
                5,
                flatten=True,
                pool=Pool(False, (2, 2), 2),
                weights=Weights(np.ones((5, 16), int)),
            ),
            MAX78000,
            "flatten",
        ),
        (layer(C2, (4, 2, 2), 4, flatten=True), MAX78000, "flatten"),
        (layer(C2, (1025, 1, 1), 4), MAX78000, "in_channels"),
        (layer(C2, (4, 1, 1), 1025), MAX78000, "out_channels"),
        (layer(C2, (4, 8, 8), shift=16), MAX78000, "output_shift"),
        (layer(C2, (4, 8, 8), shift=16, wide=True), MAX78000, None),
        (layer(C2, (4, 8, 8), weights=None), MAX78000, "operation"),
        (layer(C2, (4, 8, 8), weights=Weights(np.ones((4, 5, 3, 3), int))), MAX78000, "in_channels"),
        (layer(C2, (4, 8, 8), weights=Weights(np.ones((5, 4, 3, 3), int))), MAX78000, "out_channels"),
        (layer(C2, (4, 8, 8), weights=Weights(np.ones((4, 4, 1, 1), int))), MAX78000, "kernel_size"),
        (layer(C2, (4, 8, 8), weights=Weights(np.full((4, 4, 3, 3), 2), 2)), MAX78000, "quantization"),
        (layer(C2, (4, 8, 8), weights=Weights(np.full((4, 4, 3, 3), 1), 3)), MAX78000, "quantization"),
        (
            layer(C2, (4, 8, 8), weights=Weights(np.full((4, 4, 3, 3), 1), 1, binary=True)),
            MAX78000,
            "quantization",
        ),
        (layer(C2, (4, 8, 8), weights=Weights(np.full((4, 4, 3, 3), 1), 1, binary=True)), MAX78002, None),
        (
            layer(C2, (4, 8, 8), weights=Weights(np.full((4, 4, 3, 3), 0), 1, binary=True)),
            MAX78002,
            "quantization",
        ),
        (layer(C2, (4, 8, 8), bias=np.zeros(3)), MAX78000, "bias"),
        (layer(C2, (4, 8, 8), bias=np.full(4, 128)), MAX78000, "bias"),
        (layer(C2, (4, 1, 1), 513, bias=np.full(513, 1)), MAX78000, "bias"),
        (layer(C2, (4, 1, 1), 513, bias=np.full(513, 1)), MAX78002, None),
    ],
)
def test_one_layer(made: Layer, device: Chip, expected: str | None) -> None:
    assert list_faults(network(made), device) == ([f"one: {expected}"] if expected else [])


@pytest.mark.parametrize(
    ("made", "device", "expected"),
    [
        (eltwise((64, 4, 4)), MAX78000, None),
        (eltwise((64, 4, 4), C2), MAX78000, None),
        (eltwise((128, 4, 4), C2, out=64), MAX78000, None),
        (eltwise((192, 4, 4), C2, out=64), MAX78000, "eltwise"),
        (eltwise((128, 4, 4), operands=3), MAX78000, None),
        (eltwise((128, 2, 2), operands=3, pool=Pool(False, (2, 2), 2)), MAX78000, "eltwise"),
        (eltwise((192, 4, 4), C2, out=64), MAX78002, None),
        (eltwise((192, 4, 4), C2, out=64, bias=np.ones(64)), MAX78002, "eltwise"),
        (eltwise((4, 4, 4), operands=17), MAX78000, "operands"),
        (eltwise((4, 4, 4), FC), MAX78000, "eltwise"),
    ],
)
def test_element_wise_operations(made: Layer, device: Chip, expected: str | None) -> None:
    assert list_faults(network(made), device) == ([f"one: {expected}"] if expected else [])


def test_the_input_must_be_what_the_first_layer_reads() -> None:
    conv = layer(C2, (4, 8, 8))
    assert list_faults(network(conv, sample=np.zeros((3, 8, 8)))) == ["one: in_channels"]
    assert list_faults(network(conv, sample=np.zeros((4, 8, 9)))) == ["one: in_dim"]
    assert list_faults(network(eltwise((4, 8, 8)), sample=np.zeros((4, 8, 8)))) == ["one: in_channels"]


def test_inputs_must_fit_together() -> None:
    a, b = layer(C2, (4, 8, 8), 6), layer(C2, (4, 8, 8), 4, pad=(0, 0))
    joined = layer(NO, (10, 8, 8), inputs=(0, 1))
    assert list_faults(network(a, b, joined)) == ["three: in_sequences", "three: in_sequences"]
    summed = eltwise((6, 8, 8), inputs=(0, 1))
    assert list_faults(network(a, b, summed)) == ["three: in_sequences"]
    assert list_faults(network(layer(C2, (4, 8, 8), wide=True), layer(C2, (4, 8, 8), inputs=(0,)))) == [
        "two: in_sequences"
    ]


# Processors
