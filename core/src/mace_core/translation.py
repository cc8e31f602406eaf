"""What frontends share: a node of a model file on its way into the IR, and what is told where it cannot go there."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from mace_core.build import Builder
from mace_core.errors import MaceError
from mace_core.ir import Node
from mace_core.ops.op import OpError

T = TypeVar("T")


class RefusedError(ValueError):  # an answer, not a failure
    """A node cannot be represented; the text says why, and after a semicolon what to do."""


class SkippedError(Exception):  # no error: what it reads has been reported already
    """A node reads what could not be computed."""


@dataclass(frozen=True)
class Senseless:
    """What is told where the numbers of a damaged file lead nowhere: what makes no sense, what to do, and what is raised then."""

    what: str
    remedy: str
    raised: tuple[type[Exception], ...] = (ArithmeticError, LookupError, ValueError, TypeError)


class FileNode(ABC):
    """A node of a model file as its handler sees it."""

    @property
    @abstractmethod
    def name(self) -> str:
        """What the user finds it by in the file."""

    @property
    @abstractmethod
    def build(self) -> Builder:
        """The graph that is being made."""

    @property
    def origin(self) -> Node:
        """What the nodes made for it are named after."""
        return Node(self.name, self.build.ops["Identity"], (), (), sources=(self.source,))

    @property
    def source(self) -> str:
        """The node of the file's main graph that it belongs to."""
        return self.name

    def refuse_unless(self, condition: bool, text: str) -> None:
        """RefusedError with the text unless the condition holds."""
        if not condition:
            raise RefusedError(text)

    def axis(self, axis: int, rank: int) -> int:
        """An axis counted from the front; RefusedError if there is none such."""
        self.refuse_unless(-rank <= axis < rank, f"axis {axis} of a tensor of rank {rank}")
        return axis % rank


def attempt(faults: list[str], place: str, work: Callable[[], T], senseless: Senseless) -> T | None:
    """What a piece of work gives; None if it cannot be done, the fault noted unless it has been told before."""
    try:
        return work()
    except SkippedError:
        pass
    except (RefusedError, OpError) as error:
        faults.append(f"{place}: {error}")
    except MaceError as error:
        faults.append(error.at(place))
    except senseless.raised as error:
        faults.append(f"{place}: {senseless.what} make no sense ({error!r}); {senseless.remedy}")
    return None
