"""Runs the network in OpenCV's `dnn` module, for validation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np

from mace_core.api import Files, Reference
from mace_core.deployment import Model
from mace_core.errors import MaceError
from mace_core.ir import Array
from mace_frontend_caffe.load import port_names
from mace_frontend_caffe.source import read


def reference(files: Files, model: Model) -> Reference | None:
    """Return a function that runs the network on one thread; None if OpenCV is not installed.

    It takes arrays by input name and returns arrays by output name: the blobs that the deployment file names,
    or those that no layer reads.
    """
    if find_spec("cv2") is None:
        return None
    import cv2

    # One thread, so that the times that `mace validate` prints compare with those of the library.
    cv2.setNumThreads(1)
    description = str(next(f for f in files if f.suffix.lower() != ".caffemodel"))
    weights = next((str(f) for f in files if f.suffix.lower() == ".caffemodel"), "")
    try:
        net = cv2.dnn.readNetFromCaffe(description, weights)
    except cv2.error as error:
        raise MaceError(
            files[0].name, f"OpenCV refuses it: {error}", "validate against stored data instead"
        ) from error
    layers = read(files).layers
    producers = _find_producers(layers, set(net.getLayerNames()))
    names = [port.name for port in model.outputs if port.name in producers] or port_names(files)[1]

    def run(arrays: Mapping[str, Array]) -> Mapping[str, Array]:
        try:
            for name, array in arrays.items():
                net.setInput(np.ascontiguousarray(array, np.float32), name)
            results = net.forwardAndRetrieve([producers[name][0] for name in names])
        except cv2.error as error:
            # OpenCV accepts no input but the network's, and lacks layers that this frontend reads.
            raise MaceError(
                files[0].name, f"OpenCV does not run it: {error.err}", "validate against stored data instead"
            ) from error
        return {name: np.array(tops[producers[name][1]]) for name, tops in zip(names, results, strict=True)}

    return Reference(run, f"OpenCV {cv2.__version__}")


def _find_producers(layers: Sequence[Any], known: set[str]) -> dict[str, tuple[str, int]]:
    """Return for each blob OpenCV's name of the layer that writes it last, and the number of its top.

    known: OpenCV's names of layers. It names outputs by their layers, but layers that it adds or splits, such
    as those of several tops, by the blob.
    """
    producers = {}
    for layer in layers:
        for index, top in enumerate(layer.top):
            producers[top] = (layer.name if layer.name in known else top, index)
    return producers
