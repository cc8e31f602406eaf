"""What the commands of `mace-ai8x` do, without a word of the command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from mace_core.errors import MaceError
from mace_core.run.files import read_samples, write_all
from mace_target_max78000.build import built
from mace_target_max78000.checkpoint import Clip, Settings, description_bits, quantize_file
from mace_target_max78000.description import parse, read_description
from mace_target_max78000.device import device_named
from mace_target_max78000.frontend import parameters_of
from mace_target_max78000.options import Options


def write_project(folder: Path, arguments: Sequence[str], files: Mapping[str, Any]) -> str:
    """Write the project of a described network; gives the summary and the notes."""
    options, device = Options.of_arguments(arguments, "options"), device_named(files["device"])
    _check_files(
        files["config_file"],
        files["checkpoint_file"],
        *([files["sample_input"]] if files["sample_input"] else []),
    )
    source = files["sample_input"] or default_sample(files["config_file"])
    _check_files(source)
    sample = read_samples(str(source))
    description, checkpoint = files["config_file"], files["checkpoint_file"]
    network = read_description(description, parameters_of(checkpoint, options), sample, options, device)
    if files["model"]:
        from mace_core.compilation import read_file
        from mace_core.registry import Registry
        from mace_target_max78000.beside import check_beside

        check_beside(network, files["model"].name, read_file(files["model"], Registry.load()), device)
    made = built(network, options, device)
    write_all(folder, made.files)
    return "\n".join(
        [*(f"note: {note}" for note in (*network.notes, *made.notes)), made.summary, f"wrote {folder}"]
    )


def default_sample(description: Path) -> Path:
    """The sample of the data set that a description names, where the vendor's tool looks for it: below the current folder."""
    found, faults = parse(description)
    faults.check()
    return Path("tests") / f"sample_{found.dataset.lower()}.npy"


def _check_files(*files: Path) -> None:
    """MaceError that names every file which is not there."""
    missing = ", ".join(str(file) for file in files if not file.is_file())
    if missing:
        raise MaceError(
            missing, "no such file", "correct the path, or run the command in the folder that paths begin in"
        )


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
