"""A dashboard's feed on ranks that run, and die, and on agents that do."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from distdbg.client import protocol
from distdbg.client.feed.connections import RunRoute, newest_run
from distdbg.client.live_feed import LiveFeed
from distdbg.client.live_runs import LiveRun, agents_of, find_live_runs
from distdbg.errors import DistError
from distdbg.record.host import host_name
from distdbg.record.rank_state import RankState
from distdbg.view.feed import Action, Topic
from distdbg.view.snapshot import FeedLink, OpKey, Snapshot

WAITS = """
for _ in range(20):
    dist.all_reduce(x, op=dist.ReduceOp.MAX)
go = os.environ['TMPDIR'] + '/go'
if rank == 1:
    while not os.path.exists(go):
        time.sleep(0.01)
dist.all_reduce(np.ones((3, 2), dtype=np.float32))
"""


def await_snapshot(
    feed: LiveFeed, is_it: Callable[[Snapshot], bool], timeout_s: float = 120.0
) -> Snapshot:
    deadline = time.monotonic() + timeout_s
    while True:
        snapshot = feed.latest()
        if is_it(snapshot):
            return snapshot
        assert time.monotonic() < deadline, snapshot
        time.sleep(0.02)  # a feed never calls back


def await_that(is_it: Callable[[], object], timeout_s: float = 120.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not is_it():
        assert time.monotonic() < deadline
        time.sleep(0.02)  # a feed never calls back


@pytest.fixture
def open_feed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., LiveFeed]]:
    feeds: list[LiveFeed] = []

    def open_one(job: Any, **more: Any) -> LiveFeed:
        monkeypatch.setattr(tempfile, "tempdir", str(job.folder))
        deadline = time.monotonic() + 120
        while (live := newest_run(find_live_runs(host_name()))) is None:
            assert time.monotonic() < deadline
            time.sleep(0.02)  # the ranks begin
        runs = find_live_runs(host_name())
        feeds.append(LiveFeed(RunRoute(agents_of(runs, live) or [live]), **more))
        return feeds[-1]

    yield open_one
    for feed in feeds:
        feed.close()


def is_waiting(snapshot: Snapshot) -> bool:
    row = snapshot.ranks.get(0)
    return row is not None and row.state is RankState.WAITING


@pytest.mark.slow
def test_a_living_job_is_shown_changed_and_followed_to_its_end(
    start_job: Callable[..., Any], open_feed: Callable[..., LiveFeed]
) -> None:
    job = start_job(WAITS)
    job.connect().close()
    feed = open_feed(job)
    assert feed.latest().link in (FeedLink.JOINING, FeedLink.LIVE)
    feed.want(frozenset(Topic))
    snapshot = await_snapshot(
        feed,
        lambda s: (
            is_waiting(s)
            and bool(s.ops)
            and bool(s.waits)
            and [len(group.issued) for group in s.groups] == [2]
        ),
    )
    assert snapshot.link is FeedLink.LIVE
    assert (snapshot.run, snapshot.world_size) == (job.run_folder.name, 2)
    assert snapshot.ranks[0].op == "all_reduce #41 on group 'world'"
    assert abs(snapshot.ranks[0].moved_at - time.time()) < 60
    (group,) = snapshot.groups
    assert (group.label, group.ranks, group.issued, group.in_flight) == (
        "world",
        (0, 1),
        {0: 41, 1: 40},
        1,
    )
    assert [(row.group, row.kind, row.count) for row in snapshot.ops] == [
        ("world", "all_reduce", 40)
    ]
    assert [(row.rank, row.on) for row in snapshot.waits] == [(0, (1,))]
    assert not feed.latest().is_paused
    # What does not change is the same object.
    assert feed.latest().groups is snapshot.groups

    now = time.time()
    await_that(lambda: feed.bars([0, 1], now - 60, now)[1])
    bars = feed.bars([0, 1], now - 60, now)
    assert [bar.seq for bar in bars[0]] == list(range(1, 42))
    assert [bar.seq for bar in bars[1]] == list(range(1, 41))
    assert (bars[0][-1].name, bars[0][-1].ended) == ("all_reduce #41", None)
    await_that(feed.log)
    assert "no output is kept" in feed.log()[0].text

    detail = feed.op(OpKey(group=group.name, seq=41))
    assert detail is not None
    assert detail.says == ("rank 1 has not called it",)
    assert [one.has_come for one in detail.arrivals] == [True, False]
    assert detail.arrivals[0].form == "float32[3,2], sum"
    by_number = feed.op(OpKey(rank=0, number=bars[0][-1].number))
    assert by_number == detail
    rank = feed.rank(1)
    assert rank is not None
    assert rank.history[0].name == "all_reduce #40"
    assert dict(rank.facts)["level"] == "detail"
    assert feed.rank(7) is None
    stacks = feed.stacks([1], False)
    assert any("job.py" in frame for frame in stacks.groups[0].frames)

    assert feed.do(Action.PAUSE) == "all deadlines are held"
    await_snapshot(feed, lambda s: s.is_paused and s.held_by == ("the user",))
    assert feed.do(Action.RESUME) == "the deadlines run on"
    await_snapshot(feed, lambda s: not s.is_paused)
    (job.folder / "go").touch()
    over = await_snapshot(feed, lambda s: s.is_over)
    assert {row.state for row in over.ranks.values()} == {RankState.ENDED}
    assert feed.folder == job.run_folder
    assert over.link_why == f"`distdbg top {job.run_folder.name}` replays it"
    with pytest.raises(DistError):
        feed.do(Action.PAUSE)


@pytest.mark.slow
def test_ranks_that_die_and_their_verdict_are_shown_also_when_it_is_over(
    start_job: Callable[..., Any], open_feed: Callable[..., LiveFeed]
) -> None:
    job = start_job(
        "if rank == 1:\n    time.sleep(1)\n    os.kill(os.getpid(), 9)\ndist.barrier()\n"
    )
    job.connect().close()
    feed = open_feed(job)
    over = await_snapshot(feed, lambda s: s.is_over)
    assert over.ranks[1].state is RankState.DEAD
    assert over.ranks[1].why == "was killed by SIGKILL"
    assert over.ranks[0].state is RankState.FAILED
    assert "rank 1" in over.lines[0]


@pytest.mark.slow
def test_of_a_hung_job_that_is_stopped_the_last_words_are_those_of_analyze(
    start_job: Callable[..., Any], open_feed: Callable[..., LiveFeed]
) -> None:
    """The agent's own are of the moment before: "ranks wait", and no word of what ended them."""
    job = start_job(
        "signal.signal(signal.SIGTERM, signal.SIG_DFL)\n"
        "def load():\n    time.sleep(600)\nif rank == 1:\n    load()\ndist.barrier()\n"
    )
    with job.connect() as client:
        row = job.await_row(client, 1, lambda row: row["state"] == "asleep")
        assert "load" in row["site"]
        pids = [row["pid"] for row in client.ask("ranks")["ranks"]]
    job.await_sighting(1, RankState.ASLEEP)
    feed = open_feed(job)
    await_snapshot(feed, lambda s: bool(s.ranks))
    for pid in pids:
        os.kill(pid, signal.SIGTERM)
    over = await_snapshot(feed, lambda s: s.is_over)
    assert over.lines[0].startswith("the job was stopped by SIGTERM; rank 0 had waited ")
    assert " for rank 1, asleep in load() at job.py:" in over.lines[0]


@pytest.mark.slow
def test_where_the_agent_is_killed_the_records_are_shown(
    start_job: Callable[..., Any], open_feed: Callable[..., LiveFeed]
) -> None:
    job = start_job(WAITS)
    with job.connect() as client:
        agent = client.hello["pid"]
    feed = open_feed(job)
    await_snapshot(feed, is_waiting)
    os.kill(agent, signal.SIGKILL)
    feed.want(frozenset(Topic))
    snapshot = await_snapshot(feed, lambda s: "no agent answers" in s.link_why and bool(s.waits))
    assert snapshot.link is FeedLink.LIVE
    assert snapshot.ranks[0].state is RankState.WAITING
    assert snapshot.waits[0].on == (1,)
    detail = feed.op(OpKey(group=snapshot.groups[0].name, seq=41))
    assert detail is not None
    with pytest.raises(DistError, match="no agent answers"):
        feed.do(Action.PAUSE)
    (job.folder / "go").touch()
    await_snapshot(feed, lambda s: s.is_over)


@pytest.mark.slow
def test_an_agent_that_stops_and_goes_on_is_left_and_found_again(
    start_job: Callable[..., Any], open_feed: Callable[..., LiveFeed]
) -> None:
    job = start_job(WAITS)
    with job.connect() as client:
        agent = client.hello["pid"]
    feed = open_feed(job, timeout_s=0.3)
    await_snapshot(feed, is_waiting)
    os.kill(agent, signal.SIGSTOP)
    try:
        snapshot = await_snapshot(feed, lambda s: "no agent answers" in s.link_why)
        assert snapshot.ranks
    finally:
        os.kill(agent, signal.SIGCONT)
    await_snapshot(feed, lambda s: s.link is FeedLink.LIVE and not s.link_why)


def test_a_job_without_an_agent_is_shown_from_its_records(
    start_job: Callable[..., Any], open_feed: Callable[..., LiveFeed]
) -> None:
    job = start_job(WAITS, DISTDBG_AGENT="0")
    feed = open_feed(job)
    # One record may be there before the other: until both are, it says how many were read.
    await_snapshot(feed, lambda s: is_waiting(s) and "no agent answers" in s.link_why)
    for process in job.processes:
        os.killpg(process.pid, signal.SIGKILL)
    await_snapshot(feed, lambda s: s.is_over)


def test_a_folder_that_is_removed_is_a_job_that_has_ended(
    start_job: Callable[..., Any], open_feed: Callable[..., LiveFeed]
) -> None:
    job = start_job(WAITS, DISTDBG_AGENT="0")
    feed = open_feed(job)
    await_snapshot(feed, is_waiting)
    shutil.rmtree(job.run_folder)
    over = await_snapshot(feed, lambda s: s.is_over)
    assert "its folder is gone" in over.link_why
    assert feed.folder is None


# ---------------------------------------------------------------------------------------- scripted agents


class Scripted:
    """Answers as an agent until it is told to do something else."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.run = "made-up"
        self.answer: Callable[[dict[str, Any]], bytes | None] = self.usual
        self.asked: list[str] = []
        self.state = "running"
        self.began = time.monotonic()
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(path))
        self._listening.listen(8)
        self._sockets: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def usual(self, request: dict[str, Any]) -> bytes | None:
        answers: dict[str, Any] = {
            "about": {
                "run": self.run,
                "host": "n14",
                "attempt": 0,
                "tree": None,
                "control": None,
                "up_s": 5.0,
            },
            "ranks": {"ranks": [self.row(0), self.row(1)]},
            "verdict": {"lines": [], "verdict": None},
        }
        do = request["do"]
        if do not in answers:
            error = {"type": "UsageError", "what": f"there is no method {do!r}", "hint": None}
            return json.dumps({"id": request["id"], "error": error}).encode() + b"\n"
        return json.dumps({"id": request["id"], "ok": answers[do]}).encode() + b"\n"

    def row(self, rank: int) -> dict[str, Any]:
        return {
            "rank": rank,
            "host": "n14",
            "pid": 4711 + rank,
            "state": self.state,
            "attempt": 0,
            "state_age_s": time.monotonic() - self.began,
            "progress_age_s": time.monotonic() - self.began,
            "last_number": 3,
            "seqs": [["world", 3]],
            "op": "",
            "site": "",
            "why": "",
            "cpu_s": 1.0,
            "rss_nbytes": 1,
        }

    def close(self) -> None:
        if not self._thread.is_alive():
            return
        self.path.unlink(missing_ok=True)
        self._listening.shutdown(socket.SHUT_RDWR)
        self._thread.join(5)
        self._listening.close()

    def _accept(self) -> None:
        threads = []
        while True:
            try:
                sock, _ = self._listening.accept()
            except OSError:
                break
            self._sockets.append(sock)
            threads.append(threading.Thread(target=self._serve, args=(sock,), daemon=True))
            threads[-1].start()
        for sock in self._sockets:
            with suppress(OSError):  # gone already
                sock.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join(5)

    def _serve(self, sock: socket.socket) -> None:
        hello = {
            "distdbg": "agent",
            "protocol": protocol.PROTOCOL,
            "run": self.run,
            "host": "n14",
            "pid": 1,
        }
        try:
            sock.sendall(json.dumps(hello).encode() + b"\n")
            with sock.makefile("rb") as lines:
                for line in lines:
                    request = json.loads(line)
                    self.asked.append(request["do"])
                    said = self.answer(request)
                    if said is None:
                        sock.shutdown(socket.SHUT_RDWR)
                        return
                    sock.sendall(said)
        except (OSError, ValueError):
            return
        finally:
            sock.close()


@pytest.fixture
def scripted() -> Iterator[tuple[Scripted, LiveFeed]]:
    # Not in tmp_path: with a long name of the user it is too long for a socket.
    with tempfile.TemporaryDirectory(prefix="feed-") as folder:
        agent = Scripted(Path(folder) / "a.sock")
        run = LiveRun(run="made-up", host="n14", socket=agent.path)
        feed = LiveFeed(RunRoute([run]), timeout_s=0.5)
        yield agent, feed
        agent.close()
        feed.close()


def test_an_agent_of_an_earlier_version_is_asked_once_for_what_it_does_not_know(
    scripted: tuple[Scripted, LiveFeed],
) -> None:
    agent, feed = scripted
    feed.want(frozenset(Topic) - {Topic.WAITS})
    await_snapshot(feed, lambda s: len(s.ranks) == 2)
    await_that(lambda: agent.asked.count("ranks") >= 5)
    assert agent.asked.count("breakpoints") == 1
    assert agent.asked.count("counts") == 1
    assert feed.latest().link is FeedLink.LIVE


@pytest.mark.slow
@pytest.mark.parametrize(
    "garbage",
    [
        b"garbage\n",
        b"{}\n" * 3 + b"[1, 2]\n",
        b'{"id": 0, "ok": {}}\n\xff\xfe\n',
        b"x" * 100_000 + b"\n",
        b'{"id": %d, "ok": {"ranks": 3, "control": 3, "run": 3}}\n',
        b'{"id": %d, "ok": null}\n',
        b'{"id": %d, "ok": {"ranks": [{"rank": "one"}]}}\n',
        b'{"id": %d, "ok": {"ranks": [[]], "lines": 1, "verdict": 1, "attempt": [], "host": {}}}\n',
        None,
    ],
)
def test_garbage_and_silence_are_a_lost_agent_until_it_speaks_again(
    scripted: tuple[Scripted, LiveFeed], garbage: bytes | None
) -> None:
    agent, feed = scripted
    before = await_snapshot(feed, lambda s: len(s.ranks) == 2)

    def talk_garbage(request: dict[str, Any]) -> bytes | None:
        return garbage.replace(b"%d", b"%d" % request["id"]) if garbage is not None else None

    agent.answer = talk_garbage
    lost = await_snapshot(feed, lambda s: s.link is FeedLink.LOST)
    assert lost.link_why
    assert lost.ranks.keys() == before.ranks.keys()
    agent.answer = agent.usual
    await_snapshot(feed, lambda s: s.link is FeedLink.LIVE and not s.link_why)


def test_an_agent_that_says_nothing_is_lost_and_a_view_never_waits_for_it(
    scripted: tuple[Scripted, LiveFeed],
) -> None:
    agent, feed = scripted
    await_snapshot(feed, lambda s: len(s.ranks) == 2)
    agent.answer = lambda _: b""
    await_snapshot(feed, lambda s: s.link is FeedLink.LOST)
    began = time.monotonic()
    for _ in range(100):
        feed.latest()
        feed.bars([0], 0, 1)
        feed.log()
        feed.want(frozenset({Topic.BARS}))
    assert time.monotonic() - began < 25  # a wait in each round would make it 50


def test_another_run_at_the_same_place_is_not_taken_for_the_first(
    scripted: tuple[Scripted, LiveFeed],
) -> None:
    agent, feed = scripted
    await_snapshot(feed, lambda s: len(s.ranks) == 2)
    agent.run = "another"
    silences = [None]
    agent.answer = lambda request: silences.pop() if silences else agent.usual(request)
    over = await_snapshot(feed, lambda s: s.is_over)
    assert over.link_why == "run made-up has ended; another answers there now"


def test_an_agent_that_goes_when_all_ranks_are_over_has_ended_with_the_job(
    scripted: tuple[Scripted, LiveFeed],
) -> None:
    agent, feed = scripted
    agent.state = "ended"
    await_snapshot(feed, lambda s: bool(s.ranks) and s.ranks[0].state is RankState.ENDED)
    agent.close()
    over = await_snapshot(feed, lambda s: s.is_over)
    assert over.link_why == ""


@pytest.mark.slow
def test_a_new_process_of_a_rank_has_a_new_row_and_no_cpu_yet(
    scripted: tuple[Scripted, LiveFeed],
) -> None:
    _, feed = scripted
    snapshot = await_snapshot(feed, lambda s: len(s.ranks) == 2)
    assert snapshot.ranks[0].cpu is None
    first = snapshot.ranks[0]
    later = await_snapshot(feed, lambda s: bool(s.ranks) and s.ranks[0].cpu == 0.0)
    assert later.ranks[0].state_at == first.state_at
    assert later.ranks[1] is feed.latest().ranks[1]


def test_the_feed_imports_no_textual() -> None:
    words = (
        "import sys, distdbg.client.live_feed; print(*({'textual', 'numpy'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
