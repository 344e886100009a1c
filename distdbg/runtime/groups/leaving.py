"""What a rank says to the others when it leaves a group."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from distdbg.errors import DistError
from distdbg.native import NativeError
from distdbg.ops.sites import call_site
from distdbg.record.libraries import is_library
from distdbg.record.printable import file_name, printable

if TYPE_CHECKING:
    from distdbg.native import Recorder

#: Size of `RankState::why` in native/core/segment.hpp; one byte ends it.
MAX_WHY: Final = 63
#: native/core/group_ends.cpp knows these words: such a rank has left and its process may live.
_DESTROYED: Final = "destroyed the group"
_ROOM: Final = MAX_WHY - len(f"{_DESTROYED} at ")
_WHOLE: Final = 4096


def say_destroyed(engine: object, recorder: Recorder | None) -> None:
    """Tell the others that this rank destroys the group, and at which line."""
    place = _place(call_site() if recorder is None else recorder.call_site(_WHOLE))
    say_why(engine, f"{_DESTROYED} at {place}" if place else _DESTROYED)


def _place(site: str) -> str:
    """'train.py:88' for '/home/me/train.py:88 (main)'; '' where no line of the program called."""
    where = site.rpartition(" (")[0]
    path, _, line = where.rpartition(":")
    if not path or is_library(path):
        return ""
    name, room = printable(file_name(path) or "?"), _ROOM - len(line) - 1
    while len(name.encode()) > room:
        name = name[1:]
    return f"{name}:{line}"


def without_place(how: str) -> str:
    """'left (destroyed the group)', for a line that has more to say; how a rank left otherwise stays."""
    return f"left ({_DESTROYED})" if how.startswith(f"left ({_DESTROYED} at ") else how


def say_why(engine: object, why: str, at_once: bool = False) -> None:
    """Tell the others why this rank leaves the group of an engine, by the first one in it that can.

    `at_once`: it leaves now, so ops in flight on other ranks end.
    """
    while engine is not None:
        tell = getattr(engine, "leave_because", None)
        if tell is not None:
            with suppress(DistError, NativeError):  # closed already, or inherited by a fork
                tell(why, at_once)
            return
        engine = getattr(engine, "inner", None)
