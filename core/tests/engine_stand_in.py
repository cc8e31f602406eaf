"""A built library without a compiler: its report is that of a real generation, its programs are the ops' references."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from mace_core.deployment import Deployment
from mace_core.generation import generate
from mace_core.ir import Array, Graph
from mace_core.job import Job
from mace_core.pipeline import load
from mace_core.registry import Choice, Registry
from mace_core.run.reference import ReferenceSession
from mace_core.transforms import run_phases

Distortion = Callable[[str, Array], Array]
"""(name of a tensor, its values) -> what the program writes for it."""


class StandIn:
    """What `BuiltLibrary.execute` does with references in the place of programs; notes its calls in `calls`."""

    def __init__(self, deployment: Deployment, choice: Choice, registry: Registry) -> None:
        self.graphs: dict[str, Graph] = {
            m.name: run_phases(load(m, registry), registry) for m in deployment.models
        }
        self.library = deployment.library
        self.report = generate(Job(deployment, choice), registry).report
        self.choice = choice
        self.calls: list[str] = []
        self.distort: Distortion = lambda name, values: values

    def install(self, builds: Path) -> None:
        """Write what a build leaves in its folder."""
        for folder, name, content in (
            ("model", f"{self.choice.text}.json", json.dumps(self.report.as_json())),
            (f"lib/{self.choice.text}", f"lib{self.library}.so", "0123456789"),
        ):
            path = builds / self.library / folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)

    def execute(self, program: str, arguments: Sequence[str]) -> str:
        options = dict(word[2:].split("=", 1) for word in arguments if word.startswith("--"))
        files = [Path(word) for word in arguments if not word.startswith("--")]
        shown = [
            word for word in arguments if not word.startswith(("--output=", "--layers=/")) and word[0] == "-"
        ]
        self.calls.append(" ".join([program, *shown]))
        if program == "mace_benchmark":
            return self.time(options)
        self.run(options, files)
        return ""

    def time(self, options: Mapping[str, str]) -> str:
        layers = [{"name": "a", "kernel": "k", "ns": 7}, {"name": "b", "kernel": "l", "ns": 9}]
        rounds = [float(1000 * (i + 1)) for i in range(int(options["rounds"]))]
        timing = {"model": options["model"], "ns": rounds, "threads": int(options["threads"])}
        return json.dumps({**timing, **({"layers": layers} if options["layers"] == "1" else {})})

    def run(self, options: Mapping[str, str], files: Sequence[Path]) -> None:
        report = self.report.models[options["model"]]
        arrays = [
            np.frombuffer(file.read_bytes(), tensor.dtype.numpy).reshape(-1, *tensor.shape)
            for file, tensor in zip(files, report.inputs, strict=True)
        ]
        session, rows = ReferenceSession(self.graphs[options["model"]]), []
        for i in range(len(arrays[0])):
            if "reset" in options and i % int(options["reset"]) == 0:
                session.reset()
            rows.append(session.run({t.name: a[i] for t, a in zip(report.inputs, arrays, strict=True)}))
        if "layers" in options:
            for number, layer in enumerate(report.layers):
                values = self.distort(layer.result.name, rows[0][layer.result.name])
                Path(options["layers"], f"layer_{number}.bin").write_bytes(values.tobytes())
            return
        for number, tensor in enumerate(report.outputs):
            values = self.distort(tensor.name, np.stack([row[tensor.name] for row in rows]))
            Path(options["output"], f"output_{number}.bin").write_bytes(
                values.astype(tensor.dtype.numpy).tobytes()
            )
