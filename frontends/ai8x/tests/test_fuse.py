"""Batch normalization fused: the same numbers as PyTorch's layers one after the other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mace_core.errors import MaceError
from mace_core.ir import Array
from mace_frontend_ai8x.checkpoint import fuse_file, load_checkpoint
from mace_frontend_ai8x.checkpoint.fuse import DIVISOR, fuse
from mace_frontend_ai8x.checkpoint.state import CheckpointState, read_state
from mace_frontend_ai8x.checkpoint.write import write_state


def tensors(
    *, affine: bool = True, bias: bool = True, kernel: tuple[int, ...] = (3, 3), groups: int = 1
) -> dict[str, Array]:
    """A convolution of 4 to 6 channels, its batch normalization, and a layer without one."""
    rng = np.random.default_rng(9)
    values = {
        "conv.output_shift": np.zeros(1),
        "conv.op.weight": rng.normal(0, 0.3, (6, 4 // groups, *kernel)),
        "conv.op.bias": rng.normal(0, 0.3, 6) if bias else None,
        "conv.bn.weight": rng.normal(1, 0.3, 6) if affine else None,
        "conv.bn.bias": rng.normal(0, 0.3, 6) if affine else None,
        "conv.bn.running_mean": rng.normal(0, 0.3, 6),
        "conv.bn.running_var": rng.uniform(0, 2, 6),
        "fc.op.weight": rng.normal(0, 0.3, (2, 6)),
    }
    results = {name: value.astype(np.float32) for name, value in values.items() if value is not None}
    return results | {"conv.bn.num_batches_tracked": np.array(3)}


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("kernel", "groups"), [((3, 3), 1), ((1, 1), 2), ((5,), 1)])
@pytest.mark.parametrize("divisor", [1.0, DIVISOR])
def test_same_numbers(affine: bool, bias: bool, kernel: tuple[int, ...], groups: int, divisor: float) -> None:
    torch = pytest.importorskip("torch")
    before = tensors(affine=affine, bias=bias, kernel=kernel, groups=groups)
    after = fuse(CheckpointState(Path("model"), before), divisor=divisor).tensors

    def convolved(held: dict[str, Any]) -> Any:
        layer = getattr(torch.nn.functional, f"conv{len(kernel)}d")
        return layer(data, held["conv.op.weight"], held.get("conv.op.bias"), groups=groups)

    held, fused = (
        {name: torch.from_numpy(value) for name, value in part.items()} for part in (before, dict(after))
    )
    data = torch.from_numpy(
        np.random.default_rng(2).normal(0, 1, (2, 4, *(8,) * len(kernel))).astype(np.float32)
    )
    normalized = torch.nn.functional.batch_norm(
        convolved(held),
        held["conv.bn.running_mean"],
        held["conv.bn.running_var"],
        held.get("conv.bn.weight"),
        held.get("conv.bn.bias"),
    )
    torch.testing.assert_close(convolved(fused), normalized / divisor, rtol=1e-4, atol=1e-4)


def test_names(tmp_path: Path) -> None:
    """Batch normalization is gone, the bias is where PyTorch has it, all else is as it was, and the architecture has a new name."""
    write_state(CheckpointState(tmp_path, tensors(bias=False), "netbn", 4), tmp_path / "before")
    fuse_file(tmp_path / "before", tmp_path / "after", "net")
    fuse_file(tmp_path / "before", tmp_path / "same")
    before, after = read_state(tmp_path / "before"), read_state(tmp_path / "after")
    assert list(after.tensors) == ["conv.output_shift", "conv.op.weight", "conv.op.bias", "fc.op.weight"]
    np.testing.assert_array_equal(after.tensors["fc.op.weight"], before.tensors["fc.op.weight"])
    assert (after.arch, after.epoch, read_state(tmp_path / "same").arch) == ("net", 4, "netbn")
    assert {values.dtype.name for values in after.tensors.values()} == {"float32"}
    with pytest.raises(MaceError, match="after: has no batch normalization; use it as it is"):
        fuse_file(tmp_path / "after", tmp_path / "again")


def test_on_the_way(tmp_path: Path) -> None:
    """A checkpoint that is neither fused nor quantized becomes what both tools make of it, and the user is told."""
    write_state(CheckpointState(tmp_path, tensors()), tmp_path / "before")
    fuse_file(tmp_path / "before", tmp_path / "fused")
    one, two = load_checkpoint(tmp_path / "before"), load_checkpoint(tmp_path / "fused")
    for a, b in zip(one.layers, two.layers, strict=True):
        np.testing.assert_array_equal(a.weights, b.weights)
        assert a.output_shift == b.output_shift
    assert one.notes == ("batch normalization was fused into the weights", *two.notes)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        (
            {"conv.op.weight": None},
            "conv.bn normalizes [6] channels and needs a convolution to them, found none",
        ),
        (
            {"conv.op.weight": np.ones((4, 6, 3, 3), np.float32)},
            "conv.bn normalizes [6] channels and needs a convolution to them, found weights [4, 6, 3, 3]",
        ),
        (
            {"conv.bn.running_var": None},
            "conv.bn normalizes [6] channels and needs a convolution to them, found weights [6, 4, 3, 3]",
        ),
        (
            {"conv.bn.weight": np.ones(5, np.float32)},
            "values of conv.bn and the bias have other shapes than its mean [6]",
        ),
        (
            {"conv.bn.running_var": np.full(6, -1, np.float32)},
            "values of conv.bn and its convolution give no finite weights",
        ),
    ],
)
def test_faults(changes: dict[str, Array | None], problem: str) -> None:
    """With another layer's, which are told as well."""
    held = {name: values for name, values in (tensors() | changes).items() if values is not None}
    with pytest.raises(MaceError) as error:
        fuse(CheckpointState(Path("model"), held | {"x.bn.running_mean": np.zeros(2, np.float32)}))
    assert str(error.value).splitlines() == [
        f"model: {problem}; fuse it with the tool that trained it",
        "model: x.bn normalizes [2] channels and needs a convolution to them, found none; fuse it with the tool that trained it",
    ]


def test_a_normalization_of_another_name_is_not_left_out(tmp_path: Path) -> None:
    stranger = {
        "features.1.running_mean": np.zeros(6, np.float32),
        "features.1.weight": np.ones(6, np.float32),
    }
    write_state(CheckpointState(tmp_path, tensors() | stranger), tmp_path / "before")
    with pytest.raises(
        MaceError, match=r"features\.1\.running_mean is that of a batch normalization that belongs"
    ):
        load_checkpoint(tmp_path / "before")
    ignored = load_checkpoint(tmp_path / "before", ignore_bn=True)
    assert [layer.name for layer in ignored.layers] == ["conv", "fc"]
    assert "batch normalization of the checkpoint was ignored, as asked for" in ignored.notes
