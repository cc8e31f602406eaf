"""Lets devices without cl_khr_fp16 run kernels that compute in half precision, for tests."""

from __future__ import annotations

import ctypes
from functools import cache

import pytest
from opencl_device import LIBRARY, require_device

from mace_core.emit.text import Code
from mace_target_opencl import blob, enqueue

PRELUDE = Code(
    """\
typedef _Float16 mace_half;
typedef _Float16 mace_half4 __attribute__((ext_vector_type(4)));
#define LOAD_HALF(p, i) ((mace_half)vload_half((i), (p)))
#define LOAD_HALF4(p, i) TO_HALF4(vload_half4(0, (p) + (i)))
#define TO_HALF(v) ((mace_half)(v))
#define TO_HALF4(v) __builtin_convertvector((v), mace_half4)
#define FROM_HALF(v) ((float)(v))
#define FROM_HALF4(v) __builtin_convertvector((v), float4)
"""
)
"""The type of half precision that clang has on x86: each operation rounds, as with the extension."""

FLOATS = Code(
    """\
typedef float mace_half;
typedef float4 mace_half4;
#define LOAD_HALF(p, i) vload_half((i), (p))
#define LOAD_HALF4(p, i) vload_half4(0, (p) + (i))
#define TO_HALF(v) (v)
#define TO_HALF4(v) (v)
#define FROM_HALF(v) (v)
#define FROM_HALF4(v) (v)
"""
)
"""Floats in the place of halves, for a simulator that looks for races and accesses outside of buffers."""

EXTENSIONS, VENDOR_NAME = 0x1030, 0x902
ALL_DEVICES = 0xFFFFFFFF


@cache
def read_device() -> tuple[str, str]:
    """Return the name of the first platform, and the extensions of its first device."""
    library = ctypes.CDLL(LIBRARY)
    platform, device = ctypes.c_void_p(), ctypes.c_void_p()
    assert library.clGetPlatformIDs(1, ctypes.byref(platform), None) == 0
    kinds = ctypes.c_uint64(ALL_DEVICES)
    assert library.clGetDeviceIDs(platform, kinds, 1, ctypes.byref(device), None) == 0
    texts = [ctypes.create_string_buffer(1 << 16) for _ in range(2)]
    size = ctypes.c_size_t(1 << 16)
    assert library.clGetPlatformInfo(platform, VENDOR_NAME, size, texts[0], None) == 0
    assert library.clGetDeviceInfo(device, EXTENSIONS, size, texts[1], None) == 0
    return texts[0].value.decode(), texts[1].value.decode()


def has_half() -> bool:
    """Tell whether the device computes in half precision itself."""
    return "cl_khr_fp16" in read_device()[1].split()


def replace_half(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let kernels compute in the compiler's type where the device has no cl_khr_fp16; skip where none has."""
    require_device()
    if has_half():
        return
    platform, _ = read_device()
    if platform != "Portable Computing Language":
        pytest.skip(f"{platform} has neither cl_khr_fp16 nor a compiler that is known to have _Float16")
    monkeypatch.setattr(enqueue, "HALF_PRELUDE", PRELUDE)
    monkeypatch.setattr(blob, "NEEDS_HALF", 0)


def replace_by_floats() -> None:
    """Let kernels of this process compute in floats what they would in half precision, on any device."""
    enqueue.HALF_PRELUDE = FLOATS
    blob.NEEDS_HALF = 0
