"""Products of bytes in an order that was proven not to saturate.

Convolutions and matrix products share it, those of plain integers too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from mace_core.candidates import Candidate
from mace_core.ir import Array, DType, Node
from mace_core.levels import Level
from mace_core.lowering import Lowering, Refused
from mace_core.program import Call
from mace_target_cpu.isa import KERNELS, X86, Packing, packing
from mace_target_cpu.lower.igemm import byte_rows, padded_depth
from mace_target_cpu.lower.order_check import check_orders
from mace_target_cpu.lower.orders import QUAD, QUADS, WINDOW, Orders, Runs, find_orders

ORDERED = tuple(KERNELS / f"igemm_{name}.h.in" for name in ("bounds", "orders", "panel", "ordered"))
LEVELS = tuple(str(level.name) for level in X86 if level.dot == "quads")

FIELDS = (("pieces", "i32"), ("quads", "i32"), ("slots", "i64"))

TILE_ROWS = 4
SLOT_BYTES, SLOT_SLACK = 64, 3
"""Bytes of a slot of a panel, and slots behind the arranged ones that the kernel writes too."""

ROW_BLOCK = 1 << 17
"""Bytes of rows of one piece that are worked on at a time: each block arranges all panels again, and rows are
read from the second-level cache fast enough."""

BOUND_ROWS = 200
"""Rows of which the kernel finds the bounds of bytes together."""

SLOT_COST, NATURAL_COST = 0.7, 0.64
"""Times of a slot and of a natural quad beside that of a quad of igemm_bytes.h.in.

They are 90, 98 and 63 products in a nanosecond.
"""

ARRANGE_COST, LIST_COST = 3.5, 1.2
"""Times in which a slot is arranged and a natural quad is listed, in that unit."""

STORE_COST, PLAIN_STORE_COST = 4, 7
"""Times in which sums of a panel are begun, rounded and stored, for each row, in that unit."""

LAST_COST = 1.4
"""Time of a row by itself beside that of a row of four, which share the loads of weights."""

SINGLE_COST, MIXED_COST, PLAIN_SINGLE_COST = 0.9, 1.56, 1.55
"""Times of a quad of a single row, in that unit: natural, beside one that is not, and of igemm_bytes.h.in."""


@dataclass(frozen=True)
class ProductCall:
    """A call that multiplies rows of integers with a constant matrix.

    rows: how many.  runs: what each of them consists of.  dtype: of their elements.  weight: the name of the
    packed matrix.
    """

    call: Call
    rows: int
    runs: Runs
    dtype: DType
    weight: str


@dataclass(frozen=True)
class OrderedCall:
    """A call of the ordered kernel, its rows, and how many slots and natural quads a panel has on average."""

    call: Call
    rows: int
    slots: float
    natural: float


@dataclass(frozen=True, eq=False)
class ProvenOrders:
    """The order of a packed matrix as its kernel reads it, and the bounds of sums that were proven of it."""

    orders: Orders
    starts: Array
    table: Array
    low: int
    high: int


def row_of(depth: int) -> Runs:
    """Return the runs of a row that lies in one piece."""
    return Runs(1, padded_depth(depth) // QUAD)


MakeProduct = Callable[[Node, Lowering], ProductCall]
"""Makes the call of a node, or refuses it."""


def order_product(product: ProductCall, lowering: Lowering) -> OrderedCall:
    """Return the call with the order of its weights; Refused for other activations than bytes."""
    call, runs = product.call, product.runs
    if product.dtype.size != 1:
        raise Refused("its activations are not of eight bits", code="dtype")
    if packing(lowering) != Packing():
        raise Refused("its weights are packed for a level with another instruction", code="other")
    # Weights lie in memory as for all levels.
    packed = lowering.weights[product.weight].make()
    proven = _prove_orders(packed.tobytes(), packed.shape, runs)
    orders = proven.orders
    kernel = replace(
        call.kernel,
        name=f"{call.kernel.name}_ordered",
        fields=(*call.kernel.fields, *FIELDS),
        params={**call.kernel.params, "is_ordered": True},
        helpers=(*call.kernel.helpers, *ORDERED),
    )
    call = _widen_blocks(product)
    args = {**call.args, "pieces": runs.pieces, "quads": runs.quads, "slots": orders.max_slots}
    numbers = 8 * (orders.max_slots + SLOT_SLACK + runs.pieces * runs.quads + 2)
    windows, blocks = runs.windows, -(-int(str(call.args["byte_rows"])) // BOUND_ROWS)
    # Lists of windows and of halves, each with an entry more, and the largest and least bytes of windows.
    lists = 8 * (windows + 1 + 2 * windows + 1)
    bounds = 2 * windows * WINDOW * blocks
    room = SLOT_BYTES * (orders.max_slots + SLOT_SLACK) + numbers + lists + bounds + WINDOW
    reads = (*call.reads, *_order_weights((product.weight, runs), proven, lowering))
    proof = (
        f"sums of two products lie between {proven.low} and {proven.high}, so 16 bits hold them; "
        f"of {packed.size // SLOT_BYTES} quads of weights, of a panel each, {orders.natural_count} are exact "
        f"as they lie, and {len(orders.places)} slots of four hold the others"
    )
    ordered = replace(call, kernel=kernel, args=args, reads=reads, scratch=call.scratch + room, proof=proof)
    panels = max(1, len(orders.counts))
    return OrderedCall(ordered, product.rows, len(orders.places) / panels, orders.natural_count / panels)


# A lowering is tried before its cost is asked for, and then used: the same matrix three times in a row.
@lru_cache(maxsize=2)
def _prove_orders(data: bytes, shape: tuple[int, ...], runs: Runs) -> ProvenOrders:
    packed = np.frombuffer(data, np.int8).reshape(shape)
    orders = find_orders(packed, runs)
    starts, table = orders.starts, orders.pack()
    # What was proven is what all lowerings share, so nobody may write to it.
    starts.setflags(write=False)
    table.setflags(write=False)
    low, high = check_orders(packed, runs, starts, table)
    return ProvenOrders(orders, starts, table, low, high)


def _widen_blocks(product: ProductCall) -> Call:
    """Return a call whose blocks have as many rows as ROW_BLOCK allows, unless they are read in a strip."""
    call, depth = product.call, product.runs.pieces * product.runs.quads * QUAD
    if call.args.get("strip"):
        return call
    block = byte_rows(product.rows, depth, ROW_BLOCK)
    more = block - int(str(call.args["byte_rows"]))
    # Of each row: its start, its sum, and its bytes as gathered and as unsigned ones.
    scratch = call.scratch + more * (8 + 2 * depth)
    return replace(call, args={**call.args, "byte_rows": block}, scratch=scratch)


def _order_weights(key: tuple[str, Runs], proven: ProvenOrders, lowering: Lowering) -> tuple[str, str]:
    """Make weights of the tables of a packed matrix; returns their names.

    key: the matrix, and what rows consist of that it is multiplied by.
    """
    weight, _ = key

    def add(suffix: str, array: Array) -> str:
        shape, dtype = array.shape, str(array.dtype)
        return lowering.once(
            (*key, suffix), lambda: lowering.weight(f"{weight}_{suffix}", shape, dtype, lambda: array)
        )

    return add("starts", proven.starts), add("order", proven.table)


def offer(lower: MakeProduct, plain_cost: Callable[[Node, Lowering, Level], float]) -> Candidate:
    """Return the candidate that orders the products of a node.

    lower: makes its call.  plain_cost: of the candidate that does not.
    """

    def lower_ordered(node: Node, lowering: Lowering) -> None:
        lowering.call(node, order_product(lower(node, lowering), lowering).call)

    def cost(node: Node, lowering: Lowering, level: Level) -> float:
        fork = lowering.fork()
        ordered = order_product(lower(node, fork), fork)
        return plain_cost(node, lowering, level) * compare_cost(ordered)

    return Candidate("ordered-products", lower_ordered, cost, LEVELS)


def compare_cost(ordered: OrderedCall) -> float:
    """Return the cost of an ordered call beside that of one that is not."""
    block, pieces, quads = (int(str(ordered.call.args[name])) for name in ("byte_rows", "pieces", "quads"))
    rows = ordered.rows
    if not rows or not pieces * quads:
        return 2.0
    if rows == 1:
        return _compare_single(ordered, pieces * quads)
    rest = rows % TILE_ROWS
    slots, natural = ordered.slots, ordered.natural
    arranged = -(-rows // block) * (ARRANGE_COST * slots + LIST_COST * natural)
    row = SLOT_COST * slots + NATURAL_COST * natural + STORE_COST
    # The other form has a tile for a single row, and computes the last of two or three rows again.
    plain_rest = (0, PLAIN_SINGLE_COST, TILE_ROWS, TILE_ROWS)[rest]
    plain = (rows - rest + plain_rest) * (pieces * quads + PLAIN_STORE_COST)
    return ((rows - rest + LAST_COST * rest) * row + arranged) / plain


def _compare_single(ordered: OrderedCall, quads: int) -> float:
    """Return what `compare_cost` does, of a single row."""
    # A quad that is not natural makes its whole window slower. Where natural ones lie anywhere, all of a
    # window are natural as often as this.
    natural = (ordered.natural / quads) ** QUADS
    return (SINGLE_COST * natural + MIXED_COST * (1 - natural)) / PLAIN_SINGLE_COST
