"""Whatever is left of a job opens as a replay: records of killed ranks, dumps of torch, kept output."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from distdbg.cli.replayed_run import open_replay, read_kept_lines
from distdbg.cli.top import print_frame
from distdbg.errors import DistError, UsageError
from distdbg.record.ends import RankEnd, write_end
from distdbg.record.folders import record_name
from distdbg.record.line_times import LineTimesWriter
from distdbg.record.rank_state import RankState
from distdbg.tui.app import TopApp
from distdbg.view.feed import Feed, Topic
from distdbg.view.snapshot import OpKey
from tests.support.record_builder import RecordBuilder
from tests.support.torch_dump_builder import TorchDumpBuilder

pytestmark = pytest.mark.tui

WALL_NS = 1_790_000_000 * 10**9
S = 10**9


def make_killed_run(folder: Path) -> None:
    """Ranks 0 and 1 of 3 are in a barrier; rank 1 was killed in it, rank 2 before it had a record."""
    for rank in range(2):
        build = RecordBuilder(
            rank=rank, world_size=3, run="made", wall_ns=WALL_NS, monotonic_ns=0, pid=10 + rank
        )
        group = build.add_group("world", ranks="0-2", size=3, rank=rank)
        number = build.issue("all_reduce", group, at_ns=S, stack=[("train.py", 80, "step")])
        build.start(number, after_ns=S // 2)
        build.end(number, after_ns=S)
        build.issue("barrier", group, at_ns=3 * S, stack=[("train.py", 81, "step")])
        build.set_group(group, issued_seq=2, ended_seq=1)
        (folder / record_name(rank)).write_bytes(build.to_bytes())
    for rank in (1, 2):
        write_end(
            folder,
            RankEnd(
                rank=rank, pid=10 + rank, host="n14", ended_ns=4 * S, wall_ns=WALL_NS + 4 * S,
                cause="signal", signal=9,
            ),
        )  # fmt: skip


def wait_for(is_so: Callable[[], object]) -> None:
    until = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.005)  # it works in a thread


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    make_killed_run(tmp_path)
    return tmp_path


def test_a_run_whose_ranks_were_killed_is_scrubbed_through(killed: Path) -> None:
    feed = open_replay(killed)
    try:
        feed.seek(WALL_NS / 1e9 + 1.2)
        assert feed.latest().ranks[0].op == "all_reduce #1 on group 'world'"
        feed.seek(WALL_NS / 1e9 + 3.5)
        assert [feed.latest().ranks[rank].state for rank in (0, 1)] == [RankState.WAITING] * 2
        feed.seek(WALL_NS / 1e9 + 9)
        assert feed.latest().ranks[1].state is RankState.DEAD
        assert feed.latest().ranks[2].why == "was killed by SIGKILL"
        op = feed.op(OpKey(group="world", seq=2))
        assert op is not None
        assert [one.has_come for one in op.arrivals] == [True, True, False]
        wait_for(lambda: feed.latest().lines)
        assert "killed by SIGKILL" in feed.latest().lines[0]
    finally:
        feed.close()


def test_one_frame_is_printed_or_drawn_as_a_picture(
    killed: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def app_of(feed: Feed) -> TopApp:
        return TopApp(feed, view="timeline")

    feed = open_replay(killed)
    try:
        assert print_frame(app_of(feed), size=(100, 24)) == 0
        shown = capsys.readouterr().out
        assert len(shown.splitlines()) == 24
        assert "killed by SIGKILL" in shown
        assert "\x1b" not in shown
        picture = tmp_path / "x.svg"
        assert print_frame(app_of(feed), size=(100, 24), svg=picture) == 0
        assert picture.read_text().startswith("<svg")
        assert capsys.readouterr().err == f"Wrote {picture}\n"
        with pytest.raises(UsageError, match="already exists"):
            print_frame(app_of(feed), size=(100, 24), svg=picture)
    finally:
        feed.close()


def test_dumps_of_torch_are_replayed(tmp_path: Path) -> None:
    job = TorchDumpBuilder(world_size=2)
    for step in range(3):
        for rank in range(2):
            job.op(rank, "all_reduce", at_s=step + 0.1 * rank)
    job.op(0, "all_reduce", state="started", at_s=5.0)
    job.write(tmp_path)
    feed = open_replay(tmp_path)
    try:
        times = feed.span()
        assert times is not None
        bars = feed.bars([0, 1], *times)
        assert [len(of) for of in bars.values()] == [4, 3]
        assert bars[0][0].name == "all_reduce #1"
        assert bars[0][-1].ended is None
    finally:
        feed.close()


def test_what_ranks_printed_comes_when_they_printed_it(killed: Path) -> None:
    for rank, words in enumerate(("one\ntwo\n", "one\nthree\n")):
        folder = killed / "logs" / "attempt_0" / str(rank)
        folder.mkdir(parents=True)
        log = folder / "stdout.log"
        times = LineTimesWriter(log, rank)
        log.write_text(words[:4])
        times.look(WALL_NS + 2 * S)
        log.write_text(words)
        times.look(WALL_NS + 4 * S, is_last=True)
        times.close()
    rows = read_kept_lines(killed, 0)
    assert [(row.ranks, row.text) for row in rows] == [
        ((0, 1), "one"), ((0,), "two"), ((1,), "three")
    ]  # fmt: skip
    feed = open_replay(killed)
    try:
        feed.want(frozenset({Topic.LOG}))
        wait_for(lambda: feed.log())
        assert len(feed.log()) == 3
        feed.seek(WALL_NS / 1e9 + 3)
        assert [row.text for row in feed.log()] == ["one"]
        assert feed.log() is feed.log()
    finally:
        feed.close()


def test_a_folder_without_any_record_is_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(DistError):
        open_replay(tmp_path)
    (tmp_path / "notes.txt").write_text("hello\n")
    with pytest.raises(DistError):
        open_replay(tmp_path / "notes.txt")
