"""Defines the content of a deployment file, as frozen objects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from mace_core.ir import DType, Shape
from mace_core.json_types import Json

KeyValues: TypeAlias = Mapping[str, object]
"""Values of a deployment file by key, each of the type that its schema states; who reads a key narrows it."""


@dataclass(frozen=True)
class Preparation:
    """Computation on an input before the model reads it: (x - mean) * scale / std, by channel.

    mean, scale, std: one number, or one for each channel in the order in which the model has them; empty for
    none.
    reverse: whether the application gives the channels in the opposite order.
    """

    mean: tuple[float, ...] = ()
    scale: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    reverse: bool = False

    def __bool__(self) -> bool:
        """Tell whether anything is computed."""
        return bool(self.mean or self.scale or self.std or self.reverse)


@dataclass(frozen=True)
class Port:
    """An input or output of a model as the deployment file states it.

    A field is None if the file leaves it to the model.

    shape: in the stated order.  order: "NHWC", "NCHW" or "NONE", what the application gives or gets.
    limits: minimum and maximum of random test data.
    preparation: what is computed before the model, of an input.
    data: files with values for validation, a file for each round; a URL stands as it is written.
    """

    name: str
    shape: Shape | None = None
    dtype: DType | None = None
    order: str | None = None
    limits: tuple[float, float] = (-1.0, 1.0)
    alias: str | None = None
    data: tuple[str, ...] = ()
    preparation: Preparation = Preparation()


@dataclass(frozen=True)
class Model:
    """One model of a deployment.

    platform: the frontend's name; None to go by the file's suffix.
    inputs, outputs: empty to take all that the model file declares.
    keys: every other key of the deployment file that holds for the model, with defaults.
    stages: the subgraphs of a pipeline of several, in the order in which they run; else empty.
    """

    name: str
    files: tuple[Path, ...]
    platform: str | None = None
    runtimes: tuple[str, ...] = ("cpu",)
    inputs: tuple[Port, ...] = ()
    outputs: tuple[Port, ...] = ()
    keys: KeyValues = field(default_factory=dict)
    stages: tuple[Model, ...] = ()

    def options(self, target: str) -> Json:
        """Return what the file asks of a target under `target_options`."""
        options = self.all_options.get(target)
        return options if isinstance(options, Mapping) else {}

    @property
    def all_options(self) -> Json:
        """The options under `target_options` by target."""
        options = self.keys.get("target_options")
        return options if isinstance(options, Mapping) else {}


@dataclass(frozen=True)
class Deployment:
    """A whole deployment file.

    notes: what was decided in the user's place, in words.
    ignored: the notes about keys that are accepted and have no effect.
    """

    library: str
    models: tuple[Model, ...]
    abis: tuple[str, ...] = ("host",)
    keys: KeyValues = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()


@dataclass(frozen=True)
class Device:
    """A board that is reached over ssh.

    abis: what runs on it.  socs: its chip, in lower case.  board: its full name.
    notes: what the file says that has no effect, in words.
    """

    name: str
    abis: tuple[str, ...]
    address: str
    username: str
    socs: tuple[str, ...] = ()
    board: str = ""
    notes: tuple[str, ...] = ()
