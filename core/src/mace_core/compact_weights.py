"""Stores weights without loss in less memory than kernels read.

That is in half precision, as a bitmap and values, or as integers of four or eight bits with their scales.

A call of a widening kernel goes before each call that reads such a weight. What it writes is an ordinary
tensor of the arena that lives from the one call to the other, so the library gets smaller by all weights and
the arena larger by about one. Where the target has a kernel that reads the integers themselves, the call
becomes one of that kernel.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from math import prod

import numpy as np

from mace_core.integer_recovery import IntegerForm, find_integers
from mace_core.ir import Array, DType, Tensor
from mace_core.program import Call, Kernel, Program, Weight

AS_STORED = "as-stored"
"""The value of the deployment key `weights` that asks for this."""

MIN_BYTES = 4096
"""Minimum size of weights in compact storage; for smaller ones the extra call and alignment cost more."""

MAX_READERS = 8
"""Maximum number of calls that read a compact weight: each widens it again, an unrolled RNN in every step."""

PIECE = 8192
"""Elements that one task of a widening kernel writes; a multiple of the 64 bits in a word of the bitmap."""

FIELDS = (("n", "i64"), ("piece", "i64"))
"""The arguments of the widening kernels of floats: elements of the weight, and PIECE."""

INTEGER_FIELDS = (*((name, "i64") for name in ("outer", "depth", "lanes", "span")), ("piece", "i64"))
"""Arguments of the widening kernels of integers: those of `IntegerForm` (span is its block), and PIECE."""

ReadIntegers = Callable[[Call, int, IntegerForm], Call | None]
"""Returns a call that reads a weight, its read of this number, in the form; None if no kernel computes it so.

In place of the weight it reads three tensors: integers, scales, and zero points, "" for none.
"""


def refuse_to_read(call: Call, position: int, form: IntegerForm) -> Call | None:
    """Return None for every call, for targets whose kernels read floats only."""
    return None


@dataclass(frozen=True)
class WideningKernels:
    """The kernels of a target that restore weights, those of floats with FIELDS.

    The floats that they write are the last of t[].

    f16: t[0] holds `n` numbers in IEEE half precision.
    sparse: t[0] is a bitmap of 64-bit words, bit i % 64 of word i / 64 set where element i is not +0.0; t[1]
    holds, for each piece, how many values lie before it, as int64_t; t[2] holds the values as floats.
    sparse_f16: the same, with values in half precision.
    integers_4, integers_8: t[0] is what `IntegerForm.pack` returns, t[1] its scales, t[2] its zero points or
    NULL; with INTEGER_FIELDS. None for a target that stores no integers.
    read_integers: makes calls that need no widening.
    """

    f16: Kernel
    sparse: Kernel
    sparse_f16: Kernel
    integers_4: Kernel | None = None
    integers_8: Kernel | None = None
    read_integers: ReadIntegers = refuse_to_read

    @property
    def has_integers(self) -> bool:
        """Tell whether there are kernels of integers."""
        return self.integers_4 is not None and self.integers_8 is not None


@dataclass(frozen=True)
class Encoding:
    """A stored weight: the name of its kernel in WideningKernels, and the arrays that it reads, in order.

    form: how integers give the weight back; None for the other kernels.
    """

    kernel: str
    arrays: tuple[Array, ...]
    form: IntegerForm | None = None

    @property
    def bytes(self) -> int:
        """Bytes of all arrays."""
        return sum(array.nbytes for array in self.arrays)


@dataclass(frozen=True)
class Compacted:
    """A program with its weights as they are stored, and what that changed, for the report.

    Empty where nothing was asked.

    figures: packed_bytes and stored_bytes of the weights that were replaced, their number `weights`, and
    `widened_bytes`: the most bytes of the arena that one call's widened weights need.
    """

    program: Program
    figures: Mapping[str, int]


def encode(array: Array) -> Encoding | None:
    """Find the smaller form of an array of float32 that restores every bit; None if there is none.

    -0.0 is a value, not a zero. A NaN counts as exact in half precision only if its payload survives.
    """
    values = np.ascontiguousarray(array).reshape(-1)
    # Compared as bits: as numbers, -0.0 would equal 0.0, and a NaN nothing.
    bits = values.view(np.uint32)
    with np.errstate(all="ignore"):
        half = values.astype(np.float16)
        is_exact = np.array_equal(half.astype(np.float32).view(np.uint32), bits)
    dense = Encoding("f16", (half.view(np.uint16),)) if is_exact else None
    present = bits != 0
    if 2 * np.count_nonzero(present) >= values.size:
        return dense
    encoded = half.view(np.uint16) if is_exact else values
    sparse = Encoding("sparse_f16" if is_exact else "sparse", _sparse(encoded, present))
    limit = dense.bytes if dense else values.nbytes
    return sparse if sparse.bytes < limit else dense


def encode_integers(array: Array) -> Encoding | None:
    """Find integers and scales that restore an array of float32, but for signs of zeros; None without any."""
    form = find_integers(array) if array.ndim else None
    if form is None:
        return None
    return Encoding(f"integers_{form.bits}", (form.pack(array), *form.factors), form)


def _sparse(values: Array, present: Array) -> tuple[Array, Array, Array]:
    """Return the bitmap, the number of values before each piece, and the values."""
    packed = np.packbits(present, bitorder="little")
    words = np.zeros(-(-present.size // 64), np.dtype("<u8"))
    words.view(np.uint8)[: packed.size] = packed
    starts = range(0, present.size, PIECE)
    counts = [int(np.count_nonzero(present[start : start + PIECE])) for start in starts]
    # With the number of values before it, each piece can be widened by another worker.
    before = np.cumsum([0, *counts], dtype=np.int64)
    nonzero = values[present]
    # A weight of zeros only has no values, but C has no arrays without elements.
    return words, before[:-1], nonzero if nonzero.size else np.zeros(1, values.dtype)


def decode(encoding: Encoding, size: int) -> Array:
    """Restore the elements as the kernels do; tests compare the kernels with it."""
    if encoding.kernel == "f16":
        return encoding.arrays[0].view(np.float16).astype(np.float32)
    words, before, nonzero = encoding.arrays
    values = nonzero.view(np.float16).astype(np.float32) if encoding.kernel == "sparse_f16" else nonzero
    # Bit i of the bitmap is element i, because the bits of a byte and the bytes of a word are little-endian.
    present = np.unpackbits(words.view(np.uint8), count=size, bitorder="little").astype(bool)
    restored = np.zeros(size, np.float32)
    for number, start in enumerate(range(0, size, PIECE)):
        mask = present[start : start + PIECE]
        first = int(before[number])
        restored[start : start + PIECE][mask] = values[first : first + np.count_nonzero(mask)]
    return restored


def compact_weights(program: Program, kernels: WideningKernels) -> Compacted:
    """Store the weights of a program in smaller forms, and widen each before every call that reads it."""
    step = _Step(program, kernels)
    calls = [*chain.from_iterable(map(step.widen, program.calls))]
    weights: dict[str, Weight] = {}
    for name, weight in program.weights.items():
        weights |= step.replaced.get(name, {name: weight})
    replaced = [program.weights[name].bytes for name in step.replaced]
    encoded = chain.from_iterable(parts.values() for parts in step.replaced.values())
    stored_bytes = [weight.bytes for weight in encoded]
    figures = {
        "weights": len(replaced),
        "packed_bytes": sum(replaced),
        "stored_bytes": sum(stored_bytes),
        "widened_bytes": step.widened_bytes,
    }
    tensors = {**program.tensors, **step.tensors}
    return Compacted(replace(program, calls=tuple(calls), weights=weights, tensors=tensors), figures)


class _Step:
    """The replacement under way.

    stored: the weight that is replaced -> the arrays that take its place.  tensors: what the widening calls
    write.
    """

    def __init__(self, program: Program, kernels: WideningKernels) -> None:
        self.program = program
        self.kernels = kernels
        self.tensors: dict[str, Tensor] = {}
        self.replaced: dict[str, dict[str, Weight]] = {}
        self.widened_bytes = 0
        self._kernel: dict[str, str] = {}
        self._forms: dict[str, IntegerForm] = {}
        self._taken = {*program.tensors, *program.weights, *program.aliases}
        for name in self._candidates():
            self._replace(name)

    def _candidates(self) -> Iterator[str]:
        """The weights that only calls read, and not too many of them.

        An output or an alias needs the bytes as they are.
        """
        program = self.program
        shared = {program.root(name) for name in (*program.aliases, *program.outputs)}
        readers = Counter(chain.from_iterable({*call.reads} for call in program.calls))
        for name, weight in program.weights.items():
            # Four bytes an element: of other elements the array need not even be made.
            is_f32 = weight.bytes == 4 * prod(weight.shape)
            if (
                is_f32
                and weight.bytes >= MIN_BYTES
                and name not in shared
                and 0 < readers[name] <= MAX_READERS
            ):
                yield name

    def _replace(self, name: str) -> None:
        weight = self.program.weights[name]
        array = weight.make()
        encodings = self._encode(array) if array.dtype == np.float32 else ()
        encoding = min(filter(None, encodings), key=lambda e: e.bytes, default=None)
        if encoding is None or encoding.bytes >= weight.bytes:
            return
        parts: dict[str, Weight] = {}
        for number, part in enumerate(encoding.arrays):
            fresh = self._fresh(f"{name}.{encoding.kernel}")
            make = _make_part(weight.make, encoding, number)
            parts[fresh] = Weight(part.shape, part.nbytes, make)
        self.replaced[name] = parts
        self._kernel[name] = encoding.kernel
        if encoding.form:
            self._forms[name] = encoding.form

    def _encode(self, array: Array) -> tuple[Encoding | None, ...]:
        return encode(array), encode_integers(array) if self.kernels.has_integers else None

    def widen(self, call: Call) -> Iterator[Call]:
        """The calls that widen what a call reads, then the call itself on what they write."""
        call = self._read_integers(call)
        names: dict[str, str] = {}
        for name in dict.fromkeys(call.reads):
            if name in self.replaced:
                names[name] = self._add_tensor(name)
                yield self._widening(call, name, names[name])
        if not names:
            yield call
            return
        self.widened_bytes = max(self.widened_bytes, sum(self.tensors[name].bytes for name in names.values()))
        yield replace(
            call,
            reads=tuple(names.get(t, t) for t in call.reads),
            inplace=call.inplace and not self._may_overwrite(call, names),
        )

    def _read_integers(self, call: Call) -> Call:
        """Return a call that reads stored integers itself where the target has one, else the call."""
        for position, name in enumerate(call.reads):
            direct = None
            if name in self._forms and call.reads.count(name) == 1:
                direct = self.kernels.read_integers(call, position, self._forms[name])
            if direct is not None:
                reads = (*call.reads[:position], *self._list_arrays(name), *call.reads[position + 1 :])
                return replace(direct, reads=reads)
        return call

    def _list_arrays(self, name: str) -> tuple[str, ...]:
        """Return the arrays in which a weight is stored; of integers always three, "" for no zero points."""
        parts = tuple(self.replaced[name])
        return (*parts, "") if name in self._forms and len(parts) == 2 else parts

    def _may_overwrite(self, call: Call, names: Mapping[str, str]) -> bool:
        """Tell whether the memory plan could let the result overwrite a widened weight.

        Kernels that work in place expect that of a tensor that they go through once; weights some read once
        for each row.
        """
        result = self.program.tensors[self.program.root(call.writes[0])].bytes
        return any(self.tensors[name].bytes == result for name in names.values())

    def _widening(self, call: Call, name: str, tensor: str) -> Call:
        kernel: Kernel = getattr(self.kernels, self._kernel[name])
        args = {"n": self.tensors[tensor].elements, "piece": PIECE}
        if name in self._forms:
            args = {**integer_args(self._forms[name]), "piece": PIECE}
        return Call(
            kernel,
            args,
            self._list_arrays(name),
            (tensor,),
            node=call.node,
            sources=call.sources,
            levels=call.levels,
        )

    def _add_tensor(self, weight: str) -> str:
        name = self._fresh(f"{weight}.widened")
        self.tensors[name] = Tensor(name, DType.F32, tuple(self.program.weights[weight].shape))
        return name

    def _fresh(self, stem: str) -> str:
        name, number = stem, 0
        while name in self._taken:
            number += 1
            name = f"{stem}.{number}"
        self._taken.add(name)
        return name


def integer_args(form: IntegerForm) -> dict[str, int]:
    """Return the arguments by which kernels read a form; `span` because kernels call other things blocks."""
    return {"outer": form.outer, "depth": form.depth, "lanes": form.lanes, "span": form.block}


def _make_part(make: Callable[[], Array], encoding: Encoding, number: int) -> Callable[[], Array]:
    """Return what makes one array of an encoding when it is written: only one is in memory at a time."""
    if encoding.form is None:
        return partial(_remake, make, number)
    # Scales are few and stay in memory: to search for them again would take as long as the first time.
    form, factors = encoding.form, encoding.arrays[1:]
    return (lambda: form.pack(make())) if number == 0 else (lambda: factors[number - 1])


def _remake(make: Callable[[], Array], number: int) -> Array:
    """Make one array of a weight's encoding."""
    encoding = encode(make())
    assert encoding is not None, "a weight changed between two times that it was made"
    return encoding.arrays[number]
