"""When errors were, and whether ops went well since: read from the records, as far as they go back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from distdbg.agent.judging.error_times import ErrorTimes, last_good
from distdbg.follow.findings import Findings
from distdbg.follow.roster import Roster
from distdbg.record.folders import record_name
from distdbg.record.format import EventType, Status
from tests.support.record_builder import RecordBuilder


class Host:
    """One rank, whose record grows."""

    def __init__(self, folder: Path, **facts: Any) -> None:
        self._path = folder / record_name(0)
        facts = {"ring_count": 64, "text_count": 8, "host": "n14"} | facts
        # No process has this number.
        self.builder = RecordBuilder(rank=0, world_size=2, pid=2**22 + 1, **facts)
        self.group = self.builder.add_group("dp", ranks="0-1", size=2, rank=0)
        self.roster = Roster(folder, "n14")
        self.findings = Findings()
        self.dates = ErrorTimes()

    def op(self, at_ns: int, status: Status = Status.OK) -> None:
        number = self.builder.issue("all_reduce", at_ns=at_ns)
        self.builder.end(number, after_ns=1, status=status)

    def error(self, what: str, at_ns: int) -> None:
        self.builder.find(json.dumps({"type": "MismatchError", "what": what}), at_ns=at_ns)

    def look(self) -> list[tuple[str, int | None]]:
        """What was found, and when."""
        data = self.builder.to_bytes()
        with self._path.open("r+b" if self._path.exists() else "wb") as file:
            file.write(data)
        self.roster.settle(10**18)
        watched = self.roster.watched_ranks[0]
        assert watched.record is not None
        watched.pulse = watched.record.pulse()  # of a process that is gone it is read once
        self.findings.look(self.roster)
        found = self.dates.put(self.findings.since(0), self.roster.watched_ranks)
        return [(reported["what"], reported.get("at_ns")) for reported in found]

    def last_good(self) -> dict[int, int]:
        return last_good(self.findings.since(0), self.roster.watched_ranks)


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    found = Host(tmp_path)
    yield found
    found.roster.close()


def test_errors_have_the_times_at_which_the_rank_wrote_them(host: Host) -> None:
    host.op(100)
    host.error("one", 200)
    host.error("other", 300)
    assert host.look() == [("one", 200), ("other", 300)]
    host.error("third", 400)
    assert host.look() == [("one", 200), ("other", 300), ("third", 400)]


def test_an_error_that_comes_again_has_the_time_of_the_last(host: Host) -> None:
    host.error("one", 200)
    assert host.look() == [("one", 200)]
    host.error("one", 900)
    assert host.look() == [("one", 900), ("one", 900)]


def test_words_whose_entry_is_not_written_yet_get_their_time_later(host: Host) -> None:
    host.error("one", 200)
    text = json.dumps({"type": "MismatchError", "what": "late"})
    number = host.builder.add_text(text)
    assert host.look() == [("one", 200), ("late", None)]
    host.builder.write_event(EventType.FINDING, issued_ns=300, text=number)
    assert host.look() == [("one", 200), ("late", 300)]


def test_what_is_older_than_all_that_a_record_has_is_left_out(tmp_path: Path) -> None:
    host = Host(tmp_path, ring_count=16)
    host.error("old", 200)
    for at_ns in range(1000, 1040):
        host.op(at_ns)
    host.error("new", 2000)
    assert host.look() == [("new", 2000)]
    host.roster.close()


def test_the_last_op_that_went_well_is_known_of_ranks_that_had_errors(host: Host) -> None:
    host.op(100)
    host.look()
    assert host.last_good() == {}
    host.error("one", 200)
    host.op(300)
    for at_ns in range(400, 450):
        host.op(at_ns, Status.TIMEOUT)
    host.builder.issue("all_reduce", at_ns=500)
    host.look()
    assert host.last_good() == {0: 300}


def test_where_no_op_went_well_there_is_no_last_one(host: Host) -> None:
    host.op(100, Status.MISMATCH)
    host.error("one", 200)
    host.look()
    assert host.last_good() == {}
