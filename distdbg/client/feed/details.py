"""What a dashboard shows on request: one op, one rank, stacks; from the answers of the hosts. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from distdbg.view.differences import RankCall, say_differences, say_unseen
from distdbg.view.rank_facts import NO_RECORD, GroupFacts, RankFacts, fact_rows
from distdbg.view.short_words import call_name, frame_text, message_name, status_words
from distdbg.view.snapshot import (
    Arrival,
    Bar,
    OpDetail,
    RankDetail,
    RankRow,
    StackGroup,
    Stacks,
)

Plain = Mapping[str, Any]


def op_detail(answers: Sequence[tuple[Plain, int]]) -> OpDetail | None:
    """One op as the hosts tell it, each with what brings its times to the clock of the dashboard."""
    reported: dict[int, tuple[Plain, int]] = {}
    members: list[int] = []
    name = ""
    for answer, shift_ns in answers:
        name = name or str(answer["op"])
        members = members or [int(rank) for rank in answer["ranks"]]
        reported |= {int(one["rank"]): (one, shift_ns) for one in answer["arrivals"]}
    if not reported:
        return None
    arrivals = [_arrival(rank, *reported[rank]) for rank in sorted(reported)]
    absent = [arrival.rank for arrival in arrivals if not arrival.has_come]
    says = say_differences(_called({rank: words for rank, (words, _) in reported.items()}), absent)
    missing = sorted(set(members) - set(reported))
    if missing:
        says.append(say_unseen(missing))
    return OpDetail(name=name or "an op", arrivals=tuple(arrivals), says=tuple(says))


def _arrival(rank: int, words: Plain, shift_ns: int) -> Arrival:
    if "issued_ns" not in words:
        has_come = words["has_come"] is True
        status = "its record has no room for it any more" if has_come else ""
        return Arrival(rank=rank, has_come=has_come, status=status)
    return Arrival(
        rank=rank,
        has_come=True,
        issued=_moment(words["issued_ns"], shift_ns),
        started=_moment(words["started_ns"], shift_ns),
        ended=_moment(words["ended_ns"], shift_ns),
        status=status_words(words["status"]),
        form=str(words["form"]),
        site=str(words["site"]),
        stack=tuple(map(str, words["stack"])),
        error=str(words["error"] or ""),
    )


def _called(reported: Mapping[int, Plain]) -> dict[int, RankCall]:
    """What each rank called; the two sides of a message are two calls, and not compared."""
    return {
        rank: RankCall(
            op=str(words["op"] or ""), form=str(words["form"] or ""), comm=str(words["comm"] or "")
        )
        for rank, words in reported.items()
        if "issued_ns" in words and not words["is_message"]
    }


def _moment(nanoseconds: Any, shift_ns: int) -> float | None:
    return None if nanoseconds is None else (int(nanoseconds) + shift_ns) / 1e9


def bar_of(words: Plain, shift_ns: int) -> Bar:
    """An op of `history` or `rank`."""
    issued = _moment(words["issued_ns"], shift_ns)
    kind, seq, peer = str(words["kind"]), int(words["seq"]), words["peer"]
    if words["is_message"]:
        name = message_name(kind, peer)
    else:
        name = call_name(kind, seq, words["name"])
    return Bar(
        number=int(words["number"]),
        kind=kind,
        name=name,
        group=str(words["group"]),
        seq=seq,
        issued=issued or 0.0,
        started=_moment(words["started_ns"], shift_ns),
        ended=_moment(words["ended_ns"], shift_ns),
        has_failed=words["status"] not in ("ok", "in flight"),
    )


def rank_detail(row: RankRow, rank: Plain, ops: Sequence[Plain], shift_ns: int) -> RankDetail:
    """One rank: its row, what `rank` and `history` answer."""
    in_flight = rank.get("in_flight") or []
    stack: Sequence[Any] = in_flight[-1]["stack"] if in_flight else ()
    waits = rank.get("waits") or []
    if waits:
        stack = waits[-1]["stack"]
    return RankDetail(
        row=row,
        facts=facts_of(rank, ops),
        in_flight=tuple(bar_of(op, shift_ns) for op in in_flight),
        history=tuple(bar_of(op, shift_ns) for op in ops),
        stack=tuple(map(str, stack)),
    )


def facts_of(rank: Plain, ops: Sequence[Plain]) -> tuple[tuple[str, str], ...]:
    """What `rank` and `history` answer beside the row of a rank."""
    if not rank.get("has_record"):
        return NO_RECORD
    return fact_rows(
        RankFacts(
            argv=tuple(map(str, rank["argv"])),
            level=str(rank["level"]),
            version=str(rank["distdbg_version"]),
            python=str(rank["python_version"]),
            threads=rank.get("threads"),
            gpu_nbytes=rank.get("gpu_nbytes"),
            gpu=rank.get("gpu"),
            groups=[
                GroupFacts(
                    label=str(group["desc"] or group["name"]),
                    rank=group["rank"],
                    size=group["size"],
                    issued=group["issued_seq"],
                    ended=group["ended_seq"],
                    timeout_s=group["timeout_s"],
                    is_closed=group["is_closed"],
                    is_broken=group["broken"] is not None,
                )
                for group in rank["groups"]
            ],
            waits=[(wait["thread"], wait["site"], wait["number"]) for wait in rank["waits"]],
            failed=[
                (op["op"], status_words(op["status"]), op["error"])
                for op in ops
                if op["status"] not in ("ok", "in flight")
            ],
            lost=rank["lost"],
            record=str(rank["record"]),
        )
    )


def stacks_of(answers: Sequence[Plain], at: float) -> Stacks:
    """What the hosts found; equal stacks of several hosts are one."""
    groups: dict[tuple[Any, ...], set[int]] = {}
    failed: dict[int, str] = {}
    how: set[str] = set()
    for answer in answers:
        for stack in answer["stacks"]:
            frames = tuple(
                frame_text(frame["function"], frame["file"] or "", frame["line"])
                for frame in stack["frames"]
            )
            key = (
                frames,
                str(stack["thread"]),
                stack["holds_gil"] is True,
                stack["is_main"] is True,
            )
            groups.setdefault(key, set()).update(int(rank) for rank in stack["ranks"])
        failed |= {int(one["rank"]): str(one["why"]) for one in answer["failed"]}
        how |= set(answer["how"].values())
    found = [
        StackGroup(
            ranks=tuple(sorted(ranks)),
            thread=key[1],
            frames=key[0],
            holds_gil=key[2],
            is_main=key[3],
        )
        for key, ranks in groups.items()
    ]
    found.sort(key=lambda group: (not group.is_main, group.ranks))
    return Stacks(groups=tuple(found), failed=failed, how=", ".join(sorted(how)), at=at)
