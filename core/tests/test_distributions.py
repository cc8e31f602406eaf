"""Advice about what to install names only distributions of ours, and those are listed right."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
import yaml

from mace_core.distributions import advise_install, read_distributions
from mace_core.registry import Registry

ROOT = Path(__file__).parents[2]
KINDS = ("plugins", "frontends", "targets", "toolchains")


def offered() -> dict[str, dict[str, list[str]]]:
    """What each distribution of the workspace brings, from the plugins themselves."""
    registry = Registry.load()
    files = [file for kind in KINDS for file in ROOT.glob(f"{kind}/*/pyproject.toml")]
    projects = [tomllib.loads(file.read_text())["project"] for file in files]
    # One without entry points is code that targets share: it comes with them, and nobody asks for it.
    ours = {project["name"] for project in projects if "entry-points" in project}
    listed: dict[str, dict[str, set[str]]] = {name: {} for name in ours}
    for (kind, name), plugin in registry.owners.items():
        if plugin.distribution not in ours or kind == "ops":
            continue
        offers = listed[plugin.distribution]
        if kind == "transforms":  # core knows phases, and no transform by name
            places = (registry.transforms[name], *registry.transforms[name].repeats)
            offers.setdefault("phase", set()).update(place.phase for place in places)
            continue
        offers.setdefault(kind[:-1], set()).add(name)
        if kind == "frontends":
            offers.setdefault("suffix", set()).update(registry.frontends[name].suffixes)
        if kind == "toolchains":
            offers.setdefault("abi", set()).update(registry.toolchains[name].abis)
    return {
        d: {kind: sorted(names) for kind, names in sorted(offers.items())}
        for d, offers in sorted(listed.items())
    }


def test_the_list_is_that_of_the_workspace() -> None:
    listed = {
        d: {kind: sorted(names) for kind, names in offers.items()}
        for d, offers in read_distributions().items()
    }
    expected = offered()
    assert listed == expected, "core/src/mace_core/distributions.yml should hold:\n" + yaml.safe_dump(
        expected
    )


@pytest.mark.parametrize(("kind", "name"), [("target", "mdla-pro"), ("frontend", "mace"), ("toolchain", "")])
def test_no_name_is_guessed(kind: str, name: str) -> None:
    assert advise_install(kind, name) is None


def test_what_is_ours_is_named() -> None:
    assert advise_install("target", "max78002") == "pip install mace-target-max78002"
    assert advise_install("suffix", ".onnx") == "pip install mace-frontend-onnx"


def test_an_abi_of_several_toolchains_is_advised_from_the_package_index() -> None:
    """zig needs nothing but pip; an NDK or a cross compiler has to be fetched from elsewhere as well."""
    zig = {
        abi
        for d, offers in read_distributions().items()
        if d == "mace-toolchain-zig"
        for abi in offers["abi"]
    }
    assert all(advise_install("abi", abi) == "pip install mace-toolchain-zig" for abi in zig if abi != "host")
