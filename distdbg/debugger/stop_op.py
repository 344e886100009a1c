"""A stop at a prompt is an op of its own in the record of the rank.

Its call site is the user's line, which the record takes from the stack. Where an exception came by, the
line that raised may run no more, so the op is begun by code that looks to the record like that line.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from types import CodeType, TracebackType
from typing import Any

from distdbg.record.format import Aside
from distdbg.record.printable import shorten
from distdbg.runtime.process.world import World
from distdbg.runtime.recorder.recorded_waits import aside

#: How long the name of a stop may be in the record.
_MAX_WHY = 120


class StopOp:
    """The block in which the rank is stopped; nothing is recorded of a rank without groups."""

    def __init__(
        self, world: World, number: int, why: str, place: tuple[CodeType, int] | None
    ) -> None:
        """`place`: of an exception; None takes the line that runs."""
        group = world.default or next(iter(world.groups.values()), None)
        self._op = (
            None if group is None else aside(group, Aside.DEBUGGER, number, shorten(why, _MAX_WHY))
        )
        self._place = place

    def __enter__(self) -> None:
        if self._op is None:
            return
        if self._place is None:
            self._op.__enter__()
        else:
            call_at(self._place, self._op.__enter__)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._op is not None:
            self._op.__exit__(kind, error, trace)


def call_at(place: tuple[CodeType, int], function: Callable[[], Any]) -> Any:
    """Call `function`; to who looks for its caller that is this line, though it runs no more."""
    code, line = place
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)  # a number that is called
        calls = compile("1()", code.co_filename, "eval")
    return eval(
        calls.replace(
            co_consts=tuple(function if one == 1 else one for one in calls.co_consts),
            co_name=code.co_name,
            co_qualname=code.co_qualname,
            co_firstlineno=line,
        )
    )
