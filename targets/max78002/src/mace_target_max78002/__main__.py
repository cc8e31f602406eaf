"""Executes a firmware in place of the board; see `mace run`."""

import sys

from mace_target_max78000.emulator.command import main
from mace_target_max78002.device import MAX78002

raise SystemExit(main(MAX78002, sys.argv[1:]))
