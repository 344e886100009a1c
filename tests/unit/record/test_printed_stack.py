"""The stack in what Python prints of an exception, or of a crash."""

from __future__ import annotations

from pathlib import Path

from distdbg.record.printed_stack import own_frame, read_stack
from distdbg.record.recorded_frame import RecordedFrame
from distdbg.record.stack_file import crash_name, read_crash, write_crash
from distdbg.record.traceback_text import PACKAGE

CRASH = f"""\
Fatal Python error: Segmentation fault

Thread 0x00007f02 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 324 in wait

Current thread 0x00007f01 (most recent call first):
  File "/job/train.py", line 7 in backward
  File "{PACKAGE}runtime/groups/group.py", line 9 in run
  File "/job/train.py", line 13 in main

Extension modules: numpy (total: 1)
"""
TRACEBACK = f"""\
Traceback (most recent call last):
  File "/job/train.py", line 3, in first
    raise KeyError("handled")
KeyError: 'handled'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "<frozen runpy>", line 88, in _run_code
  File "/job/train.py", line 80, in <module>
    step(1 /
         ^^^
  [Previous line repeated 3 more times]
  File "{PACKAGE}runtime/api/collectives.py", line 61, in all_reduce
  File "/job/train.py", line 12, in step
    y = x / 0
ZeroDivisionError: division by zero
  File "/not/of/it.py", line 1, in text
"""


def texts(text: str) -> list[str]:
    return [str(frame) for frame in read_stack(text)]


def test_of_a_crash_it_is_that_of_the_thread_that_crashed() -> None:
    assert texts(CRASH) == ["/job/train.py:7 (backward)", "/job/train.py:13 (main)"]


def test_of_exceptions_it_is_that_of_the_last_one_the_innermost_frame_first() -> None:
    assert texts(TRACEBACK) == ["/job/train.py:12 (step)", "/job/train.py:80 (<module>)"]


def test_the_programs_own_frame_comes_before_those_of_libraries() -> None:
    files = [
        "/usr/lib/python3.11/ctypes/__init__.py",
        "/v/lib/python3.11/site-packages/n.py",
        "/job/a.py",
    ]
    stack = [RecordedFrame(file, 1, "f") for file in files]
    assert own_frame(stack) == stack[2]
    assert own_frame(stack[:2]) == stack[0]
    assert own_frame([]) is None


def test_text_without_a_stack_has_none() -> None:
    assert texts("") == texts("Segmentation fault\nFile, line") == []
    assert texts('  File "/job/train.py", line 7 in backward\n') == []
    assert texts('Current thread 0x1 (x):\n  File "a", line 99999999999 in f\n') == []


def test_a_crash_is_kept_in_a_private_file_and_not_written_through_a_link(tmp_path: Path) -> None:
    write_crash(tmp_path, 3, CRASH.encode())
    assert read_crash(tmp_path, 3) == CRASH
    assert (tmp_path / crash_name(3)).stat().st_mode & 0o777 == 0o600
    assert read_crash(tmp_path, 4) == ""
    write_crash(tmp_path / "not there", 3, b"")
    (tmp_path / crash_name(5)).symlink_to(tmp_path / crash_name(3))
    write_crash(tmp_path, 5, b"another")
    assert read_crash(tmp_path, 3) == CRASH
