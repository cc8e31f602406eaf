"""The order in which cnn_unload delivers results, and how the model's outputs are made of it."""

from __future__ import annotations

import numpy as np
import pytest

from mace_frontend_ai8x.network import INPUT, Layer, LayerPlacement, Network, Operation
from mace_target_max78000.encode.data_memory import list_results
from mace_target_max78000.firmware.tensor_words import TensorBinding
from mace_target_max78000.options import Options


def network(channels: int, slots: int, wide: bool) -> Network:
    layer = Layer("conv", Operation.CONV2D, (INPUT,), 4, (2, 3), channels, wide=wide, output=True)
    return Network("net", (layer,), (LayerPlacement(0xF, slots),), np.zeros((4, 2, 3), np.int64))


@pytest.mark.parametrize(
    ("channels", "slots", "groups"),
    [
        (6, 0x3F, (4, 2)),
        (6, 0x7E, (3, 3)),
        (3, 0b10011, (2, 1)),
        (100, (1 << 52) - 1, (4,) * 25),
        (1, 1, (1,)),
    ],
)
def test_words_come_by_memory(channels: int, slots: int, groups: tuple[int, ...]) -> None:
    """As the vendor's function delivers them: position by position the channels of one memory, then the next memory."""
    given = network(channels, slots, wide=True)
    (block,) = list_results(given)
    assert block.groups == groups
    values = np.arange(channels * 6, dtype=np.int32).reshape(channels, 6)
    parts = np.split(values, np.cumsum(groups)[:-1])
    words = np.concatenate([part.T.ravel() for part in parts])
    (found,) = TensorBinding.of(given, Options(), [1.0]).arrays(words.view(np.uint32).tolist())
    assert np.array_equal(found, values)


def test_bytes_come_channel_by_channel() -> None:
    given = network(6, 0x3F, wide=False)
    values = np.arange(36, dtype=np.int8).reshape(6, 6)
    (found,) = TensorBinding.of(given, Options(), [1.0]).arrays(
        np.frombuffer(values.tobytes(), "<u4").tolist()
    )
    assert np.array_equal(found, values)
