"""Print, for real models on three chips, what the MDLA takes: `uv run python targets/mdla/benchmarks/coverage.py`.

The models are looked for where MACE_MODELS points, else in ../shared/models. With --write, the tables replace
those of docs/mdla.md.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from mace_core.deployment import Model, Port
from mace_core.errors import MaceError
from mace_core.ir import Graph
from mace_core.lint import LintReport
from mace_core.lint_tables import show_interval
from mace_core.pipeline import load
from mace_core.registry import Registry
from mace_core.transforms import run_phases
from mace_target_mdla.options import MdlaOptions
from mace_target_mdla.socs import find_soc
from mace_target_mdla.target import Mdla

ROOT = Path(__file__).parents[3]
MODELS = Path(os.environ.get("MACE_MODELS", ROOT.parent / "shared" / "models"))
CHIPS = ("MT6885", "MT8195", "MT8188")
"""One of each generation: 1.5, 2.0 and 3.0."""
SHAPES = {
    "ch_PP-OCRv4_rec_infer.onnx": {"x": (1, 3, 48, 320)},
    "ch_ppocr_mobile_v2.0_cls_infer.onnx": {"x": (1, 3, 48, 192)},
    "minilm_l6_int8_dynamic.onnx": dict.fromkeys(("input_ids", "attention_mask"), (1, 32)),
    "shufflenet-v2-12-int8.onnx": {"input": (1, 3, 224, 224)},
}
"""Shapes of inputs that a file leaves open."""
FRONTENDS = ("onnx", "tflite", "caffe", "tf_pb")
BEGIN, END = "<!-- coverage -->", "<!-- end of coverage -->"


def models() -> Iterator[tuple[str, Model]]:
    """Every model of the manifest; those of TensorFlow (tf_pb) are left out, with a line, where it is not installed."""
    for row in json.loads((MODELS / "manifest.json").read_text()):
        if row["frontend"] not in FRONTENDS:
            continue
        file = MODELS / row["file"]
        files = (file.with_suffix(".prototxt"), file) if row["frontend"] == "caffe" else (file,)
        shapes = SHAPES.get(file.name, {})
        ports = tuple(Port(name, shape=shape) for name, shape in shapes.items())
        yield str(Path(row["file"]).with_suffix("")), Model(file.stem, files, inputs=ports)


def report(graph: Graph, chip: str) -> LintReport:
    """What the target of a chip says."""
    soc = find_soc(chip, "coverage")
    return Mdla(MdlaOptions(soc.generation, soc)).lint(graph)


def refusals(reports: list[LintReport]) -> Iterator[tuple[str, str, int]]:
    """Operators that are refused, by the rule or stage that refuses them."""
    counts: Counter[tuple[str, str]] = Counter()
    for found in reports:
        for node in found.nodes:
            if not node.is_taken:
                counts[node.operator or node.op, node.findings[0].rule] += 1
    for (operator, rule), count in counts.most_common():
        yield operator, rule, count


def percent(share: float | None) -> str:
    """A share for people; nothing for none."""
    return "" if share is None else f"{100 * share:.0f}%"


def tables(reports: dict[str, list[LintReport]]) -> str:
    """The tables in Markdown."""
    head = "".join(f" {chip}: nodes | MACs | regions | ms |" for chip in CHIPS)
    lines = [f"| model | nodes |{head}", "|---" * (2 + 4 * len(CHIPS)) + "|"]
    for name, row in reports.items():
        cells = [name, str(len(row[0].nodes))]
        for found in row:
            milliseconds = show_interval(found.figures.get("ms"))
            cells += [percent(found.share()), percent(found.share("macs")), str(found.regions), milliseconds]
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", "| operator or op | refused by | chip | nodes |", "|---|---|---|---|"]
    for index, chip in enumerate(CHIPS):
        for operator, rule, count in refusals([row[index] for row in reports.values()]):
            lines.append(f"| `{operator}` | `{rule}` | {chip} | {count} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Lint every model for every chip, and print or write the tables."""
    registry = Registry.load()
    reports: dict[str, list[LintReport]] = {}
    for name, model in models():
        try:
            graph = run_phases(load(model, registry), registry)
        except MaceError as error:
            sys.stderr.write(f"{name}: {str(error).splitlines()[0]}\n")
            continue
        reports[name] = [report(graph, chip) for chip in CHIPS]
        sys.stderr.write(f"{name}\n")
    text = tables(reports)
    sys.stdout.write(text)
    if "--write" in sys.argv[1:]:
        page = ROOT / "docs/mdla.md"
        before, _, rest = page.read_text().partition(BEGIN)
        page.write_text(f"{before}{BEGIN}\n\n{text}\n{END}{rest.partition(END)[2]}")


if __name__ == "__main__":
    main()
