"""What a dashboard shows on request: one op, one rank, stacks; from the answers of the hosts. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from distdbg.errors import format_ranks
from distdbg.record.text import error_words, format_nbytes
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

_COMPARED: Final = (("op", "call"), ("form", "are called with"), ("comm", "name it"))


def op_detail(answers: Sequence[tuple[Plain, int]]) -> OpDetail | None:
    """One op as the hosts tell it, each with what brings its times to the clock of the dashboard."""
    told: dict[int, tuple[Plain, int]] = {}
    members: list[int] = []
    name = ""
    for answer, shift_ns in answers:
        name = name or str(answer["op"])
        members = members or [int(rank) for rank in answer["ranks"]]
        told |= {int(one["rank"]): (one, shift_ns) for one in answer["arrivals"]}
    if not told:
        return None
    arrivals = [_arrival(rank, *told[rank]) for rank in sorted(told)]
    says = _differences({rank: words for rank, (words, _) in told.items()})
    missing = sorted(set(members) - set(told))
    if missing:
        says.append(f"of {_ranks(missing)} nothing is known here")
    absent = [arrival.rank for arrival in arrivals if not arrival.has_come]
    if absent:
        says.insert(0, f"{_ranks(absent)} {'has' if len(absent) == 1 else 'have'} not called it")
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
        status=str(words["status"]),
        form=str(words["form"]),
        site=str(words["site"]),
        stack=tuple(map(str, words["stack"])),
        error=str(words["error"] or ""),
    )


def _differences(told: Mapping[int, Plain]) -> list[str]:
    """What the ranks did not call alike. Of a message the two sides are two calls."""
    calls = {
        rank: words
        for rank, words in told.items()
        if "issued_ns" in words and not words["is_message"]
    }
    said = []
    for name, verb in _COMPARED:
        sides: dict[str, list[int]] = {}
        for rank, words in sorted(calls.items()):
            sides.setdefault(str(words[name] or "nothing"), []).append(rank)
        if len(sides) > 1:
            parts = sorted(sides.items(), key=lambda side: -len(side[1]))
            said.append(", ".join(f"{_ranks(ranks)} {verb} {text}" for text, ranks in parts[:8]))
    return said


def _ranks(ranks: Sequence[int]) -> str:
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {format_ranks(ranks)}"


def _moment(nanoseconds: Any, shift_ns: int) -> float | None:
    return None if nanoseconds is None else (int(nanoseconds) + shift_ns) / 1e9


def bar_of(words: Plain, shift_ns: int) -> Bar:
    """An op of `history` or `rank`."""
    issued = _moment(words["issued_ns"], shift_ns)
    kind, seq, peer = str(words["kind"]), int(words["seq"]), words["peer"]
    name = f"{words['name'] or kind} #{seq}"
    if words["is_message"]:
        whom = "any" if peer is None else peer
        name = f"{kind} {'from' if kind == 'recv' else 'to'} {whom}"
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
        facts=tuple(_facts(rank, ops)),
        in_flight=tuple(bar_of(op, shift_ns) for op in in_flight),
        history=tuple(bar_of(op, shift_ns) for op in ops),
        stack=tuple(map(str, stack)),
    )


def _facts(rank: Plain, ops: Sequence[Plain]) -> list[tuple[str, str]]:
    if not rank.get("has_record"):
        return [("record", "none: it has not called init_process_group of distdbg")]
    facts = [
        ("program", " ".join(map(str, rank["argv"]))),
        ("level", str(rank["level"])),
        ("distdbg", f"{rank['distdbg_version']}, Python {rank['python_version']}"),
    ]
    if rank.get("threads"):
        facts.append(("threads", str(rank["threads"])))
    if rank.get("gpu_nbytes") is not None:
        share = rank.get("gpu")
        busy = "" if share is None else f", {share:.0%} of the time"
        facts.append(("GPU", format_nbytes(rank["gpu_nbytes"]) + busy))
    for group in rank["groups"]:
        label = group["desc"] or group["name"]
        state = f"#{group['ended_seq']} of #{group['issued_seq']} ended, rank {group['rank']}"
        state += f" of {group['size']}, timeout {group['timeout_s']:g} s"
        state += ", closed" if group["is_closed"] else ""
        state += ", broken" if group["broken"] is not None else ""
        facts.append((f"group '{label}'", state))
    facts += [
        ("waits", f"thread {wait['thread']} in {wait['site']} for op {wait['number']}")
        for wait in rank["waits"]
    ]
    facts += [
        ("failed", f"{op['op']}: {error_words(op['error']) or op['status']}")
        for op in ops
        if op["status"] not in ("ok", "in flight")
    ][:5]
    lost = [f"{count} {name}" for name, count in rank["lost"].items() if count]
    if lost:
        facts.append(("no room for", ", ".join(lost)))
    facts.append(("record", str(rank["record"])))
    return facts


def stacks_of(answers: Sequence[Plain], at: float) -> Stacks:
    """What the hosts found; equal stacks of several hosts are one."""
    groups: dict[tuple[Any, ...], set[int]] = {}
    failed: dict[int, str] = {}
    how: set[str] = set()
    for answer in answers:
        for stack in answer["stacks"]:
            frames = tuple(_frame(frame) for frame in stack["frames"])
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


def _frame(frame: Plain) -> str:
    place = str(frame["file"] or "").rpartition("/")[2]
    line = f":{frame['line']}" if frame["line"] else ""
    return f"{frame['function']} ({place}{line})" if place else str(frame["function"])
