"""LiveFeed: the data of a dashboard for a running job, from its agents.

One thread asks, and makes one snapshot after the other; the app takes the newest. It asks for the ranks four
times a second, for what the view in sight needs twice a second, and for nothing else; where answers are
large it asks less often, so that reading them takes a small share of a core. What takes long (one op, stacks)
is asked for by the app in a thread of the app's, over a connection of its own.

    JOINING -> LIVE -> LOST -> LIVE          nobody answers; it tries again, less and less often
                  \\-> OVER                   the job has ended: the thread too; its folder can be replayed

Where the agent is gone and the job still runs, its records on this host are shown. No answer of an agent, or
lack of one, raises here.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeVar

from distdbg.client.feed.asking import JobPoller
from distdbg.client.feed.connections import JobRoute
from distdbg.client.feed.details import op_detail, rank_detail, stacks_of
from distdbg.client.feed.diagnosed import diagnosed
from distdbg.client.feed.final import final_rows, final_verdict
from distdbg.client.feed.first_frame import FirstFrame
from distdbg.client.feed.links import FeedConnections, opened
from distdbg.errors import DistError, DistNetworkError, UsageError
from distdbg.record.folders import user_folder
from distdbg.record.rank_list import read_ranks
from distdbg.record.rank_state import RankState
from distdbg.render.words import ranks_text
from distdbg.view.feed import Action, Topic
from distdbg.view.snapshot import (
    Bar,
    FeedLink,
    LogRow,
    OpDetail,
    OpKey,
    RankDetail,
    RankRow,
    Snapshot,
    Stacks,
)

#: What the thread waits for an answer, and whoever asks for what takes long.
_TIMEOUT_S: Final = 2.0
_LONG_S: Final = 10.0
#: How long it waits before it tries again.
_FIRST_PAUSE_S: Final = 0.25
_MOST_PAUSE_S: Final = 4.0
#: While records are shown in its place, the agent is looked for so often.
_BACK_S: Final = 1.0
_MOST_ASKED: Final = 64
_MOST_TOLD: Final = 3
_GARBAGE: Final = (ValueError, KeyError, TypeError, AttributeError, IndexError, OverflowError)

Answer = TypeVar("Answer")

_log = logging.getLogger("distdbg.agent")


class LiveFeed:
    """One job that lives; a `Feed`."""

    def __init__(
        self,
        door: JobRoute,
        *,
        clock: Callable[[], float] = time.time,
        timeout_s: float = _TIMEOUT_S,
    ) -> None:
        """Begin to ask; the first snapshot is empty."""
        self._door = door
        self._clock = clock
        self._links = FeedConnections(door, timeout_s)
        self._asking = JobPoller(self._links, clock)
        self._snapshot = Snapshot(at=clock(), run=door.title)
        self._topics: frozenset[Topic] = frozenset()
        self._pause_s = _FIRST_PAUSE_S
        self._first = FirstFrame()
        self._run = ""
        self._root_host = ""
        self._back_s = 0.0
        self._is_closing = False
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._go, name="distdbg-feed", daemon=True)
        self._thread.start()

    # ------------------------------------------------------------------------------- what a feed is

    @property
    def title(self) -> str:
        return self._door.title

    @property
    def can_change(self) -> bool:
        return True

    @property
    def address(self) -> str:
        return self._door.address

    @property
    def folder(self) -> Path | None:
        """Where the job can be replayed from, when it is over; None: not from here."""
        folder = self._door.folder
        return folder if folder is not None and folder.is_dir() else None

    def latest(self) -> Snapshot:
        return self._snapshot

    def want(self, topics: frozenset[Topic]) -> None:
        new = topics - self._topics
        self._topics = topics
        if new:
            self._asking.hurry(new)
            self._wake.set()

    def bars(self, ranks: Sequence[int], begin: float, end: float) -> Mapping[int, Sequence[Bar]]:
        found, is_new = self._asking.bars(ranks, begin, end)
        if is_new:
            self._asking.hurry({Topic.BARS})
            self._wake.set()
        return found

    def log(self) -> Sequence[LogRow]:
        return self._asking.log()

    def span(self) -> tuple[float, float] | None:
        return None

    def seek(self, at: float) -> None:
        """It lives: there is but now."""

    def close(self) -> None:
        self._is_closing = True
        self._wake.set()
        if self._thread is not threading.current_thread():
            self._thread.join(2 * _TIMEOUT_S)
        self._door.close()

    # ------------------------------------------------------------------------------- what takes long

    def op(self, key: OpKey) -> OpDetail | None:
        snapshot = self._snapshot
        told: list[tuple[Mapping[str, Any], int]] = []
        group, seq = key.group, key.seq
        hosts = self._hosts(snapshot)
        if key.number:
            row = snapshot.ranks.get(key.rank)
            host = row.host if row is not None else ""
            found = self._ask_hosts([host], "op", rank=key.rank, number=key.number)
            if not found:
                return None
            ((_, answer),) = found
            told.append((answer, self._asking.shift_of(host)))
            group, seq = str(answer["group"]), int(answer["seq"])
            mine = [one for one in answer["arrivals"] if one.get("rank") == key.rank]
            if mine and (mine[0].get("is_message") or mine[0].get("kind") in _ASIDES):
                hosts = []
            hosts = [one for one in hosts if one != host]
        found = self._ask_hosts(hosts, "op", group=group, seq=seq)
        told += [(answer, self._asking.shift_of(host)) for host, answer in found]
        return _read(lambda: op_detail(told))

    def rank(self, rank: int) -> RankDetail | None:
        row = self._snapshot.ranks.get(rank)
        if row is None:
            return None
        shift_ns = self._asking.shift_of(row.host)
        with opened(self._door, self._path_to(row.host), _LONG_S) as client:
            words = client.ask("rank", rank=rank)
            ops = client.ask("history", rank=rank, most=100)["ops"]
        return _read(lambda: rank_detail(row, words, ops, shift_ns))

    def stacks(self, ranks: Sequence[int] | None, native: bool) -> Stacks:
        snapshot = self._snapshot
        if ranks is None:
            hosts = self._hosts(snapshot)
        else:
            hosts = sorted({row.host for rank in ranks if (row := snapshot.ranks.get(rank))})
        words: dict[str, Any] = {"native": native, "limit_s": _LONG_S / 2}
        if ranks is not None:
            words["ranks"] = list(ranks)
        found = self._ask_hosts(hosts, "stacks", **words)
        return _read(lambda: stacks_of([answer for _, answer in found], self._clock()))

    def do(self, action: Action, **words: object) -> str:
        asked = {_ARGUMENTS.get(name, name): value for name, value in words.items()}
        if "ranks" in words:
            asked["ranks"] = _ranks_of(str(words["ranks"]))
        with opened(self._door, None, _LONG_S) as client:
            answer = client.ask(action.value, timeout_s=_LONG_S, **asked)
        self._asking.hurry_all()
        self._wake.set()
        return _read(lambda: _say_done(action, words, answer))

    def _ask_hosts(
        self, hosts: Sequence[str], do: str, **arguments: Any
    ) -> list[tuple[str, Mapping[str, Any]]]:
        """The answers of those that answer; the error of the first when none does."""
        found: list[tuple[str, Mapping[str, Any]]] = []
        errors: list[DistError] = []

        def ask(host: str) -> None:
            try:
                with opened(self._door, self._path_to(host), _LONG_S) as client:
                    found.append((host, client.ask(do, **arguments)))
            except DistError as error:
                errors.append(error)

        asked = list(hosts[:_MOST_ASKED])
        for begin in range(0, len(asked), 8):
            threads = [
                threading.Thread(target=ask, args=(host,), daemon=True)
                for host in asked[begin + 1 : begin + 8]
            ]
            for thread in threads:
                thread.start()
            ask(asked[begin])
            for thread in threads:
                thread.join(2 * _LONG_S)
        if errors and not found:
            raise errors[0]
        return sorted(found, key=lambda one: one[0])

    def _hosts(self, snapshot: Snapshot) -> list[str]:
        return [one.host for one in snapshot.hosts if not one.is_lost and not one.has_left]

    def _path_to(self, host: str) -> str | None:
        """None: the agent that knows the job is the one."""
        return None if host in ("", self._root_host) else host

    # ------------------------------------------------------------------------------- the thread

    def _go(self) -> None:
        try:
            while not self._is_closing and not self._snapshot.is_over:
                wait_s = self._step(time.monotonic())
                self._wake.wait(wait_s)
                self._wake.clear()
        except Exception:  # noqa: BLE001  # a dashboard that shows nothing new says so, and stays
            _log.exception("the feed has ended")
            self._change({"link": FeedLink.LOST, "link_why": "the feed has failed: see the log"})
        finally:
            self._links.close()

    def _step(self, now_s: float) -> float:
        """One round; how long to wait for the next."""
        try:
            if not self._links.is_open:
                self._begin()
            elif self._links.hello.get("distdbg") == "records" and now_s >= self._back_s:
                self._look_for_agent(now_s)
            changes = self._asking.round(self._snapshot, self._topics, now_s)
        except DistError as error:
            return self._lose(error.what, is_garbage=False)
        except OSError as error:
            return self._lose(str(error), is_garbage=False)
        except _GARBAGE as error:
            _log.debug("an invalid answer", exc_info=error)
            return self._lose(f"{type(error).__name__}: {error}", is_garbage=True)
        self._pause_s = _FIRST_PAUSE_S
        rows = changes.get("ranks", self._snapshot.ranks)
        world = self._asking.world
        if self._first.may_show(rows.values(), world, now_s):
            self._change({"link": FeedLink.LIVE, "link_why": self._asking.why, **changes})
        else:
            why = f"{len(rows)} of {world} ranks were read" if world else "no rank was read yet"
            self._change({"link_why": why, **changes})
        return self._asking.next_s(self._topics, time.monotonic())

    def _begin(self) -> None:
        """Connect; the run that answers must be the one that was shown."""
        hello = self._links.root().hello
        run = str(hello.get("run", ""))
        if self._run and run != self._run:
            self._links.close()
            self._end(f"run {self._run} has ended; {run} answers there now")
            raise UsageError(f"run {self._run} has ended")
        self._run = run
        self._root_host = str(hello.get("host", ""))
        self._asking.begin_anew()

    def _look_for_agent(self, now_s: float) -> None:
        """Records do not say that nobody writes them any more; nor that there is an agent again."""
        self._back_s = now_s + _BACK_S
        if self._door.is_over():
            raise DistNetworkError("its ranks are gone")
        if self._door.is_served():
            self._links.close()
            self._begin()

    def _lose(self, why: str, *, is_garbage: bool) -> float:
        self._links.close()
        if self._snapshot.is_over:
            return 0.0
        is_over = None if is_garbage else self._door.is_over()
        rows = self._snapshot.ranks.values()
        if is_over is None and not is_garbage:  # it cannot be seen from here
            is_over = bool(rows) and all(row.state.is_over for row in rows)
        if is_over:
            self._end("")
            return 0.0
        what = "the server is not an agent: " if is_garbage else "no agent answers: "
        if "agent" in why:  # it says so itself, or that one did answer
            what = ""
        link = FeedLink.LOST if self._run else FeedLink.JOINING
        self._change({"link": link, "link_why": f"{what}{why}"})
        pause_s = self._pause_s
        self._pause_s = min(2 * pause_s, _MOST_PAUSE_S)
        return pause_s

    def _end(self, why: str) -> None:
        """The job is over."""
        folder = self.folder
        changes: dict[str, Any] = {"ranks": final_rows(self._snapshot.ranks, folder, self._clock())}
        verdict = diagnosed(folder) or final_verdict(folder)
        if verdict is not None:
            changes["verdict"], root = verdict, verdict.root
            lines = (root.what, *filter(None, [root.advice])) if root is not None else ()
            if lines[:1] != self._snapshot.lines[:1]:
                changes["lines"] = lines  # else the agent has told more of the same
        elif folder is not None and all(map(_has_ended_well, changes["ranks"].values())):
            changes["verdict"], changes["lines"] = None, ()  # what was wrong has passed
        if not why and folder is not None:
            # Its name is enough where runs are looked for by their names.
            word = folder.name if folder.parent == user_folder() else folder
            why = f"`distdbg top {word}` replays it"
        elif not why and self._door.folder is not None:
            why = "its folder is gone"
        self._change(
            {"link": FeedLink.OVER, "link_why": why, "waits": (), "stopped": (), **changes}
        )

    def _change(self, changes: Mapping[str, Any]) -> None:
        """Another snapshot, where it says something else than the one before."""
        old = self._snapshot
        new = {name: value for name, value in changes.items() if getattr(old, name) != value}
        if new:
            self._snapshot = replace(old, at=self._clock(), **new)


def _has_ended_well(row: RankRow) -> bool:
    return row.state is RankState.ENDED


def _read(make: Callable[[], Answer]) -> Answer:
    """What an answer says. UsageError where that cannot be read."""
    try:
        return make()
    except _GARBAGE as error:
        raise UsageError(f"an agent's answer cannot be read: {error!r:.200}") from error


#: What a request calls them; its 'id' is its own number.
_ARGUMENTS: Final = {"id": "breakpoint"}


def _ranks_of(text: str) -> list[int] | None:
    """None: all. UsageError for what is no list of ranks."""
    try:
        return None if text == "all" else sorted(read_ranks(text))
    except ValueError:
        raise UsageError(f"{text!r} is no list of ranks: 0-2,7 or all") from None


_ASIDES: Final = frozenset(("new_group", "monitored_barrier", "breakpoint", "debugger"))


def _say_done(action: Action, words: Mapping[str, object], answer: Mapping[str, Any]) -> str:
    """What came of it."""
    on_all = ", on all hosts" if "ticket" in answer else ""
    was_so = answer.get("changed") is False
    match action:
        case Action.PAUSE:
            return "the clock was already held" if was_so else f"all deadlines are held{on_all}"
        case Action.RESUME:
            return "the clock was already running" if was_so else f"the deadlines run on{on_all}"
        case Action.ABORT:
            return (
                "the job was already aborted" if was_so else f"every rank raises JobAborted{on_all}"
            )
        case Action.STOP:
            return f"the job is being stopped{on_all}"
        case Action.BREAK:
            return f"breakpoint {answer.get('id', '')} is set: {words.get('rule', '')}"
        case Action.CLEAR:
            one = words.get("id")
            return "all breakpoints are cleared" if one is None else f"breakpoint {one} is cleared"
        case Action.CONTINUE:
            return _say_gone_on(answer)


def _say_gone_on(answer: Mapping[str, Any]) -> str:
    """'ranks 0-2 go on; rank 7 does not: there is no such rank here'."""
    ranks = [int(rank) for rank in answer.get("ranks", ())]
    said = [f"{ranks_text(ranks)} {'goes' if len(ranks) == 1 else 'go'} on"] if ranks else []
    failed = answer.get("failed", ())
    said += [f"rank {one['rank']} does not: {one['why']}" for one in failed[:_MOST_TOLD]]
    if len(failed) > _MOST_TOLD:
        said.append(f"{len(failed) - _MOST_TOLD} more do not")
    return "; ".join(said) or "no rank is in the debugger"
