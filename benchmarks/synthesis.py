"""Time `mace-ai8x synthesize` on the vendor's networks and write it to docs/benchmarks.md: `uv run python benchmarks/synthesis.py`.

Each network is one process from its start to the written project; processor time and peak memory are those
that the system accounts for it. The vendor's processor time is the one in the reference files. The networks
are looked for where MACE_MODELS points, else in ../shared/models.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import sections

MODELS = Path(os.environ.get("MACE_MODELS", Path(__file__).parents[1].parent / "shared" / "models")) / "ai8x"
ROUNDS = 5
HEADING = "MAX78000 and MAX78002: synthesis"
HEAD = f"""
Written by `uv run python benchmarks/synthesis.py`. Processor seconds of one `mace-ai8x synthesize`, from the start of the process to
the written project, least of {ROUNDS}, Python's modules compiled before; beside them the processor seconds of the vendor's generator as
the reference files have them (another machine's run). Memory: the process's peak.

| network | part | ours s | vendor's s | times faster | peak MB |
|---|---|---|---|---|---|
"""


def measured(reference: Path) -> tuple[float, float]:
    """Least processor seconds, and peak megabytes, of the synthesis of one network."""
    content = json.loads(reference.read_text())
    folder, times, peaks = reference.parent, [], []
    with tempfile.TemporaryDirectory() as place:
        files = {"config": content["network"], "checkpoint": content["checkpoint"]}
        named = [part for kind, file in files.items() for part in (f"--{kind}-file", str(folder / file))]
        command = [
            sys.executable,
            "-m",
            "mace_frontend_ai8x.cli",
            "synthesize",
            "--device",
            content["device"],
            *named,
        ]
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": f"{place}/cache", "PYTHONDONTWRITEBYTECODE": ""}
        command += [
            "--sample-input",
            str(folder / content["sample"]),
            "--test-dir",
            place,
            "--prefix",
            "net",
            "--overwrite",
        ]
        for _ in range(ROUNDS):
            words = [*command, *content["options"]]
            process = subprocess.Popen(words, stdout=subprocess.DEVNULL, env=environment)  # noqa: S603  # our own
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            if process.returncode:
                raise SystemExit(f"{reference}: synthesis ended with {process.returncode}")
            times.append(usage.ru_utime + usage.ru_stime)
            peaks.append(usage.ru_maxrss / 1024)
    return min(times), max(peaks)


def main() -> None:
    """Measure every network and replace the section."""
    rows = []
    for reference in sorted(MODELS.glob("*/reference-*.json")):
        content = json.loads(reference.read_text())
        seconds, peak = measured(reference)
        vendor = content["seconds_reference"]["cpu"]
        rows.append(
            f"| {reference.parent.name} | {content['device']} | {seconds:.2f} | {vendor:.2f} | {vendor / seconds:.0f} | {peak:.0f} |"
        )
    sections.write(HEADING, HEAD + "\n".join(rows))


if __name__ == "__main__":
    main()
