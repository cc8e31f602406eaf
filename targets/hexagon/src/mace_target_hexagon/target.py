"""Offers a DSP beside a processor as a target: regions become functions of a DSP library, called remotely."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from mace_core.api import BuildConfig, Content, Manifest, Part, Refusal, Region, Runner, Target
from mace_core.deployment import Model
from mace_core.ir import Graph, Node
from mace_target_hexagon.interface import MAX_BUFFERS
from mace_target_hexagon.options import HexagonOptions
from mace_target_hexagon.processor import Hvx


class Hexagon(Target):
    """Qualcomm's Hexagon DSP, called from the processor that it stands beside.

    options: those of a model.
    """

    name = "hexagon"
    device = "dsp"
    abis: ClassVar[tuple[str, ...]] = ("amd64", "arm64*", "armeabi-v7a", "armhf", "host")

    def __init__(self, options: HexagonOptions | None = None) -> None:
        self.options = options or HexagonOptions()

    def check_options(self, model: Model) -> None:
        """Raise one MaceError with every option that is unknown, or has a value that it cannot have."""
        HexagonOptions.of_model(model)

    def configure(self, model: Model) -> Target:
        """Return the target with the options of a model."""
        options = HexagonOptions.of_model(model)
        # A model that asks for nothing leaves the target as whoever made it configured it.
        return self if options == HexagonOptions() else Hexagon(options)

    def runner(self) -> Runner | None:
        """Return what executes programs beside the emulated DSP; None where this machine has a DSP."""
        from mace_target_hexagon.emulator.runner import BesideDsp, has_dsp  # builds need neither

        return None if has_dsp() else BesideDsp()

    def refuses(self, node: Node, graph: Graph) -> Refusal | None:
        """None if the DSP's kernels compute the node."""
        return Hvx().refuses(node, graph)

    def worth(self, region: Graph) -> bool:
        """Tell whether a remote call can pass a region, and whether it is faster here.

        Speed counts only where the processor shares the model.
        """
        # What no call can pass stays on the processor whatever was asked for: the build would fail of it.
        if max(len(region.inputs), len(region.outputs)) > MAX_BUFFERS:
            return False
        return not self.options.is_selective or self.options.costs.is_worth(region)

    def widens_weights(self) -> bool:
        """Tell that the kernels of the DSP restore weights, as those of a CPU do."""
        return Hvx().widens_weights()

    def compile(self, region: Region, config: BuildConfig) -> Part:
        """Return a region as a function of the model's DSP library."""
        from mace_target_hexagon.region import compile_remote

        return compile_remote(region, config, self.options)

    def manifests(self, library: str, models: Sequence[Model], abi: str) -> tuple[Manifest, ...]:
        """Return the driver, and the DSP library of each model."""
        from mace_target_hexagon.driver import describe_driver
        from mace_target_hexagon.dsp_library import describe_library
        from mace_target_hexagon.region import module_name

        # One for each model: a process on the DSP loads only those of the models that it opens.
        libraries = (
            describe_library(module_name(model.name), HexagonOptions.of_model(model).abi) for model in models
        )
        return (describe_driver(library), *libraries)

    def write(self, library: str, parts: Mapping[str, Sequence[Part]]) -> Mapping[str, Content]:
        """Return the sources of the DSP library of each model."""
        from mace_target_hexagon.dsp_library import write_library

        written: dict[str, Content] = {}
        for model, parts_of_model in parts.items():
            written |= write_library(model, parts_of_model, self.options.abi)
        return written
