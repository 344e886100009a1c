"""Answers of agents as the rows of a dashboard. Pure: the time, and what was known, are arguments.

Ages become points of time by the clock of the dashboard; as an answer takes a moment, such a point would
tremble, and every row would be another one each time. So a point that moves by less than `_TREMBLE_S` stays
where it was, and a row that says the same stays the same object.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from distdbg.diagnose.counting import OpTally, add_up
from distdbg.diagnose.finding import Edge
from distdbg.errors import format_ranks
from distdbg.follow.answers.counts import read_counted
from distdbg.record.rank_list import read_ranks
from distdbg.record.rank_state import RankState
from distdbg.view.groups import GroupReport, host_rows
from distdbg.view.snapshot import (
    ArmedBreakpoint,
    HostRow,
    OpRow,
    RankRow,
    StoppedAtPrompt,
)

Plain = Mapping[str, Any]

_TREMBLE_S: Final = 0.3
#: CPU time is looked at every two seconds by the agent, so a share over less would jump.
_CPU_OVER_S: Final = 1.9


@dataclass(slots=True)
class _Used:
    """What a process had used, and when that was heard."""

    pid: int
    cpu_s: float
    at: float
    share: float | None = None


class Usage:
    """Shares of a core, from the CPU time that answers say."""

    def __init__(self) -> None:
        self._used: dict[int, _Used] = {}

    def share(self, rank: int, pid: int, cpu_s: float, now: float) -> float | None:
        """None until it is known."""
        known = self._used.get(rank)
        if known is None or known.pid != pid or cpu_s < known.cpu_s:
            self._used[rank] = _Used(pid, cpu_s, now)
            return None
        over_s = now - known.at
        if over_s >= _CPU_OVER_S:
            share = round((cpu_s - known.cpu_s) / over_s, 2)
            self._used[rank] = _Used(pid, cpu_s, now, share)
            return share
        return known.share


def rank_rows(
    rows: Sequence[Plain], old: Mapping[int, RankRow], usage: Usage, now: float
) -> Mapping[int, RankRow]:
    """By rank; `old` itself when nothing has changed. ValueError, KeyError, TypeError for garbage."""
    found = {}
    is_same = len(rows) == len(old)
    for words in rows:
        rank = int(words["rank"])
        known = old.get(rank)
        made = _rank_row(rank, words, known, usage, now)
        if known is not None and made == known:
            made = known
        else:
            is_same = False
        found[rank] = made
    return old if is_same else dict(sorted(found.items()))


def _rank_row(rank: int, words: Plain, known: RankRow | None, usage: Usage, now: float) -> RankRow:
    state_at = now - float(words["state_age_s"])
    moved_at = now - float(words["progress_age_s"])
    if known is not None:
        state_at = _steady(state_at, known.state_at)
        moved_at = _steady(moved_at, known.moved_at)
    try:
        state = RankState(words["state"])
        why = str(words["why"])
    except ValueError:  # of an agent that knows more states
        state, why = RankState.RUNNING, str(words["state"])
    pid, gpu_nbytes = int(words["pid"]), words.get("gpu_nbytes")
    is_over = state.is_over
    # A rank of another host keeps what its own agent said of GPUs: see `with_gpus`.
    gpu = words.get("gpu") if gpu_nbytes is not None or known is None else known.gpu
    if gpu_nbytes is None and known is not None:
        gpu_nbytes = known.gpu_nbytes
    return RankRow(
        rank=rank,
        host=str(words["host"]),
        pid=pid,
        state=state,
        state_at=state_at,
        moved_at=moved_at,
        op=str(words["op"]),
        site=str(words["site"]),
        why=why,
        seqs=tuple((str(name), int(seq)) for name, seq in words["seqs"]),
        attempt=int(words["attempt"]),
        cpu=None if is_over else usage.share(rank, pid, float(words["cpu_s"]), now),
        rss_nbytes=int(words["rss_nbytes"]) or None,
        gpu=None if is_over or gpu is None else float(gpu),
        gpu_nbytes=None if is_over or gpu_nbytes is None else int(gpu_nbytes),
    )


def _steady(moment: float, known: float) -> float:
    return known if abs(moment - known) < _TREMBLE_S else moment


def with_gpus(
    rows: Mapping[int, RankRow], uses: Mapping[str, Sequence[Any]]
) -> Mapping[int, RankRow]:
    """Merge in what the agent of another host says of its ranks."""
    changed = {}
    for rank_text, (share, nbytes) in uses.items():
        row = rows.get(int(rank_text))
        if row is not None and (row.gpu, row.gpu_nbytes) != (share, nbytes):
            changed[row.rank] = replace(row, gpu=share, gpu_nbytes=int(nbytes))
    return {**rows, **changed} if changed else rows


def job_hosts(tree: Plain | None, host: str) -> tuple[HostRow, ...]:
    hosts = (tree or {}).get("hosts") or [{"host": host}]
    return host_rows(
        [str(one["host"]) for one in hosts],
        lost={one["host"] for one in hosts if one.get("is_lost") is True},
        left={one["host"] for one in hosts if one.get("has_left") is True},
    )


def read_groups(groups: Iterable[Plain]) -> list[GroupReport]:
    """What one host says of groups."""
    return [
        GroupReport(
            name=str(group["name"]),
            label=str(group["desc"]),
            ranks=tuple(read_ranks(str(group["ranks"]))),
            backend=str(group["backend"]),
            timeout_s=float(group["timeout_s"]),
            issued={int(far["rank"]): int(far["issued_seq"]) for far in group["progress"]},
            ended={int(far["rank"]): int(far["ended_seq"]) for far in group["progress"]},
            closed=[int(far["rank"]) for far in group["progress"] if far["is_closed"]],
            broken={
                int(far["rank"]): str(far["broken"])
                for far in group["progress"]
                if far["broken"] is not None
            },
        )
        for group in groups
    ]


def op_rows(answers: Iterable[Sequence[Plain]], labels: Mapping[str, str]) -> tuple[OpRow, ...]:
    """The counts of all hosts together; `labels`: what groups are called, by name."""
    counted = add_up(read_counted(row) for answer in answers for row in answer)
    return tuple(op_row(row, labels) for row in counted)


def op_row(row: OpTally, labels: Mapping[str, str]) -> OpRow:
    """One row of the table of ops."""
    return OpRow(
        group=labels.get(row.group, row.group),
        kind=row.kind,
        count=row.count,
        failed=row.failed,
        nbytes=row.nbytes,
        p50_s=_seconds(row.duration(0.5)),
        p99_s=_seconds(row.duration(0.99)),
        wait_p50_s=_seconds(row.wait(0.5)),
        wait_p99_s=_seconds(row.wait(0.99)),
        bus_nbytes_per_s=row.bus_nbytes_per_s,
        late=row.late,
    )


def _seconds(nanoseconds: float | None) -> float | None:
    return None if nanoseconds is None else nanoseconds / 1e9


def read_waits(waits: Sequence[Plain]) -> tuple[list[Edge], frozenset[int]]:
    """The waits between ranks, and the ranks that can never go on."""
    edges = [
        Edge(
            rank=int(one["rank"]),
            on=tuple(int(rank) for rank in one["on"]),
            is_any=one["is_any"] is True,
            text=str(one["op"]),
            site=str(one["site"]),
        )
        for one in waits
    ]
    return edges, frozenset(int(one["rank"]) for one in waits if one["can_go_on"] is not True)


def held_by(control: Plain | None) -> tuple[str, ...]:
    if not control:
        return ()
    holds = control.get("holds")
    if not isinstance(holds, list):
        return ("the user",) if control.get("is_paused") else ()
    kinds = {"user": "the user", "another host": "another host"}
    found = [kinds[one["kind"]] for one in holds if one.get("kind") in kinds]
    ranks = sorted(one["rank"] for one in holds if one.get("rank") is not None)
    if ranks:
        found.append(f"{'rank' if len(ranks) == 1 else 'ranks'} {format_ranks(ranks)}")
    return tuple(found)


def abort_text(control: Plain | None) -> str:
    """Why the job was ended; '' where nobody has."""
    words = (control or {}).get("abort") or {}
    return str(words.get("what", "")) if isinstance(words, dict) else ""


def breakpoint_rows(
    answer: Plain, known: Sequence[StoppedAtPrompt], now: float
) -> tuple[tuple[ArmedBreakpoint, ...], tuple[StoppedAtPrompt, ...]]:
    """The rules that are armed, and the ranks that sit at a prompt."""
    armed = tuple(
        ArmedBreakpoint(id=int(one["id"]), rule=str(one["rule"])) for one in answer["rules"]
    )
    before = {one.rank: one for one in known}
    stopped = []
    for one in answer["stopped"]:
        rank, at = int(one["rank"]), now - float(one["since_s"])
        was = before.get(rank)
        stopped.append(
            StoppedAtPrompt(
                rank=rank,
                host=str(one["host"]),
                why=str(one["why"]),
                site=str(one["site"]),
                at=at if was is None else _steady(at, was.at),
            )
        )
    return armed, tuple(sorted(stopped, key=lambda one: one.rank))
