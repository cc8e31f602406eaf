"""A checkpoint's tensors by name, as training or quantization left them.

Of the file's other contents the architecture's name, the epoch and the plain values of `extras` are kept; an
optimizer's are not read.
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
from mace_frontend_ai8x.checkpoint.names import RESAVE, Tensor

PARALLEL = "module."
"""What PyTorch puts before each name of a model that was trained on several devices."""


@dataclass(frozen=True, eq=False)
class State:
    """A checkpoint.

    path: the file, for errors.  tensors: in the order of the model.  extras: of numbers and texts by name.
    """

    path: Path
    tensors: Mapping[str, Array]
    arch: str | None = None
    epoch: int | None = None
    extras: Mapping[str, Any] = field(default_factory=dict)

    def layers(self) -> Iterator[tuple[str, str]]:
        """Each layer's name and that of its operation, to which `.weight` and `.bias` belong."""
        for name, values in self.tensors.items():
            if name.endswith(".weight") and values.ndim > 1:
                operation = name.removesuffix(".weight")
                yield operation.removesuffix(".op"), operation

    def number(self, layer: str, name: str) -> float | None:
        """A layer's parameter of one number; None where there is none.

        MaceError: it has several values or none that is a number.
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
        return all(_whole(w[:1]) for w in weights) and all(_whole(w) for w in weights)

    def with_tensors(self, tensors: Mapping[str, Array], **changes: Any) -> State:
        """The same with other tensors."""
        return replace(self, tensors=tensors, **changes)


def _whole(values: Array) -> bool:
    return values.dtype.kind in "iu" or bool((values == np.rint(values)).all())


def read_state(path: Path) -> State:
    """Read a checkpoint file: one that training wrote, or a state dictionary alone.

    MaceError: it cannot be read, or holds no tensors by name.
    """
    archive = read_archive(path)
    root = archive.root if isinstance(archive.root, dict) else {}
    found = root.get("state_dict", root)
    described = (
        {str(name): value for name, value in found.items() if isinstance(value, Tensor)}
        if isinstance(found, dict)
        else {}
    )
    if not any(name.endswith(".weight") and len(tensor.shape) > 1 for name, tensor in described.items()):
        raise MaceError(path, "holds no state_dict with weights", RESAVE)
    if not all(name.isprintable() for name in described):
        raise MaceError(path, "its contents are damaged: a name is no text", COPY_AGAIN)
    arch, epoch, extras = (root.get(name) for name in ("arch", "epoch", "extras"))
    return State(
        path,
        _arrays(archive, described),
        arch if isinstance(arch, str) and arch.isprintable() else None,
        epoch if isinstance(epoch, int) else None,
        {name: value for name, value in extras.items() if isinstance(value, str | int | float)}
        if isinstance(extras, dict)
        else {},
    )


def _arrays(archive: Archive, described: Mapping[str, Tensor]) -> dict[str, Array]:
    """The tensors' values; tensors may share numbers, but not so that a small file becomes a large model."""
    if sum(prod(tensor.shape) for tensor in described.values()) > archive.size:
        raise MaceError(archive.path, "has more weights than its size allows", RESAVE)
    return {name: archive.array(tensor) for name, tensor in described.items()}
