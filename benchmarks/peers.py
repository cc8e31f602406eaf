"""Time our libraries beside other runtimes: `uv run python benchmarks/peers.py [--model ...] [--json FILE]`.

Every runtime that is installed (`pip install onnxruntime ai-edge-litert openvino MNN ncnn pnnx`, none of them
a dependency of ours) opens the model on the same number of threads, computes the same random inputs in turn
with the others, and must agree with our outputs. The process is bound to as many processors as there are
threads, so that no runtime uses more, and a runtime begins when the workers of the one before it sleep.
Times include the call from Python, one or two microseconds in each.

Prints a table of the least milliseconds, and the geometric mean of our ratio to the best peer by type.
Libraries, generated models and converted files are kept in builds/peers.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass, field
from itertools import product
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import runtimes
from agreement import disagreement
from peer_models import BFLOAT, PeerModel, choose_models, list_models, prepare
from processor import HIDDEN, await_idle_threads, bind_processors, limit_processor

from mace_core.ir import Array
from mace_core.run import native
from mace_core.run.tables import table

FOLDER = Path("builds/peers")
BURST_NS = 5_000_000
MAX_BURST = 200
SEED = 11
NO_KEY = "default"
"""Stands for the tiles of a model that says nothing of them."""


@dataclass(frozen=True)
class Measurement:
    """The times of one runtime on one model, which `--json` writes as an object with these keys.

    level: the instruction-set level of our library; "" for other runtimes.
    processor: the level that `--processor` makes this machine look like; "" for what it is.
    ratio_to_best_peer: min_ms as a multiple of the best peer's; None without a peer that agrees with ours.
    disagreement: what is wrong with its outputs; "" if they agree with ours.
    """

    model: str
    dtype: str
    threads: int
    runtime: str
    level: str
    processor: str
    min_ms: float
    median_ms: float
    ratio_to_best_peer: float | None
    disagreement: str

    @property
    def is_ours(self) -> bool:
        """Tell whether the runtime is a library of ours."""
        return self.runtime.startswith("ours")


class BuildError(Exception):
    """Says what a build of ours printed before it failed."""


@dataclass
class Contestant:
    """A runtime with an open model and the nanoseconds of its runs.

    problem: what is wrong with its outputs; "" if they agree with ours.
    """

    name: str
    session: runtimes.Session
    times: list[int] = field(default_factory=list)
    burst: int = 1
    problem: str = ""

    @property
    def is_ours(self) -> bool:
        """Whether it is a library of ours."""
        return self.name.startswith("ours")

    @property
    def min_ms(self) -> float:
        """The least milliseconds of a run."""
        return min(self.times) / 1e6

    def measure(self, clock: Callable[[], int] = time.perf_counter_ns) -> None:
        """Run once through a burst."""
        run, times = self.session.run, self.times
        for _ in range(self.burst):
            start = clock()
            run()
            times.append(clock() - start)

    def warm_up(self) -> None:
        """Run a few times, and choose how many runs make a burst."""
        for _ in range(3):
            self.session.run()
        self.measure()
        self.burst = max(2, min(MAX_BURST, BURST_NS // max(self.times[0], 1)))
        self.times.clear()


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--model", default="", help="names, or sets: image, tiny, small, more, float32, int8, bfloat16, all"
    )
    parser.add_argument("--runtime", default="", help="names of peers; default: all that are installed")
    parser.add_argument(
        "--level",
        default="",
        help="levels to build and measure, as amx,avx2; default: the best of those that libraries hold",
    )
    parser.add_argument(
        "--winograd",
        default=NO_KEY,
        help="largest tiles of Winograd's convolution to build and measure, as 0,2,4; default: no key",
    )
    parser.add_argument(
        "--processor",
        default="",
        choices=("", *HIDDEN),
        help="hide what processors of this level do not have, from peers too; also the default of --level",
    )
    parser.add_argument("--threads", default="1", help="numbers of threads, as 1,2,4,16")
    parser.add_argument("--seconds", type=float, default=3.0, help="for each model and number of threads")
    parser.add_argument("--json", type=Path, help="file to write the figures to")
    parser.add_argument(
        "--processor-time",
        action="store_true",
        help="count the processor time of one thread: for a machine that others use too",
    )
    parser.add_argument("--no-build", action="store_true", help="measure the libraries that are there")
    options = parser.parse_args(arguments)
    options.level = options.level or options.processor
    return options


def say(text: str) -> None:
    """Tell progress."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def split(text: str) -> list[str]:
    """Return the words between commas."""
    return [word for word in text.split(",") if word]


def build(model: PeerModel, options: argparse.Namespace, tile: str) -> Path:
    """Build the shared library of a model for this machine, and return it; BuildError where it fails.

    options: those of the command line, which name the levels.
    tile: the key `winograd` of the model, or NO_KEY.
    """
    levels, variant = split(options.level), "" if tile == NO_KEY else f"_winograd{tile}"
    folder = FOLDER / f"libraries{variant}"
    library = folder / model.name / "lib/host" / f"lib{model.name}.so"
    if options.no_build and library.is_file():
        return library
    tensor, _, shape = model.port.partition(": ")
    port = f"- input_tensors: {tensor}\n        input_shapes: {shape}" if model.port else "- {}"
    deployment = FOLDER / f"{model.name}{variant}.yml"
    keys = "" if tile == NO_KEY else f"    winograd: {tile}\n"
    if model.dtype == BFLOAT:
        keys += "    target_options: {cpu: {arithmetic: bf16}}\n"
    features = f"cpu_features: [{', '.join(levels)}]\n" if levels else ""
    deployment.write_text(
        f"library_name: {model.name}\n{features}models:\n  {model.name}:\n"
        f"    model_file_path: {model.files[0].resolve()}\n{keys}"
        f"    subgraphs:\n      {port}\n"
    )
    command = [sys.executable, "-m", "mace_core.cli", "build", str(deployment), "--builds", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603  # our own build
    if done.returncode:
        raise BuildError(f"{model.name} does not build\n{done.stdout}{done.stderr}")
    return library


def random_inputs(library: Path, model: PeerModel) -> dict[str, Array]:
    """Return random values for the inputs of a model."""
    rng = np.random.default_rng(SEED)
    arrays = {}
    for tensor in native.load(library, model.name)[model.name].inputs:
        kind = tensor.dtype.numpy
        if tensor.dtype.is_float:
            arrays[tensor.name] = rng.standard_normal(tensor.shape).astype(kind)
        else:
            limits = np.iinfo(kind)
            arrays[tensor.name] = rng.integers(limits.min, limits.max, tensor.shape, kind, endpoint=True)
    return arrays


def open_all(
    model: PeerModel, ours: list[runtimes.Ours], peers: list[runtimes.Runtime], threads: int
) -> list[Contestant]:
    """Open a model in every runtime that takes it; tell who does not, and compare outputs with ours."""
    inputs = random_inputs(ours[0].library, model)
    contestants: list[Contestant] = []
    for runtime in (*ours, *peers):
        if model.dtype == BFLOAT and not runtime.has_bfloat:
            say(f"  {runtime.name} is asked for no products of bfloat16")
            continue
        try:
            session = runtime.open(model, inputs, threads)
            session.run()
            contestants.append(Contestant(runtime.name, session))
        except Exception as error:  # noqa: BLE001  # every peer has exceptions of its own
            reason = " ".join(str(error).split())[:160] or type(error).__name__
            say(f"  {runtime.name} does not take {model.name}: {reason}")
    expected = contestants[0].session.outputs()
    for contestant in contestants[1:]:
        contestant.problem = disagreement(expected, contestant.session.outputs(), model.dtype)
        if contestant.problem:
            say(f"  DISAGREEMENT: {model.name}: {contestant.name}: {contestant.problem}")
    return contestants


def race(contestants: list[Contestant], seconds: float, clock: Callable[[], int]) -> None:
    """Run all in turn, a burst each, for so many seconds and at least three rounds.

    Workers of some runtimes look for work for 50 milliseconds after a run: each contestant awaits that those
    of the one before sleep, with which it would share its processors.
    """
    for contestant in contestants:
        await_idle_threads()
        contestant.warm_up()
    end, rounds = time.monotonic() + seconds, 0
    while time.monotonic() < end or rounds < 3:
        for contestant in contestants:
            await_idle_threads()
            contestant.measure(clock)
        rounds += 1


def choose_clock(options: argparse.Namespace, threads: int) -> Callable[[], int]:
    """Return the clock of runs: of the wall, or of this process where the command line asks for it."""
    return time.process_time_ns if options.processor_time and threads == 1 else time.perf_counter_ns


def rows_of(
    model: PeerModel, options: argparse.Namespace, threads: int, contestants: list[Contestant]
) -> list[Measurement]:
    """Return the measurement of each runtime."""
    peers = [c.min_ms for c in contestants if not c.is_ours and not c.problem]
    best = min(peers, default=math.nan)
    return [
        Measurement(
            model=model.name,
            dtype=model.dtype,
            threads=threads,
            runtime=contestant.name,
            level=contestant.session.level,
            processor=options.processor,
            min_ms=contestant.min_ms,
            median_ms=statistics.median(contestant.times) / 1e6,
            ratio_to_best_peer=contestant.min_ms / best if peers else None,
            disagreement=contestant.problem,
        )
        for contestant in contestants
    ]


def summarize(measurements: list[Measurement]) -> str:
    """Return a table with a line for each model and number of threads, and the geometric means."""
    runners = list(dict.fromkeys(m.runtime for m in measurements))
    our_runners = list(dict.fromkeys(m.runtime for m in measurements if m.is_ours))
    lines: list[tuple[str, ...]] = []
    ratios: defaultdict[tuple[str, str, int], list[float]] = defaultdict(list)
    for model, threads in dict.fromkeys((m.model, m.threads) for m in measurements):
        found = {m.runtime: m for m in measurements if (m.model, m.threads) == (model, threads)}
        cells = [f"{found[name].min_ms:.4f}" if name in found else "-" for name in runners]
        for name in our_runners:
            ratio = found[name].ratio_to_best_peer if name in found else None
            if ratio:
                ratios[name, found[name].dtype, threads].append(ratio)
            cells.append(f"{ratio:.2f}" if ratio else "-")
        rivals = {name: m.min_ms for name, m in found.items() if not m.is_ours and not m.disagreement}
        lines.append((model, str(threads), *cells, min(rivals, key=rivals.__getitem__, default="-")))
    ours = [f"{name} / best" for name in our_runners]
    text = table(("model", "threads", *runners, *ours, "best peer"), lines)
    for (name, dtype, threads), found_ratios in ratios.items():
        mean = math.exp(statistics.fmean(math.log(ratio) for ratio in found_ratios))
        text += f"\n{name}, {dtype}, {threads} threads: geomean {mean:.3f} of {len(found_ratios)}, worst {max(found_ratios):.2f}"
    return text + "\n"


def measure(
    model: PeerModel, peers: list[runtimes.Runtime], options: argparse.Namespace
) -> list[Measurement]:
    """Return the measurements of a model at every number of threads; BuildError where ours does not build."""
    libraries = {tile: build(model, options, tile) for tile in split(options.winograd) or [NO_KEY]}
    processors = sorted(os.sched_getaffinity(0))
    measurements: list[Measurement] = []
    for threads in map(int, split(options.threads)):
        bind_processors(threads, processors)
        # A process of its own, bound before it starts: OpenVINO counts the processors once, when it is
        # imported, and would go on with those of the first number of threads.
        with ProcessPoolExecutor(1, get_context("spawn")) as executor:
            measurements += executor.submit(race_all, model, libraries, peers, options, threads).result()
        os.sched_setaffinity(0, processors)
    return measurements


def race_all(
    model: PeerModel,
    libraries: dict[str, Path],
    peers: list[runtimes.Runtime],
    options: argparse.Namespace,
    threads: int,
) -> list[Measurement]:
    """Return the measurements of all runtimes in this process, which is bound to as many processors.

    libraries: ours, by the key `winograd`.
    """
    if options.processor:
        limit_processor(options.processor, FOLDER)
    levels = split(options.level) or [""]
    ours = [
        runtimes.Ours(libraries[tile], level, "" if tile == NO_KEY else f"winograd{tile}")
        for tile, level in product(libraries, levels)
    ]
    contestants = open_all(model, ours, peers, threads)
    race(contestants, options.seconds, choose_clock(options, threads))
    for contestant in contestants:
        contestant.session.outputs()  # raises where the last run failed, whose time is none
    return rows_of(model, options, threads, contestants)


def main(arguments: Sequence[str]) -> int:
    """Measure; return 1 if some outputs disagree or a library does not build."""
    options = parse(arguments)
    models = choose_models(list_models(FOLDER / "networks"), split(options.model))
    wanted = split(options.runtime)
    if unknown := {*wanted} - {peer.name for peer in runtimes.PEERS}:
        raise SystemExit(
            f"--runtime {','.join(unknown)}: unknown; choose of {', '.join(p.name for p in runtimes.PEERS)}"
        )
    peers = [peer for peer in runtimes.PEERS if not wanted or peer.name in wanted]
    for peer in peers:
        say(f"{peer.name} {peer.version or 'is not installed'}")
    peers = [peer for peer in peers if peer.version]
    (FOLDER / "libraries").mkdir(parents=True, exist_ok=True)
    measurements: list[Measurement] = []
    failures = 0
    for model in models:
        if reason := prepare(model):
            say(f"{model.name} is left out: {reason}")
            continue
        say(model.name)
        try:
            measurements += measure(model, peers, options)
        except BuildError as error:
            say(str(error))
            failures += 1
        except BrokenProcessPool:
            say(f"  a runtime ended the process of {model.name}; --runtime NAME tells which")
            failures += 1
        # After each model: a run that is cut short keeps what it has.
        if options.json:
            options.json.write_text(json.dumps([asdict(m) for m in measurements], indent=1) + "\n")
    sys.stdout.write(summarize(measurements))
    return int(failures > 0 or any(m.disagreement for m in measurements))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
