"""No line, however it is made, makes the reader fail, or take long."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from distdbg.diagnose.load import log_blocks, log_differences, log_lines, log_shapes, ncclras
from distdbg.diagnose.load.log_files import read_logs
from distdbg.diagnose.load.log_lines import MAX_LINE_NBYTES
from distdbg.diagnose.load.open import open_paths
from distdbg.errors import RecordError

#: Of this thread on a core. Generous: what is quadratic in a megabyte takes hours.
MOST_S = 60.0

HEADS = [row.literal for row in log_shapes.ROWS]
BITS = [
    "1", "1, ", "[", "]", "[[", "[rank1]:", "[Rank 1] ", "[PG ID 0 PG GUID 0(", "x", " ", "ranks [",
    "CollectiveFingerPrint(", "Rank 1 is running collective: ", "SequenceNumber=1", "\x1b[1;", "0:00:00",
    "Rank 1 ", "2026-01-01 ", "Traceback (most recent call last):", '  File "a", line 1, in ', "a.b", "é",
    "\x00", "  rank : 1 ", ": ", "-", "\r",
]  # fmt: skip


def patterns() -> Iterator[re.Pattern[str]]:
    for row in log_shapes.ROWS:
        yield row.pattern
    for module in (log_blocks, log_differences, log_lines, log_shapes, ncclras):
        for value in vars(module).values():
            if isinstance(value, re.Pattern):
                yield value
    yield from log_lines._PREFIXES


@pytest.mark.parametrize("head", sorted({*HEADS, "", "[rank1]:[E1120 23:54:44.7 a.cpp:1] "}))
def test_a_line_of_a_megabyte_is_read_at_once(tmp_path: Path, head: str) -> None:
    path = tmp_path / "a.log"
    began = time.thread_time()
    for bit in ("1, ", "[", "Rank 1 "):
        path.write_text(head + bit * (1 << 18) + "\n" + bit * 100 + head)
        read_logs([path], root=tmp_path)
    assert time.thread_time() - began < MOST_S


@pytest.mark.slow
def test_no_pattern_is_quadratic_on_its_own_beginnings() -> None:
    began = time.thread_time()
    for pattern in patterns():
        for bit in BITS:
            text = (bit * (4 * MAX_LINE_NBYTES // len(bit)))[: 4 * MAX_LINE_NBYTES]
            pattern.search(text)
            pattern.match(text + "\n")
    assert time.thread_time() - began < MOST_S


def test_many_long_lines_take_time_by_their_number(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    line = "last enqueued NCCL work: " + "Rank 1 [PG ID 0 " * 230
    path.write_text("\n".join([line] * 300))
    began = time.thread_time()
    read_logs([path], root=tmp_path)
    assert time.thread_time() - began < MOST_S


def test_any_mix_of_known_words_is_read(tmp_path: Path) -> None:
    draw = random.Random(11)
    path = tmp_path / "a.log"
    for _ in range(60):
        lines = [
            "".join(draw.choice(HEADS + BITS) for _ in range(draw.randrange(12)))
            for _ in range(draw.randrange(40))
        ]
        path.write_text("\n".join(lines), errors="replace")
        session = read_logs([path], root=tmp_path)
        assert all(finding.what for finding in session.said)


def test_any_bytes_are_a_log_or_refused(tmp_path: Path) -> None:
    draw = random.Random(12)
    for number in range(40):
        path = tmp_path / f"file_{number}"
        path.write_bytes(draw.randbytes(draw.randrange(3000)))
        read_logs([path], root=tmp_path)
    with suppress(RecordError):
        open_paths([tmp_path])


@pytest.mark.parametrize(
    "text",
    [
        '{"communicators": ' + "[" * 100_000,
        '{"communicators": [' + '{"ranks":[' * 50_000,
        '{"communicators": 5}',
        '{"communicators": [{"ranks": [5, {"rank": -1}, {"rank": 1e99}], "missing_ranks": {}}]}',
        '{"communicators": []',
        '{"communicators" "x"' + ' "a"\n' * 20_000,
    ],
)
def test_a_broken_report_of_ncclras_is_refused_or_read_in_part(tmp_path: Path, text: str) -> None:
    (tmp_path / "ras.json").write_text(text)
    with suppress(RecordError):
        open_paths([tmp_path / "ras.json"])


def test_a_job_that_prints_one_line_for_ever_gives_few_facts(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_text("[rank1]: Connection closed by peer [::1]:80\n" * 20_000)
    session = read_logs([path], root=tmp_path)
    assert len(session.said) == 1
    assert len(session.lines) <= 400
