"""The counters of a native record: by group, kind and dtype, and what happens when there is no room."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from distdbg.native import Form, Recorder
from distdbg.ops.call import Kind
from distdbg.record.entries import Counter
from distdbg.record.format import Aside, Flag
from distdbg.record.reader import RecordFile

PLACES = 512
REDUCE = int(Kind.ALL_REDUCE)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "rank00000.ddr"


def begin_record(path: Path) -> Recorder:
    return Recorder.create(os.fsencode(path), 0, 1, "n14", "boot", "1", "3", "run", "[]", 16)


def form(kind: int = REDUCE, dtype: str = "", nbytes: int = 8) -> Form:
    return Form(b"{}", "op", kind, nbytes, 0, dtype)


def add_group(recorder: Recorder) -> int:
    return recorder.add_group("0", "", "0", "cpu", 1, 0, 0)


def do(recorder: Recorder, group: int, what: Form, flags: int = 0) -> None:
    recorder.begin(group, what, 1, 0, -1, flags).ended(0, -1)


def counted(path: Path) -> list[Counter]:
    with RecordFile(path) as file:
        return file.counters()


def test_forms_of_one_dtype_share_a_counter_and_others_have_their_own(
    path: Path,
) -> None:
    recorder = begin_record(path)
    group = add_group(recorder)
    forms = [form(dtype=dtype) for dtype in ("float32", "float32", "float16", "")]
    for _ in range(3):
        for each in forms:
            do(recorder, group, each)
    assert [(one.dtype, one.ended) for one in counted(path)] == [
        ("float32", 6),
        ("float16", 3),
        ("", 3),
    ]


def test_one_form_counts_for_each_group_that_it_is_used_on(path: Path) -> None:
    recorder = begin_record(path)
    first, second = add_group(recorder), add_group(recorder)
    what = form(dtype="int8")
    for group in (first, second, first, first):
        do(recorder, group, what)
    assert [(one.group, one.ended) for one in counted(path)] == [(first, 3), (second, 1)]


def test_a_stop_at_a_breakpoint_is_not_counted_as_a_broadcast(
    path: Path,
) -> None:
    recorder = begin_record(path)
    group = add_group(recorder)
    do(recorder, group, form(int(Kind.BROADCAST)))
    do(recorder, group, form(int(Aside.BREAKPOINT)), int(Flag.ASIDE))
    found = [(one.kind, one.ended) for one in counted(path)]
    assert found == [(Kind.BROADCAST, 1), (Aside.BREAKPOINT, 1)]


def test_ops_without_a_counter_are_counted_until_a_group_is_closed(
    path: Path,
) -> None:
    recorder = begin_record(path)
    groups = [add_group(recorder) for _ in range(2)]
    for place in range(PLACES // 2):
        for group in groups:
            do(recorder, group, form(dtype=f"type{place}"))
    with RecordFile(path) as file:
        assert file.state().lost_counters == 0
    late = form(dtype="late")
    for _ in range(3):
        do(recorder, groups[0], late)
    assert len(counted(path)) == PLACES
    with RecordFile(path) as file:
        assert file.state().lost_counters == 3
    recorder.close_group(groups[1])
    do(recorder, groups[0], late)
    with RecordFile(path) as file:
        assert file.state().lost_counters == 3
    assert [one.ended for one in counted(path) if one.dtype == "late"] == [1]


def test_an_op_that_ends_after_its_group_was_closed_counts_for_no_other(
    path: Path,
) -> None:
    recorder = begin_record(path)
    first, second = add_group(recorder), add_group(recorder)
    what = form(dtype="float32")
    for _ in range(2):
        do(recorder, first, what)
    in_flight = recorder.begin(first, what, 3, 0, -1, 0)
    recorder.close_group(first)
    for place in range(PLACES):
        do(recorder, second, form(dtype=f"type{place}"))
    in_flight.ended(0, -1)
    assert sum(one.ended for one in counted(path) if one.group == second) == PLACES
