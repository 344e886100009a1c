"""The ops that a page shows: lanes, columns, and how many there are that it does not show. Pure.

Times are whole microseconds since `t0`, so that JavaScript holds them exactly; -1: not known, or not yet.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any, Final

from distdbg.diagnose.finding import Role, Verdict
from distdbg.diagnose.ops import IN_FLIGHT, NEVER, OpRef
from distdbg.diagnose.session import Session
from distdbg.record.format import Flag
from distdbg.render.aggregate import TimelineLane
from distdbg.render.story import status_text
from distdbg.render.verdict_json import state_of
from distdbg.render.words import iso_text, safe, site_text

MAX_OPS: Final = 20_000
_COLUMNS: Final = (
    "lane", "name", "group", "seq", "issued", "started", "ended", "status", "site", "peer", "tag",
    "bytes", "flags",
)  # fmt: skip


def page_data(
    session: Session, verdict: Verdict, lanes: Sequence[TimelineLane], most_ops: int = MAX_OPS
) -> dict[str, Any]:
    """What page.js draws; every lane is one rank."""
    t0 = min(
        (session.time_ns(lane.ranks[0], session.ranks[lane.ranks[0]].ops.issued_ns[at])
         for lane in lanes for at in _chosen(session, lane.ranks[0], lanes, most_ops)[:1]),
        default=max(session.now_ns, 0),
    )  # fmt: skip
    words: dict[str, _Words] = {name: _Words() for name in ("name", "group", "site", "status")}
    columns: dict[str, list[int]] = {name: [] for name in _COLUMNS}
    for number, lane in enumerate(lanes):
        rank = lane.ranks[0]
        ops = session.ranks[rank].ops
        for at in _chosen(session, rank, lanes, most_ops):
            op = OpRef(rank, at)
            form = session.forms[ops.form[at]]
            group = session.group_of(op)
            row = (
                number,
                words["name"].index(form.name or session.kind_of(op)),
                words["group"].index(group.label if group else ""),
                ops.seq[at],
                _microseconds(session, rank, ops.issued_ns[at], t0),
                _microseconds(session, rank, ops.started_ns[at], t0),
                _microseconds(session, rank, ops.ended_ns[at], t0),
                words["status"].index(status_text(ops.status[at])),
                words["site"].index(site_text(session.site_of(op))),
                ops.peer[at],
                ops.tag[at],
                form.nbytes,
                ops.flags[at] & (Flag.MESSAGE | Flag.ASYNC),
            )
            for name, value in zip(_COLUMNS, row, strict=True):
                columns[name].append(value)
    at_ns = verdict.root.at_ns if verdict.root is not None else None
    last = max([*columns["issued"], *columns["ended"], 0])
    now = last if session.now_ns == NEVER else max((session.now_ns - t0) // 1000, last)
    return {
        "t0": iso_text(t0),
        "now": now,
        "at": None if at_ns is None else max(0, (at_ns - t0) // 1000),
        "lanes": [_lane(session, verdict, lane) for lane in lanes],
        "words": {name: table.words for name, table in words.items()},
        "ops": columns,
        "total": sum(len(log.ops) for log in session.ranks.values()),
        "ranks": len(session.ranks),
    }


class _Words:
    """Each word once, by its index."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self._known: dict[str, int] = {}

    def index(self, word: str) -> int:
        if word not in self._known:
            self._known[word] = len(self.words)
            self.words.append(safe(word))
        return self._known[word]


def _chosen(
    session: Session, rank: int, lanes: Sequence[TimelineLane], most_ops: int
) -> array[int]:
    """The last ops of a rank, and those before them that have not ended."""
    ops = session.ranks[rank].ops
    most = max(8, most_ops // max(1, len(lanes)))
    first = max(0, len(ops) - most)
    before = ops.status[:first].tobytes()
    old = array("i")
    at = before.find(IN_FLIGHT)
    while at >= 0 and len(old) < most:
        old.append(at)
        at = before.find(IN_FLIGHT, at + 1)
    return old + array("i", range(first, len(ops)))


def _microseconds(session: Session, rank: int, own_ns: int, t0: int) -> int:
    return -1 if own_ns == NEVER else max(0, (session.time_ns(rank, own_ns) - t0) // 1000)


def _lane(session: Session, verdict: Verdict, lane: TimelineLane) -> dict[str, Any]:
    rank = lane.ranks[0]
    log = session.ranks[rank]
    return {
        "label": lane.label,
        "rank": rank,
        "host": safe(log.host),
        "role": str(verdict.roles.get(rank, Role.BYSTANDER)),
        "state": safe(state_of(session, log)),
    }
