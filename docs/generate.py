"""Write the reference pages that come from the code: `uv run python docs/generate.py`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from mace_core.attributes import fields_of
from mace_core.deployment import schema_text
from mace_core.ir import DType
from mace_core.ops import core_ops
from mace_core.ops.op import Op
from mace_core.ops.shapes import keep
from mace_core.quantization import STORED
from mace_core.registry import Registry
from mace_core.testing.samples import sample
from mace_target_cpu import Cpu

HERE = Path(__file__).parent
THROUGH = {"pytorch": "onnx"}
"""Frontends that read their models by way of another one."""

NOTICE = "<!-- Written by `uv run python docs/generate.py`. -->\n\n"


def operators() -> str:
    """The table of the core's operators: what reads them, and what computes them of which element types."""
    registry = Registry.load()
    modules = {name: type(frontend).__module__ for name, frontend in sorted(registry.frontends.items())}
    frontends = {name: _source(modules[THROUGH.get(name, name)]) for name in modules}
    lines = [
        "# Operators\n\n",
        NOTICE,
        f"The core has {len(core_ops())} operators. `?` marks an optional tensor, `*` one that may repeat. Layout: ",
        "*any* for ops that take every order of axes, *moves* where the attributes follow a change of order, ",
        "*fixed* where the order is part of the op.\n\n",
        "CPU: the element types for which the CPU and ARM targets have a kernel, asked of the target itself with an example of each op. ",
        "Quantized: the storages that an integer kernel computes; every op that takes floats also takes quantized operands, as floats ",
        "between Dequantize and Quantize.\n\n",
        "Sums, differences and products of integers wrap, as in numpy, onnxruntime, TensorFlow and XLA; so do running totals, ",
        "powers with integer exponents, and the least integer divided by -1. An integer divided by 0 is 0. Floats that become integers ",
        "lose their fraction, saturate, and are 0 where they are NaN, as in XLA (ONNX leaves it undefined). Models in double precision ",
        "are computed in it by plain kernels.\n\n",
        "Operators of MACE and Bolt that have no op here under their own name: [how each is written, or why it is left out]",
        "(operators-left-out.md).\n\n",
        "| op | inputs | outputs | attributes | layout | read from | CPU | quantized |\n|---|---|---|---|---|---|---|---|\n",
    ]
    for op in sorted(core_ops().values(), key=lambda o: o.name):
        layout = "fixed" if op.move is None else "any" if op.move is keep else "moves"
        read = [name for name, text in frontends.items() if f'"{op.name}"' in text]
        plain = [t.value for t in DType if _computes(op.name, t)]
        stored = [t.value for t in STORED if _computes(op.name, t, quantized=True)]
        names = (op.name, ", ".join(op.inputs), ", ".join(op.outputs), _attributes(op), layout)
        lines.append(f"| {' | '.join((*names, ', '.join(read), ' '.join(plain), ' '.join(stored)))} |\n")
    return "".join(lines)


def _source(module: str) -> str:
    """All source of a package; a frontend names the ops that it makes as strings."""
    root = Path(str(files(module.partition(".")[0])))
    return "".join(path.read_text(encoding="utf-8") for path in sorted(root.rglob("*.py")))


def _computes(op: str, dtype: DType, *, quantized: bool = False) -> bool:
    """Whether the CPU target has a kernel for it, and an integer kernel if it is quantized."""
    graph, target = sample(op, dtype, quantized=quantized), Cpu()
    if graph is None or not graph.nodes or any(target.refuses(n, graph) for n in graph.nodes):
        return False
    kernels = {call.kernel.name.partition("_")[0] for call in target.lower(graph).calls}
    return not quantized or op in ("Quantize", "Dequantize") or not kernels & {"quantize", "dequantize"}


def _attributes(op: Op) -> str:
    """Return the attributes' names, with their defaults where they have one."""
    fields = fields_of(op.attrs).values()
    texts = [field.name if field.is_required else f"{field.name}={field.default}" for field in fields]
    return ", ".join(texts).replace("|", "\\|")


INTRODUCTION = """\
Several values are a YAML list: `input_tensors: [image, size]`, `input_shapes: ["1,3,224,224", "1,2"]`.
A comma separates the numbers of one value.

An input can be prepared in the library: `(x - input_mean) * input_scale`, or `/ input_std`, and its colors reversed, so that an
application gives what its camera does. The pixels (`input_data_types: uint8`) become float32 first. What the first layer's filters can take
in exactly becomes part of them (the factor and the order of color always, the mean where the layer adds no border); the rest is one kernel.
`mace validate` gives the framework the prepared numbers.

    input_data_types: uint8
    input_data_formats: NHWC
    input_color: BGR
    input_mean: [123.675, 116.28, 103.53]
    input_std: [58.395, 57.12, 57.375]

`${NAME}` in a value is replaced by the environment variable of that name, so that one file serves several machines:
`model_file_path: ${MODELS}/net.onnx`. A URL takes none, neither written nor by a variable that holds one, and no user name or
password: a deployment file may come from anywhere, and no command sends what your environment holds to a host that the file names.
Download what needs a login by hand and give the local path.

A download is kept under its checksum in the user's cache folder (`MACE_CACHE`) and continued where it was interrupted.
`download_max_seconds` and `download_max_mib` limit it. Redirects are followed to `http://` and `https://` alone.
A file with faults is reported before any host is asked.

Keys of MACE that have no effect here, or none yet, are accepted with a note at every build; `mace check --strict` refuses them.

"""


def deployment_keys() -> str:
    """The table of the deployment file's keys, from its schema."""
    schema = json.loads(schema_text())
    top = {k: v for k, v in schema["properties"].items() if k != "models"}
    text = "# The deployment file\n\n" + NOTICE
    text += "`mace schema` prints the JSON Schema of this page for editors.\n\n" + INTRODUCTION
    text += "## Of the library\n\n" + _table(top, schema)
    text += "\n## Of a model or a subgraph\n\nA subgraph inherits its model's keys.\n"
    groups: dict[str, dict[str, Any]] = {}
    for key, part in schema["$defs"]["keys"]["properties"].items():
        groups.setdefault(part.get("x-group", "Other"), {})[key] = part
    for group, parts in groups.items():
        text += f"\n### {group}\n\n" + _table(parts, schema)
    return text


def _table(parts: Mapping[str, Mapping[str, Any]], schema: Mapping[str, Any]) -> str:
    text = "| key | default | meaning |\n|---|---|---|\n"
    for key, part in parts.items():
        default = f"`{json.dumps(part['default'])}`" if "default" in part else ""
        meaning = part.get("description", "").replace("|", "/")
        text += f"| `{key}` | {default} | {meaning}{_describe_missing_effect(part)} |\n"
    return text


def _describe_missing_effect(part: Mapping[str, Any]) -> str:
    """Say that a key has no effect, or none yet, and what is planned; "" for every other key."""
    if "x-no-effect" in part:
        return f" *Accepted; no effect: {part['x-no-effect']}.*"
    if "x-not-yet" not in part or "x-ready" in part:
        return ""
    planned = f"; planned: {part['x-planned']}" if "x-planned" in part else ""
    return f" *Accepted; no effect yet: {part['x-not-yet']}{planned}.*"


PAGES = {"operators.md": operators, "deployment-file.md": deployment_keys}


def main() -> None:
    """Write every page."""
    for name, page in PAGES.items():
        (HERE / name).write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
