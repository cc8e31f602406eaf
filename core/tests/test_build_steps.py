"""Steps of a build: a driver's sources go into the library, code for another ABI beside it, a program instead of it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from mace_core.api import BlobBody, Compiler, Part, PartPort
from mace_core.build_manifest import RUNTIME, check_drivers, collect_manifests, list_copies
from mace_core.build_steps import Variant, _merge_headers, common_steps, plan_variant
from mace_core.deployment import Model, load_deployment
from mace_core.errors import MaceError, PluginError
from mace_core.ir import DType, Graph, Tensor
from mace_core.job import Job
from mace_core.manifest import Manifest, Product, Unit
from mace_core.plan import make_plan
from mace_core.registry import Registry
from mace_core.step import BuildPlace, Step, _copy
from mace_core.testing.requirements import require
from mace_target_cpu import Cpu

DIGITS = Path(__file__).parents[2] / "models/digits/digits.yml"


class Acme(Cpu):
    """The kernels of the CPU with additions to the build."""

    name = "acme"
    device = "acme"

    def __init__(self, *manifests: Manifest) -> None:
        self.added = manifests

    def manifests(self, library: str, models: Sequence[Model], abi: str) -> tuple[Manifest, ...]:
        return self.added


def job(*manifests: Manifest) -> tuple[Job, Registry]:
    registry = Registry.load()
    registry = replace(registry, targets={**registry.targets, "acme": Acme(*manifests)})
    registry = replace(
        registry, owners={**registry.owners, ("targets", "acme"): registry.owner("targets", "cpu")}
    )
    return Job(load_deployment(DIGITS), registry.select("host+acme")[0]), registry


def plan(folder: Path, *manifests: Manifest) -> Variant:
    return plan_variant(BuildPlace(DIGITS, folder, "shown", {"PATH": "/usr/bin:/bin"}), *job(*manifests))


def step_of(variant: Variant, product: str) -> Step:
    (found,) = (step for step in variant.steps if product in step.products)
    return found


def words(step: Step) -> list[str]:
    return step.signature.split("\0")


def source(folder: Path, name: str, text: str) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(text)
    return folder / name


def driver(folder: Path) -> Manifest:
    copies = {
        "acme.c": source(folder, "acme.c", '#include "acme.h"\n'),
        "acme.h": source(folder, "acme.h", "extern int acme;\n"),
    }
    return Manifest(
        "digits",
        copies=copies,
        units=(Unit("acme.c", ("-DACME=1",), ("acme.h",)),),
        libraries=("dl",),
        loads={"libAcme.so": "install Acme's driver"},
        drivers=("acme_driver",),
    )


def test_a_driver_is_compiled_into_the_library(tmp_path: Path) -> None:
    variant = plan(tmp_path / "out", driver(tmp_path / "plugin"))
    compiled = step_of(variant, "obj/host+acme/acme.o")
    assert "-DACME=1" in words(compiled)
    assert {"gen/host+acme/acme.c", "gen/host+acme/acme.h"} <= {*compiled.sources}
    assert "obj/host+acme/acme.o" in step_of(variant, "lib/host+acme/libdigits.a").sources
    for product in ("lib/host+acme/libdigits.so", "bin/host+acme/mace_run"):
        assert "-ldl" in words(step_of(variant, product))
    package = step_of(variant, "lib/host+acme/pkgconfig/digits.pc").signature
    assert "Libs.private: -ldl -lm -pthread" in package
    assert "# Looks for libAcme.so at run time; where it is missing: install Acme's driver" in package
    step_of(variant, "gen/host+acme/acme.h").run(print)
    assert (tmp_path / "out/gen/host+acme/acme.h").read_text() == "extern int acme;\n"


def test_without_a_driver_nothing_of_one_is_compiled(tmp_path: Path) -> None:
    variant = plan(tmp_path)
    assert variant.library is not None
    assert variant.library.drivers == ()
    units = {unit.source for unit in variant.library.units}
    assert not any("engine" in unit or "driver" in unit for unit in units)


@pytest.mark.parametrize("unit", ["mace_threads", "mace_run", "mace_benchmark"])
def test_what_comes_with_every_library_is_compiled_before_any_model_is(unit: str, tmp_path: Path) -> None:
    variant = plan(tmp_path)
    compiled = step_of(variant, f"obj/host+acme/{unit}.o")
    generated = step_of(variant, "model/host+acme.json").products
    assert "gen/host+acme/digits.h" in generated
    assert not {*compiled.sources} & {*generated}
    for source_file in compiled.sources:
        step_of(variant, source_file).run(print)
    (tmp_path / "obj/host+acme").mkdir(parents=True)
    compiled.run(print)
    assert (tmp_path / f"obj/host+acme/{unit}.o").stat().st_size


def test_what_is_written_for_a_model_is_compiled_after_it(tmp_path: Path) -> None:
    compiled = step_of(plan(tmp_path), "obj/host+acme/digits.o")
    assert "gen/host+acme/digits.h" in compiled.sources


def test_code_for_another_abi_is_compiled_by_its_toolchain_and_lies_beside_the_library(
    tmp_path: Path,
) -> None:
    registry = Registry.load()
    require(registry.toolchains["gnu"].missing("arm64"))
    helper = source(tmp_path / "plugin", "helper.c", "int main(void) { return 7; }\n")
    program = Manifest(
        "acme_helper", Product.PROGRAM, copies={"helper.c": helper}, units=(Unit("helper.c"),), abi="arm64"
    )
    shared = Manifest(
        "acme_dsp", copies={"dsp.c": helper}, units=(Unit("dsp.c", ("-Dmain=run",)),), abi="arm64"
    )
    variant = plan(tmp_path / "out", program, shared)
    (tmp_path / "out").mkdir()
    compiler = registry.find_toolchain("arm64").compiler("arm64")
    assert words(step_of(variant, "obj/host+acme/arm64/helper.o"))[0] == compiler.cc[0]
    results = [
        "lib/host+acme/acme_helper",
        "lib/host+acme/libacme_dsp.so",
        "bin/host+acme/acme_helper",
        "bin/host+acme/libacme_dsp.so",
    ]
    for product in (
        "gen/host+acme/helper.c",
        "gen/host+acme/dsp.c",
        "obj/host+acme/arm64/helper.o",
        "obj/host+acme/arm64/dsp.o",
        *results,
    ):
        (tmp_path / "out" / product).parent.mkdir(parents=True, exist_ok=True)
        step_of(variant, product).run(print)
    assert all((tmp_path / "out" / product).read_bytes()[:4] == b"\x7fELF" for product in results)
    if emulator := shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static"):
        assert subprocess.run([emulator, tmp_path / "out" / results[2]], check=False).returncode == 7
    assert variant.library is not None
    assert "obj/host+acme/arm64/helper.o" not in step_of(variant, "lib/host+acme/libdigits.a").sources


def test_a_program_that_holds_every_model_takes_the_place_of_the_library(tmp_path: Path) -> None:
    (model,) = load_deployment(DIGITS).models
    main = Unit("digits/main.c", reads=("digits/app.h",))
    program = Manifest(
        "digits.elf",
        Product.PROGRAM,
        generated=("digits/main.c", "digits/app.h", "digits/link.ld"),
        units=(main,),
        includes=("digits",),
        linker_script="digits/link.ld",
        holds=(model.name,),
    )
    variant = plan(tmp_path, program)
    assert variant.library is None
    assert variant.manifests == (program,)
    assert variant.shown_folder == "shown/bin/host+acme"
    linked = step_of(variant, "bin/host+acme/digits.elf")
    assert words(linked)[words(linked).index("-T") + 1] == "gen/host+acme/digits/link.ld"
    compiled = step_of(variant, "obj/host+acme/digits/main.o")
    assert "-Igen/host+acme/digits" in words(compiled)
    assert "gen/host+acme/digits/app.h" in compiled.sources
    assert common_steps(variant.place, [variant]) == []


def test_a_model_that_no_program_holds_stays_in_the_library(tmp_path: Path) -> None:
    held = Manifest(
        "other.elf", Product.PROGRAM, generated=("other.c",), units=(Unit("other.c"),), holds=("other",)
    )
    work, registry = job(held)
    models = (*work.deployment.models, replace(work.deployment.models[0], name="other"))
    work = Job(replace(work.deployment, models=models), work.choice)
    library = next(manifest for manifest in collect_manifests(work, registry) if manifest.joins_library)
    assert any("digits_digits_program.c" in unit.source for unit in library.units)
    assert not any("other" in unit.source for unit in library.units)


def test_two_products_of_one_name_or_file_are_refused() -> None:
    one = Manifest("tool", Product.PROGRAM, generated=("a.c",), units=(Unit("a.c"),))
    faults = {
        "two products have this name": replace(one, generated=("b.c",), units=(Unit("b.c"),)),
        "is a file of 'tool' as well": replace(one, name="other"),
        "'mace_run.c' is a copy of two files": replace(
            one, name="other", generated=(), copies={"mace_run.c": DIGITS}, units=()
        ),
        "'mace_run.c' is compiled in two ways": replace(
            one,
            name="other",
            generated=(),
            copies={"mace_run.c": RUNTIME / "mace_run.c"},
            units=(Unit("mace_run.c"),),
        ),
    }
    for problem, other in faults.items():
        with pytest.raises(PluginError, match=problem):
            collect_manifests(*job(one, other))


def test_an_abi_that_nothing_compiles_for_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MaceError, match="ABI 'hexagon-v999': no toolchain compiles for it"):
        plan(tmp_path, Manifest("dsp", abi="hexagon-v999"))


def test_a_shared_library_needs_an_operating_system(tmp_path: Path) -> None:
    require(Registry.load().toolchains["arm-none-eabi"].missing("cortex-m4"))
    with pytest.raises(PluginError, match="no operating system"):
        plan(tmp_path, Manifest("dsp", abi="cortex-m4"))


def test_deployed_files_lie_beside_library_and_programs(tmp_path: Path) -> None:
    data = source(tmp_path / "plugin", "acme.bin", "data")
    variant = plan(tmp_path / "out", Manifest("digits", copies={"acme.bin": data}, deploys=("acme.bin",)))
    for folder in ("lib", "bin"):
        assert step_of(variant, f"{folder}/host+acme/acme.bin").sources == ("gen/host+acme/acme.bin",)


def test_steps_that_take_longest_are_the_most_urgent(tmp_path: Path) -> None:
    variant = plan(tmp_path)
    (library,) = (manifest for manifest in variant.manifests if manifest.joins_library)
    objects = {f"obj/{variant.name}/{unit.object}": unit for unit in library.units}
    compiling = [step for step in variant.steps if objects.keys() & set(step.products)]
    assert len(compiling) == len(objects)
    compiling.sort(key=lambda step: -step.urgency)
    assert [objects[step.products[0]] for step in compiling] == [*library.units]
    assert library.units[0].share.startswith("kernels ")
    most_urgent = max(variant.steps, key=lambda step: step.urgency)
    assert most_urgent.announcement.startswith("generating")


def test_every_product_is_made_by_one_step(tmp_path: Path) -> None:
    variant = plan(tmp_path, driver(tmp_path / "plugin"))
    products = [
        product
        for step in (*variant.steps, *common_steps(variant.place, [variant]))
        for product in step.products
    ]
    assert len(products) == len(set(products))
    known = set(products)
    absent = {name for step in variant.steps for name in step.sources} - known
    assert absent == set()


def test_a_part_whose_driver_is_in_no_manifest_is_told_before_the_linker_is_asked() -> None:
    port = PartPort(Tensor("x", DType.F32, (1,)))
    part = Part("acme0", "acme", (port,), (port,), BlobBody(b"code"), driver="acme_driver")
    plan = make_plan(Graph("m", (), {"x": port.tensor}, {}, ("x",), ("x",)), [])
    plan = replace(plan, parts=(part,))
    check_drivers([Manifest("digits", drivers=("acme_driver",))], [plan])
    with pytest.raises(
        PluginError, match="part 'acme0': needs the driver 'acme_driver', which no manifest names"
    ):
        check_drivers(
            [
                Manifest("digits", drivers=("other_driver",)),
                Manifest("dsp", drivers=("acme_driver",), abi="arm64"),
            ],
            [plan],
        )


def test_the_log_names_what_a_device_must_have(tmp_path: Path) -> None:
    variant = plan(tmp_path / "out", driver(tmp_path / "plugin"))
    lines: list[str] = []
    step_of(variant, "model/host+acme.json").run(lines.append)
    assert (
        "note: digits looks for libAcme.so when it runs; where it is missing: install Acme's driver" in lines
    )


@pytest.mark.slow
def test_converted_files_include_the_driver(tmp_path: Path) -> None:
    work, registry = job(driver(tmp_path / "plugin"))
    copies = list_copies(collect_manifests(work, registry))
    assert copies["acme.c"] == b'#include "acme.h"\n'
    assert {"acme.c", "acme.h"} <= copies.keys()
    assert list_copies(collect_manifests(*job())) == {}


def test_the_header_of_all_choices_is_theirs_or_names_the_folders(tmp_path: Path) -> None:
    for choice, text in (("host", "1"), ("arm64", "1"), ("armhf", "2")):
        (tmp_path / "include" / choice).mkdir(parents=True)
        (tmp_path / "include" / choice / "net.h").write_text(text)
    said: list[str] = []
    _merge_headers(tmp_path, "net.h", ["host", "arm64"], said.append)
    assert ((tmp_path / "include/net.h").read_text(), said) == ("1", [])
    _merge_headers(tmp_path, "net.h", ["host", "armhf"], said.append)
    assert (tmp_path / "include/net.h").read_text() == (
        '#error "net.h differs between the targets of this library: add include/host or include/armhf to the include path"\n'
    )
    assert said == ["note: net.h differs between the choices: include it from include/host or include/armhf"]


def test_generating_announces_the_toolchain_and_says_what_was_decided(tmp_path: Path) -> None:
    variant = plan(tmp_path)
    step = next(step for step in variant.steps if step.announcement.startswith("generating"))
    parsed, registry = job()
    compiler = parsed.choice.compiler
    words = registry.abis()["host"][0].abis["host"]
    assert step.announcement == (
        f"generating digits for host+acme ({words}; toolchain {parsed.choice.toolchain.name}: {compiler.libc})"
    )
    assert {path.name for path in step.inputs} == {"digits.yml", "digits.onnx"}
    assert "model/host+acme.json" in step.products
    said: list[str] = []
    step.run(said.append)
    assert (
        "digits: arena 5120 bytes (1.000 x the largest live set), weights 27456 bytes, 0 transposes" in said
    )
    report = (tmp_path / "model/host+acme.json").read_text()
    assert report.startswith('{\n "models": {\n  "digits": {\n   "arena_bytes": 5120,')
    assert report.endswith("\n}\n")


def test_programs_wait_for_the_first_link_of_a_slow_toolchain(tmp_path: Path) -> None:
    def last(slow: str) -> tuple[str, ...]:
        described, registry = job()
        choice = described.choice

        class Slow(type(choice.toolchain)):  # type: ignore[misc]  # the toolchain of this machine
            def compiler(self, abi: str) -> Compiler:
                return replace(super().compiler(abi), slow=slow)

        changed = replace(described, choice=replace(choice, toolchain=Slow()))
        place = BuildPlace(DIGITS, tmp_path, "shown", {})
        return step_of(plan_variant(place, changed, registry), "bin/host+acme/mace_benchmark").sources

    assert set(last("it builds a C library")) - set(last("")) == {"bin/host+acme/mace_run"}


def test_a_copied_program_stays_a_program(tmp_path: Path) -> None:
    for mode in (0o755, 0o644):
        (tmp_path / "from").write_text("x")
        (tmp_path / "from").chmod(mode)
        _copy(tmp_path / f"to{mode}", tmp_path / "from", print)
        assert os.access(tmp_path / f"to{mode}", os.X_OK) == (mode == 0o755)
