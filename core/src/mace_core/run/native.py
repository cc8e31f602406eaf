"""A built shared library, loaded into this process."""

from __future__ import annotations

import ctypes as c
import shutil
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeAlias

import numpy as np

from mace_core.errors import MaceError
from mace_core.ir import MAX_RANK, Array, DType, Quant, Tensor
from mace_core.part import HOST

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


class _Model(c.Structure):
    _fields_ = (
        ("abi", c.c_int32),
        ("struct_bytes", c.c_uint32),
        ("name", c.c_char_p),
        ("input_count", c.c_int32),
        ("output_count", c.c_int32),
        ("state_count", c.c_int32),
        ("layer_count", c.c_int32),
        ("part_count", c.c_int32),
        ("inputs", c.POINTER(_Tensor)),
        ("outputs", c.POINTER(_Tensor)),
        ("states", c.c_void_p),
        ("layers", c.POINTER(_Layer)),
        ("parts", c.c_void_p),
        ("arena_bytes", c.c_size_t),
        ("state_bytes", c.c_size_t),
        ("worker_bytes", c.c_size_t),
        ("weight_bytes", c.c_size_t),
    )  # and what only C reads


class Config(c.Structure):
    """Configures a session: `mace_config` of mace_types.h, which explains its members."""

    _fields_ = (
        ("struct_bytes", c.c_uint32),
        ("fallback", c.c_int),
        ("threads", c.c_void_p),
        ("lock", c.c_void_p),
        ("power", c.c_int),
        ("timeout_ms", c.c_uint32),
        ("cache", c.c_void_p),
        ("options", c.c_char_p),
        ("native", c.c_void_p),
        ("fast_memory", c.c_void_p),
        ("fast_bytes", c.c_size_t),
    )


OBSERVE = c.CFUNCTYPE(None, c.c_void_p, c.c_int32, c.c_void_p)
POINTERS = c.POINTER(c.c_void_p)


class _Functions(c.Structure):
    _fields_ = (
        ("struct_bytes", c.c_uint32),
        ("abi", c.c_int32),
        ("session_bytes", c.CFUNCTYPE(c.c_size_t, c.POINTER(_Model), c.POINTER(Config))),
        (
            "open",
            c.CFUNCTYPE(c.c_int, c.POINTER(_Model), c.POINTER(Config), c.c_void_p, c.c_size_t, POINTERS),
        ),
        # Addresses without a type: ctypes makes an object of each typed pointer, at each call.
        ("run", c.CFUNCTYPE(c.c_int, c.c_void_p, c.c_void_p, c.c_void_p)),
        ("run_batch", c.CFUNCTYPE(c.c_int, c.c_void_p, c.c_int32, POINTERS, POINTERS)),
        ("reset", c.CFUNCTYPE(c.c_int, c.c_void_p)),
        ("bind", c.CFUNCTYPE(c.c_int, c.c_void_p, c.c_int32, c.c_void_p)),
        ("observe", c.CFUNCTYPE(None, c.c_void_p, OBSERVE, c.c_void_p)),
        ("part_device", c.CFUNCTYPE(c.c_char_p, c.c_void_p, c.c_int32)),
        ("error", c.CFUNCTYPE(c.c_char_p, c.c_void_p)),
        ("close", c.CFUNCTYPE(None, c.c_void_p)),
    )


ABI = 4
"""MACE_ABI of mace.h, whose types these are."""

Observer = Callable[[str, Array], None]

_Pointers: TypeAlias = "c.Array[c.c_void_p]"


class _Port:
    """What a run needs to know of an input or output, computed once."""

    def __init__(self, tensor: Tensor) -> None:
        self.name, self.shape = tensor.name, tensor.shape
        self.dtype, self.elements = tensor.dtype.numpy, tensor.elements


class LoadedModel:
    """One model of a loaded library, with a session of its own."""

    def __init__(self, raw: _Model, functions: _Functions, config: Config | None = None) -> None:
        """Open a session; MaceError with what it says where that fails.

        The raw structures belong to the library, which stays loaded.
        """
        self._raw, self._functions = raw, functions
        self._config = config or Config(c.sizeof(Config))
        self.name: str = raw.name.decode()
        self.inputs = [raw.inputs[i].describe() for i in range(raw.input_count)]
        self.outputs = [raw.outputs[i].describe() for i in range(raw.output_count)]
        self.arena_bytes: int = raw.arena_bytes
        # Small models run in microseconds, which is what these would take again at each run.
        self._ports = [_Port(tensor) for tensor in self.inputs]
        self._results = [_Port(tensor) for tensor in self.outputs]
        self._run = functions.run
        size = functions.session_bytes(c.byref(raw), c.byref(self._config))
        self._memory = np.zeros(size + HOST.alignment - 1, np.uint8)
        self._session = c.c_void_p()
        opened = c.byref(self._session)
        self._check(
            functions.open(
                c.byref(raw), c.byref(self._config), self._memory.ctypes.data, self._memory.size, opened
            )
        )
        # The memory is an argument so that it lives until the session is closed.
        weakref.finalize(self, _close, functions, self._session, self._memory)

    def run(self, inputs: Mapping[str, Array], observe: Observer | None = None) -> dict[str, Array]:
        """Return the outputs by name.

        `observe` sees a copy of every layer's result, with the layer's name.
        """
        arrays = [self._check_input(port, inputs) for port in self._ports]
        results = [np.zeros(port.shape, port.dtype) for port in self._results]
        pointers = _pointers(arrays), _pointers(results)
        self._check(self._run_session(pointers, observe))
        return {port.name: array for port, array in zip(self._results, results, strict=True)}

    def reset(self) -> None:
        """Give all states their start values."""
        self._check(self._functions.reset(self._session))

    def devices(self) -> list[str]:
        """Say what computes each part."""
        return [self._functions.part_device(self._session, i).decode() for i in range(self._raw.part_count)]

    def _check(self, status: int) -> None:
        if status:
            text = self._functions.error(self._session).decode(errors="replace")
            raise MaceError(self.name, f"the library answers with status {status}: {text}")

    def _check_input(self, port: _Port, inputs: Mapping[str, Array]) -> Array:
        if port.name not in inputs:
            raise MaceError(
                self.name, f"no input {port.name!r} given", f"give {', '.join(t.name for t in self.inputs)}"
            )
        array = np.ascontiguousarray(inputs[port.name], port.dtype)
        if array.size != port.elements:
            raise MaceError(
                self.name,
                f"input {port.name!r} has shape {list(array.shape)}",
                f"give {list(port.shape)}",
            )
        return array

    def _run_session(self, pointers: tuple[_Pointers, _Pointers], observe: Observer | None) -> int:
        """Return the status of a run on the memory of its inputs and outputs."""
        if observe is None:
            return int(self._run(self._session, *pointers))
        callback = self._observer(observe)
        self._functions.observe(self._session, callback, None)
        try:
            return int(self._run(self._session, *pointers))
        finally:
            # Also after an interrupt: the next run is not told of observers, and would call one that is gone.
            self._functions.observe(self._session, OBSERVE(0), None)

    def _observer(self, observe: Observer) -> Callable[..., None]:
        def see(_: object, number: int, pointer: int) -> None:
            layer = self._raw.layers[number]
            tensor = layer.result.describe()
            data = c.string_at(pointer, layer.result.bytes)
            observe(layer.name.decode(), np.frombuffer(data, tensor.dtype.numpy).reshape(tensor.shape))

        return OBSERVE(see)


def _close(functions: _Functions, session: c.c_void_p, memory: Array) -> None:
    functions.close(session)


def _pointers(arrays: Sequence[Array]) -> _Pointers:
    return (c.c_void_p * len(arrays))(*map(_find_address, arrays))


def _find_address(array: Array) -> int | None:
    """Return where the elements of a contiguous array begin; None if there are none."""
    if not array.nbytes:
        return None
    # `array.ctypes` takes five times as long, but is the only way to an array that must not be written.
    if array.flags.writeable:
        return c.addressof(c.c_char.from_buffer(array.data))
    return array.ctypes.data


def load(library: Path, name: str, config: Config | None = None) -> dict[str, LoadedModel]:
    """Return the models of the shared library whose symbols start with `name`, each in a session of its own.

    MaceError where the library was built with another mace.h, or a session does not open.
    """
    handle = _open_library(library.resolve())
    functions = _Functions.in_dll(handle, f"{name}_functions")
    if functions.abi != ABI or functions.struct_bytes < c.sizeof(_Functions):
        raise MaceError(
            library,
            f"has version {functions.abi} of mace.h, and this program version {ABI}",
            "build the library again",
        )
    count = c.c_int32.in_dll(handle, f"{name}_model_count").value
    table = (c.POINTER(_Model) * count).in_dll(handle, f"{name}_models")
    models = [LoadedModel(table[i].contents, functions, config) for i in range(count)]
    return {m.name: m for m in models}


_Version: TypeAlias = tuple[int, int, int]
"""Tells the contents of a path apart: the file system's number of the file, its size and its time."""

_opened: dict[Path, _Version] = {}
"""What this process has opened by the file's own path."""


def _open_library(path: Path) -> c.CDLL:
    """Return the library in a file, also where this process has opened an earlier one of the same path.

    The system knows libraries by their paths, and would return the earlier one.
    """
    status = path.stat()
    version = (status.st_ino, status.st_size, status.st_mtime_ns)
    if _opened.setdefault(path, version) == version:
        return c.CDLL(str(path))
    with TemporaryDirectory(prefix="mace-library", ignore_cleanup_errors=True) as folder:
        return c.CDLL(shutil.copy(path, folder))
