"""LiveFeed: the data of a dashboard for a running job, from its agents.

One thread asks, and makes one snapshot after the other; the app takes the newest. It asks for the ranks four
times a second, for what the view in sight needs twice a second, and for nothing else; where answers are
large it asks less often, so that reading them takes a small share of a core. What is asked is decided in
`feed/asking`, and what is shown in `feed/feed_state`; both are pure. What takes long (one op, stacks)
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
from pathlib import Path
from typing import Any, Final, TypeVar

from distdbg.client.feed.asking import JobPoller
from distdbg.client.feed.connections import JobRoute
from distdbg.client.feed.details import op_detail, rank_detail, stacks_of
from distdbg.client.feed.feed_state import (
    FeedEvent,
    FeedFailed,
    FeedState,
    JobEnded,
    Joined,
    NobodyAnswered,
    RoundMade,
    step,
)
from distdbg.client.feed.final import diagnosed, final_rows, final_verdict
from distdbg.client.feed.links import FeedConnections, opened
from distdbg.errors import DistError, DistNetworkError, UsageError
from distdbg.record.folders import user_folder
from distdbg.record.rank_list import read_ranks
from distdbg.render.words import ranks_text
from distdbg.view.feed import Action, Topic
from distdbg.view.snapshot import (
    Bar,
    LogRow,
    OpDetail,
    OpKey,
    RankDetail,
    Snapshot,
    Stacks,
)

#: What the thread waits for an answer, and whoever asks for what takes long.
_TIMEOUT_S: Final = 2.0
_LONG_S: Final = 10.0
#: While records are shown in its place, the agent is looked for so often.
_BACK_S: Final = 1.0
_MAX_ASKED: Final = 64
_MAX_TOLD: Final = 3
_GARBAGE: Final = (ValueError, KeyError, TypeError, AttributeError, IndexError, OverflowError)

Answer = TypeVar("Answer")

_log = logging.getLogger("distdbg.agent")


class LiveFeed:
    """One job that lives; a `Feed`."""

    def __init__(
        self,
        route: JobRoute,
        *,
        clock: Callable[[], float] = time.time,
        timeout_s: float = _TIMEOUT_S,
    ) -> None:
        """Begin to ask; the first snapshot is empty."""
        self._route = route
        self._clock = clock
        self._links = FeedConnections(route, timeout_s)
        self._asking = JobPoller(clock)
        self._state = FeedState(snapshot=Snapshot(at=clock(), run=route.title))
        self._topics: frozenset[Topic] = frozenset()
        self._back_s = 0.0
        self._is_closing = False
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._go, name="distdbg-feed", daemon=True)
        self._thread.start()

    # ------------------------------------------------------------------------------- what a feed is

    @property
    def title(self) -> str:
        return self._route.title

    @property
    def can_change(self) -> bool:
        return True

    @property
    def address(self) -> str:
        return self._route.address

    @property
    def folder(self) -> Path | None:
        """Where the job can be replayed from, when it is over; None: not from here."""
        folder = self._route.folder
        return folder if folder is not None and folder.is_dir() else None

    def latest(self) -> Snapshot:
        return self._state.snapshot

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
        self._route.close()

    # ------------------------------------------------------------------------------- what takes long

    def op(self, key: OpKey) -> OpDetail | None:
        snapshot = self._state.snapshot
        reported: list[tuple[Mapping[str, Any], int]] = []
        group, seq = key.group, key.seq
        hosts = self._hosts(snapshot)
        if key.number:
            row = snapshot.ranks.get(key.rank)
            host = row.host if row is not None else ""
            found = self._ask_hosts([host], "op", rank=key.rank, number=key.number)
            if not found:
                return None
            ((_, answer),) = found
            reported.append((answer, self._asking.shift_of(host)))
            group, seq = str(answer["group"]), int(answer["seq"])
            mine = [one for one in answer["arrivals"] if one.get("rank") == key.rank]
            if mine and (mine[0].get("is_message") or mine[0].get("kind") in _ASIDES):
                hosts = []
            hosts = [one for one in hosts if one != host]
        found = self._ask_hosts(hosts, "op", group=group, seq=seq)
        reported += [(answer, self._asking.shift_of(host)) for host, answer in found]
        return _read(lambda: op_detail(reported))

    def rank(self, rank: int) -> RankDetail | None:
        row = self._state.snapshot.ranks.get(rank)
        if row is None:
            return None
        shift_ns = self._asking.shift_of(row.host)
        with opened(self._route, self._path_to(row.host), _LONG_S) as client:
            words = client.ask("rank", rank=rank)
            ops = client.ask("history", rank=rank, most=100)["ops"]
        return _read(lambda: rank_detail(row, words, ops, shift_ns))

    def stacks(self, ranks: Sequence[int] | None, native: bool) -> Stacks:
        snapshot = self._state.snapshot
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
        with opened(self._route, None, _LONG_S) as client:
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
                with opened(self._route, self._path_to(host), _LONG_S) as client:
                    found.append((host, client.ask(do, **arguments)))
            except DistError as error:
                errors.append(error)

        asked = list(hosts[:_MAX_ASKED])
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
        return None if host in ("", self._state.host) else host

    # ------------------------------------------------------------------------------- the thread

    def _go(self) -> None:
        try:
            while not self._is_closing and not self._state.snapshot.is_over:
                wait_s = self._ask(time.monotonic())
                self._wake.wait(wait_s)
                self._wake.clear()
        except Exception:  # noqa: BLE001  # a dashboard that shows nothing new says so, and stays
            _log.exception("the feed has ended")
            self._put(FeedFailed(self._clock()))
        finally:
            self._links.close()

    def _put(self, event: FeedEvent) -> None:
        self._state, wanted = step(self._state, event)
        if wanted is not None:
            self._put(self._read_end(wanted.why))

    def _ask(self, now_s: float) -> float:
        """One round; how long to wait for the next."""
        try:
            if not self._links.is_open:
                self._begin()
            elif self._links.hello.get("distdbg") == "records" and now_s >= self._back_s:
                self._look_for_agent(now_s)
            began = time.thread_time()
            asking = self._asking.round(self._state.snapshot, self._topics, now_s)
            changes = self._links.run(asking)
            self._asking.weigh(time.thread_time() - began)
        except DistError as error:
            return self._lose(error.what)
        except OSError as error:
            return self._lose(str(error))
        except _GARBAGE as error:
            _log.debug("an invalid answer", exc_info=error)
            return self._lose(f"{type(error).__name__}: {error}", is_garbage=True)
        world, why = self._asking.world, self._asking.why
        self._put(RoundMade(self._clock(), now_s, changes, world, why))
        return self._asking.next_s(self._topics, time.monotonic())

    def _begin(self) -> None:
        """Connect; the run that answers must be the one that was shown."""
        hello = self._links.root().hello
        self._put(Joined(str(hello.get("run", "")), str(hello.get("host", ""))))
        if self._state.snapshot.is_over:
            raise UsageError(f"run {self._state.run} has ended")
        self._asking.begin_anew(hello)

    def _look_for_agent(self, now_s: float) -> None:
        """Records do not say that nobody writes them any more; nor that there is an agent again."""
        self._back_s = now_s + _BACK_S
        if self._route.is_over():
            raise DistNetworkError("its ranks are gone")
        if self._route.is_served():
            self._links.close()
            self._begin()

    def _lose(self, why: str, *, is_garbage: bool = False) -> float:
        self._links.close()
        pause_s = self._state.pause_s
        if not self._state.snapshot.is_over:
            is_over = None if is_garbage else self._route.is_over()
            self._put(NobodyAnswered(self._clock(), why, is_garbage, is_over))
        return 0.0 if self._state.snapshot.is_over else pause_s

    def _read_end(self, why: str) -> JobEnded:
        self._links.close()
        folder, at = self.folder, self._clock()
        rows = final_rows(self._state.snapshot.ranks, folder, at)
        verdict = diagnosed(folder) or final_verdict(folder)
        if not why and folder is not None:
            # Its name is enough where runs are looked for by their names.
            word = folder.name if folder.parent == user_folder() else folder
            why = f"`distdbg top {word}` replays it"
        elif not why and self._route.folder is not None:
            why = "its folder is gone"
        return JobEnded(self._clock(), why, rows, verdict, folder is not None)


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
    said += [f"rank {one['rank']} does not: {one['why']}" for one in failed[:_MAX_TOLD]]
    if len(failed) > _MAX_TOLD:
        said.append(f"{len(failed) - _MAX_TOLD} more do not")
    return "; ".join(said) or "no rank is in the debugger"
