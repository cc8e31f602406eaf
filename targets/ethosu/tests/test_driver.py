"""The driver against a stub of the vendor's, under sanitizers: whole and damaged parts, and failing calls."""

from __future__ import annotations

import shutil
import subprocess
from importlib.resources import files
from pathlib import Path

import pytest

from mace_core.testing.requirements import require
from mace_target_ethosu.payload import encode_network
from mace_target_ethosu.vela import CompiledNetwork, Place

STUB = Path(__file__).parent / "stub"
DRIVER = Path(str(files("mace_target_ethosu"))) / "driver/mace_ethosu_driver.c"
RUNTIME = Path(str(files("mace_core"))) / "runtime"
NETWORK = CompiledNetwork(
    stream=b"COP1" + bytes(range(28)),
    weights=bytes(80),
    weight_region=0,
    scratch_region=1,
    scratch_bytes=64,
    fast_region=2,
    fast_bytes=48,
    inputs=(Place(1, 0, 32),),
    outputs=(Place(1, 32, 32),),
    figures={},
)
"""A network with faster memory beside its arena; not a number in it is Vela's."""


@pytest.mark.slow
@pytest.mark.parametrize("missing", ["", "WITHOUT_ASYNC", "WITHOUT_VENDOR"])
def test_every_call_ends_with_a_status(missing: str, tmp_path: Path) -> None:
    """missing: what the vendor's driver lacks: nothing, runs in flight as old ones do, or everything."""
    require(None if shutil.which("gcc") else "gcc is not installed")
    encoded = encode_network(NETWORK, "test")
    (tmp_path / "code").write_bytes(encoded.code)
    (tmp_path / "weights").write_bytes(encoded.weights)
    sources = [
        STUB / "driver_test.c",
        DRIVER,
        *([STUB / "ethosu_stub.c"] if missing != "WITHOUT_VENDOR" else []),
    ]
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-g", f"-I{RUNTIME}"]
    flags += ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    flags += [f"-D{missing}"] if missing else []
    subprocess.run(["gcc", *flags, *sources, "-o", tmp_path / "driver_test"], check=True)
    done = subprocess.run(
        [tmp_path / "driver_test", tmp_path / "code", tmp_path / "weights"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr


def test_the_driver_needs_no_symbol_of_the_vendor_and_no_library(tmp_path: Path) -> None:
    nm = shutil.which("nm")
    require(None if shutil.which("gcc") and nm else "gcc or nm is not installed")
    flags = ["-std=c11", "-O1", "-fno-pic", f"-I{RUNTIME}"]
    subprocess.run(["gcc", *flags, "-c", DRIVER, "-o", tmp_path / "driver.o"], check=True)
    listed = subprocess.run(
        [str(nm), "-u", tmp_path / "driver.o"], capture_output=True, text=True, check=True
    )
    kinds = {line.split()[1]: line.split()[0] for line in listed.stdout.splitlines()}
    vendor = {name: kind for name, kind in kinds.items() if name.startswith("ethosu_")}
    assert set(vendor) == {
        "ethosu_get_driver_version",
        "ethosu_invoke_async",
        "ethosu_invoke_v3",
        "ethosu_release_driver",
        "ethosu_reserve_driver",
        "ethosu_wait",
    }
    assert set(vendor.values()) == {"w"}, "only weak symbols may be the vendor's"
    assert set(kinds) - set(vendor) <= {"memcmp", "memcpy", "memset"}
