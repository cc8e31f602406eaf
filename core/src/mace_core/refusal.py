"""Describes why a target does not take a node, as data that programs can sort and people can act on."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

CODES = MappingProxyType(
    {
        "unsupported-op": "the target computes no such op at all",
        "dtype": "the type of an element",
        "shape": "a number of axes, or a dimension",
        "attribute": "an attribute of the op",
        "quantization": "how a tensor stores real numbers",
        "too-large": "a number does not fit where the target keeps it",
        "not-worth-it": "the region is too small for a change of device",
        "missing-tool": "a compiler or a library of the vendor is not installed",
        "unknown": "what is published of the hardware does not say whether it computes the node",
        "other": "none of these; the sentence says what",
    }
)
"""The codes of refusals, each with what it is about. They are stable: programs compare them."""


@dataclass(frozen=True)
class Refusal:
    """Tells why a target does not take a node; None in its place means that it does.

    code: one of CODES.  reason: a sentence.  remedy: what the user can change; "" where nothing would help.
    ValueError for a code that is not one of CODES, or for an empty reason.
    """

    code: str
    reason: str
    remedy: str = ""

    def __post_init__(self) -> None:
        if self.code not in CODES:
            raise ValueError(f"no refusal code {self.code!r}; the codes are {', '.join(CODES)}")
        if not self.reason.strip():
            raise ValueError("a refusal without a reason")

    def __str__(self) -> str:
        return f"{self.reason}; {self.remedy}" if self.remedy else self.reason


@dataclass(frozen=True)
class NodeRefusal:
    """Records that a target was asked for a node and refused it."""

    node: str
    op: str
    target: str
    refusal: Refusal
