"""Dumps with numbers that no recorder writes: they are read, judged and drawn all the same."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from distdbg.diagnose.load.torch_dumps import read_torch_dumps
from distdbg.diagnose.verdict import diagnose
from distdbg.render.html import to_html
from distdbg.render.text import print_verdict
from distdbg.render.verdict_json import to_plain
from tests.support.torch_dump_builder import TorchDumpBuilder

ABSENT = object()


def draw_all(folder: Path, change: dict[str, Any], *, on_all: bool) -> str:
    job = TorchDumpBuilder(2)
    job.op(0, "all_reduce", state="started")
    if on_all:
        job.op(1, "broadcast", state="started")
    for rank in range(2):
        for entry in job.entries[rank]:
            for name, value in change.items():
                entry[name] = value
                if value is ABSENT:
                    del entry[name]
    session = read_torch_dumps(job.write(folder))
    verdict = diagnose(session)
    assert "all_reduce" in to_html(session, verdict)
    json.dumps(to_plain(session, verdict), allow_nan=False)
    console = Console(file=io.StringIO(), width=100)
    print_verdict(console, session, verdict, verbose=True)
    return console.file.getvalue()


@pytest.mark.parametrize("on_all", [False, True])
@pytest.mark.parametrize("seq", [0, -1, -(2**62), None, ABSENT, 2**62, "x"])
def test_an_op_in_flight_with_a_number_that_is_none(
    tmp_path: Path, seq: object, on_all: bool
) -> None:
    draw_all(tmp_path, {"collective_seq_id": seq}, on_all=on_all)


@pytest.mark.parametrize("on_all", [False, True])
@pytest.mark.parametrize("name", ["time_created_us", "time_created_ns"])
@pytest.mark.parametrize("value", [2**60, 2**62, 2**63 - 1, -(2**60), -(2**63) + 1])
def test_an_op_of_a_time_that_is_none(tmp_path: Path, name: str, value: int, on_all: bool) -> None:
    times = {"time_created_us": ABSENT, "time_created_ns": ABSENT, name: value}
    text = draw_all(tmp_path, times, on_all=on_all)
    if value < 0:  # nobody knows how long anybody has waited
        assert not re.search(r"\d d \d", text)
        assert ", for " not in text


@pytest.mark.parametrize(
    "name", ["record_id", "tag", "time_discovered_started_ns", "time_discovered_completed_ns"]
)
@pytest.mark.parametrize("value", [2**63 - 1, -(2**63) + 1, 2**70, None, "x"])
def test_other_numbers_of_an_op(tmp_path: Path, name: str, value: object) -> None:
    draw_all(tmp_path, {name: value}, on_all=True)
