"""Turns a native fault into the public error: which op and rank, and whether the group stays usable."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, Concatenate, Final, ParamSpec

from distdbg.check.arrays import explain_arrays
from distdbg.check.explain import BACKWARD_OF, explain_mismatch
from distdbg.control.words import AbortWords, to_error
from distdbg.errors import (
    CollectiveError,
    DistBackendError,
    DistError,
    InternalError,
    LinkCorruptedError,
    MismatchError,
    OpTimeout,
    PeerLost,
    RankLeft,
    UsageError,
    format_ranks,
)
from distdbg.native import Group, Message, NativeError
from distdbg.ops.call import Call, Kind
from distdbg.ops.dtypes import Dtype
from distdbg.ops.sites import UNKNOWN, call_site, shorten
from distdbg.record.durations import duration_text
from distdbg.record.rank_state import NO_OP_YET
from distdbg.runtime.backends.reported_difference import BROKEN, DIFFERS, reported_difference
from distdbg.runtime.members.absent import SHOWN

#: The words of native/core/p2p_wait.cpp on the rank whose device is late.
_THEIR_GPU: Final = re.compile(r"its GPU had copied \d+ of \d+ bytes")


#: Words for what a group rank does now, if anything is known of it.
Where = Callable[[int], str | None]

_GOES_ON = "the op continues and can be waited for again"
#: Said of an abort that another rank has read, and whose words did not reach this host in time.
_ELSEWHERE = AbortWords(
    what="the reason did not reach this host: read the errors of the other ranks"
)
#: Said of a rank that no address of its host leads to.
REACH_HINT = "name the interface by which each host is reached with DISTDBG_SOCKET_IFNAME"
#: Said of a group that is broken already.
_REFUSING = ("broken", "peer_lost", "network", "aborted")
_INTACT = "no data was exchanged; the group is still usable"


_P = ParamSpec("_P")
_Explain = Callable[Concatenate[NativeError, _P], DistError]


def _or_that_it_is_closed(explain: _Explain[_P]) -> _Explain[_P]:
    """Another thread may close the group while its error is explained: then that is the error."""

    @wraps(explain)
    def explain_either(error: NativeError, /, *args: _P.args, **kwargs: _P.kwargs) -> DistError:
        try:
            return explain(error, *args, **kwargs)
        except NativeError as closed:
            if closed.fault != "usage":
                raise
            return explain(closed, *args, **kwargs)

    return explain_either


@_or_that_it_is_closed
def to_public(
    error: NativeError,
    call: Call,
    *,
    group: Group,
    name: str,
    rank: int,
    global_ranks: Sequence[int],
    waited_s: float,
    message: Message | None = None,
    goes_on: bool = False,
    where: Where = lambda rank: None,
    doing: Where = lambda rank: None,
    host: Where = lambda rank: None,
    started_at: str | None = None,
) -> DistError:
    """The error that the user sees. `global_ranks`: those of the group.

    `where` tells what is known of a group rank that did not come, `doing` in a few words where it was
    seen last, `host` which host it is on, where there are several. `started_at`: the user's line that
    started it, where this is not it.
    `goes_on`: only a wait has given up, the op itself is still in flight.
    """
    if error.fault == "usage":  # a closed or inherited group answers no further questions
        return UsageError(f"{call.name or call.kind.label} on group '{name}': {error}")
    is_message = call.kind >= Kind.SEND
    # A group that was broken before has not counted the op: it has the number that would have been its.
    is_refused = error.fault in _REFUSING and not error.seq
    seq = -1 if is_message else error.seq or group.seq + is_refused
    number = "" if is_message else f" #{seq}"
    op = f"{call.name or call.kind.label}{number} on group '{name}'"
    fields: dict[str, Any] = {"kind": call.kind.label, "seq": seq, "group": name}
    peer = global_ranks[error.peer] if 0 <= error.peer < len(global_ranks) else -1
    match error.fault:
        case "mismatch" if message is not None:
            return _message_mismatch(call, message, name, global_ranks[rank], global_ranks)
        case "mismatch" if not error.descriptions:
            return MismatchError(
                f"{op} cannot run: rank {peer} {error}",
                ranks=[peer],
                details=["ranks differed in an earlier op, which was not compared", BROKEN],
                hint="set DISTDBG_DEBUG=detail from the start, and the op that differs is named",
                **fields,
            )
        case "nonfinite" | "changed" | "diverged":
            return explain_arrays(
                error, op, global_ranks=global_ranks, started_at=started_at or call_site(), **fields
            )
        case "mismatch":
            return explain_mismatch(
                error.descriptions,
                group=name,
                seq=seq,
                global_ranks=global_ranks,
                this_rank=global_ranks[rank],
            )
        case "timeout" if is_message:
            return _message_timeout(
                error, call, op, message, waited_s, global_ranks, rank, fields, where, doing,
                _GOES_ON if goes_on else BROKEN,
            )  # fmt: skip
        case "timeout":
            facts = group.facts()
            gate = facts[rank][1] if goes_on else error.gate
            return _timeout(
                facts, gate, op, waited_s, global_ranks, fields, goes_on, where, doing, host
            )
        case "peer_lost":
            how = str(error)
            cause = group.cause()
            if cause is not None and DIFFERS in cause[4] and not is_refused:
                # It had found it, and has left since.
                return reported_difference(cause[4], f"rank {peer}", **fields)
            if how.startswith("left ("):
                return _rank_left(op, peer, how, error.peer, group, fields, where)
            text = f"rank {peer}{_on(host(error.peer))} {how}; this rank needed it in {op}"
            tried = [error.detail] if error.detail else []
            details = [*tried, *_mates(error.peer, global_ranks, host), BROKEN]
            hint = REACH_HINT if tried else None
            return PeerLost(text, peer=peer, how=how, details=details, hint=hint, **fields)
        case "network":
            return link_corrupted(str(error), op, group, global_ranks, host, fields)
        case "broken":
            cause = group.cause()
            by = f"rank {peer}" if peer >= 0 else "a rank"
            was_running = is_message or not is_refused  # messages have no number that tells
            if cause is not None and DIFFERS in cause[4] and was_running:
                return reported_difference(cause[4], by, **fields)
            at = ""  # a message has no number; the cause has that of the op before
            if cause is not None and cause[3] and not cause[4].endswith("send or recv"):
                at = f" in op #{cause[3]}"
            return CollectiveError(
                f"{op} cannot run: {by} {str(error).splitlines()[0]}{at}",
                ranks=[peer] if peer >= 0 else [],
                details=[BROKEN],
                **fields,
            )
        case "aborted":
            return to_error(str(error) or _ELSEWHERE, op=op, **fields)
        case "system":
            return DistBackendError(f"{op} failed: {error}", details=[BROKEN])
    return InternalError(f"{op} failed: {error.fault}: {error}")


def _on(host: str | None) -> str:
    return f" on host {host}" if host else ""


def _mates(index: int, global_ranks: Sequence[int], host: Where) -> list[str]:
    """Return who else is on the host of a rank that was lost."""
    there = host(index)
    mates = [
        rank for i, rank in enumerate(global_ranks) if i != index and there and host(i) == there
    ]
    if not mates:
        return []
    whom = f"rank {mates[0]}" if len(mates) == 1 else f"ranks {format_ranks(mates)}"
    return [f"host {there} has {whom} as well"]


def link_corrupted(
    link: str,
    op: str,
    group: Group,
    global_ranks: Sequence[int],
    host: Where,
    fields: dict[str, Any],
) -> LinkCorruptedError:
    """Between which ranks, as the cause has it for which the group is broken."""
    cause = group.cause()
    at = (-1, -1) if cause is None else (cause[1], cause[2])
    sender, receiver = (global_ranks[i] if 0 <= i < len(global_ranks) else -1 for i in at)
    ends = [f"rank {rank}{_on(host(i))}" for rank, i in zip((sender, receiver), at, strict=True)]
    return LinkCorruptedError(
        f"{op} failed: a message from {ends[0]} to {ends[1]} was changed on its way",
        sender=sender,
        receiver=receiver,
        link=link,
        details=[f"{link}: its checksum differs, and TCP has not noticed", BROKEN],
        hint="look at the cards, cables and switches between the two; an array that was changed while an "
        "asynchronous op owned it looks alike",
        **fields,
    )


def _rank_left(
    op: str,
    peer: int,
    how: str,
    index: int,
    group: Group,
    fields: dict[str, Any],
    where: Where,
) -> RankLeft:
    last = group.facts()[index][2]
    place = where(index)
    tail = "" if place is None else f"; {place}"
    return RankLeft(
        f"{op} cannot complete: rank {peer} {how}",
        peer=peer,
        how=how,
        ranks=[peer],
        details=[
            (
                f"rank {peer} last called op #{last} on this group{tail}"
                if last
                else f"rank {peer} has called no collective on this group{tail}"
            ),
            BROKEN,
        ],
        hint="all ranks of a group must call the same ops: find out why that rank stopped before it",
        **fields,
    )


def _timeout(
    facts: Sequence[tuple[object, int, int, bool]],
    gate: int,
    op: str,
    waited_s: float,
    global_ranks: Sequence[int],
    fields: dict[str, Any],
    goes_on: bool,
    where: Where,
    doing: Where,
    host: Where,
) -> OpTimeout:
    missing: list[int] = []
    details: list[str] = []
    absent: list[int] = []
    for index, (rank, (_, reached, seq, has_left)) in enumerate(
        zip(global_ranks, facts, strict=True)
    ):
        if reached >= gate:
            continue
        missing.append(rank)
        absent.append(index)
        if len(missing) > SHOWN:
            continue
        if has_left:
            done = "has left the group"
        elif seq == 0:
            done = "has called no collective on this group"
        else:
            done = f"last called op #{seq} on this group"
        place = where(index)
        if place == NO_OP_YET:  # which says more
            done = place
        elif place is not None:
            done += f"; {place}"
        details.append(f"rank {rank}{_on(host(index))} {done}")
    if len(missing) > SHOWN:
        details.append(f"and {len(missing) - SHOWN} more ranks")
    arrived = [rank for rank in global_ranks if rank not in set(missing)]
    whom = f"rank {missing[0]}" if len(missing) == 1 else f"ranks {format_ranks(missing)}"
    whom = f"{whom} of {format_ranks(global_ranks)}" if missing else "its end"
    phrase = doing(absent[0]) if len(absent) == 1 else None
    whom += f", {phrase}" if phrase else ""
    return OpTimeout(
        f"{op} waited {duration_text(waited_s)} for {whom}; "
        f"{len(arrived)} of {len(global_ranks)} ranks arrived",
        missing=missing,
        arrived=arrived,
        waited_s=waited_s,
        details=[*details, _GOES_ON if goes_on else BROKEN],
        hint="see why it is there; raise the limit with timeout= if it is only slow",
        **fields,
    )


def tell_backward(error: DistError, comm: str, name: str) -> None:
    """Add the line that called an op of a backward pass, and the op that the pass belongs to."""
    if not comm.startswith(BACKWARD_OF) or isinstance(error, MismatchError):
        return  # the ranks' own words in a mismatch have both
    site = call_site()
    at = f" at {shorten([site])[site]}" if site != UNKNOWN else ""
    error.details.insert(0, f"this rank called {name}{at} ({comm})")


def _message_mismatch(
    call: Call, message: Message, group: str, me: int, global_ranks: Sequence[int]
) -> MismatchError:
    is_send = call.kind is Kind.SEND
    peer = global_ranks[call.peer if call.peer >= 0 else message.source]
    ours = _amount(message.dtype, message.nbytes)
    theirs = _amount(message.peer_dtype, message.peer_nbytes)
    source, target = (me, peer) if is_send else (peer, me)
    sent, wanted = (ours, theirs) if is_send else (theirs, ours)
    sites = (message.words, message.peer_words)
    sites = sites if is_send else sites[::-1]
    short = shorten(site or UNKNOWN for site in sites)
    details = [
        f"rank {rank} called {function} at {short[site or UNKNOWN]}"
        for rank, function, site in zip((source, target), ("send", "recv"), sites, strict=True)
    ]
    return MismatchError(
        f"message on group '{group}' differs between ranks: rank {source} sent {sent}, "
        f"rank {target} expects {wanted} (tag {call.tag})",
        kind=call.kind.label,
        group=group,
        ranks=[source, target],
        sides=[
            {
                "ranks": [rank],
                "what": what,
                "facts": {"kind": function, "tag": call.tag},
                "sites": [
                    {"function": function, "call_site": short[site or UNKNOWN], "ranks": [rank]}
                ],
                "previous": [],
            }
            for rank, what, function, site in zip(
                (source, target), (sent, wanted), ("send", "recv"), sites, strict=True
            )
        ],
        details=[*details, _INTACT],
        hint="both sides must give arrays of one dtype and as many elements",
    )


def _amount(dtype: int, nbytes: int) -> str:
    if dtype < 0:
        return f"{nbytes} bytes"
    return f"{nbytes // Dtype(dtype).itemsize} {Dtype(dtype).label}"


def _message_timeout(
    error: NativeError,
    call: Call,
    op: str,
    message: Message | None,
    waited_s: float,
    global_ranks: Sequence[int],
    rank: int,
    fields: dict[str, Any],
    where: Where,
    doing: Where,
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
