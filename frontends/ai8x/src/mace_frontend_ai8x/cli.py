"""Defines `mace-ai8x`: the vendor's three tools with their own arguments, without PyTorch.

A script that calls ai8xize.py, quantize.py or batchnormfuser.py works with `mace-ai8x synthesize`, `quantize`
or `fuse` instead.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click

from mace_core.errors import MaceError

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
NAMED = click.Path(path_type=Path)
"""A file that the command looks for itself, so that one message has all that are missing."""
DEVICE = click.option(
    "--device", default="MAX78000", show_default=True, help="Device whose target is installed."
)


def report_errors(command: Callable[..., Any]) -> Callable[..., Any]:
    """Return a command that prints a MaceError as one message and exits with status 2."""

    @wraps(command)
    def run_and_report(*args: Any, **kwargs: Any) -> Any:
        try:
            return command(*args, **kwargs)
        except MaceError as error:
            click.echo(f"mace-ai8x: {error}", err=True)
            sys.exit(2)

    return run_and_report


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="mace-frontend-ai8x", prog_name="mace-ai8x")
def main() -> None:
    """Turn ai8x descriptions and checkpoints into C projects for the vendor's accelerators."""


@main.command(context_settings={"ignore_unknown_options": True})
@DEVICE
@click.option(
    "--config-file", "description", type=NAMED, required=True, help="YAML description of the network."
)
@click.option(
    "--checkpoint-file",
    "checkpoint",
    type=NAMED,
    required=True,
    help="Checkpoint with the weights, quantized or not.",
)
@click.option(
    "--sample-input",
    "sample",
    type=NAMED,
    help="Sample data (.npy).  [default: tests/sample_DATASET.npy, as the description names it]",
)
@click.option(
    "--model",
    type=FILE,
    help="The trained model (ONNX, TFLite ...): the description is compared with it, layer by layer.",
)
@click.option(
    "--test-dir",
    type=click.Path(file_okay=False, path_type=Path),
    required=True,
    help="Folder that gets the project's folder.",
)
@click.option("--prefix", required=True, help="Name of the project and its folder.")
@click.option("--overwrite", is_flag=True, help="Write even where the folder exists.")
@click.argument("options", nargs=-1, type=click.UNPROCESSED)
@report_errors
def synthesize(
    test_dir: Path, prefix: str, overwrite: bool, device: str, options: tuple[str, ...], **files: Any
) -> None:
    """Write the C project of a described network; further OPTIONS are those of ai8xize.py."""
    # OpenBLAS reads it when numpy is imported, which happens below. Products are small here: threads would
    # wait for each other longer than they compute.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from mace_frontend_ai8x.commands import DescribedFiles, write_project

    folder = test_dir / prefix
    if folder.exists() and not overwrite:
        raise MaceError(folder, "exists", "give --overwrite, or another --prefix")
    # The target reads the prefix among the vendor's options, where it names files and functions.
    arguments = (*options, "--prefix", prefix)
    click.echo(write_project(folder, device, arguments, DescribedFiles(**files)))


@main.command()
@DEVICE
@click.argument("source", type=FILE)
@click.argument("target", type=click.Path(dir_okay=False, path_type=Path))
@click.option("-c", "--config-file", type=FILE, help="Description that states the bits of the weights.")
@click.option(
    "--clip-method",
    type=click.Choice(["AVG", "AVGMAX", "STDDEV", "SCALE"]),
    help="For models that were not trained for quantization.",
)
@click.option("--scale", type=float, help="Factor of the method SCALE.")
@click.option("--stddev", type=float, help="Standard deviations of the method STDDEV.")
@report_errors
def quantize(source: Path, target: Path, device: str, **arguments: Any) -> None:
    """Write a checkpoint with integer weights, as quantize.py does."""
    from mace_frontend_ai8x.commands import QuantizeArguments, quantize_checkpoint

    quantize_checkpoint(source, target, QuantizeArguments(**arguments))
    click.echo(f"wrote {target}")


@main.command()
@click.option(
    "-i", "--inp_path", "source", type=FILE, required=True, help="Checkpoint with batch normalization."
)
@click.option(
    "-o",
    "--out_path",
    "target",
    type=click.Path(dir_okay=False, path_type=Path),
    required=True,
    help="Checkpoint to write.",
)
@click.option("-oa", "--out_arch", "arch", help="Name of the model without batch normalization.")
@report_errors
def fuse(source: Path, target: Path, arch: str | None) -> None:
    """Fold batch normalization into weights and biases, as batchnormfuser.py does."""
    from mace_frontend_ai8x.checkpoint import fuse_file

    fuse_file(source, target, arch)
    click.echo(f"wrote {target}")


if __name__ == "__main__":
    main()
