"""What executes a firmware in place of its board."""

from __future__ import annotations

import subprocess
from pathlib import Path

from mace_target_max78000.target import Emulator


def test_the_emulator_executes_no_module_of_the_working_folder(tmp_path: Path) -> None:
    for module in ("struct", "json", "numpy", "unicorn", "mace_target_max78000"):
        (tmp_path / f"{module}.py").write_text("open('executed', 'w').close()\n")
    command = Emulator("mace_target_max78000").command(Path("bin/absent/mace_run"), [])
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "model/absent.json" in done.stderr, done.stderr  # the first file that its own code opens
    assert not (tmp_path / "executed").exists()
