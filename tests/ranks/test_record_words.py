"""Names, paths and sizes that are odd: they are written down, or refused in words."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distdbg as dist
from distdbg.errors import ConfigError, RankLeft, UsageError
from distdbg.record.entries import MarkEntry, OpEntry
from distdbg.record.reader import read_record
from distdbg.runtime.process.world import current

ODD = "\udc80"  # as Python decodes the byte 0x80 of a file name
LONG = "e" + "\u00e9" * 700  # 1401 bytes; the record keeps 1024, which would cut a character


def write_odd_names() -> list[object]:
    dist.init_process_group()
    dist.mark(ODD, 1)
    with dist.record_comm(LONG), dist.span(ODD):
        with dist.record_comm(ODD):
            dist.barrier()
        dist.barrier()
    group = dist.new_group([0, 1], group_desc=ODD)
    dist.all_reduce(np.ones(2), group=group)
    folder = current().run_folder
    assert folder is not None
    record = read_record(Path(folder) / f"rank{dist.get_rank():05}.ddr")
    dist.destroy_process_group()
    names = [event.name for event in record.events if isinstance(event, MarkEntry)]
    comms = [event.comm for event in record.events if isinstance(event, OpEntry)]
    return [names, comms[0], comms[1] == LONG[: len(comms[1])], record.groups[-1].desc]


def test_odd_names_are_written_down(
    tmp_path: Path, ranks: Callable[..., list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = os.fsdecode(bytes(tmp_path) + b"/run-\xff")
    monkeypatch.setenv("DISTDBG_RUN_DIR", folder)
    assert ranks(write_odd_names, 2) == [[[ODD], "\\udc80", True, "\\udc80"]] * 2


def say_odd_words() -> str:
    dist.init_process_group()
    dist.barrier()
    if dist.get_rank() == 1:
        raise ValueError(ODD)
    with pytest.raises(RankLeft) as caught:
        dist.barrier()
    return str(caught.value)


def test_an_error_with_odd_words_reaches_the_others(
    ranks: Callable[..., list[Any]],
) -> None:
    said, _ = ranks(say_odd_words, 2, expect_exit={1: 1})
    assert "rank 1 left (raised ValueError: \\udc80" in said


def mark_numbers() -> str:
    dist.init_process_group()
    with pytest.raises(UsageError) as caught:
        dist.mark("step", 10**400)
    dist.destroy_process_group()
    return str(caught.value)


def test_a_number_that_no_float_holds_is_refused(ranks: Callable[..., list[Any]]) -> None:
    assert "must be a number" in ranks(mark_numbers, 1)[0]


def start_and_end(value: str) -> str:
    os.environ["DISTDBG_RECORD_OPS"] = value
    try:
        dist.init_process_group()
    except ConfigError as error:
        return str(error)
    dist.destroy_process_group()
    return "recorded"


@pytest.mark.parametrize(
    ("value", "outcome"),
    [
        (
            "-5",
            "the variable DISTDBG_RECORD_OPS='-5' is not valid; expected a whole number of at least 0",
        ),
        ("0", "recorded"),
        (str(2**70), "recorded"),
    ],
)
def test_sizes_of_the_ring(value: str, outcome: str, ranks: Callable[..., list[Any]]) -> None:
    assert ranks(start_and_end, 1, value=value) == [outcome]
