"""Reads a checkpoint's tensors by name, as training or quantization left them.

Of the other contents of the file, the name of the architecture, the epoch and the plain values of `extras`
are read; the state of an optimizer is not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from mace_core.errors import MaceError
from mace_core.ir import Array
from mace_frontend_ai8x.checkpoint.archive import COPY_AGAIN, Archive, read_archive
from mace_frontend_ai8x.checkpoint.names import RESAVE, StridedTensor

PARALLEL = "module."
"""What PyTorch's DataParallel puts before each name of a model that was trained on several devices."""


@dataclass(frozen=True, eq=False)
class CheckpointState:
    """A checkpoint.

    path: the file, for errors.  tensors: in the order of the model.  extras: numbers and strings by name.
    """

    path: Path
    tensors: Mapping[str, Array]
    arch: str | None = None
    epoch: int | None = None
    extras: Mapping[str, Any] = field(default_factory=dict)

    def layers(self) -> Iterator[tuple[str, str]]:
        """Yield each layer's name and that of its operation, to which `.weight` and `.bias` belong."""
        for name, values in self.tensors.items():
            # Weights of one axis are those of batch normalization, which is no layer of its own.
            if name.endswith(".weight") and values.ndim > 1:
                operation = name.removesuffix(".weight")
                yield operation.removesuffix(".op"), operation

    def number(self, layer: str, name: str) -> float | None:
        """Return a layer's parameter of one number; None where there is none.

        MaceError if it has several values, or one that is not finite.
        """
        if (values := self.tensors.get(f"{layer}.{name}")) is None:
            return None
        if values.size != 1 or not np.isfinite(values).all():
            raise MaceError(
                self.path, f"{layer}.{name} is not one number", "train or quantize the model again"
            )
        return float(values.item())

    @property
    def quantized(self) -> bool:
        """Whether all weights are integers."""
        weights = [self.tensors[f"{operation}.weight"] for _, operation in self.layers()]
        # The first output channel tells most float checkpoints apart without a look at all weights.
        return all(_are_integers(w[:1]) for w in weights) and all(_are_integers(w) for w in weights)

    def with_tensors(self, tensors: Mapping[str, Array], **changes: Any) -> CheckpointState:
        """Return the same checkpoint with other tensors."""
        return replace(self, tensors=tensors, **changes)


def _are_integers(values: Array) -> bool:
    return values.dtype.kind in "iu" or bool((values == np.rint(values)).all())


def read_state(path: Path) -> CheckpointState:
    """Read a checkpoint file: one that training wrote, or a state dictionary alone.

    MaceError if it cannot be read, or has no tensors by name.
    """
    archive = read_archive(path)
    root = archive.root if isinstance(archive.root, dict) else {}
    # `torch.save(model.state_dict(), file)` writes the state dictionary alone.
    state_dict = root.get("state_dict", root)
    items = state_dict.items() if isinstance(state_dict, dict) else ()
    described = {str(name): value for name, value in items if isinstance(value, StridedTensor)}
    if not any(name.endswith(".weight") and len(tensor.shape) > 1 for name, tensor in described.items()):
        raise MaceError(path, "holds no state_dict with weights", RESAVE)
    if not all(name.isprintable() for name in described):
        raise MaceError(path, "its contents are damaged: a name is not printable", COPY_AGAIN)
    arch, epoch, extras = (root.get(name) for name in ("arch", "epoch", "extras"))
    extra_items = extras.items() if isinstance(extras, dict) else ()
    return CheckpointState(
        path,
        _arrays(archive, described),
        arch if isinstance(arch, str) and arch.isprintable() else None,
        epoch if isinstance(epoch, int) else None,
        {name: value for name, value in extra_items if isinstance(value, str | int | float)},
    )


def _arrays(archive: Archive, described: Mapping[str, StridedTensor]) -> dict[str, Array]:
    """Return the values of the tensors."""
    # Tensors may share a storage; without this bound a small file could become a model of any size.
    if sum(prod(tensor.shape) for tensor in described.values()) > archive.size:
        raise MaceError(archive.path, "has more weights than its size allows", RESAVE)
    return {name: archive.array(tensor) for name, tensor in described.items()}
