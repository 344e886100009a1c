"""What the table about shared arrays says of times, with times given by hand."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.cases import Case
from benchmarks.shared_arrays import copies_of, format_report, must_move, share_of_copy, speedup
from benchmarks.table import Row


def row(kind: str, nbytes: int = 1 << 20, **times_s: float) -> Row:
    rounds: Any = {library: [time_s] for library, time_s in times_s.items()}
    return Row(Case(kind, nbytes), 2, rounds)


@pytest.mark.parametrize(
    ("kind", "two", "four"),
    [
        ("all_reduce", 1.0, 1.0),
        ("broadcast", 0.5, 0.5),
        ("all_gather", 0.75, 0.625),
        ("reduce_scatter", 0.75, 0.625),
    ],
)
def test_each_byte_is_read_once_and_written_once(kind: str, two: float, four: float) -> None:
    assert (must_move(kind, 2), must_move(kind, 4)) == (two, four)


def test_an_op_is_held_against_the_copy_and_the_best_peer() -> None:
    rows = [
        row("copy", shared=20e-6, mpich=10e-6),
        row("broadcast", shared=10e-6, distdbg=30e-6, gloo=90e-6, mpich=40e-6),
        row("all_gather", shared=30e-6, gloo=33e-6),
        row("all_reduce", gloo=50e-6),
    ]
    copies = copies_of(rows)
    assert copies == {(2, 1 << 20): 20e-6}
    shares = [share_of_copy(each, copies) for each in rows[1:]]
    assert shares == [pytest.approx(1.0), pytest.approx(0.5), None]
    assert [speedup(each) for each in rows[1:]] == [pytest.approx(4), pytest.approx(1.1), None]
    lines = format_report(rows, ("shared", "distdbg", "gloo", "mpich")).splitlines()
    assert lines[0] == "2 ranks"
    assert lines[2].split()[-2:] == ["100%", "4.00x"]
    assert lines[3].split()[-4:] == ["50%", "MISSED", "1.10x", "MISSED"]
    assert lines[4].split()[-2:] == ["-", "-"]
