"""What the commands of `mace-ai8x` do, without a word of the command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from mace_core.run.files import read_samples, write_all
from mace_target_max78000.build import built
from mace_target_max78000.checkpoint import Clip, Settings, description_bits, quantize_file
from mace_target_max78000.description import read_description
from mace_target_max78000.device import MAX78000, Device
from mace_target_max78000.frontend import parameters_of
from mace_target_max78000.options import Options


def device_named(name: str) -> Device:
    """The table of a part; the MAX78002's is in a distribution of its own."""
    if name.upper() == MAX78000.name:
        return MAX78000
    from importlib import import_module

    found: Device = import_module("mace_target_max78002.device").MAX78002
    return found


def write_project(folder: Path, arguments: Sequence[str], files: Mapping[str, Any]) -> str:
    """Write the project of a described network; gives the summary and the notes."""
    options, device = Options.of_arguments(arguments, "options"), device_named(files["device"])
    sample = read_samples(str(files["sample_input"]))
    network = read_description(files["config_file"], parameters_of(files["checkpoint_file"], files["config_file"]), sample, options)
    if files["model"]:
        from mace_target_max78000.beside import check_beside

        check_beside(network, files["model"], device)
    made = built(network, options, device)
    write_all(folder, made.files)
    return "\n".join([*(f"note: {note}" for note in (*network.notes, *made.notes)), made.summary, f"wrote {folder}"])


def quantize_checkpoint(source: Path, target: Path, how: Mapping[str, Any]) -> None:
    """Write a quantised checkpoint."""
    settings = Settings()
    if how["clip_method"]:
        settings = replace(settings, clip=Clip[how["clip_method"]])
    given = {"scale": how["scale"], "deviations": how["stddev"]}
    settings = replace(settings, **{name: value for name, value in given.items() if value is not None})
    if how["config_file"]:
        settings = replace(settings, bits=description_bits(how["config_file"]))
    quantize_file(source, target, settings)
