"""The TensorFlow Lite files that a build would give to Vela if no rule refused a node."""

from __future__ import annotations

from pathlib import Path

from mace_core.api import BuildConfig, Part, Refusal, Region, Target
from mace_core.compilation import read_file
from mace_core.ir import Graph, Node
from mace_core.partition import partition
from mace_core.registry import Registry
from mace_target_ethosu.legalize import legalize_region
from mace_tflite_writer import write_tflite
from mace_tflite_writer.rewrites import refuses_after_rewrites


class _Written(Target):
    """Takes what a file can state."""

    name = "written"
    device = "npu"

    def refuses(self, node: Node, graph: Graph) -> Refusal | None:
        return refuses_after_rewrites(node, graph)

    def compile(self, region: Region, config: BuildConfig) -> Part:
        raise NotImplementedError("nothing is compiled for a comparison")


# The partition needs a target for every node, and which one computes the rest does not matter here.
class _Rest(_Written):
    """Takes everything."""

    name = "rest"

    def refuses(self, node: Node, graph: Graph) -> Refusal | None:
        return None


def write_regions(file: Path, generation: str) -> list[bytes]:
    """Return a file for each region of a model as the transforms leave it, for a generation of the NPU.

    MaceError if the model cannot be read.
    """
    graph = read_file(file, Registry.load())
    regions = partition(graph, (_Written(), _Rest())).regions
    written = [region.graph for region in regions if region.target.name == _Written.name]
    return [write_tflite(legalize_region(graph, generation)) for graph in written]
