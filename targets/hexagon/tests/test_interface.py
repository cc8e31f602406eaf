"""The interface file, the driver's calls and the skeleton agree: all three are compared with the vendor's rules for packing arguments."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest
from dsp_session import NEVER, SessionProgram, build_session, make_emulator, small_graph

from mace_core.deployment import Model
from mace_core.errors import MaceError
from mace_core.ir import DType, Graph, Tensor
from mace_core.testing.probe_program import generate_session
from mace_target_hexagon.interface import (
    FIRST_NUMBER,
    MAX_BUFFERS,
    list_methods,
    write_interface,
)
from mace_target_hexagon.options import HexagonOptions
from mace_target_hexagon.region import module_name

DECLARATION = re.compile(r"^  long (\w+)\((.*)\);$", re.MULTILINE)
PARAMETER = re.compile(r"(in|rout) (sequence<octet>|unsigned long) (\w+)")


@dataclass(frozen=True)
class Packed:
    """How qaic packs a method: the word that goes with a call, and the bytes of its primitive input and output.

    The rules, as its stubs in the FastRPC library show them: numbers that go in, and the length of every
    sequence, stand in one primitive input in the order of the parameters; numbers that come out in one primitive
    output; each sequence is a buffer of its own; without numbers there is no primitive buffer.
    """

    scalars: int
    words_in: int
    words_out: int

    @classmethod
    def of(cls, number: int, parameters: str) -> Packed:
        """Pack the parameters of an interface file."""
        listed = PARAMETER.findall(parameters)
        assert len(listed) == parameters.count(",") + 1, f"no parameters of the language: {parameters}"
        sequences = [mode for mode, kind, _ in listed if kind.startswith("sequence")]
        numbers = [mode for mode, kind, _ in listed if not kind.startswith("sequence")]
        words_in = len(sequences) + numbers.count("in") + (number >= 31)
        words_out = numbers.count("rout")
        inputs = sequences.count("in") + bool(words_in)
        outputs = sequences.count("rout") + bool(words_out)
        return cls(min(number, 31) << 24 | inputs << 16 | outputs << 8, words_in, words_out)


def read_interface(text: str) -> dict[str, Packed]:
    """Return the methods of an interface file by name, numbered as qaic numbers them."""
    assert "interface m_hexagon : remote_handle64 {" in text
    return {
        name: Packed.of(number, parameters)
        for number, (name, parameters) in enumerate(DECLARATION.findall(text), FIRST_NUMBER)
    }


@pytest.fixture(scope="module")
def interface() -> dict[str, Packed]:
    return read_interface(str(generate_session(small_graph(), "host+hexagon").files["m_hexagon.idl"]))


def test_the_interface_file_states_every_region(interface: dict[str, Packed]) -> None:
    assert list(interface) == ["load", "unload", "power", "hexagon0"]
    assert interface["load"] == Packed(0x02020100, 3, 5)
    assert interface["unload"] == Packed(0x03010000, 1, 0)
    assert interface["power"] == Packed(0x04010000, 3, 0)
    assert interface["hexagon0"] == Packed(0x05020200, 3, 0)


@pytest.mark.exhaustive
def test_the_driver_calls_what_the_interface_file_states(
    interface: dict[str, Packed], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The skeleton accepts nothing else, so that a run that goes well is the proof for both."""
    session: SessionProgram = build_session(
        small_graph(),
        tmp_path_factory.mktemp("session"),
        make_emulator(tmp_path_factory.mktemp("emulator")),
    )
    told = session.run(NEVER, 1, power=1)
    assert list(told.outputs) == session.expected()
    called: dict[int, int] = {}
    lines = [line for line in told.calls if not line.startswith(("vote", "thread", "vtcm"))]
    for line, following in pairwise(lines):
        if line.startswith("remote_handle64_invoke"):
            called[int(line.split()[1], 16)] = int(following.split()[1])
    assert called == {packed.scalars: 4 * packed.words_in for packed in interface.values()}


def test_far_methods_are_numbered_in_their_first_word() -> None:
    tensor = Tensor("x", DType.U8, (4,))
    regions = [(f"hexagon{i}", [tensor], [tensor]) for i in range(40)]
    packed = read_interface(str(write_interface("m_hexagon", list_methods(regions))))
    assert packed["hexagon25"] == Packed(30 << 24 | 0x020100, 2, 0)
    assert packed["hexagon26"] == Packed(31 << 24 | 0x020100, 3, 0)
    assert len(packed) == 43


def test_hostile_names_of_models_become_names_of_files() -> None:
    assert module_name('a"; rm -rf /') == "a___rm__rf___hexagon"
    assert module_name("8bit") == "net_8bit_hexagon"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"abi": "hexagon-v55"}, "abi: 'hexagon-v55' is not allowed; write hexagon-v66 or"),
        ({"region": "all"}, "'region' is no option of the target; did you mean 'regions'?"),
        ({"regions": "some"}, "regions: 'some' is not allowed"),
        ({"costs": {"call_us": -1}}, "costs: call_us: -1 is no positive number"),
        ({"costs": {"speed": 1}}, "costs: 'speed' is unknown"),
        ({"costs": 3}, "costs: 3 is no mapping"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, object], words: str) -> None:
    with pytest.raises(MaceError, match=re.escape(words)):
        HexagonOptions.of_model(Model("m", (Path("m.onnx"),), keys={"target_options": {"hexagon": options}}))


def test_a_region_with_more_tensors_than_a_call_passes_is_not_taken() -> None:
    from mace_target_hexagon.target import Hexagon

    many = tuple(f"x{i}" for i in range(MAX_BUFFERS + 1))
    assert Hexagon().worth(Graph("g", (), {}, {}, many[:-1], ("y",)))
    assert not Hexagon().worth(Graph("g", (), {}, {}, many, ("y",)))
    assert not Hexagon().worth(Graph("g", (), {}, {}, ("x",), many))
