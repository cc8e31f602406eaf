"""Targets that make a program of their own for each model, for hardware that no library is linked into."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from mace_core.api import BuildConfig, Content, Region, Runner, Target
from mace_core.deployment import Model
from mace_core.ir import Graph, Node
from mace_core.manifest import Manifest, Product, Unit
from mace_core.part import Part, PartFigures, ProjectBody
from mace_core.refusal import Refusal


@dataclass(frozen=True)
class Layout:
    """Describes what a project consists of, known before its model is read.

    Paths are relative to the project's folder.

    files: all files of the project.  sources: those that are compiled.  headers: those that sources include.
    includes: folders of headers.  linker_script: a file of the project; "" for the linker's own.
    refusal: why the project can be written and not built here, with what to do instead; "" for what can be
    built.
    """

    files: tuple[str, ...]
    sources: tuple[str, ...]
    headers: tuple[str, ...] = ()
    includes: tuple[str, ...] = (".",)
    linker_script: str = ""
    refusal: str = ""

    def manifest(self, model: str) -> Manifest:
        """Return the manifest of a model's project, whose files lie in a folder of the model's name."""

        def place(name: str) -> str:
            return str(PurePosixPath(model, name))

        headers = tuple(map(place, self.headers))
        return Manifest(
            f"{model}.elf",
            Product.PROGRAM,
            generated=tuple(map(place, self.files)),
            units=tuple(Unit(place(source), reads=headers) for source in self.sources),
            includes=tuple(map(place, self.includes)),
            linker_script=place(self.linker_script) if self.linker_script else "",
            holds=(model,),
            refusal=self.refusal,
        )


@dataclass(frozen=True)
class Project:
    """Holds the files of a model's project, what they take, and what the user should know of them."""

    files: Mapping[str, Content]
    figures: PartFigures
    notes: tuple[str, ...] = ()


class ProjectTarget(Target):
    """Computes whole models, each in a project that becomes one program for the ABI's processor."""

    scope = "model"

    def refuses(self, node: Node, graph: Graph) -> Refusal | None:
        """None: what it cannot compute, `emit` tells of the whole model at once."""
        return None

    def compile(self, region: Region, config: BuildConfig) -> Part:
        """Return the project of a whole model."""
        project = self.emit(region.graph, config)
        inputs, outputs = region.ports()
        nodes = tuple(node.name for node in region.graph.nodes)
        body = ProjectBody(project.files)
        return Part(
            region.name,
            self.name,
            inputs,
            outputs,
            body,
            nodes=nodes,
            notes=project.notes,
            figures=project.figures,
        )

    def manifests(self, library: str, models: Sequence[Model], abi: str) -> tuple[Manifest, ...]:
        """Return a program for each model, which holds it whole."""
        return tuple(self.layout(model).manifest(model.name) for model in models)

    def write(self, library: str, parts: Mapping[str, Sequence[Part]]) -> Mapping[str, Content]:
        """Return the files of all projects, each in a folder of the model's name."""
        contents: dict[str, Content] = {}
        for model, model_parts in parts.items():
            for part in model_parts:
                if isinstance(part.body, ProjectBody):
                    files = part.body.files.items()
                    contents |= {str(PurePosixPath(model, name)): content for name, content in files}
        return contents

    def check_options(self, model: Model) -> None:
        """Raise MaceError for options that the target does not accept: those that `layout` refuses."""
        self.layout(model)

    @abstractmethod
    def layout(self, model: Model) -> Layout:
        """Return the files of a model's project and how they are compiled."""

    @abstractmethod
    def emit(self, graph: Graph, config: BuildConfig) -> Project:
        """Return the project of a whole model.

        Raises one MaceError with everything that the hardware cannot do.
        """

    @abstractmethod
    def runner(self) -> Runner:
        """Return what executes a program without the hardware.

        It takes the arguments of mace_run and mace_benchmark.

        The program that it is given is FOLDER/mace_run or FOLDER/mace_benchmark; the models' own lie beside
        it as NAME.elf.
        """
