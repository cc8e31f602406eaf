"""Which plugins are installed, what they offer, and which of it a build uses."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from importlib.metadata import EntryPoint
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

from mace_core.api import Compiler, Frontend, Runner, Target, Toolchain, Transform
from mace_core.deployment import Model
from mace_core.distributions import advise_install
from mace_core.errors import MaceError, PluginWarning
from mace_core.levels import add_flags, choose_levels
from mace_core.ops.op import Op
from mace_core.plugin_loader import Plugin, PluginLoader
from mace_core.run.remote import find_board

OTHER_ABI_NAMES: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(
            ("linux-x86_64", "x86_64-linux", "x86_64-linux-gnu", "linux-amd64", "linux-x64", "x86-64", "x64"),
            "amd64",
        ),
        **dict.fromkeys(("linux-arm64", "linux-aarch64", "aarch64", "aarch64-linux-gnu"), "arm64"),
        **dict.fromkeys(("linux-armhf", "armv7", "armv7l", "arm-linux-gnueabihf"), "armhf"),
        **dict.fromkeys(("linux-riscv64", "riscv", "rv64", "rv64gc", "riscv64-linux-gnu"), "riscv64"),
        **dict.fromkeys(("android-x86_64", "x86_64-linux-android"), "x86_64"),
        **dict.fromkeys(("i386", "i686", "android-x86"), "x86"),
    }
)
"""Names that other tools give to ABIs -> ours: Debian's for Linux, Google's for Android."""

Offer = TypeVar("Offer", Frontend, Target, Toolchain)


@dataclass(frozen=True)
class Choice:
    """One way to build, written `target=ABI[+TARGET...]`.

    text: as the user wrote it.  targets: those named behind the ABI, by preference.
    cpu_features: names of the instruction-set levels that a library holds; () for those of each target.
    kernel_flags: further flags of the compiler, for the kernels of every level.
    """

    text: str
    abi: str
    toolchain: Toolchain
    targets: tuple[Target, ...]
    cpu_features: tuple[str, ...] = ()
    kernel_flags: tuple[str, ...] = ()

    @property
    def compiler(self) -> Compiler:
        """The toolchain's compiler for the ABI."""
        return self.toolchain.compiler(self.abi)

    @property
    def runner(self) -> Runner | None:
        """What runs the programs: the runner of a target with programs of its own, else the toolchain's.

        Only targets that the choice names count; `Registry.find_runner` knows those of models as well.
        """
        target_runner = next(filter(None, (target.runner() for target in self.targets)), None)
        return target_runner or self.toolchain.runner(self.abi)


@dataclass(frozen=True)
class Registry:
    """Everything that is installed, by name; `owners` tells which plugin offers a thing, by (kind, name)."""

    plugins: tuple[Plugin, ...]
    frontends: Mapping[str, Frontend]
    transforms: Mapping[str, Transform]
    targets: Mapping[str, Target]
    toolchains: Mapping[str, Toolchain]
    ops: Mapping[str, Op]
    owners: Mapping[tuple[str, str], Plugin]

    @classmethod
    def load(cls, points: Iterable[EntryPoint] | None = None) -> Registry:
        """Import every plugin and ask it what it offers.

        Warns with a PluginWarning of each plugin that does not work, and goes on without it. Raises
        PluginError if two plugins offer the same name: which of them a build uses must not depend on the
        order in which they were installed.
        """
        loader = PluginLoader()
        loader.load(points)
        for fault in (*loader.broken.values(), *loader.unknown):
            warnings.warn(PluginWarning(str(fault)), stacklevel=2)
        if loader.conflicts:
            raise MaceError.of(map(str, loader.conflicts))
        return cls.of(loader)

    @classmethod
    def of(cls, loader: PluginLoader) -> Registry:
        """Return what these plugins offer."""
        return cls(tuple(loader.plugins), **loader.tables, owners=MappingProxyType(loader.owners))

    def frontend(self, model: Model) -> Frontend:
        """Return the frontend that `platform:` names, or the only one that claims the file."""
        place = f"model {model.name!r}"
        if model.platform:
            return _lookup(self.frontends, model.platform, "frontend", place)
        file = model.files[0]
        fitting = [f for f in self.frontends.values() if f.claims(file)]
        if len(fitting) != 1:
            raise MaceError(
                place, f"{len(fitting)} frontends claim {file.name!r}", self._platform_advice(file)
            )
        return fitting[0]

    def _platform_advice(self, file: Path) -> str:
        if not any(f.claims(file) for f in self.frontends.values()) and (
            install := advise_install("suffix", file.suffix.lower())
        ):
            return install
        return f"set `platform:` to one of {', '.join(sorted(self.frontends)) or '(none is installed)'}"

    def abis(self) -> dict[str, list[Toolchain]]:
        """Return every ABI with its toolchains, the preferred one first."""
        table: dict[str, list[Toolchain]] = {}
        for toolchain in sorted(self.toolchains.values(), key=lambda t: (t.last, t.name)):
            for abi in toolchain.abis:
                table.setdefault(abi, []).append(toolchain)
        return table

    def select(self, text: str, toolchain: str = "") -> tuple[Choice, ...]:
        """Parse `target=ABI[+TARGET...][,...]` into choices.

        toolchain: the name of the toolchain to use instead of the first that is ready.
        """
        parts = dict.fromkeys(p.strip() for p in text.split(",") if p.strip())
        if not parts:
            raise MaceError("target=", "is empty", f"choose one of {', '.join(sorted(self.abis()))}")
        return tuple(self._choice(part, toolchain) for part in parts)

    def _choice(self, text: str, toolchain: str) -> Choice:
        abi, *names = text.split("+")
        abis = self.abis()
        if abi in self.targets and abi not in abis:
            names, abi = [abi, *names], self._only_abi(self.targets[abi], abis)
        if abi not in abis:
            raise MaceError(f"target={text}", f"no ABI {abi!r}", _advice(abi, abis, self.targets, "abi"))
        targets = tuple(_lookup(self.targets, n, "target", f"target={text}") for n in names)
        for target in targets:
            self._check(target, abi, text)
        return Choice(text, abi, self._toolchain(abi, toolchain, abis[abi]), targets)

    def _check(self, target: Target, abi: str, text: str) -> None:
        if not _fits(target, abi):
            raise MaceError(
                f"target={text}",
                f"target {target.name!r} does not support ABI {abi!r}",
                f"supported: {', '.join(target.abis)}",
            )
        if reason := target.missing():
            raise MaceError(f"target={text}", f"{target.name} is not ready", reason)

    def _only_abi(self, target: Target, abis: Iterable[str]) -> str:
        fitting = [a for a in abis if _fits(target, a)]
        if len(fitting) == 1:
            return fitting[0]
        raise MaceError(
            f"target={target.name}",
            f"{len(fitting)} ABIs support it",
            f"write ABI+{target.name}, with one of these ABIs: {', '.join(sorted(fitting)) or 'none'}",
        )

    def find_toolchain(self, abi: str) -> Toolchain:
        """Return the toolchain for an ABI that a target compiles its own code for.

        MaceError if none is ready.
        """
        abis = self.abis()
        if abi not in abis:
            raise MaceError(f"ABI {abi!r}", "no toolchain compiles for it", _advice(abi, abis, (), "abi"))
        return self._toolchain(abi, "", abis[abi])

    def _toolchain(self, abi: str, name: str, candidates: Sequence[Toolchain]) -> Toolchain:
        if name:
            named = _lookup(self.toolchains, name, "toolchain", "toolchain")
            candidates = [t for t in candidates if t is named]
            if not candidates:
                raise MaceError(
                    f"toolchain={name}",
                    f"does not compile for ABI {abi!r}",
                    f"its ABIs are {', '.join(named.abis)}",
                )
        reasons = []
        for toolchain in candidates:
            reason = toolchain.missing(abi)
            if reason is None:
                return toolchain
            reasons.append(f"{toolchain.name}: {reason}")
        raise MaceError(f"target={abi}", "no toolchain is ready", "; ".join(reasons))

    def targets_for(self, choice: Choice, runtimes: Sequence[str]) -> tuple[Target, ...]:
        """Return a model's targets by preference: named ones, those of `runtime:`, the best CPU target.

        They have the levels that the choice names.
        """
        targets = list(choice.targets)
        for runtime in (*runtimes, "cpu"):
            fitting = [
                t
                for t in self.targets.values()
                if t.device == runtime and _fits(t, choice.abi) and not t.missing()
            ]
            specific = [t for t in fitting if "*" not in t.abis] or fitting
            if len(specific) > 1:
                names = ", ".join(t.name for t in specific)
                raise MaceError(
                    f"target={choice.text}",
                    f"several targets compute for runtime {runtime!r}: {names}",
                    f"name one of them: {choice.abi}+NAME",
                )
            targets += [t for t in specific if t not in targets]
        chosen = choose_levels(targets, choice.abi, choice.cpu_features)
        return tuple(add_flags(target, choice.abi, choice.kernel_flags) for target in chosen)

    def find_runner(self, choice: Choice, models: Iterable[Model]) -> Runner | None:
        """Return what executes these models: the runner of a target that may take them, else the board's.

        It is the toolchain's where the environment names no board, see `mace_core.run.remote`. A target that
        only `runtime:` of a model names counts as one that the choice names. Raises MaceError if models need
        different runners, because one runner executes a library.
        """
        names: dict[str, list[str]] = {}
        runners: dict[str, Runner | None] = {}
        for model in models:
            targets = self.targets_for(choice, model.runtimes)
            runner = next(filter(None, (target.runner() for target in targets)), None)
            runner = runner or find_board() or choice.toolchain.runner(choice.abi)
            name = runner.name if runner else "nothing"
            runners[name] = runner
            names.setdefault(name, []).append(model.name)
        if len(runners) > 1:
            groups = [f"{', '.join(group)} by {name}" for name, group in names.items()]
            problem = f"models need different runners: {'; '.join(groups)}"
            raise MaceError(
                f"target={choice.text}",
                problem,
                "choose one with --model, or write a deployment file for each",
            )
        return next(iter(runners.values()), None)

    def matrix(self) -> list[str]:
        """Return every choice that can be built here.

        That is each ABI with a ready toolchain, alone if it has an operating system, and combined with each
        target that is not a CPU.
        """
        chains = {
            abi: next((t for t in toolchains if t.missing(abi) is None), None)
            for abi, toolchains in sorted(self.abis().items())
        }
        ready = {abi: chain.compiler(abi).hosted for abi, chain in chains.items() if chain}
        more = [t for t in self.targets.values() if t.device != "cpu" and not t.missing()]
        choices = []
        for abi, hosted in ready.items():
            # Without an operating system nothing can load a library of the ABI alone.
            choices += [abi] if hosted else []
            choices += [f"{abi}+{target.name}" for target in more if _fits(target, abi)]
        return choices

    def owner(self, kind: str, name: str) -> Plugin:
        """Return the plugin that offers an object; kind: as in the hook's name, such as "targets"."""
        return self.owners[kind, name]


def _fits(target: Target, abi: str) -> bool:
    return any(fnmatchcase(abi, pattern) for pattern in target.abis)


def _lookup(table: Mapping[str, Offer], name: str, kind: str, place: str) -> Offer:
    if name not in table:
        raise MaceError(place, f"no {kind} {name!r}", _advice(name, table, (), kind))
    return table[name]


def _advice(name: str, table: Iterable[str], also: Iterable[str], kind: str) -> str:
    known = list(table)
    if kind == "abi" and (usual := OTHER_ABI_NAMES.get(name.lower())) in known:
        return f"that ABI is called {usual!r} here; x86_64 and x86 are Android's"
    kinds = ("abi", "target") if kind == "abi" else (kind,)  # a target may stand where an ABI does
    if install := next(filter(None, (advise_install(k, name) for k in kinds)), None):
        return install
    if close := get_close_matches(name, [*known, *also], 1):
        return f"did you mean {close[0]!r}?"
    return f"choose one of {', '.join(sorted(known)) or 'none: no plugin that offers one is installed'}"
