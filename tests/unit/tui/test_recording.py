"""What a dashboard saw, written and read again."""

import gzip
import json
import stat
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from distdbg.diagnose.finding import (
    Edge,
    Evidence,
    Finding,
    FindingKind,
    Role,
    Severity,
    Verdict,
)
from distdbg.errors import RecordError, UsageError
from distdbg.record.rank_state import RankState
from distdbg.tui.cells import Tone
from distdbg.tui.head import headline
from distdbg.tui.rank_roles import NOBODY, parts_of
from distdbg.tui.recording.feed import RecordedFeed
from distdbg.tui.recording.reader import is_recording, read_recording
from distdbg.tui.recording.writer import RecordingFeed
from distdbg.tui.recording.written import apply, changes, whole
from distdbg.view.feed import Feed, Topic
from distdbg.view.snapshot import (
    ArmedBreakpoint,
    Bar,
    FeedLink,
    GroupRow,
    HostRow,
    LogRow,
    OpRow,
    Snapshot,
    StoppedAtPrompt,
    WaitRow,
)
from tests.tui.made_up import NOW, MadeUpFeed, job, row

ROOT = Finding(
    kind=FindingKind.STALL, severity=Severity.NOTE, what="x", ranks=(1,), at_ns=10**18 + 1000,
    evidence=(Evidence(text="it sleeps", rank=1, site="a.py:3 (f)"),),
    edges=(Edge(rank=0, on=(1,), text="barrier #3", since_ns=10**18),), numbers={"waited_s": 1.5},
)  # fmt: skip
RICH = replace(
    job(row(0), row(1, RankState.WAITING, seqs=(("world", 3), ("dp", 9)), gpu=0.5)),
    hosts=(HostRow(host="n14"),),
    groups=(GroupRow(name="0", label="world", ranks=(0, 1), issued={0: 3, 1: 2}, broken={1: "x"}),),
    ops=(OpRow(group="world", kind="all_reduce", count=3, late=((1, 0.5),)),),
    waits=(WaitRow(rank=1, on=(0,), since=NOW - 1),),
    lines=("ranks 0-1 wait", "  hint: x"),
    verdict=Verdict(what="x", root=ROOT, findings=(ROOT,), roles={0: Role.VICTIM, 1: Role.ROOT}),
    armed=(ArmedBreakpoint(id=1, rule="rank=3"),),
    stopped=(StoppedAtPrompt(rank=1, why="breakpoint"),),
    held_by=("rank 3",),
)


def through_json(plain: object) -> object:
    return json.loads(json.dumps(plain))


def test_a_whole_snapshot_comes_back_as_it_was() -> None:
    assert apply(Snapshot(), through_json(whole(RICH)), RICH.at) == RICH  # type: ignore[arg-type]


def test_only_what_has_changed_is_told() -> None:
    ranks = dict(RICH.ranks)
    ranks[1] = replace(ranks[1], state=RankState.DEAD, cpu=None)
    after = replace(RICH, at=NOW + 1, ranks=ranks, waits=(), is_paused=True)
    reported = changes(RICH, after)
    assert reported == {
        "ranks": {"1": {"state": "dead", "cpu": None}}, "waits": [], "is_paused": True
    }  # fmt: skip
    assert apply(RICH, through_json(reported), NOW + 1) == after  # type: ignore[arg-type]
    assert changes(after, after) == {}


def test_a_rank_that_is_gone_and_one_that_is_new_are_told() -> None:
    after = replace(RICH, ranks={0: RICH.ranks[0], 7: row(7)})
    reported = changes(RICH, after)
    assert reported["ranks"]["1"] is None
    assert apply(RICH, through_json(reported), RICH.at) == after  # type: ignore[arg-type]


def test_what_a_later_version_adds_is_passed_over() -> None:
    reported = whole(RICH)
    reported["ranks"]["0"]["colour"] = "red"
    reported["weather"] = 3
    assert apply(Snapshot(), reported, RICH.at) == RICH


def test_a_recording_that_an_earlier_version_made_is_shown() -> None:
    replay = RecordedFeed.open(Path(__file__).parent / "golden" / "dashboard-v1.jsonl")
    try:
        assert replay.latest().verdict is None
        replay.seek(NOW + 1)
        snapshot = replay.latest()
        assert snapshot.verdict is not None
        root = snapshot.verdict.root
        assert root is not None
        assert (root.kind, root.severity, root.ranks) == (
            FindingKind.DEADLOCK,
            Severity.ERROR,
            (0, 1),
        )
        assert [(edge.rank, edge.on) for edge in root.edges] == [(0, (1,)), (1, (0,))]
        assert snapshot.verdict.roles[2] is Role.BYSTANDER
        assert parts_of(snapshot).causes == {0, 1}
        assert headline(snapshot, NOBODY, NOW) == (snapshot.lines[0], Tone.FAULT)
        assert [(wait.rank, wait.on, wait.can_go_on) for wait in snapshot.waits] == [
            (0, (1,), False), (1, (0,), False),
        ]  # fmt: skip
    finally:
        replay.close()


def record(path: Path, *, count: int = 5, most_nbytes: int = 1 << 20) -> RecordingFeed:
    """Record a few seconds of a job whose rank 1 dies in the third."""
    inner = MadeUpFeed(RICH)
    inner.lines = [LogRow(at=NOW, ranks=(0,), stream="out", text="step 1")]
    inner.all_bars = {
        0: [Bar(number=1, kind="barrier", name="barrier #1", group="0", seq=1, issued=NOW,
                started=None, ended=None)]
    }  # fmt: skip
    feed = RecordingFeed(inner, path, every_s=0.0, most_nbytes=most_nbytes)
    feed.want(frozenset({Topic.BARS}))
    assert Topic.LOG in inner.wanted
    for second in range(count):
        at = NOW + second
        state = RankState.DEAD if second >= 3 else RankState.WAITING
        inner.change(at=at, ranks={0: row(0, cpu=second / 10), 1: row(1, state, why="was killed")})
        inner.lines = [*inner.lines, LogRow(at=at, ranks=(0,), stream="out", text=f"s {second}")]
        feed._waiting = 0  # the thread is given each
        feed.latest()
        feed.bars([0], NOW, at)
    feed.close()
    assert inner.is_closed
    return feed


@pytest.mark.parametrize("name", ["x.jsonl", "x.jsonl.gz"])
def test_a_recorded_dashboard_is_shown_at_each_moment(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    feed = record(path)
    assert feed.said == f"Wrote {path}"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert is_recording(path)
    replay: Feed = RecordedFeed.open(path)
    try:
        assert replay.span() == (NOW, NOW + 4)
        assert replay.latest().ranks[0].cpu == 0.4
        assert replay.latest().link is FeedLink.REPLAY
        replay.seek(NOW + 1.5)
        assert replay.latest().ranks[0].cpu == 0.1
        assert replay.latest().ranks[1].state is RankState.WAITING
        assert replay.latest().groups == RICH.groups
        replay.seek(NOW)
        assert replay.latest().ranks[0].cpu == 0.0
        assert isinstance(replay, RecordedFeed)
        replay._thread.join(30)
        assert [stop.what for stop in replay.stops() if stop.at == NOW + 3] == [
            "rank 1: was killed"
        ]
        assert replay.next_moment(NOW, 1) == NOW + 1
        assert replay.next_moment(NOW + 1, -1) == NOW
        replay.seek(NOW + 2)
        assert [line.text for line in replay.log()] == ["step 1", "s 0", "s 1", "s 2"]
        assert replay.bars([0], NOW, NOW + 2)[0][0].name == "barrier #1"
        assert replay.bars([1], NOW, NOW + 2)[1][0].name == "all_reduce #42"
    finally:
        replay.close()


def test_a_file_that_is_cut_anywhere_gives_what_it_has(tmp_path: Path) -> None:
    whole_file = tmp_path / "x.jsonl"
    record(whole_file)
    data = whole_file.read_bytes()
    first = data.index(b"\n", data.index(b'"full"')) + 1
    packed = gzip.compress(data, mtime=0)
    cut = tmp_path / "cut"
    for at in sorted({*range(0, len(data), 97), *range(first - 6, first + 2)}):
        cut.write_bytes(data[:at])
        if at < first:
            with pytest.raises(RecordError):
                read_recording(cut)
        else:
            found = read_recording(cut)
            assert found.snapshots
            assert at >= len(data) - 40 or "cut off" in " ".join(found.lacks)
    for at in range(0, len(packed), 97):
        cut.write_bytes(packed[:at])
        with suppress(RecordError):
            assert read_recording(cut).snapshots


def test_lines_that_are_damaged_are_passed_over_and_said(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    record(path)
    lines = path.read_bytes().split(b"\n")
    sets = [at for at, line in enumerate(lines) if b'"set"' in line]
    lines[sets[0]] = b"\xff\x00garbage"
    lines[sets[1]] = b'{"at":1800000002.0,"set":{"ranks":{"x":3}}}'
    path.write_bytes(b"\n".join(lines))
    replay = RecordedFeed.open(path)
    try:
        assert "1 lines of the file cannot be read" in replay.latest().link_why
        assert replay.latest().ranks[1].state is RankState.DEAD
    finally:
        replay.close()


def test_what_is_no_recording_and_what_is_of_a_later_version_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text("hello\n")
    assert not is_recording(path)
    with pytest.raises(RecordError, match="not a recorded dashboard"):
        read_recording(path)
    path.write_text('{"distdbg": "dashboard", "version": 99}\n')
    with pytest.raises(RecordError, match="version 99"):
        read_recording(path)


def test_a_recording_ends_when_its_file_is_full(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    feed = record(path, count=50, most_nbytes=4000)
    assert "recording stopped: the file has its" in feed.said
    assert path.stat().st_size < 20_000
    replay = RecordedFeed.open(path)
    assert "full" in replay.latest().link_why
    replay.close()


def test_a_full_disk_ends_the_recording_and_not_the_dashboard() -> None:
    inner = MadeUpFeed(RICH)
    feed = RecordingFeed(inner, Path("/dev/full"), is_forced=True, every_s=0.0)
    for second in range(3):
        inner.change(at=NOW + second)
        assert feed.latest().at == NOW + second
    feed.close()
    assert "No space left" in feed.said
    assert "No space left" in feed.latest().link_why
    assert feed.latest() is feed.latest()


def test_a_file_that_is_there_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text("mine")
    with pytest.raises(UsageError, match="already exists"):
        RecordingFeed(MadeUpFeed(RICH), path)
    with pytest.raises(UsageError, match="is a folder"):
        RecordingFeed(MadeUpFeed(RICH), tmp_path)
    assert path.read_text() == "mine"
