"""The grammar of target=, and the choice of toolchain."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from mace_core.api import BuildConfig, Compiler, Files, Frontend, Part, Refusal, Region, Target, Toolchain
from mace_core.commands import list_plugins
from mace_core.deployment import Model
from mace_core.errors import MaceError, PluginWarning
from mace_core.ir import Graph, Node
from mace_core.ops.op import Op
from mace_core.plugin_loader import PluginLoader
from mace_core.registry import Registry


class Chain(Toolchain):
    def __init__(self, name: str, abis: Mapping[str, str], absent: str = "", last: bool = False) -> None:
        self.name, self.abis, self.absent, self.last = name, abis, absent, last  # type: ignore[misc]

    def missing(self, abi: str) -> str | None:
        return self.absent or None

    def compiler(self, abi: str) -> Compiler:
        return Compiler((self.name,), ("ar",))


class Chip(Target):
    def __init__(self, name: str, runtime: str, abis: tuple[str, ...], absent: str = "") -> None:
        self.name, self.device, self.abis, self.absent = name, runtime, abis, absent  # type: ignore[misc]

    def missing(self) -> str | None:
        return self.absent or None

    def refuses(self, node: Node, graph: Graph) -> Refusal | None:
        return None

    def compile(self, region: Region, config: BuildConfig) -> Part:
        raise NotImplementedError


CHAINS = (
    Chain("fallback", {"host": "", "arm": "", "mcu": ""}, last=True),
    Chain("native", {"host": ""}),
    Chain("vendor", {"arm": ""}, absent="set VENDOR_SDK"),
)
CHIPS = (
    Chip("cpu", "cpu", ("*",)),
    Chip("neonish", "cpu", ("arm",)),
    Chip("npu", "npu", ("arm", "host")),
    Chip("dev", "dev", ("mcu",)),
    Chip("gone", "gone", ("*",), absent="install its driver"),
)
REGISTRY = Registry((), {}, {}, {c.name: c for c in CHIPS}, {c.name: c for c in CHAINS}, {}, {})


def test_an_abi_takes_the_first_toolchain_that_is_ready() -> None:
    assert REGISTRY.select("host")[0].toolchain.name == "native"
    assert REGISTRY.select("arm")[0].toolchain.name == "fallback"
    assert REGISTRY.select("host", "fallback")[0].toolchain.name == "fallback"


def test_targets_follow_the_abi_and_commas_separate_choices() -> None:
    one, two = REGISTRY.select("arm+npu, host")
    assert (one.text, one.abi, [t.name for t in one.targets]) == ("arm+npu", "arm", ["npu"])
    assert (two.abi, two.targets) == ("host", ())


def test_a_target_alone_is_enough_where_one_abi_fits() -> None:
    (choice,) = REGISTRY.select("dev")
    assert (choice.abi, [t.name for t in choice.targets]) == ("mcu", ["dev"])


def test_the_most_specific_cpu_target_comes_last() -> None:
    (choice,) = REGISTRY.select("arm+npu")
    assert [t.name for t in REGISTRY.targets_for(choice, ("cpu",))] == ["npu", "neonish"]
    assert [t.name for t in REGISTRY.targets_for(REGISTRY.select("host")[0], ("npu", "cpu"))] == [
        "npu",
        "cpu",
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("hots", "target=hots: no ABI 'hots'; did you mean 'host'?"),
        ("zzz", "target=zzz: no ABI 'zzz'; choose one of arm, host, mcu"),
        ("host+mdl", "target=host+mdl: no target 'mdl'; choose one of cpu, dev, gone, neonish, npu"),
        ("host+dev", "target=host+dev: target 'dev' does not support ABI 'host'; supported: mcu"),
        ("host+gone", "target=host+gone: gone is not ready; install its driver"),
        ("npu", "target=npu: 2 ABIs support it; write ABI+npu, with one of these ABIs: arm, host"),
        ("", "target=: is empty; choose one of arm, host, mcu"),
    ],
)
def test_mistakes_are_told(text: str, said: str) -> None:
    with pytest.raises(MaceError) as told:
        REGISTRY.select(text)
    assert str(told.value) == said


def test_a_toolchain_that_is_insisted_on_must_know_the_abi_and_be_ready() -> None:
    with pytest.raises(MaceError, match="does not compile for ABI 'mcu'"):
        REGISTRY.select("mcu", "native")
    with pytest.raises(MaceError, match="vendor: set VENDOR_SDK"):
        REGISTRY.select("arm", "vendor")


def test_the_matrix_holds_what_is_ready() -> None:
    assert REGISTRY.matrix() == ["arm", "arm+npu", "host", "host+npu", "mcu", "mcu+dev"]


class Format(Frontend):
    def __init__(self, name: str, *suffixes: str) -> None:
        self.name, self.suffixes = name, suffixes  # type: ignore[misc]

    def load(self, files: Files, model: Model, ops: Mapping[str, Op]) -> Graph:
        raise AssertionError


FORMATS = Registry(
    (), {f.name: f for f in (Format("one", ".a", ".b"), Format("two", ".b"))}, {}, {}, {}, {}, {}
)


def test_a_file_goes_to_the_frontend_that_claims_it() -> None:
    assert FORMATS.frontend(Model("m", (Path("x.A"),))).name == "one"
    assert FORMATS.frontend(Model("m", (Path("x.b"),), platform="two")).name == "two"
    for file, count in (("x.b", 2), ("x", 0)):
        with pytest.raises(
            MaceError,
            match=f"model 'm': {count} frontends claim '{file}'; set `platform:` to one of one, two",
        ):
            FORMATS.frontend(Model("m", (Path(file),)))


def test_all_files_in_a_folder_are_read(tmp_path: Path) -> None:
    (tmp_path / "variables").mkdir()
    files = [tmp_path / "saved_model.pb", tmp_path / "variables" / "data"]
    for file in files:
        file.write_bytes(b"")
    assert Format("one").dependencies((tmp_path, tmp_path / "other")) == (*files, tmp_path / "other")


def test_a_name_that_disables_nothing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MACE_DISABLED_PLUGINS", "cpu,target-cpus,zzz")
    loader = PluginLoader()
    loader.load()
    assert list(map(str, loader.unknown)) == [
        "MACE_DISABLED_PLUGINS: no plugin 'cpu' is installed; did you mean 'target-cpu'?",
        "MACE_DISABLED_PLUGINS: no plugin 'target-cpus' is installed; did you mean 'target-cpu'?",
        "MACE_DISABLED_PLUGINS: no plugin 'zzz' is installed; `mace plugins` lists the names",
    ]
    with pytest.warns(PluginWarning) as warned:
        Registry.load()
    assert len(warned) == 3


def test_a_disabled_plugin_is_listed_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MACE_DISABLED_PLUGINS", "target-cpu")
    listed = {plugin.name: plugin for plugin in list_plugins()}
    assert listed["target-cpu"].state == "disabled by MACE_DISABLED_PLUGINS"
    assert listed["target-cpu"].offers == ()
    assert listed["toolchain-host"].state == "ready"
