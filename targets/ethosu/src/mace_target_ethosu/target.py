"""Compiles regions for the NPU: a TensorFlow Lite file, Vela, and the driver's payload."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import ClassVar

from mace_core.api import BlobBody, BuildConfig, Manifest, Part, PartFigures, Refusal, Region, Target, Unit
from mace_core.deployment import Model
from mace_core.ir import Graph, Node
from mace_core.json_types import Json
from mace_target_ethosu.options import EthosUOptions, read_options

DRIVER = "mace_ethosu_driver"


class EthosU(Target):
    """Arm's Ethos-U55, U65 and U85, which compute integers of 8 and 16 bits."""

    name = "ethosu"
    device = "npu"
    # The driver is plain C and reads its tables byte by byte, so that any processor can run it.
    abis: ClassVar[tuple[str, ...]] = ("*",)

    def __init__(self, options: EthosUOptions | None = None) -> None:
        self.options = options or EthosUOptions()

    def missing(self) -> str | None:
        """Return how to install Vela; None if it is here."""
        from mace_target_ethosu.vela import find_fault

        return find_fault()

    def configure(self, model: Model) -> EthosU:
        """Return the target for the accelerator that the model's options name."""
        return EthosU(read_options(model))

    def check_options(self, model: Model) -> None:
        """Raise one MaceError with all that is wrong with the options of a model."""
        read_options(model)

    def refuses(self, node: Node, graph: Graph) -> Refusal | None:
        """None if the NPU computes the operators of a TensorFlow Lite file that the node becomes."""
        from mace_target_ethosu.single import judge_node

        return judge_node(node, graph, self.options.generation)

    def compile(self, region: Region, config: BuildConfig) -> Part:
        """Return the region as a payload of the vendor's driver.

        MaceError with Vela's words if it refuses the region.
        """
        from mace_target_ethosu.legalize import legalize_region
        from mace_target_ethosu.payload import encode_network
        from mace_target_ethosu.vela import compile_network, vela_version
        from mace_tflite_writer import write_tflite

        place = f"{config.model.name}: region {region.name}"
        graph = legalize_region(region.graph, self.options.generation)
        network = compile_network(write_tflite(graph), self.options, place)
        encoded = encode_network(network, place)
        inputs, outputs = region.ports()
        body = BlobBody(
            encoded.code,
            encoded.weights,
            built_by=f"Vela {vela_version()}",
            built_for=self.options.accelerator,
        )
        return Part(
            region.name,
            self.name,
            inputs,
            outputs,
            body,
            driver=DRIVER,
            scratch=encoded.scratch,
            nodes=tuple(node.name for node in region.graph.nodes),
            notes=self._notes(network.figures),
            figures=_figures(network.figures, encoded.scratch, len(encoded.weights)),
        )

    def manifests(self, library: str, models: Sequence[Model], abi: str) -> tuple[Manifest, ...]:
        """Return the driver, which calls the vendor's by name."""
        source = Path(str(files("mace_target_ethosu"))) / "driver" / f"{DRIVER}.c"
        unit = Unit(source.name)
        return (Manifest(library, copies={unit.source: source}, units=(unit,), drivers=(DRIVER,)),)

    def _notes(self, figures: Mapping[str, str]) -> tuple[str, ...]:
        """Return what the user left to Vela, because the estimates depend on it."""
        chosen = self.options
        if chosen.system_config and chosen.memory_mode:
            return ()
        system, mode = figures["system_config"], figures["memory_mode"]
        return (
            f"ethosu: Vela's defaults for {chosen.accelerator} are used: system_config {system}, "
            f"memory_mode {mode}; cycles and memory are those of that system",
        )


def _figures(summary: Mapping[str, str], scratch: int, weights: int) -> PartFigures:
    """Return Vela's estimates as the report of the part."""
    cycles = int(float(summary["cycles_total"]))
    milliseconds = float(summary["inference_time"]) * 1e3
    clock = float(summary["core_clock"]) / 1e6
    details: Json = {
        "source": "estimated by Vela, not measured",
        "accelerator": summary["accelerator_configuration"],
        "system_config": summary["system_config"],
        "memory_mode": summary["memory_mode"],
        "cycles": {
            name: int(float(summary[f"cycles_{name}"]))
            for name in (
                "total",
                "npu",
                "sram_access",
                "dram_access",
                "on_chip_flash_access",
                "off_chip_flash_access",
            )
        },
        "milliseconds": milliseconds,
        "macs": int(float(summary["nn_macs"])),
        "memory_kib": {
            name: float(summary[f"{name}_memory_used"])
            for name in ("sram", "dram", "on_chip_flash", "off_chip_flash")
        },
    }
    line = (
        f"Vela estimates {cycles} cycles, {milliseconds:.3f} ms at {clock:.0f} MHz, on "
        f"{summary['accelerator_configuration']}; {summary['sram_memory_used']} KiB of SRAM"
    )
    return PartFigures(data_bytes=scratch, weight_bytes=weights, summary=line, details=details)
