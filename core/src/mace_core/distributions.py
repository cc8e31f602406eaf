"""Our own distributions: the only names that advice about missing plugins may contain.

A name guessed from what a user typed could be registered by anybody; advice to install it would invite
squatters.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files

Offers = Mapping[str, tuple[str, ...]]
"""Names by kind: frontend, suffix (of model files), phase (of transforms), target, toolchain, abi."""


@cache
def read_distributions() -> Mapping[str, Offers]:
    """Return what each of our distributions brings, by its name."""
    import yaml

    text = (files("mace_core") / "distributions.yml").read_text(encoding="utf-8")
    listed = yaml.safe_load(text) or {}
    return {name: {kind: tuple(names) for kind, names in offers.items()} for name, offers in listed.items()}


def advise_install(kind: str, name: str) -> str | None:
    """Return the command that installs what is missing, or None if no distribution of ours brings it."""
    bringing = [d for d, offers in read_distributions().items() if name in offers.get(kind, ())]
    return f"pip install {bringing[0]}" if bringing else None
