"""The grammar of target=, and the choice of toolchain."""

from collections.abc import Mapping, Sequence
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from mace_core.api import (
    BuildConfig,
    Compiler,
    Files,
    Frontend,
    Part,
    Refusal,
    Region,
    Runner,
    Target,
    Toolchain,
)
from mace_core.commands import list_plugins
from mace_core.deployment import Model
from mace_core.errors import MaceError, PluginWarning
from mace_core.hookspecs import GROUP
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
    with pytest.raises(MaceError) as error:
        REGISTRY.select(text)
    assert str(error.value) == said


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


@pytest.mark.parametrize(
    ("runtimes", "abi", "names"),
    [
        (("cpu",), "arm", ["neonish"]), (("cpu",), "host", ["cpu"]), (("npu",), "arm", ["npu", "neonish"]),
        (("npu", "cpu"), "host", ["npu", "cpu"]), (("dev",), "arm", ["neonish"]), (("gone",), "host", ["cpu"]),
    ],
)  # fmt: skip
def test_targets_of_a_model_by_preference(runtimes: tuple[str, ...], abi: str, names: list[str]) -> None:
    (choice,) = REGISTRY.select(abi)
    assert [target.name for target in REGISTRY.targets_for(choice, runtimes)] == names


def test_two_targets_of_one_runtime_are_a_question() -> None:
    two = Registry(
        (), {}, {}, {n: Chip(n, "cpu", ("host",)) for n in ("a", "b")}, {c.name: c for c in CHAINS}, {}, {}
    )
    with pytest.raises(
        MaceError,
        match=r"target=host: several targets compute for runtime 'cpu': a, b; name one of them: host\+NAME",
    ):
        two.targets_for(two.select("host")[0], ("cpu",))


class Place(Runner):
    def __init__(self, name: str) -> None:
        self.name = name  # type: ignore[misc]

    def command(self, program: Path, arguments: Sequence[str]) -> list[str]:
        return []


class Board(Chip):
    def runner(self) -> Runner | None:
        return Place(self.name)


class Emulated(Chain):
    def runner(self, abi: str) -> Runner | None:
        return Place(f"{self.name} {abi}")


def test_one_runner_executes_a_library() -> None:
    chips = {
        c.name: c
        for c in (Chip("cpu", "cpu", ("*",)), Board("dsp", "dsp", ("*",)), Board("hub", "hub", ("*",)))
    }
    boards = Registry((), {}, {}, chips, {"native": Emulated("native", {"host": ""})}, {}, {})
    (choice,) = boards.select("host")

    def find_complaint(*runtimes: str) -> str | None:
        models = [Model(f"m{i}", (), runtimes=(word,)) for i, word in enumerate(runtimes)]
        runner = boards.find_runner(choice, models)
        return runner and runner.name

    assert [find_complaint("cpu"), find_complaint("cpu", "cpu"), find_complaint("dsp"), find_complaint()] == [
        "native host",
        "native host",
        "dsp",
        None,
    ]
    with pytest.raises(
        MaceError,
        match="target=host: models need different runners: m0, m2 by dsp; m1 by native host; choose one with --model",
    ):
        find_complaint("dsp", "cpu", "dsp")
    plain = Registry((), {}, {}, {}, {"native": CHAINS[1]}, {}, {})
    assert plain.find_runner(plain.select("host")[0], [Model("m", ())]) is None
    mixed = Registry((), {}, {}, {"dsp": chips["dsp"]}, {"native": CHAINS[1]}, {}, {})
    with pytest.raises(MaceError, match="models need different runners: m0 by dsp; m1 by nothing"):
        mixed.find_runner(mixed.select("host")[0], [Model("m0", (), runtimes=("dsp",)), Model("m1", ())])


@pytest.mark.parametrize(
    ("file", "installed", "remedy"),
    [
        ("x.tflite", True, "pip install mace-frontend-tflite"),
        ("x.a", False, "set `platform:` to one of (none is installed)"),
        ("x.b", True, "set `platform:` to one of one, two"),
    ],
)  # fmt: skip
def test_advice_for_files_that_no_frontend_claims(file: str, installed: bool, remedy: str) -> None:
    registry = FORMATS if installed else Registry((), {}, {}, {}, {}, {}, {})
    with pytest.raises(MaceError) as error:
        registry.frontend(Model("m", (Path(file),)))
    assert str(error.value).endswith(f"; {remedy}")


def test_an_unknown_platform_is_told_with_what_installs_it() -> None:
    for name, remedy in (
        ("tflite", "pip install mace-frontend-tflite"),
        ("tow", "did you mean 'two'?"),
        ("zzz", "choose one of one, two"),
    ):
        with pytest.raises(MaceError) as error:
            FORMATS.frontend(Model("m", (Path("x.a"),), platform=name))
        assert str(error.value) == f"model 'm': no frontend {name!r}; {remedy}"


def point(name: str, module: str) -> EntryPoint:
    return EntryPoint(name, module, GROUP)


def test_plugins_that_offer_one_name_are_a_conflict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plugins as modules of a temporary folder; each fault of one leaves the others."""
    offer = "from mace_core.hookspecs import hookimpl\nfrom mace_core.api import Transform\n@hookimpl\ndef mace_transforms():\n"
    texts = {
        "plugin_a": f"{offer}    return [Transform('same', print, 'fold')]\n",
        "plugin_b": f"{offer}    return [Transform('same', print, 'fold'), Transform('own', print, 'fold')]\n",
        "plugin_raises": "raise SystemExit(3)\n",
        "plugin_fails": f"{offer}    return 1 / 0\n",
        "plugin_wrong": f"{offer}    return [3]\n",
        "plugin_unknown": "from mace_core.hookspecs import hookimpl\n@hookimpl\ndef mace_transfroms():\n    return []\n",
    }
    for name, text in texts.items():
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    loader = PluginLoader()
    loader.load([point(name.replace("_", "-"), name) for name in texts])
    assert [plugin.name for plugin in loader.plugins] == sorted(name.replace("_", "-") for name in texts)
    assert set(loader.tables["transforms"]) == {"same", "own"}
    assert loader.owners["transforms", "same"].name == "plugin-a"
    (conflict,) = map(str, loader.conflicts)
    assert conflict.startswith("transforms 'same': ")
    assert "both offer it; remove one" in conflict
    broken = {plugin.name: str(error) for plugin, error in loader.broken.items()}
    assert set(broken) == {"plugin-raises", "plugin-fails", "plugin-wrong", "plugin-unknown"}
    assert "does not load" in broken["plugin-raises"]
    assert "its hook mace_transforms fails" in broken["plugin-fails"]
    assert "its hook mace_transforms offers 3, which is no Transform" in broken["plugin-wrong"]
    assert "its hooks do not match this mace-core" in broken["plugin-unknown"]
    with pytest.warns(PluginWarning) as warned, pytest.raises(MaceError, match="both offer it"):
        Registry.load([point(name.replace("_", "-"), name) for name in texts])
    assert len(warned) == 4
