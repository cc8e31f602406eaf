"""Rewrites graphs so that the file format states them and the chip has their operators."""

from __future__ import annotations

from mace_core.ir import Graph
from mace_target_mdla.operation import DIRECT
from mace_target_mdla.options import MdlaOptions
from mace_target_mdla.rules.table import Verdict, read_table
from mace_tflite_writer.rewrites import functions_by_steps, legalize


def legalize_for(graph: Graph, options: MdlaOptions) -> Graph:
    """Return a graph that computes the same by operators that the chip is known to have, where there are any.

    Stored integers stay the same; functions of floats that become several steps round at each of them.
    """
    # Steps first: they may add clamps and constants that only the format's rewrites make legal.
    return legalize(functions_by_steps(graph, absent_ops(options)))


def absent_ops(options: MdlaOptions) -> tuple[str, ...]:
    """Return the ops whose operator the target refuses on the chip of the options."""
    table = read_table(options.generation)
    verdicts = {op: table.operators.get(operator, table.unlisted).verdict for op, operator in DIRECT.items()}
    refused = {Verdict.UNSUPPORTED} if options.accepts_unknown else {Verdict.UNSUPPORTED, Verdict.UNKNOWN}
    return tuple(op for op, verdict in verdicts.items() if verdict in refused)
