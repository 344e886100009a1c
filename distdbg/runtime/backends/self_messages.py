"""Messages of a rank to itself: a blocking one ends only if its other side was called before.

    isend to oneself, then recv       the send is buffered: the recv takes it
    irecv from oneself, then send     the recv is posted: the send fills it
    send or recv alone                no thread is left to call the other side: an error before it is sent

Where the program has other threads one of those may call the other side: then nothing is refused.
"""

from __future__ import annotations

import threading
from typing import Final

from distdbg.errors import UsageError

#: Threads of ours begin so: they call no ops of the program.
_OURS: Final = "distdbg"


def refuse(is_send: bool, rank: int, tag: int, group: str) -> UsageError:
    """The error of a blocking message to oneself that can never find its other side."""
    mine, other = ("send", "irecv") if is_send else ("recv", "isend")
    whom = "to" if is_send else "from"
    which = f" with tag {tag}" if tag else ""
    return UsageError(
        f"{mine} {whom} oneself on group '{group}' can never complete: rank {rank} has begun no {other}"
        f" {'from' if is_send else 'to'} itself{which}",
        hint=f"call {other} before it, or use batch_isend_irecv; if another rank was meant, look at "
        f"{'dst' if is_send else 'src'}",
    )


def is_alone() -> bool:
    """Whether no other thread of the program could call the other side."""
    me = threading.current_thread()
    return not any(
        thread is not me and not thread.name.startswith(_OURS) for thread in threading.enumerate()
    )
