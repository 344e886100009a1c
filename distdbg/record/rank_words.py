"""Where a rank is now, in words, from its record: for the messages of the ranks that wait for it.

A few reads, a millisecond; the rank is not asked and may be dead.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from distdbg.errors import RecordError
from distdbg.record.durations import duration_text
from distdbg.record.entries import OpEntry, RecordHeader, StateEntry, WorkWaitEntry
from distdbg.record.folders import record_name
from distdbg.record.format import Exit
from distdbg.record.rank_state import NO_OP_YET
from distdbg.record.reader import RecordFile
from distdbg.record.recorded_frame import RecordedFrame

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
#: How far back the last op is looked for; before it are marks, spans and findings only.
_MAX_NOTES = 256


def where_is(run_folder: Path | str, rank: int) -> str | None:
    """Return what the rank does now or did last; None when there is no record that says it.

    "in all_reduce #12 on group 'dp' for 3.1 s, train.py:80 (step)"
    "in all_reduce #12 on group 'dp' for 3.1 s, train.py:80 (step), waited for at train.py:84 (step)"
    "last op barrier #3 on group 'dp' ended 4.0 s ago, called at train.py:91 (main)"
    """
    try:
        with RecordFile(Path(run_folder) / record_name(rank), salvage=True) as record:
            clock = Clock(record.header, time.monotonic_ns(), read_boot_id())
            return describe(record, clock)
    except RecordError:
        return None


def issued_on(run_folder: Path | str, rank: int, group: str) -> int | None:
    """Return how many collectives the rank has issued on the newest group of this name; None: it has none."""
    try:
        with RecordFile(Path(run_folder) / record_name(rank), salvage=True) as record:
            found = [
                progress.issued_seq for each, progress in record.groups() if each.name == group
            ]
            return found[-1] if found else None
    except RecordError:
        return None


def waits_in(run_folder: Path | str, rank: int, group: str) -> int | None:
    """Return the number, in the group of this name, of the op that the rank waits in; None: in none."""
    try:
        with RecordFile(Path(run_folder) / record_name(rank), salvage=True) as record:
            _, unended = record.survey()
            waits = {wait.number for wait in record.state().work_waits}
            found = [
                op for op in (record.event(number) for number in unended) if isinstance(op, OpEntry)
            ]
            waiting = [op for op in found if not op.is_async or op.number in waits]
            last = waiting[-1] if waiting else None
            is_there = last is not None and last.group is not None and last.group.name == group
            return last.seq if last is not None and is_there else None
    except RecordError:
        return None


def last_end_of(run_folder: Path | str, rank: int) -> int:
    """When the last op of the rank ended, on its host's clock; 0 where none has or nothing is known."""
    try:
        with RecordFile(Path(run_folder) / record_name(rank), salvage=True) as record:
            last, _ = record.survey()
            op = _find_last_op(record, last)
            return (op.ended_ns or 0) if op is not None else 0
    except RecordError:
        return 0


@dataclass(frozen=True, slots=True)
class Clock:
    """Tells how long ago a time in a record was, where that can be known."""

    header: RecordHeader
    monotonic_ns: int
    boot_id: str

    def ago(self, then_ns: int) -> str:
        """'3.1 s ago', or the wall time of another host or another boot: 'at 12:01:05 UTC'."""
        age = self.age(then_ns)
        return self._at(then_ns) if age is None else f"{age} ago"

    def since(self, then_ns: int) -> str:
        """'for 3.1 s', or 'since 12:01:05 UTC'."""
        age = self.age(then_ns)
        return f"since {self._at(then_ns).removeprefix('at ')}" if age is None else f"for {age}"

    def age(self, then_ns: int) -> str | None:
        # Without a boot id two hosts cannot be distinguished.
        if not self.boot_id or self.boot_id != self.header.boot_id:
            return None
        return duration_text((self.monotonic_ns - then_ns) / 1e9)

    def _at(self, then_ns: int) -> str:
        try:
            moment = time.gmtime(self.header.to_wall_ns(then_ns) // 10**9)
        except (OSError, OverflowError, ValueError):
            return "at an unknown time"
        return time.strftime("at %H:%M:%S UTC", moment)


def read_boot_id() -> str:
    """What tells this start of this host from all others; empty where it is not known."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""


def describe(record: RecordFile, clock: Clock) -> str | None:
    """`where_is` for an open record."""
    last, unended = record.survey()
    in_flight = [
        op for op in (record.event(number) for number in unended) if isinstance(op, OpEntry)
    ]
    state = record.state()
    waits = {wait.number: wait for wait in state.work_waits}
    # What a thread waits for is where the rank is; ops that run beside the program come second.
    waiting = [op for op in in_flight if not op.is_async or op.number in waits]
    if state.exit is not None:
        return _describe_exit(state, state.exit, clock)
    if waiting:
        return _describe_in_flight(waiting[-1], clock, waits.get(waiting[-1].number))
    last_op = _find_last_op(record, last)
    if last_op is None or last_op.ended_ns is None:
        return _describe_in_flight(in_flight[-1], clock) if in_flight else NO_OP_YET
    how = "ended" if not last_op.status else f"failed ({last_op.status_label.replace('_', ' ')})"
    words = f"last op {_name(last_op)} {how} {clock.ago(last_op.ended_ns)}"
    if last_op.site:
        words += f", called at {_short(last_op.site)}"
    if in_flight:
        words += f"; still in flight: {_describe_in_flight(in_flight[0], clock)[3:]}"
    return words


def op_waited_in(record: RecordFile, failed_since_ns: int | None = None) -> OpEntry | None:
    """The op in which a thread of the rank waits now; None: it is in none.

    An op that has failed since then counts as well: Ctrl-C ends it before anybody can look.
    """
    waits = {wait.number for wait in record.state().work_waits}
    last, unended = record.survey()
    op = _find_last_op(record, last) if failed_since_ns is not None else None
    if op is not None and op.status and op.ended_ns and op.ended_ns >= (failed_since_ns or 0):
        return op
    if record.state().exit is not None:
        return None
    ops = [op for op in (record.event(number) for number in unended) if isinstance(op, OpEntry)]
    waiting = [op for op in ops if not op.is_async or op.number in waits]
    return waiting[-1] if waiting else None


def op_text(op: OpEntry) -> str:
    """'all_reduce #12 on group 'dp' (train.py:80)'."""
    site = "" if op.site is None else f" ({os.path.basename(op.site.file)}:{op.site.line})"
    return f"{_name(op)}{site}"


def _find_last_op(record: RecordFile, last: int) -> OpEntry | None:
    for number in range(last, max(0, last - _MAX_NOTES), -1):
        event = record.event(number)
        if isinstance(event, OpEntry):
            return event
    return None


def _describe_in_flight(op: OpEntry, clock: Clock, wait: WorkWaitEntry | None = None) -> str:
    site = f", {_short(op.site)}" if op.site else ""
    if op.is_prompt:
        return f"at the prompt of its {_name(op)} {clock.since(op.issued_ns)}{site}"
    waited = f", waited for at {_short(wait.site)}" if wait is not None and wait.site else ""
    return f"in {_name(op)} {clock.since(op.issued_ns)}{site}{waited}"


def _describe_exit(state: StateEntry, how: Exit, clock: Clock) -> str:
    when = clock.ago(state.exit_ns)
    if how is Exit.RETURNED:
        return f"its program returned {when}"
    if how is Exit.LEFT:
        return f"left its groups {when}"
    what, where, *_ = read_exit_text(state.exit_text or "")
    return f"raised {what or 'an exception'} {when}" + (f", {where}" if where else "")


class ExitText(NamedTuple):
    """What a rank raised and where, what its error advises, what it was handling then; '' where not known."""

    what: str
    where: str = ""
    hint: str = ""
    handled: str = ""


def read_exit_text(text: str) -> ExitText:
    """Read the words of its exit."""
    try:
        facts = json.loads(text)
    except (ValueError, RecursionError):
        return ExitText(text)
    if not isinstance(facts, dict):
        return ExitText(text)
    known = [facts.get(name) for name in ("what", "where", "hint", "handled")]
    what, where, hint, handled = (each if isinstance(each, str) else "" for each in known)
    return ExitText(what, os.path.basename(where), hint, handled)


def _name(op: OpEntry) -> str:
    if op.is_prompt:
        return "debugger" + (f" ({op.name})" if op.name != op.kind_label else "")
    peer = ""
    if op.is_message:
        whom = "any rank" if op.peer is None else f"group rank {op.peer}"
        peer = f" {'to' if op.kind_label == 'send' else 'from'} {whom} (tag {op.tag})"
    group = f" on group '{op.group.desc or op.group.name}'" if op.group else ""
    return f"{op.name} #{op.seq}{peer}{group}"


def _short(frame: RecordedFrame | None) -> str:
    if frame is None:
        return ""
    return str(frame._replace(file=os.path.basename(frame.file)))
