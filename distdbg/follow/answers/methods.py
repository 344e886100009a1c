"""The methods of the API that a dashboard asks: their arguments, their bounds, their answers."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from distdbg.errors import RecordError, UsageError
from distdbg.follow.answers.bars import MAX_BARS, read_places, tell_bars
from distdbg.follow.answers.clock import HostClock, read_clock
from distdbg.follow.answers.counts import count_ops, plain_counted
from distdbg.follow.answers.gpus import Gpus
from distdbg.follow.answers.kept_log import MAX_LINES, KeptLog
from distdbg.follow.answers.one_op import find_named, tell_op
from distdbg.follow.answers.one_rank import MAX_HISTORY, tell_history, tell_rank

if TYPE_CHECKING:
    from distdbg.follow.roster import Roster
    from distdbg.follow.tail import TailedRecord
    from distdbg.follow.watched_rank import WatchedRank

Plain = dict[str, Any]

_MAX_SEQ: Final = 2**63


class RecordHolder(Protocol):
    """What has the records: an agent, or what stands in for one."""

    @property
    def host(self) -> str: ...

    @property
    def folder(self) -> Path:
        """The folder of the run."""
        ...

    @property
    def roster(self) -> Roster:
        """The roster of the newest start of the ranks."""
        ...


class Board:
    """What a dashboard asks of one host's agent."""

    def __init__(self, agent: RecordHolder) -> None:
        self._agent = agent
        self._log: KeptLog | None = None
        self.gpus = Gpus()
        self.methods: dict[str, Callable[[Plain], Plain]] = {
            "counts": self._counts,
            "bars": self._bars,
            "op": self._op,
            "history": self._history,
            "rank": self._rank,
            "log": self._kept,
            "gpus": self._gpus,
        }

    def tick(self, now_ns: int) -> None:
        """Let go of what nobody asks for any more."""
        if self._log is not None:
            self._log.rest(now_ns)

    def begin_anew(self) -> None:
        """The ranks were started again."""
        self.close()

    def close(self) -> None:
        if self._log is not None:
            self._log.close()
            self._log = None

    def use_of(self, watched: WatchedRank) -> Plain:
        """What a row says beside its status: threads, and what it uses of GPUs where that is known."""
        more: Plain = {"threads": watched.stat.threads if watched.stat is not None else 0}
        use = self.gpus.use_of(watched.pid)
        if use is not None:
            more["gpu"], more["gpu_nbytes"] = use.share, use.nbytes
        return more

    # ------------------------------------------------------------------------------- methods

    def _counts(self, _: Plain) -> Plain:
        records = self._records()
        clock = read_clock(records)
        return {"clock": _plain_clock(clock), "counts": [*map(plain_counted, count_ops(records))]}

    def _bars(self, arguments: Plain) -> Plain:
        records = self._records()
        clock = read_clock(records)
        only = ranks_of(arguments)
        if only is not None:
            records = {rank: record for rank, record in records.items() if rank in only}
        most = number_of(arguments, "most", 200, 1, MAX_BARS)
        since_ns = number_of(arguments, "since_ns", 0, 0, _MAX_SEQ)
        places = read_places(arguments.get("since"))
        reported = tell_bars(records, clock, places, since_ns=since_ns, most=most)
        return {"clock": _plain_clock(clock), **reported}

    def _op(self, arguments: Plain) -> Plain:
        records = self._records()
        clock = read_clock(records)
        if "rank" not in arguments and "number" not in arguments:
            group = text_of(arguments, "group")
            reported = tell_op(
                records, clock, group, number_of(arguments, "seq", None, 1, _MAX_SEQ)
            )
            return {"clock": _plain_clock(clock), **reported}
        rank = number_of(arguments, "rank", None, 0, 2**31)
        number = number_of(arguments, "number", None, 1, _MAX_SEQ)
        op = find_named(records, rank, number)
        if op is None or op.group is None:
            raise UsageError(f"op: rank {rank} has no op of number {number} here any more")
        reported = tell_op(records, clock, op.group.name, op.seq, (rank, op))
        return {"clock": _plain_clock(clock), **reported}

    def _history(self, arguments: Plain) -> Plain:
        rank, watched = self._watched(arguments)
        most = number_of(arguments, "most", 50, 1, MAX_HISTORY)
        before = number_of(arguments, "before", _MAX_SEQ, 1, _MAX_SEQ)
        if watched.record is None:
            return {"clock": _plain_clock(HostClock()), "ops": []}
        clock = read_clock(self._records())
        ops = tell_history(watched.record, rank, clock, most=most, before=before)
        return {"clock": _plain_clock(clock), "ops": ops}

    def _rank(self, arguments: Plain) -> Plain:
        _, watched = self._watched(arguments)
        clock = read_clock(self._records())
        return {"clock": _plain_clock(clock), **tell_rank(watched, clock), **self.use_of(watched)}

    def _kept(self, arguments: Plain) -> Plain:
        roster = self._agent.roster
        if self._log is None:
            self._log = KeptLog(self._agent.folder, roster.attempt)
        reported = self._log.describe(
            roster.watched_ranks,
            now_ns=time.monotonic_ns(),
            wall_ns=time.time_ns(),
            after=number_of(arguments, "after", 0, 0, _MAX_SEQ),
            most=number_of(arguments, "most", 500, 1, MAX_LINES),
            only=ranks_of(arguments),
        )
        return {"clock": _plain_clock(read_clock(self._records())), **reported}

    def _gpus(self, _: Plain) -> Plain:
        uses = {
            str(rank): [use.share, use.nbytes]
            for rank, watched in sorted(self._agent.roster.watched_ranks.items())
            if (use := self.gpus.use_of(watched.pid)) is not None
        }
        return {"has_gpus": self.gpus.has_any, "ranks": uses}

    # ------------------------------------------------------------------------------- parts

    def _records(self) -> dict[int, TailedRecord]:
        """Those that can be read, by rank."""
        found = {}
        for rank, watched in sorted(self._agent.roster.watched_ranks.items()):
            if watched.record is None:
                continue
            try:
                watched.record.pulse()
            except RecordError:
                continue
            found[rank] = watched.record
        return found

    def _watched(self, arguments: Plain) -> tuple[int, WatchedRank]:
        rank = number_of(arguments, "rank", None, 0, 2**31)
        watched = self._agent.roster.watched_ranks.get(rank)
        if watched is None:
            raise UsageError(
                f"rank {rank} is not on host {self._agent.host}",
                hint="the agent of its own host knows it",
            )
        return rank, watched


def _plain_clock(clock: HostClock) -> Plain:
    """With what time it is now: whoever asks may have another clock."""
    return {**clock.plain(), "now_ns": time.monotonic_ns() + clock.base_ns if clock.base_ns else 0}


def number_of(arguments: Plain, name: str, otherwise: int | None, least: int, most: int) -> int:
    """A whole number within these; without `otherwise` it has to be there."""
    value = arguments.get(name, otherwise)
    if type(value) is not int or not least <= value <= most:
        upper = f" to {most}" if most < 2**31 else ""
        raise UsageError(f"{name!r} is a number from {least}{upper}")
    return value


def text_of(arguments: Plain, name: str, otherwise: str | None = None) -> str:
    """A text; without `otherwise` it has to be there."""
    text = arguments.get(name, otherwise)
    if not isinstance(text, str):
        raise UsageError(f"{name!r} is a text")
    return text


def ranks_of(arguments: Plain) -> set[int] | None:
    """The ranks that are meant; None: all."""
    ranks = arguments.get("ranks")
    if ranks is None:
        return None
    if not isinstance(ranks, list) or not all(type(rank) is int for rank in ranks):
        raise UsageError("'ranks' is a list of numbers")
    return set(ranks)
