"""A built shared library, loaded into this process."""

from __future__ import annotations

import ctypes as c
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from mace_core.errors import MaceError
from mace_core.ir import MAX_RANK, Array, DType, Quant, Tensor

DTYPES = tuple(DType)  # mace_dtype counts in this order


class _Tensor(c.Structure):
    _fields_ = (
        ("name", c.c_char_p),
        ("dtype", c.c_int),
        ("rank", c.c_int32),
        ("shape", c.c_int32 * MAX_RANK),
        ("bytes", c.c_size_t),
        ("scale", c.c_float),
        ("zero_point", c.c_int32),
    )

    def describe(self) -> Tensor:
        quant = Quant.of(self.scale, self.zero_point) if self.scale else None
        return Tensor(self.name.decode(), DTYPES[self.dtype], tuple(self.shape[: self.rank]), quant)


class _Layer(c.Structure):
    _fields_ = (("name", c.c_char_p), ("kernel", c.c_char_p), ("sources", c.c_char_p), ("result", _Tensor))


OBSERVE = c.CFUNCTYPE(None, c.c_void_p, c.c_int32, c.c_void_p)


class _Options(c.Structure):
    _fields_ = (("threads", c.c_void_p), ("observe", OBSERVE), ("observer", c.c_void_p))


RUN = c.CFUNCTYPE(None, c.c_void_p, c.POINTER(c.c_void_p), c.POINTER(c.c_void_p), c.POINTER(_Options))


class _Model(c.Structure):
    _fields_ = (
        ("abi", c.c_int32),
        ("name", c.c_char_p),
        ("input_count", c.c_int32),
        ("output_count", c.c_int32),
        ("layer_count", c.c_int32),
        ("inputs", c.POINTER(_Tensor)),
        ("outputs", c.POINTER(_Tensor)),
        ("layers", c.POINTER(_Layer)),
        ("arena_bytes", c.c_size_t),
        ("worker_bytes", c.c_size_t),
        ("weight_bytes", c.c_size_t),
        ("run", RUN),
    )


Observer = Callable[[str, Array], None]


class Model:
    """One model of a loaded library, with an arena of its own."""

    def __init__(self, raw: _Model) -> None:
        self._raw = raw
        self.name: str = raw.name.decode()
        self.inputs = [raw.inputs[i].describe() for i in range(raw.input_count)]
        self.outputs = [raw.outputs[i].describe() for i in range(raw.output_count)]
        self.arena_bytes: int = raw.arena_bytes
        size = raw.arena_bytes + raw.worker_bytes
        self._memory = np.zeros(size + 64, np.uint8)
        self._arena = -(-self._memory.ctypes.data // 64) * 64

    def run(self, inputs: Mapping[str, Array], observe: Observer | None = None) -> dict[str, Array]:
        """The outputs by name; `observe` sees a copy of every layer's result, with the layer's name."""
        given = [self._checked(t, inputs) for t in self.inputs]
        made = [np.zeros(t.shape, t.dtype.numpy) for t in self.outputs]
        options = _Options(None, self._observer(observe), None)
        self._raw.run(self._arena, _pointers(given), _pointers(made), c.byref(options))
        return {t.name: a for t, a in zip(self.outputs, made, strict=True)}

    def _checked(self, tensor: Tensor, inputs: Mapping[str, Array]) -> Array:
        if tensor.name not in inputs:
            raise MaceError(self.name, f"no input {tensor.name!r} given", f"give {', '.join(t.name for t in self.inputs)}")
        array = np.ascontiguousarray(inputs[tensor.name], tensor.dtype.numpy)
        if array.size != tensor.elements:
            raise MaceError(self.name, f"input {tensor.name!r} has shape {list(array.shape)}", f"give {list(tensor.shape)}")
        return array

    def _observer(self, observe: Observer | None) -> Callable[..., None]:
        if observe is None:
            return OBSERVE(0)

        def seen(_: object, number: int, pointer: int) -> None:
            layer = self._raw.layers[number]
            tensor = layer.result.describe()
            data = c.string_at(pointer, layer.result.bytes)
            observe(layer.name.decode(), np.frombuffer(data, tensor.dtype.numpy).reshape(tensor.shape))

        return OBSERVE(seen)


def _pointers(arrays: list[Array]) -> c.Array[c.c_void_p]:
    return (c.c_void_p * len(arrays))(*(a.ctypes.data or None for a in arrays))


def load(library: Path, name: str) -> dict[str, Model]:
    """The models of the shared library whose symbols start with `name`."""
    handle = c.CDLL(str(library.resolve()))
    count = c.c_int32.in_dll(handle, f"{name}_model_count").value
    table = (c.POINTER(_Model) * count).in_dll(handle, f"{name}_models")
    models = [Model(table[i].contents) for i in range(count)]
    return {m.name: m for m in models}
