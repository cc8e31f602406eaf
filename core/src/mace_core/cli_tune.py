"""The command `mace tune`."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import click

from mace_core.cli_options import DEVICE, FILE, JSON, TARGET, THREADS, exit_on_error, print_result
from mace_core.errors import MaceError

INTERRUPTED = 130
"""The exit status after an interrupt, as shells have it: 128 and the number of the signal."""

SUFFIXES = (".yml", ".yaml")
"""Of what somebody names who expects one file: a folder of that name would be a surprise."""


@click.command()
@FILE
@TARGET
@THREADS
@JSON
@DEVICE
@click.option(
    "--seconds",
    default=60,
    show_default=True,
    type=click.IntRange(1, 86400),
    help="How long each model's candidates are built, and as long measured; those left over are named.",
)
@click.option(
    "--output",
    default=".",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder of the tuning files, MODEL.tuning.yml; made where it is missing.",
)
@exit_on_error
def tune(
    deployment: Path, target: str, threads: int, as_json: bool, device: str, seconds: int, output: Path
) -> None:
    """Measure the candidates for each node on the device, and write tuning files of those that are faster."""
    from mace_core.commands import load_job
    from mace_core.run.files import make_folder
    from mace_core.run.tables import show_tuning
    from mace_core.run.tune import TuningFolders, tune_model
    from mace_core.run.tuning_job import TuningJob

    parsed, choice, registry = load_job(deployment, target)
    job = TuningJob(parsed, choice, registry, device, seconds, threads)
    if output.suffix in SUFFIXES and not output.is_dir():
        problem = "is a file's name, and each model gets a file of its own"
        raise MaceError(f"--output {output}", problem, "name the folder for MODEL.tuning.yml")
    make_folder(output)
    results = []
    # On the standard error, where it does not mix with the result.
    with (
        tempfile.TemporaryDirectory() as folder,
        click.progressbar(length=len(parsed.models), label="tuning", file=sys.stderr) as bar,
    ):

        def show_step(text: str) -> None:
            bar.label = text
            bar.render_progress()

        for model in parsed.models:
            results.append(tune_model(job, model, TuningFolders(Path(folder), output), show_step))
            bar.update(1)
            if results[-1].is_interrupted:
                break
    print_result([result.as_json() for result in results], show_tuning(results), as_json)
    if results[-1].is_interrupted:
        click.get_current_context().exit(INTERRUPTED)
