"""Defines the options of a program, which a user may set besides the network.

Names and meanings are those of the vendor's command line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from typing import Any, Self

from mace_core.emit.text import CDefine, Word, quote_name
from mace_core.errors import MaceError
from mace_frontend_ai8x.options import NetworkOptions
from mace_target_max78000.device import Chip
from mace_target_max78000.vendor_options import (
    BASE_FREE,
    SAME,
    SECOND_GENERATION,
    SHORT,
    SWITCHED_OFF,
    WITHOUT_EFFECT,
    refusal,
)


class CFile(Word):
    """The name of a C source or header in the project's own folder.

    A name without a suffix is that of a source.
    """

    __slots__ = ()

    def __new__(cls, name: str) -> Self:
        """Check the name; MaceError where it is none."""
        name = name if "." in name else f"{name}.c"
        if not name.endswith((".c", ".h")) or name.lower() in TAKEN:
            raise MaceError(
                repr(name),
                "cannot be the name of a file of the project",
                "use a word with .c or .h at its end",
            )
        return super().__new__(cls, name)


DEFINES = ("define", "define_default_arm", "define_default_riscv")
"""Options that list macros."""
LISTS = ("no_bias", "streaming_layers")
"""Options that list numbers of layers."""
NEVER_NEGATIVE = ("switch_delay", "skip_yaml_layers", "skip_checkpoint_layers")
CHOICES: Mapping[str, tuple[int, ...]] = {"clock_divider": (1, 2, 4, 8, 16)}
"""Numbers that the hardware has only some of."""
MAX_SHOWN = 60
"""Characters of a value that a message shows."""
STANDARD_HEADERS = (
    "assert",
    "ctype",
    "errno",
    "float",
    "inttypes",
    "limits",
    "math",
    "stdbool",
    "stddef",
    "stdint",
    "stdio",
    "stdlib",
)
TAKEN = frozenset(
    (
        "softmax.c",
        "board.h",
        "board_port.h",
        "string.h",
        "time.h",
        *(f"{name}.h" for name in STANDARD_HEADERS),
    )
)
"""Files that a project has anyway, and headers that one in the project's folder would hide."""


@dataclass(frozen=True, kw_only=True)
class Options(NetworkOptions):
    """All options, with the defaults of the vendor's tool: those of the network, and those of the program.

    timer: number of the timer that measures the inference; None for none.  boost: port and pin of the supply
    boost.
    clock_divider, switch_delay: None for what the part needs (see `clock`, and milliseconds for its load
    switches).
    table_driven: registers are written from a table, and weights are packed bytes, which takes far less
    flash.
    """

    fifo: bool = False
    fast_fifo: bool = False
    fast_fifo_quad: bool = False
    fifo_wait: bool = True
    fifo_go: bool = False
    simple1b: bool = False
    # Generated code
    prefix: Word = field(default=Word("cnn"))
    board_name: Word = field(default=Word("EvKit_V1"))
    table_driven: bool = False
    compact_weights: bool = False
    mexpress: bool = True
    mlator: bool = False
    softmax: bool = False
    boost: tuple[int, int] | None = None
    timer: int | None = None
    wfi: bool = True
    define: tuple[CDefine, ...] = ()
    define_default_arm: tuple[CDefine, ...] = (CDefine("MXC_ASSERT_ENABLE"), CDefine("ARM_MATH_CM4"))
    define_default_riscv: tuple[CDefine, ...] = (CDefine("MXC_ASSERT_ENABLE"), CDefine("RV32"))
    pipeline: bool = True
    pll: bool = True
    clock_divider: int | None = None
    switch_delay: int | None = None
    max_speed: bool = False
    riscv: bool = False
    riscv_debug: bool = False
    riscv_exclusive: bool = False
    unload: bool = True
    known_answer: bool = True
    verify_weights: bool = False
    c_filename: CFile = field(default=CFile("main.c"))
    api_filename: CFile = field(default=CFile("cnn.c"))
    weight_filename: CFile = field(default=CFile("weights.h"))
    sample_filename: CFile = field(default=CFile("sampledata.h"))
    sample_output_filename: CFile = field(default=CFile("sampleoutput.h"))
    # Network
    one_shot: bool = False
    ignore_bias_groups: bool = False
    deduplicate_weights: bool = True
    overlap_data: bool = False
    synthesize_input: int | None = None
    synthesize_words: int = 8
    max_checklines: int | None = None
    link_layer: bool = False
    start_layer: int = 0
    # Streaming
    increase_start: int = 2
    override_start: int | None = None
    override_rollover: int | None = None
    increase_delta1: int = 0
    override_delta1: int | None = None
    increase_delta2: int = 0
    override_delta2: int | None = None
    # Hardware
    deepsleep: bool = False
    write_zero_registers: bool = False
    init_tram: bool = False
    zero_unused: bool = False
    powerdown: bool = False
    zero_sram: bool = False
    ready_sel: int = 0
    ready_sel_fifo: int = 0
    ready_sel_aon: int = 0
    ext_rdy: bool = False
    requested: frozenset[str] = frozenset()
    """Names of the options that were given."""

    @classmethod
    def of(cls, requested: Mapping[str, object], place: str) -> Options:
        """Return options by the names of the vendor's command line, with - or _.

        Those that begin with `no` switch something off.

        place: where they stand, for messages.  Raises one MaceError with all faults.
        """
        reader = _Reader(place)
        values = dict(reader.settings(requested))
        if reader.faults:
            raise MaceError.of(reader.faults)
        # Each of the three makes a program for the RISC-V core; the others say how.
        values["riscv"] = any(values.get(name) for name in ("riscv", "riscv_debug", "riscv_exclusive"))
        values["fast_fifo"] = bool(values.get("fast_fifo") or values.get("fast_fifo_quad"))
        if "no_timer" in dict(asked_names(requested)):
            values["timer"] = None
        values["requested"] = frozenset(name for name, value in asked_names(requested) if value is not False)
        options = cls(**values)
        options._check_files(place)
        return options

    def _check_files(self, place: str) -> None:
        """Raise MaceError where two files of the project would have one name.

        letters' case does not make two of them.
        """
        sources = {"c_filename": self.c_filename, "api_filename": self.api_filename}
        headers = {
            name: getattr(self, name)
            for name in ("weight_filename", "sample_filename", "sample_output_filename")
        }
        faults = [
            f"{place}: {name}: {file!r} is a header; end it in .c"
            for name, file in sources.items()
            if not file.endswith(".c")
        ]
        faults += [
            f"{place}: {name}: {file!r} is a source; end it in .h"
            for name, file in headers.items()
            if not file.endswith(".h")
        ]
        interface = {"the interface": f"{self.api_filename.removesuffix('.c')}.h"}
        riscv = {"the RISC-V program": f"{self.c_filename.removesuffix('.c')}_riscv.c"} if self.riscv else {}
        seen: dict[str, str] = {}
        for name, file in (sources | headers | interface | riscv).items():
            if file.lower() in seen:
                faults.append(
                    f"{place}: {seen[file.lower()]} and {name} are both {file!r}; give each a name of its own"
                )
            seen.setdefault(file.lower(), name)
        if faults:
            raise MaceError.of(faults)

    @classmethod
    def of_arguments(cls, arguments: Iterable[str], place: str = "options") -> Options:
        """Return options as the vendor's command line has them: --name, or --name value."""
        requested: dict[str, object] = {}
        name = ""
        for argument in arguments:
            if argument in SHORT:
                name = ""
            elif argument.startswith("--"):
                name, equals, value = argument[2:].partition("=")
                requested[name] = value if equals else True
                # --name=value is complete; a further word belongs to no option.
                name = "" if equals else name
            elif name:
                requested[name], name = argument, ""
            else:
                raise MaceError(place, f"{argument!r} belongs to no option", "write --name, or --name value")
        return cls.of(requested, place)

    def refusals(self, device: Chip) -> Iterator[str]:
        """Yield the requested options that the chip does not have, as the vendor's tool refuses them."""
        for name in sorted(self.requested & SECOND_GENERATION) if device.generation == 1 else ():
            yield f"{name.replace('_', '-')}: the {device.name} does not have this; leave it out"
        if device.features.pipeline and self.max_speed and not self.pll:
            yield "max-speed: the PLL alone is faster than the processor's clock; leave out no-pll"


def asked_names(requested: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    """Yield the options that were given, with _ in their names."""
    return ((name.replace("-", "_"), value) for name, value in requested.items())


class _Reader:
    """Turns what was written into field values, and collects what is wrong."""

    def __init__(self, place: str) -> None:
        self.place = place
        self.faults: list[str] = []
        self.types = {f.name: str(f.type) for f in fields(Options)}

    def settings(self, requested: Mapping[str, object]) -> Iterator[tuple[str, Any]]:
        """Yield fields with their values."""
        for written, value in requested.items():
            name = written.replace("-", "_")
            name = SAME.get(name, name)
            if name in WITHOUT_EFFECT or (name == "pipeline" and value is True):
                continue
            if refused := refusal(name):
                self.faults.append(f"{self.place}: {written}: {refused.reason}; {refused.remedy}")
                continue
            field = SWITCHED_OFF.get(name, name)
            if field not in self.types or field == "requested":
                self._unknown(written)
                continue
            try:
                parsed = _value(field, self.types[field], value)
            except (ValueError, TypeError, MaceError):
                expected = _describe_expected(field, self.types[field])
                self.faults.append(
                    f"{self.place}: {written}: {_show(value)} is not allowed; write {expected}"
                )
                continue
            yield field, not parsed if name in SWITCHED_OFF else parsed

    def _unknown(self, written: str) -> None:
        known = [*self.types, *SWITCHED_OFF]
        close = get_close_matches(written.replace("-", "_"), known, 1)
        remedy = (
            f"did you mean {close[0]!r}?" if close else "remove it; the target's README lists the options"
        )
        self.faults.append(f"{self.place}: {written}: no such option; {remedy}")


def _value(field: str, kind: str, value: object) -> object:
    if kind == "bool":
        return _flag(value)
    if kind.startswith("int"):
        if isinstance(value, bool):
            raise TypeError
        number = int(str(value), 0 if field in BASE_FREE else 10)
        if (field in NEVER_NEGATIVE and number < 0) or number not in CHOICES.get(field, (number,)):
            raise ValueError
        return number
    if field == "boost":
        port, pin = str(value).split(".")
        return int(port), int(pin)
    if field in DEFINES:
        return tuple(CDefine(word.removeprefix("-D")) for word in str(value).split())
    if field in LISTS:
        return (
            frozenset()
            if value is True and field == "no_bias"
            else frozenset(int(part) for part in str(value).split(","))
        )
    if not isinstance(value, str) or not value:
        raise TypeError
    return _WORD_TYPES.get(kind, str)(value)


_WORD_TYPES: Mapping[str, Callable[[str], str]] = {"Word": Word, "CFile": CFile}


def _show(value: object) -> str:
    return quote_name(value) if isinstance(value, str) else repr(value)[:MAX_SHOWN]


def _flag(value: object) -> bool:
    if value not in (True, False, 0, 1):
        raise ValueError
    return bool(value)


def _describe_expected(field: str, kind: str) -> str:
    if field == "boost":
        return "port.pin, such as 2.5"
    if field in BASE_FREE:
        return "an integer, such as 20 or 0x14"
    if field in LISTS:
        return "numbers of layers with commas between them" + (
            ", or nothing for all layers" if field == "no_bias" else ""
        )
    if field in CHOICES:
        return "one of " + ", ".join(map(str, CHOICES[field]))
    examples = {
        "Word": "a word of letters, digits and _ . + -",
        "CFile": "the name of a C file, such as main.c, without a folder",
    }
    if field in DEFINES:
        return "macros, NAME or NAME=VALUE with a number or a name as the value, with blanks between them"
    return {"bool": "true or false", **examples}.get(kind, "an integer" if kind.startswith("int") else "text")
