"""Executes a firmware in place of the board; see `mace run`."""

import sys

from mace_target_max78000.device import MAX78000
from mace_target_max78000.emulator.command import main

raise SystemExit(main(MAX78000, sys.argv[1:]))
