"""Ranks that called different things."""

from typing import Any

import pytest

from distdbg.diagnose.finding import Severity
from distdbg.diagnose.ops import OTHER_KIND
from distdbg.record.format import Status
from distdbg.record.forms import Form
from tests.support.session_builder import SessionBuilder
from tests.unit.diagnose.mismatches import error, find, find_one, steps, texts


def test_what_the_check_said_is_one_finding_for_all_ranks() -> None:
    build = SessionBuilder(4)
    steps(build, range(4))
    what = "all_reduce #3 on group 'world' differs between ranks: float32[4] on ranks 0-2, ..."
    for rank in range(4):
        build.op(
            rank,
            "all_reduce",
            at_s=3,
            ended_s=3.1,
            status=Status.MISMATCH,
            site=f"/home/me/train.py:{91 if rank == 3 else 88} (step)",
            error=error(what, ranks=[3], seq=3, group="world", details=["one"], hint="pad it"),
        )
        build.found(rank, "MismatchError", what, at_s=3.1, ranks=(3,), seq=3, group="world")
    finding = find_one(build)
    assert finding.severity is Severity.ERROR
    assert finding.what == what
    assert (finding.ranks, finding.victims) == ((3,), (0, 1, 2))
    assert (finding.group, finding.seq, finding.at_ns) == ("world", 3, 3_100_000_000)
    assert finding.advice == "pad it"
    assert [line.site for line in finding.evidence] == [
        "train.py:91 (step)",
        "train.py:88 (step)",
        "",
    ]
    assert "rank 3 called all_reduce #3 on group 'world' at train.py:91 (step)" in texts(finding)


@pytest.mark.parametrize("has_gone_on", [False, True])
def test_of_groups_that_differ_each_rank_has_its_own_line_of_that_number(has_gone_on: bool) -> None:
    """A rank that `has_gone_on` hears of it in its next call, whose number its error has."""
    build = SessionBuilder(3)
    what = "new_group #1 differs between ranks: group 0-1 on ranks 0-1, group 0,2 on rank 2"
    for rank in range(3):
        lines = (19,) if rank == 2 else (18, 19)
        for number, line in enumerate(lines, 1):
            is_last = line == 19 and rank != 1
            build.op(
                rank, "new_group", seq=number, at_s=number,
                ended_s=3.0 if has_gone_on and rank == 2 else number + 0.1,
                status=Status.MISMATCH if is_last else Status.OK, site=f"/job/heat.py:{line} (setup)",
                error=error(what, ranks=[2], seq=number if has_gone_on else 1, group="world")
                if is_last else "",
            )  # fmt: skip
        if rank != 1:
            seq = len(lines) if has_gone_on else 1
            build.found(rank, "MismatchError", what, at_s=3, ranks=(2,), seq=seq, group="world")
    finding = find_one(build)
    assert (finding.ranks, finding.victims) == ((2,), (0, 1))
    assert "rank 2 called new_group #1 on group 'world' at heat.py:19 (setup)" in texts(finding)
    assert "ranks 0-1 called new_group #1 on group 'world' at heat.py:18 (setup)" in texts(finding)


def test_a_mismatch_of_which_only_words_are_left_is_told_by_them() -> None:
    build = SessionBuilder(4)
    for rank in range(4):
        build.found(
            rank,
            "MismatchError",
            "all_reduce #9 differs",
            at_s=3,
            ranks=(2,),
            seq=9,
            group="world",
            details=("rank 2 called all_reduce at train.py:8 (step)",),
        )
    finding = find_one(build)
    assert (finding.ranks, finding.victims) == ((2,), (0, 1, 3))
    assert texts(finding) == "rank 2 called all_reduce at train.py:8 (step)"


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("no data was exchanged; the group is still usable", ["no data was exchanged"]),
        ("the group is still usable", []),
    ],
)
def test_of_a_job_that_ended_by_it_nobody_says_that_the_group_is_usable(
    line: str, shown: list[str]
) -> None:
    build = SessionBuilder(2)
    for rank in range(2):
        build.found(
            rank, "MismatchError", "it differs", ranks=(1,), seq=9, group="world", details=(line,)
        )
    assert [evidence.text for evidence in find_one(build).evidence] == shown


def test_a_mismatch_of_a_message_blames_neither_side() -> None:
    build = SessionBuilder(3)
    what = "message on group 'world' differs between ranks: rank 0 sent 4 float32, ..."
    for rank, kind, peer in ((0, "send", 1), (1, "recv", 0)):
        build.op(
            rank,
            kind,
            peer=peer,
            at_s=1,
            ended_s=2,
            status=Status.MISMATCH,
            site=f"a.py:{rank + 1} (f)",
            error=error(what, ranks=[0, 1], seq=-1, group="world"),
        )
    finding = find_one(build)
    assert (finding.ranks, finding.victims) == ((), (0, 1))
    assert {line.site for line in finding.evidence} == {"a.py:1 (f)", "a.py:2 (f)"}


def test_without_a_majority_the_check_has_named_all_and_nobody_is_blamed() -> None:
    build = SessionBuilder(2)
    for rank in range(2):
        build.found(rank, "MismatchError", "it differs", ranks=(0, 1), seq=1, group="world")
    assert find_one(build).ranks == ()


def test_a_mismatch_that_the_program_got_over_is_a_note() -> None:
    build = SessionBuilder(2)
    for rank in range(2):
        build.op(
            rank, "barrier", at_s=1, ended_s=1.5, status=Status.MISMATCH, error=error("it differs")
        )
        build.op(rank, "barrier", at_s=2, ended_s=2.5)
    assert find_one(build).severity is Severity.NOTE


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 1, 0, 2), (2, 3, 1, 0)])
@pytest.mark.parametrize("odd", [0, 2, 3])
def test_the_majority_is_right_whoever_comes_first(order: tuple[int, ...], odd: int) -> None:
    build = SessionBuilder(4)
    for rank in order:
        steps(build, [rank])
        build.op(
            rank,
            "broadcast" if rank == odd else "all_reduce",
            at_s=3,
            site=f"train.py:{91 if rank == odd else 88} (step)",
            inputs=[(4,)],
            dtype="float32",
        )
    build.session.ranks = {rank: build.session.ranks[rank] for rank in order}
    finding = find_one(build)
    others = tuple(sorted({0, 1, 2, 3} - {odd}))
    assert (finding.ranks, finding.victims, finding.seq) == ((odd,), others, 3)
    assert finding.what.startswith("op #3 on group 'world' differs between ranks: all_reduce float")
    assert finding.what.endswith(f"broadcast float32[4] on rank {odd}")
    assert "train.py:91 (step)" in texts(finding)
    assert "train.py:88 (step)" in texts(finding)
    assert f"before it, rank {odd} called all_reduce #2 on group 'world' at train.py:80" in texts(
        finding
    )


def test_two_against_two_blames_nobody_and_shows_both() -> None:
    build = SessionBuilder(4)
    for rank in range(4):
        build.op(rank, "reduce" if rank > 1 else "gather", at_s=1, site=f"a.py:{rank} (f)", root=0)
    finding = find_one(build)
    assert (finding.ranks, finding.victims) == ((), (0, 1, 2, 3))
    assert "gather on ranks 0-1, reduce on ranks 2-3" in finding.what
    assert "no side has a majority" in texts(finding)


def mixed_up(*, waits: bool = True, is_said: bool) -> SessionBuilder:
    """Rank 2 calls on 'tp' what it should have called on 'dp', where rank 0 waits for it."""
    build = SessionBuilder(4)
    build.group("dp", [0, 2])
    build.group("tp", [2, 3])
    large = {"inputs": [(8,)], "dtype": "float64"}
    small = {"inputs": [(4,)], "dtype": "float64"}
    for ranks, group, form in (((0, 2), "dp", large), ((2, 3), "tp", small)):
        for rank in ranks:
            build.op(
                rank, "all_reduce", group=group, at_s=1, ended_s=1.1, site="a.py:9 (f)", **form
            )
    if waits:
        build.op(0, "all_reduce", group="dp", at_s=2, site="a.py:9 (f)", **large)
    what = "all_reduce #2 on group 'tp' differs between ranks: float64[8] on rank 2, float64[4] on rank 3"
    no_majority = "no side has a majority: the calls do not show which one is wrong"
    words = error(what, ranks=[2, 3], seq=2, group="tp", details=[no_majority]) if is_said else ""
    ends = {"ended_s": 2.2, "status": Status.MISMATCH, "error": words} if is_said else {}
    build.op(2, "all_reduce", group="tp", at_s=2.1, site="a.py:7 (f)", **ends, **large)
    build.op(3, "all_reduce", group="tp", at_s=2.1, site="a.py:10 (f)", **ends, **small)
    return build


@pytest.mark.parametrize("is_said", [True, False])
def test_a_call_that_others_wait_for_on_another_group_is_the_wrong_one(is_said: bool) -> None:
    finding = find_one(mixed_up(is_said=is_said))
    assert (finding.ranks, finding.victims, finding.group) == ((2,), (3,), "tp")
    assert (
        "rank 0 waited for the same call of rank 2 in all_reduce #2 on group 'dp' at a.py:9 (f)"
        in texts(finding)
    )
    led = "rank 2 called all_reduce on group 'tp' at a.py:7 (f); rank 0 waited for it on group 'dp'"
    assert (finding.what == led) == is_said
    assert "no side has a majority" not in texts(finding)
    assert finding.advice.startswith("see how that line chooses the group")
    finding = find_one(mixed_up(is_said=is_said, waits=False))
    assert finding.ranks == ()
    assert "no side has a majority" in texts(finding)


@pytest.mark.parametrize(
    ("kind", "usual", "odd", "reported"),
    [
        ("all_reduce", {"dtype": "float16"}, {"dtype": "bfloat16"}, "bfloat16[8] on rank 1"),
        ("all_reduce", {"op": "SUM"}, {"op": "MAX"}, "op MAX on rank 1"),
        ("broadcast", {"root": 0}, {"root": 1}, "root 1 on rank 1"),
        ("reduce", {"root": 0}, {"root": 2}, "root 2 on rank 1"),
        ("all_reduce", {}, {"inputs": [(7,)]}, "float32[7] on rank 1"),
        ("all_gather", {"outputs": [(9,)]}, {"outputs": [(10,)]}, "float32[8] on rank 1"),
        ("reduce_scatter", {"outputs": [(2,)]}, {"inputs": [(6,)]}, "float32[6] on rank 1"),
    ],
)
def test_forms_are_compared_where_there_are_no_fingerprints(
    kind: str, usual: dict[str, Any], odd: dict[str, Any], reported: str
) -> None:
    build = SessionBuilder(3)
    for rank in range(3):
        form = {"dtype": "float32", "inputs": [(8,)]} | (odd if rank == 1 else usual)
        build.op(rank, kind, at_s=1, **form)
    finding = find_one(build)
    assert finding.ranks == (1,)
    assert reported in finding.what
    assert finding.advice


def test_two_dtypes_with_two_reduce_ops_are_two_calls_and_no_matter_of_the_dtype() -> None:
    build = SessionBuilder(3)
    for rank in range(3):
        form = {"dtype": "int64", "op": "MAX"} if rank == 1 else {"dtype": "float32", "op": "SUM"}
        build.op(rank, "all_reduce", at_s=1, inputs=[(1,)], **form)
    assert find_one(build).advice.startswith("these are two different calls")


@pytest.mark.parametrize(
    ("kind", "forms"),
    [
        ("all_gather", [{"inputs": [(n,)], "outputs": [(1,), (2,), (3,)]} for n in (1, 2, 3)]),
        ("reduce_scatter", [{"inputs": [(1,), (2,)], "outputs": [(n,)]} for n in (1, 2)]),
        ("gather", [{"inputs": [(n,)], "outputs": [(1,), (2,)] if n == 1 else []} for n in (1, 2)]),
        (
            "scatter",
            [{"inputs": [(1,), (2,)] if n == 1 else [], "outputs": [(n,)]} for n in (1, 2)],
        ),
        ("all_reduce", [{"inputs": [(4,)]}, {"inputs": [(2, 2)]}]),
        ("all_reduce", [{"op": "PREMUL_SUM(2.0)"}, {"op": "PREMUL_SUM(3.0)"}]),
        ("all_gather", [{"name": "all_gather_into_tensor"}, {"name": "all_gather"}]),
        ("all_reduce", [{"dtype": "float32"}, {"dtype": ""}]),
        ("all_reduce", [{"inputs": [(4,)]}, {}]),
        ("broadcast", [{"root": 0}, {}]),
        ("barrier", [{"dtype": "uint8"}, {"dtype": "int32"}]),
        ("all_reduce", [{"root": 0}, {"root": 1}]),
        ("all_to_all", [{"inputs": [(3,)], "outputs": [(n,)]} for n in (3, 5)]),
    ],
)
def test_what_is_legal_or_not_known_is_no_mismatch(kind: str, forms: list[dict[str, Any]]) -> None:
    build = SessionBuilder(len(forms))
    for rank, form in enumerate(forms):
        build.op(rank, kind, at_s=1, ended_s=2, **form)
    assert find(build.session) == []


def test_fingerprints_decide_where_both_are_known() -> None:
    build = SessionBuilder(3)
    for rank in range(3):
        # Shapes of one count differ for the check, and forms of other splits do not.
        build.op(
            rank,
            "all_reduce",
            at_s=1,
            ended_s=2,
            fingerprint=7 if rank else 8,
            inputs=[(2, 2) if rank == 0 else (4,)],
            dtype="float32",
        )
    finding = find_one(build)
    assert finding.ranks == (0,)
    assert finding.what.endswith("between ranks: float32[4] on ranks 1-2, float32[2,2] on rank 0")
    assert finding.severity is Severity.WARNING  # all of it has gone well


def test_fingerprints_that_differ_for_a_reason_that_no_form_shows_are_a_mismatch() -> None:
    build = SessionBuilder(3)
    for rank in range(3):
        build.op(rank, "all_reduce", at_s=1, fingerprint=9 if rank == 1 else 8, inputs=[(4,)])
    finding = find_one(build)
    assert finding.ranks == (1,)
    assert finding.advice.startswith("a branch on rank 1")


def test_sums_in_another_order_are_told_where_no_rank_was() -> None:
    build = SessionBuilder(3)
    for rank in range(3):
        fingerprint, sums = (9, "") if rank == 1 else (8, "as gloo")
        build.op(rank, "all_reduce", at_s=1, inputs=[(4,)], fingerprint=fingerprint, sums=sums)
    finding = find_one(build)
    assert finding.ranks == (1,)
    assert finding.what.endswith("sums in gloo's order on ranks 0,2, sums in rank order on rank 1")
    assert "DISTDBG_TORCH_SUMS" in finding.advice


def test_equal_fingerprints_make_forms_of_no_interest() -> None:
    build = SessionBuilder(2)
    for rank in range(2):
        build.op(rank, "all_reduce", at_s=1, fingerprint=7, inputs=[(rank + 1,)])
    assert find(build.session) == []


def test_a_fingerprint_on_one_side_only_leaves_the_forms() -> None:
    build = SessionBuilder(2)
    for rank in range(2):
        build.op(rank, "all_reduce", at_s=1, fingerprint=7 * rank, inputs=[(4,)])
    assert find(build.session) == []


def test_kinds_of_other_tools_are_compared_by_name_and_unknown_ones_are_not() -> None:
    build = SessionBuilder(3)
    for rank in range(3):
        build.op(rank, "barrier", at_s=1)
        build.op(rank, "barrier", at_s=2)
    session = build.session
    session.forms += [Form(kind="all_reduce_sparse"), Form(kind="coalesced"), Form()]
    first = len(session.forms) - 3
    for rank, log in session.ranks.items():
        log.ops.kind[0] = log.ops.kind[1] = OTHER_KIND
        log.ops.form[0] = first + 2 if rank == 0 else first
        log.ops.form[1] = first + 1 if rank == 2 else first
    finding = find_one(build)
    assert (finding.seq, finding.ranks) == (2, (2,))
    assert "coalesced on rank 2" in finding.what


def test_only_the_first_mismatch_of_a_group_is_told_and_the_rest_counted() -> None:
    build = SessionBuilder(3)
    for rank in range(3):
        for step in range(5):
            build.op(rank, "all_reduce", at_s=step, inputs=[(step + 4 * (rank == 2 and step > 1),)])
    finding = find_one(build)
    assert (finding.seq, finding.ranks, finding.numbers["later"]) == (3, (2,), 2)


def test_each_group_has_its_own() -> None:
    build = SessionBuilder(4)
    build.group("a", (0, 1))
    build.group("b", (2, 3))
    for rank in range(4):
        group = "a" if rank < 2 else "b"
        build.op(rank, "broadcast" if rank % 2 else "barrier", group=group, at_s=1)
    assert [finding.group for finding in find(build.session)] == ["a", "b"]


def test_ops_that_fail_beside_the_one_that_was_told_are_not_told_again() -> None:
    build = SessionBuilder(2)
    what = "all_reduce #1 on group 'world' differs between ranks: a block of 3, a block of 2"
    reported = error(what, seq=1, group="world")
    for rank in range(2):
        for text in (reported, "", ""):
            build.op(rank, "all_reduce", at_s=1, ended_s=1.1, status=Status.MISMATCH, error=text)
    assert find_one(build).what == what


def test_a_mismatch_without_words_says_at_least_where() -> None:
    build = SessionBuilder(2)
    for rank in range(2):
        build.op(rank, "all_reduce", at_s=1, ended_s=1.1, status=Status.MISMATCH)
    assert find_one(build).what == "all_reduce #1 on group 'world' differs between ranks"


@pytest.mark.parametrize(
    ("size", "before", "is_reported"), [(7, 12, True), (9, 12, False), (7, 1, False)]
)
def test_a_shorter_last_batch_is_hinted_at_only_after_many_ops(
    size: int, before: int, is_reported: bool
) -> None:
    build = SessionBuilder(3)
    for rank in range(3):
        for at in range(before):
            build.op(
                rank, "all_reduce", at_s=1 + at, ended_s=1.1 + at, dtype="float32", inputs=[(8,)]
            )
        last = size if rank == 1 else 8
        build.op(rank, "all_reduce", at_s=50, dtype="float32", inputs=[(last,)])
    finding = find_one(build)
    assert finding.ranks == (1,)
    assert ("shorter last batch" in finding.advice) is is_reported
