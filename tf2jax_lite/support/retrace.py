"""The one way in which a trace starts again."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

_T = TypeVar("_T")


def retrace(attempt: Callable[[], _T], learn: Callable[[Exception], bool], *errors: type[Exception]) -> _T:
    """Trace until an attempt ends without an error that the next one can avoid.

    A trace is cut short where it needs a fact that only the trace tells: that sizes are equal, that a list grows, that
    a branch depends on a comparison. The next attempt has that fact from the start.

    Args:
      attempt: traces once, with all that is learned so far.
      learn: takes the error that ended an attempt, and returns whether the next attempt differs. It bounds their
        number, and may raise another error.
    """
    while True:
        try:
            return attempt()
        except errors as error:
            if not learn(error):
                raise
