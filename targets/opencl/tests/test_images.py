"""Images in place of buffers: where elements lie, which tensors share one, and what kernels compute."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from image_network import build_network, window
from opencl_device import compile_by_clang, load_on_device, measure_error, require_device
from opencl_models import WHOLE, read_graph
from stub_session import Probe, ProbeSession, build_probe

from mace_core.errors import PluginError
from mace_core.graph_builder import Builder
from mace_core.ir import Array, DType, Graph, Shape
from mace_core.program import Call, Program
from mace_core.run.reference import execute
from mace_core.testing.compiled import merge, random_inputs
from mace_core.tuning import Tuning, TuningEntry
from mace_target_opencl.blob import encode
from mace_target_opencl.enqueue import make_kernel, operands_of, render_program
from mace_target_opencl.half_arithmetic import compute_in_half
from mace_target_opencl.half_storage import store_in_half
from mace_target_opencl.image_storage import count_bytes, plan_images, store_in_images
from mace_target_opencl.kernel_operand import ImageForm
from mace_target_opencl.options import OpenclOptions
from mace_target_opencl.target import Opencl
from mace_target_opencl.types import HALF

IMAGES = OpenclOptions(images=True)
NO_DEVICE, FAILED = 6, 11


def lower(options: OpenclOptions = IMAGES) -> Program:
    return store_in_images(Opencl(options).lower(build_network()))


def list_images(call: Call) -> dict[str, str]:
    pairs = zip(operands_of(call), (*call.reads, *call.writes), strict=True)
    return {str(operand.name): tensor for operand, tensor in pairs if operand.image}


def pixels_of(program: Program, weight: str) -> Array:
    """Return a constant as [rows][columns][4]."""
    (image,) = (image for image in plan_images(program) if image.name == weight)
    return program.weights[weight].make().reshape(image.form.rows, image.form.width, 4)


def test_filters_lie_as_mace_documents_them() -> None:
    """P[m, n] = E[o, i, h, w] with o = n / HW * 4 + k, i = m, and the tap n % HW."""
    graph, program = build_network(), lower()
    (node,) = (n for n in graph.nodes if n.op.name == "Conv" and graph.tensors[n.outputs[0]].shape[-1] == 20)
    filters = graph.weights[node.inputs[1]]
    (call,) = (call for call in program.calls if call.node == node.name)
    pixels = pixels_of(program, list_images(call)["w"])
    taps = 9
    assert pixels.shape == (20 // 4 * taps, 12, 4)
    for n, m, k in np.ndindex(*pixels.shape):
        output, tap = n // taps * 4 + k, n % taps
        assert pixels[n, m, k] == filters[output, tap // 3, tap % 3, m]


def test_depthwise_filters_lie_as_mace_documents_them() -> None:
    """P[m, n] = E[0, i, h, w] with i = n * 4 + k, h = m / W, w = m % W."""
    graph, program = build_network(), lower()
    (node,) = (n for n in graph.nodes if n.op.name == "Conv" and graph.tensors[n.inputs[1]].shape[-1] == 1)
    filters = graph.weights[node.inputs[1]]
    (call,) = (call for call in program.calls if call.kernel.params.get("weighted"))
    pixels = pixels_of(program, list_images(call)["w"])
    assert pixels.shape == (3, 9, 4)
    for n, m, k in np.ndindex(*pixels.shape):
        assert pixels[n, m, k] == filters[n * 4 + k, m // 3, m % 3, 0]


def test_tensors_that_only_some_kernels_reach_stay_in_buffers() -> None:
    program = lower()
    images = {image.name for image in plan_images(program) if not image.is_constant}
    shapes = {name: program.tensors[name].shape for name in images}
    # The pools and what a convolution of five outputs reads are not among them, nor are ports.
    assert {shape[-1] for shape in shapes.values()} == {12, 20}
    assert not images & {*program.inputs, *program.outputs}
    (odd,) = (call for call in program.calls if program.tensors[call.writes[0]].shape[-1] == 5)
    assert list_images(odd) == {}


def test_without_the_option_nothing_lies_in_images() -> None:
    assert plan_images(lower(OpenclOptions())) == ()
    assert plan_images(lower(replace(IMAGES, checks_bounds=True))) == (), "bounds are tested in buffers"


def test_tensors_that_live_at_one_time_share_no_image() -> None:
    program = lower()
    planned = {image.name: image for image in plan_images(program)}
    lives: dict[str, tuple[int, int]] = {}
    for number, call in enumerate(program.calls):
        for name in list_images(call).values():
            lives[name] = (lives.get(name, (number, number))[0], number)
    assert {*lives} == {*planned}
    for name, (first, last) in lives.items():
        others = {other for other in lives if other != name and planned[other].slot == planned[name].slot}
        assert all(lives[other][0] > last or lives[other][1] < first for other in others), name
    each_alone = sum(image.form.rows * image.form.width * 16 for image in planned.values())
    assert count_bytes([*planned.values()]) < each_alone
    assert encode(program).image_bytes == count_bytes([*planned.values()])


@pytest.mark.parametrize(
    ("shape", "fits"),
    [
        ((1, 8192, 1, 4), True),
        ((1, 8193, 1, 4), False),
        ((3, 2731, 1, 4), False),
        ((1, 1, 8192, 4), True),
        ((1, 1, 4097, 8), False),
        ((1, 4, 4, 6), False),
        ((4, 4, 4), False),
    ],
)
def test_an_image_has_at_most_the_rows_and_columns_of_every_device(shape: Shape, fits: bool) -> None:
    assert (ImageForm.of_activation(shape) is not None) == fits


def narrow(call: Call, half: str) -> Call:
    """Return the call with one tensor in half precision."""
    pairs = zip(operands_of(call), (*call.reads, *call.writes), strict=True)
    operands = tuple(replace(o, type=HALF) if tensor == half else o for o, tensor in pairs)
    return replace(call, kernel=make_kernel("map", {**call.kernel.params, "operands": operands}))


def test_halves_and_floats_share_no_image() -> None:
    """The format of an image is fixed when it is made."""
    program = lower()
    for half in [image.name for image in plan_images(program) if not image.is_constant]:
        planned = plan_images(replace(program, calls=tuple(narrow(call, half) for call in program.calls)))
        slots = {image.name: image.slot for image in planned}
        assert [image.unit for image in planned if image.name == half] == [2]
        assert all(image.unit == 2 for image in planned if image.slot == slots[half]), half


def test_no_result_takes_the_place_of_an_operand_in_an_image() -> None:
    assert not any(call.inplace for call in lower().calls if list_images(call))


def test_a_tuning_file_asks_for_images() -> None:
    graph = build_network()
    (node,) = (n for n in graph.nodes if graph.tensors[n.outputs[0]].shape[-1] == 20 and n.op.name == "Conv")
    tuning = Tuning(Path("t.yml"), (TuningEntry("image", 1, node=node.name),))
    program = store_in_images(Opencl().lower(graph, tuning=tuning))
    asked = [call for call in program.calls if list_images(call)]
    assert len(asked) == 2, "the convolution, and what writes its operand"
    assert {*list_images(asked[1])} == {"x", "w"}


def build_shared_filter() -> Graph:
    """Return two convolutions of one filter, whose four outputs have the same order in images and buffers."""
    builder, rng = Builder("shared"), np.random.default_rng(0)
    w = builder.weight("w", rng.normal(0, 0.3, (4, 3, 3, 8)).astype(np.float32))
    inputs = [builder.input(name, DType.F32, (1, 6, 5, 8)) for name in ("x", "z")]
    return builder.finish([builder.one("Conv", [x, w], window(1)) for x in inputs])


def ask_for_one_image(graph: Graph) -> Tuning:
    """Return a tuning file that asks for images for the first node alone."""
    return Tuning(Path("t.yml"), (TuningEntry("image", 1, node=graph.nodes[0].name),))


def test_a_filter_in_an_image_is_shared_with_no_kernel_that_reads_a_buffer() -> None:
    graph = build_shared_filter()
    program = store_in_images(Opencl().lower(graph, tuning=ask_for_one_image(graph)))
    asked, other = program.calls
    assert list_images(asked) == {"w": asked.reads[1]}
    assert list_images(other) == {}
    assert other.reads[1] != asked.reads[1]


def test_a_tensor_of_two_forms_is_an_error_of_the_build() -> None:
    program = lower()
    number, call = next((n, call) for n, call in enumerate(program.calls) if "w" in list_images(call))
    buffers = tuple(replace(operand, image=None) for operand in operands_of(call))
    # The same constant once more, in a buffer.
    kernel = make_kernel("product", {**call.kernel.params, "operands": buffers})
    calls = (*program.calls[: number + 1], replace(call, kernel=kernel), *program.calls[number + 1 :])
    with pytest.raises(PluginError, match="in another form than it lies in"):
        encode(replace(program, calls=calls))


def test_a_convolution_without_images_has_no_such_candidate() -> None:
    selections = Opencl().lower(build_network()).selections
    refused = [s for s in selections if "image" in s.refused]
    assert len(refused) == 2, "three inputs, and five outputs"
    assert all("multiples of 4" in s.refused["image"] for s in refused)


@pytest.mark.exhaustive
def test_kernels_are_opencl_c(tmp_path: Path) -> None:
    program = compute_in_half(store_in_half(Opencl(IMAGES).lower(build_network())))
    source = render_program(call.kernel for call in store_in_images(program).calls)
    assert "read_imagef" in source
    assert "write_imagef" in source
    assert (
        "image2d_t" in compile_by_clang(source, tmp_path)
        or "opencl.image2d" in (tmp_path / "kernels.ll").read_text()
    )


@pytest.fixture(scope="module")
def probe(tmp_path_factory: pytest.TempPathFactory) -> Probe:
    return build_probe(tmp_path_factory.mktemp("probe"), graph=build_network(name="m"), target=Opencl(IMAGES))


@pytest.mark.exhaustive
def test_images_are_made_once_and_given_back(probe: Probe) -> None:
    log = probe.run(ProbeSession(observes=True))
    assert log.find("run") == ["0", "0"]
    result = log.find("image")
    slots = {image.slot for image in plan_images(lower())}
    assert len(result) == len(slots)
    assert "12 45 constant" in result


@pytest.mark.exhaustive
@pytest.mark.parametrize("number", [1, 3])
def test_a_device_without_room_for_images_is_told(number: int, probe: Probe) -> None:
    (opened,) = probe.run(FAIL=f"clCreateImage:{number}:-4").find("open")
    assert opened.startswith(f"{FAILED} ")
    assert "clCreateImage answered -4: out of memory" in opened


@pytest.mark.exhaustive
def test_a_device_without_images_is_refused(probe: Probe) -> None:
    (opened,) = probe.run(IMAGES="0").find("open")
    assert opened.startswith(f"{NO_DEVICE} ")
    assert "has no images; build the library with cl_mem_type: buffer" in opened


@pytest.mark.exhaustive
def test_an_image_that_cannot_be_read_fails_the_observed_run(probe: Probe) -> None:
    first, second = probe.run(ProbeSession(observes=True), FAIL="clEnqueueReadImage:1:-5").find("run")
    assert first.startswith(f"{FAILED} ")
    assert second == "0"


@pytest.mark.device
@pytest.mark.exhaustive
@pytest.mark.parametrize(("storage", "limit"), [("f32", 1e-5), ("f16", 5e-3)])
def test_networks_of_odd_sizes_compute_what_the_references_do(
    storage: str, limit: float, tmp_path: Path
) -> None:
    require_device()
    sizes = [(1, 9, 7), (3, 5, 6), (2, 8, 13)]
    graph = merge("all", [build_network(*size, f"of_{number}") for number, size in enumerate(sizes)])
    model = load_on_device([graph], tmp_path, Opencl(replace(IMAGES, storage=storage)))["all"]
    inputs = random_inputs(graph)
    expected, outputs = execute(graph, inputs), model.run(inputs)
    errors = {name: measure_error(outputs[name], expected[name]) for name in graph.outputs}
    assert max(errors.values()) < limit, errors


@pytest.mark.device
@pytest.mark.exhaustive
def test_a_filter_of_images_and_buffers_computes_what_the_reference_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_device()
    graph = build_shared_filter()
    tuning = ask_for_one_image(graph)
    monkeypatch.setattr("mace_target_opencl.target.tuning_of", lambda *_: tuning)
    inputs = random_inputs(graph)
    expected, outputs = execute(graph, inputs), load_on_device([graph], tmp_path)[graph.name].run(inputs)
    errors = {name: measure_error(outputs[name], expected[name]) for name in graph.outputs}
    assert max(errors.values()) < 1e-5, errors


@pytest.mark.device
@pytest.mark.exhaustive
def test_layers_in_images_are_shown_in_the_order_of_their_elements(tmp_path: Path) -> None:
    require_device()
    graph = build_network()
    seen: list[Array] = []
    model = load_on_device([graph], tmp_path, Opencl(IMAGES))[graph.name]
    inputs = random_inputs(graph)
    model.run(inputs, lambda _, array: seen.append(array.copy()))
    in_images = {image.name for image in plan_images(lower())}
    names = [call.writes[0] for call in lower().calls]
    assert len(in_images & {*names}) >= 3
    everything = replace(graph, outputs=tuple(names))
    expected = execute(everything, inputs)
    errors = {name: measure_error(array, expected[name]) for name, array in zip(names, seen, strict=True)}
    assert max(errors.values()) < 1e-5, errors


@pytest.mark.device
@pytest.mark.exhaustive
@pytest.mark.parametrize("name", [name for name in WHOLE if "lstm" not in name and "silero" not in name])
def test_models_compute_what_their_references_do(name: str, tmp_path: Path) -> None:
    require_device()
    graph = read_graph(name, tmp_path)
    model = load_on_device([graph], tmp_path, Opencl(IMAGES))[graph.name]
    inputs = random_inputs(graph)
    expected, outputs = execute(graph, inputs), model.run(inputs)
    for output in graph.port_outputs:
        assert measure_error(outputs[output], expected[output]) < 1e-4, output
