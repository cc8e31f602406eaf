"""Faults of descriptions, each with its line, and all of them in one message."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from described_files import HEAD, DescriptionFile, parameters, zeros

from mace_core.errors import MaceError


@pytest.fixture
def files(tmp_path: Path) -> DescriptionFile:
    return DescriptionFile(tmp_path)


def test_all_faults_of_keys_and_values_are_told_together(files: DescriptionFile) -> None:
    text = (
        HEAD
        + """archi: other
layers:
  - processors: 15
    ouput: true
    op: conv3d
    pad: x
    output_width: 16
    bias_group: 5
    in_sequences: []
    streaming: maybe
    kernel_size: [1, 2, 3]
    activate: reluu
    activation: relu
    name: {a: b}
  - out_offset: 0x100000000
    pad: 1
    pad: 2
"""
    )
    assert files.faults(text) == [
        "3: unknown key 'archi'; did you mean arch?",
        "5: layer 0: processors: '15' is not a hexadecimal number that shows what it is: 0x15, or 0xf for decimal 15; correct the value",
        "6: layer 0: unknown key 'ouput'; did you mean output?",
        "7: layer 0: op: 'conv3d' is not one of conv1d, conv2d, convtranspose2d, none, passthrough, linear, fc, mlp, add, sub, xor,"
        " bitwisexor, bitwise_xor, or, bitwiseor, bitwise_or; did you mean conv2d?",
        "8: layer 0: pad: 'x' is not one integer or two [rows, columns], from 0 to 4096; correct the value",
        "9: layer 0: output_width: '16' is not one of 8, 32; correct the value",
        "10: layer 0: bias_group: '5' is not quadrants, from 0 to 3; correct the value",
        "11: layer 0: in_sequences: a list is not a layer's name or sequence number, or a list of them; correct the value",
        "12: layer 0: streaming: 'maybe' is not true or false; correct the value",
        "13: layer 0: kernel_size: a list is not one integer or two [rows, columns], from 1 to 4096; correct the value",
        "14: layer 0: activate: 'reluu' is not one of relu, abs, none; did you mean relu?",
        "15: layer 0: activation: states again what line 14 states; keep one of them",
        "16: layer 0: name: a mapping is not a word; correct the value",
        "17: layer 1: out_offset: '0x100000000' is not a number of bytes such as 0x2000; correct the value",
        "17: layer 1: processors: is missing; write processors: ...",
        "19: pad: duplicate key, first in line 18; keep one of them",
    ]


def test_faults_of_names_are_told_together(files: DescriptionFile) -> None:
    text = (
        HEAD
        + """layers:
  - {name: stop, processors: 0x1}
  - {name: conv, processors: 0x1, in_sequences: [later]}
  - {name: later, processors: 0x1, in_sequences: con, next_sequence: conv}
  - {name: conv, processors: 0x1, weight_source: 9, sequence: 1}
"""
    )
    assert files.faults(text) == [
        "4: name: 'stop' is reserved; choose another name",
        "5: layer 1 (conv): in_sequences: 'later' does not come before this layer; name an earlier layer",
        "6: layer 2 (later): in_sequences: there is no layer 'con'; did you mean conv?",
        "6: layer 2 (later): next_sequence: 'conv' does not come after this layer; name a later layer, or stop",
        "7: sequence: 1 belongs to the layer in line 5; give each layer its own number",
    ]


@pytest.mark.parametrize(
    ("layer", "fault"),
    [
        (
            "op: add, eltwise: sub",
            "4: layer 0: eltwise: is sub, the operation is add; name the operation once",
        ),
        (
            "operands: 2",
            "4: layer 0: operands: is given without an element-wise operation; write eltwise: add, or remove operands",
        ),
        (
            "op: add, operands: 3",
            "4: layer 0: the input has 2 channels, which are not 3 operands of equal size;",
        ),
        ("max_pool: 2, avg_pool: 2", "4: layer 0: avg_pool: is given beside max_pool; keep one of them"),
        ("stride: 2", "4: layer 0: stride: is 2; convolutions have stride 1;"),
        (
            "max_pool: 2, pool_stride: [1, 2]",
            "4: layer 0: pool_stride: is [1, 2]; rows and columns have one stride; write one number",
        ),
        (
            "op: none, output_shift: 1",
            "4: layer 0: output_shift: has no effect in a layer without weights; remove it",
        ),
    ],
)
def test_keys_that_contradict_each_other(files: DescriptionFile, layer: str, fault: str) -> None:
    text = f"{HEAD}layers:\n  - {{processors: 0x3, {layer}}}\n"
    (found,) = files.faults(text, parameters((2, 2, 3, 3)), zeros(2, 6, 6))
    assert found.startswith(fault)


def test_parameters_and_description_of_different_models(files: DescriptionFile) -> None:
    text = HEAD.replace("net", "other") + "layers:\n  - {processors: 0x1}\n  - {processors: 0x1}\n"
    assert files.faults(text, parameters((1, 1, 3, 3))) == [
        "1: arch: is 'other', the checkpoint holds 'net'; name the files of one model",
    ]
    assert files.faults(text.replace("other", "net"), parameters((1, 1, 3, 3))) == [
        "5: layer 1: needs weights, which are missing; the parameters hold those of 1 layers, 2 need them;"
        " remove the layer, or name the one whose weights it shares as weight_source",
    ]
    network = files.read("layers:\n  - {processors: 0x1}\n", parameters((1, 1, 3, 3), (4, 4)), zeros(1, 4, 4))
    assert network.notes == (
        "the checkpoint's last layers have no description, and their weights are not used: p1",
    )


def test_samples_of_any_type_are_checked(files: DescriptionFile) -> None:
    text, given = "layers:\n  - {processors: 0x1}\n", parameters((1, 1, 3, 3))
    floats = np.array([[[-128.0, 1.4], [1.6, 127.0]]])
    network = files.read(text, given, floats)
    assert network.sample.dtype == np.int64
    assert network.sample.ravel().tolist() == [-128, 1, 2, 127]
    assert network.notes == ("the sample's values were rounded to integers",)
    assert files.read(text, given, floats.astype(np.int8)).notes == ()
    for wrong in (
        np.full((1, 2, 2), 200, np.uint8),
        np.full((1, 2, 2), np.nan),
        zeros(4),
        np.zeros((1, 2, 0)),
        np.array([["a"]]),
    ):
        with pytest.raises(MaceError, match=r"the sample (has values from|is) "):
            files.read(text, given, wrong)


def test_aliases_do_not_unfold_without_end(files: DescriptionFile) -> None:
    bomb = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"{n}: &{n} [{', '.join(['*' + p] * 10)}]\n" for p, n in zip("abcdef", "bcdefg", strict=True)
    )
    (found,) = files.faults(HEAD + bomb)
    assert "more than 20000 values" in found


@pytest.mark.parametrize(
    "text",
    [
        "",
        "- 1\n",
        "layers: 3\n",
        "arch: net\nlayers:\n  - 4\n",
        "layers: []\n",
        "arch: [\n",
        "!!python/object:os x\n",
    ],
)
def test_other_files_are_refused(files: DescriptionFile, text: str) -> None:
    assert files.faults(text)
