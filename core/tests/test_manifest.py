"""Manifests: what contradicts itself is refused with the manifest's name; shares join into one library."""

from __future__ import annotations

from pathlib import Path

import pytest

from mace_core.emit import code
from mace_core.errors import PluginError
from mace_core.manifest import Manifest, Product, Unit
from mace_target_cpu import Cpu

DRIVER = Path(__file__)


def driver(**changes: object) -> Manifest:
    fields: dict[str, object] = {
        "copies": {"acme_driver.c": DRIVER, "acme.h": DRIVER},
        "units": (Unit("acme_driver.c", ("-DACME",), ("acme.h",)),),
        "includes": (".", "acme"),
        "libraries": ("dl",),
        "loads": {"libAcme.so": "install the driver of Acme"},
        "drivers": ("acme_driver",),
    }
    return Manifest("vision", **{**fields, **changes})  # type: ignore[arg-type]


def build_manifest() -> Manifest:
    return code.manifest("vision", ["a", "b"], {"cpu": Cpu().levels("host")})


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"units": (Unit("absent.c"),)}, "'absent.c', which is not among its files"),
        (
            {"generated": ("x.c",), "units": (Unit("x.c", reads=("absent.h",)),)},
            "'absent.h', which is not among its files",
        ),
        ({"headers": ("absent.h",)}, "'absent.h', which is not among its files"),
        ({"linker_script": "absent.ld"}, "'absent.ld', which is not among its files"),
        ({"deploys": ("absent.bin",)}, "'absent.bin', which is not among its files"),
        ({"generated": ("x.c", "X.c")}, "'X.c' twice"),
        ({"generated": ("x.c",), "copies": {"x.c": DRIVER}}, "'x.c' twice"),
        (
            {"generated": ("x.c", "x.S"), "units": (Unit("x.c"), Unit("x.S"))},
            "two units for the object 'x.o'",
        ),
        ({"generated": ("../x.c",)}, "does not lie in the folder"),
        ({"generated": ("/x.c",)}, "does not lie in the folder"),
        ({"includes": ("a/../..",)}, "does not lie in the folder"),
    ],
)
def test_contradictions_are_refused_with_the_name(fields: dict[str, object], problem: str) -> None:
    with pytest.raises(PluginError, match="manifest 'vision'") as error:
        Manifest("vision", **fields)  # type: ignore[arg-type]
    assert problem in str(error.value)


def test_shares_join_into_one_library() -> None:
    library = build_manifest().join([driver(), driver()])
    assert library.name == "vision"
    assert library.joins_library
    assert library.generated == build_manifest().generated
    assert set(library.copies) == {"acme_driver.c", "acme.h"}
    assert [unit.source for unit in library.units].count("acme_driver.c") == 1
    assert library.includes == (".", "acme")
    assert library.libraries == ("dl",)
    assert library.loads == {"libAcme.so": "install the driver of Acme"}
    assert library.drivers == ("acme_driver",)


@pytest.mark.parametrize(
    ("other", "problem"),
    [
        (
            driver(copies={"acme_driver.c": DRIVER.parent, "acme.h": DRIVER}),
            "has a file 'acme_driver.c', as 'vision' has",
        ),
        (driver(units=(Unit("acme_driver.c"),)), "compiles 'acme_driver.c' otherwise"),
        (driver(copies={"mace.h": DRIVER}, units=()), "has a file 'mace.h', as 'vision' has"),
        (driver(generated=("vision.c",), copies={}, units=()), "has a file 'vision.c', as 'vision' has"),
    ],
)
def test_shares_that_disagree_about_a_file_are_refused(other: Manifest, problem: str) -> None:
    with pytest.raises(PluginError) as error:
        build_manifest().join([driver(), other])
    assert problem in str(error.value)


def test_every_unit_of_a_library_says_how_it_is_compiled() -> None:
    """Flags, headers and embedded files stand in the manifest, so that nobody concludes them from a file's name."""
    units = {unit.source: unit for unit in build_manifest().units}
    for level in Cpu().levels("host"):
        assert units[f"vision_cpu_kernels_{level.name}.c"].flags == ("-O3", *level.flags)
    assert units["vision.c"].flags == units["vision_a_program.c"].flags == ("-Os",)
    assert "vision_cpu_kernels.h" in units["vision_a_program.c"].reads
    assert units["vision_a_weights.S"].embeds == ("vision_a_weights.bin",)
    assert set(build_manifest().generated) == {
        *(*units, *code.HEADERS, "vision.h", "vision_cpu_kernels.h"),
        *("vision_a_weights.bin", "vision_b_weights.bin"),
    }


def test_only_libraries_of_the_own_abi_join() -> None:
    assert not Manifest("x", Product.PROGRAM).joins_library
    assert not Manifest("x", abi="cortex-m4").joins_library
