"""`mace-ai8x synthesize`: the command lines of the vendor's demos as they are, and what options mean."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from demo_commands import Demo, demos
from references import MODELS
from test_simulator import network

from mace_core.errors import MaceError
from mace_frontend_ai8x.cli import main
from mace_frontend_ai8x.network import Weights
from mace_target_max78000.device import MAX78000, Chip
from mace_target_max78000.encode import synthesize
from mace_target_max78000.image import Expect, Image, Poll, Write
from mace_target_max78000.options import Options
from mace_target_max78000.project import make_project
from mace_target_max78000.simulate import replay
from mace_target_max78002.device import MAX78002

DEMOS = list(demos())
FOLDERS = {"networks": "*.yaml", "trained": "*.pth.tar", "tests": "sample_*.npy"}
CTL, INIT_AON = 0, 0x50001000


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the vendor's layout that holds what is known of the demos' files."""
    monkeypatch.chdir(tmp_path)
    for folder, pattern in FOLDERS.items():
        (tmp_path / folder).mkdir()
        for root in (MODELS, MODELS.with_name("ai8x-more")):
            for name, file in {file.name: file for file in root.glob(f"*/{pattern}")}.items():
                (tmp_path / folder / name).symlink_to(file)
    return tmp_path


@pytest.mark.slow
@pytest.mark.sampled(every=5)
@pytest.mark.parametrize("demo", DEMOS, ids=lambda d: f"{d.prefix}-{d.device}")
def test_demo(demo: Demo, workplace: Path) -> None:
    """What is there is built; a file that is not is told in one line, and nothing is written."""
    actual = CliRunner().invoke(main, ["synthesize", *demo.arguments("demos")])
    there = [
        (workplace / f"networks/{demo.description}.yaml").exists(),
        (workplace / f"trained/{demo.checkpoint}.pth.tar").exists(),
    ]
    if all(there) and "no such file" not in actual.output:
        assert actual.exit_code == 0, actual.output
        assert (workplace / "demos" / demo.prefix / "cnn.c").exists()
        return
    assert (actual.exit_code, len(actual.output.strip().splitlines())) == (2, 1), actual.output
    assert "no such file" in actual.output
    assert not (workplace / "demos").exists()


def test_all_demos_are_there() -> None:
    assert len(DEMOS) == 36
    assert len({(demo.device, demo.prefix) for demo in DEMOS}) == 36


@pytest.mark.skipif(
    not (MODELS / "mnist").exists(), reason=f"the vendor's networks are not in {MODELS}: set MACE_MODELS"
)
def test_sample_of_the_data_set_where_none_is_named(workplace: Path) -> None:
    mnist = next(demo for demo in DEMOS if demo.prefix == "mnist")
    assert CliRunner().invoke(main, ["synthesize", *mnist.arguments("demos")]).exit_code == 0
    (workplace / "tests" / "sample_mnist.npy").unlink()
    actual = CliRunner().invoke(main, ["synthesize", *mnist.arguments("other")])
    assert f"{Path('tests/sample_mnist.npy')}: no such file" in actual.output


@pytest.mark.parametrize(
    "name", ["override_start", "override_rollover", "override_delta1", "override_delta2", "input_offset"]
)
def test_numbers_are_decimal_unless_marked(name: str) -> None:
    options = [Options.of_arguments([f"--{name.replace('_', '-')}", text]) for text in ("20", "0x14")]
    assert [getattr(option, name) for option in options] == [20, 20]


@pytest.mark.parametrize("name", ["increase_start", "increase_delta1", "increase_delta2"])
def test_increments_may_be_hexadecimal_or_negative(name: str) -> None:
    texts = ("3", "0x3", "-3")
    assert [getattr(Options.of({name: text}, "options"), name) for text in texts] == [3, 3, -3]


def test_forms_of_arguments() -> None:
    options = Options.of_arguments(
        [
            "-e",
            "--timer=0",
            "-v",
            "--softmax",
            "-L",
            "--max-verify-length",
            "7",
            "--log-filename",
            "x.txt",
            "-D",
        ]
    )
    assert (options.timer, options.softmax, options.max_checklines) == (0, True, 7)
    assert Options.of_arguments(["--timer", "0", "--no-timer"]).timer is None


@pytest.mark.parametrize(
    "argument",
    ["--fifo-go", "--one-shot", "--link-layer", "--start-layer=1", "--pipeline", "--pll", "--max-speed"],
)
def test_what_the_first_generation_lacks_is_refused(argument: str) -> None:
    options = Options.of_arguments([argument])
    assert [text.partition(":")[0] for text in options.refusals(MAX78000)] == [argument[2:].partition("=")[0]]
    assert list(options.refusals(MAX78002)) == []
    with pytest.raises(MaceError, match="the MAX78000 does not have this"):
        make_project(network(False), options, MAX78000)


def image(device: Chip, *arguments: str, fifo: bool = False) -> Image:
    return synthesize(
        network(fifo), Options.of_arguments([*arguments, *(["--fifo"] if fifo else [])]), device
    ).image


def list_writes(steps: object, address: int) -> list[int]:
    assert isinstance(steps, tuple)
    return [step.value for step in steps if isinstance(step, Write) and step.address == address]


@pytest.mark.parametrize("fifo", [False, True])
def test_fifo_go_is_the_first_layers(fifo: bool) -> None:
    result = image(MAX78002, "--fifo-go", fifo=fifo)
    first, second = (
        [*list_writes(result.configure, MAX78002.layer_register(0, "STREAM1", layer)), 0][0]
        for layer in (0, 1)
    )
    assert (first >> 25 & 1, second >> 25 & 1) == (1, 0)


@pytest.mark.parametrize(("arguments", "before", "during"), [((), 1, 0), (("--no-pipeline",), 1, 1)])
def test_wait_states_end_where_the_pipeline_begins(
    arguments: tuple[str, ...], before: int, during: int
) -> None:
    result = image(MAX78002, "--ready-sel", "1", *arguments)
    control = MAX78002.control_register(0, 0)
    assert {value >> 1 & 3 for value in list_writes(result.init, control)} == {before}
    assert {value >> 1 & 3 for value in list_writes(result.start, control)} == {during}


def test_wait_states_of_the_first_generation_hold_always() -> None:
    result = image(MAX78000, "--ready-sel", "1")
    control = MAX78000.control_register(0, 0)
    assert {value >> 1 & 3 for value in list_writes((*result.init, *result.start), control)} == {1}


def test_the_pipeline_is_off_from_the_first_write_on() -> None:
    result = image(MAX78002, "--no-pipeline")
    assert all(
        value >> 5 & 1
        for value in list_writes((*result.init, *result.start), MAX78002.control_register(0, 0))
    )


def test_wait_states_of_the_fifo() -> None:
    plain, slow = (
        image(MAX78000, *arguments, fifo=True).configure[-1] for arguments in ((), ("--ready-sel-fifo", "2"))
    )
    assert isinstance(plain, Write)
    assert isinstance(slow, Write)
    assert slow.value == plain.value | 2


def test_unused_quadrants_are_powered_down() -> None:
    result = image(MAX78000, "--powerdown", "--ready-sel-aon", "3")
    unused = sum(1 << 12 + q for q in range(4) if q not in result.quadrants)
    assert list_writes(result.start, INIT_AON) == [unused | 3]


@pytest.mark.parametrize("device", [MAX78000, MAX78002], ids=lambda d: d.name)
def test_memories_are_cleared_by_their_self_tests(device: Chip) -> None:
    result = image(device, "--zero-sram")
    tests = [device.control_register(quadrant, 3) for quadrant in range(4)]
    steps = [step for step in result.init if step.address in tests][-64:]
    assert [type(step) for step in steps] == [*[Write] * 4, *[Poll] * 4, *[Expect] * 4, *[Write] * 4] * 4
    assert [step.address for step in steps] == tests * 16
    assert all(step.value == 0 for step in steps[12::16] if isinstance(step, Write))
    replay(result)


def test_words_of_zeros_are_not_written_to_cleared_memories() -> None:
    result = network(False)
    values = result.layers[0].weights.values.copy()  # type: ignore[union-attr]
    values[4:12] = 0
    empty = replace(result, layers=(replace(result.layers[0], weights=Weights(values)), result.layers[1]))
    plain, cleared = (synthesize(empty, Options(zero_sram=asked), MAX78000).image for asked in (False, True))
    words = [sum(chunk.count for chunk in program.kernels) for program in (plain, cleared)]
    assert words[1] < words[0]
    replay(cleared)


@pytest.mark.skipif(
    not (MODELS / "mnist").exists(), reason=f"the vendor's networks are not in {MODELS}: set MACE_MODELS"
)
def test_bias_and_output_width_are_as_asked() -> None:
    from references import references

    reference = next(r for r in references() if r.name == "mnist-MAX78000")
    folder = reference.path.parent
    from mace_frontend_ai8x.checkpoint import load_checkpoint
    from mace_frontend_ai8x.description import read_description

    def read(*arguments: str) -> list[tuple[bool, bool]]:
        options = Options.of_arguments(arguments)
        sample = np.load(folder / reference.content["sample"])
        checkpoint = load_checkpoint(folder / reference.content["checkpoint"])
        result = read_description(folder / reference.content["network"], checkpoint, sample, options)
        return [(layer.bias is None, layer.wide) for layer in result.layers]

    plain = read()
    assert plain[-1] == (False, True)
    assert all(without for without, _ in read("--no-bias"))
    assert read("--no-bias", "4")[-1] == (True, True)
    assert read("--output-width", "8") == [*plain[:-1], (False, False)]
