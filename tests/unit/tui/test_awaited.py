"""Who has not called what others wait in: by the rows, and by the verdict when all is over."""

from dataclasses import replace

from distdbg.diagnose.finding import Edge, Finding, FindingKind, Severity, Verdict
from distdbg.record.rank_state import RankState
from distdbg.tui.views.ops import not_called
from distdbg.view.snapshot import GroupRow, RankRow, Snapshot

OP = "all_reduce #5 on group 'dp'"


def job(*seqs: int, waits: tuple[int, ...] = (), op: str = OP) -> Snapshot:
    rows = {
        rank: RankRow(
            rank=rank,
            state=RankState.WAITING if rank in waits else RankState.RUNNING,
            op=op if rank in waits else "",
            seqs=(("dp", seq),),
        )
        for rank, seq in enumerate(seqs)
    }
    group = GroupRow(name="3", label="dp", ranks=tuple(rows), issued=dict(enumerate(seqs)))
    return Snapshot(ranks=rows, groups=(group,))


def test_who_has_not_called_is_named_and_not_those_who_have() -> None:
    assert not_called(job(5, 5, 4, waits=(0, 1))) == {("3", "all_reduce"): (2,)}


def test_the_name_that_an_op_has_in_the_program_is_no_part_of_its_group() -> None:
    found = job(5, 5, 4, waits=(0, 1), op=f"{OP} (backward of all_reduce at train.py:5)")
    assert not_called(found) == {("3", "all_reduce"): (2,)}


def test_while_nobody_waits_nobody_is_named() -> None:
    assert not_called(job(5, 5, 4)) == {}
    assert not_called(job(5, 5, 5, waits=(0,))) == {}


def test_when_the_job_is_over_the_verdict_says_who_never_called() -> None:
    root = Finding(
        kind=FindingKind.MISSING_RANK, severity=Severity.ERROR, what="", ranks=(2,),
        edges=(Edge(rank=0, on=(2,), text=OP),),
    )  # fmt: skip
    verdict = Verdict(what="", root=root, findings=(root,), roles={})
    over = replace(job(5, 5, 4), verdict=verdict, lines=("rank 2 never called it",))
    assert not_called(over) == {("3", "all_reduce"): (2,)}
