"""Products of bytes in an order that was proven not to saturate.

Convolutions and matrix products share it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from mace_core.candidates import Candidate
from mace_core.ir import Array, Node
from mace_core.levels import Level
from mace_core.lowering import Lowering, Refused
from mace_core.program import Call
from mace_target_cpu.isa import KERNELS, X86, Packing, packing
from mace_target_cpu.quantized.order_check import check_orders
from mace_target_cpu.quantized.orders import WINDOW, Orders, Runs, find_orders
from mace_target_cpu.quantized.storage import CODES, EIGHT_BITS

ORDERED = KERNELS / "igemm_ordered.h.in"
LEVELS = tuple(str(level.name) for level in X86 if level.dot == "quads")

FIELDS = (("pieces", "i32"), ("quads", "i32"), ("slots", "i64"))

TILE_ROWS = 4
SLOT_BYTES, SLOT_SLACK = 64, 3
"""Bytes of a slot of a panel, and slots behind the arranged ones that the kernel writes too."""

SLOT_COST = 0.7
"""Time of a slot beside that of a quad of igemm_bytes.h.in: 90 and 63 products in a nanosecond."""

ARRANGE_ROWS = 2.5
"""Rows that are multiplied in the time in which a panel is arranged."""


@dataclass(frozen=True)
class ProductCall:
    """A call of conv_quantized, and what a row of its left factor consists of."""

    call: Call
    runs: Runs


MakeProduct = Callable[[Node, Lowering], ProductCall]
"""Makes the call of a node, or refuses it."""


def order_product(product: ProductCall, lowering: Lowering) -> Call:
    """Return the call with the order of its weights; Refused for other activations than bytes."""
    call, runs = product.call, product.runs
    if call.args["x_type"] not in {CODES[dtype] for dtype in EIGHT_BITS}:
        raise Refused("its activations are not of eight bits", code="dtype")
    if packing(lowering) != Packing():
        raise Refused("its weights are packed for a level with another instruction", code="other")
    # Weights lie in memory as for all levels: in the pieces of a strip where these have their own.
    weight = call.reads[-1] or call.reads[1]
    packed = lowering.weights[weight].make()
    orders = find_orders(packed, runs)
    low, high = check_orders(packed, runs, orders.starts, orders.pack())
    kernel = replace(
        call.kernel,
        name=f"{call.kernel.name}_ordered",
        fields=(*call.kernel.fields, *FIELDS),
        params={**call.kernel.params, "is_ordered": True},
        helpers=(*call.kernel.helpers, ORDERED),
    )
    args = {**call.args, "pieces": runs.pieces, "quads": runs.quads, "slots": orders.max_slots}
    room = SLOT_BYTES * (orders.max_slots + SLOT_SLACK) + 8 * orders.max_slots + WINDOW
    reads = (*call.reads, *_order_weights((weight, runs), orders, lowering))
    proof = (
        f"sums of two products lie between {low} and {high}, so 16 bits hold them; "
        f"{len(orders.places)} slots of four weights of a panel for {packed.size // SLOT_BYTES}"
    )
    return replace(call, kernel=kernel, args=args, reads=reads, scratch=call.scratch + room, proof=proof)


def _order_weights(key: tuple[str, Runs], orders: Orders, lowering: Lowering) -> tuple[str, str]:
    """Make weights of the tables of a packed matrix; returns their names.

    key: the matrix, and what rows consist of that it is multiplied by.
    """
    weight, _ = key

    def add(suffix: str, array: Array) -> str:
        shape, dtype = array.shape, str(array.dtype)
        return lowering.once(
            (*key, suffix), lambda: lowering.weight(f"{weight}_{suffix}", shape, dtype, lambda: array)
        )

    return add("starts", orders.starts), add("order", orders.pack())


def offer(lower: MakeProduct, plain_cost: Callable[[Node, Lowering, Level], float]) -> Candidate:
    """Return the candidate that orders the products of a node.

    lower: makes its call.  plain_cost: of the candidate that does not.
    """

    def lower_ordered(node: Node, lowering: Lowering) -> None:
        lowering.call(node, order_product(lower(node, lowering), lowering))

    def cost(node: Node, lowering: Lowering, level: Level) -> float:
        fork = lowering.fork()
        ordered = order_product(lower(node, fork), fork)
        return plain_cost(node, lowering, level) * compare_cost(ordered)

    return Candidate("ordered-products", lower_ordered, cost, LEVELS)


def compare_cost(call: Call) -> float:
    """Return the cost of an ordered call beside that of one that is not."""
    sizes = {name: call.args[name] for name in ("batch", "byte_rows", "pieces", "quads", "slots")}
    batch, block, pieces, quads, slots = (int(str(size)) for size in sizes.values())
    out = call.args["out"]
    assert isinstance(out, tuple)
    rows = batch * math.prod(int(size) for size in out)
    if not rows or not pieces * quads:
        return 2.0
    # Tiles of both forms have four rows, but the other form has one for a single row too.
    tile_rows = -(-rows // TILE_ROWS) * TILE_ROWS
    plain_rows = 1 if rows == 1 else tile_rows
    arranged = -(-rows // block) * ARRANGE_ROWS
    return SLOT_COST * slots / (pieces * quads) * (tile_rows + arranged) / plain_rows
