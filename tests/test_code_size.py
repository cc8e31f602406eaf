"""The code of a library for a known network and two levels, which each kernel makes larger a little."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from small_project import MACE, run

from mace_target_cpu import is_x86

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

MAX_BYTES = 150_000
"""Of the code of MobileNetV2 with two levels, besides that for processors without AVX2, which every library has."""

GCC = "12"
"""The compiler that sizes are stated for: another one makes other code of the same kernels."""

LEVELS = ("avx512vnni", "avx2")


def has_stated_compiler() -> bool:
    """Tell whether `cc` is the compiler that sizes are stated for."""
    if not (compiler := shutil.which("cc")):
        return False
    words = [compiler, "-dumpfullversion", "--version"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return done.returncode == 0 and done.stdout.startswith(f"{GCC}.")


@pytest.mark.slow
@pytest.mark.skipif(not is_x86("host"), reason="the levels of x86-64 are for that processor")
@pytest.mark.skipif(not has_stated_compiler(), reason=f"sizes are stated for GCC {GCC}")
@pytest.mark.parametrize("name", ["mobilenet_v2", "mobilenet_v2_int8"])
def test_the_code_of_mobilenet_v2_is_small(tmp_path: Path, name: str) -> None:
    pytest.importorskip("onnxruntime", reason="the network is quantized with it")
    import imagenet  # it imports onnxruntime

    imagenet.write_onnx("mobilenet_v2", tmp_path)
    deployment = f"library_name: {name}\ncpu_features: [{', '.join(LEVELS)}]\nmodels:\n  net:\n"
    deployment += f"    model_file_path: {name}.onnx\n    subgraphs:\n      - {{}}\n"
    (tmp_path / "net.yml").write_text(deployment)
    environment = {**os.environ, "CC": "cc"}
    printed = run([*MACE, "build", "net.yml", "--jobs", "2"], tmp_path, environment)
    shares = dict(re.findall(r"(\w[\w ]*) (\d+)", printed.splitlines()[-1].split("; ")[0]))
    parts = ("runtime", "programs", *(f"kernels {level}" for level in LEVELS))
    sizes = {part: int(shares[part]) for part in parts}
    assert sum(sizes.values()) <= MAX_BYTES, sizes
