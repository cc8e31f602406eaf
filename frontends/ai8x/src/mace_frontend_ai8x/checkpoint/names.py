"""Lists the names that a checkpoint's pickle stream may have, and what stands for each.

No name is ever imported, so that a file cannot run code.  A call of a function of `CALLS` is understood;
another object on the list becomes a `Foreign`, which has only its name; a name that is not on the list is
refused.
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
"""How names of other objects in checkpoints begin, such as optimizers and schedules."""

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
    """A name in the stream; it is not imported."""

    name: str


@dataclass(frozen=True)
class Foreign:
    """Stands for an object that is not constructed."""

    name: str


@dataclass(frozen=True)
class TensorStorage:
    """Numbers that lie outside the stream.

    kind: PyTorch's name of their type.  key: their name in the file.  count: how many there are.
    """

    kind: str
    key: str
    count: int


@dataclass(frozen=True)
class StridedTensor:
    """A tensor as the stream describes it: a view of a storage. Offset and strides count elements."""

    storage: TensorStorage
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]


class MalformedError(Exception):
    """A stream, or the file around it, is damaged."""


class ForbiddenError(Exception):
    """A stream names an object that no checkpoint needs."""


def check_name(name: str) -> Global:
    """Return a name of a stream as a `Global`; ForbiddenError if it is not on the list."""
    # Types of storages that are unknown here are refused when their numbers are read, not by name.
    storage = re.fullmatch(r"torch\.[A-Za-z0-9]+Storage", name)
    if not (storage or name in CALLS or name in INERT_NAMES or name.startswith(INERT)):
        raise ForbiddenError(ascii(name).strip("'"))
    return Global(name)


def call_known(function: Any, arguments: Any) -> Any:
    """Return the result of a call in a stream.

    MalformedError if the function has no name, or does not take these arguments.
    """
    if not isinstance(function, Global) or not isinstance(arguments, tuple):
        raise MalformedError("what is called has no name")
    if (known := CALLS.get(function.name)) is None:
        return Foreign(function.name)
    try:
        return known(*arguments)
    except (TypeError, ValueError) as error:
        raise MalformedError(f"{function.name} is called with wrong arguments") from error


def _tensor(storage: Any, offset: Any, shape: Any, stride: Any, *_: Any) -> StridedTensor:
    has_types = isinstance(storage, TensorStorage) and isinstance(shape, tuple) and isinstance(stride, tuple)
    if not has_types or len(shape) != len(stride):
        raise ValueError("no tensor")
    # `type(n) is int`, because True and False are integers of Python's too.
    if not all(type(n) is int and n >= 0 for n in (offset, *shape, *stride)):
        raise ValueError("no tensor")
    return StridedTensor(storage, offset, shape, stride)


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
