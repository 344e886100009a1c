"""Writes a session by hand, in few lines, as tests of the diagnosis need it.

    build = SessionBuilder(world_size=4)
    for rank in range(4):
        build.op(rank, "all_reduce", at_s=1.0, ended_s=1.1, site="train.py:80 (step)", inputs=[(4,)])
    build.op(0, "all_gather", at_s=2.0)             it has not ended
    session = build.session

Every rank is a member of 'world'. The seq of a collective counts by rank and group.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from distdbg.diagnose.ops import IN_FLIGHT, NEVER, NONE, OpRef
from distdbg.diagnose.session import (
    Activity,
    GroupInfo,
    GroupProgress,
    RankLog,
    RecordedProblem,
    Session,
    Stack,
    WorkWait,
)
from distdbg.record.ends import RankEnd
from distdbg.record.entries import KIND_LABELS, MarkEntry
from distdbg.record.format import Aside, Exit, Flag
from distdbg.record.forms import read_form, write_form
from distdbg.record.rank_state import RankState
from distdbg.record.recorded_frame import RecordedFrame

_SITE: Final = re.compile(r"(?P<file>.+):(?P<line>\d+) \((?P<function>.+)\)")
_SECOND: Final = 10**9


class SessionBuilder:
    """One session; times are seconds."""

    def __init__(self, world_size: int, *, now_s: float = 100.0, is_live: bool = False) -> None:
        self.session = Session(
            source="by hand",
            run="example",
            world_size=world_size,
            is_live=is_live,
            now_ns=int(now_s * _SECOND),
        )
        for rank in range(world_size):
            self.session.ranks[rank] = RankLog(
                rank=rank, host="n01", pid=1000 + rank, level=2, source=f"rank{rank:05}.ddr"
            )
        self._forms: dict[bytes, int] = {}
        self._stacks: dict[str, int] = {}
        self._marks = 0
        self.group("world", range(world_size))

    # --------------------------------------------------------------------------- what there is

    def group(self, label: str, ranks: Sequence[int]) -> int:
        """Add a group; returns its index."""
        session = self.session
        session.groups.append(GroupInfo(name=label, label=label, ranks=tuple(ranks), backend="cpu"))
        index = len(session.groups) - 1
        for rank in ranks:
            if rank in session.ranks:
                session.ranks[rank].progress[index] = GroupProgress(issued_seq=0, ended_seq=0)
        return index

    def lose(self, *ranks: int) -> None:
        """Nothing is known of these ranks."""
        for rank in ranks:
            del self.session.ranks[rank]

    # --------------------------------------------------------------------------- what ranks do

    def op(
        self,
        rank: int,
        kind: str,
        *,
        group: str = "world",
        at_s: float = 0.0,
        started_s: float | None = None,
        ended_s: float | None = None,
        status: int | None = None,
        seq: int | None = None,
        peer: int | None = None,
        source: int | None = None,
        tag: int = 0,
        is_async: bool = False,
        site: str = "",
        thread: int | None = None,
        fingerprint: int = 0,
        error: str = "",
        **form: Any,
    ) -> OpRef:
        """Add an op; without `ended_s` it is in flight. Further arguments are those of `write_form`."""
        log = self.session.ranks[rank]
        index = next(i for i, g in enumerate(self.session.groups) if g.name == group)
        is_message, is_aside = kind in ("send", "recv"), kind in {a.label for a in Aside}
        far = log.progress.get(index, GroupProgress(issued_seq=0, ended_seq=0))
        if is_message or is_aside:
            seq = seq or 1
        else:
            seq = seq or far.issued_seq + 1
            ended = seq if ended_s is not None else far.ended_seq
            log.progress[index] = GroupProgress(issued_seq=seq, ended_seq=ended)
        at = log.ops.append(
            number=len(log.ops) + 1,
            issued_ns=_ns(at_s),
            started_ns=_ns(ended_s if started_s is None else started_s),
            ended_ns=_ns(ended_s),
            seq=seq,
            group=index,
            kind=Aside[kind.upper()] if is_aside else KIND_LABELS.index(kind),
            flags=Flag.ASYNC * is_async | Flag.MESSAGE * is_message | Flag.ASIDE * is_aside,
            status=(IN_FLIGHT if ended_s is None else 0) if status is None else status,
            peer=NONE if peer is None else peer,
            source=NONE if source is None else source,
            tag=tag,
            form=self._form(write_form(name=form.pop("name", kind), kind=kind, **form)),
            stack=self.stack(site),
            thread=log.pid if thread is None else thread,
            fingerprint=fingerprint,
            error=error,
        )
        log.heartbeat_ns = max(log.heartbeat_ns, log.ops.issued_ns[at])
        return OpRef(rank, at)

    def wait(
        self,
        op: OpRef,
        *,
        since_s: float,
        thread: int | None = None,
        site: str = "",
        is_limited: bool = False,
    ) -> None:
        """A thread waits for an op that was begun earlier."""
        log = self.session.ranks[op.rank]
        wait = WorkWait(
            thread=log.pid if thread is None else thread,
            number=log.ops.number[op.at],
            since_ns=_ns(since_s),
            stack=self.stack(site),
            is_limited=is_limited,
        )
        log.work_waits = (*log.work_waits, wait)

    def mark(self, rank: int, name: str, value: float | None = None, *, at_s: float = 0.0) -> None:
        """The program named a moment."""
        self._marks += 1
        mark = MarkEntry(
            number=self._marks, issued_ns=_ns(at_s), thread=1, stack=(), name=name, value=value
        )
        self.session.ranks[rank].notes = (*self.session.ranks[rank].notes, mark)

    def found(self, rank: int, type: str, what: str, *, at_s: float = 0.0, **facts: Any) -> None:
        """The rank wrote an error or a finding into its record."""
        log = self.session.ranks[rank]
        log.found = (*log.found, RecordedProblem(type=type, what=what, at_ns=_ns(at_s), **facts))

    def exit(self, rank: int, how: Exit, *, at_s: float, what: str = "", where: str = "") -> None:
        """The rank says how far it came."""
        log = self.session.ranks[rank]
        log.exit, log.exit_ns, log.exit_what, log.exit_where = how, _ns(at_s), what, where

    def end(self, rank: int, *, at_s: float, **facts: Any) -> None:
        """The process of the rank ended: `cause="exited", exit_code=3` or `cause="signal", signal=9`."""
        log = self.session.ranks[rank]
        end = {"rank": rank, "pid": log.pid, "host": log.host, "wall_ns": _ns(at_s)}
        log.end = RankEnd(**{**end, "ended_ns": _ns(at_s), **facts})

    def seen(self, rank: int, state: RankState, *, since_s: float, **facts: Any) -> None:
        """What an agent saw of the rank."""
        activity = Activity(state=state, since_ns=_ns(since_s), **facts)
        self.session.ranks[rank].activity = activity

    # --------------------------------------------------------------------------- tables

    def stack(self, site: str) -> int:
        """The index of a stack: 'a.py:1 (f)', the callers behind ' < '."""
        if not site:
            return 0
        if site not in self._stacks:
            self.session.stacks.append(_read_stack(site))
            self._stacks[site] = len(self.session.stacks) - 1
        return self._stacks[site]

    def _form(self, text: bytes) -> int:
        if text not in self._forms:
            self.session.forms.append(read_form(text))
            self._forms[text] = len(self.session.forms) - 1
        return self._forms[text]


def _ns(seconds: float | None) -> int:
    return NEVER if seconds is None else round(seconds * _SECOND)


def _read_stack(text: str) -> Stack:
    frames = []
    for word in text.split(" < "):
        found = _SITE.fullmatch(word)
        assert found is not None, f"{word!r} is not 'file:line (function)'"
        frames.append(RecordedFrame(found["file"], int(found["line"]), found["function"]))
    return tuple(frames)
