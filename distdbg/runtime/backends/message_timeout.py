"""What is told of a send or recv whose limit is over: whom it waited for, and how far it was.

The rank that is late may be this one: an array on a GPU goes through the host in pieces, and its own device
may not have copied those that are there. It tells the other side, in the words of `_THEIR_GPU`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final

from distdbg.errors import OpTimeout
from distdbg.native import Message, NativeError
from distdbg.ops.call import Call, Kind
from distdbg.record.durations import duration_text

#: Of native/core/p2p_wait.cpp, by the rank whose device is late.
_THEIR_GPU: Final = re.compile(r"its GPU had copied \d+ of \d+ bytes")

#: Words for a group rank; as in failures.py.
_Where = Callable[[int], str | None]


def message_timeout(
    error: NativeError,
    call: Call,
    op: str,
    message: Message | None,
    waited_s: float,
    global_ranks: Sequence[int],
    rank: int,
    fields: dict[str, Any],
    where: _Where,
    doing: _Where,
    what_is_left: str,
) -> OpTimeout:
    """The error. `where` and `doing` tell of a group rank; `what_is_left`: of the op or the group."""
    is_send = call.kind is Kind.SEND
    known = call.peer if call.peer >= 0 or message is None else message.source
    peer = global_ranks[known] if known >= 0 else -1
    then = None if message is None else message.pieces_then
    waited = f"{op} waited {duration_text(waited_s)} for"
    if message is not None and then is not None and then[0]:
        return OpTimeout(
            f"{waited} this rank's GPU: it had copied {then[1]} of {message.nbytes} bytes (tag {call.tag})",
            missing=[global_ranks[rank]],
            arrived=[peer] if peer >= 0 else [],
            waited_s=waited_s,
            details=[*_progress(message, is_send, peer), what_is_left],
            hint="see what this program has queued on that GPU, and whether the GPU answers (nvidia-smi)",
            **fields,
        )
    missing = [peer] if call.peer >= 0 else []
    place = where(call.peer) if call.peer >= 0 else None
    details = [] if place is None else [f"rank {peer}: {place}"]
    if message is not None:
        details += [*_progress(message, is_send, peer), *_offers(message, call, global_ranks, rank)]
    their_gpu = _THEIR_GPU.search(str(error)) if error.peer == known >= 0 else None
    whom = f"rank {peer}" if missing or their_gpu else "any rank"
    phrase = doing(call.peer) if missing else None
    said = f": {their_gpu[0]}" if their_gpu else f"; it was {phrase}" if phrase else ""
    return OpTimeout(
        f"{waited} {whom} to {'receive' if is_send else 'send'} (tag {call.tag}){said}",
        missing=[peer] if their_gpu else missing,
        arrived=[global_ranks[rank]],
        waited_s=waited_s,
        details=[*details, what_is_left],
        hint=f"see what rank {peer} has queued on its GPU, and whether that answers (nvidia-smi)"
        if their_gpu
        else "the other side needs a matching op: same group, peer and tag",
        **fields,
    )


def _progress(message: Message, is_send: bool, peer: int) -> list[str]:
    """How far a message in pieces was on this rank."""
    then = message.pieces_then
    if then is None:
        return []
    whose = f"to rank {peer}" if is_send else f"from rank {peer}"
    verb = "had left" if is_send else "had come"
    return [
        f"of {message.nbytes} bytes {whose} {then[2]} {verb}, and this rank's GPU had copied {then[1]}"
    ]


def _offers(message: Message, call: Call, global_ranks: Sequence[int], rank: int) -> list[str]:
    """What the other side sends instead."""
    details = []
    for offer in message.seen.split():
        source, _, rest = offer.partition(":")
        tag, _, nbytes = rest.partition(":")
        if not nbytes:
            details.append("and more")
            break
        details.append(
            f"rank {global_ranks[int(source)]} sends tag {tag} ({nbytes} bytes), "
            f"rank {global_ranks[rank]} waits for tag {call.tag}"
        )
    return details
