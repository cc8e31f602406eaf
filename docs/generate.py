"""Write the reference pages that come from the code: `uv run python docs/generate.py`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mace_core.deployment import schema_text
from mace_core.ops import core_ops
from mace_core.ops.op import REQUIRED, Op
from mace_core.ops.shapes import keep
from mace_target_cpu import Cpu

HERE = Path(__file__).parent
NOTICE = "<!-- Written by `uv run python docs/generate.py`. -->\n\n"


def operators() -> str:
    """The table of the core's operators."""
    lines = [
        "# Operators\n\n",
        NOTICE,
        f"The core has {len(core_ops())} operators. `?` marks an optional tensor, `*` one that may repeat. Layout: ",
        "*any* for ops that take every order of axes, *moves* where the attributes follow a change of order, ",
        "*fixed* where the order is part of the op.\n\n",
        "| op | inputs | outputs | attributes | layout | cpu |\n|---|---|---|---|---|---|\n",
    ]
    kernels = Cpu().lowerings
    for op in sorted(core_ops().values(), key=lambda o: o.name):
        layout = "fixed" if op.move is None else "any" if op.move is keep else "moves"
        cells = (op.name, ", ".join(op.inputs), ", ".join(op.outputs), _attributes(op), layout, "yes" if op.name in kernels else "no")
        lines.append(f"| {' | '.join(cells)} |\n")
    return "".join(lines)


def _attributes(op: Op) -> str:
    return ", ".join(k if default is REQUIRED else f"{k}={default}" for k, default in op.attrs.items()).replace("|", "\\|")


def deployment_keys() -> str:
    """The table of the deployment file's keys, from its schema."""
    schema = json.loads(schema_text())
    top = {k: v for k, v in schema["properties"].items() if k != "models"}
    text = "# The deployment file\n\n" + NOTICE
    text += "`mace schema` prints the JSON Schema of this page for editors.\n\n"
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
        later = f" *Accepted; no effect yet: {part['x-not-yet']}.*" if "x-not-yet" in part and "x-ready" not in part else ""
        text += f"| `{key}` | {default} | {part.get('description', '').replace('|', '/')}{later} |\n"
    return text


PAGES = {"operators.md": operators, "deployment-file.md": deployment_keys}


def main() -> None:
    """Write every page."""
    for name, page in PAGES.items():
        (HERE / name).write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
