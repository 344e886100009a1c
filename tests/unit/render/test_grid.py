"""The op where it happened, as ranks by ops."""

from __future__ import annotations

from dataclasses import replace

import render_examples as examples

from distdbg.diagnose.finding import Evidence, Finding, FindingKind, Severity
from distdbg.diagnose.session import GroupProgress
from distdbg.render.grid import GridCell, make_grid, place_of_finding
from tests.support.session_builder import SessionBuilder

DONE, IN, NOT_COME, DIFFERS = GridCell.DONE, GridCell.IN, GridCell.NOT_COME, GridCell.DIFFERS


def test_ranks_that_did_the_same_are_one_row_with_those_to_blame_first() -> None:
    session, verdict = examples.missing_rank(4096, 77)
    assert place_of_finding(session, verdict.root) == (0, 4)
    grid = make_grid(session, 0, 4, blamed=(77,))
    assert grid.seqs == (1, 2, 3, 4)
    assert [(len(row.ranks), row.cells) for row in grid.rows] == [
        (1, (DONE, DONE, DONE, NOT_COME)),
        (4095, (DONE, DONE, DONE, IN)),
    ]


def test_a_rank_that_called_something_else_differs_and_says_what() -> None:
    build = SessionBuilder(world_size=4)
    for rank in range(4):
        build.op(rank, "all_gather" if rank == 2 else "all_reduce")
    grid = make_grid(build.session, 0, 1, blamed=(2,))
    assert [(row.ranks, row.cells, row.calls) for row in grid.rows] == [
        ((2,), (DIFFERS,), ("all_gather",)),
        ((0, 1, 3), (IN,), ("",)),
    ]
    assert grid.names == ("all_reduce",)


def test_of_two_ranks_the_one_to_blame_differs() -> None:
    build = SessionBuilder(world_size=2)
    build.op(0, "all_reduce", inputs=[(4,)], dtype="float32")
    build.op(1, "all_reduce", inputs=[(5,)], dtype="float32")
    for guilty in (0, 1):
        [first, second] = make_grid(build.session, 0, 1, blamed=(guilty,)).rows
        assert (first.ranks, first.cells) == ((guilty,), (DIFFERS,))
        assert first.calls == (f"float32[{4 + guilty}]",)
        assert second.cells == (IN,)


def test_fingerprints_tell_more_than_forms() -> None:
    build = SessionBuilder(world_size=3)
    for rank in range(3):
        build.op(rank, "all_gather", inputs=[(rank,)], fingerprint=7)
    assert [row.cells for row in make_grid(build.session, 0, 1).rows] == [(IN,)]
    build.op(0, "all_gather", fingerprint=8)
    build.op(1, "all_gather", fingerprint=9)
    build.op(2, "all_gather", fingerprint=9)
    assert [row.cells for row in make_grid(build.session, 0, 2).rows] == [(IN, IN), (IN, DIFFERS)]


def test_what_a_live_session_has_not_as_ops_is_told_by_how_far_ranks_came() -> None:
    build = SessionBuilder(world_size=4)
    for rank, (issued, ended) in enumerate([(7, 7), (7, 6), (6, 6)]):
        build.session.ranks[rank].progress[0] = GroupProgress(issued_seq=issued, ended_seq=ended)
    build.lose(3)
    grid = make_grid(build.session, 0, 7, columns=2)
    assert [(row.ranks, row.cells) for row in grid.rows] == [
        ((0,), (DONE, DONE)),
        ((1,), (DONE, IN)),
        ((2,), (DONE, NOT_COME)),
        ((3,), (GridCell.UNKNOWN, GridCell.UNKNOWN)),
    ]


def test_of_groups_with_one_label_that_of_the_ranks_is_shown() -> None:
    build = SessionBuilder(world_size=4)
    build.group("tp", [0, 1])
    build.session.groups.append(replace(build.session.groups[1], name="tp~2", ranks=(2, 3)))
    finding = Finding(
        kind=FindingKind.MISSING_RANK,
        severity=Severity.ERROR,
        what="",
        ranks=(3,),
        group="tp",
        seq=2,
    )
    assert place_of_finding(build.session, finding) == (2, 2)
    assert place_of_finding(build.session, replace(finding, group="gone")) is None
    assert place_of_finding(build.session, replace(finding, seq=0)) is None
    message = build.op(0, "send", peer=1)
    about = replace(finding, seq=0, evidence=(Evidence(text="", op=message),))
    assert place_of_finding(build.session, about) is None


def test_a_rank_that_died_between_ops_is_shown_where_others_wait_for_it() -> None:
    build = SessionBuilder(world_size=3)
    build.group("tp", [0, 1])
    last = build.op(0, "all_reduce", group="tp", ended_s=1)
    for rank in (1, 2):
        build.op(rank, "barrier", at_s=2)
    finding = Finding(
        kind=FindingKind.DEAD_RANK,
        severity=Severity.ERROR,
        what="",
        ranks=(0,),
        victims=(1, 2),
        evidence=(Evidence(text="", rank=0, op=last),),
    )
    assert place_of_finding(build.session, finding) == (0, 1)
    assert place_of_finding(build.session, replace(finding, victims=())) == (1, 1)


def test_what_differs_is_shown_and_not_what_is_equal() -> None:
    build = SessionBuilder(world_size=3)
    for rank in range(3):
        op, root = ("max" if rank == 2 else "sum"), (1 if rank == 2 else 0)
        build.op(
            rank, "all_reduce", dtype="float32", inputs=[(4,)], op=op, fingerprint=5 + rank // 2
        )
        build.op(rank, "broadcast", dtype="float32", inputs=[(4,)], root=root)
        build.op(rank, "all_gather", dtype="float32", inputs=[(4,)], fingerprint=7 + rank // 2)
    (odd,) = (row for row in make_grid(build.session, 0, 3, blamed=(2,)).rows if row.ranks == (2,))
    assert odd.cells == (DIFFERS, DIFFERS, DIFFERS)
    assert odd.calls == ("op max", "root 1", "")


def test_messages_and_calls_beside_the_ops_have_no_table() -> None:
    build = SessionBuilder(world_size=2)
    for rank in range(2):
        build.op(rank, "barrier", at_s=1, ended_s=2)
    waiting = build.op(0, "recv", peer=1, at_s=3)
    aside = build.op(0, "new_group", at_s=3, seq=1)
    for op in (waiting, aside):
        finding = Finding(
            kind=FindingKind.DEADLOCK,
            severity=Severity.ERROR,
            what="they wait",
            ranks=(1,),
            victims=(0,),
            group="world",
            seq=1,
            evidence=(Evidence(text="it waits", rank=0, op=op),),
        )
        assert place_of_finding(build.session, finding) is None
