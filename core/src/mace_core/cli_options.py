"""Arguments and options that several commands have, and how commands print and fail."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click

from mace_core.errors import MaceError
from mace_core.failure import report_failure
from mace_core.terminal import escape_controls

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
DEVICE = click.option(
    "--device",
    default="",
    help="The device that must compute: a part of its name, or what else its driver takes, such as gpu. "
    "Default: any.",
)
ROUNDS = click.option(
    "--rounds", default=50, show_default=True, type=click.IntRange(1), help="Number of timed runs."
)
OPERATORS = click.option(
    "--op",
    "operators",
    is_flag=True,
    help="Time every operator, beside the multiply-adds and bytes that one core can do at its level.",
)
AGAINST_FRAMEWORK = click.option(
    "--against-framework",
    is_flag=True,
    help="Time the library and the model's own framework alternately in one process, one thread each.",
)
PASSES = click.option(
    "--passes",
    is_flag=True,
    help="Show the order in which the installed transforms run, and why. Takes no file.",
)
RESET = click.option(
    "--reset",
    default=0,
    type=click.IntRange(0),
    metavar="N",
    help="Give states their start values again after every N samples. Default: never.",
)

Command = Callable[..., Any]


def exit_on_error(command: Command) -> Command:
    """Make a command report errors as one message, without a traceback.

    Exit status 2 for a mistake of the user, 3 for a defect of MACE or a plugin.
    """

    @wraps(command)
    def run_command(*args: Any, **kwargs: Any) -> Any:
        try:
            return command(*args, **kwargs)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except Exception as error:  # noqa: BLE001  # last resort: users get one message whatever happened
            sys.exit(report_failure(error))

    return run_command


def echo(text: str, nl: bool = True) -> None:
    """Print text with control characters escaped: names in models, files and URLs may contain them."""
    click.echo(escape_controls(text), nl=nl)


def print_result(result: object, text: str, as_json: bool) -> None:
    """Print a result for programs, or its text for people."""
    echo(json.dumps(result, indent=1) if as_json else text, nl=as_json)


def parse_input(text: str) -> tuple[str, str]:
    """Return name and file of an option NAME=FILE; MaceError for another form."""
    name, equals, file = text.partition("=")
    if not equals:
        raise MaceError(
            "--input", f"{text!r} is not of the form NAME=FILE", "write for example --input x=x.npy"
        )
    return name, file
