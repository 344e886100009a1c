"""Messages that never met, and ops on mixed-up groups: what is shown of them, and who is the cause."""

from __future__ import annotations

from typing import Any

import pytest

from distdbg.diagnose.finding import Finding, FindingKind, Severity
from distdbg.diagnose.unmatched import PairDifference, find_pairs
from distdbg.diagnose.verdict import diagnose
from distdbg.record.format import Exit, Status
from distdbg.render.short import short_lines
from tests.support.session_builder import SessionBuilder
from tests.unit.diagnose.one_finder import error, texts
from tests.unit.diagnose.root_finding import root_of


def sent_elsewhere(tag: int = 5) -> SessionBuilder:
    """Rank 0 sends to rank 2, rank 1 waits for it."""
    build = SessionBuilder(3)
    build.op(0, "send", peer=2, tag=tag, at_s=1, site="/job/x.py:8 (main)")
    build.op(1, "recv", peer=0, tag=tag, at_s=1, site="/job/x.py:12 (main)")
    return build


SENT = (
    "rank 0 sent to rank 2 (tag 5) at x.py:8 (main); "
    "rank 1 waits for a message from rank 0 (tag 5) at x.py:12 (main)"
)


def test_a_send_to_the_wrong_rank_is_the_cause_of_a_deadlock_with_a_collective() -> None:
    build = sent_elsewhere()
    build.op(2, "barrier", at_s=1, site="/job/x.py:14 (main)")
    root = root_of(build)
    assert (root.kind, root.ranks, root.victims) == (FindingKind.DEADLOCK, (0,), (1, 2))
    assert root.what == (
        "ranks 0,2 are deadlocked: rank 0 sent to rank 2 (tag 5) at x.py:8; "
        "rank 1 waits for its message at x.py:12"
    )
    assert SENT in texts(root)
    assert "dst" in root.advice


def test_messages_of_one_line_that_fit_no_recv_are_one_fact() -> None:
    build = SessionBuilder(2)
    for tag in (1, 2, 3):
        op = build.op(
            0, "send", is_async=True, peer=1, tag=tag, at_s=tag, site="/job/x.py:8 (main)"
        )
    build.wait(op, since_s=4)
    build.op(1, "recv", peer=0, tag=4, at_s=1, site="/job/x.py:12 (main)")
    root = root_of(build)
    reported = [text for text in texts(root) if " waits for a message " in text]
    assert reported == [
        "rank 0 sent to rank 1 (tag 1) at x.py:8 (main); rank 1 waits for a message from rank 0 (tag 4) at "
        "x.py:12 (main) (2 more sent at that line)"
    ]


def test_a_send_to_the_wrong_rank_that_left_is_not_the_fault_of_that_rank() -> None:
    build = sent_elsewhere()
    build.exit(2, Exit.LEFT, at_s=2)
    root = root_of(build)
    assert (root.kind, root.ranks, root.victims) == (FindingKind.MISSING_RANK, (0,), (1,))
    assert root.what.startswith("rank 0 sent to rank 2 (tag 5) at x.py:8; rank 1 waits for its")
    assert SENT in texts(root)


def test_without_a_tag_the_rank_that_left_may_be_the_cause_as_well() -> None:
    build = sent_elsewhere(tag=0)
    build.exit(2, Exit.LEFT, at_s=2)
    assert root_of(build).ranks == (0, 2)


def test_a_rank_that_took_such_messages_before_has_left_too_early() -> None:
    build = SessionBuilder(3)
    build.op(0, "send", peer=2, tag=5, at_s=0.1, ended_s=0.2)
    build.op(2, "recv", peer=0, source=0, tag=5, at_s=0.1, ended_s=0.2)
    build.op(0, "send", peer=2, tag=5, at_s=1, site="/job/x.py:8 (main)")
    build.op(1, "recv", peer=0, tag=5, at_s=1, site="/job/x.py:12 (main)")
    build.exit(2, Exit.LEFT, at_s=2)
    root = root_of(build)
    assert root.ranks == (2,)
    assert root.what.startswith("rank 2 left while rank 0")
    assert SENT in texts(root)  # a fact all the same


def test_a_rank_that_is_only_late_for_a_message_is_no_proof_of_a_wrong_send() -> None:
    build = sent_elsewhere()
    assert [pair.is_likely for pair in find_pairs(build.session)] == [False]


def test_a_recv_of_the_wrong_rank_shows_the_message_that_is_there() -> None:
    build = SessionBuilder(3)
    build.op(2, "send", peer=0, at_s=1, site="/job/x.py:8 (main)")
    build.op(0, "recv", peer=1, at_s=1, site="/job/x.py:12 (main)")
    build.op(1, "barrier", at_s=1)
    (pair,) = find_pairs(build.session)
    assert pair.differ is PairDifference.SOURCE
    assert pair.text in texts(root_of(build))


@pytest.mark.parametrize(("tag", "group"), [(7, "world"), (0, "pipe")])
def test_only_the_nearest_pair_of_a_recv_is_shown(tag: int, group: str) -> None:
    build = SessionBuilder(3)
    build.group("pipe", [0, 1, 2])
    build.op(0, "send", peer=1, tag=tag, group=group)
    build.op(0, "send", peer=2, is_async=True)
    build.op(1, "recv", peer=0)
    (pair,) = find_pairs(build.session)
    assert pair.differ is (PairDifference.TAG if tag else PairDifference.GROUP)


def test_messages_that_meet_are_no_pairs() -> None:
    build = SessionBuilder(3)
    build.op(0, "send", peer=1)
    build.op(1, "recv", peer=0)
    build.op(2, "recv", peer=0)
    assert find_pairs(build.session) == []


# ------------------------------------------------------------------------------- from any rank


def took_the_wrong_one(
    *, rank_2_was_heard: bool = False, leaves_s: float = 2, failed: str = ""
) -> SessionBuilder:
    """`failed`: rank 0 is told after 0.1 s; else it waits."""
    build = SessionBuilder(3)
    if rank_2_was_heard:
        build.op(2, "send", peer=0, at_s=0.1, ended_s=0.2)
        build.op(0, "recv", source=2, at_s=0.1, ended_s=0.2)
    build.op(1, "send", peer=0, at_s=0.3, ended_s=0.4)
    build.op(0, "recv", source=1, at_s=0.3, ended_s=0.4, site="/job/x.py:9 (main)")
    end: dict[str, Any] = (
        {"ended_s": 1.1, "status": Status.PEER_LOST, "error": failed} if failed else {}
    )
    build.op(0, "recv", peer=1, at_s=1, site="/job/x.py:11 (main)", **end)
    build.exit(1, Exit.LEFT, at_s=leaves_s)
    return build


TOOK = (
    "rank 0's recv from any rank at x.py:9 (main) took rank 1's message, "
    "needed by its recv at x.py:11 (main)"
)


def test_a_recv_from_any_rank_that_took_the_wrong_message_is_the_cause() -> None:
    root = root_of(took_the_wrong_one())
    assert (root.ranks, root.victims) == ((0,), ())
    assert root.what.startswith("rank 0's recv from any rank at x.py:9 took rank 1's message")
    assert TOOK in texts(root)
    assert "tag" in root.advice


def test_it_is_the_cause_also_where_the_error_was_felt_before_the_leaver_wrote_its_end() -> None:
    build = took_the_wrong_one(leaves_s=1.2, failed=error("RankLeft", "rank 1 left", ranks=[1]))
    build.exit(0, Exit.RAISED, at_s=1.3, what="RankLeft: rank 1 left")
    verdict = diagnose(build.session)
    errors = [one for one in verdict.findings if one.severity is Severity.ERROR]
    assert [(one.kind, one.ranks) for one in errors] == [(FindingKind.MISSING_RANK, (0,))]


def test_where_all_others_were_heard_the_rank_that_left_stays_the_cause() -> None:
    root = root_of(took_the_wrong_one(rank_2_was_heard=True))
    assert root.ranks == (1,)
    assert TOOK in texts(root)


# ----------------------------------------------------------------------------------- groups


def test_one_op_on_two_groups_at_one_line_is_the_cause() -> None:
    build = SessionBuilder(3)
    build.group("a", [0, 1])
    build.group("b", [1, 2])
    build.op(0, "all_reduce", group="a", at_s=1, site="/job/x.py:10 (main)")
    build.op(1, "all_reduce", group="b", at_s=1, site="/job/x.py:10 (main)")
    build.op(2, "barrier", at_s=1, site="/job/x.py:11 (main)")
    root = root_of(build)
    assert root.what == (
        "ranks 1-2 are deadlocked: at x.py:10 rank 0 called all_reduce on group 'a', "
        "rank 1 on group 'b'"
    )
    assert "how that line chooses the group" in root.advice


def test_all_ranks_of_the_line_are_named_with_the_fewest_first() -> None:
    build = SessionBuilder(4)
    for group in ("tp", "dp"):
        build.group(group, [0, 1, 2, 3])
    for rank in range(4):
        group = "dp" if rank == 1 else "tp"
        build.op(rank, "all_reduce", group=group, at_s=1, site="/job/x.py:10 (main)")
    root = root_of(build)
    said = "at x.py:10 rank 1 called all_reduce on group 'dp', ranks 0,2-3 on group 'tp'"
    said += " (3 of 4 ranks)"
    assert root.what == f"ranks 0-3 are deadlocked: {said}"
    assert (root.ranks, root.victims) == ((1,), (0, 2, 3))
    assert [text for text in texts(root) if "called all_reduce" in text] == [
        said.replace("x.py:10", "x.py:10 (main)")
    ]


def test_where_no_group_has_most_ranks_all_that_are_deadlocked_are_the_cause() -> None:
    build = SessionBuilder(4)
    for group in ("tp", "dp"):
        build.group(group, [0, 1, 2, 3])
    for rank in range(4):
        group = "dp" if rank < 2 else "tp"
        build.op(rank, "all_reduce", group=group, at_s=1, site="/job/x.py:10 (main)")
    root = root_of(build)
    assert set(root.ranks) == root.deadlocked
    assert len(root.ranks) == 2
    assert "may differ between ranks" in root.advice  # all are in both groups


def devices(kinds: tuple[str, str], groups: tuple[str, str], line: int) -> Finding:
    """Four ranks, two of them in an op of the group for arrays on the host."""
    build = SessionBuilder(4)
    for group in groups:
        build.group(group, [0, 1, 2, 3])
    for rank in range(4):
        site = f"/job/x.py:{10 + line * (rank % 2)} (main)"
        build.op(rank, kinds[rank % 2], group=groups[rank % 2], at_s=1, site=site)
    return root_of(build)


@pytest.mark.parametrize("line", [0, 1])
def test_ranks_with_arrays_on_the_host_and_on_a_gpu_are_named(line: int) -> None:
    root = devices(("all_reduce", "all_reduce"), ("dp", "dp (host)"), line)
    called = "ranks 1,3 called all_reduce with an array on the host, ranks 0,2 with one on a GPU"
    assert root.what == f"ranks 0-3 are deadlocked: {called}"
    assert root.advice.startswith("put the array on a GPU on all ranks")
    lines = "x.py:11 (main) and x.py:10 (main)" if line else "x.py:10 (main)"
    assert f"{called}: at {lines}" in texts(root)


@pytest.mark.parametrize(
    ("kinds", "groups"),
    [
        (("all_reduce", "barrier"), ("dp", "dp (host)")),  # a barrier has no array
        (("all_reduce", "all_reduce"), ("dp", "tp (host)")),
    ],
)
def test_groups_of_two_devices_may_differ_in_more(
    kinds: tuple[str, str], groups: tuple[str, str]
) -> None:
    assert "on a GPU" not in devices(kinds, groups, 1).what


def test_a_line_that_takes_the_group_as_an_argument_says_nothing() -> None:
    build = SessionBuilder(2)
    for rank, group in enumerate("ab"):
        build.group(group, [0, 1])
        site = f"/job/x.py:3 (reduce) < /job/x.py:{rank + 20} (main)"
        build.op(rank, "all_reduce", group=group, at_s=1, site=site)
    root = root_of(build)
    assert root.what.startswith("ranks 0-1 are deadlocked (cycle of 2 ranks): ")
    assert any("both are in both groups" in text for text in texts(root))


def test_nobody_is_said_to_have_called_what_it_has_not() -> None:
    """Rank 1 is on the wrong group: it has not called the op on the other one, before or after."""
    build = SessionBuilder(3)
    build.group("g", [0, 1])
    for rank in (0, 2):
        build.op(rank, "all_reduce", at_s=1, site=f"/job/x.py:{rank + 10} (main)")
    build.op(1, "all_reduce", group="g", at_s=1, site="/job/x.py:20 (main)")
    root = root_of(build)
    assert not any("before group" in text or "other way" in text for text in texts(root))
    assert any(
        text.startswith("rank 0 called all_reduce #1 on group 'world' at x.py:10 (main), rank 1 ")
        for text in texts(root)
    )


# ------------------------------------------------------------------------------ begun elsewhere


def test_an_isend_with_a_wrong_tag_is_shown_with_its_own_line_and_that_of_the_wait() -> None:
    build = SessionBuilder(2)
    send = build.op(0, "send", peer=1, tag=7, at_s=1, is_async=True, site="/job/x.py:7 (main)")
    recv = build.op(1, "recv", peer=0, at_s=1, is_async=True, site="/job/x.py:8 (main)")
    build.wait(send, since_s=2, site="/job/x.py:10 (main)")
    build.wait(recv, since_s=2, site="/job/x.py:9 (main)")
    root = root_of(build)
    assert texts(root) == [
        "rank 0 waits in send to rank 1 (tag 7) on group 'world' at x.py:10 (main), "
        "begun at x.py:7 (main)",
        "rank 1 waits in recv from rank 0 on group 'world' at x.py:9 (main), "
        "begun at x.py:8 (main)",
        "rank 0 sent to rank 1 (tag 7) at x.py:7 (main); "
        "rank 1 waits for a message from rank 0 (tag 0) at x.py:8 (main)",
    ]
    assert root.advice == "use the same tag for the send and the recv"


def test_a_send_to_the_wrong_rank_of_a_cycle_is_shown_with_what_to_compare() -> None:
    build = SessionBuilder(3)
    build.op(0, "recv", peer=2, at_s=1, site="/job/x.py:11 (main)")
    build.op(1, "send", peer=0, at_s=1, site="/job/x.py:14 (main)")
    build.op(2, "recv", peer=1, at_s=1, site="/job/x.py:16 (main)")
    root = root_of(build)
    assert (root.kind, root.ranks) == (FindingKind.DEADLOCK, (0, 1, 2))
    assert "compare dst of the send with src" in root.advice
    assert short_lines(build.session, diagnose(build.session))[1:3] == [
        "  rank 1 sent to rank 0 at x.py:14 (main); "
        "rank 0 waits for a message from rank 2 at x.py:11 (main)",
        "  rank 1 sent to rank 0 at x.py:14 (main); "
        "rank 2 waits for a message from rank 1 at x.py:16 (main)",
    ]


def test_a_cycle_of_recvs_has_no_send_to_compare() -> None:
    build = SessionBuilder(3)
    for rank in range(3):
        build.op(rank, "recv", peer=(rank - 1) % 3, at_s=1, site="/job/x.py:7 (shift)")
    assert "dst" not in root_of(build).advice


def test_another_tag_is_the_first_line_of_the_short_report_and_there_once() -> None:
    build = SessionBuilder(2)
    build.op(0, "send", peer=1, tag=1, at_s=1, site="/job/x.py:9 (ring)")
    build.op(1, "recv", peer=0, tag=0, at_s=1, site="/job/x.py:10 (ring)")
    lines = short_lines(build.session, diagnose(build.session))
    assert lines[0] == (
        "ranks 0-1 are deadlocked: rank 0 sent to rank 1 (tag 1) at x.py:9; "
        "rank 1 waits for tag 0 at x.py:10"
    )
    assert sum("rank 0 sent to rank 1" in line for line in lines) == 1


@pytest.mark.parametrize("wrong", ["send", "recv"])
def test_whose_tag_is_another_than_that_of_all_others_at_its_line_is_the_cause(wrong: str) -> None:
    build = SessionBuilder(4)
    for rank in range(4):
        sent = 9 if (wrong, rank) == ("send", 2) else 0
        got = 9 if (wrong, rank) == ("recv", 2) else 0
        is_met = (rank != 2) if wrong == "send" else (rank != 1)
        send = build.op(rank, "send", peer=(rank + 1) % 4, tag=sent, at_s=1, is_async=True,
                        ended_s=1.1 if is_met else None, site="/job/x.py:5 (ring)")  # fmt: skip
        is_got = (rank != 3) if wrong == "send" else (rank != 2)
        build.op(rank, "recv", peer=(rank - 1) % 4, tag=got, at_s=1,
                 ended_s=1.1 if is_got else None, site="/job/x.py:7 (ring)")  # fmt: skip
        if not is_met:
            build.wait(send, since_s=2, site="/job/x.py:8 (ring)")
    root = root_of(build)
    assert root.ranks == (2,)
    assert " sent to rank " in root.what
    assert " at x.py:5; rank " in root.what


def test_the_rank_that_uses_two_groups_in_another_order_than_most_is_the_cause() -> None:
    build = SessionBuilder(4)
    for group in ("dp", "tp"):
        build.group(group, [0, 1, 2, 3])
    for rank in range(4):
        group, line = ("tp", 15) if rank == 2 else ("dp", 17)
        site = f"/job/x.py:{4 + (group == 'tp')} (sync) < /job/x.py:{line} (main)"
        if rank == 2:  # that line serves another caller as well
            build.op(rank, "all_reduce", group="tp", at_s=1, started_s=1, ended_s=1,
                     site="/job/x.py:5 (sync) < /job/x.py:17 (main)")  # fmt: skip
            seq = 2
        else:
            build.op(rank, "all_reduce", group="tp", at_s=1, started_s=1, ended_s=1,
                     site="/job/x.py:5 (sync) < /job/x.py:17 (main)")  # fmt: skip
            seq = 1
        build.op(rank, "all_reduce", group=group, at_s=2, seq=seq, site=site)
    root = root_of(build)
    assert root.what == (
        "ranks 0-3 are deadlocked: rank 2 called all_reduce on group 'tp' at x.py:15; "
        "ranks 0-1,3 on group 'dp' at x.py:4"
    )
    assert (root.ranks, root.victims) == ((2,), (0, 1, 3))
    assert (
        root.advice
        == "use the groups in the same order: see why rank 2 came to x.py:15 (main) first"
    )
