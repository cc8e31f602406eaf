"""Keeps the byte code of imported modules, also where the environment says not to write any.

Containers often set PYTHONDONTWRITEBYTECODE.  The tests start hundreds of Python processes, and each of them
then compiles every module that it imports: of TensorFlow that takes longer than the import itself, and pytest
rewrites all assertions again in each worker.  The byte code lies under `.pytest_cache`: no file appears
beside a source.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

if sys.dont_write_bytecode:
    folder = str(Path(__file__).parent / ".pytest_cache" / "bytecode")
    sys.dont_write_bytecode, sys.pycache_prefix = False, folder
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = folder
