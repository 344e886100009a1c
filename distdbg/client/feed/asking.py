"""What a live feed asks, and when: a round is the questions that are due, and what they change. Pure.

A round is a generator: it yields a question and is sent the answer, or has the error of it thrown in. So it
knows no connection, and a list of answers makes the same changes again. It is no function of a state and an
event, because what is asked next follows from the answer to what was asked before.

    always        the ranks, four times a second; the verdict; the clock and the hosts; breakpoints
    when wanted   groups, ops, waits, bars, log: twice a second, of each host
    seldom        what other hosts say of GPUs

Reading answers costs time, which grows with the job: when it is more than `_SHARE` of a core, all of it is
asked less often. Of many hosts a few are asked each time, in turn.
"""

from __future__ import annotations

import re
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, TypeVar

from distdbg.client.feed.bars import BarStore
from distdbg.client.feed.dashboard_rows import (
    Usage,
    abort_text,
    breakpoint_rows,
    held_by,
    job_hosts,
    op_rows,
    rank_rows,
    read_groups,
    read_waits,
    with_gpus,
)
from distdbg.diagnose.verdict_document import read_verdict
from distdbg.errors import DistError, DistNetworkError
from distdbg.follow.answers.clock import HostClock
from distdbg.record.printable import printable
from distdbg.view.feed import Topic
from distdbg.view.groups import GroupReport, group_rows
from distdbg.view.snapshot import Bar, LogRow, Snapshot
from distdbg.view.waits import wait_rows

_SHARE: Final = 0.03
_MAX_SLOWER: Final = 16.0
_EVERY_S: Final = {
    "ranks": 0.25,
    "verdict": 0.5,
    "about": 1.0,
    "breakpoints": 0.5,
    "clock": 5.0,
    "gpus": 2.0,
    Topic.GROUPS: 0.5,
    Topic.OPS: 0.5,
    Topic.WAITS: 0.5,
    Topic.BARS: 0.5,
    Topic.LOG: 0.5,
}
#: How many hosts are asked in one round.
_HOSTS: Final = 8
#: How many ops of the timeline are taken in at a time, of all ranks together.
_BARS: Final = 2000
_MIN_BARS: Final = 16
_MAX_BARS: Final = 400
_LOG_LINES: Final = 5000
_ASKED_LINES: Final = 1000
#: Clocks that are so near are one clock.
_SAME_CLOCK_NS: Final = 50_000_000
_COLOURS: Final = re.compile(r"\x1b\[[0-9;:]*m")

Changes = dict[str, Any]
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class AgentQuestion:
    """What an agent is asked; its answer is None where that host cannot be asked now."""

    do: str
    arguments: Mapping[str, Any]
    host: str = ""
    """'': the agent that knows the job."""


Asking = Generator[AgentQuestion, Any, Result]


class JobPoller:
    """Asks one job. Used by one thread, but for `bars`, `log` and `shift_of`."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock`: the wall clock of the dashboard."""
        self._clock = clock
        self._hello: Mapping[str, Any] = {}
        self.why = ""
        """What is not as usual, though somebody answers."""
        self.world = 0
        """How many ranks the job has; 0: not known."""
        self._due: dict[str, float] = {}
        self._slower = 1.0
        self._unknown: set[str] = set()
        self._verdict = ""
        self._usage = Usage()
        self._turn = 0
        self._groups: dict[str, Sequence[GroupReport]] = {}
        self._counts: dict[str, Sequence[Mapping[str, Any]]] = {}
        self._without_gpus: set[str] = set()
        self._clocks: dict[str, HostClock] = {}
        self._skew_ns = 0
        self._lock = threading.Lock()
        self._bars = BarStore()
        self._bar_ranks: tuple[int, ...] = ()
        self._places: dict[str, list[int]] = {}
        self._lines: deque[LogRow] = deque(maxlen=_LOG_LINES)
        self._reported: Sequence[LogRow] | None = ()
        self._after: dict[str, int] = {}
        self._why_no_log = ""

    # ------------------------------------------------------------------------------- for the app's thread

    def bars(
        self, ranks: Sequence[int], begin: float, end: float
    ) -> tuple[dict[int, list[Bar]], bool]:
        """What is known of these ranks, and whether there are new ones; they are asked for from now on."""
        with self._lock:
            is_new = not set(ranks) <= set(self._bar_ranks)
            self._bar_ranks = tuple(ranks)
            return {rank: self._bars.get(rank, begin, end) for rank in ranks}, is_new

    def log(self) -> Sequence[LogRow]:
        """The newest lines."""
        with self._lock:
            if self._reported is None:
                self._reported = tuple(self._lines)
            reported = self._reported
        if not reported and self._why_no_log:
            return (LogRow(at=None, ranks=(), stream="err", text=self._why_no_log),)
        return reported

    def shift_of(self, host: str) -> int:
        """What brings the times of a host to the clock of the dashboard, in nanoseconds."""
        root = self._clocks.get("")
        clock = self._clocks.get(host, root)
        if root is None or clock is None:
            return self._skew_ns
        return clock.shift_to(root) + self._skew_ns

    # ------------------------------------------------------------------------------- rounds

    def next_s(self, topics: Iterable[Topic], now_s: float) -> float:
        """How long until something is due."""
        names = ["ranks", "verdict", "about", "breakpoints", *topics]
        return max(0.0, min(self._due.get(name, 0.0) for name in names) - now_s)

    def begin_anew(self, hello: Mapping[str, Any]) -> None:
        """It is another agent, or the same one again: what it knows may have changed."""
        self._hello = hello
        self._due.clear()
        self._unknown.clear()
        self._without_gpus.clear()
        self._places.clear()
        self._after.clear()
        self._verdict = ""

    def hurry(self, topics: Iterable[Topic]) -> None:
        """A view has come into sight: it wants what it shows at once."""
        for topic in topics:
            self._due.pop(topic, None)

    def hurry_all(self) -> None:
        """Something was changed: what came of it is asked at once."""
        for name in ("about", "breakpoints", "ranks"):
            self._due.pop(name, None)

    def round(self, snapshot: Snapshot, topics: frozenset[Topic], now_s: float) -> Asking[Changes]:
        """Ask what is due; what has changed. DistError: nobody answers; others: garbage."""
        changes: Changes = {}
        if self._is_due("about", now_s):
            self._take_about((yield AgentQuestion("about", {})), snapshot, changes)
        if self._is_due("ranks", now_s):
            answer = yield AgentQuestion("ranks", {})
            rows = rank_rows(answer["ranks"], snapshot.ranks, self._usage, self._clock())
            self._forget_replaced(snapshot, rows)
            changes["ranks"] = rows
        if self._is_due("verdict", now_s):
            answer = yield AgentQuestion("verdict", {"unless": self._verdict})
            if "lines" in answer:
                changes["lines"] = tuple(map(str, answer["lines"]))
                changes["verdict"] = read_verdict(answer["verdict"])
                self._verdict = str(answer.get("version", ""))
        if self._is_due("breakpoints", now_s):
            answer = yield from self._ask_if_known("breakpoints")
            if answer is not None:
                armed, stopped = breakpoint_rows(answer, snapshot.stopped, self._clock())
                changes["armed"], changes["stopped"] = armed, stopped
        yield from self._ask_wanted(snapshot, changes, topics, now_s)
        return {name: value for name, value in changes.items() if getattr(snapshot, name) != value}

    def _is_due(self, name: str, now_s: float) -> bool:
        if now_s < self._due.get(name, 0.0):
            return False
        self._due[name] = now_s + _EVERY_S[name] * self._slower
        return True

    def weigh(self, cost_s: float) -> None:
        """Ask less often, when a round of the usual questions costs more CPU time than its share."""
        wanted = min(max(1.0, cost_s / (_SHARE * _EVERY_S["ranks"])), _MAX_SLOWER)
        # A round in which little was due tells little.
        self._slower = wanted if wanted > self._slower else self._slower * 0.9 + wanted * 0.1

    def _ask_if_known(self, do: str, **arguments: Any) -> Asking[Any | None]:
        """None from an agent of an earlier version."""
        if do in self._unknown:
            return None
        try:
            return (yield AgentQuestion(do, arguments))
        except DistError as error:
            if not is_refusal(error):
                raise
            if is_unknown(error):
                self._unknown.add(do)
            return None

    def _take_about(self, about: Mapping[str, Any], snapshot: Snapshot, changes: Changes) -> None:
        control, tree = about["control"], about.get("tree")
        if about["attempt"] != snapshot.attempt:
            self._usage = Usage()
            with self._lock:
                self._bars = BarStore()
            self._places.clear()
            self._groups.clear()
            self._counts.clear()
        changes["run"] = str(about["run"])
        changes["attempt"] = int(about["attempt"])
        self.world = int(about.get("world", 0))
        changes["is_debuggable"] = about.get("is_debuggable")
        changes["hosts"] = job_hosts(tree, str(about["host"]))
        changes["is_paused"] = bool(control and control.get("is_paused"))
        changes["paused_s"] = float((control or {}).get("paused_s", 0.0))
        changes["held_by"] = held_by(control)
        changes["abort"] = abort_text(control)
        if snapshot.began is None and "up_s" in about:
            changes["began"] = self._clock() - float(about["up_s"])
        self.why = ""
        if tree and not tree.get("is_root", True):
            self.why = (
                "this is not the job's first host: of the others only those below it are shown"
            )
        if self._hello.get("distdbg") == "records":
            self.why = "no agent answers: shown from the records of this host"

    def _ask_wanted(
        self, snapshot: Snapshot, changes: Changes, topics: frozenset[Topic], now_s: float
    ) -> Asking[None]:
        known = changes.get("hosts", snapshot.hosts)
        hosts = [one.host for one in known if not one.is_lost and not one.has_left]
        few = self._some(hosts)
        wants_groups = topics & {Topic.GROUPS, Topic.WAITS, Topic.OPS}
        if wants_groups and self._is_due(Topic.GROUPS, now_s):
            for host in few:
                answer = yield from self._ask_host(host, "groups")
                if answer is not None:
                    self._groups[host] = read_groups(answer["groups"])
            reports = chain.from_iterable(self._groups.values())
            changes["groups"] = self._same(group_rows(reports), snapshot.groups)
            largest = max((len(group.ranks) for group in changes["groups"]), default=0)
            ranks = changes.get("ranks", snapshot.ranks)
            changes["world_size"] = max(largest, self.world, len(ranks))
        groups = changes.get("groups", snapshot.groups)
        if Topic.OPS in topics and self._is_due(Topic.OPS, now_s):
            for host in few:
                answer = yield from self._ask_host(host, "counts")
                if answer is not None:
                    self._counts[host] = answer["counts"]
            labels = {group.name: group.label for group in groups}
            changes["ops"] = op_rows(self._counts.values(), labels)
        if Topic.WAITS in topics and self._is_due(Topic.WAITS, now_s):
            answer = yield AgentQuestion("waits", {})
            edges, blocked = read_waits(answer["waits"])
            verdict = changes.get("verdict", snapshot.verdict)
            ranks = changes.get("ranks", snapshot.ranks)
            changes["waits"] = wait_rows(edges, verdict, ranks, blocked=blocked, groups=groups)
        if Topic.BARS in topics and self._is_due(Topic.BARS, now_s):
            yield from self._ask_bars(snapshot, now_s)
        if Topic.LOG in topics and self._is_due(Topic.LOG, now_s):
            yield from self._ask_log(few, now_s)
        if self._is_due("gpus", now_s):
            ranks = changes.get("ranks", snapshot.ranks)
            changes["ranks"] = yield from self._ask_gpus(few, ranks)
        size = max(self.world, len(changes.get("ranks", snapshot.ranks)))
        if size > snapshot.world_size:
            changes.setdefault("world_size", size)

    @staticmethod
    def _same(new: Any, old: Any) -> Any:
        return old if new == old else new

    def _some(self, hosts: Sequence[str]) -> list[str]:
        """All hosts, or the next few of many."""
        if len(hosts) <= _HOSTS:
            return list(hosts)
        begin = self._turn % len(hosts)
        self._turn = begin + _HOSTS
        return [*hosts, *hosts][begin : begin + _HOSTS]

    def _ask_host(self, host: str, do: str, **arguments: Any) -> Asking[Any | None]:
        """None when it does not answer, or does not know how."""
        root = self._hello.get("host", "")
        if host in ("", root):
            return (yield from self._ask_if_known(do, **arguments))
        return (yield AgentQuestion(do, arguments, host))

    # ------------------------------------------------------------------------------- bars, log, GPUs

    def _ask_bars(self, snapshot: Snapshot, now_s: float) -> Asking[None]:
        with self._lock:
            ranks = self._bar_ranks
        if not ranks or not (yield from self._ask_clock(now_s)):
            return
        by_host: dict[str, list[int]] = {}
        for rank in ranks:
            row = snapshot.ranks.get(rank)
            if row is not None:
                by_host.setdefault(row.host, []).append(rank)
        most = min(max(_MIN_BARS, _BARS // len(ranks)), _MAX_BARS)
        for host, here in by_host.items():
            since = {str(rank): place for rank in here if (place := self._places.get(str(rank)))}
            # The first look shows what was before it; later only what is new is taken in.
            count = most if since else max(most, min(_MAX_BARS, 4 * _BARS // len(ranks)))
            answer = yield from self._ask_host(host, "bars", ranks=here, most=count, since=since)
            if answer is None:
                continue
            self._heard_clock(host, answer["clock"])
            shift_ns = self.shift_of(host)
            with self._lock:
                for rank, columns in answer["bars"].items():
                    self._bars.add(int(rank), columns, shift_ns)
            self._places |= answer["next"]

    def _forget_replaced(self, snapshot: Snapshot, rows: Mapping[int, Any]) -> None:
        if rows is snapshot.ranks:
            return
        for rank, row in rows.items():
            known = snapshot.ranks.get(rank)
            if known is not None and known.pid != row.pid:
                self._places.pop(str(rank), None)
                with self._lock:
                    self._bars.forget(rank)

    def _ask_clock(self, now_s: float) -> Asking[bool]:
        """Ask for the clock of the job's first host, by which all others go; whether it is known."""
        if "" not in self._clocks or self._is_due("clock", now_s):
            answer = yield from self._ask_if_known("bars", ranks=[], most=1)
            if answer is not None:
                self._heard_clock("", answer["clock"])
        return "" in self._clocks

    def _heard_clock(self, host: str, words: Any) -> None:
        clock = HostClock.from_plain(words)
        if not clock.base_ns:
            return  # its agent has found no record yet
        self._clocks[host] = clock
        if host == "":
            skew_ns = int(self._clock() * 1e9) - int(words["now_ns"])
            if abs(skew_ns - self._skew_ns) > _SAME_CLOCK_NS:
                self._skew_ns = skew_ns if abs(skew_ns) > _SAME_CLOCK_NS else 0

    def _ask_log(self, hosts: Sequence[str], now_s: float) -> Asking[None]:
        if not (yield from self._ask_clock(now_s)):
            return
        new: list[LogRow] = []
        why, is_kept = "", False
        for host in hosts:
            after = self._after.get(host, 0)
            answer = yield from self._ask_host(host, "log", after=after, most=_ASKED_LINES)
            if answer is None:
                continue
            self._heard_clock(host, answer["clock"])
            shift_ns = self.shift_of(host)
            self._after[host] = int(answer["next"])
            is_kept |= bool(answer["is_kept"])
            why = why or str(answer["why"])
            new += [_log_row(line, shift_ns) for line in answer["lines"]]
        self._why_no_log = "" if is_kept else why
        if new:
            new.sort(key=lambda row: row.at or 0.0)
            with self._lock:
                self._lines.extend(new)
                self._reported = None

    def _ask_gpus(self, hosts: Sequence[str], rows: Mapping[int, Any]) -> Asking[Mapping[int, Any]]:
        """The first host's own are in its rows."""
        root = self._hello.get("host", "")
        for host in hosts:
            if host == root or host in self._without_gpus:
                continue
            answer = yield AgentQuestion("gpus", {}, host)
            if answer is None:
                continue
            if not answer["has_gpus"]:
                self._without_gpus.add(host)
            rows = with_gpus(rows, answer["ranks"])
        return rows


def _log_row(line: Mapping[str, Any], shift_ns: int) -> LogRow:
    at_ns = int(line["at_ns"])
    return LogRow(
        at=(at_ns + shift_ns) / 1e9 if at_ns else None,
        ranks=tuple(int(rank) for rank in line["ranks"]),
        stream=str(line["stream"]),
        text=shown(str(line["text"])),
    )


def shown(text: str) -> str:
    """A line of a program as a terminal may have it: colours are left out, nothing is obeyed."""
    return printable(_COLOURS.sub("", text).expandtabs(8))


def is_refusal(error: DistError) -> bool:
    """Whether somebody answered, and the connection is as good as before."""
    return not isinstance(error, DistNetworkError) or bool(getattr(error, "type", ""))


def is_unknown(error: DistError) -> bool:
    """Whether the agent does not know the method."""
    return "there is no method" in error.what
