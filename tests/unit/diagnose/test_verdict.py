"""The cause before what follows from it, and a role for each rank."""

import random
from typing import Any

import pytest

from distdbg.diagnose.finding import Evidence, Finding, FindingKind, Severity, Verdict
from distdbg.diagnose.session import RankLog, Session
from distdbg.diagnose.verdict import diagnose
from distdbg.record.format import Exit, Status
from distdbg.record.rank_state import RankState
from tests.support.session_builder import SessionBuilder
from tests.unit.diagnose.whole_verdict import (
    BYSTANDER,
    ROOT,
    VICTIM,
    give_up,
    kinds,
    roles,
    trained,
    words,
)


def test_a_healthy_run_has_no_fault() -> None:
    verdict = diagnose(trained(4).session)
    assert verdict.what == "no fault found in 4 ranks and 4 ops"
    assert (verdict.root, verdict.findings, verdict.lacks) == (None, (), ())
    assert roles(verdict) == [BYSTANDER] * 4
    assert not verdict.has_faults


def test_an_empty_session_says_that_nothing_is_known() -> None:
    build = SessionBuilder(2)
    build.lose(0, 1)
    verdict = diagnose(build.session)
    assert verdict.what == "no fault found in 0 ranks and 0 ops; nothing is known of ranks 0-1"
    assert verdict.lacks == ("nothing is known of ranks 0-1: no record of it was read",)


def test_nobody_is_called_healthy_by_the_word_of_others_alone() -> None:
    build = trained(4)
    for rank in range(4):
        build.end(rank, at_s=2.2, cause="exited", exit_code=0)
    for rank in (1, 2):
        log = build.session.ranks[rank]
        build.session.ranks[rank] = RankLog(rank=rank, host=log.host, pid=log.pid, end=log.end)
    some = diagnose(build.session)
    assert some.what == (
        "no fault found in 4 ranks and 2 ops; no record of ranks 1-2 could be read"
    )
    build.lose(0, 3)
    build.session.world_size = 0
    none = diagnose(build.session)
    assert none.what == "no record of ranks 1-2 could be read: only their ends are known"


def test_a_death_explains_the_ranks_that_lost_it() -> None:
    build = trained(4)
    build.end(2, at_s=2.2, cause="signal", signal=9)  # written down after others had noticed
    for rank in (0, 1, 3):
        lost = words("PeerLost", "rank 2 was killed", [2], how="was killed")
        build.op(rank, "all_reduce", at_s=1.5, ended_s=2.1, status=Status.PEER_LOST, error=lost)
        build.exit(rank, Exit.RAISED, at_s=2.3, what="PeerLost: rank 2 was killed")
    verdict = diagnose(build.session)
    assert kinds(verdict) == [FindingKind.DEAD_RANK]
    assert verdict.root is not None
    assert verdict.root.ranks == (2,)
    assert [finding.kind for finding in verdict.root.follows] == [FindingKind.FAILED_OP]
    assert roles(verdict) == [VICTIM, VICTIM, ROOT, VICTIM]


def test_who_lost_a_rank_that_had_lost_another_follows_from_the_first() -> None:
    build = trained(4)
    build.group("a", (0, 1))
    build.group("b", (1, 2))
    build.end(0, at_s=2, cause="signal", signal=11)
    for rank, group, peer in ((1, "a", 0), (2, "b", 1)):
        build.op(
            rank,
            "barrier",
            group=group,
            at_s=1.5,
            ended_s=2 + rank / 10,
            status=Status.PEER_LOST,
            error=words("PeerLost", f"rank {peer} is gone", [peer], how="is gone"),
        )
        build.exit(rank, Exit.RAISED, at_s=2 + rank / 10, what="PeerLost: it")
    verdict = diagnose(build.session)
    assert kinds(verdict) == [FindingKind.DEAD_RANK]
    assert roles(verdict) == [ROOT, VICTIM, VICTIM, BYSTANDER]


def test_a_cycle_of_messages_that_timed_out_is_still_a_deadlock() -> None:
    build = trained(4)
    give_up(build, 0, "recv", peer=1, at_s=60, ended_s=90, on=[1], site="a.py:1 (f)")
    give_up(build, 1, "recv", peer=0, at_s=61, ended_s=91, on=[0], site="a.py:2 (f)")
    for rank in (2, 3):
        give_up(build, rank, "barrier", at_s=62, ended_s=92, on=[0, 1], site="a.py:3 (f)")
    verdict = diagnose(build.session)
    assert kinds(verdict) == [FindingKind.DEADLOCK]
    assert verdict.root is not None
    assert verdict.root.ranks == (0, 1)
    assert [edge.site for edge in verdict.root.edges] == ["a.py:1 (f)", "a.py:2 (f)"]
    assert {finding.kind for finding in verdict.root.follows} == {FindingKind.FAILED_OP}
    assert roles(verdict) == [ROOT, ROOT, VICTIM, VICTIM]


def test_a_cycle_of_asynchronous_messages_that_timed_out_is_a_deadlock() -> None:
    build = trained(2)
    for rank in range(2):
        for kind in ("recv", "recv"):
            give_up(build, rank, kind, peer=1 - rank, at_s=60, ended_s=90, on=[1], is_async=True)
    verdict = diagnose(build.session)
    assert kinds(verdict) == [FindingKind.DEADLOCK]


def test_ranks_that_timed_out_one_after_the_other_were_in_no_deadlock() -> None:
    """Rank 0 had given up before rank 1 came to wait for it."""
    build = trained(2)
    give_up(build, 0, "recv", peer=1, at_s=10, ended_s=40, on=[1])
    give_up(build, 1, "recv", peer=0, at_s=41, ended_s=71, on=[0])
    verdict = diagnose(build.session)
    assert verdict.root is not None
    assert (verdict.root.kind, verdict.root.ranks) == (FindingKind.MISSING_RANK, (1,))
    assert verdict.lacks == ("no agent saw what rank 1 did after the last op",)


def test_a_rank_that_came_too_late_is_missing_although_it_came_in_the_end() -> None:
    build = trained(4)
    for rank in (1, 2, 3):
        give_up(build, rank, "barrier", at_s=60, ended_s=90, on=[0])
    build.op(
        0, "barrier", at_s=95, ended_s=95, status=Status.PEER_LOST, error=words("PeerLost", "", [1])
    )
    build.exit(0, Exit.RAISED, at_s=95.1, what="PeerLost: it")
    verdict = diagnose(build.session)
    assert verdict.what == (
        "rank 0 came too late to barrier #2 on group 'world', in which ranks 1-3 waited for 30 s"
    )
    assert kinds(verdict) == [FindingKind.MISSING_RANK]
    assert roles(verdict) == [ROOT, VICTIM, VICTIM, VICTIM]


def test_a_rank_that_left_explains_those_who_were_left() -> None:
    build = trained(3)
    build.exit(2, Exit.RETURNED, at_s=2)
    build.end(2, at_s=2.1, cause="exited", exit_code=0)
    for rank in (0, 1):
        left = words("RankLeft", "rank 2 left", [2], how="left (it returned)")
        build.op(rank, "barrier", at_s=1.5, ended_s=2.05, status=Status.PEER_LOST, error=left)
        build.exit(rank, Exit.RAISED, at_s=2.1, what="RankLeft: rank 2 left")
    verdict = diagnose(build.session)
    assert (
        verdict.what
        == "rank 2 returned while ranks 0-1 waited for it in barrier #2 on group 'world'"
    )
    assert kinds(verdict) == [FindingKind.MISSING_RANK]
    assert roles(verdict) == [VICTIM, VICTIM, ROOT]


def test_a_mismatch_explains_the_hang_and_the_exits_after_it() -> None:
    build = trained(4)
    for rank in range(4):
        build.op(
            rank,
            "all_reduce",
            at_s=2,
            ended_s=2.1,
            site="a.py:3 (f)",
            inputs=[(5 if rank == 3 else 4,)],
        )
    for rank in (0, 1, 2):
        give_up(build, rank, "barrier", at_s=3, ended_s=33, on=[3])
    verdict = diagnose(build.session)
    assert kinds(verdict) == [FindingKind.MISMATCH]
    assert verdict.root is not None
    assert (verdict.root.ranks, verdict.root.severity) == ((3,), Severity.ERROR)
    assert {f.kind for f in verdict.root.follows} == {
        FindingKind.MISSING_RANK,
        FindingKind.FAILED_OP,
    }
    assert roles(verdict) == [VICTIM, VICTIM, VICTIM, ROOT]


def test_a_mismatch_that_all_ranks_raised_needs_no_further_finding() -> None:
    build = trained(3)
    what = "barrier #2 on group 'world' differs between ranks"
    for rank in range(3):
        said = words("MismatchError", what, [1], seq=2, group="world")
        build.op(rank, "barrier", at_s=2, ended_s=2, status=Status.MISMATCH, error=said)
        build.exit(rank, Exit.RAISED, at_s=2.1, what=f"MismatchError: {what}")
        build.end(rank, at_s=2.2, cause="exited", exit_code=1)
    verdict = diagnose(build.session)
    assert kinds(verdict) == [FindingKind.MISMATCH]
    assert roles(verdict) == [VICTIM, ROOT, VICTIM]


def test_without_a_majority_all_are_victims_and_the_verdict_says_what_it_lacks() -> None:
    build = SessionBuilder(2)
    build.op(0, "barrier", at_s=1)
    build.op(1, "gather", at_s=1)
    verdict = diagnose(build.session)
    assert roles(verdict) == [VICTIM, VICTIM]
    assert "no side of the mismatch has a majority" in verdict.lacks[0]


def test_a_checkpoint_is_a_stall_and_no_fault() -> None:
    build = trained(4, is_live=True)
    for rank in (1, 2, 3):
        build.op(rank, "barrier", at_s=88)
    build.seen(0, RankState.RUNNING, since_s=88, site="save.py:7 (save)")
    verdict = diagnose(build.session)
    assert verdict.what.startswith(
        "ranks 1-3 wait for rank 0, running in save() at save.py:7 for 12 s"
    )
    assert not verdict.has_faults
    assert roles(verdict) == [ROOT, VICTIM, VICTIM, VICTIM]


def test_a_stuck_rank_explains_the_timeouts_of_the_others() -> None:
    build = trained(3)
    build.seen(0, RankState.STOPPED, since_s=50, why="SIGSTOP")
    for rank in (1, 2):
        give_up(build, rank, "barrier", at_s=60, ended_s=90, on=[0])
    verdict = diagnose(build.session)
    assert kinds(verdict) == [FindingKind.STUCK_RANK]
    assert roles(verdict) == [ROOT, VICTIM, VICTIM]


def test_a_hang_that_a_person_ended_is_a_hang() -> None:
    build = trained(2)
    for rank in range(2):
        build.op(
            rank,
            "recv",
            peer=1 - rank,
            at_s=60,
            ended_s=90,
            status=Status.INTERRUPTED,
        )
        build.exit(rank, Exit.RAISED, at_s=90.1, what="KeyboardInterrupt")
    verdict = diagnose(build.session)
    assert kinds(verdict) == [FindingKind.DEADLOCK]
    assert verdict.root is not None
    assert FindingKind.STOPPED in [finding.kind for finding in verdict.root.follows]


def test_a_hang_whose_ranks_were_all_killed_in_it_is_a_hang() -> None:
    build = trained(2)
    for rank in range(2):
        build.op(rank, "recv", peer=1 - rank, at_s=60)
        build.end(rank, at_s=90, cause="signal", signal=9, was_asked=True)
    verdict = diagnose(build.session)
    assert kinds(verdict) == [FindingKind.DEADLOCK]
    assert roles(verdict) == [ROOT, ROOT]


def test_a_healthy_job_that_was_ended_in_an_op_is_stopped_and_not_hung() -> None:
    build = trained(4)
    aborted = words("JobAborted", "the job was aborted by ada: enough")
    for rank in (1, 2, 3):
        build.op(rank, "barrier", at_s=89, ended_s=90, status=Status.ABORTED, error=aborted)
        build.exit(rank, Exit.RAISED, at_s=90.1, what="JobAborted: the job was aborted by ada")
    verdict = diagnose(build.session)
    assert kinds(verdict) == [FindingKind.STOPPED]
    assert verdict.what == (
        "the job was aborted by ada: enough; ranks 1-3 had waited 1.0 s for rank 0, "
        "which no agent saw"
    )


def test_ranks_that_the_launcher_ended_because_of_another_are_victims() -> None:
    build = trained(3)
    build.exit(1, Exit.RAISED, at_s=2, what="ValueError: no data", where="a.py:1 (f)")
    build.end(1, at_s=2.1, cause="exited", exit_code=1)
    build.end(0, at_s=2.5, cause="signal", signal=15, was_asked=True)
    build.end(2, at_s=2.5, cause="signal", signal=15)  # by a launcher that leaves no word
    verdict = diagnose(build.session)
    assert kinds(verdict) == [FindingKind.DEAD_RANK]
    assert roles(verdict) == [VICTIM, ROOT, VICTIM]


def test_of_two_deaths_the_first_is_the_root_when_the_clocks_can_tell() -> None:
    build = trained(4)
    build.end(3, at_s=2, cause="signal", signal=11)
    build.end(0, at_s=3, cause="exited", exit_code=4)
    verdict = diagnose(build.session)
    assert [finding.ranks for finding in verdict.findings] == [(3,), (0,)]
    assert roles(verdict) == [BYSTANDER, BYSTANDER, BYSTANDER, ROOT]


def test_times_within_the_error_of_the_clocks_do_not_decide() -> None:
    build = trained(4)
    for rank, log in build.session.ranks.items():
        log.host, log.clock_error_ns = f"n{rank}", 10**9
    for rank in range(4):
        build.op(rank, "broadcast" if rank == 3 else "barrier", at_s=3.5)
    build.end(0, at_s=3, cause="exited", exit_code=4)
    verdict = diagnose(build.session)
    assert kinds(verdict)[:2] == [FindingKind.MISMATCH, FindingKind.DEAD_RANK]


def test_clocks_that_nobody_compared_are_lacking() -> None:
    build = trained(2)
    build.session.ranks[1].host = "n02"
    build.session.ranks[1].lost = {"gaps": 2}
    build.end(1, at_s=3, cause="exited", exit_code=4)
    assert diagnose(build.session).lacks == (
        "parts of the record of rank 1 cannot be read",
        "the clocks of the hosts were not compared: the order of events is uncertain",
    )


def test_an_unknown_rank_is_no_root_and_what_is_missing_is_said() -> None:
    build = trained(4)
    build.lose(3)
    for rank in range(3):
        build.op(rank, "barrier", at_s=88)
    verdict = diagnose(build.session)
    assert verdict.what == (
        "nothing is known of rank 3, for which ranks 0-2 waited in barrier #2 on group 'world'"
    )
    assert roles(verdict) == [VICTIM, VICTIM, VICTIM, BYSTANDER]
    assert verdict.lacks == ("nothing is known of rank 3: no record of it was read",)


def test_what_logs_say_joins_what_was_found_and_stands_alone_otherwise() -> None:
    build = trained(2)
    build.end(1, at_s=3, cause="oom", signal=9)
    log = Evidence(text="Out of memory: Killed process 1001", source="dmesg.log:8")
    build.session.said = [
        Finding(
            kind=FindingKind.DEAD_RANK,
            severity=Severity.ERROR,
            what="rank 1 was killed for memory",
            ranks=(1,),
            evidence=(log,),
        ),
        Finding(kind=FindingKind.SLOW_HOST, severity=Severity.NOTE, what="n01 throttles"),
    ]
    verdict = diagnose(build.session)
    assert kinds(verdict) == [FindingKind.DEAD_RANK, FindingKind.SLOW_HOST]
    assert verdict.root is not None
    assert verdict.root.evidence[-1] == log


def test_a_note_alone_is_no_root() -> None:
    build = trained(2)
    build.session.said = [
        Finding(kind=FindingKind.SLOW_HOST, severity=Severity.NOTE, what="n01 throttles")
    ]
    verdict = diagnose(build.session)
    assert verdict.root is None
    assert verdict.what == "no fault found in 2 ranks and 2 ops"


def test_an_error_that_names_a_rank_that_had_one_follows_from_it() -> None:
    build = trained(3)
    build.op(0, "barrier", at_s=2, ended_s=3, status=Status.NETWORK)
    build.op(
        1, "barrier", at_s=2, ended_s=4, status=Status.NETWORK, error=words("PeerLost", "", [0])
    )
    verdict = diagnose(build.session)
    failed = [f for f in verdict.findings if f.kind is FindingKind.FAILED_OP]
    assert [finding.victims for finding in failed] == [(0,)]
    assert [finding.victims for finding in failed[0].follows] == [(1,)]


def test_a_hang_that_began_after_a_caught_error_is_found_as_well() -> None:
    build = trained(3, is_live=True)
    build.op(0, "barrier", at_s=2, ended_s=32, status=Status.TIMEOUT, error=words("OpTimeout"))
    for rank in (1, 2):
        build.op(rank, "recv", peer=3 - rank, at_s=50)
    assert FindingKind.DEADLOCK in kinds(diagnose(build.session))


SCENES = [
    test_a_death_explains_the_ranks_that_lost_it,
    test_a_cycle_of_messages_that_timed_out_is_still_a_deadlock,
    test_a_mismatch_explains_the_hang_and_the_exits_after_it,
    test_who_lost_a_rank_that_had_lost_another_follows_from_the_first,
    test_ranks_that_the_launcher_ended_because_of_another_are_victims,
    test_a_hang_that_a_person_ended_is_a_hang,
]


@pytest.mark.parametrize("scene", SCENES)
def test_the_order_in_which_ranks_were_read_changes_nothing(
    scene: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def keep(session: Session) -> Verdict:
        seen.append(session)
        return real(session)

    real = diagnose
    monkeypatch.setitem(scene.__globals__, "diagnose", keep)
    scene()
    monkeypatch.undo()
    (session,) = seen
    first = diagnose(session)
    for seed in range(10):
        order = list(session.ranks)
        random.Random(seed).shuffle(order)
        session.ranks = {rank: session.ranks[rank] for rank in order}
        assert diagnose(session) == first


def test_a_nan_that_all_ranks_raise_is_the_fault_of_its_source() -> None:
    build = trained(3)
    for rank in range(3):
        nan = words("NonFiniteError", "NaN in the input of rank 2", [2], seq=2, group="world")
        build.op(rank, "all_reduce", at_s=2, ended_s=2.1, status=Status.NONFINITE, error=nan)
        build.found(
            rank,
            "NonFiniteError",
            "NaN in the input of rank 2",
            at_s=2.1,
            ranks=(2,),
            seq=2,
            group="world",
        )
        build.exit(rank, Exit.RAISED, at_s=2.2, what="NonFiniteError: NaN in the input of rank 2")
        build.end(rank, at_s=2.3, cause="exited", exit_code=1)
    verdict = diagnose(build.session)
    assert kinds(verdict) == [FindingKind.NAN_SOURCE]
    assert verdict.roles[2] is ROOT


def test_what_a_rank_left_behind_hangs_below_the_hang_that_it_caused() -> None:
    build = trained(2, is_live=True)
    build.op(0, "barrier", at_s=2)
    build.op(1, "recv", peer=0, at_s=3, is_async=True)
    build.exit(1, Exit.RETURNED, at_s=4)
    verdict = diagnose(build.session)
    assert kinds(verdict) == [FindingKind.MISSING_RANK]
    assert verdict.root is not None
    assert FindingKind.LEAKED_WORK in [finding.kind for finding in verdict.root.follows]


def test_a_rank_that_came_after_the_others_had_given_up_came_too_late() -> None:
    build = trained(3)
    for rank in (0, 2):
        words_of = words("OpTimeout", "waited 2.0 s for rank 1", [1])
        build.op(
            rank, "barrier", at_s=2, ended_s=4, status=Status.TIMEOUT, error=words_of,
            site="train.py:9 (run)",
        )  # fmt: skip
    build.op(1, "barrier", at_s=5, ended_s=5.1, status=Status.BROKEN, site="train.py:9 (run)")
    root = diagnose(build.session).root
    assert root is not None
    assert root.what.startswith(
        "rank 1 came too late to barrier #2 on group 'world', in which ranks 0,2"
    )
    last = root.evidence[-1]
    assert (last.text, last.site) == (
        "rank 1 called it when the others had given up", "train.py:9 (run)",
    )  # fmt: skip
