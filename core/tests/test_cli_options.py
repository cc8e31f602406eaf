"""What commands print."""

from __future__ import annotations

import pytest

from mace_core.cli_options import parse_input, print_result
from mace_core.errors import MaceError


def test_a_result_is_for_programs_or_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    print_result({"n": [1]}, "one\n", as_json=True)
    assert capsys.readouterr().out == '{\n "n": [\n  1\n ]\n}\n'
    print_result({"n": [1]}, "one\n", as_json=False)
    assert capsys.readouterr().out == "one\n"


def test_an_input_is_a_name_and_a_file() -> None:
    assert parse_input("x=a=b.npy") == ("x", "a=b.npy")
    with pytest.raises(MaceError) as error:
        parse_input("x.npy")
    assert (
        str(error.value) == "--input: 'x.npy' is not of the form NAME=FILE; write for example --input x=x.npy"
    )
