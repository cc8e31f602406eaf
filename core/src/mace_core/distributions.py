"""Knows our own distributions, the only ones that a message advises to install.

Advice to install a name that was guessed from the user's input would let anybody register that name on the
package index and run code on the user's machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files

Offers = Mapping[str, tuple[str, ...]]
"""Names by kind: frontend, suffix (of model files), phase (of transforms), target, toolchain, abi."""


@cache
def read_distributions() -> Mapping[str, Offers]:
    """Return what each of our distributions contains, by its name."""
    import yaml

    text = (files("mace_core") / "distributions.yml").read_text(encoding="utf-8")
    listed = yaml.safe_load(text) or {}
    return {name: {kind: tuple(names) for kind, names in offers.items()} for name, offers in listed.items()}


def advise_install(kind: str, name: str) -> str | None:
    """Return the command that installs what is missing; None if none of our distributions contains it."""
    bringing = [d for d, offers in read_distributions().items() if name in offers.get(kind, ())]
    return f"pip install {bringing[0]}" if bringing else None
