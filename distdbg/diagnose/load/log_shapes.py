"""The table of log messages with a meaning: each row a literal, a pattern, and the fact.

The literal is looked for first, which is quick; the pattern then begins at it, so no line is searched twice.
Patterns repeat single characters up to a bound and nothing inside of that: they are linear on any line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from distdbg.diagnose.load.log_facts import FactShape, LoggedFact
from distdbg.diagnose.load.log_lines import LoggedLine
from distdbg.diagnose.load.torch_names import kind_of
from distdbg.errors import format_ranks
from distdbg.record.durations import duration_text

_NUMBERS: Final = re.compile(r"\d{1,7}")
#: '[Rank 7]', '[PG ID 0 PG GUID 0(default_pg) Rank 1]'.
_SPEAKER: Final = re.compile(
    r"\[(?:PG (?:ID )?(?P<pg>\d{1,9}) (?:PG GUID (?P<guid>[\w.:-]{1,64})"
    r"(?:\((?P<group>[^()\]]{1,128})\))? )?)?Rank (?P<rank>\d{1,7})\]"
)
_MAX_RANKS: Final = 1 << 16

Make = Callable[[LoggedLine, "re.Match[str]"], LoggedFact | None]


class LoggedMessage(NamedTuple):
    """One message."""

    literal: str
    pattern: re.Pattern[str]
    make: Make


def facts_of(line: LoggedLine) -> Iterator[LoggedFact]:
    """All that a line states."""
    text = line.text
    for row in ROWS:
        at = text.find(row.literal)
        if at < 0:
            continue
        found = row.pattern.search(text, max(0, at - 200))
        fact = row.make(line, found) if found else None
        if fact is not None:
            yield fact


def _ranks(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in _NUMBERS.findall(text)[:_MAX_RANKS])


def _own(line: LoggedLine, found: re.Match[str]) -> int | None:
    """The rank that a message names itself, or its line."""
    named = found.groupdict().get("rank")
    if named:
        return int(named)
    speaker = _SPEAKER.search(line.text)
    return int(speaker["rank"]) if speaker else line.rank


def _group(line: LoggedLine) -> str:
    """The group that a message of NCCL's process groups is about, as torch's dumps name it."""
    speaker = _SPEAKER.search(line.text)
    return (speaker["group"] or speaker["guid"] or speaker["pg"] or "") if speaker else ""


def _int(found: re.Match[str], name: str) -> int:
    return int(found.groupdict().get(name) or 0)


def _plain(shape: FactShape, words: str) -> Make:
    """A message that needs no more than to be known; {name} is a group of the pattern."""

    def make(line: LoggedLine, found: re.Match[str]) -> LoggedFact:
        given = {name: value or "" for name, value in found.groupdict().items()}
        return LoggedFact(
            shape=shape,
            line=line,
            rank=_own(line, found),
            text=words.format(**given) if words else line.text.strip()[:300],
            words=given,
            pid=_int(found, "pid"),
        )

    return make


def _blames(shape: FactShape, words: str) -> Make:
    """As `_plain`; the group `ranks` are those to blame."""
    make = _plain(shape, words)

    def blame(line: LoggedLine, found: re.Match[str]) -> LoggedFact | None:
        fact = make(line, found)
        if fact is None:
            return None
        fact.ranks = _ranks(found["ranks"])
        fact.text = fact.text.replace("<ranks>", format_ranks(fact.ranks))
        return fact

    return blame


def _watchdog(line: LoggedLine, found: re.Match[str]) -> LoggedFact:
    kind, seq = kind_of(found["op"]), int(found["seq"])
    after = f" after {duration_text(int(found['ms']) / 1000)}" if found["ms"] else ""
    rank = _own(line, found)
    return LoggedFact(
        shape=FactShape.TIMEOUT,
        line=line,
        rank=rank,
        kind=kind,
        seq=seq,
        group=_group(line),
        text=f"{kind} #{seq} timed out{after}",
        numbers={"numel_in": _int(found, "numel"), "numel_out": _int(found, "numel_out")},
    )


def _progress(line: LoggedLine, found: re.Match[str]) -> LoggedFact:
    enqueued, completed = int(found["enqueued"]), int(found["completed"])
    return LoggedFact(
        shape=FactShape.PROGRESS,
        line=line,
        rank=_own(line, found),
        group=_group(line),
        seq=enqueued,
        text=f"its last op called is #{enqueued}, its last ended #{completed}",
        numbers={"enqueued": enqueued, "completed": completed},
    )


def _mismatch(line: LoggedLine, found: re.Match[str]) -> LoggedFact:
    return LoggedFact(
        shape=FactShape.MISMATCH, line=line, rank=line.rank, text=line.text[found.start() :]
    )


def _child(line: LoggedLine, found: re.Match[str]) -> LoggedFact:
    code = int(found["code"])
    return LoggedFact(
        shape=FactShape.CHILD,
        line=line,
        rank=None,
        text=f"local rank {found['local']} {exit_words(code)}",
        pid=int(found["pid"]),
        numbers={"exit_code": code, "local_rank": int(found["local"])},
    )


def exit_words(code: int) -> str:
    """'exited with code 1', 'was killed by signal 9'."""
    return f"was killed by signal {-code}" if code < 0 else f"exited with code {code}"


def _joined(line: LoggedLine, found: re.Match[str]) -> LoggedFact:
    joined, world = int(found["joined"]), int(found["world"])
    return LoggedFact(
        shape=FactShape.NOT_JOINED,
        line=line,
        rank=_own(line, found),
        text=f"{joined} of {world} ranks joined",
        numbers={"joined": joined, "world": world},
    )


def _row(literal: str, pattern: str, make: Make) -> LoggedMessage:
    return LoggedMessage(literal, re.compile(pattern), make)


ROWS: Final = (
    # ---------------------------------------------------------------- torch's own checks
    _row(
        "Detected mismatch between collectives", r"Detected mismatch between collectives", _mismatch
    ),
    _row(
        "failed to pass monitoredBarrier",
        r"Ranks? (?P<ranks>\d{1,7}(?:, ?\d{1,7}){0,999}) failed to pass monitoredBarrier"
        r"(?: in (?P<ms>\d{1,12}) ms)?",
        _blames(FactShape.MISSING, "ranks <ranks> did not reach the barrier in {ms} ms"),
    ),
    _row(
        "successfully reached monitoredBarrier",
        r"Rank (?P<rank>\d{1,7}) successfully reached monitoredBarrier",
        _plain(FactShape.REACHED, "rank {rank} reached the barrier and waited for rank 0"),
    ),
    _row(
        "Monitored Barrier encountered error",
        r"Monitored Barrier encountered error running collective: (?P<what>.{0,300})",
        _plain(FactShape.FOLLOWS, "the check before {what} failed"),
    ),
    # ---------------------------------------------------------------- gloo
    _row(
        "for recv operation to complete",
        r"Timed out waiting (?P<ms>\d{1,12})ms for (?P<way>recv) operation",
        _plain(FactShape.TIMEOUT, "an op timed out after {ms} ms in gloo: nothing came"),
    ),
    _row(
        "for send operation to complete",
        r"Timed out waiting (?P<ms>\d{1,12})ms for (?P<way>send) operation",
        _plain(FactShape.TIMEOUT, "an op timed out after {ms} ms in gloo: nobody received"),
    ),
    _row(
        "Connection closed by peer",
        r"Connection closed by peer(?: \[?(?P<peer>[\w.:]{1,64})\]?)?",
        _plain(FactShape.PEER_CLOSED, "a peer closed its connection"),
    ),
    _row(
        "Connection reset by peer",
        r"Connection reset by peer",
        _plain(FactShape.PEER_CLOSED, "a peer's connection was reset"),
    ),
    _row(
        "Application timeout caused pair closure",
        r"Application timeout caused pair closure",
        _plain(FactShape.FOLLOWS, "a connection was closed after a timeout"),
    ),
    _row(
        "op.preamble.length <= op.nbytes",
        r"op\.preamble\.length <= op\.nbytes\. (?P<sent>\d{1,18}) vs (?P<room>\d{1,18})",
        _plain(FactShape.SIZES, "it received {sent} bytes where it has room for {room}"),
    ),
    # ---------------------------------------------------------------- stores and rendezvous
    _row(
        "clients joined",
        r"(?P<joined>\d{1,7})/(?P<world>\d{1,7}) clients joined",
        _joined,
    ),
    _row(
        "num_workers_joined=",
        r"on rank:? (?P<rank>\d{1,7}).{0,300}?world_size=(?P<world>\d{1,7}), "
        r"num_workers_joined=(?P<joined>\d{1,7})",
        _joined,
    ),
    _row(
        "wait timeout after",
        r"[Ww]ait timeout after (?P<ms>\d{1,12})ms, keys: (?P<keys>.{0,200})",
        _plain(FactShape.STORE_TIMEOUT, "the store had no key {keys} after {ms} ms"),
    ),
    _row(
        "EADDRINUSE",
        r"port: (?P<port>\d{1,5}),.{0,100}EADDRINUSE",
        _plain(FactShape.PORT_TAKEN, "port {port} is taken by another process"),
    ),
    _row(
        "Address already in use",
        r"(?:failed to bind to \S{0,64}?:(?P<port>\d{1,5}) )?.{0,40}Address already in use",
        _plain(FactShape.PORT_TAKEN, "port {port} is taken by another process"),
    ),
    # ---------------------------------------------------------------- NCCL through torch
    _row(
        "Watchdog caught collective operation timeout",
        r"Watchdog caught collective operation timeout: WorkNCCL\("
        r"(?:SeqNum|OpId)=(?P<seq>\d{1,18}), OpType=(?P<op>\w{1,64})"
        r"(?:, NumelIn=(?P<numel>\d{1,18}))?(?:, NumelOut=(?P<numel_out>\d{1,18}))?"
        r".{0,120}?Timeout\(ms\)=\d{1,12}\)(?: ran for (?P<ms>\d{1,12}) milliseconds)?",
        _watchdog,
    ),
    _row(
        "last enqueued NCCL work",
        r"last enqueued NCCL work: (?P<enqueued>-?\d{1,18}), "
        r"last completed NCCL work: (?P<completed>-?\d{1,18})",
        _progress,
    ),
    _row(
        "last enqueued work:",
        r"last enqueued work: (?P<enqueued>-?\d{1,18}), "
        r"last completed work: (?P<completed>-?\d{1,18})",
        _progress,
    ),
    _row(
        "watchdog got stuck for",
        r"watchdog got stuck for (?P<s>\d{1,9}) seconds",
        _plain(FactShape.STUCK, "its watchdog thread made no progress for {s} s"),
    ),
    _row(
        "Heartbeat monitor timed out",
        r"Heartbeat monitor timed out",
        _plain(FactShape.STUCK, "its watchdog thread makes no progress"),
    ),
    _row(
        "Received a dump signal",
        r"Received a dump signal due to a collective timeout from"
        r"(?: this local rank| {0,2}rank (?P<from>\d{1,7}))?",
        _plain(FactShape.FOLLOWS, "it got a dump signal because of a timeout"),
    ),
    _row(
        "watchdog thread terminated with exception",
        r"watchdog thread terminated with exception",
        _plain(FactShape.FOLLOWS, "its watchdog terminated the process"),
    ),
    _row(
        "Some NCCL operations have failed or timed out",
        r"Some NCCL operations have failed or timed out",
        _plain(FactShape.FOLLOWS, "ops have failed or timed out"),
    ),
    _row(
        "taking the entire process down",
        r"taking the entire process down",
        _plain(FactShape.FOLLOWS, "its watchdog terminated the process"),
    ),
    _row(
        "NCCL WARN",
        r"NCCL WARN (?P<what>.{1,300})",
        _plain(FactShape.NCCL_WARN, "NCCL warns: {what}"),
    ),
    _row(
        "NVRM: Xid",
        r"NVRM: Xid (?P<what>.{1,300})",
        _plain(FactShape.GPU_ERROR, "the GPU's driver reports Xid {what}"),
    ),
    _row(
        "remote process exited or there was a network error",
        r"remote process exited or there was a network error",
        _plain(FactShape.FOLLOWS, "NCCL lost a remote process"),
    ),
    # ---------------------------------------------------------------- the desync report
    _row(
        "are the lagging ranks",
        r"ranks \[(?P<ranks>[\d, ]{1,2000})\] are the lagging ranks",
        _blames(FactShape.MISSING, "ranks <ranks> lag behind and never called the op"),
    ),
    _row(
        "joined but didn't finish collective",
        r"\[(?P<came>[\d, ]{1,2000})\] joined but didn't finish collective #(?P<seq>\d{1,18})",
        _plain(FactShape.NOT_FINISHED, "ranks {came} joined op #{seq} and have not finished it"),
    ),
    _row(
        "Timeout at collective:",
        r"\[(?P<rank>\d{1,7})\] Timeout at collective: (?P<op>\w{1,64}), #(?P<seq>\d{1,18})"
        r"(?P<ms>)",
        _watchdog,
    ),
    # ---------------------------------------------------------------- DDP
    _row(
        "Expected to have finished reduction in the prior iteration",
        r"Expected to have finished reduction in the prior iteration",
        _plain(FactShape.DDP_UNUSED, "some parameters of its model got no gradient"),
    ),
    _row(
        "did not receive grad for rank",
        r"Parameters which did not receive grad for rank (?P<rank>\d{1,7}): (?P<names>.{1,300})",
        _plain(FactShape.DDP_UNUSED, "its parameters {names} got no gradient"),
    ),
    _row(
        "appears not to match sizes of the same param",
        r"\[(?P<ranks>\d{1,7})\]: params\[(?P<index>\d{1,9})\] in this process with sizes "
        r"\[(?P<sizes>[\d, ]{0,200})\] appears not to match",
        _blames(
            FactShape.DDP_DIFFERS,
            "parameter {index} of its model has sizes [{sizes}], unlike rank 0's",
        ),
    ),
    _row(
        "DDP expects same model across all ranks",
        r"Rank (?P<one>\d{1,7}) has (?P<count>\d{1,9}) params, while rank (?P<ranks>\d{1,7}) has "
        r"inconsistent (?P<other>\d{1,9}) params",
        _blames(
            FactShape.DDP_DIFFERS, "its model has {other} parameters, that of rank {one} {count}"
        ),
    ),
    # ---------------------------------------------------------------- Horovod
    _row(
        "[missing ranks:",
        r"(?P<name>[\w./:-]{1,200}) \[missing ranks:(?P<ranks>[\d, ]{1,2000})\]",
        _blames(FactShape.MISSING, "ranks <ranks> have not called {name}"),
    ),
    _row(
        "[ready ranks:",
        r"(?P<name>[\w./:-]{1,200}) \[ready ranks:(?P<came>[\d, ]{1,2000})\]",
        _plain(FactShape.NOT_FINISHED, "only ranks {came} have called {name}"),
    ),
    # ---------------------------------------------------------------- launchers and kernel
    _row(
        "closing signal",
        r"Sending process (?P<pid>\d{1,9}) closing signal (?P<signal>\w{1,12})",
        _plain(FactShape.ENDED_BY_LAUNCHER, "the launcher sent process {pid} {signal}"),
    ),
    _row(
        "failed (exitcode:",
        r"failed \(exitcode: (?P<code>-?\d{1,6})\) local_rank: (?P<local>\d{1,6}) \(pid: (?P<pid>\d{1,9})\)",
        _child,
    ),
    _row(
        "Killed process",
        r"(?:Out of memory|[Mm]emory cgroup out of memory|oom-kill).{0,40}Killed process (?P<pid>\d{1,9})"
        r"(?: \((?P<name>[^)]{1,64})\))?",
        _plain(FactShape.OOM_KILL, "the kernel killed process {pid} ({name}) for memory"),
    ),
    _row(
        "oom-kill:",
        r"oom-kill:.{0,600}task=(?P<name>[^,]{1,64}),pid=(?P<pid>\d{1,9})",
        _plain(FactShape.OOM_KILL, "the kernel killed process {pid} ({name}) for memory"),
    ),
    _row(
        "oom_kill event",
        r"Detected (?P<count>\d{1,9}) oom[-_]kill event",
        _plain(FactShape.OOM_KILL, "the kernel killed {count} processes for memory"),
    ),
    _row(
        "error: ",
        r"srun: error: (?P<node>[\w.-]{1,64}): task (?P<rank>\d{1,7}): (?P<how>Killed|Exited with exit code "
        r"\d{1,4}|Segmentation fault|Out Of Memory|Aborted)",
        _plain(FactShape.KILLED, "srun reports on {node}: {how}"),
    ),
    _row(
        "CANCELLED AT",
        r"\*\*\* (?:STEP|JOB) (?P<job>[\w.]{1,32}) ON (?P<node>[\w.-]{1,64}) CANCELLED AT (?P<when>\S{1,32})"
        r"(?P<why> DUE TO [A-Z ]{1,32})?",
        _plain(FactShape.STOPPED, "SLURM ended the job at {when}{why}"),
    ),
    _row(
        "Fatal Python error:",
        r"Fatal Python error: (?P<what>.{1,200})",
        _plain(FactShape.KILLED, "Python ended: {what}"),
    ),
    _row(
        "terminate called after throwing",
        r"terminate called after throwing an instance of '(?P<what>[^']{1,200})'",
        _plain(FactShape.KILLED, "an exception of C++ ended it: {what}"),
    ),
)
