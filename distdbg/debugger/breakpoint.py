"""dist.breakpoint: all ranks call it, some get a debugger, the others wait until those continue.

It uses the store of the default group only, so it works with every backend. Keys of the n-th breakpoint,
all below breakpoint/<n>/:

    who     the ranks that get a debugger, as the first rank passes them; the others must pass the same
    done    a counter: of those whose user continued them
    end     how it ended, for all; whoever is first to write it decides
    left    a counter: of the ranks that have read the end; the last of them removes all keys

The clock of the job is paused meanwhile, so waiting ranks use the wall clock; and they poll
instead of waiting in the store, whose waits are paused with the clock. A rank that dies or leaves ends it.
"""

from __future__ import annotations

import bdb
import json
import os
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from types import FrameType
from typing import Any, Final

from distdbg.debugger.frames import site_of, user_frame
from distdbg.debugger.outcome import LIMIT_S
from distdbg.debugger.session import StopOutcome, served
from distdbg.debugger.stopping import open_prompt
from distdbg.errors import (
    DebuggerQuit,
    DistError,
    DistNetworkError,
    DistStoreError,
    JobAborted,
    MismatchError,
    OpTimeout,
    PeerLost,
    RankLeft,
    UsageError,
    WrongTypeError,
    format_ranks,
)
from distdbg.log.logs import get_logger
from distdbg.record.durations import duration_text
from distdbg.record.format import Aside
from distdbg.runtime.groups.group import ProcessGroup
from distdbg.runtime.members.lost_members import find_gone
from distdbg.runtime.process.world import current, world_of
from distdbg.runtime.recorder.recorded_waits import aside

#: How often who waits looks: soon at first, then less and less often.
_FIRST_NAP_S: Final = 0.01
_NAP_S: Final = 0.1
#: A store that serves many ranks is asked less often by each.
_NAP_PER_RANK_S: Final = 0.0005
_LOOK_S: Final = 0.2
#: A process that is being ended closes its connections a moment before it counts as ended.
_ENDING_S: Final = 0.3
#: Those at a prompt say that their time is over before those who wait for them do.
_GRACE_S: Final = 2.0

_KIND: Final = Aside.BREAKPOINT.label

_log = get_logger("debugger")


def breakpoint(rank: int | Sequence[int] = 0, skip: int = 0, timeout_s: float = 3600) -> None:
    """Open a debugger on one rank, or on each of several, while the others wait.

    All ranks of the default group call it. `skip`: so many times this line does nothing. The clock of
    the job stands while somebody is at a prompt; `timeout_s` is by the clock on the wall. A rank
    with neither a terminal nor input, which `distdbg run` has not started, waits for `distdbg attach` where
    `timeout_s` is another than the default; else it says so and continues.

    Raises:
        DebuggerQuit: On all ranks, when somebody quits instead of continuing.
        OpTimeout: On all ranks, when it took longer than `timeout_s`.
    """
    frame = user_frame(sys._getframe(1))
    group = current().require_default()
    ranks = _checked(group, rank, skip, timeout_s)
    own = group.breakpoints
    if os.environ.get("PYTHONBREAKPOINT") == "0":
        if not own.has_said_off:
            own.has_said_off = True
            me = group.ranks[group.rank()]
            _log.warning("dist.breakpoint does not stop: PYTHONBREAKPOINT is 0", rank=me)
        return
    line = f"{frame.f_code.co_filename}:{frame.f_lineno}"
    own.passed[line] = own.passed.get(line, 0) + 1
    if own.passed[line] <= skip:
        return
    own.count += 1
    _Meeting(group, ranks, own.count, timeout_s, frame).come()


def open_here(frame: FrameType) -> None:
    """What Python's own `breakpoint()` does in a rank that has no terminal."""
    if open_prompt("breakpoint()", frame=frame, limit_s=None) is StopOutcome.QUIT:
        raise bdb.BdbQuit


def _checked(
    group: ProcessGroup, rank: int | Sequence[int], skip: int, timeout_s: float
) -> list[int]:
    ranks = list(rank) if isinstance(rank, Iterable) else [rank]
    for each in ranks:
        if not isinstance(each, int) or isinstance(each, bool):
            raise WrongTypeError(f"breakpoint: rank takes numbers, not {each!r}")
        if each not in group.group_ranks:
            raise UsageError(
                f"breakpoint: there is no rank {each}; the job has {format_ranks(group.ranks)}"
            )
    if not ranks:
        raise UsageError("breakpoint: no rank was chosen for the debugger")
    if not isinstance(skip, int):
        raise WrongTypeError(f"breakpoint: skip is a count, not {skip!r}")
    if skip < 0:
        raise UsageError(f"breakpoint: skip is a count, not {skip!r}")
    if not isinstance(timeout_s, (int, float)):
        raise WrongTypeError(f"breakpoint: timeout_s is more than 0, not {timeout_s!r}")
    if not timeout_s > 0:
        raise UsageError(f"breakpoint: timeout_s is more than 0, not {timeout_s!r}")
    return sorted(set(ranks))


class _Meeting:
    """One rank's way through one breakpoint."""

    def __init__(
        self,
        group: ProcessGroup,
        ranks: Sequence[int],
        seq: int,
        timeout_s: float,
        frame: FrameType,
    ) -> None:
        self._group = group
        self._store = group.get_group_store()
        self._clock = group.world.control
        self._rank = group.ranks[group.rank()]
        self._ranks = ranks
        self._seq = seq
        self._limit_s = float(timeout_s)
        self._frame = frame
        self._site = site_of(frame)
        self._started = time.monotonic()
        self._op = f"breakpoint #{seq} at {self._site}"

    def come(self) -> None:
        """Stop or wait, and raise what all ranks raise when it did not end well."""
        said = json.dumps(self._ranks)
        first = self._store.compare_set(self._key("who"), "", said).decode()
        differ = {"how": "differ", "ranks": sorted([json.loads(first), self._ranks])}
        if first != said:
            self._settle(differ)
        elif self._rank in self._ranks:
            self._stop()
        with aside(self._group, Aside.BREAKPOINT, self._seq, members=self._ranks):
            try:
                with served(world_of(self._group)):  # all of them sit at the breakpoint
                    end = self._await_end()
                self._leave()
            except (DistStoreError, DistNetworkError) as error:
                # The store may be gone because the rank that served it is.
                gone = find_gone(self._group, time.monotonic() + _ENDING_S)
                if gone is None:
                    raise
                raise self._gone(*gone) from error
            # The others may have gone on before this rank came.
            public = self._error(end if first == said or end["how"] != "continued" else differ)
            if public is not None:
                raise public

    def _stop(self) -> None:
        quit_ = {"how": "quit", "rank": self._rank, "site": self._site}
        try:
            outcome = open_prompt(
                _KIND,
                frame=self._frame,
                limit_s=None if self._limit_s == LIMIT_S else self._limit_s,
            )  # the op of the record is called as the function is
        except JobAborted:  # which the others see by themselves
            raise
        except DebuggerQuit:
            self._settle(quit_)
            raise
        except BaseException as error:  # Ctrl-C, a signal, sys.exit() at the prompt
            self._settle({**quit_, "raised": type(error).__name__})
            raise
        match outcome:
            case StopOutcome.QUIT:
                self._settle(quit_)
            case StopOutcome.EXPIRED:
                self._settle({"how": "expired", "ranks": [self._rank]})
            case _:
                if self._store.add(self._key("done"), 1) >= len(self._ranks):
                    self._settle({"how": "continued"})

    def _await_end(self) -> Mapping[str, Any]:
        deadline = self._started + self._limit_s + _GRACE_S
        longest_s = _NAP_S + _NAP_PER_RANK_S * self._group.size()
        nap_s = _FIRST_NAP_S
        look_at = 0.0
        while True:
            end = self._read()
            if end is not None:
                return end
            self._clock.check(kind=_KIND, seq=self._seq, group=self._group.label, op=self._op)
            now = time.monotonic()
            if now >= look_at:
                look_at = now + _LOOK_S
                gone = find_gone(self._group)
                if gone is not None:  # unless it left because all is over
                    return self._read() or self._settle({"how": "gone", "gone": gone})
            if now >= deadline:
                return self._settle({"how": "late", "ranks": self._ranks})
            time.sleep(self._clock.nap_s(nap_s, nap_s))
            nap_s = min(nap_s * 1.5, longest_s)

    def _read(self) -> Mapping[str, Any] | None:
        key = self._key("end")
        return _parse(self._store.get(key)) if self._store.check([key]) else None

    def _settle(self, end: Mapping[str, Any]) -> Mapping[str, Any]:
        """Make it the end for all, unless there is one."""
        return _parse(self._store.compare_set(self._key("end"), "", json.dumps(end)))

    def _leave(self) -> None:
        if self._store.add(self._key("left"), 1) == self._group.size():
            for name in ("who", "done", "end", "left"):
                self._store.delete_key(self._key(name))

    def _error(self, end: Mapping[str, Any]) -> DistError | None:
        """The same on every rank."""
        fields: dict[str, Any] = {"kind": _KIND, "seq": self._seq, "group": self._group.label}
        match end["how"]:
            case "continued":
                return None
            case "quit":
                raised = end.get("raised")
                how = "quit" if raised is None else f"was ended by {raised} in"
                return DebuggerQuit(
                    f"rank {end['rank']} {how} its debugger in breakpoint #{self._seq} at "
                    f"{end['site']}: no rank continues",
                    ranks=[end["rank"]],
                    site=end["site"],
                    hint="`continue` lets all ranks continue",
                    **fields,
                )
            case "differ":
                one, other = (f"rank={each}" for each in end["ranks"])
                return MismatchError(
                    f"ranks called breakpoint #{self._seq} with different ranks: {one} and {other}",
                    hint="all ranks must pass the same ranks",
                    **fields,
                )
            case "gone":
                return self._gone(*end["gone"])
        ranks = end["ranks"]
        who = f"rank{'' if len(ranks) == 1 else 's'} {format_ranks(ranks)}"
        waited_s = time.monotonic() - self._started
        what = "stayed in the debugger" if end["how"] == "expired" else "did not continue"
        return OpTimeout(
            f"{self._op}: {who} {what} for {duration_text(self._limit_s)}",
            missing=ranks,
            arrived=[rank for rank in self._group.ranks if rank not in set(ranks)],
            waited_s=waited_s,
            ranks=self._group.ranks,
            hint="timeout_s= sets how long a breakpoint may take",
            **fields,
        )

    def _gone(self, index: int, how: str) -> DistError:
        peer = self._group.ranks[index]
        fields: dict[str, Any] = {"kind": _KIND, "seq": self._seq, "group": self._group.label}
        if how.startswith("left"):
            return RankLeft(
                f"{self._op} cannot end: rank {peer} {how}",
                peer=peer,
                how=how,
                ranks=[peer],
                **fields,
            )
        text = f"rank {peer} {how}; this rank needed it in {self._op}"
        return PeerLost(text, peer=peer, how=how, **fields)

    def _key(self, name: str) -> str:
        return f"breakpoint/{self._seq}/{name}"


def _parse(text: bytes) -> Mapping[str, Any]:
    end: Mapping[str, Any] = json.loads(text)
    return end
