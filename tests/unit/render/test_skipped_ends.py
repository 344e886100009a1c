"""Hints at paths past task_done() and past the cancel of a timer; each has twins where it would be wrong."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from distdbg.diagnose.finding import Finding, FindingKind, Severity
from distdbg.record.recorded_frame import RecordedFrame
from distdbg.render.enclosing import parse
from distdbg.render.finding_stacks import ReportedFrame, ReportedStack
from distdbg.render.hints.case import Case
from distdbg.render.hints.skipped_ends import by_unfinished_item, past_cancel
from distdbg.render.source_line import SourceLines
from tests.support.session_builder import SessionBuilder

WRITER = """\
def flush(self):
    self.queue.join()
def work(self):
    while True:
        record = self.queue.get()
        if record is None:
            return
        try:
            line = dumps(record)
        except ValueError:
            continue
        write(line)
        self.queue.task_done()
"""
JOIN, GET = 2, 5
READER = """\
def read(path):
    before = signal(SIGALRM, on_alarm)
    setitimer(ITIMER_REAL, 2.0)
    try:
        body = path.read_bytes()
        if crc32(body) != 0:
            raise BadBlock(path)
        setitimer(ITIMER_REAL, 0)
    finally:
        signal(SIGALRM, before)
    return body
"""


def hint(folder: Path, text: str, taken_at: int = GET) -> str:
    """Of rank 1, whose main thread is in join() and whose other thread is at a line of the same file."""
    path = folder / "job.py"
    path.write_text(text)
    lines = text.splitlines()
    reported = [
        ReportedStack(
            ranks=(1,),
            what="asleep",
            is_cause=True,
            frames=(
                ReportedFrame(
                    frame=RecordedFrame(str(path), line, "f"), text=lines[line - 1].strip()
                ),
            ),
        )
        for line in (JOIN, taken_at)
    ]
    root = Finding(kind=FindingKind.STUCK_RANK, severity=Severity.ERROR, what="", ranks=(1,))
    source = SourceLines(str(folder), time.time_ns() + 10**15)
    return by_unfinished_item(
        Case(session=SessionBuilder(2).session, root=root, reported=reported, source=source)
    )


def test_a_continue_that_skips_task_done_is_named(tmp_path: Path) -> None:
    assert hint(tmp_path, WRITER) == (
        "an item was taken at job.py:5 without its task_done() (line 13): see the `continue` under "
        "`except ValueError` (line 10), which skips it"
    )


def test_a_handler_that_goes_on_without_task_done_is_named(tmp_path: Path) -> None:
    text = WRITER.replace("        except ValueError:\n            continue\n", "")
    text = text.replace("        write(line)\n        self.queue", "            self.queue")
    text += "        except OSError:\n            count += 1\n"
    assert hint(tmp_path, text).endswith("see `except OSError` (line 11), which goes on without it")
    handled = text.replace("count += 1", "self.queue.task_done()")
    assert hint(tmp_path, handled) == ""


def test_a_worker_that_never_says_task_done_is_named(tmp_path: Path) -> None:
    text = WRITER.replace("        self.queue.task_done()\n", "")
    assert hint(tmp_path, text) == (
        "nothing calls self.queue.task_done() for what is taken at job.py:5"
    )


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("            continue\n", "            line = ''\n"),
        ("            continue\n", "            return\n"),  # the thread would have ended
        ("self.queue.join()", "self.thread.join()"),
        ("self.queue.get()", "self.other.get()"),
        ("        write(line)\n        self.queue", "        finally:\n            self.queue"),
    ],
)
def test_nothing_is_said_of_others(tmp_path: Path, old: str, new: str) -> None:
    assert old in WRITER
    assert hint(tmp_path, WRITER.replace(old, new)) == ""


def test_a_raise_before_the_cancel_of_a_timer_is_named() -> None:
    source = parse(READER.splitlines())
    assert source is not None
    assert past_cancel(source, "/job/reader.py", 3) == (
        "its timer is set at reader.py:3: the `raise` (line 7) skips its cancel (line 8), which belongs "
        "into a `finally`"
    )


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("            raise BadBlock(path)", "            warn(path)"),
        ("        setitimer(ITIMER_REAL, 0)\n    finally:\n", "    finally:\n        alarm(0)\n"),
        ("        setitimer(ITIMER_REAL, 0)\n", ""),
    ],
)
def test_a_timer_that_each_path_cancels_or_none_is_not_told_so(old: str, new: str) -> None:
    assert old in READER
    source = parse(READER.replace(old, new).splitlines())
    assert source is not None
    assert past_cancel(source, "/job/reader.py", 3) == ""
