"""The C project: what an application builds, runs and copies from."""

from __future__ import annotations

from collections.abc import Mapping

from mace_core.emit.render import render
from mace_frontend_ai8x.network import Network
from mace_target_max78000.firmware.layout import TEMPLATES, layout
from mace_target_max78000.firmware.template_values import make_template_values
from mace_target_max78000.image import Image
from mace_target_max78000.options import Options


def emit_project(image: Image, network: Network, options: Options, summary: str) -> Mapping[str, str | bytes]:
    """Return the project's files by path.

    summary: plain lines for the comments at the head of cnn.h and the end of main.c.  MaceError where options
    contradict each other.
    """
    known = make_template_values(image, network, options, summary)
    known["unload"] = render(TEMPLATES / "unload.c.in", **known)
    return {path: render(template, path=path, **known) for path, template in layout(options).items()}
