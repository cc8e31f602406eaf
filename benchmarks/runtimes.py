"""The runtimes that peers.py measures, each behind one interface: open a model, run it, give its outputs."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from peer_models import BFLOAT, PeerModel

from mace_core.ir import Array
from mace_core.run import native

Inputs = Mapping[str, Array]


class UnsupportedError(Exception):
    """Says why a runtime does not take a model."""


@dataclass(frozen=True)
class Session:
    """An open model: `run` computes once, on inputs given before; `outputs` returns what it computed.

    level: the instruction-set level, where the runtime tells it.
    """

    run: Callable[[], object]
    outputs: Callable[[], list[Array]]
    level: str = ""


class Runtime(ABC):
    """A runtime; `distribution` is what pip installs.

    has_bfloat: whether it is known here how to ask it for products of bfloat16.
    """

    name: str
    distribution: str
    has_bfloat = False

    @property
    def version(self) -> str:
        """The installed version; "" where it is not installed."""
        try:
            return version(self.distribution)
        except PackageNotFoundError:
            return ""

    @abstractmethod
    def open(self, model: PeerModel, inputs: Inputs, threads: int) -> Session:
        """Open a model on so many threads with these inputs, by name, in the order of its file.

        UnsupportedError where it does not take the model.
        """


class OnnxRuntime(Runtime):
    """ONNX Runtime with all optimizations, inputs and outputs bound."""

    name, distribution = "onnxruntime", "onnxruntime"

    def open(self, model: PeerModel, inputs: Inputs, threads: int) -> Session:
        """Open the ONNX file."""
        if model.onnx is None:
            raise UnsupportedError("there is no ONNX file of it")
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        options.log_severity_level = 3
        session = onnxruntime.InferenceSession(str(model.onnx), options, providers=["CPUExecutionProvider"])
        binding = session.io_binding()
        for value, array in zip(session.get_inputs(), inputs.values(), strict=True):
            binding.bind_cpu_input(value.name, array)
        for value in session.get_outputs():
            binding.bind_output(value.name)
        return Session(lambda: session.run_with_iobinding(binding), binding.copy_outputs_to_cpu)


class LiteRT(Runtime):
    """LiteRT with XNNPACK, which it applies by itself."""

    name, distribution = "litert", "ai-edge-litert"

    def open(self, model: PeerModel, inputs: Inputs, threads: int) -> Session:
        """Open the TensorFlow Lite file."""
        if model.tflite is None:
            raise UnsupportedError("there is no TensorFlow Lite file of it")
        from ai_edge_litert.interpreter import Interpreter

        interpreter = Interpreter(str(model.tflite), num_threads=threads)
        interpreter.allocate_tensors()
        for detail, array in zip(interpreter.get_input_details(), inputs.values(), strict=True):
            interpreter.set_tensor(detail["index"], array.reshape(detail["shape"]))

        def outputs() -> list[Array]:
            return [interpreter.get_tensor(detail["index"]) for detail in interpreter.get_output_details()]

        return Session(interpreter.invoke, outputs)


class OpenVino(Runtime):
    """OpenVINO's CPU plugin; floats stay floats, where it would take bfloat16 by itself, unless a model asks."""

    name, distribution = "openvino", "openvino"
    has_bfloat = True

    def open(self, model: PeerModel, inputs: Inputs, threads: int) -> Session:
        """Open the ONNX file, or the TensorFlow Lite file where there is none."""
        import openvino

        core = openvino.Core()
        network = core.read_model(str(model.files[0]))
        if network.is_dynamic():
            shapes = zip(network.inputs, inputs.values(), strict=True)
            network.reshape({port: list(array.shape) for port, array in shapes})
        settings = {
            "INFERENCE_NUM_THREADS": threads,
            "NUM_STREAMS": 1,
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_PRECISION_HINT": "bf16" if model.dtype == BFLOAT else "f32",
        }
        request = core.compile_model(network, "CPU", settings).create_infer_request()
        for number, array in enumerate(inputs.values()):
            request.set_input_tensor(number, openvino.Tensor(array, shared_memory=True))

        def outputs() -> list[Array]:
            return [np.array(tensor.data) for tensor in request.output_tensors]

        return Session(lambda: request.infer(share_outputs=True), outputs)


class Mnn(Runtime):
    """MNN in full precision, on a file that its converter makes."""

    name, distribution = "mnn", "MNN"

    def open(self, model: PeerModel, inputs: Inputs, threads: int) -> Session:
        """Convert the ONNX file of floats, or the TensorFlow Lite file, and open the result."""
        if model.dtype != "float32":
            raise UnsupportedError("its converter computes QDQ models in floats")
        import MNN

        form, source = ("ONNX", model.onnx) if model.onnx else ("TFLITE", model.tflite)
        assert source is not None
        converted = convert(source, ".mnn", lambda file: mnn_command(form, source, file))
        interpreter = MNN.Interpreter(str(converted))
        session = interpreter.createSession({"numThread": threads, "precision": "high", "backend": "CPU"})
        tensors = list(interpreter.getSessionInputAll(session).values())
        for tensor, array in zip(tensors, inputs.values(), strict=True):
            is_image = array.ndim == 4 and form == "ONNX"
            layout = MNN.Tensor_DimensionType_Caffe if is_image else MNN.Tensor_DimensionType_Tensorflow
            kind = MNN.Halide_Type_Float
            tensor.copyFrom(MNN.Tensor(array.shape, kind, np.ascontiguousarray(array), layout))

        def outputs() -> list[Array]:
            found = interpreter.getSessionOutputAll(session).values()
            return [np.array(tensor.getNumpyData()) for tensor in found]

        return Session(lambda: interpreter.runSession(session), outputs)


class Ncnn(Runtime):
    """ncnn in full precision, on a file that pnnx makes."""

    name, distribution = "ncnn", "ncnn"

    def open(self, model: PeerModel, inputs: Inputs, threads: int) -> Session:
        """Convert the ONNX file of floats and open the result."""
        if model.onnx is None or model.dtype != "float32":
            raise UnsupportedError("only float ONNX files are converted for it")
        import ncnn

        shapes = ",".join(str(list(array.shape)).replace(" ", "") for array in inputs.values())
        source = model.onnx
        parameters = convert(source, ".ncnn.param", lambda file: pnnx_command(source, file, shapes))
        net = ncnn.Net()
        net.opt.num_threads = threads
        net.opt.use_fp16_packed = net.opt.use_fp16_storage = net.opt.use_fp16_arithmetic = False
        net.opt.use_bf16_storage = False
        net.load_param(str(parameters))
        net.load_model(str(parameters.with_suffix(".bin")))
        matrices = [ncnn.Mat(array[0]).clone() for array in inputs.values()]
        results: list[Any] = []

        def run() -> None:
            extractor = net.create_extractor()
            for name, matrix in zip(net.input_names(), matrices, strict=True):
                extractor.input(name, matrix)
            results[:] = [extractor.extract(name)[1] for name in net.output_names()]

        return Session(run, lambda: [np.array(result) for result in results])


class Ours(Runtime):
    """Our library, as `mace build` makes it for this machine.

    level: of the instruction set; "" for the best.  variant: what its deployment file asks for; "" for nothing.
    options: of the session, for the drivers of devices.
    """

    distribution = "mace-core"
    has_bfloat = True

    def __init__(self, library: Path, level: str = "", variant: str = "", options: str = "") -> None:
        self.library, self.level, self.options = library, level, options
        self.name = ":".join(filter(None, ("ours", level, variant)))

    def open(self, model: PeerModel, inputs: Inputs, threads: int) -> Session:
        """Open a session on a pool of so many threads."""
        handle = ctypes.CDLL(str(self.library.resolve()))
        handle.mace_threads_new.restype = ctypes.c_void_p
        pool = handle.mace_threads_new(threads) if threads > 1 else None
        config = native.Config(ctypes.sizeof(native.Config), threads=pool)
        if self.options:
            config.options = self.options.encode()
        with environment("MACE_CPU_LEVEL", self.level):
            opened = native.load(self.library, model.name, config)[model.name]
        arrays = [inputs[tensor.name] for tensor in opened.inputs]
        results = [np.zeros(tensor.shape, tensor.dtype.numpy) for tensor in opened.outputs]
        pointers = native._pointers(arrays), native._pointers(results)
        # What ctypes does for a call is not the library's work, and ten percent of the smallest models' time: a
        # function without types of arguments, which keeps the interpreter's lock, takes the least.
        address = ctypes.cast(opened._functions.run, ctypes.c_void_p)
        arguments = opened._session, *(ctypes.c_void_p(ctypes.addressof(array)) for array in pointers)
        run = functools.partial(ctypes.PYFUNCTYPE(ctypes.c_int)(address.value), *arguments)
        kept = opened, arrays, pointers, results  # the addresses that `run` knows live as long as `outputs`

        def outputs() -> list[Array]:
            opened._check(bool(opened._functions.error(opened._session)))
            return [result.copy() for result in kept[-1]]

        level = " ".join(dict.fromkeys(opened.devices()))
        return Session(run, outputs, level)


@contextlib.contextmanager
def environment(name: str, value: str) -> Any:
    """Set a variable of the environment inside a block, unless the value is ""."""
    if not value:
        yield
        return
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def convert(source: Path, suffix: str, command: Callable[[Path], list[str]]) -> Path:
    """Return the file of another format beside the source, made by a command unless it is there and newer."""
    file = Path("builds/peers/converted") / f"{source.stem}{suffix}"
    if file.is_file() and file.stat().st_mtime >= source.stat().st_mtime:
        return file
    file.parent.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(command(file), capture_output=True, text=True, check=False)  # noqa: S603  # a converter that the user installed
    if done.returncode < 0:
        raise UnsupportedError(f"its converter crashes with signal {-done.returncode}")
    if done.returncode or not file.is_file():
        lines = (done.stdout + done.stderr).strip().splitlines() or ["it printed nothing"]
        raise UnsupportedError(f"its converter fails: {lines[-1]}")
    return file


def mnn_command(form: str, source: Path, file: Path) -> list[str]:
    """Return the command that converts a file for MNN.

    It calls the extension module: the script `mnnconvert` of the wheel installs a package for logs into the
    Python that it finds on PATH, and tries to send logs of each conversion to the vendor.
    """
    call = "import sys, _tools; _tools.mnnconvert(sys.argv)"
    files = ["--modelFile", str(source), "--MNNModel", str(file), "--bizCode", "mace"]
    return [sys.executable, "-c", call, "-f", form, *files]


def pnnx_command(source: Path, file: Path, shapes: str) -> list[str]:
    """Return the command that converts a file for ncnn; pnnx writes more files, all beside the wanted one."""
    script = Path(sys.executable).with_name("pnnx")
    if not script.is_file():
        raise UnsupportedError("pnnx, which converts for it, is not installed")
    stem = str(file).removesuffix(".ncnn.param")
    wanted = {"ncnnparam": ".ncnn.param", "ncnnbin": ".ncnn.bin"}
    beside = {"pnnxparam": ".pnnx.param", "pnnxbin": ".pnnx.bin", "pnnxpy": "_pnnx.py", "ncnnpy": "_ncnn.py"}
    options = [f"{key}={stem}{suffix}" for key, suffix in (wanted | beside).items()]
    return [str(script), str(source), f"inputshape={shapes}", "fp16=0", *options]


PEERS: tuple[Runtime, ...] = (OnnxRuntime(), LiteRT(), OpenVino(), Mnn(), Ncnn())
