"""Defines what plugins implement.

Methods that ask whether something is possible return None for yes, or the reason why not.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from mace_core.errors import MaceError
from mace_core.ir import Array, Graph, Node
from mace_core.manifest import Manifest, Product, Unit
from mace_core.numerics import Numerics
from mace_core.ops.op import Op
from mace_core.part import (
    HOST,
    BlobBody,
    BufferKind,
    CallsBody,
    Content,
    MemorySpace,
    Part,
    PartFigures,
    PartLayer,
    PartPort,
    ProjectBody,
    Stream,
)
from mace_core.refusal import Refusal
from mace_core.toolchain import MEASURED, Compiler, Counter, Runner, Toolchain

__all__ = [
    "HOST",
    "MEASURED",
    "BlobBody",
    "BufferKind",
    "BuildConfig",
    "CallsBody",
    "Compiler",
    "Content",
    "Counter",
    "Files",
    "Frontend",
    "GeneratedFiles",
    "Manifest",
    "MemorySpace",
    "Part",
    "PartFigures",
    "PartLayer",
    "PartPort",
    "PortNames",
    "Product",
    "ProjectBody",
    "Reference",
    "Refusal",
    "Region",
    "Runner",
    "Stream",
    "Target",
    "Toolchain",
    "Transform",
    "Unit",
]

if TYPE_CHECKING:
    from mace_core.deployment import Model
    from mace_core.json_types import Json
    from mace_core.levels import Level
    from mace_core.lint import LintReport, VendorPlan

Files = tuple[Path, ...]
PortNames = tuple[tuple[str, ...], tuple[str, ...]]
"""Names of inputs, names of outputs."""


@dataclass(frozen=True)
class Reference:
    """A model in its own framework: call it with arrays by input name for arrays by output name.

    runtime: what computes, in words, with its version and kind of kernels where there are several: "ONNX
    Runtime 1.20".
    """

    run: Callable[[Mapping[str, Array]], Mapping[str, Array]]
    runtime: str

    def __call__(self, arrays: Mapping[str, Array]) -> Mapping[str, Array]:
        """Run it once."""
        return self.run(arrays)


class Frontend(ABC):
    """Reads one framework's files into a graph.

    order: how the framework lays out an image's axes, "NCHW" or "NHWC".  fixes_inputs: whether it supports
    `input_values` of the deployment file; other frontends refuse a model that states them.  needs:
    what to install for `reference`, as an argument of pip; "" if nothing can be missing.  is_native: whether
    `reference` and `recurrent` run native code, which may crash: a child process then calls them.
    """

    name: ClassVar[str]
    suffixes: ClassVar[tuple[str, ...]]
    order: ClassVar[str] = "NHWC"
    fixes_inputs: ClassVar[bool] = False
    needs: ClassVar[str] = ""
    is_native: ClassVar[bool] = True

    @abstractmethod
    def load(self, files: Files, model: Model, ops: Mapping[str, Op]) -> Graph:
        """Read the model.

        Shapes that the file leaves open come from `model.inputs`, in the framework's order. Raises one
        MaceError that lists every op that it cannot map, with node names.
        """

    def claims(self, file: Path) -> bool:
        """Tell whether a model file, or a folder, looks like one of this framework's by its name.

        `platform:` overrules it.
        """
        return file.suffix.lower() in self.suffixes

    def port_names(self, files: Files) -> PortNames | None:
        """The names of the model's own inputs and of its outputs, in order; None if its files do not tell.

        For deployment files that state shapes or types without names. Raises MaceError for what is no model.
        """
        return None

    def dependencies(self, files: Files) -> Files:
        """Every file that is read for a model: a change of one of them makes the library stale.

        Of a folder, all in it.
        """
        inside = ((f,) if not f.is_dir() else sorted(p for p in f.rglob("*") if p.is_file()) for f in files)
        return tuple(chain.from_iterable(inside))

    def reference(self, files: Files, model: Model) -> Reference | None:
        """The original framework, for validation; None if it is not installed.

        It gives those of `model.outputs` that it knows, inner tensors among them if it can.
        """
        return None

    def fast_reference(self, files: Files, model: Model) -> Reference | None:
        """The original framework at its fastest on one CPU thread, for benchmarks.

        None if it is not installed.
        """
        return self.reference(files, model)

    def recurrent(self, files: Files, model: Model) -> Reference | None:
        """Return the model in its framework, which keeps the states of the model file from call to call.

        None if it is not installed.

        Each time that it is asked for, it begins with the start values. It is given neither the states'
        values nor asked for them, though it may give those of `model.outputs` that are next values.
        """
        return None

    def starts(self, files: Files, model: Model) -> Mapping[str, Array]:
        """Return the model file's start values of inputs that the deployment file declares as states.

        Others begin with zeros, stored integers with their zero point. States that the file itself keeps are
        in `Graph.states`.
        """
        return {}


Reasons = Mapping[str, str]
"""Names of other transforms -> why a transform runs on one side of them."""


@dataclass(frozen=True)
class Repeat:
    """Says that a transform runs in one more phase, and why.

    after, before: the transforms of that phase that it runs after, or before, with the reason for each.
    """

    phase: str
    because: str
    after: Reasons = field(default_factory=dict)
    before: Reasons = field(default_factory=dict)


@dataclass(frozen=True)
class Transform:
    """Rewrites a graph and keeps what it computes.

    phase: a phase of `mace_core.transforms.PHASES`, in which it runs by being installed.
    after, before: the transforms of that phase that it runs after, or before, with the reason for each; one
        that is not installed constrains nothing. What is left open is decided by name.
    repeats: the other phases that it runs in as well.
    """

    name: str
    apply: Callable[[Graph], Graph]
    phase: str
    after: Reasons = field(default_factory=dict)
    before: Reasons = field(default_factory=dict)
    repeats: tuple[Repeat, ...] = ()


@dataclass(frozen=True)
class GeneratedFiles:
    """Generated files and what they need to compile.

    files: relative path -> content.
    manifests: what is made of these files, and how they are compiled.
    """

    files: Mapping[str, Content]
    manifests: tuple[Manifest, ...] = ()


@dataclass(frozen=True)
class Region:
    """A convex part of a graph given to one target, as a graph of its own.

    number: its place in the order of regions.
    """

    target: Target
    graph: Graph
    number: int = 0

    @property
    def name(self) -> str:
        """A name that no other region of the model has."""
        return f"{self.target.name}{self.number}"

    def ports(self, space: MemorySpace = HOST) -> tuple[tuple[PartPort, ...], tuple[PartPort, ...]]:
        """Return its inputs and its outputs as they lie in a memory space."""
        tensors = self.graph.tensors
        inputs = tuple(PartPort(tensors[name], space) for name in self.graph.inputs)
        return inputs, tuple(PartPort(tensors[name], space) for name in self.graph.outputs)


def _refuse_reading(file: Path) -> Graph:
    remedy = "compile through `compile_model`, which knows the frontends"
    raise MaceError(file, "is a model that cannot be read here", remedy)


@dataclass(frozen=True)
class BuildConfig:
    """What a target knows of the build for which it compiles a region.

    abi: what the compiler of the library makes code for.  target: the whole choice, as the user wrote it.
    model: with its files, keys and options, as the deployment file states it.  read: returns the graph of
    another model, whose file an option of a target names, as the transforms leave it.
    """

    abi: str
    target: str
    model: Model
    read: Callable[[Path], Graph] = _refuse_reading


class Target(ABC):
    """Something that computes.

    name: what `target=ABI+NAME` calls it.
    device: what a deployment file's `runtime:` calls this kind of hardware: "cpu", "gpu", "dsp" ...
    abis: glob patterns of the ABIs whose processors can use it.
    scope: "region" for any convex part of a graph; "model" for a graph whole, or not at all.
    """

    name: ClassVar[str]
    device: ClassVar[str]
    abis: ClassVar[tuple[str, ...]] = ("*",)
    scope: ClassVar[str] = "region"

    def missing(self) -> str | None:
        """None if ready; otherwise what to install or set."""
        return None

    def configure(self, model: Model) -> Target:
        """Return the target with the options of a model, for `refuses` and `compile`.

        The default returns the target itself. A target whose answers depend on options returns a copy,
        because one target serves all models of a deployment. The options have passed `check_options`.
        """
        return self

    @abstractmethod
    def refuses(self, node: Node, graph: Graph) -> Refusal | None:
        """None if it can compute the node; otherwise why not.

        It is asked for every node of every model, so its time must not grow with the size of the graph.
        """

    @abstractmethod
    def compile(self, region: Region, config: BuildConfig) -> Part:
        """Return what computes a region, all of whose nodes were accepted.

        The part has a port for each input and output of the region's graph. MaceError with all that the
        hardware cannot do.
        """

    def lint(self, graph: Graph) -> LintReport | None:
        """Return what would become of each node, with costs and rules of the vendor's, for `mace lint`.

        None from a target that knows no more than what `refuses` answers.
        """
        return None

    def options_for_chip(self, options: Json, chip: str) -> Json:
        """Return options of a deployment file with another chip, for `mace lint --soc`.

        A target whose options contradict a chip, such as the name of its generation, leaves these out.
        """
        return {**options, "soc": chip}

    def read_plan(self, text: str) -> VendorPlan:
        """Return what a vendor's compiler printed of its plan; MaceError for what is none."""
        raise MaceError(f"target {self.name!r}", "reads no plan of a vendor's compiler", "leave --diff out")

    def widens_weights(self) -> bool:
        """Tell whether `compile` supports `weights: as-stored` of a deployment file.

        Without it such a model is refused.
        """
        return False

    def can_round(self, numerics: Numerics) -> bool:
        """Tell whether `compile` supports a value of the key `numerics`; other models are refused."""
        return numerics is Numerics.SINGLE_ROUNDING

    def check_options(self, model: Model) -> None:
        """Raise one MaceError with every option in a deployment file that the target does not accept.

        The default accepts no options.

        Called when the file has been read, for every target that it names, whether or not the target is built
        for.
        """
        options = model.options(self.name)
        if options:
            place = f"model {model.name!r}: target_options: {self.name}"
            raise MaceError(
                place, f"{', '.join(map(str, options))}: the target takes no options", "remove them"
            )

    def worth(self, region: Graph) -> bool:
        """Tell whether a region this small is worth a change of device."""
        return True

    def levels(self, abi: str) -> tuple[Level, ...]:
        """Return the instruction-set levels that core compiles the target's kernels for, the best first.

        () without such kernels.
        """
        return ()

    def known_levels(self, abi: str) -> tuple[Level, ...]:
        """Return all levels that `cpu_features` of a deployment file may name, the best first.

        `levels` has those of a library where the file names none; the last one is in both.
        """
        return self.levels(abi)

    def manifests(self, library: str, models: Sequence[Model], abi: str) -> tuple[Manifest, ...]:
        """Return what a build has to know of the target's parts before a model is read.

        () where core writes all that they need.

        library: the name of the library, a C identifier.  models: those that the target is asked for.  abi:
        of the build.

        A target with a driver returns a `Manifest(library, copies=..., units=..., libraries=..., loads=...,
        drivers=...)` with the sources of its driver, which is compiled into the library. What runs on another
        processor is a manifest of its own with the
        `abi` of that processor: the toolchain of that ABI makes a shared library or a program of it, which
        lies beside the library. A target that makes a program of a whole model names the model under `holds`.
        """
        return ()

    def write(self, library: str, parts: Mapping[str, Sequence[Part]]) -> Mapping[str, Content]:
        """Return the content of the files that the target's manifests name as generated.

        Called once every model has been compiled.

        parts: those that the target made, by the name of the model.
        """
        return {}

    def runner(self) -> Runner | None:
        """Return what executes the programs that the target makes; None for what the toolchain executes."""
        return None

    def counter(self) -> Counter | None:
        """Return what counts the work of programs that a runner only emulates; None where they are timed."""
        return None
