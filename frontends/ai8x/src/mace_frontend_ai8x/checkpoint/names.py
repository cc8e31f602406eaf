"""What a checkpoint's pickle stream may name, and what stands for it here.

Nothing that is named is ever imported.  The call of a function of `CALLS` is understood; an object of another
kind on the list is a `Foreign`, of which only the name is kept; a name that is not on the list ends the
reading.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

RESAVE = (
    'save the model again: torch.save({"arch": ..., "epoch": ..., "state_dict": model.state_dict()}, file)'
)

INERT = ("torch.optim.", "distiller.", "munch.")
"""Beginnings of the names of objects that checkpoints hold beside their tensors, as optimizers and schedules."""

INERT_NAMES = (
    "__builtin__.set",
    "argparse.Namespace",
    "builtins.set",
    "collections.defaultdict",
    "numpy._core.multiarray._reconstruct",
    "numpy._core.multiarray.scalar",
    "numpy.core.multiarray._reconstruct",
    "numpy.core.multiarray.scalar",
    "numpy.dtype",
    "numpy.ndarray",
    "torch.Size",
    "torch.device",
)


@dataclass(frozen=True)
class Global:
    """A name that the stream mentions; what it names is not imported."""

    name: str


@dataclass(frozen=True)
class Foreign:
    """Stands for an object that is not constructed."""

    name: str


@dataclass(frozen=True)
class Storage:
    """Numbers that lie outside the stream: `kind` is PyTorch's name of their type, `key` tells them apart, `count` is how many they are."""

    kind: str
    key: str
    count: int


@dataclass(frozen=True)
class Tensor:
    """A tensor as the stream describes it: a view of a storage; offset and strides count elements."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]


class MalformedError(Exception):
    """What is wrong with a stream or with the file around it."""


class ForbiddenError(Exception):
    """What a stream names and no checkpoint needs."""


def allowed(name: str) -> Global:
    """The name, if it is on the list.

    ForbiddenError: it is not.
    """
    storage = re.fullmatch(r"torch\.[A-Za-z0-9]+Storage", name)
    if not (storage or name in CALLS or name in INERT_NAMES or name.startswith(INERT)):
        raise ForbiddenError(ascii(name).strip("'"))
    return Global(name)


def called(function: Any, arguments: Any) -> Any:
    """What a call gives.

    MalformedError: what is called is no name, or its arguments are not what it takes.
    """
    if not isinstance(function, Global) or not isinstance(arguments, tuple):
        raise MalformedError("what is called has no name")
    if (known := CALLS.get(function.name)) is None:
        return Foreign(function.name)
    try:
        return known(*arguments)
    except (TypeError, ValueError) as error:
        raise MalformedError(f"{function.name} is called with wrong arguments") from error


def _tensor(storage: Any, offset: Any, shape: Any, stride: Any, *_: Any) -> Tensor:
    whole = (
        isinstance(storage, Storage)
        and isinstance(shape, tuple)
        and isinstance(stride, tuple)
        and len(shape) == len(stride)
    )
    if not whole or not all(type(n) is int and n >= 0 for n in (offset, *shape, *stride)):
        raise ValueError("no tensor")
    return Tensor(storage, offset, shape, stride)


def _parameter(data: Any, *_: Any) -> Any:
    return data


def _make_ordered(items: Any = ()) -> dict[Any, Any]:
    if items:
        raise ValueError("PyTorch adds the items afterwards")
    return {}


def _encode(text: Any, encoding: Any) -> bytes:
    if not isinstance(text, str) or encoding != "latin1":
        raise ValueError("no text")
    return text.encode("latin1")


CALLS: Mapping[str, Callable[..., Any]] = {
    "_codecs.encode": _encode,
    "collections.OrderedDict": _make_ordered,
    "torch._utils._rebuild_parameter": _parameter,
    "torch._utils._rebuild_tensor": _tensor,
    "torch._utils._rebuild_tensor_v2": _tensor,
}
