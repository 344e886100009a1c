"""A rank is killed at random moments: its record is readable and says what it did last."""

from __future__ import annotations

import fcntl
import os
import random
import runpy
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from distdbg.record.entries import OpEntry
from distdbg.record.folders import is_live
from distdbg.record.rank_words import where_is
from distdbg.record.reader import read_record

PROGRAM = Path(__file__).parent / "record_kill_program.py"
STEPS: tuple[str, ...] = runpy.run_path(str(PROGRAM))["STEPS"]
#: `make stress` has more.
KILLS = int(os.environ.get("STRESS_KILLS", "60"))
RING_COUNT = 16


class Zygote:
    """The process that forks ranks, and the pipe into which they report."""

    def __init__(self) -> None:
        self.reports, write_end = os.pipe()
        os.set_blocking(self.reports, False)
        fcntl.fcntl(write_end, fcntl.F_SETPIPE_SZ, 1 << 20)  # no rank may wait for its reader
        self.process = subprocess.Popen(
            [sys.executable, str(PROGRAM), str(write_end)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=[write_end],
            text=True,
        )
        os.close(write_end)

    def start(self, folder: Path) -> int:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{folder}\n")
        self.process.stdin.flush()
        return int(self._line())

    def kill(self, pid: int) -> None:
        os.kill(pid, signal.SIGKILL)
        assert self._line() == "gone"

    def wait_for_report(self) -> None:
        ready, _, _ = select.select([self.reports], [], [], 20)
        assert ready, "the rank did not begin within 20 s"

    def read_reports(self) -> list[int]:
        data = b""
        while True:
            try:
                data += os.read(self.reports, 1 << 16)
            except BlockingIOError:
                break
        return [int.from_bytes(data[i : i + 8], "little") for i in range(0, len(data), 8)]

    def _line(self) -> str:
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], 20)
        assert ready, "no answer within 20 s"
        return self.process.stdout.readline().strip()

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()
        os.close(self.reports)


@pytest.fixture
def zygote() -> Iterator[Zygote]:
    zygote = Zygote()
    yield zygote
    zygote.close()


def check_record(folder: Path, steps_begun: list[int]) -> None:
    record = read_record(folder / "rank00000.ddr")
    assert record.gaps == ()
    assert not is_live(folder / "rank00000.ddr")
    numbers = [event.number for event in record.events]
    receive = record.events[0]
    # The receive was issued first and is in flight for ever; parked when the ring came round.
    assert isinstance(receive, OpEntry)
    assert (receive.name, receive.tag, receive.ended_ns) == ("recv", 99, None)
    begun = steps_begun[-1]
    first = receive.number + 1
    assert begun == len(steps_begun) - 1
    # The step that was begun last may or may not have issued its op; the one before has ended.
    newest = numbers[-1]
    assert newest in (first + begun - 1, first + begun)
    oldest = max(first, newest - RING_COUNT + 2)
    assert numbers[1:][-RING_COUNT + 1 :] == list(range(oldest, newest + 1))
    for event in record.events[1:]:
        step = event.number - first
        name = event.name if isinstance(event, OpEntry) else "mark"
        assert name == STEPS[step % len(STEPS)]
        assert event.site is not None
        assert event.site.file.endswith("record_kill_program.py")
        if isinstance(event, OpEntry) and step < begun:
            assert event.status_label == "ok"
    assert where_is(folder, 0) is not None


@pytest.mark.slow
@pytest.mark.ranks
def test_a_rank_killed_at_a_random_moment_leaves_what_it_did_last(
    zygote: Zygote, tmp_path: Path
) -> None:
    chance = random.Random(3)
    checked = 0
    for kill in range(KILLS):
        folder = tmp_path / str(kill)
        pid = zygote.start(folder)
        is_early = chance.random() < 0.15
        if not is_early:
            zygote.wait_for_report()
        # Nothing is waited for: the moment is what the test is about.
        time.sleep(chance.uniform(0, 0.02))
        zygote.kill(pid)
        steps_begun = zygote.read_reports()
        if steps_begun:
            check_record(folder, steps_begun)
            checked += 1
        elif (folder / "rank00000.ddr").exists():
            assert read_record(folder / "rank00000.ddr").gaps == ()
    assert checked > KILLS // 2
