"""Offers the MDLA as a target: regions become TFLite files, which the device's Neuron runtime loads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from itertools import chain
from typing import ClassVar

from mace_core.api import (
    BlobBody,
    BufferKind,
    BuildConfig,
    Manifest,
    Part,
    PartFigures,
    Refusal,
    Region,
    Target,
)
from mace_core.deployment import Model
from mace_core.errors import MaceError
from mace_core.ir import DType, Graph, Node
from mace_core.json_types import Json
from mace_core.lint import LintReport, VendorPlan
from mace_core.ops.pool import LpPoolAttributes
from mace_target_mdla.options import MdlaOptions

SQUARING = ("LayerNorm", "RMSNorm", "LpPool")
"""Ops whose steps may square numbers, see `_squares_numbers`."""
DRIVER = "mace_mdla_driver"
"""The C symbol of the driver."""
BUILT_BY = "mace-target-mdla 0.1.0"
"""What a network says that the device's runtime is to compile."""
KINDS = (BufferKind.DMABUF, BufferKind.AHARDWAREBUFFER)
"""Buffers of the application that the driver takes without a copy."""


class Mdla(Target):
    """MediaTek's deep learning accelerator, by the rules of the generation that a model's options name.

    options: None for the target as it is installed, which `configure` gives the options of a model.
    """

    name = "mdla"
    device = "apu"
    # The host as well, for `mace lint` and for the stub of the adapter that the tests compute with.
    abis: ClassVar[tuple[str, ...]] = ("arm64*", "host")

    def __init__(self, options: MdlaOptions | None = None) -> None:
        self.options = options

    def missing(self) -> str | None:
        """Return None if the writer of TFLite files is installed."""
        for module in ("mace_tflite_writer", "mace_target_mdla.network"):
            if find_spec(module) is None:
                return f"the module {module} is not installed: install mace-target-mdla with its dependencies"
        return None

    def check_options(self, model: Model) -> None:
        """Raise one MaceError with every option that is unknown, or has a value that it cannot have."""
        MdlaOptions.of_model(model)

    def configure(self, model: Model) -> Target:
        """Return the target for the chip that a model states; MaceError where it states none."""
        if self.options is not None and not model.options(self.name):
            return self
        return Mdla(MdlaOptions.of_model(model))

    def refuses(self, node: Node, graph: Graph) -> Refusal | None:
        """None if the rules of the generation allow the node, and TFLite and the adapter can state it."""
        from mace_target_mdla.acceptance import examine

        return examine(node, graph, self._options()).refusal

    def lint(self, graph: Graph) -> LintReport:
        """Return verdict, rules and estimated cost of each node on the chip of the options."""
        from mace_target_mdla.lint import lint_graph

        return lint_graph(graph, self._options())

    def options_for_chip(self, options: Json, chip: str) -> Json:
        """Return the options with another chip and without the generation, which the chip implies."""
        return {**{name: value for name, value in options.items() if name != "generation"}, "soc": chip}

    def read_plan(self, text: str) -> VendorPlan:
        """Return what ncc-tflite printed of its plan, see `vendor_plan`."""
        from mace_target_mdla.vendor_plan import read_plan

        return read_plan(text)

    def compile(self, region: Region, config: BuildConfig) -> Part:
        """Return the region as a network for the driver, with its TFLite file; tensors lie in host memory."""
        from mace_target_mdla.compilers import compile_network
        from mace_target_mdla.legalize import legalize_for
        from mace_target_mdla.network import encode_compiled, encode_network
        from mace_tflite_writer import write_tflite

        options = self._options()
        graph, losses = legalize_for(region.graph, options)
        tflite = write_tflite(graph)
        compiled = compile_network(tflite, options, f"{config.model.name}: region {region.name}")
        notes = [*_note_half_precision(region), *_note_squares(region), *(f"mdla: {loss}" for loss in losses)]
        if compiled is None:
            # The hardware has no arithmetic of 32 bits for floats: without leave the device would refuse.
            network = encode_network(graph, tflite, relax_float=True, unsigned=options.stores_uint8)
            built_by, figures = BUILT_BY, PartFigures()
        else:
            network = encode_compiled(graph, compiled.content, compiled.kind)
            built_by = compiled.built_by
            if options.stores_uint8 and _has_int8_results(graph):
                notes.append(
                    f"mdla: {built_by} was given int8 in place of uint8, because the file format has no "
                    "scales for each channel beside uint8"
                )
            figures = PartFigures(summary=f"compiled by {built_by}", details=compiled.as_json())
        inputs, outputs = (tuple(replace(p, kinds=KINDS) for p in ports) for ports in region.ports())
        body = BlobBody(network, built_by=built_by, built_for=options.device)
        nodes = tuple(node.name for node in region.graph.nodes)
        return Part(
            region.name,
            self.name,
            inputs,
            outputs,
            body,
            driver=DRIVER,
            nodes=nodes,
            notes=tuple(notes),
            figures=figures,
        )

    def manifests(self, library: str, models: Sequence[Model], abi: str) -> tuple[Manifest, ...]:
        """Return the driver, which is compiled into the library, and what it looks for at run time."""
        from mace_target_mdla.driver import manifests

        return manifests(library)

    def _options(self) -> MdlaOptions:
        if self.options is None:
            raise MaceError(
                "target mdla",
                "no chip is stated",
                "write target_options: {mdla: {soc: MT8195}} for the model",
            )
        return self.options


def _note_half_precision(region: Region) -> tuple[str, ...]:
    """Return what a user must know of a region of floats; () for one of integers."""
    if all(tensor.dtype is not DType.F32 for tensor in region.graph.tensors.values()):
        return ()
    return ("mdla: floats of 32 bits are computed with 16: the hardware has no others",)


def _has_int8_results(graph: Graph) -> bool:
    """Tell whether a node between the edges of a region computes int8."""
    results = chain.from_iterable(node.outputs for node in graph.nodes)
    return any(graph.tensors[name].dtype is DType.I8 for name in results if name not in graph.outputs)


def _note_squares(region: Region) -> tuple[str, ...]:
    """Return which norms can overflow: their steps square numbers that the hardware holds with 16 bits."""
    # The square of 256 is 65,536, and half precision ends at 65,504.
    names = [node.name for node in region.graph.nodes if _squares_numbers(node)]
    if not names:
        return ()
    listed = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return (
        f"mdla: {listed}: squares overflow with 16 bits where a number is 256 or more, of a LayerNorm 256 or "
        "more from the mean",
    )


def _squares_numbers(node: Node) -> bool:
    """Tell whether the steps of a node square numbers, see `norms_by_steps`."""
    attrs = node.attrs
    # A pool of magnitudes (p of 1) adds them up as they are.
    return node.op.name in SQUARING and not (isinstance(attrs, LpPoolAttributes) and attrs.p == 1)
