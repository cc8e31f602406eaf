"""Targets that make a program of their own for each model, for hardware that no library is linked into."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

from mace_core.api import BuildConfig, Content, Region, Runner, Target
from mace_core.deployment import Model
from mace_core.ir import Graph, Node
from mace_core.part import Part, PartFigures, ProjectBody
from mace_core.refusal import Refusal


@dataclass(frozen=True)
class Layout:
    """What a project consists of, known before its model is read; paths are relative to the project's folder.

    files: all that `emit` writes.  sources: those that are compiled.  includes: folders of headers.  link: flags of the link, and files.
    """

    files: tuple[str, ...]
    sources: tuple[str, ...]
    includes: tuple[str, ...] = (".",)
    link: tuple[str, ...] = ()


@dataclass(frozen=True)
class Project:
    """The files of a model's project, what they take, and what the user should know of them."""

    files: Mapping[str, Content]
    figures: PartFigures
    notes: tuple[str, ...] = ()


class ProjectTarget(Target):
    """Computes whole models, each in a project of its own that is compiled into one program for the ABI's processor."""

    scope = "model"

    def refuses(self, node: Node, graph: Graph) -> Refusal | None:
        """None: what it cannot compute, `emit` tells of the whole model at once."""
        return None

    def compile(self, region: Region, config: BuildConfig) -> Part:
        """Return the project of a whole model."""
        made = self.emit(config.model, region.graph)
        inputs, outputs = region.ports()
        nodes = tuple(node.name for node in region.graph.nodes)
        body = ProjectBody(made.files, self.layout(config.model).includes)
        return Part(region.name, self.name, inputs, outputs, body, nodes=nodes, notes=made.notes, figures=made.figures)

    def check_options(self, model: Model) -> None:
        """Raise MaceError for options that the target does not take: those that its layout is made from, unless it says otherwise."""
        self.layout(model)

    @abstractmethod
    def layout(self, model: Model) -> Layout:
        """The files of a model's project."""

    @abstractmethod
    def emit(self, model: Model, graph: Graph) -> Project:
        """Return the project of a model.

        Raises one MaceError with everything that the hardware cannot do.
        """

    @abstractmethod
    def runner(self) -> Runner:
        """What executes a program without the hardware; it takes the arguments of mace_run and mace_benchmark.

        The program that it is given is FOLDER/mace_run or FOLDER/mace_benchmark; the models' own lie beside it as NAME.elf.
        """

    def options(self, model: Model) -> Mapping[str, object]:
        """What the deployment file asks of this target under `target_options`."""
        asked = model.keys.get("target_options", {})
        assert isinstance(asked, Mapping)
        found = asked.get(self.name, {})
        assert isinstance(found, Mapping)
        return found
