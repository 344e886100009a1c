"""What an error says that this process has raised: of one that carries another's traceback, the other."""

from __future__ import annotations

from traceback import walk_tb
from typing import Final

from distdbg.errors import error_text, first_cause, format_error
from distdbg.record.carried_traceback import CarriedError, read_carried, read_remote

#: torch's, of which all ranks of a group raise one: it has the errors of those that failed, by group rank.
_OF_RANKS: Final = "CheckpointException"
#: torch's object that raises it, and knows which of them this rank is.
_RAISES_IT: Final = "_DistWrapper"
#: The cause of an error that was raised in a worker of a pool: its text is the traceback there.
_REMOTE: Final = frozenset(("RemoteTraceback", "_RemoteTraceback"))


def say_error(error: BaseException) -> str:
    """'ValueError: no data', and all lines of what it says further."""
    text = format_error(error)
    carried = read_carried(text, own_rank_in(error))
    return text if carried is None else carried.text


def cause_of(error: BaseException) -> str:
    """'OSError: no such shard': what it was raised from; '' where that is the same error in a worker."""
    return "" if remote_text(error) else first_cause(error)


def carried_by(error: BaseException) -> CarriedError | None:
    """The traceback that comes with it: in its own text, or that of a worker of a pool."""
    text = format_error(error)
    if remote := remote_text(error):
        return read_remote(remote, text)
    return read_carried(text, own_rank_in(error))


def remote_text(error: BaseException) -> str:
    """The traceback in the worker of a pool that raised it; ''."""
    cause = error.__cause__
    return error_text(cause) if cause is not None and type(cause).__name__ in _REMOTE else ""


def own_rank_in(error: BaseException) -> int | None:
    """This rank, as torch's CheckpointException numbers ranks; None for other errors."""
    if type(error).__name__ != _OF_RANKS:
        return None
    for frame, _ in walk_tb(error.__traceback__):
        wrapper = frame.f_locals.get("self")
        rank = getattr(wrapper, "rank", None) if type(wrapper).__name__ == _RAISES_IT else None
        if type(rank) is int:
            return rank
    return None
