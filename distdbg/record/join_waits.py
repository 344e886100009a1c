"""For whom ranks wait in init_process_group, by the calls of all of them. Pure.

    found = find_join_wait(calls, ended, doing, now_ns)
    found.say("waited")     'all 5 ranks waited 44 s in init_process_group at job.py:23 (connect) for rank 5,
                            which was not started'
    found.advice            'init_process_group(world_size=6), but 5 ranks were started (WORLD_SIZE=5)'

The first of these that holds is told:

    SIZES       the calls ask for different numbers of ranks
    TWICE       two calls say that they are the same rank, and no call is another one
    PLACES      the calls look for the ranks at different addresses
    ABSENT      a rank of this host has not called it, or had ended before
    TOO_MANY    the calls ask for more ranks than were started
    NO_STORE    rank 0 waits for the others, and they have not reached the address
    ELSEWHERE   nothing is known of the other ranks: they are on other hosts
    ALL         all have called it alike
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeVar

from distdbg.errors import format_ranks
from distdbg.record.durations import duration_text
from distdbg.record.join_calls import CALL, JoinCall, too_many

_MAX_ADDRESSES: Final = 2
#: So many ranks with one address outweigh one with another.
_MAJORITY: Final = 3

Value = TypeVar("Value", bound=Hashable)


class JoinReason(StrEnum):
    """Why the ranks have not met."""

    SIZES = "sizes"
    TWICE = "twice"
    PLACES = "places"
    ABSENT = "absent"
    TOO_MANY = "too many"
    NO_STORE = "no store"
    ELSEWHERE = "elsewhere"
    ALL = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinWait:
    """Ranks that wait in init_process_group."""

    reason: JoinReason
    waiting: tuple[int, ...]
    since_ns: int
    """When the last of them called it; before that the first ones had waited for these."""
    waited_ns: int
    causes: tuple[int, ...] = ()
    """The ranks whose call differs, or that have not called it; () where no one of them is to blame."""
    place: str = ""
    """Where they call it, if they do so at one line: 'job.py:23 (connect)'."""
    why: str = ""
    advice: str = ""
    has_given_up: bool = False
    """Whether some of them waited no longer, by themselves."""
    is_all: bool = False
    """Whether all ranks that are known wait there."""

    def say(self, waited: str) -> tuple[str, ...]:
        """The sentence, in parts: what has to be there, and what may be left out; `waited`: its verb."""
        count = len(self.waiting)
        who = f"all {count} ranks" if self.is_all and count > 1 else _say_ranks(self.waiting)
        at = f" at {self.place}" if self.place else ""
        return (
            f"{who} {waited} {duration_text(self.waited_ns / 1e9)} in {CALL}",
            f"{at}{self.why}",
        )


def find_join_wait(
    calls: Mapping[int, JoinCall],
    ended: Mapping[int, str],
    doing: Mapping[int, str],
    now_ns: int,
) -> JoinWait | None:
    """None where nobody waits there, or did until it gave up.

    `calls` by the rank that the launcher started. `ended` says of ranks that were over before, and `doing` of
    all others what was seen of them; each rank of this host is in one of the two, '' where nothing is known.
    """
    gave_up = {rank: call for rank, call in sorted(calls.items()) if call.gave_up}
    waiting = {
        rank: call
        for rank, call in sorted(calls.items())
        if rank in gave_up or (call.is_waiting and rank not in ended)
    }
    if not waiting:
        return None
    now_ns = min([now_ns, *(call.step_ns for call in gave_up.values())])
    ended = {rank: how for rank, how in ended.items() if rank not in gave_up}
    reason, causes, why, advice = _reason(waiting, ended, doing)
    since_ns = max(call.since_ns for call in waiting.values())
    sites = {call.site for call in waiting.values()}
    return JoinWait(
        reason=reason,
        waiting=tuple(waiting),
        since_ns=since_ns,
        waited_ns=max(now_ns - since_ns, 0),
        causes=causes,
        place=sites.pop() if len(sites) == 1 else "",
        why=why,
        advice=advice,
        has_given_up=bool(gave_up),
        is_all=set(waiting) >= set(doing) | set(ended) and reason is not JoinReason.ELSEWHERE,
    )


_Reason = tuple[JoinReason, tuple[int, ...], str, str]


def _reason(
    waiting: Mapping[int, JoinCall], ended: Mapping[int, str], doing: Mapping[int, str]
) -> _Reason:
    """Also the ranks to blame, what is said of it, and the hint."""
    sizes = _by({rank: call.world_size for rank, call in waiting.items() if call.world_size > 0})
    if len(sizes) > 1:
        return _sizes_differ(waiting, sizes)
    size = next(iter(sizes), 0)
    started = max((call.started for call in waiting.values()), default=-1)
    known = {rank: call.as_rank for rank, call in waiting.items() if call.as_rank >= 0}
    missing = [rank for rank in range(size) if rank not in known.values()]
    shared = {number: ranks for number, ranks in _by(known).items() if len(ranks) > 1}
    if shared and missing:
        return _same_rank(shared, missing)
    places = _by({rank: call.where for rank, call in waiting.items() if call.where})
    if len(places) > 1:
        return _places_differ(places)
    late = [rank for rank in sorted({*ended, *doing}) if rank not in waiting]
    more = too_many(size, started)
    if late:
        return JoinReason.ABSENT, tuple(late), _say_late(late, ended, doing), more
    not_started = [rank for rank in missing if rank >= started] if started > 0 else []
    if not_started and more:
        were = "was" if len(not_started) == 1 else "were"
        why = f" for {_say_ranks(not_started)}, which {were} not started"
        return JoinReason.TOO_MANY, (), why, more
    where = next(iter(places), "")
    unconnected = [
        rank for rank in waiting if known.get(rank) != 0 and not waiting[rank].is_connected
    ]
    if where and unconnected and (0 in known.values() or len(waiting) > 1):
        return _no_store(where, unconnected)
    if missing:
        why = f" for {_say_ranks(missing)}, of which nothing is known here"
        return JoinReason.ELSEWHERE, (), why, "see on their hosts whether they were started"
    advice = (
        "all of them have called it alike: see whether their hosts reach each other "
        "(GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME name the interface)"
    )
    return JoinReason.ALL, (), "", advice


def _sizes_differ(waiting: Mapping[int, JoinCall], sizes: Mapping[int, list[int]]) -> _Reason:
    started = max(call.started for call in waiting.values())
    wrong = sorted(rank for size, ranks in sizes.items() if size != started for rank in ranks)
    reported = ", ".join(f"{size} on {_say_ranks(ranks)}" for size, ranks in sizes.items())
    causes = tuple(wrong) if 0 < len(wrong) < len(waiting) else ()
    ought = f": {started} ranks were started (WORLD_SIZE={started})" if started > 0 else ""
    return (
        JoinReason.SIZES,
        causes,
        f"; world_size is {reported}",
        f"give {CALL} the same world_size on all ranks{ought}",
    )


def _same_rank(shared: Mapping[int, list[int]], missing: list[int]) -> _Reason:
    number, ranks = next(iter(shared.items()))
    wrong = tuple(rank for rank in ranks if rank != number)
    return (
        JoinReason.TWICE,
        wrong,
        f" for {_say_ranks(missing)}: {_say_ranks(ranks)} called it with rank={number}",
        f"give each process a rank of its own: {_say_ranks(wrong)} {_were(wrong)} started with "
        f"RANK={format_ranks(wrong)}",
    )


def _places_differ(places: Mapping[str, list[int]]) -> _Reason:
    ordered = sorted(places.items(), key=lambda one: (-len(one[1]), one[1]))
    reported = [f"{where} on {_say_ranks(ranks)}" for where, ranks in ordered[:_MAX_ADDRESSES]]
    causes = [rank for _, ranks in ordered[1:] for rank in ranks]
    if len(causes) > 1 or len(ordered[0][1]) < _MAJORITY:
        causes = []  # any of them may be right
    return (
        JoinReason.PLACES,
        tuple(causes),
        f"; their addresses differ: {', '.join(reported)}",
        "give all ranks one address (init_method, or MASTER_ADDR and MASTER_PORT)",
    )


def _no_store(where: str, ranks: list[int]) -> _Reason:
    return (
        JoinReason.NO_STORE,
        (),
        f"; {_say_ranks(ranks)} did not reach {where}",
        f"rank 0 has to serve {where}: see whether MASTER_ADDR is its host, and the port free there and open "
        "to the others",
    )


def _say_late(late: list[int], ended: Mapping[int, str], doing: Mapping[int, str]) -> str:
    """' for rank 4, asleep in load() at x.py:5'; of several where they do the same."""
    phrases = {f"which {how} before" if (how := ended.get(r)) else doing.get(r, "") for r in late}
    phrase = phrases.pop() if len(phrases) == 1 else ""
    return f" for {_say_ranks(late)}" + (f", {phrase}" if phrase else "")


def _by(values: Mapping[int, Value]) -> dict[Value, list[int]]:
    """The ranks of each value; the value of most ranks first."""
    found: dict[Value, list[int]] = {}
    for rank, value in values.items():
        found.setdefault(value, []).append(rank)
    return dict(sorted(found.items(), key=lambda one: (-len(one[1]), one[1])))


def _say_ranks(ranks: list[int] | tuple[int, ...]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {format_ranks(ranks)}"


def _were(ranks: tuple[int, ...]) -> str:
    return "was" if len(ranks) == 1 else "were"
