"""The `mace` command."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mace_core.cli_benchmark import benchmark
from mace_core.cli_options import (
    BUILDS,
    DEVICE,
    FILE,
    JSON,
    NO_FALLBACK,
    PASSES,
    RESET,
    TARGET,
    THREADS,
    echo,
    exit_on_error,
    parse_input,
    print_result,
)
from mace_core.cli_tune import tune
from mace_core.errors import MaceError
from mace_core.failure import print_plugin_warnings
from mace_core.progress import show_progress

if TYPE_CHECKING:
    from mace_core.run.results import Failure, LayerComparison, Validation

    Result = Validation | LayerComparison | Failure


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="mace-core", prog_name="mace")
def main() -> None:
    """Turn trained networks into small, fast native libraries."""
    show_progress()
    print_plugin_warnings()


@main.command()
@click.argument("files", metavar="MODEL [WEIGHTS]", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The file to write. Default: MODEL.yml in the current folder.",
)
@click.option(
    "--shape",
    "shapes",
    multiple=True,
    metavar="NAME=1,2,3",
    help="Shape of an input whose shape the model file leaves open; may be repeated.",
)
@click.option("--platform", help="The model's framework, if the suffix of the file does not determine it.")
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
@exit_on_error
def init(
    files: tuple[Path, ...], output: Path | None, shapes: tuple[str, ...], platform: str | None, force: bool
) -> None:
    """Write a deployment file with every input and output of a model."""
    from mace_core.new_deployment import InitRequest, parse_shapes, write_deployment
    from mace_core.registry import Registry

    if len(files) > 2:
        raise MaceError(
            files[2],
            "too many files",
            "give the model file, and the file of its weights if it is a separate one",
        )
    request = InitRequest(
        files, output or Path(f"{files[0].stem}.yml"), parse_shapes(shapes), platform, force
    )
    for line in write_deployment(request, Registry.load()):
        echo(line)


@main.command()
@FILE
@TARGET
@JSON
@click.option(
    "--output",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for the sources.",
)
@NO_FALLBACK
@exit_on_error
def convert(deployment: Path, target: str, as_json: bool, output: Path, no_fallback: bool) -> None:
    """Write the C sources of a deployment, without compiling them."""
    from mace_core.commands import convert_files

    converted = convert_files(deployment, target, output, no_fallback)
    lines = [*(f"note: {note}" for note in converted.notes), *map(str, converted.files)]
    print_result(
        {"notes": converted.notes, "files": list(map(str, converted.files))},
        "".join(f"{line}\n" for line in lines),
        as_json,
    )


@main.command()
@FILE
@TARGET
@BUILDS
@click.option(
    "--jobs", default=2, show_default=True, type=click.IntRange(1), help="Number of compilers to run at once."
)
@NO_FALLBACK
@exit_on_error
def build(deployment: Path, target: str, builds: Path, jobs: int, no_fallback: bool) -> None:
    """Build the library of a deployment file: sources, static and shared library, programs."""
    from mace_core.run.scons_command import build_library

    sys.exit(build_library(deployment, target, builds, jobs, no_fallback))


@main.command()
@FILE
@TARGET
@BUILDS
@THREADS
@click.option("--model", default="", help="Model of the deployment. Default: the first.")
@JSON
@click.option(
    "--input",
    "inputs",
    multiple=True,
    metavar="NAME=FILE.npy",
    help="Data of an input; may be repeated. Default: the validation data of the deployment.",
)
@click.option(
    "--output", required=True, type=click.Path(file_okay=False, path_type=Path), help="Folder for OUTPUT.npy."
)
@RESET
@DEVICE
@exit_on_error
def run(
    deployment: Path,
    target: str,
    builds: Path,
    threads: int,
    model: str,
    as_json: bool,
    inputs: tuple[str, ...],
    output: Path,
    reset: int,
    device: str,
) -> None:
    """Run a built model on data from files, sample by sample in one session."""
    from mace_core.commands import BuiltModels, run_model
    from mace_core.run.tables import show_devices

    models = BuiltModels(deployment, target, builds, model, threads, device)
    result = run_model(models, dict(map(parse_input, inputs)), output, reset=reset)
    print_result(
        {name: str(path) for name, path in result.files.items()},
        "".join(f"{name}: {path}\n" for name, path in result.files.items()),
        as_json,
    )
    # On the standard error, where it does not mix with the files.
    click.echo(show_devices("", result.devices), nl=False, err=True)


@main.command()
@FILE
@TARGET
@BUILDS
@THREADS
@JSON
@click.option("--model", default="", help="Model of the deployment. Default: all.")
@click.option("--layers", is_flag=True, help="Compare every layer, and name the first that is wrong.")
@DEVICE
@exit_on_error
def validate(
    deployment: Path,
    target: str,
    builds: Path,
    threads: int,
    as_json: bool,
    model: str,
    layers: bool,
    device: str,
) -> None:
    """Compare a built library with the deployment's stored outputs, or with the model's own framework."""
    from mace_core.commands import BuiltModels, validate_layers, validate_library
    from mace_core.run.results import Failure
    from mace_core.run.tables import show_layers, show_validations

    models = BuiltModels(deployment, target, builds, model, threads, device)
    if layers:
        rows = validate_layers(models)
        text = show_layers([row for row in rows if not isinstance(row, Failure)])
        results: Sequence[Result] = rows
    else:
        compared = validate_library(models)
        text = show_validations([row for row in compared if not isinstance(row, Failure)])
        results = compared
    print_result([result.as_json() for result in results], text, as_json)
    problems = [result.problem for result in results if isinstance(result, Failure)]
    if problems:
        raise MaceError.of(problems)
    if not all(result.passed for result in results):
        sys.exit(1)


@main.command()
@click.argument("deployment", required=False, type=click.Path(dir_okay=False, path_type=Path))
@TARGET
@JSON
@NO_FALLBACK
@PASSES
@exit_on_error
def explain(deployment: Path | None, target: str, as_json: bool, no_fallback: bool, passes: bool) -> None:
    """Show which target and kernel computes each node, why others refused it, and the memory needed."""
    if passes:
        _explain_passes(deployment, as_json)
        return
    if deployment is None:
        raise click.UsageError("Missing argument 'DEPLOYMENT'; only --passes works without it.")
    from mace_core.commands import explain_deployment
    from mace_core.explain import show_explanations

    models = explain_deployment(deployment, target, no_fallback)
    print_result([model.as_json() for model in models], show_explanations(models), as_json)


def _explain_passes(deployment: Path | None, as_json: bool) -> None:
    if deployment is not None:
        raise click.UsageError("--passes takes no deployment file: the order is the same for all models.")
    from mace_core.explain_passes import passes_as_json, show_passes
    from mace_core.registry import Registry

    registry = Registry.load()
    print_result(passes_as_json(registry), show_passes(registry), as_json)


@main.command()
@FILE
@TARGET
@JSON
@click.option(
    "--soc", default="", metavar="NAME[,NAME...]", help="Compare these chips, as the target names them."
)
@click.option("--model", default="", help="Name of one model. Default: all.")
@click.option(
    "--diff", type=click.Path(path_type=Path), help="Compare with the plan that a vendor's compiler printed."
)
@exit_on_error
def lint(deployment: Path, target: str, as_json: bool, soc: str, model: str, diff: Path | None) -> None:
    """Show what a target would take, by which units, at what cost, and why not the rest. Build nothing."""
    from mace_core.lint_run import LintRequest, compare_with_plan, lint_deployment
    from mace_core.lint_tables import show_comparison, show_reports

    socs = tuple(dict.fromkeys(name.strip() for name in soc.split(",") if name.strip()))
    request = LintRequest(deployment, target, socs, model)
    if diff is not None:
        comparison = compare_with_plan(request, diff)
        print_result(comparison.as_json(), show_comparison(comparison), as_json)
        return
    reports = lint_deployment(request)
    print_result([report.as_json() for report in reports], show_reports(reports), as_json)


@main.command()
@FILE
@TARGET
@JSON
@NO_FALLBACK
@click.option("--strict", is_flag=True, help="Fail where the file has keys that have no effect, or none yet.")
@exit_on_error
def check(deployment: Path, target: str, as_json: bool, no_fallback: bool, strict: bool) -> None:
    """Check a deployment file, its models and the toolchain. Report all faults at once and write nothing."""
    from mace_core.commands import check_deployment

    findings = []
    for finding in check_deployment(deployment, target, no_fallback, strict):
        findings.append(finding.as_json())
        if not as_json:
            echo(str(finding))
    if as_json:
        echo(json.dumps(findings, indent=1))


@main.command()
@JSON
@exit_on_error
def matrix(as_json: bool) -> None:
    """List every --target that can be built on this machine; --json for a CI matrix."""
    from mace_core.registry import Registry

    choices = Registry.load().matrix()
    print_result({"target": choices}, "".join(f"{choice}\n" for choice in choices), as_json)


@main.command()
@click.option("--target", default="", help="Check only these ABIs and targets. Default: all.")
@JSON
@exit_on_error
def doctor(target: str, as_json: bool) -> None:
    """Show what is missing for each ABI and target, with the command that installs it.

    Exit status 1 if anything is missing.
    """
    from mace_core.doctor import examine, list_missing, show_findings
    from mace_core.registry import Registry

    findings = examine(Registry.load(), target)
    print_result([asdict(finding) for finding in findings], show_findings(findings), as_json)
    if list_missing(findings):
        sys.exit(1)


@main.command()
@JSON
@exit_on_error
def plugins(as_json: bool) -> None:
    """List the installed plugins and what they offer."""
    from mace_core.commands import list_plugins, show_plugins

    installed = list_plugins()
    print_result([asdict(plugin) for plugin in installed], show_plugins(installed), as_json)


@main.command()
@exit_on_error
def schema() -> None:
    """Print the JSON Schema of the deployment file, for editors."""
    from mace_core.deployment import schema_text

    echo(schema_text())


@main.command("new")
@click.argument("kind", type=click.Choice(["frontend", "transform", "target", "toolchain"]))
@click.argument("name")
@click.option(
    "--kind",
    "hardware",
    default="",
    help="Kind of a target: cpu (default), device, blob or project; see docs/tutorial-target.md.",
)
@click.option(
    "--output",
    default=".",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder in which to create it.",
)
@exit_on_error
def new_plugin(kind: str, name: str, hardware: str, output: Path) -> None:
    """Create a plugin that installs, loads and passes its contract tests."""
    from mace_core.scaffold import write_plugin

    folder = write_plugin(kind, name, output, hardware).resolve()
    # uv's environments have no pip of their own, and the pip that is found then is another Python's.
    has_pip = find_spec("pip") is not None
    install = f"{sys.executable} -m pip install" if has_pip else f"uv pip install --python {sys.executable}"
    echo(f"wrote {folder}; next: {install} -e '{folder}[test]' && {sys.executable} -m pytest {folder}")


main.add_command(benchmark)
main.add_command(tune)

if __name__ == "__main__":
    main()
