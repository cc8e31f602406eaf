"""Finds fields of a description that this frontend does not know, which protobuf's parser drops silently.

Forks of Caffe add fields to the parameters of layers: one that nobody reads may change what a layer computes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

TOKEN = re.compile(
    r"""\#[^\n]*"""
    r"""|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'"""
    r"""|(?P<name>\w+|\[[\w./-]+\])(?=(?:\s|\#[^\n]*\n)*[:{<\[])|(?P<open>[{<])|(?P<close>[}>])"""
)
"""A comment, a string, the name of a field or of an extension, or a brace of the text form.

Values are skipped: no colon and no bracket stands behind them.
"""

NO_EFFECT = frozenset(
    (
        # How a layer learns, and what it learns from.
        *("param", "blobs", "blobs_lr", "weight_decay", "loss_weight", "propagate_down", "loss_param"),
        *(
            "blob_share_mode",
            "data_param",
            "transform_param",
            "momentum",
            "moving_average_fraction",
            "frozen",
        ),
        # What weights begin with before they are trained.
        *("weight_filler", "bias_filler", "filler", "scale_filler", "shift_filler", "slope_filler"),
        # Which code computes a layer, and what it prints.
        *("engine", "force_nd_im2col", "stable_prod_grad", "debug_info"),
        # Where a detector writes its results as files and images.
        *("save_output_param", "visualize", "visualize_threshold", "save_file"),
        # A network without stages meets every rule against one.
        "not_stage",
    )
)
"""Fields that change nothing in a deployed network."""

LAYERS = ("layer", "layers")


def find_unknown_fields(text: str, net: Any) -> list[list[str]]:
    """Return for each layer of a description the fields that no message here has, in the order of the file.

    text: a description that protobuf has parsed.  net: an empty message of a network.
    A field of a layer's parameters is returned behind their name: "pooling_param.pad_type".
    """
    unknown: list[list[str]] = []
    # For each open brace the field before it and the kind of message in it, None for one of unknown kind.
    path: list[tuple[str, Any]] = []
    kind, name = net.DESCRIPTOR, ""
    for token in TOKEN.finditer(text):
        if token["name"]:
            name = token["name"]
            if kind and path and path[0][0] in LAYERS and name not in {*kind.fields_by_name, *NO_EFFECT}:
                unknown[-1].append(_join_path(path, name))
        elif token["open"]:
            if not path and name in LAYERS:
                unknown.append([])
            path.append((name, kind))
            field = kind.fields_by_name.get(name) if kind else None
            kind = field.message_type if field else None
        elif token["close"]:
            # A list has further messages of the same field behind the brace.
            name, kind = path.pop()
    return unknown


def _join_path(path: Sequence[tuple[str, Any]], name: str) -> str:
    return ".".join([*(outer for outer, _ in path[1:]), name])
