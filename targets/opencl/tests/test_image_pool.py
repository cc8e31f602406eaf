"""Images and buffers in one memory of the device, where its images can lie in a buffer."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from image_network import add_network, build_network
from opencl_device import measure_error, require_device
from opencl_shim import build_shim, choose_library
from stub_session import Probe, ProbeSession, build_probe

from mace_core.api import BuildConfig, Part, Refusal, Region, Target
from mace_core.graph_builder import Builder
from mace_core.ir import Array, DType, Graph, Node
from mace_core.levels import with_levels
from mace_core.memory import list_spans, touches_of
from mace_core.program import Program
from mace_core.registry import Registry
from mace_core.run.reference import execute
from mace_core.testing.compiled import generate_library, load_library, merge, random_inputs
from mace_target_opencl.blob import Blob, encode
from mace_target_opencl.half_storage import store_in_half
from mace_target_opencl.image_pool import ORIGIN, PITCH, find_pitch, plan_pool
from mace_target_opencl.image_storage import plan_images, store_in_images
from mace_target_opencl.options import OpenclOptions
from mace_target_opencl.target import Opencl

IMAGES = OpenclOptions(images=True)
EXTENSION = {"EXTENSIONS": "cl_khr_image2d_from_buffer", "PITCH": "64", "ORIGIN": "16"}


def wide_network(name: str = "m") -> Graph:
    """Return a network whose rows are so wide that the pitch of the pool costs less than sharing saves."""
    return build_network(2, 9, 64, name)


def lower(graph: Graph, storage: str = "f32") -> Program:
    program = Opencl(replace(IMAGES, storage=storage)).lower(graph)
    return store_in_images(store_in_half(program) if storage == "f16" else program)


def encode_wide() -> Blob:
    return encode(lower(wide_network()))


@pytest.mark.parametrize("storage", ["f32", "f16"])
def test_tensors_that_live_at_one_time_share_no_byte(storage: str) -> None:
    program = lower(wide_network(), storage)
    images = plan_images(program)
    pool = plan_pool(program, images, 1 << 30)
    assert pool is not None
    owner, spans = list_spans(program, touches_of(program))
    sizes = {image.name: image.form.rows * find_pitch(image) * 4 * image.unit for image in images}
    assert {image.name for image in images if not image.is_constant} <= {*owner}
    ends = {span.name: pool.offsets[span.name] + sizes.get(span.name, span.size) for span in spans}
    assert max(ends.values()) <= pool.bytes
    assert pool.bound <= pool.bytes
    assert all(offset % ORIGIN == 0 for offset in pool.offsets.values())
    for span in spans:
        for other in spans:
            if span.name < other.name and span.overlaps(other):
                is_apart = (
                    ends[span.name] <= pool.offsets[other.name] or ends[other.name] <= pool.offsets[span.name]
                )
                assert is_apart, (span, other)


def test_the_pool_is_smaller_than_images_and_buffers_apart() -> None:
    blob = encode_wide()
    assert blob.pool is not None
    assert blob.scratch == 0, "the driver has the memory"
    assert blob.pool.pool < blob.pool.apart == blob.pool.buffers + blob.pool.images
    assert blob.pool.images < blob.image_bytes, "which counts filters too"


def test_narrow_images_whose_padding_costs_more_have_no_pool() -> None:
    program = lower(build_network(2, 9, 3))
    widths = [image.form.width for image in plan_images(program) if not image.is_constant]
    assert max(widths) < PITCH
    blob = encode(program)
    assert blob.pool is None
    assert blob.scratch > 0
    assert blob.image_bytes > 0


@pytest.fixture(scope="module")
def probe(tmp_path_factory: pytest.TempPathFactory) -> Probe:
    return build_probe(tmp_path_factory.mktemp("probe"), graph=wide_network(), target=Opencl(IMAGES))


def list_pooled(probe: Probe, **environment: str) -> list[str]:
    """Return the images that a device with the extension has in its pool; each run must end well."""
    log = probe.run(ProbeSession(observes=True), **{**EXTENSION, **environment})
    assert log.find("run") == ["0", "0"]
    return [image for image in log.find("image") if image.endswith("pooled")]


@pytest.mark.exhaustive
@pytest.mark.parametrize("pitch", ["1", "16", "64"])
def test_images_lie_in_the_pool_of_a_device_that_can(pitch: str, probe: Probe) -> None:
    images = [image for image in plan_images(lower(wide_network())) if not image.is_constant]
    expected = {f"{image.form.width} {image.form.rows} pooled" for image in images}
    pooled = list_pooled(probe, PITCH=pitch)
    assert len(pooled) == len(images)
    assert {*pooled} == expected


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "environment",
    [
        {"EXTENSIONS": "cl_khr_image2d_from_buffers"},
        {"PITCH": "0"},
        {"PITCH": "128"},
        {"PITCH": "48"},
        {"ORIGIN": "0"},
        {"ORIGIN": "128"},
        {"BASE": "16384"},
        {"FAIL": "clCreateSubBuffer:1:-13"},
    ],
    ids=str,
)
def test_images_of_other_devices_have_memory_of_their_own(environment: dict[str, str], probe: Probe) -> None:
    assert list_pooled(probe, **environment) == []


@pytest.mark.exhaustive
def test_a_pool_beyond_the_largest_buffer_leaves_images_apart(probe: Probe) -> None:
    sizes = encode_wide().pool
    assert sizes is not None
    assert sizes.buffers < sizes.pool
    assert list_pooled(probe, LARGEST=str(sizes.pool - 1)) == []


@pytest.mark.exhaustive
def test_images_that_the_device_does_not_take_have_memory_of_their_own(probe: Probe) -> None:
    log = probe.run(ProbeSession(runs=1), **EXTENSION, FAIL="clCreateImage:2:-10")
    assert log.find("run") == ["0"]
    images = log.find("image")
    assert sum(image.endswith("shared") for image in images) > 0


class Interrupted(Target):
    """Takes what the GPU takes but for Sinh, so that the processor computes between two of its regions."""

    name, device = "opencl", "gpu"

    def __init__(self) -> None:
        self.target = Opencl(IMAGES)

    def refuses(self, node: Node, graph: Graph) -> Refusal | None:
        if node.op.name == "Sinh":
            return Refusal("other", "the test gives it to the processor")
        return self.target.refuses(node, graph)

    def compile(self, region: Region, config: BuildConfig) -> Part:
        return self.target.compile(replace(region, target=self.target), config)

    manifests = Opencl.manifests


def interrupted_graph() -> Graph:
    """Return two networks, of which the second is larger, and waits for the first's mean by the processor."""
    builder = Builder("m")
    small, large = (
        builder.input(name, DType.F32, (2, rows, 64, 3)) for name, rows in (("small", 9), ("large", 20))
    )
    first, *others = add_network(builder, small)
    between = builder.one(
        "ReduceMean", [builder.one("Sinh", [first])], {"axes": (0, 1, 2, 3), "keepdims": True}
    )
    second = add_network(builder, builder.one("Add", [large, between]))
    return builder.finish([*second, *others])


@pytest.mark.exhaustive
def test_parts_share_a_pool_that_grows_for_the_largest(tmp_path: Path) -> None:
    probe = build_probe(tmp_path, graph=interrupted_graph(), target=Interrupted())
    log = probe.run(ProbeSession(runs=1), **EXTENSION)
    assert log.find("run") == ["0"]
    parts = [part.split(":")[0] for part in log.find("part")]
    assert parts.count("opencl") == 2 + 1, (
        "two parts when it is opened, and the first once more behind the run"
    )
    images = [image for image in log.find("image") if image.endswith("pooled")]
    per_part = sum(not image.is_constant for image in plan_images(lower(wide_network())))
    # Those of the first part are placed again once, in the pool that has grown for the second.
    assert len(images) == 3 * per_part


@pytest.mark.device
@pytest.mark.exhaustive
def test_parts_that_share_a_pool_compute_what_the_references_do(tmp_path: Path) -> None:
    require_device()
    graph = interrupted_graph()
    cpu = Registry.load().targets["cpu"]
    targets = [Interrupted(), with_levels(cpu, cpu.levels("host")[-1:])]
    sources, config = generate_library(targets, [graph]), choose_library(build_shim(tmp_path))
    pooled = load_library(sources, tmp_path / "pooled", config=config)[graph.name]
    apart = load_library(sources, tmp_path / "apart")[graph.name]
    for seed in range(2):
        inputs = random_inputs(graph, seed)
        expected, outputs, others = execute(graph, inputs), pooled.run(inputs), apart.run(inputs)
        for name in graph.outputs:
            assert np.array_equal(outputs[name], others[name]), "the same kernels, wherever images lie"
            assert measure_error(outputs[name], expected[name]) < 1e-4, name


@pytest.mark.device
@pytest.mark.exhaustive
@pytest.mark.parametrize(("storage", "limit"), [("f32", 1e-5), ("f16", 5e-3)])
def test_networks_compute_in_the_pool_what_the_references_do(
    storage: str, limit: float, tmp_path: Path
) -> None:
    require_device()
    shim = build_shim(tmp_path)
    graph = merge("all", [wide_network("wide"), build_network(1, 20, 33, "odd")])
    target = Opencl(replace(IMAGES, storage=storage))
    library = generate_library([target], [graph])
    model = load_library(library, tmp_path, config=choose_library(shim))["all"]
    inputs = random_inputs(graph)
    expected = execute(graph, inputs)
    seen: list[Array] = []
    for outputs in (model.run(inputs), model.run(inputs, lambda _, array: seen.append(array))):
        errors = {name: measure_error(outputs[name], expected[name]) for name in graph.outputs}
        assert max(errors.values()) < limit, errors
    assert seen
    result = ctypes.CDLL(str(shim)).opencl_shim_count_images()
    assert result == sum(not image.is_constant for image in plan_images(lower(graph, storage)))
