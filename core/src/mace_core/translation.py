"""What frontends share: a node of a model file on its way into the IR, and what is told where it cannot go there."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import ClassVar, TypeVar

from mace_core.errors import MaceError
from mace_core.graph_builder import Builder
from mace_core.ir import Array, Node
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


class OperandNode(FileNode):
    """A node whose operands are known by their number, constants among them that say what it does.

    again: how it is made anew.
    """

    again: ClassVar[str] = "export"

    @abstractmethod
    def array(self, index: int) -> Array | None:
        """The elements of operand `index` as the file stores them, if it is a constant."""

    def constant(self, index: int, what: str) -> Array:
        """The elements of operand `index`; RefusedError if it is not constant."""
        array = self.array(index)
        if array is None:
            raise RefusedError(
                f"its {what} (input {index}) is computed at run time; {self.again} the model with a constant"
            )
        return array

    def ints(self, index: int, what: str) -> tuple[int, ...]:
        """Operand `index` as whole numbers; RefusedError if it is not constant."""
        return tuple(int(v) for v in self.constant(index, what).reshape(-1))


def refuse_names(
    place: str, what: str, missing: Iterable[str], known: Iterable[str], own: Iterable[str]
) -> None:
    """MaceError with every name under the deployment file's inputs or outputs that the model lacks, and a better one for each.

    what: "input" or "output".  known: all names that it could be.  own: those that the model itself gives its
    inputs or outputs.
    """
    faults, pool = [], list(known)
    for name in missing:
        close = get_close_matches(name, pool, 1)
        remedy = f"did you mean {close[0]!r}?" if close else f"the model's {what}s are {', '.join(own)}"
        faults.append(f"{place}: no tensor {name!r} for the deployment file's {what}; {remedy}")
    if faults:
        raise MaceError.of(faults)


def attempt(faults: list[str], place: str, work: Callable[[], T], senseless: Senseless) -> T | None:
    """What a piece of work gives.

    None if it cannot be done, the fault noted unless it has been told before.
    """
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
