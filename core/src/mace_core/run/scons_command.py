"""Starts SCons for `mace build`.

Imports no plugins: SCons loads them in its own process, and once is enough.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.resources import files
from pathlib import Path


def build_library(deployment: Path, target: str, builds: Path, jobs: int, no_fallback: bool = False) -> int:
    """Build a library with SCons and return its exit status.

    target: "" for the `target_abis` of the deployment file.
    """
    script = str(files("mace_core") / "run" / "SConstruct")
    options = [
        f"deployment={deployment.resolve()}",
        *([f"target={target}"] if target else []),
        f"builds={builds}",
        f"fallback={'no' if no_fallback else 'yes'}",
    ]
    # The folder may come from anywhere, so neither its modules (-P) nor its site_scons may run here.
    # SCONSFLAGS is meant for the user's other builds, and would change options of this one.
    command = [
        sys.executable,
        "-P",
        "-m",
        "SCons",
        "--no-site-dir",
        "-Q",
        f"-j{jobs}",
        "-f",
        script,
        *options,
    ]
    environment = {name: value for name, value in os.environ.items() if name != "SCONSFLAGS"}
    return subprocess.run(command, env=environment, check=False).returncode  # noqa: S603  # our own build
