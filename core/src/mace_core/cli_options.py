"""Arguments and options that several commands have."""

from __future__ import annotations

from pathlib import Path

import click

FILE = click.argument("deployment", type=click.Path(dir_okay=False, path_type=Path))
JSON = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON for programs instead of a table for people."
)
TARGET = click.option(
    "--target",
    default="",
    help="ABI[+TARGET...], see `mace matrix`. Default: target_abis of the deployment file.",
)
BUILDS = click.option(
    "--builds", default="builds", show_default=True, type=click.Path(path_type=Path), help="Output folder."
)
NO_FALLBACK = click.option(
    "--no-fallback",
    "no_fallback",
    is_flag=True,
    help="Fail, with the reasons, if a node would run on a target that was not named.",
)
THREADS = click.option(
    "--threads", default=1, show_default=True, type=click.IntRange(1, 256), help="Worker threads."
)
