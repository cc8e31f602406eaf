"""Options that reach names of files, Makefiles, C sources or shells: each has a grammar, and what does not fit is one message."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import pytest
import yaml

from mace_core.commands import check_deployment, convert_files
from mace_core.deployment import load_deployment
from mace_core.errors import MaceError
from mace_core.registry import Registry
from mace_core.target_options import check_target_options
from mace_target_max78000.device import MAX78000, Chip
from mace_target_max78000.firmware.layout import layout
from mace_target_max78000.options import Options
from mace_target_max78002.device import MAX78002

FILES = ("c_filename", "api_filename", "weight_filename", "sample_filename", "sample_output_filename")
EVIL = (
    "../../x.c",
    "/tmp/x.c",
    "a/b.c",
    "a b.c",
    'a".c',
    "a\n.c",
    "$(touch x).c",
    "`x`.c",
    ";x.c",
    "-x.c",
    ".c",
    "..c/..",
)
EVIL += ("x" * 5000, "é.c", "a\0.c", "~/x.c")
WORDS = (
    "B;>/path;",
    "$(shell touch x)",
    "a b",
    "`x`",
    "a\nb",
    "../x",
    "#x",
    "a$b",
    "x" * 5000,
    "",
    'a"b',
    "a'b",
    "a\\b",
    "a%b",
    "{x}",
)
DEFINES = (
    "A;x",
    "A=$(x)",
    "A=`x`",
    "A='x'",
    'A="x"',
    "1A",
    "A=1;>x",
    "-I/x",
    "A=B\\",
    "A,x",
    "-DA=1;x",
    "A=" + "x" * 5000,
    "A=1 $(x)",
)


def read_arguments(asked: dict[str, object], place: str) -> Options:
    """Read one option as the command line has it."""
    ((name, value),) = asked.items()
    return Options.of_arguments([f"--{name}", str(value)], place)


@pytest.mark.parametrize("read", [Options.of, read_arguments])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((f, v) for f in FILES for v in EVIL),
        *((w, v) for w in ("prefix", "board_name") for v in WORDS),
        *(("define", d) for d in DEFINES),
    ],
)
def test_nothing_leaves_its_grammar(read: Callable[..., Options], name: str, value: str) -> None:
    """In a deployment file, and as an argument of the command line."""
    with pytest.raises(MaceError, match=name) as error:
        read({name: value}, "here")
    assert len(str(error.value).splitlines()) == 1
    assert len(str(error.value)) < 500


@pytest.mark.parametrize("value", [5, 1.5, None, True, ["a"], {"a": 1}])
def test_text_is_text(value: object) -> None:
    for name in (*FILES, "prefix", "board_name"):
        with pytest.raises(MaceError, match=name):
            Options.of({name: value}, "here")


def test_what_is_allowed_arrives() -> None:
    names = {"c_filename": "demo", "api_filename": "net.c", "weight_filename": "w.h"}
    options = Options.of(
        {"prefix": "int", "board_name": "FTHR_RevA-2.1", "define": "A B=1 -DC=x.y D=-0x1F E=", **names},
        "here",
    )
    assert options.define == ("A", "B=1", "C=x.y", "D=-0x1F", "E=")
    assert {"demo.c", "net.c", "net.h", "w.h", "sampledata.h"} <= set(layout(options))


@pytest.mark.parametrize(
    "asked",
    [
        {"c_filename": "a.c", "api_filename": "a.c"},
        {"c_filename": "Cnn.c"},
        {"weight_filename": "cnn.h"},
        {"sample_filename": "weights.h"},
        {"weight_filename": "main.c"},
        {"c_filename": "main.h"},
        {"weight_filename": "stdint.h"},
        {"weight_filename": "Board.h"},
        {"c_filename": "softmax.c"},
        {"riscv": True, "api_filename": "main_riscv.c"},
    ],
)
def test_two_files_of_one_name_are_refused(asked: dict[str, object]) -> None:
    with pytest.raises(MaceError):
        Options.of(asked, "here")


def deployment(folder: Path, options: dict[str, object]) -> Path:
    (folder / "m.onnx").touch()
    file = folder / "d.yml"
    file.write_text(
        yaml.safe_dump(
            {"library_name": "lib", "models": {"m": {"model_file_path": "m.onnx", "target_options": options}}}
        )
    )
    return file


def test_options_are_checked_when_the_file_is_read(tmp_path: Path) -> None:
    """Of every target that is installed, whatever is built for, and before anything is written."""
    file = deployment(
        tmp_path, {"max78000": {"c_filename": "../../x", "board_name": "B;>/path;"}, "cpu": {"fast": 1}}
    )
    for target in ("host", "max78000"):
        with pytest.raises(MaceError) as error:
            convert_files(file, target, tmp_path / "out", no_fallback=False)
        assert [
            line
            for line in ("c_filename", "board_name", "'fast' is no option of the target")
            if line not in str(error.value)
        ] == []
        with pytest.raises(MaceError, match="c_filename"):
            list(check_deployment(file, target, no_fallback=False, strict=False))
    assert not (tmp_path / "out").exists()


def test_targets_that_are_not_there(tmp_path: Path) -> None:
    registry = Registry.load()
    with pytest.raises(MaceError, match=r"did you mean 'max7800[02]'"):
        check_target_options(load_deployment(deployment(tmp_path, {"max7800": {}})), registry)
    (note,) = check_target_options(load_deployment(deployment(tmp_path, {"acme": {"x": 1}})), registry).notes
    assert "'acme' is not installed" in note


SWITCHED_ON = {
    *("fifo_wait", "mexpress", "wfi", "pipeline", "pll", "unload", "known_answer", "deduplicate_weights"),
}
"""What the vendor's tool does unless an option that begins with `no` switches it off."""


def test_defaults_are_those_of_the_vendors_tool() -> None:
    """Of ai8xize.py: 8 words of synthesized input, streams that begin 2 words later; the rest is off or not given."""
    defaults = {field.name: getattr(Options(), field.name) for field in fields(Options)}
    assert {name for name, value in defaults.items() if value is True} == SWITCHED_ON
    assert {name: value for name, value in defaults.items() if type(value) is int and value} == {
        "synthesize_words": 8,
        "increase_start": 2,
    }
    words = {name: value for name, value in defaults.items() if isinstance(value, str | tuple) and value}
    assert words == {
        "prefix": "cnn",
        "board_name": "EvKit_V1",
        "define_default_arm": ("MXC_ASSERT_ENABLE", "ARM_MATH_CM4"),
        "define_default_riscv": ("MXC_ASSERT_ENABLE", "RV32"),
        "c_filename": "main.c",
        "api_filename": "cnn.c",
        "weight_filename": "weights.h",
        "sample_filename": "sampledata.h",
        "sample_output_filename": "sampleoutput.h",
    }


READ: list[tuple[str, object, str, object]] = [
    ("timer", 0, "timer", 0),
    ("timer", "3", "timer", 3),
    ("timer", -1, "timer", -1),
    ("timer", True, "", "True is not allowed; write an integer"),
    ("timer", "0x1", "", "'0x1' is not allowed; write an integer"),
    ("timer", "x" * 70, "", "is not allowed; write an integer"),
    ("boost", "2.5", "boost", (2, 5)),
    ("boost", "2", "", "'2' is not allowed; write port.pin, such as 2.5"),
    ("boost", "2.5.1", "", "'2.5.1' is not allowed; write port.pin, such as 2.5"),
    *(("clock_divider", n, "clock_divider", n) for n in (1, 2, 4, 8, 16)),
    *(
        ("clock_divider", n, "", f"{n} is not allowed; write one of 1, 2, 4, 8, 16")
        for n in (0, 3, 5, 15, 17, 32)
    ),
    ("switch_delay", 0, "switch_delay", 0),
    ("switch_delay", -1, "", "-1 is not allowed; write an integer"),
    ("skip_yaml_layers", -1, "", "-1 is not allowed; write an integer"),
    ("skip_checkpoint_layers", -1, "", "-1 is not allowed; write an integer"),
    ("input_offset", "0x40", "input_offset", 0x40),
    ("input_offset", "40", "input_offset", 40),
    ("input_offset", "4x", "", "'4x' is not allowed; write an integer, such as 20 or 0x14"),
    ("no_bias", True, "no_bias", frozenset()),
    ("no_bias", "1,3", "no_bias", frozenset({1, 3})),
    (
        *("no_bias", "1,x", ""),
        "'1,x' is not allowed; write numbers of layers with commas between them, or nothing for all layers",
    ),
    ("streaming_layers", "0", "streaming_layers", frozenset({0})),
    ("streaming_layers", True, "", "True is not allowed; write numbers of layers with commas between them"),
    ("fifo", 1, "fifo", True),
    ("fifo", 0, "fifo", False),
    ("fifo", 2, "", "2 is not allowed; write true or false"),
    ("no_unload", True, "unload", False),
    ("no-unload", False, "unload", True),
    ("no-unload", "x", "", "'x' is not allowed; write true or false"),
    ("prefix", "net", "prefix", "net"),
    ("prefix", 5, "", "5 is not allowed; write a word of letters, digits and _ . + -"),
    ("c_filename", "demo", "c_filename", "demo.c"),
    (
        *("c_filename", "demo.cc", ""),
        "'demo.cc' is not allowed; write the name of a C file, such as main.c, without a folder",
    ),
    (
        *("define", "A=", "define"),
        ("A=",),
    ),
    (
        *("define", "1A", ""),
        "'1A' is not allowed; write macros, NAME or NAME=VALUE with a number or a name as the value, "
        "with blanks between them",
    ),
    ("stop_after", "conv1", "stop_after", "conv1"),
    ("stop_after", "", "", "'' is not allowed; write text"),
    ("stop_after", 3, "", "3 is not allowed; write text"),
    ("fast_fifo_quad", True, "fast_fifo", True),
    ("riscv_debug", True, "riscv", True),
    ("riscv_exclusive", True, "riscv", True),
    ("tiemr", 1, "", "no such option; did you mean 'timer'?"),
    ("requested", 1, "", "no such option;"),
    ("quux", 1, "", "no such option; remove it; the target's README lists the options"),
]


@pytest.mark.parametrize(
    ("name", "value", "field", "expected"), READ, ids=[f"{name} {value}" for name, value, *_ in READ]
)
def test_values_of_options(name: str, value: object, field: str, expected: object) -> None:
    if field:
        assert getattr(Options.of({name: value}, "here"), field) == expected
        return
    with pytest.raises(MaceError) as error:
        Options.of({name: value}, "here")
    assert str(error.value).startswith(f"here: {name}: ")
    assert str(expected) in str(error.value)


def test_which_options_were_asked_for() -> None:
    options = Options.of({"fifo": True, "riscv": False, "no-timer": True, "timer": 1}, "here")
    assert options.requested == {"fifo", "no_timer", "timer"}
    assert (options.timer, options.riscv, options.fifo) == (None, False, True)
    assert Options().requested == frozenset()


@pytest.mark.parametrize(
    ("arguments", "field", "expected"),
    [
        (["--timer", "2"], "timer", 2),
        (["--timer=2"], "timer", 2),
        (["--fifo", "--timer", "0"], "fifo", True),
        (["--prefix", "net", "--riscv"], "riscv", True),
        ([], "timer", None),
    ],
)
def test_arguments(arguments: list[str], field: str, expected: object) -> None:
    assert getattr(Options.of_arguments(arguments), field) == expected


@pytest.mark.parametrize("arguments", [["2"], ["--timer", "2", "3"], ["--timer=2", "3"]])
def test_an_argument_that_belongs_to_no_option_is_refused(arguments: list[str]) -> None:
    with pytest.raises(MaceError) as error:
        Options.of_arguments(arguments)
    word = arguments[-1]
    assert str(error.value) == f"options: {word!r} belongs to no option; write --name, or --name value"


@pytest.mark.parametrize(
    ("device", "stated", "refused"),
    [
        (MAX78000, {"max_speed": True}, ["max-speed: the MAX78000 does not have this; leave it out"]),
        (MAX78002, {"max_speed": True}, []),
        (MAX78002, {"no_pll": True}, []),
        (
            MAX78002,
            {"max_speed": True, "no_pll": True},
            ["max-speed: the PLL alone is faster than the processor's clock; leave out no-pll"],
        ),
        (MAX78002, {}, []),
        (MAX78000, {"read_ahead": True}, ["read-ahead: the MAX78000 does not have this; leave it out"]),
        (MAX78000, {"read_ahead": False}, []),
        (MAX78002, {"read_ahead": True}, []),
    ],
    ids=lambda value: value.name if isinstance(value, Chip) else None,
)
def test_options_that_a_chip_does_not_have(
    device: Chip, stated: dict[str, object], refused: list[str]
) -> None:
    assert list(Options.of(stated, "here").refusals(device)) == refused
