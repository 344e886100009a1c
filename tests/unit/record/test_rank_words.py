from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest

from distdbg.record.format import Exit, Status
from distdbg.record.rank_words import Clock, describe, read_boot_id, where_is
from distdbg.record.reader import RecordFile
from tests.support.record_builder import RecordBuilder

SECOND = 10**9
STEP = [("/home/me/train.py", 80, "step"), ("/home/me/train.py", 120, "main")]
MAIN = [("/home/me/train.py", 91, "main")]
NOW = 100 * SECOND


def start(**header: Any) -> RecordBuilder:
    build = RecordBuilder(rank=3, boot_id="here", **header)
    build.add_group("dp")
    return build


def words(build: RecordBuilder, boot_id: str = "here") -> str | None:
    with RecordFile(build.to_bytes()) as record:
        return describe(record, Clock(record.header, NOW, boot_id))


def test_an_op_in_flight_is_where_the_rank_is() -> None:
    build = start()
    build.end(build.issue("barrier", at_ns=90 * SECOND), after_ns=5)
    build.issue("all_reduce", at_ns=NOW - 3_100_000_000, seq=12, stack=STEP)
    build.mark("step", 12)
    assert words(build) == "in all_reduce #12 on group 'dp' for 3.1 s, train.py:80 (step)"


def test_between_two_ops_it_is_the_one_that_ended_last() -> None:
    build = start()
    number = build.issue("barrier", at_ns=95 * SECOND, stack=MAIN)
    build.end(number, after_ns=SECOND)
    build.mark("saved")
    build.find("{}")
    assert words(build) == (
        "last op barrier #1 on group 'dp' ended 4.0 s ago, called at train.py:91 (main)"
    )


def test_an_op_that_failed_says_how() -> None:
    build = start()
    number = build.issue("recv", at_ns=95 * SECOND, peer=2)
    build.end(number, after_ns=SECOND, status=Status.PEER_LOST)
    assert words(build) == (
        "last op recv #1 from group rank 2 (tag 0) on group 'dp' failed (peer lost) 4.0 s ago"
    )


def test_an_async_op_that_is_waited_for_is_where_the_rank_is() -> None:
    build = start()
    number = build.issue("all_reduce", at_ns=96 * SECOND, is_async=True, stack=STEP)
    build.issue("all_gather", at_ns=97 * SECOND, is_async=True, stack=STEP)
    build.wait(number, since_ns=98 * SECOND, stack=MAIN)
    assert words(build) == (
        "in all_reduce #1 on group 'dp' for 4.0 s, train.py:80 (step), "
        "waited for at train.py:91 (main)"
    )


def test_async_ops_in_flight_come_after_what_the_program_does() -> None:
    build = start()
    build.issue("all_reduce", at_ns=90 * SECOND, is_async=True, stack=STEP)
    build.end(build.issue("barrier", at_ns=95 * SECOND), after_ns=SECOND)
    assert words(build) == (
        "last op barrier #2 on group 'dp' ended 4.0 s ago; "
        "still in flight: all_reduce #1 on group 'dp' for 10 s, train.py:80 (step)"
    )


def test_a_parked_op_is_found() -> None:
    build = start()
    build.issue("barrier", at_ns=10 * SECOND)
    for _ in range(20):
        build.mark("step")
    assert words(build) == "in barrier #1 on group 'dp' for 1 min 30 s"


def test_before_the_first_op_it_says_so() -> None:
    assert words(start()) == "has called no op yet"


@pytest.mark.parametrize(
    ("how", "text", "expected"),
    [
        (Exit.RETURNED, None, "its program returned 2.0 s ago"),
        (Exit.LEFT, None, "left its groups 2.0 s ago"),
        (Exit.RAISED, None, "raised an exception 2.0 s ago"),
        (Exit.RAISED, "[]", "raised [] 2.0 s ago"),
        (
            Exit.RAISED,
            '{"what": "ValueError: 7", "where": "/home/me/train.py:3 (load)"}',
            "raised ValueError: 7 2.0 s ago, train.py:3 (load)",
        ),
    ],
)
def test_the_end_of_the_program_is_told(how: Exit, text: str | None, expected: str) -> None:
    build = start()
    build.issue("barrier", at_ns=10 * SECOND)
    build.exit(how, at_ns=98 * SECOND, text=text)
    assert words(build) == expected


def test_the_record_of_another_host_or_boot_tells_the_time() -> None:
    build = start(wall_ns=43_200 * SECOND, monotonic_ns=90 * SECOND)
    build.issue("barrier", at_ns=92 * SECOND)
    assert words(build, "there") == "in barrier #1 on group 'dp' since 12:00:02 UTC"
    assert words(build, "") == "in barrier #1 on group 'dp' since 12:00:02 UTC"


def test_a_time_that_no_calendar_has_is_no_error() -> None:
    build = start(wall_ns=2**63 - 1)
    build.issue("barrier", at_ns=2**62)
    assert "since" in str(words(build, "there"))


def test_the_rank_of_a_run_is_found_by_its_file(tmp_path: Path) -> None:
    build = RecordBuilder(rank=3, boot_id=read_boot_id())
    build.add_group("dp")
    build.issue("barrier", at_ns=time.monotonic_ns(), stack=STEP)
    (tmp_path / "rank00003.ddr").write_bytes(build.to_bytes())
    words = where_is(tmp_path, 3)
    assert words is not None
    pattern = r"in barrier #1 on group 'dp' for [\d.]+ [num]?s, train\.py:80 \(step\)"
    assert re.fullmatch(pattern, words), words


def test_no_record_or_a_damaged_one_says_nothing(tmp_path: Path) -> None:
    assert where_is(tmp_path, 3) is None
    (tmp_path / "rank00003.ddr").write_bytes(b"nonsense")
    assert where_is(tmp_path, 3) is None
