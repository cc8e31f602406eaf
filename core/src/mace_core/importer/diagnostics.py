"""Errors of frontends: refusals of single nodes, collected into one error, and unknown names of tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TypeVar

from mace_core.errors import MaceError
from mace_core.ops.op import OpError

T = TypeVar("T")


class RefusedError(ValueError):
    """The IR cannot represent a node; the text says why, and after a semicolon what to do."""


class SkippedError(Exception):
    """A node reads the output of a node that failed; it is not reported, because that node has been."""


@dataclass(frozen=True)
class Damage:
    """The message for a damaged file whose numbers make Python raise an exception.

    subject: the part that makes no sense, such as "its inputs or attributes".  remedy: what to do.
    errors: the exceptions that a damaged file may raise; any other is a bug of the frontend and not caught.
    """

    subject: str
    remedy: str
    errors: tuple[type[Exception], ...] = (ArithmeticError, LookupError, ValueError, TypeError)


def attempt(faults: list[str], location: str, function: Callable[[], T], damage: Damage) -> T | None:
    """Call the function and return its result; on failure append the error to `faults` and return None.

    SkippedError appends nothing.
    """
    try:
        return function()
    except SkippedError:
        pass
    except (RefusedError, OpError) as error:
        faults.append(f"{location}: {error}")
    except MaceError as error:
        faults.append(error.relocate(location))
    except damage.errors as error:
        faults.append(f"{location}: {damage.subject} make no sense ({error!r}); {damage.remedy}")
    return None


def refuse_names(
    location: str, direction: str, missing: Iterable[str], known: Iterable[str], stated: Iterable[str]
) -> None:
    """Raise one MaceError for all names of inputs or outputs in the deployment file that no tensor has.

    direction: "input" or "output".  known: the names of all tensors; the most similar one is suggested.
    stated: the names of the inputs or outputs that the model states.
    """
    faults, pool = [], list(known)
    for name in missing:
        close = get_close_matches(name, pool, 1)
        remedy = (
            f"did you mean {close[0]!r}?" if close else f"the model's {direction}s are {', '.join(stated)}"
        )
        faults.append(f"{location}: no tensor {name!r} for the deployment file's {direction}; {remedy}")
    if faults:
        raise MaceError.of(faults)
