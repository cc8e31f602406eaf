"""What the declaration of the frontend costs a start of `mace`."""

from __future__ import annotations

import subprocess
import sys

LIST_MODULES = """
import sys
import mace_frontend_ai8x
list(mace_frontend_ai8x.mace_frontends())
print(*(name for name in sys.modules if name.startswith("mace_frontend_ai8x")))
"""


def test_offering_the_frontend_imports_no_reader() -> None:
    process = subprocess.run([sys.executable, "-c", LIST_MODULES], check=True, capture_output=True, text=True)
    assert set(process.stdout.split()) == {"mace_frontend_ai8x", "mace_frontend_ai8x.frontend"}
