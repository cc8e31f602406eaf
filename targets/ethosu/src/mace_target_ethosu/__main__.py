"""Compares the rules of the target with Vela; see `mace_target_ethosu.command`."""

import sys

from mace_target_ethosu.command import main

raise SystemExit(main(sys.argv[1:]))
