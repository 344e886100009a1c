from __future__ import annotations

from distdbg.diagnose.find import missing_records as lost
from distdbg.diagnose.finding import Finding, FindingKind, Severity
from distdbg.diagnose.matching import match
from distdbg.diagnose.session import Session
from tests.support.session_builder import SessionBuilder


def find(session: Session) -> list[Finding]:
    return lost.find(session, match(session), {})


def test_ranks_without_a_record_are_named() -> None:
    build = SessionBuilder(world_size=4)
    build.lose(1, 2)

    (finding,) = find(build.session)

    assert finding.kind is FindingKind.RECORDING_LOST
    assert finding.severity is Severity.NOTE
    assert finding.ranks == (1, 2)


def test_words_that_found_no_room_are_counted_over_all_ranks() -> None:
    build = SessionBuilder(world_size=2)
    for log in build.session.ranks.values():
        log.lost = {"strings": 3}

    (finding,) = find(build.session)

    assert finding.what == "ranks 0-1 lost 6 names and messages that did not fit"


def test_a_ring_that_has_come_round_is_no_loss() -> None:
    build = SessionBuilder(world_size=2)
    for rank, log in build.session.ranks.items():
        build.op(rank, "all_reduce", seq=500, at_s=1.0, ended_s=1.1)
        log.lost = {"ops": 499}

    assert find(build.session) == []


def test_it_is_one_where_somebody_is_in_an_op_that_is_overwritten_elsewhere() -> None:
    build = SessionBuilder(world_size=2)
    build.op(0, "broadcast", seq=7, at_s=1.0)
    build.op(1, "broadcast", seq=5000, at_s=9.0, ended_s=9.1)
    build.session.ranks[1].lost = {"ops": 4000}

    (finding,) = find(build.session)

    assert finding.what == "rank 1 went on so far that op #7 on group 'world' was overwritten"


def test_clocks_of_hosts_that_nobody_has_compared_are_named() -> None:
    build = SessionBuilder(world_size=2)
    build.session.ranks[1].host = "n02"

    (finding,) = find(build.session)

    assert finding.ranks == (0, 1)
    assert finding.what.startswith("the clocks of 2 hosts were not compared")


def test_clocks_that_were_compared_are_not() -> None:
    build = SessionBuilder(world_size=2)
    build.session.ranks[1].host = "n02"
    build.session.ranks[1].clock_error_ns = 1000

    assert find(build.session) == []


def test_a_rank_whose_end_alone_is_known_left_no_record_unless_that_is_the_fault() -> None:
    build = SessionBuilder(3)
    build.end(1, at_s=1.0, cause="exited", exit_code=0)
    build.end(2, at_s=1.0, cause="signal", signal=9)
    for rank in (1, 2):
        build.session.ranks[rank].source = ""
    (note,) = find(build.session)
    assert note.what == "rank 1 of 3 left no record that could be read"


def test_where_nobody_knows_how_many_there_were_no_number_is_made_up() -> None:
    build = SessionBuilder(1)
    build.end(0, at_s=1.0, cause="exited", exit_code=0)
    build.session.ranks[0].source = ""
    build.session.world_size = 0
    (note,) = find(build.session)
    assert note.what == "no record of rank 0 could be read: only their ends are known"


def test_where_nothing_can_be_read_of_anybody_it_is_more_than_a_note() -> None:
    build = SessionBuilder(world_size=2)
    for rank, log in build.session.ranks.items():
        log.source = ""
        build.end(rank, at_s=5, cause="exited", exit_code=0)

    (finding,) = find(build.session)

    assert (finding.ranks, finding.severity) == ((0, 1), Severity.WARNING)


def test_where_all_ended_well_and_none_has_begun_nothing_is_lost() -> None:
    build = SessionBuilder(world_size=2)
    build.session.has_begun = False
    for rank, log in build.session.ranks.items():
        log.source = ""
        build.end(rank, at_s=5, cause="exited", exit_code=0)

    assert find(build.session) == []

    build.session.world_size = 3  # of rank 2 nothing is known
    (finding,) = find(build.session)
    assert finding.severity is Severity.WARNING


def test_a_rank_of_several_that_has_not_begun_is_one_without_a_record() -> None:
    build = SessionBuilder(world_size=2)
    build.session.ranks[1].source = ""
    build.end(1, at_s=5, cause="exited", exit_code=0)

    (finding,) = find(build.session)

    assert finding.what == "rank 1 of 2 left no record that could be read"
