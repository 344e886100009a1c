"""How a child process ended, from its wait status, and how that is reported for a rank. Pure."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import NamedTuple

from distdbg.record.ends import Cause, RankEnd


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedChild:
    """One child of the warden that is gone."""

    name: str
    pid: int
    status: int
    """As wait4 gives it."""
    user_s: float
    """CPU time of the process and of those children that it waited for itself; `system_s` likewise."""
    system_s: float
    max_rss_nbytes: int
    ended_ns: int
    """Monotonic: when the warden was told."""

    @property
    def signal(self) -> int | None:
        return os.WTERMSIG(self.status) if os.WIFSIGNALED(self.status) else None

    @property
    def exit_code(self) -> int | None:
        return os.WEXITSTATUS(self.status) if os.WIFEXITED(self.status) else None

    @property
    def core_dumped(self) -> bool:
        return os.WIFSIGNALED(self.status) and os.WCOREDUMP(self.status)


class AskedToEnd(NamedTuple):
    """A launcher has ended a rank."""

    at_ns: int
    by: int | None
    """The signal by which the launcher itself was told to; None: it had a reason of its own."""


def to_rank_end(
    ended: EndedChild,
    *,
    rank: int,
    host: str,
    wall_ns: int,
    was_oom: bool = False,
    asked: AskedToEnd | None = None,
) -> RankEnd:
    """The line for the run folder."""
    cause: Cause = "exited"
    if ended.signal is not None:
        cause = "oom" if was_oom else "signal"
    return RankEnd(
        rank=rank,
        pid=ended.pid,
        host=host,
        ended_ns=ended.ended_ns,
        wall_ns=wall_ns,
        cause=cause,
        exit_code=ended.exit_code,
        signal=ended.signal,
        core_dumped=ended.core_dumped,
        user_s=ended.user_s,
        system_s=ended.system_s,
        max_rss_nbytes=ended.max_rss_nbytes,
        by="launcher",
        was_asked=asked is not None,
        asked_ns=None if asked is None else asked.at_ns,
        asked_by=None if asked is None else asked.by,
    )
