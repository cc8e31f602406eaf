"""How a frontend reports what is wrong: refusals of single nodes, all of them at once, and names that no tensor has."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TypeVar

from mace_core.errors import MaceError
from mace_core.ops.op import OpError

T = TypeVar("T")


class RefusedError(ValueError):
    """A node cannot be represented; the text says why, and after a semicolon what to do."""


class SkippedError(Exception):
    """A node reads what could not be computed. Nothing is reported, because that has been reported already."""


@dataclass(frozen=True)
class Damage:
    """Says what is reported where the numbers of a damaged file lead to an exception of Python's.

    subject: what makes no sense, such as "its inputs or attributes".  remedy: what to do.
    errors: the exceptions that a damaged file may raise; any other is a bug of the frontend and is not caught.
    """

    subject: str
    remedy: str
    errors: tuple[type[Exception], ...] = (ArithmeticError, LookupError, ValueError, TypeError)


def attempt(faults: list[str], location: str, work: Callable[[], T], damage: Damage) -> T | None:
    """Run `work` and return its result; on failure append the error to `faults` and return None.

    SkippedError appends nothing.
    """
    try:
        return work()
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
    location: str, direction: str, missing: Iterable[str], known: Iterable[str], own: Iterable[str]
) -> None:
    """Raise one MaceError for all names of inputs or outputs in the deployment file that no tensor has.

    direction: "input" or "output".  known: every name that would be possible; the most similar is suggested.
    own: the names that the model itself gives its inputs or outputs.
    """
    faults, pool = [], list(known)
    for name in missing:
        close = get_close_matches(name, pool, 1)
        remedy = f"did you mean {close[0]!r}?" if close else f"the model's {direction}s are {', '.join(own)}"
        faults.append(f"{location}: no tensor {name!r} for the deployment file's {direction}; {remedy}")
    if faults:
        raise MaceError.of(faults)
