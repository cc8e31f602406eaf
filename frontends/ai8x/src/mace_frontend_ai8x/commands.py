"""Runs the commands of `mace-ai8x`, whose syntax is in `cli`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mace_core.compilation import read_file
from mace_core.distributions import advise_install
from mace_core.errors import MaceError
from mace_core.registry import Registry
from mace_core.run.files import read_samples, write_all
from mace_frontend_ai8x.checkpoint import Clip, Settings, quantize_file
from mace_frontend_ai8x.described_model import DescribedModel
from mace_frontend_ai8x.description import parse, read_weight_bits
from mace_frontend_ai8x.targets import (
    DescribedTarget,
    TrainedModel,
    list_described_targets,
    load_described_target,
)


@dataclass(frozen=True)
class DescribedFiles:
    """Files that `mace-ai8x synthesize` reads.

    sample: None for the one of the data set that the description names.  model: the trained model that the
    description is compared with, in any format that MACE reads.
    """

    description: Path
    checkpoint: Path
    sample: Path | None = None
    model: Path | None = None


def write_project(folder: Path, device: str, arguments: Sequence[str], files: DescribedFiles) -> str:
    """Write the project of a described network; return the notes and the summary."""
    target = find_target(device)
    _check_files(files.description, files.checkpoint, *([files.sample] if files.sample else []))
    # Commands for the vendor's tool name no sample, and run unchanged.
    source = files.sample or default_sample(files.description)
    _check_files(source)
    described = DescribedModel(files.description, files.checkpoint, read_samples(str(source)))
    trained = None
    # Only this needs the other frontends, which take long to import.
    if files.model:
        trained = TrainedModel(files.model.name, read_file(files.model, Registry.load()))
    project = target.make_project(described, arguments, trained)
    write_all(folder, project.files)
    return "\n".join([*(f"note: {note}" for note in project.notes), project.summary, f"wrote {folder}"])


def find_target(device: str) -> type[DescribedTarget]:
    """Return the target of a device, by its name in any case; MaceError if none is installed."""
    # The vendor writes MAX78000, our targets are named in lower case.
    name = device.lower()
    target = load_described_target(name)
    if target is None:
        installed = ", ".join(sorted(list_described_targets())) or "none"
        remedy = advise_install("target", name) or f"name one of those that are installed: {installed}"
        raise MaceError("--device", f"no target for {device!r} is installed", remedy)
    return target


def default_sample(description: Path) -> Path:
    """Return the sample of the data set that a description names, where the vendor's tool looks for it.

    That is below the current folder.
    """
    parsed, faults = parse(description)
    faults.check()
    return Path("tests") / f"sample_{parsed.dataset.lower()}.npy"


def _check_files(*files: Path) -> None:
    """Raise a MaceError that names every file which is not there."""
    missing = ", ".join(str(file) for file in files if not file.is_file())
    if missing:
        raise MaceError(
            missing, "no such file", "correct the path, or run the command in the folder that paths begin in"
        )


@dataclass(frozen=True)
class QuantizeArguments:
    """Arguments of `mace-ai8x quantize`; None for what was not given."""

    config_file: Path | None = None
    clip_method: str | None = None
    scale: float | None = None
    stddev: float | None = None


def quantize_checkpoint(source: Path, target: Path, arguments: QuantizeArguments) -> None:
    """Write a quantized checkpoint."""
    settings = Settings()
    if arguments.clip_method:
        # Without the option the vendor's tool uses the largest power of two, as `Settings` does.
        settings = replace(settings, clip=Clip[arguments.clip_method])
    if arguments.scale is not None:
        settings = replace(settings, scale=arguments.scale)
    if arguments.stddev is not None:
        settings = replace(settings, deviations=arguments.stddev)
    if arguments.config_file:
        settings = replace(settings, bits=read_weight_bits(arguments.config_file))
    quantize_file(source, target, settings)
