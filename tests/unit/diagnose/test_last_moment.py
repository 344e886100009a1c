"""The session as it was when the first op failed."""

from distdbg.diagnose.finding import FindingKind
from distdbg.diagnose.last_moment import last_moment, matched_at
from distdbg.diagnose.matching import match
from distdbg.diagnose.ops import IN_FLIGHT, NEVER
from distdbg.diagnose.session import GroupProgress
from distdbg.diagnose.verdict import diagnose
from distdbg.record.format import Exit, Status
from distdbg.record.rank_state import RankState
from tests.unit.diagnose.whole_verdict import kinds, trained


def test_a_session_without_failures_is_its_own_last_moment() -> None:
    session = trained(2).session
    assert last_moment(session) is session


def test_at_the_last_moment_what_came_later_is_not_there() -> None:
    build = trained(3)
    build.op(0, "barrier", at_s=10, ended_s=40, status=Status.TIMEOUT)
    build.exit(0, Exit.RAISED, at_s=40.1, what="OpTimeout: it")
    build.op(1, "barrier", at_s=39, ended_s=41)
    build.op(1, "all_reduce", at_s=42, ended_s=43)
    build.op(1, "send", peer=0, at_s=44)
    build.seen(1, RankState.RUNNING, since_s=42)
    build.seen(2, RankState.STOPPED, since_s=5)
    build.session.ranks[2].progress[0] = GroupProgress(
        issued_seq=1, ended_seq=1, closed_ns=50 * 10**9, broken="it"
    )
    moment = last_moment(build.session)
    assert (moment.now_ns, moment.cut, moment.is_live) == (40 * 10**9, Status.TIMEOUT, True)
    zero, one, two = (moment.ranks[rank] for rank in range(3))
    assert list(zero.ops.status) == [0, IN_FLIGHT]
    assert list(zero.ops.ended_ns)[1] == list(zero.ops.started_ns)[1] == NEVER
    assert (zero.exit, zero.exit_ns, zero.exit_what) == (None, NEVER, "")
    assert zero.progress[0] == GroupProgress(issued_seq=2, ended_seq=1)
    assert list(one.ops.status) == [0, IN_FLIGHT]
    assert one.progress[0] == GroupProgress(issued_seq=2, ended_seq=1)
    assert one.activity is None
    assert two.activity is not None
    assert two.progress[0] == GroupProgress(issued_seq=1, ended_seq=1)
    assert matched_at(match(build.session), build.session, moment) == match(moment)
    # The session itself is as it was.
    assert list(build.session.ranks[0].ops.status) == [0, Status.TIMEOUT]
    assert len(build.session.ranks[1].ops) == 4


def test_a_group_of_which_nothing_was_called_before_the_last_moment_is_not_matched() -> None:
    build = trained(2)
    build.group("late", (0, 1))
    build.op(0, "barrier", at_s=10, ended_s=40, status=Status.TIMEOUT)
    build.op(1, "barrier", group="late", at_s=50)
    moment = last_moment(build.session)
    matched = matched_at(match(build.session), build.session, moment)
    assert 1 not in matched.of(1).by_rank
    assert matched.of(0).by_rank[0].last_seq == 2


def test_an_op_that_ended_well_within_the_error_of_the_clocks_has_ended() -> None:
    build = trained(2)
    build.session.ranks[1].clock_error_ns = 2 * 10**9
    build.op(0, "barrier", at_s=10, ended_s=40, status=Status.TIMEOUT)
    build.op(1, "send", peer=0, at_s=10, ended_s=41)
    build.op(1, "recv", peer=0, at_s=11, ended_s=39, status=Status.TIMEOUT)
    moment = last_moment(build.session)
    assert list(moment.ranks[1].ops.status) == [0, 0, IN_FLIGHT]


def test_a_thread_that_went_on_after_an_asynchronous_op_did_not_wait_for_it() -> None:
    build = trained(2)
    for rank in range(2):
        build.op(
            rank, "recv", peer=1 - rank, at_s=10, ended_s=40, status=Status.TIMEOUT, is_async=True
        )
        build.op(rank, "send", peer=1 - rank, tag=9, at_s=20, ended_s=21)
    moment = last_moment(build.session)
    assert [log.work_waits for log in moment.ranks.values()] == [(), ()]
    assert FindingKind.DEADLOCK not in kinds(diagnose(build.session))


def test_a_wait_that_is_known_is_kept() -> None:
    build = trained(2)
    op = build.op(0, "recv", peer=1, at_s=10, ended_s=40, status=Status.TIMEOUT, is_async=True)
    build.wait(op, since_s=30)
    later = build.op(0, "recv", peer=1, at_s=50, is_async=True)
    build.wait(later, since_s=51)
    moment = last_moment(build.session)
    assert [wait.since_ns for wait in moment.ranks[0].work_waits] == [30 * 10**9]


def test_of_several_ops_in_flight_a_thread_had_waited_for_the_one_that_failed_first() -> None:
    build = trained(4)
    for rank in range(4):
        for peer, ended_s in ((rank - 1) % 4, 31), ((rank + 1) % 4, 30):
            build.op(
                rank,
                "recv",
                peer=peer,
                at_s=10,
                ended_s=ended_s,
                status=Status.ABORTED,
                is_async=True,
            )
    root = diagnose(build.session).root
    assert root is not None
    assert (root.kind, root.ranks) == (FindingKind.DEADLOCK, (0, 1, 2, 3))
    reported = [one.text for one in root.evidence if one.rank == 0]
    assert reported == ["rank 0 waits in recv from rank 1 on group 'world'"]


def test_a_thread_waited_for_a_failed_op_also_where_one_that_was_begun_behind_it_never_ended() -> (
    None
):
    """As a batch of an isend and an irecv over gloo: after the first one failed, nobody ends the second."""
    build = trained(2)
    for rank in range(2):
        aborted = {"at_s": 10, "ended_s": 40, "status": Status.ABORTED}
        build.op(rank, "send", peer=1 - rank, tag=rank, is_async=True, **aborted)
        build.op(rank, "recv", peer=1 - rank, tag=5, at_s=11, is_async=True)
    moment = last_moment(build.session)
    assert [[wait.number for wait in log.work_waits] for log in moment.ranks.values()] == [[2], [2]]


def test_an_error_that_the_job_got_over_is_no_last_moment() -> None:
    build = trained(1)
    build.op(0, "barrier", at_s=2, ended_s=3, status=Status.TIMEOUT)
    build.op(0, "barrier", at_s=4, ended_s=5)
    assert last_moment(build.session) is build.session
