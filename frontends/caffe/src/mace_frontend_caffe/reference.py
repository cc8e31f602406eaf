"""The network in OpenCV's `dnn` module, for validation."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec

import numpy as np

from mace_core.api import Files, Reference
from mace_core.deployment import Model
from mace_core.errors import MaceError
from mace_core.ir import Array
from mace_frontend_caffe.source import read


def reference(files: Files, model: Model) -> Reference | None:
    """Run the network on one thread; None if OpenCV is not installed.

    The callable takes arrays by input name and gives arrays by output name: the blobs that the deployment
    file names, else those that nothing reads.
    """
    if find_spec("cv2") is None:
        return None
    import cv2

    cv2.setNumThreads(1)
    described = str(next(f for f in files if f.suffix.lower() != ".caffemodel"))
    weights = next((str(f) for f in files if f.suffix.lower() == ".caffemodel"), "")
    try:
        net = cv2.dnn.readNetFromCaffe(described, weights)
    except cv2.error as error:
        raise MaceError(
            files[0].name, f"OpenCV refuses it: {error}", "validate against stored data instead"
        ) from error
    layers = read(files).layers
    known = set(net.getLayerNames())  # OpenCV knows outputs by their layers, and some layers by their tops
    makers = {
        top: (layer.name if layer.name in known else top, i)
        for layer in layers
        for i, top in enumerate(layer.top)
    }
    read_by = {bottom for layer in layers for bottom in layer.bottom}
    names = [p.name for p in model.outputs if p.name in makers] or [
        top for layer in layers for top in layer.top if top not in read_by
    ]

    def run(arrays: Mapping[str, Array]) -> Mapping[str, Array]:
        try:
            for name, array in arrays.items():
                net.setInput(np.ascontiguousarray(array, np.float32), name)
            made = net.forwardAndRetrieve([makers[name][0] for name in names])
        except cv2.error as error:  # it knows no inputs but the network's own, and less layers
            raise MaceError(
                files[0].name, f"OpenCV does not run it: {error.err}", "validate against stored data instead"
            ) from error
        return {name: np.array(tops[makers[name][1]]) for name, tops in zip(names, made, strict=True)}

    return Reference(run, f"OpenCV {cv2.__version__}")
