"""An op, a frame of a stack and the end of a rank in a few words, for a row or a bar."""

from __future__ import annotations

from distdbg.record.ends import RankEnd
from distdbg.record.printable import file_name
from distdbg.record.rank_state import RankState


def call_name(kind: str, seq: int, name: str = "") -> str:
    """'all_reduce #42'; `name`: of the function, where it is another one than the kind."""
    return f"{name or kind} #{seq}"


def message_name(kind: str, peer: int | None) -> str:
    """'send to 3', 'recv from any rank'."""
    return f"{kind} {'to' if kind == 'send' else 'from'} {'any rank' if peer is None else peer}"


def with_comm(name: str, comm: str) -> str:
    """An op with what the program calls it, or what called it for the program."""
    return f"{name} ({comm})" if comm else name


def status_words(label: str) -> str:
    """'peer lost', of the label that the API has for it."""
    return str(label).replace("_", " ")


def frame_text(function: str, file: str, line: int | None) -> str:
    """'step (train.py:88)', without the folders; a native frame may have no file."""
    place = file_name(file)
    if not place:
        return function
    return f"{function} ({place}:{line})" if line else f"{function} ({place})"


def raised(what: str, where: str = "") -> str:
    """'raised ValueError: no number, train.py:88 (step)'."""
    return f"raised {what}".rstrip() + (f", {where}" if where else "")


def shown_end(end: RankEnd, *, said: str = "", has_left: bool = False) -> tuple[RankState, str]:
    """The state of a rank whose process has ended, and the words for it; '' where all was well.

    `said`: what it raised (`raised`), by its record; `has_left`: its record says that it was done with
    its groups, which counts where nobody saw how the process ended.
    """
    if end.cause == "unknown" and has_left:
        return RankState.ENDED, end.how
    if not end.is_failure:
        return RankState.ENDED, ""
    if end.cause == "exited" or said:
        return RankState.FAILED, said or end.how
    return RankState.DEAD, end.how
