"""Compiles a model to a C project: designed or described, checked, encoded, simulated, reported.

Each stage checks the one before it, so nothing is written that does not compute what the model says.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from mace_core.api import BuildConfig, Content, PartFigures
from mace_core.deployment import Model
from mace_core.deployment.faults import Faults
from mace_core.errors import MaceError
from mace_core.ir import Array, Graph, Tensor
from mace_core.json_types import Json
from mace_core.project_target import Project
from mace_core.quantization import dequantize
from mace_core.run.samples import stored_samples
from mace_frontend_ai8x.described_model import DescribedModel
from mace_frontend_ai8x.graph import input_tensor, output_tensors
from mace_frontend_ai8x.network import Network
from mace_target_max78000 import report
from mace_target_max78000.check import add_faults, find_faults
from mace_target_max78000.check.graph_comparison import compare_with_graph
from mace_target_max78000.check.program import REPORT, check_program
from mace_target_max78000.design import DesignedNetwork, design_network
from mace_target_max78000.device import Chip
from mace_target_max78000.encode import synthesize
from mace_target_max78000.firmware import emit_project
from mace_target_max78000.firmware.clock import choose_clock
from mace_target_max78000.firmware.layout import MAPS
from mace_target_max78000.firmware.tensor_words import TensorBinding
from mace_target_max78000.options import Options
from mace_target_max78000.quantize.plan import QuantizationPolicy
from mace_target_max78000.trained_model import check_trained_model

CALIBRATION = 32
"""Samples of the validation data by which a graph of real numbers is quantized."""
TOLERANCE = 1e-5
"""How far outputs in float32 may be from those in float64, as a share."""


@dataclass(frozen=True)
class FirmwareProject:
    """A network's C project with its maps, and what they say.

    results: what each layer computes of the network's sample, [channels, rows, columns].  notes: what the
    user should know of the program.
    """

    files: Mapping[str, Content]
    usage: report.ProgramReport
    results: tuple[Array, ...]
    notes: tuple[str, ...]

    @property
    def summary(self) -> str:
        """The report for people."""
        return report.format_summary(self.usage)


@dataclass(frozen=True, eq=False)
class BoundNetwork:
    """A network, and how the model's inputs and outputs become its own.

    options: those that were requested, with what the places rely on.  design: how the network was made of a
    graph; None for a described network.
    """

    network: Network
    options: Options
    binding: TensorBinding
    inputs: Sequence[Tensor]
    outputs: Sequence[Tensor]
    design: DesignedNetwork | None = None

    def visible(self) -> list[Tensor]:
        """Return what can be read of an inference, in the order of the runner's files.

        These are the model's outputs, then the accelerator's results, whose names no tensor of the model has.
        Inner layers are compared when the project is built.
        """
        if self.design is None:
            return list(self.outputs)
        results = output_tensors(self.network)
        return [*self.outputs, *(replace(t, name=f"{t.name} (accelerator)") for t in results)]

    def check(self, results: Sequence[Array]) -> None:
        """Compare what each layer computes, and what the application makes of it, with the graph.

        MaceError where they differ.
        """
        if self.design is None:
            return
        graph = self.design.legalized.graph
        values = compare_with_graph(self.design.collect_results(results), self.design.inputs, self.options)
        blocks = [result for layer, result in zip(self.network.layers, results, strict=True) if layer.output]
        for name, output in zip(graph.outputs, self.binding.results(blocks), strict=True):
            quant = graph.tensors[name].quant
            expected = dequantize(values[name], quant) if quant else values[name]
            # A share of the largest value, because small outputs are differences of large sums.
            tolerance = TOLERANCE * np.abs(expected).max(initial=0)
            if output.shape != expected.shape or not np.allclose(output, expected, TOLERANCE, tolerance):
                problem = "the application would compute another output from the results"
                raise MaceError(f"{graph.name}: output {name!r}", problem, REPORT)


@dataclass(frozen=True)
class CompileSettings:
    """What the deployment file asks of the target for one model.

    bits: of weights, by layer.  trained: the model that a description should describe, "" for none.
    """

    device: Chip
    options: Options
    bits: Mapping[str, int]
    trained: str = ""


def compile_model(graph: Graph, config: BuildConfig, settings: CompileSettings) -> Project:
    """Compile a model to its C project."""
    device = settings.device
    if isinstance(graph.origin, DescribedModel):
        bound = _bind_described(graph.origin, config, settings)
    else:
        bound = _bind_designed(graph, config.model, settings)
    made_project = make_project(bound.network, bound.options, device)
    bound.check(made_project.results)
    details: Json = {
        "cycles": made_project.usage.cycles,
        "hertz": choose_clock(bound.options, device).hertz,
        "feed": bound.binding.to_report(),
        "documented": bound.options.documented,
    }
    figures = PartFigures(
        inputs=tuple(bound.inputs),
        outputs=tuple(bound.outputs),
        layers=tuple(bound.visible()),
        data_bytes=made_project.usage.data_bytes,
        weight_bytes=made_project.usage.weight_bytes,
        summary=made_project.summary,
        details=details,
    )
    return Project(made_project.files, figures, (*bound.network.notes, *made_project.notes))


def _bind_described(
    described: DescribedModel, config: BuildConfig, settings: CompileSettings
) -> BoundNetwork:
    device, options = settings.device, settings.options

    def add_limit_faults(network: Network, unread: Collection[int], faults: Faults) -> None:
        add_faults(faults, network, find_faults(network, device, options, unread))

    network = described.network(options, add_limit_faults)
    if settings.trained:
        file = config.model.files[0].parent / settings.trained
        check_trained_model(network, file.name, config.read(file), device)
    outputs = output_tensors(network)
    binding = TensorBinding.of(network, options, [1.0] * len(outputs))
    return BoundNetwork(network, options, binding, [input_tensor(network)], outputs)


def _bind_designed(graph: Graph, model: Model, settings: CompileSettings) -> BoundNetwork:
    limits = model.inputs[0].limits if model.inputs else QuantizationPolicy.limits
    policy = QuantizationPolicy(bits=settings.bits, limits=limits)
    samples = _read_samples(model, graph)
    design = design_network(graph, samples, settings.device, settings.options, policy)
    legalized = design.legalized
    pairs = zip(legalized.layers, legalized.powers, strict=True)
    units = [2.0**power for layer, power in pairs if layer.output]
    binding = TensorBinding.of(design.network, design.options, units).with_ends(legalized)
    inputs, outputs = ([graph.tensors[name] for name in names] for names in (graph.inputs, graph.outputs))
    return BoundNetwork(design.network, design.options, binding, inputs, outputs, design)


def _read_samples(model: Model, graph: Graph) -> list[Mapping[str, Array]]:
    """Read the first samples of the model's validation data as real numbers, each as the graph's input."""
    ports = [port for port in model.inputs if port.data]
    if not ports or len(graph.inputs) != 1:
        return []
    tensor = graph.tensors[graph.inputs[0]]
    rows = stored_samples(ports, [tensor])[tensor.name][:CALIBRATION]
    return [
        {tensor.name: dequantize(row, tensor.quant) if tensor.quant else row.astype(tensor.dtype.numpy)}
        for row in rows
    ]


def make_project(network: Network, options: Options, device: Chip) -> FirmwareProject:
    """Make the project of a network.

    Its program has run in the simulator, and computed what the network says.

    One MaceError with everything that the hardware cannot do, or with the first layer that the program
    computes otherwise.
    """
    _check_legality(network, options, device)
    synthesis = synthesize(network, options, device)
    notes = check_program(network, synthesis, options)
    usage = report.analyze_program(network, synthesis, options)
    summary = report.format_summary(usage)
    maps = (summary, json.dumps(report.format_data(usage), indent=1) + "\n", report.draw_memory_map(usage))
    files: dict[str, Content] = {
        **emit_project(synthesis.image, network, options, summary),
        **dict(zip(MAPS, maps, strict=True)),
    }
    return FirmwareProject(files, usage, synthesis.outputs, notes)


def _check_legality(network: Network, options: Options, device: Chip) -> None:
    """Raise one MaceError with everything that the hardware cannot do.

    Faults name the lines of the description where there is one.
    """
    refusals = [f"{network.name}: {refusal}" for refusal in options.refusals(device)]
    wrong = find_faults(network, device, options)
    if network.origin is None:
        refusals += (f"{network.name}: {fault}" for fault in wrong)
    else:
        listed = Faults(network.origin.path)
        add_faults(listed, network, wrong)
        refusals += listed.messages()
    if refusals:
        raise MaceError.of(refusals)
