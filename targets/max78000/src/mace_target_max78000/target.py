"""The target: a model becomes a network, the network a program, and the program a C project."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar

import numpy as np

from mace_core.api import BuildConfig, PartFigures, Runner
from mace_core.deployment import Model
from mace_core.deployment.faults import Faults
from mace_core.errors import MaceError
from mace_core.ir import Array, Graph, Tensor
from mace_core.json_types import Json
from mace_core.project_target import Layout, Project, ProjectTarget
from mace_core.quantization import dequantize
from mace_core.run.samples import stored_samples
from mace_frontend_ai8x.described_model import DescribedModel
from mace_frontend_ai8x.graph import input_tensor, output_tensors
from mace_frontend_ai8x.network import Network
from mace_frontend_ai8x.options import NetworkOptions
from mace_frontend_ai8x.targets import DescribedProject, TrainedModel
from mace_target_max78000.check import add_faults, find_faults
from mace_target_max78000.check.graph_comparison import compare_with_graph
from mace_target_max78000.check.program import REPORT
from mace_target_max78000.design import DesignedNetwork, design_network
from mace_target_max78000.device import MAX78000, Chip
from mace_target_max78000.firmware.clock import choose_clock
from mace_target_max78000.firmware.layout import INCLUDES, LINKER_SCRIPT, headers, sources
from mace_target_max78000.firmware.layout import layout as project_layout
from mace_target_max78000.firmware.tensor_words import TensorBinding
from mace_target_max78000.options import Options
from mace_target_max78000.project import MAPS, make_project
from mace_target_max78000.quantize.plan import QuantizationPolicy
from mace_target_max78000.trained_model import check_trained_model

CALIBRATION = 32
"""Samples of the validation data by which a graph of real numbers is quantised."""
RISCV_REFUSAL = (
    "a project for the RISC-V core is two programs, and this builds one; "
    "write it with `mace convert` and build it with its Makefile"
)
CLOSE = 1e-5
"""How far outputs in float32 may be from those in float64, as a share."""


@dataclass(frozen=True, eq=False)
class Ported:
    """A network, and how the model's inputs and outputs become its own.

    options: those asked for, with what the places rely on.  designed: how it came to be, where it was made of
    a graph.
    """

    network: Network
    options: Options
    feed: TensorBinding
    inputs: Sequence[Tensor]
    outputs: Sequence[Tensor]
    designed: DesignedNetwork | None = None

    def visible(self) -> list[Tensor]:
        """What can be read of an inference, in the order of the runner's files: the model's outputs, then the accelerator's results.

        No name of the latter is one of the model's tensors.  Inner layers are compared when the project is
        built.
        """
        if self.designed is None:
            return list(self.outputs)
        return [
            *self.outputs,
            *(replace(t, name=f"{t.name} (accelerator)") for t in output_tensors(self.network)),
        ]

    def check(self, results: Sequence[Array]) -> None:
        """Compare what each layer computes, and what the application makes of it, with the graph.

        MaceError where they differ.
        """
        if self.designed is None:
            return
        graph = self.designed.legalized.graph
        values = compare_with_graph(
            self.designed.collect_results(results), self.designed.inputs, self.options
        )
        blocks = [result for layer, result in zip(self.network.layers, results, strict=True) if layer.output]
        for name, output in zip(graph.outputs, self.feed.results(blocks), strict=True):
            quant = graph.tensors[name].quant
            expected = dequantize(values[name], quant) if quant else values[name]
            if output.shape != expected.shape or not np.allclose(
                output, expected, CLOSE, CLOSE * np.abs(expected).max(initial=0)
            ):
                raise MaceError(
                    f"{graph.name}: output {name!r}",
                    "the application would make another one of the results",
                    REPORT,
                )


class Max78000(ProjectTarget):
    """The CNN accelerator of the MAX78000, behind its Cortex-M4."""

    name = "max78000"
    device = "max78000"
    abis: ClassVar[tuple[str, ...]] = ("cortex-m4",)
    chip: ClassVar[Chip] = MAX78000

    def check_options(self, model: Model) -> None:
        """Raise one MaceError with every option that is none, or has a value that it cannot have."""
        self._options(model)

    def layout(self, model: Model) -> Layout:
        """The files that the options ask for, the board layer, and the maps."""
        options, _ = self._options(model)
        files = tuple(project_layout(options))
        refusal = RISCV_REFUSAL if options.riscv else ""
        return Layout((*files, *MAPS), sources(files), headers(files), INCLUDES, LINKER_SCRIPT, refusal)

    def emit(self, graph: Graph, config: BuildConfig) -> Project:
        """Return the C project of a model: placed as its description says (platform ai8x), else quantized, formed and placed here."""
        options, policy = self._options(config.model)
        if isinstance(graph.origin, DescribedModel):
            ported = self._described(graph.origin, options, config)
        else:
            ported = self._designed(config.model, graph, options, policy)
        made = make_project(ported.network, ported.options, self.chip)
        ported.check(made.results)
        details: Json = {
            "cycles": made.usage.cycles,
            "hertz": choose_clock(ported.options, self.chip).hertz,
            "feed": ported.feed.described(),
            "documented": ported.options.documented,
        }
        figures = PartFigures(
            inputs=tuple(ported.inputs),
            outputs=tuple(ported.outputs),
            layers=tuple(ported.visible()),
            data_bytes=made.usage.data_bytes,
            weight_bytes=made.usage.weight_bytes,
            summary=made.summary,
            details=details,
        )
        return Project(made.files, figures, (*ported.network.notes, *made.notes))

    @classmethod
    def add_limit_faults(
        cls, options: NetworkOptions, network: Network, unread: Collection[int], faults: Faults
    ) -> None:
        """Add what the chip cannot compute to the faults of a description, see `DescribedTarget`."""
        known = {field.name: getattr(options, field.name) for field in fields(NetworkOptions)}
        all_options = options if isinstance(options, Options) else Options(**known)
        add_faults(faults, network, find_faults(network, cls.chip, all_options, unread))

    @classmethod
    def make_project(
        cls, described: DescribedModel, arguments: Sequence[str], trained: TrainedModel | None
    ) -> DescribedProject:
        """Return the project of a described network, see `DescribedTarget`."""
        options = Options.of_arguments(arguments, "options")
        network = described.network(options, partial(cls.add_limit_faults, options))
        if trained is not None:
            check_trained_model(network, trained.name, trained.graph, cls.chip)
        project = make_project(network, options, cls.chip)
        return DescribedProject(project.files, (*network.notes, *project.notes), project.summary)

    def runner(self) -> Runner:
        """The emulated microcontroller with the accelerator's simulator."""
        return Emulator(type(self).__module__.partition(".")[0])

    def _described(self, described: DescribedModel, options: Options, config: BuildConfig) -> Ported:
        network = described.network(options, partial(self.add_limit_faults, options))
        if trained := config.model.options(self.name).get("model"):
            file = config.model.files[0].parent / str(trained)
            check_trained_model(network, file.name, config.read(file), self.chip)
        outputs = output_tensors(network)
        return Ported(
            network,
            options,
            TensorBinding.of(network, options, [1.0] * len(outputs)),
            [input_tensor(network)],
            outputs,
        )

    def _designed(self, model: Model, graph: Graph, options: Options, policy: QuantizationPolicy) -> Ported:
        made = design_network(graph, _samples(model, graph), self.chip, options, policy)
        formed = made.legalized
        units = [2.0**step for layer, step in zip(formed.layers, formed.powers, strict=True) if layer.output]
        feed = TensorBinding.of(made.network, made.options, units).with_ends(formed)
        inputs, outputs = ([graph.tensors[name] for name in names] for names in (graph.inputs, graph.outputs))
        return Ported(made.network, made.options, feed, inputs, outputs, made)

    def _options(self, model: Model) -> tuple[Options, QuantizationPolicy]:
        """What the deployment file asks for: options of the program, and how to quantise."""
        asked = {name: value for name, value in model.options(self.name).items() if name != "model"}
        place = f"model {model.name!r}: target_options: {self.name}"
        limits = model.inputs[0].limits if model.inputs else QuantizationPolicy.limits
        policy = QuantizationPolicy(bits=_bits(asked.pop("bits", {}), place), limits=limits)
        return Options.of({"prefix": model.name, **asked}, place), policy


def _bits(asked: object, place: str) -> Mapping[str, int]:
    """Bits of weights by layer."""
    if not isinstance(asked, Mapping) or not all(bits in (1, 2, 4, 8) for bits in asked.values()):
        raise MaceError(
            place, f"bits: {asked!r} is not allowed", "write a mapping of layers' names to 1, 2, 4 or 8"
        )
    return {str(name): int(bits) for name, bits in asked.items()}


def _samples(model: Model, graph: Graph) -> list[Mapping[str, Array]]:
    """The first of the model's validation data as real numbers, one sample each, in the shape of the graph's input."""
    ports = [p for p in model.inputs if p.data]
    if not ports or len(graph.inputs) != 1:
        return []
    tensor = graph.tensors[graph.inputs[0]]
    rows = stored_samples(ports, [tensor])[tensor.name][:CALIBRATION]
    return [
        {tensor.name: dequantize(row, tensor.quant) if tensor.quant else row.astype(tensor.dtype.numpy)}
        for row in rows
    ]


class Emulator(Runner):
    """Executes a firmware's binary on an emulated microcontroller.

    package: of the target; `python -m` it takes a program and its arguments.
    """

    name = "unicorn"
    timing = "estimated"

    def __init__(self, package: str) -> None:
        self.package = package

    def missing(self) -> str | None:
        """None if the unicorn package is installed."""
        return None if find_spec("unicorn") else "the package unicorn is not installed: pip install unicorn"

    def command(self, program: Path, arguments: Sequence[str]) -> list[str]:
        """Give the emulator in a process of its own, which imports no module of the folder where it runs (-P)."""
        return [sys.executable, "-P", "-m", self.package, str(program), *arguments]
